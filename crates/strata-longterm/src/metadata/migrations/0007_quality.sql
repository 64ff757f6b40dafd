-- Whether memory is worth what it costs (rules Q1 to Q4, D3). Counts hold numbers only and outlive what they count; reviews
-- name a record and go with it.

CREATE TABLE quality_counts (
  tenant         TEXT NOT NULL,
  hour           INTEGER NOT NULL,                -- hours since the epoch
  recalled       INTEGER NOT NULL DEFAULT 0,      -- records that were shown
  cited          INTEGER NOT NULL DEFAULT 0,      -- of these, reported as used; counted in the hour of the recall
  contexts       INTEGER NOT NULL DEFAULT 0,
  memory_tokens  INTEGER NOT NULL DEFAULT 0,
  request_tokens INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, hour)
) STRICT, WITHOUT ROWID;

-- Samples of what was shown, drawn for review, and what a person made of them.
CREATE TABLE reviews (
  sample_id   BLOB PRIMARY KEY,
  tenant      TEXT NOT NULL,
  request_id  BLOB,                               -- of the call that drew it
  recall_id   BLOB NOT NULL,
  memory_id   BLOB NOT NULL REFERENCES records ON DELETE CASCADE,
  shown_at    INTEGER NOT NULL,
  sampled_at  INTEGER NOT NULL,
  verdict     TEXT CHECK (verdict IN ('SOUND', 'WRONG_WRITE', 'STALE', 'MISMATCH')),
  reviewer    TEXT,
  reviewed_at INTEGER,
  UNIQUE (tenant, recall_id, memory_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX reviews_of_record ON reviews (memory_id);
CREATE INDEX reviews_by_time ON reviews (tenant, reviewed_at) WHERE verdict IS NOT NULL;
CREATE INDEX reviews_by_request ON reviews (tenant, request_id) WHERE request_id IS NOT NULL;
CREATE INDEX reviews_sampled ON reviews (sampled_at) WHERE verdict IS NULL;

-- Causes in force (rule D3): they come at one mark and go at another, so what was before has to be known.
CREATE TABLE quality_causes (
  tenant      TEXT PRIMARY KEY,
  wrong_write INTEGER NOT NULL,
  stale       INTEGER NOT NULL,
  mismatch    INTEGER NOT NULL,
  changed_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
