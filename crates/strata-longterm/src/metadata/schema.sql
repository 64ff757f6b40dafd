-- Long-term metadata, the truth of long-term memory: one file, one writer. Times are INTEGER UTC microseconds, ids of
-- records are 16-byte BLOBs (UUID v7), vocabularies are their stable upper-case names. Every table that holds content
-- carries owner_id, so that one owner's rows can be read, counted and erased without touching another's.

CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per (tenant, user): revision grows by one with every write of the user (read-your-writes), erase_epoch only by
-- an erasure (rule E2). Rows stay after erasure: epochs never go back.
CREATE TABLE users (
  user_id     INTEGER PRIMARY KEY,
  tenant      TEXT NOT NULL,
  user        TEXT NOT NULL,
  revision    INTEGER NOT NULL DEFAULT 0,
  erase_epoch INTEGER NOT NULL DEFAULT 0,
  UNIQUE (tenant, user)
) STRICT;

-- One row per owner: agent is '' at user level (an agent id is never empty).
CREATE TABLE owners (
  owner_id INTEGER PRIMARY KEY,
  user_id  INTEGER NOT NULL REFERENCES users,
  agent    TEXT NOT NULL,
  records  INTEGER NOT NULL DEFAULT 0,            -- rows of records, kept by the triggers below: the n of the IDF
  UNIQUE (user_id, agent)
) STRICT;

CREATE TABLE records (
  memory_id         BLOB PRIMARY KEY,
  owner_id          INTEGER NOT NULL REFERENCES owners,
  user_id           INTEGER NOT NULL REFERENCES users,
  kind              TEXT NOT NULL,
  tier              TEXT NOT NULL,
  key               TEXT,
  is_set            INTEGER NOT NULL,             -- cardinality of the key at the write (rule K11)
  value             TEXT,                         -- JSON of core::record::Value
  content           TEXT NOT NULL,
  normal            TEXT NOT NULL,
  -- 128 bits of the identity of the statement (rule G10): key and value, else kind and normal text, for EVENT the turn too.
  dedup             BLOB NOT NULL,
  source            TEXT NOT NULL,
  source_ref        TEXT,                         -- JSON of core::record::SourceRef
  source_quote      TEXT NOT NULL,
  quote_verified    INTEGER NOT NULL,
  confirmed         INTEGER NOT NULL,
  confidence        REAL NOT NULL,
  importance        INTEGER NOT NULL,
  sensitivity       TEXT NOT NULL,
  protected         INTEGER NOT NULL,
  instruction       INTEGER NOT NULL,
  status            TEXT NOT NULL,
  earlier_status    TEXT,                         -- what DELETED goes back to when restored, what decay came from
  supersedes        BLOB,
  superseded_by     BLOB,
  superseded_at     INTEGER,
  reason            TEXT NOT NULL,
  conflicts_with    BLOB,                         -- the ACTIVE record a candidate could not replace
  due               INTEGER NOT NULL DEFAULT 0,   -- 1: to be put to the user (rules G10, K3, K4)
  valid_from        INTEGER,
  valid_to          INTEGER,
  event_time        INTEGER NOT NULL,             -- hybrid clock per key
  create_time       INTEGER NOT NULL,
  update_time       INTEGER NOT NULL,
  expire_time       INTEGER,
  expire_asked      INTEGER,                      -- expiry the caller asked for, while a candidate's own is in force
  last_recalled_at  INTEGER,
  last_cited_at     INTEGER,
  recall_count      INTEGER NOT NULL DEFAULT 0,
  cite_count        INTEGER NOT NULL DEFAULT 0,
  topic             TEXT,
  tags              TEXT NOT NULL,                -- JSON array, sorted
  metadata          TEXT NOT NULL,                -- JSON object of strings, sorted
  owner_epoch       INTEGER NOT NULL,
  version           INTEGER NOT NULL,
  embedding_model   TEXT,                         -- none while the vector is pending
  length            INTEGER NOT NULL,             -- words of the indexed text (BM25 length norm)
  evidence_count    INTEGER NOT NULL,
  evidence_sessions INTEGER NOT NULL,
  CHECK (importance BETWEEN 1 AND 5),
  CHECK (confidence BETWEEN 0 AND 1),
  CHECK (kind <> 'SUMMARY' OR key IS NULL)
) STRICT, WITHOUT ROWID;

