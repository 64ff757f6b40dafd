//! The ledger in SQLite, for the one-process form.

use super::{Change, JournalRow, Ledger, MAX_FIELDS, OPEN_PAGE, OpenEntry, Swap};
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params};
use strata_core::policy::erasure::{Medium, Physical, Purge};
use strata_core::{Fault, Timestamp};
use strata_runtime::sqlite::{Database, Location, Migration, SqliteError, SqliteSettings};

const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "claims, marks and the promotion journal",
    sql: "
        CREATE TABLE ledger_fields (
            user TEXT NOT NULL, field TEXT NOT NULL, value TEXT NOT NULL, keep_until INTEGER NOT NULL,
            PRIMARY KEY (user, field)
        ) WITHOUT ROWID;
        CREATE INDEX ledger_fields_keep_until ON ledger_fields (keep_until);
        CREATE TABLE promotions (
            user TEXT NOT NULL, promotion_id TEXT NOT NULL, revision INTEGER NOT NULL, entry TEXT NOT NULL,
            open INTEGER NOT NULL, written_at INTEGER NOT NULL, keep_until INTEGER NOT NULL,
            PRIMARY KEY (user, promotion_id)
        ) WITHOUT ROWID;
        CREATE INDEX promotions_open ON promotions (written_at) WHERE open = 1;
        CREATE INDEX promotions_keep_until ON promotions (keep_until);
    ",
}];

/// The store.
#[derive(Debug)]
pub struct EmbeddedLedger {
    database: Database,
}

impl EmbeddedLedger {
    /// Opens or creates it.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE` when the file cannot be opened or belongs to another process; the cause is logged.
    pub fn open(location: &Location) -> Result<Self, Fault> {
        let settings = SqliteSettings { readers: 2, ..SqliteSettings::default() };
        let database = Database::open(location, MIGRATIONS, settings).map_err(|error| {
            tracing::error!(%error, "the ledger cannot be opened");
            Fault::unavailable("the ledger")
        })?;
        Ok(Self { database })
    }
}

fn count(connection: &Connection, user: &str) -> Result<usize, SqliteError> {
    let n: i64 =
        connection.prepare_cached("SELECT count(*) FROM ledger_fields WHERE user = ?1")?.query_row([user], |row| row.get(0))?;
    Ok(usize::try_from(n).unwrap_or(usize::MAX))
}

fn field(connection: &Connection, user: &str, field: &str, now: Timestamp) -> Result<Option<String>, SqliteError> {
    let mut statement =
        connection.prepare_cached("SELECT value FROM ledger_fields WHERE user = ?1 AND field = ?2 AND keep_until > ?3")?;
    Ok(statement.query_row(params![user, field, now.micros()], |row| row.get(0)).optional()?)
}

fn swap(
    connection: &Connection,
    user: &str,
    changes: &[Change],
    now: Timestamp,
    keep_until: Timestamp,
) -> Result<Swap, SqliteError> {
    let mut grow = 0;
    for change in changes {
        if field(connection, user, &change.field, now)? != change.old {
            return Ok(Swap::Lost);
        }
        grow += usize::from(change.old.is_none() && change.new.is_some());
    }
    if grow > 0 && count(connection, user)? + grow > MAX_FIELDS {
        return Ok(Swap::Full);
    }
    for change in changes {
        match &change.new {
            None => {
                connection
                    .prepare_cached("DELETE FROM ledger_fields WHERE user = ?1 AND field = ?2")?
                    .execute(params![user, change.field])?;
            }
            Some(value) => {
                connection
                    .prepare_cached(
                        "INSERT INTO ledger_fields (user, field, value, keep_until) VALUES (?1, ?2, ?3, ?4)
                         ON CONFLICT (user, field) DO UPDATE SET value = excluded.value, keep_until = max(keep_until, excluded.keep_until)",
                    )?
                    .execute(params![user, change.field, value, keep_until.micros()])?;
            }
        }
    }
    Ok(Swap::Done)
}

#[async_trait]
impl Ledger for EmbeddedLedger {
    async fn read(&self, user: &str, fields: &[String], now: Timestamp) -> Result<Vec<Option<String>>, Fault> {
        let (user, fields) = (user.to_owned(), fields.to_vec());
        Ok(self
            .database
            .read(move |connection| {
                fields.iter().map(|f| field(connection, &user, f, now)).collect::<Result<Vec<_>, SqliteError>>()
            })
            .await?)
    }

    async fn swap(&self, user: &str, changes: &[Change], now: Timestamp, keep_until: Timestamp) -> Result<Swap, Fault> {
        let (user, changes) = (user.to_owned(), changes.to_vec());
        Ok(self.database.write(move |connection| swap(connection, &user, &changes, now, keep_until)).await?)
    }

    async fn journal_read(&self, user: &str, promotion_id: &str, now: Timestamp) -> Result<Option<JournalRow>, Fault> {
        let (user, promotion_id) = (user.to_owned(), promotion_id.to_owned());
        let read = move |connection: &Connection| {
            connection
                .prepare_cached(
                    "SELECT revision, entry FROM promotions WHERE user = ?1 AND promotion_id = ?2 AND keep_until > ?3",
                )?
                .query_row(params![user, promotion_id, now.micros()], |row| {
                    Ok(JournalRow { revision: row.get::<_, i64>(0)?.cast_unsigned(), entry: row.get(1)? })
                })
                .optional()
                .map_err(SqliteError::from)
        };
        Ok(self.database.read(read).await?)
    }

