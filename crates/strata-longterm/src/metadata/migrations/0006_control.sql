-- What operators set while the service runs: modes and API keys (by hash). Of one name the highest version holds; the same rows
-- are in Redis where there is one.
CREATE TABLE control (
  name    TEXT PRIMARY KEY,
  version INTEGER NOT NULL,
  value   TEXT NOT NULL                           -- JSON of core::policy::control::Setting
) STRICT, WITHOUT ROWID;
