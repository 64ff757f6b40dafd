-- What is made of other records, and what forgets by itself (rules F1 to F10).

ALTER TABLE records ADD COLUMN derived_from BLOB;        -- members of a summary, events of a proposed fact: 16 bytes each, in order
ALTER TABLE records ADD COLUMN span_from INTEGER;        -- time range of the members
ALTER TABLE records ADD COLUMN span_to INTEGER;

-- The same, to be found by member; a member may be gone, or still to come by an import. earlier_status is what the member goes back to when a consolidation is undone.
CREATE TABLE derivations (
  derived_id     BLOB NOT NULL REFERENCES records ON DELETE CASCADE,
  member_id      BLOB NOT NULL,
  owner_id       INTEGER NOT NULL,
  earlier_status TEXT NOT NULL,
  PRIMARY KEY (derived_id, member_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX derivations_by_member ON derivations (member_id);

-- Summaries (rule F5). CURRENT: what it says is what its members say. STALE: a member was corrected or forgotten since; it is
-- out of recall and remade. UNDONE: taken back by a person.
CREATE TABLE summaries (
  memory_id BLOB PRIMARY KEY REFERENCES records ON DELETE CASCADE,
  owner_id  INTEGER NOT NULL,
  state     TEXT NOT NULL CHECK (state IN ('CURRENT', 'STALE', 'UNDONE'))
) STRICT, WITHOUT ROWID;
CREATE INDEX summaries_stale ON summaries (state) WHERE state = 'STALE';

-- Records on which a person took an automatic step back, or whose summary went before them: no rule condenses or merges them.
CREATE TABLE exempt (
  memory_id BLOB PRIMARY KEY REFERENCES records ON DELETE CASCADE,
  owner_id  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Until when a user's records were compared for near-duplicates (rule R11).
CREATE TABLE merged (
  user_id INTEGER PRIMARY KEY REFERENCES users,
  until   INTEGER NOT NULL
) STRICT;

-- Whether a record is referenced, before it is purged.
CREATE INDEX records_supersedes ON records (supersedes) WHERE supersedes IS NOT NULL;
CREATE INDEX records_conflicts ON records (conflicts_with) WHERE conflicts_with IS NOT NULL;

-- Rule F8: the tier of a protected record or a constraint sets no end to it.
UPDATE records SET expire_time = expire_asked WHERE status = 'ACTIVE' AND (protected = 1 OR kind = 'CONSTRAINT');
