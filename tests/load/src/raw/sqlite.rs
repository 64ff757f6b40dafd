//! The rows that one call of ours adds to a SQLite file, observed, and the same rows added by a plain transaction to a file
//! with the same tables, indexes and triggers.

use anyhow::{Context as _, Result, ensure};
use rusqlite::{Connection, OpenFlags, params_from_iter, types::Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// Number of rows of each table.
pub type Counts = BTreeMap<String, i64>;

/// The SQLite files of a folder, those of one server.
///
/// # Errors
/// When the folder cannot be read.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let head = path.is_file().then(|| std::fs::read(&path)).transpose()?.unwrap_or_default();
        if head.starts_with(b"SQLite format 3\0") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Not through the product's own database type: this is the raw side, SQLite with nothing around it.
fn open(path: &Path, flags: OpenFlags) -> Result<Connection> {
    Ok(Connection::open_with_flags(path, flags)?)
}

fn reader(path: &Path) -> Result<Connection> {
    open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// Tables with rows of their own: not those behind a virtual table, which its inserts fill.
fn tables(connection: &Connection) -> Result<Vec<String>> {
    let mut statement = connection
        .prepare("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")?;
    let all: Vec<(String, String)> = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    let is_virtual = |sql: &str| sql.to_ascii_uppercase().starts_with("CREATE VIRTUAL");
    let behind: Vec<String> = all.iter().filter(|(_, sql)| is_virtual(sql)).map(|(name, _)| format!("{name}_")).collect();
    Ok(all.into_iter().map(|(name, _)| name).filter(|name| !behind.iter().any(|prefix| name.starts_with(prefix))).collect())
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Rows of each table now.
///
/// # Errors
/// When the file cannot be read.
pub fn counts(path: &Path) -> Result<Counts> {
    let connection = reader(path)?;
    tables(&connection)?
        .into_iter()
        .map(|table| {
            let count = connection.query_row(&format!("SELECT count(*) FROM {}", quoted(&table)), [], |row| row.get(0))?;
            Ok((table, count))
        })
        .collect()
}

/// Plain reads of one row of a live file.
pub struct Reads {
    connection: Connection,
    sql: String,
}

impl Reads {
    /// Of the table with the most rows.
    ///
    /// # Errors
    /// When the file cannot be read or holds nothing.
    pub fn of(path: &Path) -> Result<Self> {
        let (table, rows) = counts(path)?.into_iter().max_by_key(|(_, rows)| *rows).context("no table")?;
        ensure!(rows > 0, "no rows");
        Ok(Self { connection: reader(path)?, sql: format!("SELECT * FROM {} LIMIT 1", quoted(&table)) })
    }

    /// One read, in a transaction of its own.
    ///
    /// # Errors
    /// What SQLite answers.
    pub fn read(&self) -> Result<()> {
        self.connection.prepare_cached(&self.sql)?.query_row([], |_| Ok(()))?;
        Ok(())
    }
}

/// Plain inserts of the rows that calls of ours added.
pub struct Inserts {
    connection: Connection,
    tables: Vec<Table>,
    fresh: u64,
}

struct Table {
    insert: String,
    /// A row as it was added last, and which of its columns must differ from row to row.
    row: Vec<Value>,
    unique: BTreeSet<usize>,
    /// Rows a call, and how many are added for the calls so far.
    per_call: f64,
    owed: f64,
}

impl Inserts {
    /// Of the tables that grew between `before` and now, while `calls` calls were made. `copy` becomes a copy of the file,
    /// with synchronous FULL and a write-ahead log, as ours has.
    ///
    /// # Errors
    /// When no table grew, or the copy cannot be made.
    pub fn observed(path: &Path, before: &Counts, calls: u64, copy: &Path) -> Result<Self> {
        reader(path)?.execute("VACUUM INTO ?1", [copy.to_string_lossy()])?;
        // Of the copy: rows that are taken away again, as those of an outbox, may be gone from the file meanwhile.
        let after = counts(copy)?;
        let connection = open(copy, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        ensure!(mode.eq_ignore_ascii_case("wal"), "the copy has no write-ahead log");
        connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = OFF")?;
        let mut tables = Vec::new();
        for (name, count) in &after {
            let grown = count - before.get(name).copied().unwrap_or_default();
            if grown > 0 {
                let per_call = grown as f64 / calls as f64;
                tables.push(Table::last_row(&connection, name, per_call).with_context(|| format!("table {name}"))?);
            }
        }
        ensure!(!tables.is_empty(), "no table grew");
        let mut inserts = Self { connection, tables, fresh: 0 };
        inserts.drop_filled_by_triggers()?;
        Ok(inserts)
    }

    /// Rows a call.
    pub fn rows_per_call(&self) -> f64 {
        self.tables.iter().map(|t| t.per_call).sum()
    }

    /// Leaves out tables that a trigger of another one fills: they would get their rows twice.
    fn drop_filled_by_triggers(&mut self) -> Result<()> {
        let mut filled = BTreeSet::new();
        for index in 0..self.tables.len() {
            let before: Vec<i64> = self.sizes()?;
            self.connection.execute_batch("SAVEPOINT probe")?;
            self.insert_one(index)?;
            let after: Vec<i64> = self.sizes()?;
            self.connection.execute_batch("ROLLBACK TO probe; RELEASE probe")?;
            filled.extend((0..before.len()).filter(|other| *other != index && after[*other] > before[*other]));
        }
        let mut index = 0;
        self.tables.retain(|_| {
            index += 1;
            !filled.contains(&(index - 1))
        });
        Ok(())
    }

    fn sizes(&self) -> Result<Vec<i64>> {
        self.tables
            .iter()
            .map(|t| {
                let table = t.insert.split(" VALUES").next().unwrap_or_default().trim_start_matches("INSERT INTO ");
                Ok(self.connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))?)
            })
            .collect()
    }

    fn insert_one(&mut self, index: usize) -> Result<()> {
        let table = &self.tables[index];
        self.fresh += 1;
        let fresh = self.fresh;
        let row = table
            .row
            .iter()
            .enumerate()
            .map(|(at, value)| if table.unique.contains(&at) { renewed(value, fresh) } else { value.clone() });
        self.connection.prepare_cached(&table.insert)?.execute(params_from_iter(row))?;
        Ok(())
    }

    /// One transaction of the rows of one call, committed to the disk.
    ///
    /// # Errors
    /// What SQLite answers.
    pub fn commit(&mut self) -> Result<()> {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        for index in 0..self.tables.len() {
            self.tables[index].owed += self.tables[index].per_call;
            while self.tables[index].owed >= 1.0 {
                self.tables[index].owed -= 1.0;
                self.insert_one(index)?;
            }
        }
        self.connection.execute_batch("COMMIT")?;
        Ok(())
    }
}

impl Table {
    fn last_row(connection: &Connection, name: &str, per_call: f64) -> Result<Self> {
        let table = quoted(name);
        let mut info = connection.prepare(&format!("PRAGMA table_info({table})"))?;
        let columns: Vec<(String, String, bool)> = info
            .query_map([], |row| Ok((row.get("name")?, row.get::<_, String>("type")?, row.get::<_, i64>("pk")? > 0)))?
            .collect::<Result<_, _>>()?;
        let mut unique: BTreeSet<usize> = columns.iter().enumerate().filter(|(_, c)| c.2).map(|(at, _)| at).collect();
        let mut list = connection.prepare(&format!("PRAGMA index_list({table})"))?;
        let indexes: Vec<String> = list
            .query_map([], |row| Ok((row.get::<_, String>("name")?, row.get::<_, i64>("unique")? > 0)))?
            .filter_map(|row| row.map(|(name, unique)| unique.then_some(name)).transpose())
            .collect::<Result<_, _>>()?;
        for index in indexes {
            let mut info = connection.prepare(&format!("PRAGMA index_info({})", quoted(&index)))?;
            let names: Vec<Option<String>> = info.query_map([], |row| row.get("name"))?.collect::<Result<_, _>>()?;
            unique.extend(names.into_iter().flatten().filter_map(|n| columns.iter().position(|c| c.0 == n)));
        }
        let without_rowid: bool = connection.query_row(
            "SELECT upper(sql) LIKE '%WITHOUT ROWID%' FROM sqlite_master WHERE type = 'table' AND name = ?1",
            [name],
            |row| row.get(0),
        )?;
        let order = if without_rowid { "1" } else { "rowid" };
        let width = columns.len();
        let row = connection.query_row(&format!("SELECT * FROM {table} ORDER BY {order} DESC LIMIT 1"), [], |row| {
            (0..width).map(|at| row.get::<_, Value>(at)).collect::<Result<Vec<_>, _>>()
        })?;
        let places = vec!["?"; width].join(", ");
        Ok(Self { insert: format!("INSERT INTO {table} VALUES ({places})"), row, unique, per_call, owed: 0.0 })
    }
}

/// Another value of the same form and size.
fn renewed(value: &Value, fresh: u64) -> Value {
    /// Far from every number that a server gave so far.
    const FAR: i64 = 1 << 40;
    let tail = format!("{fresh:016x}");
    match value {
        Value::Null => Value::Null,
        Value::Integer(_) => Value::Integer(FAR + i64::try_from(fresh).unwrap_or_default()),
        Value::Real(_) => Value::Real(FAR as f64 + fresh as f64),
        Value::Text(text) if text.is_ascii() && text.len() >= tail.len() => {
            Value::Text(format!("{}{tail}", &text[..text.len() - tail.len()]))
        }
        Value::Text(text) => Value::Text(format!("{text}{tail}")),
        Value::Blob(blob) => {
            let mut blob = blob.clone();
            let tail = fresh.to_be_bytes();
            let from = blob.len().saturating_sub(tail.len());
            let skip = tail.len() - (blob.len() - from);
            blob[from..].copy_from_slice(&tail[skip..]);
            Value::Blob(blob)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_call_are_observed_and_added_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ours.sqlite3");
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let ours = open(&path, flags).expect("a file");
        ours.execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE facts (id BLOB PRIMARY KEY, key TEXT NOT NULL UNIQUE, body TEXT CHECK (length(body) > 3)) WITHOUT ROWID;
             CREATE TABLE words (n INTEGER PRIMARY KEY, word TEXT);
             CREATE TABLE log (n INTEGER PRIMARY KEY, what TEXT);
             CREATE TABLE still (n INTEGER PRIMARY KEY);
             CREATE TRIGGER logged AFTER INSERT ON facts BEGIN INSERT INTO log (what) VALUES (new.key); END;",
        )
        .expect("tables");
        let before = counts(&path).expect("counts");
        for n in 0..4_u8 {
            ours.execute("INSERT INTO facts VALUES (?1, ?2, 'body')", (vec![n; 16], format!("key {n}"))).expect("a fact");
            ours.execute_batch("INSERT INTO words (word) VALUES ('a'), ('b')").expect("words");
        }
        let copy = folder.path().join("raw.sqlite3");
        let mut inserts = Inserts::observed(&path, &before, 4, &copy).expect("inserts");
        assert!((inserts.rows_per_call() - 3.0).abs() < 1e-9, "the log is its trigger's: {}", inserts.rows_per_call());
        inserts.commit().expect("a commit");
        inserts.commit().expect("another");
        let now = counts(&copy).expect("counts");
        Reads::of(&path).expect("a table").read().expect("a row");
        assert_eq!((now["facts"], now["words"], now["log"], now["still"]), (6, 12, 6, 0));
        assert_eq!(files(folder.path()).expect("a folder"), [path, copy]);
    }
}
