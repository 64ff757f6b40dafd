-- A long-term database as the program with schema version 1 left it: a superseded city, a candidate, a forgotten train,
-- an agent's desk, another user's badge.
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE schema_migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum BLOB NOT NULL) STRICT;
INSERT INTO schema_migrations VALUES(1,'records, evidence, history, index tables',X'0f7058d89b1a0940c8e7519bca1e6b680f4e637732bdf12c8076ae74a9671252');
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE users (
  user_id     INTEGER PRIMARY KEY,
  tenant      TEXT NOT NULL,
  user        TEXT NOT NULL,
  revision    INTEGER NOT NULL DEFAULT 0,
  erase_epoch INTEGER NOT NULL DEFAULT 0,
  UNIQUE (tenant, user)
) STRICT;
INSERT INTO users VALUES(1,'local','ada',8,0);
INSERT INTO users VALUES(2,'local','bob',1,0);
CREATE TABLE owners (
  owner_id INTEGER PRIMARY KEY,
  user_id  INTEGER NOT NULL REFERENCES users,
  agent    TEXT NOT NULL,
  records  INTEGER NOT NULL DEFAULT 0,            -- rows of records, kept by the triggers below: the n of the IDF
  UNIQUE (user_id, agent)
) STRICT;
INSERT INTO owners VALUES(1,1,'',6);
INSERT INTO owners VALUES(2,1,'health',1);
INSERT INTO owners VALUES(3,2,'',1);
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
INSERT INTO records VALUES(X'01a22b2c5f4f7300842c85ad5ef93d58',1,1,'FACT','STABLE','profile.city',0,'{"text":"Shanghai"}','I live in Shanghai','i live in shanghai',X'f0f1b77f97b0c6c7411e1429b10d470b','USER_STATEMENT','{"Turn":{"session_id":"s1","seq":1}}','I live in Shanghai',1,0,0.9000000000000000222,3,'NONE',0,0,'SUPERSEDED',NULL,NULL,X'01a22b2c603c7375af13006a88b2391f',1796020658234956,'K1: a newer statement of equal or higher rank replaces the value',NULL,0,NULL,NULL,1796020657419212,1796020657991048,1796020658234956,NULL,NULL,NULL,NULL,0,0,NULL,'[]','{}',1796020657991048,2,NULL,4,1,1);
INSERT INTO records VALUES(X'01a22b2c603c7375af13006a88b2391f',1,1,'FACT','STABLE','profile.city',0,'{"text":"Hangzhou"}','I moved to Hangzhou','i moved to hangzhou',X'ac6ddfb0107daa75e2f59e88a458c586','USER_STATEMENT','{"Turn":{"session_id":"s1","seq":2}}','I moved to Hangzhou',1,0,0.9000000000000000222,3,'NONE',0,0,'ACTIVE',NULL,X'01a22b2c5f4f7300842c85ad5ef93d58',NULL,NULL,'K1: a newer statement of equal or higher rank replaces the value',NULL,0,NULL,NULL,1796020658037760,1796020658234956,1796020658234956,NULL,NULL,NULL,NULL,0,0,NULL,'[]','{}',1796020658234956,1,NULL,4,1,1);
INSERT INTO records VALUES(X'01a22b2c613a74e1aefedd0172ad56b3',1,1,'FACT','STABLE','diet.spicy',0,'{"text":"no"}','我不吃辣','我不吃辣',X'86d1ce2fcc795a004d1d01c5c8e0f28c','USER_STATEMENT','{"Turn":{"session_id":"s1","seq":3}}','我不吃辣',1,0,0.9000000000000000222,3,'PERSONAL',0,0,'ACTIVE',NULL,NULL,NULL,NULL,'K1: nothing else holds the slot',NULL,0,NULL,NULL,1796020658281748,1796020658487419,1796020658487419,NULL,NULL,NULL,NULL,0,0,NULL,'[]','{}',1796020658487419,1,NULL,4,1,1);
INSERT INTO records VALUES(X'01a22b2c61fd72e38c8f88b8e2f7722f',1,1,'FACT','STABLE',NULL,0,NULL,'I always park in lot B-17','i always park in lot b-17',X'00469de4812bec8527dd45def9d97851','USER_STATEMENT','{"Turn":{"session_id":"s1","seq":4}}','I always park in lot B-17',1,1,0.9000000000000000222,3,'NONE',0,0,'ACTIVE',NULL,NULL,NULL,NULL,'K0: no slot, so nothing to replace',NULL,0,NULL,NULL,1796020658522097,1796020658678514,1796020658678514,NULL,NULL,NULL,NULL,0,0,NULL,'["car","标签"]','{"path":"a\\\\b"}',0,1,NULL,4,1,1);
INSERT INTO records VALUES(X'01a22b2c62ee7075ac2930767eb24a36',2,1,'FACT','STABLE',NULL,0,NULL,'My desk is 4-117 at the clinic','my desk is 4-117 at the clinic',X'80fa95c2ff2f898131bb86f1d705dd3d','USER_STATEMENT','{"Turn":{"session_id":"s1","seq":5}}','My desk is 4-117 at the clinic',1,0,0.9000000000000000222,3,'NONE',0,0,'ACTIVE',NULL,NULL,NULL,NULL,'K0: no slot, so nothing to replace',NULL,0,NULL,NULL,1796020658720284,1796020658923934,1796020658923934,NULL,NULL,NULL,NULL,0,0,NULL,'[]','{}',0,1,NULL,3,1,1);
INSERT INTO records VALUES(X'01a22b2c63cd74e58c2ec2d074d4924c',1,1,'FACT','STABLE',NULL,0,NULL,'I always take the 7:30 train','i always take the 7:30 train',X'2da2f3420c8652b4c89ca05cfff48958','USER_STATEMENT','{"Turn":{"session_id":"s1","seq":6}}','I always take the 7:30 train',1,1,0.9000000000000000222,3,'NONE',0,0,'DELETED','ACTIVE',NULL,NULL,NULL,'E1: asked for',NULL,0,NULL,NULL,1796020658959888,1796020659148307,1796020659509904,NULL,NULL,NULL,NULL,0,0,NULL,'[]','{}',0,2,NULL,4,1,1);
INSERT INTO records VALUES(X'01a22b2c6558725e928ea872858db122',1,1,'PREFERENCE','STABLE',NULL,0,NULL,'Ada prefers short answers','ada prefers short answers',X'9df85655b64863cd5c4d3c2fde6c3d9a','MODEL_INFERENCE',NULL,'Ada prefers short answers',0,0,0.5,3,'NONE',0,0,'CANDIDATE',NULL,NULL,NULL,NULL,'G2: waits for confirmation',NULL,0,NULL,NULL,1796020659543261,1796020659543261,1796020659543261,1803796659543261,NULL,NULL,NULL,0,0,NULL,'[]','{}',0,1,NULL,4,1,0);
INSERT INTO records VALUES(X'01a22b2c657e755e9bca3f1e8d23e30c',3,2,'FACT','STABLE','badge.colour',0,'{"text":"blue"}','badge colour: blue','badge colour: blue',X'82920d371483e1a53ff27a846caa8805','AUTHORITATIVE_SYSTEM','{"SystemRecord":{"system":"hr","record_id":"r1"}}','badge colour: blue',0,0,0.9000000000000000222,3,'NONE',0,0,'ACTIVE',NULL,NULL,NULL,NULL,'K1: nothing else holds the slot',NULL,0,NULL,NULL,1796020659581098,1796020659581098,1796020659581098,NULL,NULL,NULL,NULL,0,0,NULL,'[]','{}',1796020659581098,1,NULL,5,1,0);
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
INSERT INTO evidence VALUES(1,X'01a22b2c5f4f7300842c85ad5ef93d58',1,'4:turn2:s11:1','USER_STATEMENT','{"Turn":{"session_id":"s1","seq":1}}','s1',25,'I live in Shanghai',1,1796020657419212);
INSERT INTO evidence VALUES(2,X'01a22b2c603c7375af13006a88b2391f',1,'4:turn2:s11:2','USER_STATEMENT','{"Turn":{"session_id":"s1","seq":2}}','s1',25,'I moved to Hangzhou',1,1796020658037760);
INSERT INTO evidence VALUES(3,X'01a22b2c613a74e1aefedd0172ad56b3',1,'4:turn2:s11:3','USER_STATEMENT','{"Turn":{"session_id":"s1","seq":3}}','s1',25,'我不吃辣',1,1796020658281748);
INSERT INTO evidence VALUES(4,X'01a22b2c61fd72e38c8f88b8e2f7722f',1,'4:turn2:s11:4','USER_STATEMENT','{"Turn":{"session_id":"s1","seq":4}}','s1',59,'I always park in lot B-17',1,1796020658522097);
INSERT INTO evidence VALUES(5,X'01a22b2c62ee7075ac2930767eb24a36',2,'4:turn2:s11:5','USER_STATEMENT','{"Turn":{"session_id":"s1","seq":5}}','s1',25,'My desk is 4-117 at the clinic',1,1796020658720284);
INSERT INTO evidence VALUES(6,X'01a22b2c63cd74e58c2ec2d074d4924c',1,'4:turn2:s11:6','USER_STATEMENT','{"Turn":{"session_id":"s1","seq":6}}','s1',59,'I always take the 7:30 train',1,1796020658959888);
INSERT INTO evidence VALUES(7,X'01a22b2c6558725e928ea872858db122',1,'5:write36:01a22b2c-6558-725e-928e-a872858db122','MODEL_INFERENCE',NULL,NULL,0,'Ada prefers short answers',0,1796020659543261);
INSERT INTO evidence VALUES(8,X'01a22b2c657e755e9bca3f1e8d23e30c',3,'5:write36:01a22b2c-657e-755e-9bca-3f1e8d23e30c','AUTHORITATIVE_SYSTEM','{"SystemRecord":{"system":"hr","record_id":"r1"}}',NULL,16,'badge colour: blue',0,1796020659581098);
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
INSERT INTO history VALUES(1,X'01a22b2c5f4f7300842c85ad5ef93d58',1,1796020657991048,NULL,'ACTIVE','local','Remember','K1: nothing else holds the slot','K1');
INSERT INTO history VALUES(2,X'01a22b2c5f4f7300842c85ad5ef93d58',1,1796020658234956,'ACTIVE','SUPERSEDED','local','Remember','K1: a newer statement of equal or higher rank replaces the value','K1');
INSERT INTO history VALUES(3,X'01a22b2c603c7375af13006a88b2391f',1,1796020658234956,NULL,'ACTIVE','local','Remember','K1: a newer statement of equal or higher rank replaces the value','K1');
INSERT INTO history VALUES(4,X'01a22b2c613a74e1aefedd0172ad56b3',1,1796020658487419,NULL,'ACTIVE','local','Remember','K1: nothing else holds the slot','K1');
INSERT INTO history VALUES(5,X'01a22b2c61fd72e38c8f88b8e2f7722f',1,1796020658678514,NULL,'ACTIVE','local','Remember','K0: no slot, so nothing to replace','K0');
INSERT INTO history VALUES(6,X'01a22b2c62ee7075ac2930767eb24a36',2,1796020658923934,NULL,'ACTIVE','local','Remember','K0: no slot, so nothing to replace','K0');
INSERT INTO history VALUES(7,X'01a22b2c63cd74e58c2ec2d074d4924c',1,1796020659148307,NULL,'ACTIVE','local','Remember','K0: no slot, so nothing to replace','K0');
INSERT INTO history VALUES(8,X'01a22b2c63cd74e58c2ec2d074d4924c',1,1796020659509904,'ACTIVE','DELETED','local','ForgetMemories','E1: asked for','E1');
INSERT INTO history VALUES(9,X'01a22b2c6558725e928ea872858db122',1,1796020659543261,NULL,'CANDIDATE','local','Propose','G2: waits for confirmation','G2');
INSERT INTO history VALUES(10,X'01a22b2c657e755e9bca3f1e8d23e30c',3,1796020659581098,NULL,'ACTIVE','local','Remember','K1: nothing else holds the slot','K1');
CREATE TABLE owner_keys (
  owner_id     INTEGER NOT NULL REFERENCES owners,
  key          TEXT NOT NULL,
  epoch        INTEGER NOT NULL,
  state        TEXT NOT NULL,
  last_event   INTEGER NOT NULL,
  system_owned INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (owner_id, key)
) STRICT, WITHOUT ROWID;
INSERT INTO owner_keys VALUES(1,'diet.spicy',1796020658487419,'OWNED',1796020658281748,0);
INSERT INTO owner_keys VALUES(1,'profile.city',1796020658234956,'OWNED',1796020658037760,0);
INSERT INTO owner_keys VALUES(3,'badge.colour',1796020659581098,'OWNED',1796020659581098,1);
CREATE TABLE record_terms (
  owner_id  INTEGER NOT NULL,
  term      INTEGER NOT NULL,
  memory_id BLOB NOT NULL REFERENCES records ON DELETE CASCADE,
  tf        INTEGER NOT NULL,
  PRIMARY KEY (owner_id, term, memory_id)
) STRICT, WITHOUT ROWID;
INSERT INTO record_terms VALUES(1,54081900,X'01a22b2c61fd72e38c8f88b8e2f7722f',1);
INSERT INTO record_terms VALUES(1,88923711,X'01a22b2c613a74e1aefedd0172ad56b3',1);
INSERT INTO record_terms VALUES(1,123462699,X'01a22b2c5f4f7300842c85ad5ef93d58',1);
INSERT INTO record_terms VALUES(1,131900689,X'01a22b2c5f4f7300842c85ad5ef93d58',1);
INSERT INTO record_terms VALUES(1,131900689,X'01a22b2c61fd72e38c8f88b8e2f7722f',1);
INSERT INTO record_terms VALUES(1,148299209,X'01a22b2c63cd74e58c2ec2d074d4924c',1);
INSERT INTO record_terms VALUES(1,152217691,X'01a22b2c603c7375af13006a88b2391f',1);
INSERT INTO record_terms VALUES(1,229815695,X'01a22b2c63cd74e58c2ec2d074d4924c',1);
INSERT INTO record_terms VALUES(1,343224137,X'01a22b2c61fd72e38c8f88b8e2f7722f',1);
INSERT INTO record_terms VALUES(1,343224137,X'01a22b2c63cd74e58c2ec2d074d4924c',1);
INSERT INTO record_terms VALUES(1,455026286,X'01a22b2c613a74e1aefedd0172ad56b3',1);
INSERT INTO record_terms VALUES(1,556447004,X'01a22b2c613a74e1aefedd0172ad56b3',1);
INSERT INTO record_terms VALUES(1,602572328,X'01a22b2c63cd74e58c2ec2d074d4924c',1);
INSERT INTO record_terms VALUES(1,695071331,X'01a22b2c613a74e1aefedd0172ad56b3',1);
INSERT INTO record_terms VALUES(1,749129358,X'01a22b2c63cd74e58c2ec2d074d4924c',1);
INSERT INTO record_terms VALUES(1,837348331,X'01a22b2c603c7375af13006a88b2391f',1);
INSERT INTO record_terms VALUES(1,868125897,X'01a22b2c603c7375af13006a88b2391f',1);
INSERT INTO record_terms VALUES(1,883390095,X'01a22b2c6558725e928ea872858db122',1);
INSERT INTO record_terms VALUES(1,984159630,X'01a22b2c613a74e1aefedd0172ad56b3',1);
INSERT INTO record_terms VALUES(1,1002374016,X'01a22b2c613a74e1aefedd0172ad56b3',1);
INSERT INTO record_terms VALUES(1,1026698563,X'01a22b2c613a74e1aefedd0172ad56b3',1);
INSERT INTO record_terms VALUES(1,1132748958,X'01a22b2c63cd74e58c2ec2d074d4924c',1);
INSERT INTO record_terms VALUES(1,1142288409,X'01a22b2c5f4f7300842c85ad5ef93d58',1);
INSERT INTO record_terms VALUES(1,1189334739,X'01a22b2c61fd72e38c8f88b8e2f7722f',1);
INSERT INTO record_terms VALUES(1,1190790875,X'01a22b2c63cd74e58c2ec2d074d4924c',1);
INSERT INTO record_terms VALUES(1,1456463898,X'01a22b2c613a74e1aefedd0172ad56b3',1);
INSERT INTO record_terms VALUES(1,1509807134,X'01a22b2c6558725e928ea872858db122',1);
INSERT INTO record_terms VALUES(1,1673618911,X'01a22b2c6558725e928ea872858db122',1);
INSERT INTO record_terms VALUES(1,1709282972,X'01a22b2c61fd72e38c8f88b8e2f7722f',1);
INSERT INTO record_terms VALUES(1,1713592308,X'01a22b2c613a74e1aefedd0172ad56b3',1);
INSERT INTO record_terms VALUES(1,1852771076,X'01a22b2c61fd72e38c8f88b8e2f7722f',1);
INSERT INTO record_terms VALUES(1,1874296814,X'01a22b2c6558725e928ea872858db122',1);
INSERT INTO record_terms VALUES(1,1966288579,X'01a22b2c5f4f7300842c85ad5ef93d58',1);
INSERT INTO record_terms VALUES(1,1966288579,X'01a22b2c603c7375af13006a88b2391f',1);
INSERT INTO record_terms VALUES(1,2060201871,X'01a22b2c5f4f7300842c85ad5ef93d58',1);
INSERT INTO record_terms VALUES(1,2060201871,X'01a22b2c603c7375af13006a88b2391f',1);
INSERT INTO record_terms VALUES(1,2095516013,X'01a22b2c613a74e1aefedd0172ad56b3',1);
INSERT INTO record_terms VALUES(1,2128973781,X'01a22b2c5f4f7300842c85ad5ef93d58',1);
INSERT INTO record_terms VALUES(1,2128973781,X'01a22b2c603c7375af13006a88b2391f',1);
INSERT INTO record_terms VALUES(1,2128973781,X'01a22b2c61fd72e38c8f88b8e2f7722f',1);
INSERT INTO record_terms VALUES(1,2128973781,X'01a22b2c63cd74e58c2ec2d074d4924c',1);
INSERT INTO record_terms VALUES(2,33140797,X'01a22b2c62ee7075ac2930767eb24a36',1);
INSERT INTO record_terms VALUES(2,104202716,X'01a22b2c62ee7075ac2930767eb24a36',1);
INSERT INTO record_terms VALUES(2,202721107,X'01a22b2c62ee7075ac2930767eb24a36',1);
INSERT INTO record_terms VALUES(2,445633476,X'01a22b2c62ee7075ac2930767eb24a36',1);
INSERT INTO record_terms VALUES(2,516830072,X'01a22b2c62ee7075ac2930767eb24a36',1);
INSERT INTO record_terms VALUES(2,790423129,X'01a22b2c62ee7075ac2930767eb24a36',1);
INSERT INTO record_terms VALUES(2,1132748958,X'01a22b2c62ee7075ac2930767eb24a36',1);
INSERT INTO record_terms VALUES(2,1357816490,X'01a22b2c62ee7075ac2930767eb24a36',1);
INSERT INTO record_terms VALUES(2,2021799277,X'01a22b2c62ee7075ac2930767eb24a36',1);
INSERT INTO record_terms VALUES(3,389811965,X'01a22b2c657e755e9bca3f1e8d23e30c',1);
INSERT INTO record_terms VALUES(3,931321953,X'01a22b2c657e755e9bca3f1e8d23e30c',2);
INSERT INTO record_terms VALUES(3,1602888800,X'01a22b2c657e755e9bca3f1e8d23e30c',2);
CREATE TABLE owner_terms (
  owner_id INTEGER NOT NULL,
  term     INTEGER NOT NULL,
  df       INTEGER NOT NULL,
  PRIMARY KEY (owner_id, term)
) STRICT, WITHOUT ROWID;
INSERT INTO owner_terms VALUES(1,54081900,1);
INSERT INTO owner_terms VALUES(1,88923711,1);
INSERT INTO owner_terms VALUES(1,123462699,1);
INSERT INTO owner_terms VALUES(1,131900689,2);
INSERT INTO owner_terms VALUES(1,148299209,1);
INSERT INTO owner_terms VALUES(1,152217691,1);
INSERT INTO owner_terms VALUES(1,229815695,1);
INSERT INTO owner_terms VALUES(1,343224137,2);
INSERT INTO owner_terms VALUES(1,455026286,1);
INSERT INTO owner_terms VALUES(1,556447004,1);
INSERT INTO owner_terms VALUES(1,602572328,1);
INSERT INTO owner_terms VALUES(1,695071331,1);
INSERT INTO owner_terms VALUES(1,749129358,1);
INSERT INTO owner_terms VALUES(1,837348331,1);
INSERT INTO owner_terms VALUES(1,868125897,1);
INSERT INTO owner_terms VALUES(1,883390095,1);
INSERT INTO owner_terms VALUES(1,984159630,1);
INSERT INTO owner_terms VALUES(1,1002374016,1);
INSERT INTO owner_terms VALUES(1,1026698563,1);
INSERT INTO owner_terms VALUES(1,1132748958,1);
INSERT INTO owner_terms VALUES(1,1142288409,1);
INSERT INTO owner_terms VALUES(1,1189334739,1);
INSERT INTO owner_terms VALUES(1,1190790875,1);
INSERT INTO owner_terms VALUES(1,1456463898,1);
INSERT INTO owner_terms VALUES(1,1509807134,1);
INSERT INTO owner_terms VALUES(1,1673618911,1);
INSERT INTO owner_terms VALUES(1,1709282972,1);
INSERT INTO owner_terms VALUES(1,1713592308,1);
INSERT INTO owner_terms VALUES(1,1852771076,1);
INSERT INTO owner_terms VALUES(1,1874296814,1);
INSERT INTO owner_terms VALUES(1,1966288579,2);
INSERT INTO owner_terms VALUES(1,2060201871,2);
INSERT INTO owner_terms VALUES(1,2095516013,1);
INSERT INTO owner_terms VALUES(1,2128973781,4);
INSERT INTO owner_terms VALUES(2,33140797,1);
INSERT INTO owner_terms VALUES(2,104202716,1);
INSERT INTO owner_terms VALUES(2,202721107,1);
INSERT INTO owner_terms VALUES(2,445633476,1);
INSERT INTO owner_terms VALUES(2,516830072,1);
INSERT INTO owner_terms VALUES(2,790423129,1);
INSERT INTO owner_terms VALUES(2,1132748958,1);
INSERT INTO owner_terms VALUES(2,1357816490,1);
INSERT INTO owner_terms VALUES(2,2021799277,1);
INSERT INTO owner_terms VALUES(3,389811965,1);
INSERT INTO owner_terms VALUES(3,931321953,1);
INSERT INTO owner_terms VALUES(3,1602888800,1);
CREATE TABLE vectors (
  memory_id BLOB PRIMARY KEY REFERENCES records ON DELETE CASCADE,
  owner_id  INTEGER NOT NULL,
  model     TEXT NOT NULL,
  version   INTEGER NOT NULL,                     -- version of the record it was made from
  vector    BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE outbox (
  seq       INTEGER PRIMARY KEY AUTOINCREMENT,
  memory_id BLOB NOT NULL,
  owner_id  INTEGER NOT NULL,
  version   INTEGER NOT NULL,
  op        TEXT NOT NULL CHECK (op IN ('UPSERT', 'DELETE')),
  time      INTEGER NOT NULL
) STRICT;
CREATE TABLE idempotency (
  user_id    INTEGER NOT NULL,
  request_id BLOB NOT NULL,
  method     TEXT NOT NULL,
  body       BLOB NOT NULL,
  response   BLOB NOT NULL,
  time       INTEGER NOT NULL,
  PRIMARY KEY (user_id, request_id)
) STRICT, WITHOUT ROWID;
INSERT INTO idempotency VALUES(1,X'00000000000040008000000000000001','Remember',X'86c54b4f60813e2e7179549557eea69b74b637e25da365e711cbfc7c20201d1d',X'080112b7020a2430316132326232632d356634662d373330302d383432632d38356164356566393364353812036164612001280130013a0c70726f66696c652e63697479420a0a085368616e676861694a1249206c69766520696e205368616e6768616950025a080a060a0273311001621249206c69766520696e205368616e6768616968017230080212080a060a02733110011a1249206c69766520696e205368616e6768616920012a0c08b1b3b4d80610e0d5f2c70178018001019101cdccccccccccec3f980103a201044e4f4e45b00102d2011f4b313a206e6f7468696e6720656c736520686f6c64732074686520736c6f74ea010c08b1b3b4d80610e0d5f2c701f2010c08b1b3b4d80610c0e2c8d803fa010c08b1b3b4d80610c0e2c8d803c00288dbd0aa8aaf9803ca020131da020853454d414e5449431a190a02473912024f4b1a0f76616c75652073636f726520312e301a280a0347313112024f4b1a1d616e206578706c69636974206f72646572206f662074686520757365721a290a024b3112064143544956451a1b6e6f7468696e6720656c736520686f6c64732074686520736c6f743a0131',1796020657991048);
INSERT INTO idempotency VALUES(1,X'00000000000040008000000000000002','Remember',X'e9d36eaad23ab8aefa002075ea6d173c43cf1f59524281ac418e0f2a48035c27',X'080112fe020a2430316132326232632d363033632d373337352d616631332d30303661383862323339316612036164612001280130013a0c70726f66696c652e63697479420a0a0848616e677a686f754a1349206d6f76656420746f2048616e677a686f7550025a080a060a0273311002621349206d6f76656420746f2048616e677a686f7568017230080212080a060a02733110021a1349206d6f76656420746f2048616e677a686f7520012a0b08b2b3b4d8061080d8801278018001019101cdccccccccccec3f980103a201044e4f4e45b00102ba012430316132326232632d356634662d373330302d383432632d383561643565663933643538d201404b313a2061206e657765722073746174656d656e74206f6620657175616c206f72206869676865722072616e6b207265706c61636573207468652076616c7565ea010b08b2b3b4d8061080d88012f2010b08b2b3b4d80610e0c98470fa010b08b2b3b4d80610e0c98470c002ccccdfaa8aaf9803ca020131da020853454d414e5449431a190a02473912024f4b1a0f76616c75652073636f726520312e301a280a0347313112024f4b1a1d616e206578706c69636974206f72646572206f662074686520757365721a4e0a024b31120a535550455253454445441a3c61206e657765722073746174656d656e74206f6620657175616c206f72206869676865722072616e6b207265706c61636573207468652076616c7565222430316132326232632d356634662d373330302d383432632d3835616435656639336435383a0132',1796020658234956);
CREATE TABLE promotions (
  user_id      INTEGER NOT NULL,
  promotion_id TEXT NOT NULL,
  state        TEXT NOT NULL CHECK (state IN ('APPLIED', 'ABORTED')),
  response     BLOB,
  time         INTEGER NOT NULL,
  PRIMARY KEY (user_id, promotion_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE tombstones (
  user_id INTEGER NOT NULL,
  digest  BLOB NOT NULL,
  time    INTEGER NOT NULL,
  PRIMARY KEY (user_id, digest)
) STRICT, WITHOUT ROWID;
INSERT INTO tombstones VALUES(1,X'c31b3c63b0b1b052b607c8a8882937a4876ee73934bf824c0db72036d5219ed9',1796020659509904);
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
INSERT INTO audit VALUES(1,1796020657991048,'local','ada','ACTIVE',X'01a22b2c5f4f7300842c85ad5ef93d58','local','K1',X'cf921e1fab26b4a8d3e689db1701cc466a6673d9186cd060b9facc0886d2f0f3');
INSERT INTO audit VALUES(2,1796020658234956,'local','ada','SUPERSEDED',X'01a22b2c5f4f7300842c85ad5ef93d58','local','K1',X'ca13006369222a369a954d31fe4fdf3f21b41b0ca9cb2c9d834fac1a4f8f654b');
INSERT INTO audit VALUES(3,1796020658234956,'local','ada','ACTIVE',X'01a22b2c603c7375af13006a88b2391f','local','K1',X'f8191e5d1fec65a02581948960fbc94e5be67160144ce35d8d52fe03c8d636e4');
INSERT INTO audit VALUES(4,1796020658487419,'local','ada','ACTIVE',X'01a22b2c613a74e1aefedd0172ad56b3','local','K1',X'db9e67b4b90d695b14c0d91e6223a35cbbbd391eb1b7bef2e8f6acd1a3997ffe');
INSERT INTO audit VALUES(5,1796020658678514,'local','ada','ACTIVE',X'01a22b2c61fd72e38c8f88b8e2f7722f','local','K0',X'486eb85d13e00811911a5152400208d3bb9ce920a4b51b981c1f0efd7d9d2f9d');
INSERT INTO audit VALUES(6,1796020658923934,'local','ada','ACTIVE',X'01a22b2c62ee7075ac2930767eb24a36','local','K0',X'5b1a3922a0ee58f7ca12e598c240b4f97daa3d48f4aca179eb7df0d1ebcf6f3d');
INSERT INTO audit VALUES(7,1796020659148307,'local','ada','ACTIVE',X'01a22b2c63cd74e58c2ec2d074d4924c','local','K0',X'3bea5863c6ab6d9383fe318bccedebe136eb2193c634bc92f5abd65dd0e6f084');
INSERT INTO audit VALUES(8,1796020659509904,'local','ada','DELETED',X'01a22b2c63cd74e58c2ec2d074d4924c','local','E1',X'afe72a82d7c0113c8fb766f7b39683c4788ccaab91bae7016e6969bf27ff1c59');
INSERT INTO audit VALUES(9,1796020659543261,'local','ada','CANDIDATE',X'01a22b2c6558725e928ea872858db122','local','G2',X'df9a260a74273d1edf49d407bc07cbf64387b3c8b9aeb80ca0840eda572a4254');
INSERT INTO audit VALUES(10,1796020659581098,'local','bob','ACTIVE',X'01a22b2c657e755e9bca3f1e8d23e30c','local','K1',X'1b7213321e4a75cd48ccd45e6e7184e9099e646ab93b1b0dcf7925982469c425');
CREATE TABLE recalls (
  recall_id  BLOB PRIMARY KEY,
  user_id    INTEGER NOT NULL,
  time       INTEGER NOT NULL,
  memory_ids BLOB NOT NULL                        -- 16 bytes each
) STRICT, WITHOUT ROWID;
ANALYZE sqlite_schema;
INSERT INTO sqlite_stat1 VALUES('owner_terms','owner_terms','46 16 1');
INSERT INTO sqlite_stat1 VALUES('record_terms','record_terms_by_record','53 7');
INSERT INTO sqlite_stat1 VALUES('record_terms','record_terms','53 18 2 1');
INSERT INTO sqlite_stat1 VALUES('evidence','evidence_by_session','6 3 3');
INSERT INTO sqlite_stat1 VALUES('evidence','sqlite_autoindex_evidence_1','8 1 1');
INSERT INTO sqlite_stat1 VALUES('records','records_chain','1 1');
INSERT INTO sqlite_stat1 VALUES('records','records_cited','0 0 0');
INSERT INTO sqlite_stat1 VALUES('records','records_expiry','1 1');
INSERT INTO sqlite_stat1 VALUES('records','records_by_text','8 3 2 1');
INSERT INTO sqlite_stat1 VALUES('records','records_by_status','8 3 2 1');
INSERT INTO sqlite_stat1 VALUES('records','records_by_user','8 4 1');
INSERT INTO sqlite_stat1 VALUES('records','records_by_key','4 2 2 1');
INSERT INTO sqlite_stat1 VALUES('records','records_slot','3 2 1 1');
INSERT INTO sqlite_stat1 VALUES('records','records_dedup','6 2 1');
INSERT INTO sqlite_stat1 VALUES('records','records','8 1');
INSERT INTO sqlite_stat1 VALUES('owners','sqlite_autoindex_owners_1','3 2 1');
INSERT INTO sqlite_stat1 VALUES('idempotency','idempotency_by_time','2 1');
INSERT INTO sqlite_stat1 VALUES('idempotency','idempotency','2 2 1');
INSERT INTO sqlite_stat1 VALUES('tombstones','tombstones','1 1 1');
INSERT INTO sqlite_stat1 VALUES('history','history_by_record','10 2 1');
INSERT INTO sqlite_stat1 VALUES('owner_keys','owner_keys','3 2 1');
INSERT INTO sqlite_stat1 VALUES('users','sqlite_autoindex_users_1','2 2 1');
ANALYZE sqlite_schema;
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('history',10);
INSERT INTO sqlite_sequence VALUES('evidence',8);
INSERT INTO sqlite_sequence VALUES('outbox',10);
INSERT INTO sqlite_sequence VALUES('audit',10);
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
CREATE INDEX evidence_by_session ON evidence (owner_id, session_id) WHERE session_id IS NOT NULL;
CREATE INDEX history_by_record ON history (memory_id, history_id);
CREATE INDEX record_terms_by_record ON record_terms (memory_id);
CREATE TRIGGER term_added AFTER INSERT ON record_terms BEGIN
  INSERT INTO owner_terms (owner_id, term, df) VALUES (new.owner_id, new.term, 1)
    ON CONFLICT (owner_id, term) DO UPDATE SET df = df + 1;
END;
CREATE TRIGGER term_removed AFTER DELETE ON record_terms BEGIN
  UPDATE owner_terms SET df = df - 1 WHERE owner_id = old.owner_id AND term = old.term;
  DELETE FROM owner_terms WHERE owner_id = old.owner_id AND term = old.term AND df <= 0;
END;
CREATE INDEX vectors_by_owner ON vectors (owner_id);
CREATE INDEX outbox_by_owner ON outbox (owner_id);
CREATE INDEX outbox_by_record ON outbox (memory_id);
CREATE INDEX idempotency_by_time ON idempotency (time);
CREATE INDEX recalls_by_time ON recalls (time);
COMMIT;
