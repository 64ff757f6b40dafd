-- Where each record system stands with an owner: written in the transaction of its batch, so that no batch is lost or
-- brought twice.
CREATE TABLE sync_cursors (
  owner_id INTEGER NOT NULL REFERENCES owners,
  system   TEXT NOT NULL,
  cursor   TEXT NOT NULL,
  time     INTEGER NOT NULL,
  PRIMARY KEY (owner_id, system)
) STRICT, WITHOUT ROWID;

-- A system names its own record when it removes it.
CREATE INDEX records_by_system ON records (owner_id, source_ref) WHERE source_ref LIKE '{"SystemRecord"%';
