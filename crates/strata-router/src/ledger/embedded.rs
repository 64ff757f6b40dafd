//! The ledger in SQLite, for the one-process form.

use super::queue::{Backlog, ObserveQueue, Pushed, Waiting};
use super::{
    Change, DecisionLog, DecisionRow, Decisions, JournalRow, Ledger, MAX_FIELDS, OPEN_PAGE, OpenEntry, Swap, Wanted, Written,
};
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params};
use strata_core::limits::{DECISIONS_PER_USER, JOURNAL_ENTRIES, OBSERVE_PER_USER, OBSERVE_SECONDS, OBSERVE_USERS};
use strata_core::policy::erasure::{Medium, Physical, Purge};
use strata_core::time::SECOND;
use strata_core::{Fault, Timestamp};
use strata_runtime::sqlite::{Database, Location, Migration, SqliteError, SqliteSettings};

const MIGRATIONS: &[Migration] = &[
    Migration {
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
    },
    Migration {
        version: 2,
        name: "decisions",
        sql: "
            CREATE TABLE decisions (
                seq INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT NOT NULL, trace TEXT NOT NULL, request TEXT NOT NULL,
                recall TEXT NOT NULL, entry TEXT NOT NULL, keep_until INTEGER NOT NULL
            );
            CREATE INDEX decisions_user ON decisions (user, seq);
            CREATE INDEX decisions_trace ON decisions (user, trace);
            CREATE INDEX decisions_request ON decisions (user, request);
            CREATE INDEX decisions_recall ON decisions (user, recall) WHERE recall <> '';
            CREATE INDEX decisions_keep_until ON decisions (keep_until);
        ",
    },
    Migration {
        version: 3,
        name: "what waits to be observed",
        sql: "
            CREATE TABLE observations (
                seq INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT NOT NULL, id TEXT NOT NULL, entry TEXT NOT NULL,
                keep_until INTEGER NOT NULL, UNIQUE (user, id)
            );
            CREATE INDEX observations_user ON observations (user, seq);
            CREATE INDEX observations_keep_until ON observations (keep_until);
            CREATE TABLE observed_users (user TEXT PRIMARY KEY, due_at INTEGER NOT NULL) WITHOUT ROWID;
            CREATE INDEX observed_users_due ON observed_users (due_at);
        ",
    },
    Migration {
        version: 4,
        name: "promotions in the order of their start, and when to look at them",
        sql: "
            ALTER TABLE promotions ADD COLUMN started_at INTEGER NOT NULL DEFAULT 0;
            ALTER TABLE promotions RENAME COLUMN written_at TO look_at;
        ",
    },
];

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
        look_at: Option<Timestamp>,
        now: Timestamp,
        keep_until: Timestamp,
    ) -> Result<Written, Fault> {
        let (user, promotion_id, row) = (user.to_owned(), promotion_id.to_owned(), row.clone());
        let write = move |connection: &Connection| -> Result<Written, SqliteError> {
            connection
                .prepare_cached("DELETE FROM promotions WHERE user = ?1 AND promotion_id = ?2 AND keep_until <= ?3")?
                .execute(params![user, promotion_id, now.micros()])?;
            if expected.is_none() {
                let kept: i64 = connection
                    .prepare_cached("SELECT count(*) FROM promotions WHERE user = ?1 AND keep_until > ?2")?
                    .query_row(params![user, now.micros()], |row| row.get(0))?;
                if usize::try_from(kept).unwrap_or(usize::MAX) >= JOURNAL_ENTRIES {
                    return Ok(Written::Full);
                }
            }
            let changed = match expected {
                None => connection
                    .prepare_cached(
                        "INSERT INTO promotions (user, promotion_id, revision, entry, open, look_at, keep_until, started_at)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING",
                    )?
                    .execute(params![
                        user,
                        promotion_id,
                        row.revision.cast_signed(),
                        row.entry,
                        look_at.is_some(),
                        look_at.unwrap_or(now).micros(),
                        keep_until.micros(),
                        now.micros()
                    ])?,
                Some(expected) => connection
                    .prepare_cached(
                        "UPDATE promotions SET revision = ?3, entry = ?4, open = ?5, look_at = ?6, keep_until = ?7
                         WHERE user = ?1 AND promotion_id = ?2 AND revision = ?8",
                    )?
                    .execute(params![
                        user,
                        promotion_id,
                        row.revision.cast_signed(),
                        row.entry,
                        look_at.is_some(),
                        look_at.unwrap_or(now).micros(),
                        keep_until.micros(),
                        expected.cast_signed()
                    ])?,
            };
            Ok(if changed == 1 { Written::Done } else { Written::Lost })
        };
        Ok(self.database.write(write).await?)
    }

    async fn journal_list(&self, user: &str, now: Timestamp) -> Result<Vec<JournalRow>, Fault> {
        let user = user.to_owned();
        let read = move |connection: &Connection| -> Result<Vec<JournalRow>, SqliteError> {
            let mut statement = connection.prepare_cached(
                "SELECT revision, entry FROM promotions WHERE user = ?1 AND keep_until > ?2 ORDER BY started_at, promotion_id LIMIT ?3",
            )?;
            let limit = i64::try_from(JOURNAL_ENTRIES).unwrap_or(i64::MAX);
            let rows = statement.query_map(params![user, now.micros(), limit], |row| {
                Ok(JournalRow { revision: row.get::<_, i64>(0)?.cast_unsigned(), entry: row.get(1)? })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        };
        Ok(self.database.read(read).await?)
    }

    async fn journal_open(&self, now: Timestamp) -> Result<Vec<OpenEntry>, Fault> {
        let read = move |connection: &Connection| -> Result<Vec<OpenEntry>, SqliteError> {
            let mut statement = connection.prepare_cached(
                "SELECT user, promotion_id FROM promotions WHERE open = 1 AND look_at <= ?1 AND keep_until > ?1
                 ORDER BY look_at, user, promotion_id LIMIT ?2",
            )?;
            let limit = i64::try_from(OPEN_PAGE).unwrap_or(i64::MAX);
            let rows = statement
                .query_map(params![now.micros(), limit], |row| Ok(OpenEntry { user: row.get(0)?, promotion_id: row.get(1)? }))?;
            Ok(rows.collect::<Result<_, _>>()?)
        };
        Ok(self.database.read(read).await?)
    }

    async fn journal_close(&self, _entry: &OpenEntry) -> Result<(), Fault> {
        // The row itself says whether it is open.
        Ok(())
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
            for (table, key) in [
                ("ledger_fields", "user, field"),
                ("promotions", "user, promotion_id"),
                ("decisions", "seq"),
                ("observations", "seq"),
            ] {
                connection.execute(
                    &format!("DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE keep_until <= ?1 LIMIT 500)"),
                    [now.micros()],
                )?;
            }
            Ok(())
        };
        Ok(self.database.write(write).await?)
    }

    fn decisions(&self) -> Option<&dyn DecisionLog> {
        Some(self)
    }

    fn queue(&self) -> Option<&dyn ObserveQueue> {
        Some(self)
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

/// A cursor of this store: the number of the row.
fn row_of(cursor: &str) -> Result<i64, Fault> {
    if cursor.is_empty() {
        return Ok(0);
    }
    cursor.parse().map_err(|_| Fault::field("after", "is no cursor of this store"))
}

#[async_trait]
impl DecisionLog for EmbeddedLedger {
    async fn keep(&self, user: &str, rows: &[DecisionRow], _now: Timestamp, keep_until: Timestamp) -> Result<(), Fault> {
        let (user, rows) = (user.to_owned(), rows.to_vec());
        let write = move |connection: &Connection| -> Result<(), SqliteError> {
            let mut insert = connection.prepare_cached(
                "INSERT INTO decisions (user, trace, request, recall, entry, keep_until) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?;
            for DecisionRow { names: [trace, request, recall], entry } in &rows {
                insert.execute(params![user, trace, request, recall, entry, keep_until.micros()])?;
            }
            connection
                .prepare_cached(
                    "DELETE FROM decisions WHERE user = ?1 AND seq <=
                     (SELECT seq FROM decisions WHERE user = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)",
                )?
                .execute(params![user, i64::try_from(DECISIONS_PER_USER).unwrap_or(i64::MAX)])?;
            Ok(())
        };
        Ok(self.database.write(write).await?)
    }

    async fn kept(&self, user: &str, wanted: &Wanted, limit: usize, now: Timestamp) -> Result<Decisions, Fault> {
        let after = match wanted {
            Wanted::After(cursor) => row_of(cursor)?,
            Wanted::Named(_) | Wanted::Newest => 0,
        };
        let (user, wanted) = (user.to_owned(), wanted.clone());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let read = move |connection: &Connection| -> Result<Decisions, SqliteError> {
            let mut last = after;
            let mut take = |row: &rusqlite::Row<'_>| {
                last = row.get(0)?;
                row.get::<_, String>(1)
            };
            let entries = match &wanted {
                Wanted::Named(name) => connection
                    .prepare_cached(
                        "SELECT seq, entry FROM decisions WHERE user = ?1 AND keep_until > ?2
                         AND (trace = ?3 OR request = ?3 OR (recall = ?3 AND recall <> '')) ORDER BY seq LIMIT ?4",
                    )?
                    .query_map(params![user, now.micros(), name, limit], &mut take)?
                    .collect::<Result<Vec<_>, _>>()?,
                Wanted::After(_) => connection
                    .prepare_cached(
                        "SELECT seq, entry FROM decisions WHERE user = ?1 AND keep_until > ?2 AND seq > ?3 ORDER BY seq LIMIT ?4",
                    )?
                    .query_map(params![user, now.micros(), after, limit], &mut take)?
                    .collect::<Result<Vec<_>, _>>()?,
                Wanted::Newest => {
                    last = connection
                        .prepare_cached("SELECT coalesce(max(seq), 0) FROM decisions WHERE user = ?1")?
                        .query_row([&user], |row| row.get(0))?;
                    Vec::new()
                }
            };
            Ok(Decisions { entries, cursor: last.to_string() })
        };
        Ok(self.database.read(read).await?)
    }

    async fn erase(&self, user: &str, ids: Option<&[String]>) -> Result<u64, Fault> {
        let (user, ids) = (user.to_owned(), ids.map(<[String]>::to_vec));
        let write = move |connection: &Connection| -> Result<u64, SqliteError> {
            let removed = match &ids {
                None => connection.prepare_cached("DELETE FROM decisions WHERE user = ?1")?.execute([&user])?,
                Some(ids) => {
                    let mut delete =
                        connection.prepare_cached("DELETE FROM decisions WHERE user = ?1 AND instr(entry, ?2) > 0")?;
                    let mut removed = 0;
                    for id in ids.iter().filter(|id| !id.is_empty()) {
                        removed += delete.execute([&user, id])?;
                    }
                    removed
                }
            };
            Ok(u64::try_from(removed).unwrap_or(u64::MAX))
        };
        Ok(self.database.write(write).await?)
    }
}

#[async_trait]
impl ObserveQueue for EmbeddedLedger {
    async fn push(&self, user: &str, id: &str, entry: &str, now: Timestamp, keep_until: Timestamp) -> Result<Pushed, Fault> {
        let (user, id, entry) = (user.to_owned(), id.to_owned(), entry.to_owned());
        let write = move |connection: &Connection| -> Result<Pushed, SqliteError> {
            let known = "SELECT EXISTS (SELECT 1 FROM observations WHERE user = ?1 AND id = ?2)";
            if connection.prepare_cached(known)?.query_row([&user, &id], |row| row.get::<_, bool>(0))? {
                return Ok(Pushed::Known);
            }
            let waiting: usize = connection
                .prepare_cached("SELECT count(*) FROM observations WHERE user = ?1")?
                .query_row([&user], |row| row.get(0))?;
            let users: usize =
                connection.prepare_cached("SELECT count(*) FROM observed_users")?.query_row([], |row| row.get(0))?;
            if waiting >= OBSERVE_PER_USER || (waiting == 0 && users >= OBSERVE_USERS) {
                return Ok(Pushed::Full);
            }
            connection
                .prepare_cached("INSERT INTO observations (user, id, entry, keep_until) VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![user, id, entry, keep_until.micros()])?;
            connection
                .prepare_cached("INSERT INTO observed_users (user, due_at) VALUES (?1, ?2) ON CONFLICT (user) DO NOTHING")?
                .execute(params![user, now.micros()])?;
            Ok(Pushed::Done)
        };
        Ok(self.database.write(write).await?)
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<(String, Timestamp)>, Fault> {
        let read = move |connection: &Connection| -> Result<Vec<(String, Timestamp)>, SqliteError> {
            let mut statement = connection
                .prepare_cached("SELECT user, due_at FROM observed_users WHERE due_at <= ?1 ORDER BY due_at, user LIMIT ?2")?;
            let rows = statement.query_map(params![now.micros(), i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
                Ok((row.get(0)?, Timestamp(row.get(1)?)))
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        };
        Ok(self.database.read(read).await?)
    }

    async fn backlog(&self, limit: usize) -> Result<Backlog, Fault> {
        let read = move |connection: &Connection| -> Result<Backlog, SqliteError> {
            let users = connection.prepare_cached("SELECT count(*) FROM observed_users")?.query_row([], |row| row.get(0))?;
            let (entries, kept_until): (u64, Option<i64>) = connection
                .prepare_cached(
                    "SELECT count(*), min(keep_until) FROM observations
                     WHERE user IN (SELECT user FROM observed_users ORDER BY due_at, user LIMIT ?1)",
                )?
                .query_row([i64::try_from(limit).unwrap_or(i64::MAX)], |row| Ok((row.get(0)?, row.get(1)?)))?;
            // Each is kept equally long.
            let oldest = kept_until.map(|until| Timestamp(until).plus(-OBSERVE_SECONDS * SECOND));
            Ok(Backlog { users, entries, oldest })
        };
        Ok(self.database.read(read).await?)
    }

    async fn lease(&self, user: &str, seen: Timestamp, until: Timestamp) -> Result<bool, Fault> {
        let user = user.to_owned();
        let write = move |connection: &Connection| -> Result<bool, SqliteError> {
            let moved = connection
                .prepare_cached("UPDATE observed_users SET due_at = ?3 WHERE user = ?1 AND due_at = ?2")?
                .execute(params![user, seen.micros(), until.micros()])?;
            Ok(moved == 1)
        };
        Ok(self.database.write(write).await?)
    }

    async fn head(&self, user: &str, limit: usize, now: Timestamp) -> Result<Vec<Waiting>, Fault> {
        let user = user.to_owned();
        let read = move |connection: &Connection| -> Result<Vec<Waiting>, SqliteError> {
            let mut statement = connection.prepare_cached(
                "SELECT seq, entry FROM observations WHERE user = ?1 AND keep_until > ?2 ORDER BY seq LIMIT ?3",
            )?;
            let rows = statement.query_map(params![user, now.micros(), i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
                Ok(Waiting { place: row.get::<_, i64>(0)?.to_string(), entry: row.get(1)? })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        };
        Ok(self.database.read(read).await?)
    }

    async fn done(&self, user: &str, place: &str) -> Result<(), Fault> {
        let (user, seq) = (user.to_owned(), row_of(place)?);
        let write = move |connection: &Connection| -> Result<(), SqliteError> {
            connection.prepare_cached("DELETE FROM observations WHERE user = ?1 AND seq = ?2")?.execute(params![user, seq])?;
            Ok(())
        };
        Ok(self.database.write(write).await?)
    }

    async fn release(&self, user: &str, leased: Timestamp, next: Timestamp) -> Result<(), Fault> {
        let user = user.to_owned();
        let write = move |connection: &Connection| -> Result<(), SqliteError> {
            connection
                .prepare_cached(
                    "DELETE FROM observed_users WHERE user = ?1 AND due_at = ?2
                     AND NOT EXISTS (SELECT 1 FROM observations WHERE user = ?1)",
                )?
                .execute(params![user, leased.micros()])?;
            connection
                .prepare_cached("UPDATE observed_users SET due_at = ?3 WHERE user = ?1 AND due_at = ?2")?
                .execute(params![user, leased.micros(), next.micros()])?;
            Ok(())
        };
        Ok(self.database.write(write).await?)
    }
}