-- Rule G10, the dedup identity; rule K's one ACTIVE per slot at any instant of valid time: an open-ended record is the
-- last of its slot, so at most one is open-ended; closed intervals are kept apart by the conflict rules.
CREATE UNIQUE INDEX records_dedup ON records (owner_id, dedup)
  WHERE status IN ('CANDIDATE', 'ACTIVE', 'DISPUTED', 'REJECTED');
CREATE UNIQUE INDEX records_slot ON records (owner_id, key, tier)
  WHERE status = 'ACTIVE' AND key IS NOT NULL AND is_set = 0 AND tier <> 'EVENT' AND valid_to IS NULL;
CREATE INDEX records_by_key ON records (owner_id, key, status) WHERE key IS NOT NULL;
CREATE INDEX records_by_user ON records (user_id, memory_id);
CREATE INDEX records_by_status ON records (owner_id, status, memory_id);
CREATE INDEX records_by_text ON records (owner_id, kind, normal);
CREATE INDEX records_expiry ON records (expire_time) WHERE expire_time IS NOT NULL;
CREATE INDEX records_cited ON records (owner_id, last_cited_at) WHERE last_cited_at IS NOT NULL;
CREATE INDEX records_chain ON records (superseded_by) WHERE superseded_by IS NOT NULL;

CREATE TRIGGER record_added AFTER INSERT ON records BEGIN
  UPDATE owners SET records = records + 1 WHERE owner_id = new.owner_id;
END;
CREATE TRIGGER record_removed AFTER DELETE ON records BEGIN
  UPDATE owners SET records = records - 1 WHERE owner_id = old.owner_id;
END;

-- Every statement that supports a record; at most 64 a record, later ones only count.
CREATE TABLE evidence (
  evidence_id    INTEGER PRIMARY KEY AUTOINCREMENT,
  memory_id      BLOB NOT NULL REFERENCES records ON DELETE CASCADE,
  owner_id       INTEGER NOT NULL,
  mark           TEXT NOT NULL,                   -- once per turn, else once per request id (rule G10)
  source         TEXT NOT NULL,
  source_ref     TEXT,
  session_id     TEXT,
  cues           INTEGER NOT NULL,                -- bits of core::policy::gate::Cues
  quote          TEXT NOT NULL,
  quote_verified INTEGER NOT NULL,
  time           INTEGER NOT NULL,
  UNIQUE (memory_id, mark)
) STRICT;
CREATE INDEX evidence_by_session ON evidence (owner_id, session_id) WHERE session_id IS NOT NULL;

-- Every move of status, in order of history_id (times may repeat or step back).
CREATE TABLE history (
  history_id  INTEGER PRIMARY KEY AUTOINCREMENT,
  memory_id   BLOB NOT NULL REFERENCES records ON DELETE CASCADE,
  owner_id    INTEGER NOT NULL,
  time        INTEGER NOT NULL,
  from_status TEXT,
  to_status   TEXT NOT NULL,
  actor       TEXT NOT NULL,
  path        TEXT NOT NULL,
  reason      TEXT NOT NULL,
  rule        TEXT NOT NULL
) STRICT;
CREATE INDEX history_by_record ON history (memory_id, history_id);

-- Ownership at user and agent level (rules P1, P3): the highest epoch per key, kept after erasure; state is OWNED or
-- RELEASED. last_event is the key's hybrid clock; system_owned says a record system has the last word.
CREATE TABLE owner_keys (
  owner_id     INTEGER NOT NULL REFERENCES owners,
  key          TEXT NOT NULL,
  epoch        INTEGER NOT NULL,
  state        TEXT NOT NULL,
  last_event   INTEGER NOT NULL,
  system_owned INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (owner_id, key)
) STRICT, WITHOUT ROWID;

