-- A topic of a session is an episode of its own (rule S7): several of one session, that share no turn. A UNIQUE constraint
-- cannot be altered, so both tables are made anew; the turns first, since they would go with the old episodes.

CREATE TABLE new_episodes (
  episode_id        BLOB PRIMARY KEY,
  owner_id          INTEGER NOT NULL REFERENCES owners ON DELETE CASCADE,
  session_id        TEXT NOT NULL,
  incarnation       INTEGER NOT NULL,
  from_time         INTEGER NOT NULL,             -- of the first turn
  to_time           INTEGER NOT NULL,             -- of the last turn
  summary           TEXT NOT NULL,                -- JSON array of core::episode::EpisodeSentence
  from_seq          INTEGER NOT NULL,             -- first turn in the session
  through           INTEGER NOT NULL,             -- last turn that was looked at
  kept              INTEGER NOT NULL,             -- rows of archived_turns
  complete          INTEGER NOT NULL,             -- 1: all of it is there; seen and searched from then on
  closed            INTEGER NOT NULL,             -- 1: its topic has ended; later turns are another episode's
  create_time       INTEGER NOT NULL,
  turns_expire_time INTEGER NOT NULL,
  findings          TEXT NOT NULL,                -- JSON array of core::episode::EpisodeFinding
  UNIQUE (owner_id, session_id, incarnation, from_seq)
) STRICT, WITHOUT ROWID;
INSERT INTO new_episodes (episode_id, owner_id, session_id, incarnation, from_time, to_time, summary, from_seq, through, kept,
  complete, closed, create_time, turns_expire_time, findings)
  SELECT episode_id, owner_id, session_id, incarnation, from_time, to_time, summary, 1, through, kept, complete, 0, create_time,
  turns_expire_time, findings FROM episodes;

CREATE TABLE new_archived_turns (
  episode_id  BLOB NOT NULL REFERENCES new_episodes ON DELETE CASCADE,
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
INSERT INTO new_archived_turns SELECT episode_id, seq, owner_id, role, text, speaker, external_id, time, client_time, tokens, words,
  asking, names, terms, model, vector FROM archived_turns;

DROP TABLE archived_turns;
DROP TABLE episodes;
ALTER TABLE new_episodes RENAME TO episodes;
ALTER TABLE new_archived_turns RENAME TO archived_turns;
CREATE INDEX episodes_by_owner ON episodes (owner_id, episode_id);
CREATE INDEX episodes_expiry ON episodes (turns_expire_time) WHERE kept > 0;
CREATE INDEX archived_turns_by_owner ON archived_turns (owner_id);
