//! What operators set while the service runs (`strata_core::policy::control`).

use super::{Sql, ledger};
use rusqlite::Connection;
use strata_core::Fault;
use strata_core::policy::control::{Entry, Setting};

/// Every entry, by name.
///
/// # Errors
/// As the database says.
pub fn list(db: &Connection) -> Result<Vec<Entry>, Fault> {
    let mut statement = db.prepare_cached("SELECT name, version, value FROM control ORDER BY name").sql()?;
    let read = |row: &rusqlite::Row<'_>| Ok(Entry { name: row.get(0)?, version: row.get(1)?, value: row.get(2)? });
    statement.query_map([], read).sql()?.collect::<rusqlite::Result<_>>().sql()
}

/// Keeps the entries that hold against what is there.
///
/// # Errors
/// As the database says.
pub fn put(db: &Connection, entries: &[Entry]) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached(
            "INSERT INTO control (name, version, value) VALUES (?1, ?2, ?3) \
             ON CONFLICT (name) DO UPDATE SET version = ?2, value = ?3 WHERE (?2, ?3) > (version, value)",
        )
        .sql()?;
    for entry in entries {
        if statement.execute((&entry.name, entry.version, &entry.value)).sql()? > 0 {
            audit(db, entry)?;
        }
    }
    Ok(())
}

/// Says in the audit what an operator set: a mode with its reason, a key by its name.
fn audit(db: &Connection, entry: &Entry) -> Result<(), Fault> {
    // An entry of a newer release says nothing to this one.
    let Ok(setting) = serde_json::from_str::<Setting>(&entry.value) else { return Ok(()) };
    let (tenant, action, subject, actor, reason, time) = match &setting {
        Setting::Mode(mode) => {
            let subject = format!("{} {}", mode.layer.name(), mode.mode.name());
            (&mode.tenant, "MODE_SET", subject, &mode.actor, mode.reason.as_str(), mode.time)
        }
        Setting::Key(key) => {
            let action = if key.revoked.is_some() { "API_KEY_REVOKED" } else { "API_KEY_CREATED" };
            let revoked = key.revoked.as_ref();
            let (actor, time) = revoked.map_or((&key.created_by, key.created), |revoked| (&revoked.actor, revoked.time));
            (&key.tenant, action, key.key_id.clone(), actor, revoked.map_or("", |revoked| revoked.reason.as_str()), time)
        }
    };
    let entry = ledger::AuditEntry {
        time,
        tenant: tenant.as_str(),
        user: "",
        action,
        memory_id: None,
        actor,
        rule: if action == "MODE_SET" { "D1" } else { "" },
        subject: &subject,
        reason,
    };
    ledger::audit(db, &entry)
}

/// Forgets entries by name.
///
/// # Errors
/// As the database says.
pub fn remove(db: &Connection, names: &[String]) -> Result<(), Fault> {
    let mut statement = db.prepare_cached("DELETE FROM control WHERE name = ?1").sql()?;
    for name in names {
        statement.execute([name]).sql()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::MIGRATIONS;
    use strata_core::policy::authz::Layer;
    use strata_core::policy::control::{ModeSetting, Settings, set_mode};
    use strata_core::policy::modes::Mode;
    use strata_core::{TenantId, Timestamp};

    #[test]
    fn a_change_that_is_kept_is_audited_once() {
        let db = Connection::open_in_memory().expect("opens");
        for migration in MIGRATIONS {
            db.execute_batch(migration.sql).expect("migrates");
        }
        let set = ModeSetting {
            tenant: TenantId::new("t1").expect("an id"),
            layer: Layer::Longterm,
            mode: Mode::WriteOff,
            actor: "key:op".into(),
            reason: "a test".into(),
            time: Timestamp(1_800_000_000_000_000),
            request_id: None,
        };
        let entry = set_mode(&Settings::default(), &set, None).expect("set").expect("new");
        for _ in 0..2 {
            put(&db, std::slice::from_ref(&entry)).expect("kept");
        }
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?));
        let audited = db.query_row("SELECT tenant, action || ' ' || subject, actor FROM audit", [], read).expect("one row");
        assert_eq!(audited, ("t1".into(), "MODE_SET longterm WRITE_OFF".into(), "key:op".into()));
        assert_eq!(ledger::verify_audit(&db).expect("whole").0, 1);
    }

    #[test]
    fn the_higher_version_holds() {
        let db = Connection::open_in_memory().expect("opens");
        for migration in MIGRATIONS {
            db.execute_batch(migration.sql).expect("migrates");
        }
        let entry = |version, value: &str| Entry { name: "a".into(), version, value: value.into() };
        for (next, holds) in [
            (entry(5, "five"), entry(5, "five")),
            (entry(4, "four"), entry(5, "five")),
            (entry(5, "fiver"), entry(5, "fiver")),
            (entry(5, "five"), entry(5, "fiver")),
            (entry(10, "ten"), entry(10, "ten")),
        ] {
            put(&db, &[next]).expect("kept");
            assert_eq!(list(&db).expect("listed"), [holds]);
        }
        assert_eq!(ledger::verify_audit(&db).expect("whole").0, 0, "what is no setting is not audited");
        remove(&db, &["a".to_owned(), "b".to_owned()]).expect("forgotten");
        assert!(list(&db).expect("listed").is_empty());
    }
}
