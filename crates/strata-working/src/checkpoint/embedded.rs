//! Checkpoints in SQLite: one row per task. The file belongs to working memory alone.

use super::{CheckpointStore, Loaded, SaveOutcome, Snapshot, Tombstone, collect, encode_tombstone};
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _};
use std::time::Duration;
use strata_core::policy::erasure::{Medium, Physical, Purge};
use strata_core::time::SECOND;
use strata_core::{Fault, Timestamp, limits};
use strata_runtime::sqlite::{Database, Migration, SqliteError};

/// Schema of the file: to be given to [`Database::open`].
pub const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "boards",
        sql: "
CREATE TABLE board (
  tenant TEXT NOT NULL,
  task TEXT NOT NULL,
  ended INTEGER NOT NULL,
  created INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  version INTEGER NOT NULL,
  time INTEGER NOT NULL,
  expires INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (tenant, task)
) STRICT;
CREATE INDEX board_expires ON board (expires);
CREATE TABLE clean_stop (id INTEGER PRIMARY KEY CHECK (id = 1)) STRICT;
",
    },
    Migration {
        version: 2,
        name: "erasure",
        sql: "
CREATE TABLE erase_epoch (user TEXT PRIMARY KEY, epoch INTEGER NOT NULL, until INTEGER NOT NULL) STRICT, WITHOUT ROWID;
",
    },
];

/// Checkpoints in SQLite.
#[derive(Clone, Debug)]
pub struct EmbeddedCheckpoints {
    database: Database,
}

impl EmbeddedCheckpoints {
    /// Uses `database`, opened with [`MIGRATIONS`].
    #[must_use]
    pub const fn new(database: Database) -> Self {
        Self { database }
    }
}

/// What stands in a row: ended, created, generation, version.
type Row = (bool, i64, i64, i64);