-- Terms of a record's indexed text (content, value, key words), for every record whatever its status; term is
-- strata_text::analyze's hash. Document frequency per owner is kept by the triggers below.
CREATE TABLE record_terms (
  owner_id  INTEGER NOT NULL,
  term      INTEGER NOT NULL,
  memory_id BLOB NOT NULL REFERENCES records ON DELETE CASCADE,
  tf        INTEGER NOT NULL,
  PRIMARY KEY (owner_id, term, memory_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX record_terms_by_record ON record_terms (memory_id);

CREATE TABLE owner_terms (
  owner_id INTEGER NOT NULL,
  term     INTEGER NOT NULL,
  df       INTEGER NOT NULL,
  PRIMARY KEY (owner_id, term)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER term_added AFTER INSERT ON record_terms BEGIN
  INSERT INTO owner_terms (owner_id, term, df) VALUES (new.owner_id, new.term, 1)
    ON CONFLICT (owner_id, term) DO UPDATE SET df = df + 1;
END;
CREATE TRIGGER term_removed AFTER DELETE ON record_terms BEGIN
  UPDATE owner_terms SET df = df - 1 WHERE owner_id = old.owner_id AND term = old.term;
  DELETE FROM owner_terms WHERE owner_id = old.owner_id AND term = old.term AND df <= 0;
END;

-- Vectors of the embedded index (and those supplied by callers, until the relay has taken them over): f32, little endian.
CREATE TABLE vectors (
  memory_id BLOB PRIMARY KEY REFERENCES records ON DELETE CASCADE,
  owner_id  INTEGER NOT NULL,
  model     TEXT NOT NULL,
  version   INTEGER NOT NULL,                     -- version of the record it was made from
  vector    BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX vectors_by_owner ON vectors (owner_id);

-- What the index has still to be told, in order. A row is deleted once the index has taken it at this or a later version.
CREATE TABLE outbox (
  seq       INTEGER PRIMARY KEY AUTOINCREMENT,
  memory_id BLOB NOT NULL,
  owner_id  INTEGER NOT NULL,
  version   INTEGER NOT NULL,
  op        TEXT NOT NULL CHECK (op IN ('UPSERT', 'DELETE')),
  time      INTEGER NOT NULL
) STRICT;
CREATE INDEX outbox_by_owner ON outbox (owner_id);
CREATE INDEX outbox_by_record ON outbox (memory_id);

-- Answers of mutating calls for 24 h, by request id. body is the digest of the request.
CREATE TABLE idempotency (
  user_id    INTEGER NOT NULL,
  request_id BLOB NOT NULL,
  method     TEXT NOT NULL,
  body       BLOB NOT NULL,
  response   BLOB NOT NULL,
  time       INTEGER NOT NULL,
  PRIMARY KEY (user_id, request_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_by_time ON idempotency (time);

-- Outcome of promotions that end here (rule P5): APPLIED with its answer, or ABORTED.
CREATE TABLE promotions (
  user_id      INTEGER NOT NULL,
  promotion_id TEXT NOT NULL,
  state        TEXT NOT NULL CHECK (state IN ('APPLIED', 'ABORTED')),
  response     BLOB,
  time         INTEGER NOT NULL,
  PRIMARY KEY (user_id, promotion_id)
) STRICT, WITHOUT ROWID;

-- Keyed digests of forgotten statements (rule E7): no content.
CREATE TABLE tombstones (
  user_id INTEGER NOT NULL,
  digest  BLOB NOT NULL,
  time    INTEGER NOT NULL,
  PRIMARY KEY (user_id, digest)
) STRICT, WITHOUT ROWID;

-- Append-only and hash-chained: ids, never content (A172).
CREATE TABLE audit (
  seq       INTEGER PRIMARY KEY AUTOINCREMENT,
  time      INTEGER NOT NULL,
  tenant    TEXT NOT NULL,
  user      TEXT NOT NULL,
  action    TEXT NOT NULL,
  memory_id BLOB,
  actor     TEXT NOT NULL,
  rule      TEXT NOT NULL,
  hash      BLOB NOT NULL
) STRICT;

-- Recalls for 24 h: which records were returned, so that only those can be reported as cited.
CREATE TABLE recalls (
  recall_id  BLOB PRIMARY KEY,
  user_id    INTEGER NOT NULL,
  time       INTEGER NOT NULL,
  memory_ids BLOB NOT NULL                        -- 16 bytes each
) STRICT, WITHOUT ROWID;
CREATE INDEX recalls_by_time ON recalls (time);
