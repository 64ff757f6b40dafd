-- Episodes: what ended sessions were about, and for a while their turns (rule S14). Ids are UUID v7 like those of records;
-- owners, times and vocabularies as in records. No row of these tables is a record, and none becomes one.

CREATE TABLE episodes (
  episode_id        BLOB PRIMARY KEY,
  owner_id          INTEGER NOT NULL REFERENCES owners ON DELETE CASCADE,
  session_id        TEXT NOT NULL,
  incarnation       INTEGER NOT NULL,
  from_time         INTEGER NOT NULL,             -- of the first turn
  to_time           INTEGER NOT NULL,             -- of the last turn
  summary           TEXT NOT NULL,                -- JSON array of core::episode::EpisodeSentence
  through           INTEGER NOT NULL,             -- last turn that was looked at
  kept              INTEGER NOT NULL,             -- rows of archived_turns
  complete          INTEGER NOT NULL,             -- 1: the whole session is there; seen and searched from then on
  create_time       INTEGER NOT NULL,
  turns_expire_time INTEGER NOT NULL,
  findings          TEXT NOT NULL,                -- JSON array of core::episode::EpisodeFinding
  UNIQUE (owner_id, session_id, incarnation)
) STRICT, WITHOUT ROWID;
CREATE INDEX episodes_by_owner ON episodes (owner_id, episode_id);
CREATE INDEX episodes_expiry ON episodes (turns_expire_time) WHERE kept > 0;

-- Turns of user and agent, masked. Terms and vector stand in the row: what is erased with a turn is erased whole.
CREATE TABLE archived_turns (
  episode_id  BLOB NOT NULL REFERENCES episodes ON DELETE CASCADE,
  seq         INTEGER NOT NULL,
  owner_id    INTEGER NOT NULL REFERENCES owners ON DELETE CASCADE,
  role        TEXT NOT NULL CHECK (role IN ('USER', 'ASSISTANT')),
  text        TEXT NOT NULL,
  speaker     TEXT NOT NULL,
  external_id TEXT NOT NULL,
  time        INTEGER NOT NULL,
  client_time INTEGER,
  tokens      INTEGER NOT NULL,
  words       INTEGER NOT NULL,
  asking      REAL NOT NULL,
  names       BLOB NOT NULL,                      -- hashed terms of the speaker, 4 bytes each, little-endian
  terms       BLOB NOT NULL,                      -- hashed terms and their weights, 4 + 4 bytes each, little-endian
  model       TEXT,                               -- which model the vector comes from; none without one
  vector      BLOB,
  PRIMARY KEY (episode_id, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX archived_turns_by_owner ON archived_turns (owner_id);
