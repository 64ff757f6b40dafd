-- Entities, their names, their relations, and skills. Ids are UUID v7 like those of records; owners, times and vocabularies
-- as in records. What holds of an entity is records whose key begins with its prefix, no second store.

CREATE TABLE entities (
  entity_id      BLOB PRIMARY KEY,
  owner_id       INTEGER NOT NULL REFERENCES owners,
  kind           TEXT NOT NULL,
  name           TEXT NOT NULL,
  normal         TEXT NOT NULL,
  aliases        TEXT NOT NULL,                   -- JSON array, sorted
  prefix         TEXT NOT NULL,
  status         TEXT NOT NULL CHECK (status IN ('ACTIVE', 'CANDIDATE')),
  source         TEXT NOT NULL,
  source_ref     TEXT,
  source_quote   TEXT NOT NULL,
  quote_verified INTEGER NOT NULL,
  create_time    INTEGER NOT NULL,
  update_time    INTEGER NOT NULL,
  version        INTEGER NOT NULL,
  UNIQUE (owner_id, kind, normal),
  UNIQUE (owner_id, prefix)
) STRICT, WITHOUT ROWID;

-- Every name of an entity in normal form, its own included.
CREATE TABLE entity_names (
  entity_id BLOB NOT NULL REFERENCES entities ON DELETE CASCADE,
  owner_id  INTEGER NOT NULL,
  normal    TEXT NOT NULL,
  PRIMARY KEY (entity_id, normal)
) STRICT, WITHOUT ROWID;
CREATE INDEX entity_names_by_name ON entity_names (owner_id, normal);

CREATE TABLE relations (
  from_id        BLOB NOT NULL REFERENCES entities ON DELETE CASCADE,
  relation       TEXT NOT NULL,
  to_id          BLOB NOT NULL REFERENCES entities ON DELETE CASCADE,
  owner_id       INTEGER NOT NULL REFERENCES owners,
  status         TEXT NOT NULL CHECK (status IN ('ACTIVE', 'CANDIDATE')),
  source         TEXT NOT NULL,
  source_ref     TEXT,
  source_quote   TEXT NOT NULL,
  quote_verified INTEGER NOT NULL,
  create_time    INTEGER NOT NULL,
  PRIMARY KEY (from_id, relation, to_id, owner_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX relations_by_end ON relations (to_id);
CREATE INDEX relations_by_owner ON relations (owner_id);

-- One row per version; of the versions of a name at most one is ACTIVE.
CREATE TABLE skills (
  skill_id       BLOB PRIMARY KEY,
  owner_id       INTEGER NOT NULL REFERENCES owners,
  name           TEXT NOT NULL,
  normal         TEXT NOT NULL,
  version        INTEGER NOT NULL,
  triggers       TEXT NOT NULL,                   -- JSON array, in order
  steps          TEXT NOT NULL,                   -- JSON array, in order
  status         TEXT NOT NULL CHECK (status IN ('ACTIVE', 'CANDIDATE', 'SUPERSEDED')),
  source         TEXT NOT NULL,
  source_ref     TEXT,
  source_quote   TEXT NOT NULL,
  quote_verified INTEGER NOT NULL,
  instruction    INTEGER NOT NULL,
  create_time    INTEGER NOT NULL,
  UNIQUE (owner_id, normal, version)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX skills_in_force ON skills (owner_id, normal) WHERE status = 'ACTIVE';
