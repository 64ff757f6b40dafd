-- From an older value to the one that may replace it (rule K0): recall shows the newer above it.
CREATE INDEX records_replacing ON records (conflicts_with) WHERE conflicts_with IS NOT NULL AND status = 'ACTIVE';

-- What was put to the user, once a session and a few times in all (rule C10).
CREATE TABLE asked (
  memory_id BLOB NOT NULL REFERENCES records ON DELETE CASCADE,
  session   TEXT NOT NULL,
  time      INTEGER NOT NULL,
  PRIMARY KEY (memory_id, session)
) STRICT, WITHOUT ROWID;
