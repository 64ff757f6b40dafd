-- Erasures (rules E1 to E9): a journal that outlives a crash and the receipt that is made from it. Ids, counts and times; what
-- is looked for stands in erasure_scopes until the erasure is closed, and in the WAL until the checkpoint that follows.

-- Statements of turns up to this time are refused for this user, or for this agent of it: all of its memory was erased then.
ALTER TABLE users ADD COLUMN erased_before INTEGER NOT NULL DEFAULT 0;
ALTER TABLE owners ADD COLUMN erased_before INTEGER NOT NULL DEFAULT 0;
-- Highest epoch of the keys that went with an erasure: keys may be content, epochs never go back (rule P3).
ALTER TABLE owners ADD COLUMN epoch_floor INTEGER NOT NULL DEFAULT 0;

-- What an entry is about beside a record, and why somebody did it.
ALTER TABLE audit ADD COLUMN subject TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN reason TEXT NOT NULL DEFAULT '';

CREATE TABLE erasures (
  erasure_id   BLOB PRIMARY KEY,                  -- UUID
  user_id      INTEGER NOT NULL REFERENCES users,
  agent        TEXT NOT NULL,                     -- '' is every level of the user
  everything   INTEGER NOT NULL,
  epoch        INTEGER NOT NULL,                  -- erase epoch it raised the user to
  actor        TEXT NOT NULL,
  reason       TEXT NOT NULL,
  request_time INTEGER NOT NULL,
  taken_time   INTEGER NOT NULL,                  -- when a router took it up last
  close_time   INTEGER,                           -- out of every store, and looked for again
  file_time    INTEGER                            -- log folded in after that: no byte of it in the file
) STRICT, WITHOUT ROWID;
CREATE INDEX erasures_open ON erasures (request_time) WHERE close_time IS NULL;
CREATE INDEX erasures_of_user ON erasures (user_id);

-- What is not done yet. A row goes when its step is done.
CREATE TABLE erasure_steps (
  erasure_id BLOB NOT NULL REFERENCES erasures ON DELETE CASCADE,
  step       TEXT NOT NULL,
  attempts   INTEGER NOT NULL DEFAULT 0,
  problem    TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (erasure_id, step)
) STRICT, WITHOUT ROWID;

-- What to look for, in parts: JSON of metadata::erasures::Scope. Texts and keys are taken out when the erasure is closed.
CREATE TABLE erasure_scopes (
  erasure_id BLOB NOT NULL REFERENCES erasures ON DELETE CASCADE,
  part       INTEGER NOT NULL,
  scope      TEXT NOT NULL,
  PRIMARY KEY (erasure_id, part)
) STRICT, WITHOUT ROWID;

-- What went, what had words taken out of it, and what mentions it and stayed.
CREATE TABLE erasure_items (
  erasure_id BLOB NOT NULL REFERENCES erasures ON DELETE CASCADE,
  kind       TEXT NOT NULL CHECK (kind IN ('RECORD', 'ENTITY', 'SKILL', 'EPISODE', 'REDACTED', 'MENTION')),
  item_id    BLOB NOT NULL,
  gone       INTEGER NOT NULL,                    -- 1: removed
  PRIMARY KEY (erasure_id, kind, item_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX erasure_items_by_item ON erasure_items (item_id);

-- The receipt, by store.
CREATE TABLE erasure_stores (
  erasure_id BLOB NOT NULL REFERENCES erasures ON DELETE CASCADE,
  store      TEXT NOT NULL,
  found      INTEGER NOT NULL,
  removed    INTEGER NOT NULL,
  remaining  INTEGER NOT NULL,
  verified   INTEGER NOT NULL,
  medium     TEXT NOT NULL CHECK (medium IN ('', 'GONE', 'PENDING', 'NOT_PERMITTED')),
  gone_by    INTEGER,
  detail     TEXT NOT NULL,
  PRIMARY KEY (erasure_id, store)
) STRICT, WITHOUT ROWID;