    async fn journal_write(
        &self,
        user: &str,
        promotion_id: &str,
        expected: Option<u64>,
        row: &JournalRow,
        open: bool,
        now: Timestamp,
        keep_until: Timestamp,
    ) -> Result<bool, Fault> {
        let (user, promotion_id, row) = (user.to_owned(), promotion_id.to_owned(), row.clone());
        let write = move |connection: &Connection| -> Result<bool, SqliteError> {
            connection
                .prepare_cached("DELETE FROM promotions WHERE user = ?1 AND promotion_id = ?2 AND keep_until <= ?3")?
                .execute(params![user, promotion_id, now.micros()])?;
            let changed = match expected {
                None => connection
                    .prepare_cached(
                        "INSERT INTO promotions (user, promotion_id, revision, entry, open, written_at, keep_until)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
                    )?
                    .execute(params![
                        user,
                        promotion_id,
                        row.revision.cast_signed(),
                        row.entry,
                        open,
                        now.micros(),
                        keep_until.micros()
                    ])?,
                Some(expected) => connection
                    .prepare_cached(
                        "UPDATE promotions SET revision = ?3, entry = ?4, open = ?5, written_at = ?6, keep_until = ?7
                         WHERE user = ?1 AND promotion_id = ?2 AND revision = ?8",
                    )?
                    .execute(params![
                        user,
                        promotion_id,
                        row.revision.cast_signed(),
                        row.entry,
                        open,
                        now.micros(),
                        keep_until.micros(),
                        expected.cast_signed()
                    ])?,
            };
            Ok(changed == 1)
        };
        Ok(self.database.write(write).await?)
    }

    async fn journal_open(&self, before: Timestamp, now: Timestamp) -> Result<Vec<OpenEntry>, Fault> {
        let read = move |connection: &Connection| -> Result<Vec<OpenEntry>, SqliteError> {
            let mut statement = connection.prepare_cached(
                "SELECT user, promotion_id FROM promotions WHERE open = 1 AND written_at <= ?1 AND keep_until > ?2
                 ORDER BY written_at, user, promotion_id LIMIT ?3",
            )?;
            let limit = i64::try_from(OPEN_PAGE).unwrap_or(i64::MAX);
            let rows = statement.query_map(params![before.micros(), now.micros(), limit], |row| {
                Ok(OpenEntry { user: row.get(0)?, promotion_id: row.get(1)? })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        };
        Ok(self.database.read(read).await?)
    }

    async fn journal_close(&self, _entry: &OpenEntry) -> Result<(), Fault> {
        // The row itself says whether it is open.
        Ok(())
    }

    async fn journal_of(&self, user: &str, now: Timestamp) -> Result<Vec<JournalRow>, Fault> {
        let user = user.to_owned();
        let read = move |connection: &Connection| -> Result<Vec<JournalRow>, SqliteError> {
            let mut statement = connection.prepare_cached(
                "SELECT revision, entry FROM promotions WHERE user = ?1 AND keep_until > ?2 ORDER BY promotion_id",
            )?;
            let rows = statement.query_map(params![user, now.micros()], |row| {
                Ok(JournalRow { revision: row.get::<_, i64>(0)?.cast_unsigned(), entry: row.get(1)? })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        };
        Ok(self.database.read(read).await?)
    }

    async fn forget_user(&self, user: &str) -> Result<u64, Fault> {
        let user = user.to_owned();
        let write = move |connection: &Connection| -> Result<u64, SqliteError> {
            Ok(connection.execute("DELETE FROM ledger_fields WHERE user = ?1", [user])? as u64)
        };
        Ok(self.database.write(write).await?)
    }

    async fn medium(&self, _user: &str, _purge: Purge) -> Result<Medium, Fault> {
        let folded = self.database.checkpoint().await?;
        Ok(if folded {
            Medium { state: Physical::Gone, detail: "overwritten, and the log of the file is folded in" }
        } else {
            Medium { state: Physical::Pending, detail: "until the log of the file is folded in" }
        })
    }

    async fn sweep(&self, now: Timestamp) -> Result<(), Fault> {
        let write = move |connection: &Connection| -> Result<(), SqliteError> {
            // In small portions: everyone waits for the writer.
            for table in ["ledger_fields", "promotions"] {
                let key = if table == "promotions" { "user, promotion_id" } else { "user, field" };
                connection.execute(
                    &format!("DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE keep_until <= ?1 LIMIT 500)"),
                    [now.micros()],
                )?;
            }
            Ok(())
        };
        Ok(self.database.write(write).await?)
    }

    async fn ping(&self) -> Result<(), Fault> {
        Ok(self
            .database
            .read(|connection| {
                Ok::<_, SqliteError>(connection.query_row("SELECT 1", [], |row| row.get::<_, i64>(0)).map(|_| ())?)
            })
            .await?)
    }

    fn name(&self) -> &'static str {
        "embedded"
    }

    async fn close(&self) {
        self.database.close().await;
    }
}