fn standing(connection: &Connection, tenant: &str, task: &str) -> Result<Option<Row>, SqliteError> {
    let mut statement =
        connection.prepare_cached("SELECT ended, created, generation, version FROM board WHERE tenant = ?1 AND task = ?2")?;
    let row = statement.query_row((tenant, task), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
    Ok(row.optional()?)
}

const REPLACE: &str = "INSERT OR REPLACE INTO board (tenant, task, ended, created, generation, version, time, expires, data)
 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

fn save_one(connection: &Connection, board: &Snapshot) -> Result<SaveOutcome, SqliteError> {
    let (tenant, task) = (board.owner.tenant.as_str(), board.task.as_str());
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let order = (board.create_time.micros(), signed(board.generation), signed(board.version));
    match standing(connection, tenant, task)? {
        Some((true, ended, ..)) if ended >= order.0 => return Ok(SaveOutcome::Ended),
        Some((false, created, generation, version)) if (created, generation, version) > order => {
            return Ok(SaveOutcome::Superseded);
        }
        Some(_) | None => {}
    }
    let times = (board.time.micros(), board.expire_time.micros());
    connection.prepare_cached(REPLACE)?.execute((
        tenant,
        task,
        false,
        order.0,
        order.1,
        order.2,
        times.0,
        times.1,
        &board.data,
    ))?;
    Ok(SaveOutcome::Saved)
}

#[async_trait]
impl CheckpointStore for EmbeddedCheckpoints {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn load(&self, now: Timestamp) -> Result<Loaded, Fault> {
        let load = move |connection: &Connection| -> Result<Loaded, SqliteError> {
            let clean = connection.query_row("SELECT EXISTS (SELECT 1 FROM clean_stop)", [], |row| row.get(0))?;
            let mut loaded = Loaded { clean, ..Loaded::default() };
            let mut statement =
                connection.prepare("SELECT task, ended, time, data FROM board WHERE expires > ?1 ORDER BY tenant, task")?;
            let mut rows = statement.query([now.micros()])?;
            while let Some(row) = rows.next()? {
                let (task, ended, time, data): (String, bool, i64, Vec<u8>) =
                    (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
                collect(&mut loaded, &task, ended, Timestamp(time), &data, now, (clean, true));
            }
            let mut statement = connection.prepare("SELECT user, epoch FROM erase_epoch WHERE until > ?1")?;
            let mut rows = statement.query([now.micros()])?;
            while let Some(row) = rows.next()? {
                loaded.epochs.push((row.get(0)?, u64::try_from(row.get::<_, i64>(1)?).unwrap_or_default()));
            }
            Ok(loaded)
        };
        Ok(self.database.read(load).await?)
    }

    async fn save(&self, boards: &[Snapshot]) -> Result<Vec<SaveOutcome>, Fault> {
        let boards = boards.to_vec();
        let save = move |connection: &Connection| {
            boards.iter().map(|board| save_one(connection, board)).collect::<Result<Vec<_>, SqliteError>>()
        };
        Ok(self.database.write(save).await?)
    }

    async fn end(&self, tombstone: &Tombstone) -> Result<SaveOutcome, Fault> {
        let (tombstone, data) = (tombstone.clone(), encode_tombstone(tombstone)?);
        let end = move |connection: &Connection| -> Result<(), SqliteError> {
            let (tenant, task) = (tombstone.owner.tenant.as_str(), tombstone.task.as_str());
            let (end, expires) = (tombstone.end_time.micros(), tombstone.expire_time.micros());
            if !matches!(standing(connection, tenant, task)?, Some((true, ended, ..)) if ended >= end) {
                // The end stands in `created`: a board that was started later may follow.
                connection.prepare_cached(REPLACE)?.execute((tenant, task, true, end, 0, 0, end, expires, data))?;
            }
            Ok(())
        };
        self.database.write(end).await?;
        Ok(SaveOutcome::Saved)
    }

    async fn mark_clean(&self, clean: bool) -> Result<(), Fault> {
        let sql = if clean { "INSERT OR IGNORE INTO clean_stop (id) VALUES (1)" } else { "DELETE FROM clean_stop" };
        let mark = move |connection: &Connection| -> Result<(), SqliteError> { Ok(connection.execute(sql, []).map(drop)?) };
        Ok(self.database.write(mark).await?)
    }

    async fn raise_erase_epoch(&self, user_key: &str, epoch: u64, now: Timestamp) -> Result<(), Fault> {
        let user = user_key.to_owned();
        let epoch = i64::try_from(epoch).unwrap_or(i64::MAX);
        let until = now.plus(limits::ERASE_EPOCH_SECONDS * SECOND).micros();
        let raise = move |connection: &Connection| -> Result<(), SqliteError> {
            let query = "INSERT INTO erase_epoch (user, epoch, until) VALUES (?1, ?2, ?3)
                         ON CONFLICT DO UPDATE SET epoch = max(epoch, excluded.epoch), until = max(until, excluded.until)";
            connection.prepare_cached(query)?.execute((user, epoch, until))?;
            Ok(())
        };
        Ok(self.database.write(raise).await?)
    }

    async fn medium(&self, _user_key: &str, _purge: Purge, _patience: Duration) -> Result<Medium, Fault> {
        // Replaced rows are overwritten in the file; what is left of them stands in the log until it is moved into the file.
        Ok(if self.database.checkpoint().await? {
            Medium { state: Physical::Gone, detail: "rows were overwritten and the write-ahead log emptied" }
        } else {
            Medium { state: Physical::Pending, detail: "waits for a reader to let go of the write-ahead log" }
        })
    }

    async fn purge(&self, now: Timestamp) -> Result<(), Fault> {
        let purge = move |connection: &Connection| -> Result<(), SqliteError> {
            connection.prepare_cached("DELETE FROM erase_epoch WHERE until <= ?1")?.execute([now.micros()])?;
            connection.prepare_cached("DELETE FROM board WHERE expires <= ?1")?.execute([now.micros()])?;
            Ok(())
        };
        Ok(self.database.write(purge).await?)
    }
}
