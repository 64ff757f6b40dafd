//! Who owns what. Rows are found through [`Visible`], the filter of every read, which is made of an [`OwnerScope`] only;
//! writes go to a [`StoredOwner`].

use super::Sql;
use crate::scope::OwnerScope;
use rusqlite::{Connection, OptionalExtension, ToSql};
use strata_core::policy::ownership;
use strata_core::policy::quota::Kept;
use strata_core::{FactKey, Fault, Owner, Reason, Timestamp};

/// Ids of an owner inside the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoredOwner {
    /// The owner: user, or agent of the user.
    pub owner_id: i64,
    /// The user.
    pub user_id: i64,
}

/// What one caller may see: with an agent its own and the user's rows, without one all of the user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visible {
    /// The user.
    pub user_id: i64,
    /// The owners whose rows are visible, user level first; never empty for a known user.
    pub owner_ids: Vec<i64>,
    /// The user's revision in this snapshot.
    pub revision: u64,
}

impl Visible {
    /// What `scope` may see in this snapshot; none for a user nothing is known of.
    ///
    /// # Errors
    /// As the database says; `STALE_ERASE_EPOCH` for a call from before the user's last erasure.
    pub fn of(db: &Connection, scope: &OwnerScope) -> Result<Option<Self>, Fault> {
        let owner = scope.owner();
        let Some(user) = user(db, owner)? else { return Ok(None) };
        check_erase_epoch(scope, user.erase_epoch)?;
        let mut sql = "SELECT owner_id FROM owners WHERE user_id = ?1".to_owned();
        if owner.agent.is_some() {
            sql.push_str(" AND agent IN ('', ?2)");
        } else {
            sql.push_str(" AND ?2 = ''");
        }
        sql.push_str(" ORDER BY agent");
        let mut statement = db.prepare_cached(&sql).sql()?;
        let agent = owner.agent.as_ref().map_or("", |a| a.as_str());
        let rows = statement.query_map((user.user_id, agent), |row| row.get(0)).sql()?;
        let owner_ids = rows.collect::<rusqlite::Result<Vec<i64>>>().sql()?;
        Ok(Some(Self { user_id: user.user_id, owner_ids, revision: user.revision }))
    }

    /// A condition on `r.owner_id` that holds for visible rows only. The ids are the file's own numbers, no text.
    #[must_use]
    pub fn condition(&self) -> String {
        let ids: Vec<String> = self.owner_ids.iter().map(i64::to_string).collect();
        format!("r.owner_id IN ({})", ids.join(", "))
    }

    /// The owner that `scope` writes to, if it has rows.
    ///
    /// # Errors
    /// As the database says.
    pub fn own(&self, db: &Connection, scope: &OwnerScope) -> Result<Option<StoredOwner>, Fault> {
        let agent = scope.owner().agent.as_ref().map_or("", |a| a.as_str());
        Ok(at_level(db, self.user_id, agent)?.map(|owner_id| StoredOwner { owner_id, user_id: self.user_id }))
    }

    /// Whether a row of this owner is visible.
    #[must_use]
    pub fn sees(&self, owner: StoredOwner) -> bool {
        owner.user_id == self.user_id && self.owner_ids.contains(&owner.owner_id)
    }
}

fn check_erase_epoch(scope: &OwnerScope, stored: u64) -> Result<(), Fault> {
    if scope.erase_epoch() != 0 && scope.erase_epoch() < stored {
        return Err(Fault::new(Reason::StaleEraseEpoch, "the call is from before the user's last erasure")
            .with("current_value", stored.to_string()));
    }
    Ok(())
}

struct User {
    user_id: i64,
    revision: u64,
    erase_epoch: u64,
}

fn user(db: &Connection, owner: &Owner) -> Result<Option<User>, Fault> {
    let mut statement =
        db.prepare_cached("SELECT user_id, revision, erase_epoch FROM users WHERE tenant = ?1 AND user = ?2").sql()?;
    let read = |row: &rusqlite::Row<'_>| Ok(User { user_id: row.get(0)?, revision: row.get(1)?, erase_epoch: row.get(2)? });
    statement.query_row((owner.tenant.as_str(), owner.user.as_str()), read).optional().sql()
}

/// The owner a write goes to: made when it is new.
///
/// # Errors
/// As the database says; `STALE_ERASE_EPOCH` as [`Visible::of`].
pub fn ensure(db: &Connection, scope: &OwnerScope) -> Result<StoredOwner, Fault> {
    let owner = scope.owner();
    let user_id = match user(db, owner)? {
        Some(user) => {
            check_erase_epoch(scope, user.erase_epoch)?;
            user.user_id
        }
        None => insert(db, "INSERT INTO users (tenant, user) VALUES (?1, ?2)", &[&owner.tenant.as_str(), &owner.user.as_str()])?,
    };
    let agent = owner.agent.as_ref().map_or("", |a| a.as_str());
    // The user level always exists beside an agent's, so that a read finds both.
    let mut owner_id = 0;
    for level in if agent.is_empty() { vec![""] } else { vec!["", agent] } {
        owner_id = match at_level(db, user_id, level)? {
            Some(id) => id,
            None => insert(db, "INSERT INTO owners (user_id, agent) VALUES (?1, ?2)", &[&user_id, &level])?,
        };
    }
    Ok(StoredOwner { owner_id, user_id })
}

/// What an owner's tenant keeps, and its user with all agents.
///
/// # Errors
/// As the database says.
pub fn kept(db: &Connection, owner: StoredOwner) -> Result<(Kept, Kept), Fault> {
    let mut statement = db
        .prepare_cached(
            "SELECT coalesce(t.records, 0), coalesce(t.bytes, 0), sum(o.records), sum(o.bytes) FROM users u \
             JOIN owners o ON o.user_id = u.user_id LEFT JOIN tenants t ON t.tenant = u.tenant WHERE u.user_id = ?1",
        )
        .sql()?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok((Kept { records: row.get(0)?, bytes: row.get(1)? }, Kept { records: row.get(2)?, bytes: row.get(3)? }))
    };
    statement.query_row([owner.user_id], read).sql()
}

fn at_level(db: &Connection, user_id: i64, agent: &str) -> Result<Option<i64>, Fault> {
    let mut statement = db.prepare_cached("SELECT owner_id FROM owners WHERE user_id = ?1 AND agent = ?2").sql()?;
    statement.query_row((user_id, agent), |row| row.get(0)).optional().sql()
}

fn insert(db: &Connection, sql: &str, params: &[&dyn ToSql]) -> Result<i64, Fault> {
    let mut statement = db.prepare_cached(sql).sql()?;
    statement.insert(params).sql()
}

/// Until when everything of an owner was erased last, if it was: what was said up to then does not come in any more (rule E7).
///
/// # Errors
/// As the database says.
pub fn erased_before(db: &Connection, owner: StoredOwner) -> Result<Option<Timestamp>, Fault> {
    let mut statement = db
        .prepare_cached(
            "SELECT max(o.erased_before, u.erased_before) FROM owners o JOIN users u ON u.user_id = o.user_id WHERE o.owner_id = ?1",
        )
        .sql()?;
    let time: i64 = statement.query_row([owner.owner_id], |row| row.get(0)).sql()?;
    Ok((time > 0).then_some(Timestamp(time)))
}

/// The next revision of the user: every write of a user has one.
///
/// # Errors
/// As the database says.
pub fn next_revision(db: &Connection, user_id: i64) -> Result<u64, Fault> {
    let mut statement =
        db.prepare_cached("UPDATE users SET revision = revision + 1 WHERE user_id = ?1 RETURNING revision").sql()?;
    statement.query_row([user_id], |row| row.get(0)).sql()
}

/// An owned key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedKey {
    /// Highest epoch a write had.
    pub epoch: u64,
    /// The key's hybrid clock.
    pub last_event: Timestamp,
    /// A record system has the last word.
    pub system_owned: bool,
}

/// The row of a key at one owner.
///
/// # Errors
/// As the database says.
pub fn key(db: &Connection, owner: StoredOwner, key: &FactKey) -> Result<Option<OwnedKey>, Fault> {
    let mut statement =
        db.prepare_cached("SELECT epoch, last_event, system_owned FROM owner_keys WHERE owner_id = ?1 AND key = ?2").sql()?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(OwnedKey { epoch: row.get(0)?, last_event: Timestamp(row.get(1)?), system_owned: row.get(2)? })
    };
    statement.query_row((owner.owner_id, key.as_str()), read).optional().sql()
}

/// Enters a write to a key: its epoch is above every one before it (rule P3), its clock never steps back.
///
/// # Errors
/// As the database says.
pub fn claim(
    db: &Connection,
    owner: StoredOwner,
    key: &FactKey,
    event: Timestamp,
    system_owned: bool,
    now: Timestamp,
) -> Result<u64, Fault> {
    let previous = self::key(db, owner, key)?;
    // A key that went with an erasure has left the highest of such epochs behind.
    let mut floor = db.prepare_cached("SELECT epoch_floor FROM owners WHERE owner_id = ?1").sql()?;
    let floor: u64 = floor.query_row([owner.owner_id], |row| row.get(0)).sql()?;
    let epoch = ownership::next_epoch(previous.map_or(floor, |row| row.epoch.max(floor)), now);
    let mut statement = db
        .prepare_cached(
            "INSERT INTO owner_keys (owner_id, key, epoch, state, last_event, system_owned) VALUES (?1, ?2, ?3, 'OWNED', ?4, ?5) \
             ON CONFLICT (owner_id, key) DO UPDATE SET epoch = ?3, state = 'OWNED', last_event = max(last_event, ?4), system_owned = ?5",
        )
        .sql()?;
    statement.execute((owner.owner_id, key.as_str(), epoch, event.micros(), system_owned)).sql()?;
    Ok(epoch)
}

/// Gives a key free when no ACTIVE record holds it any more; its epoch stays.
///
/// # Errors
/// As the database says.
pub fn release_if_empty(db: &Connection, owner: StoredOwner, key: &FactKey) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached(
            "UPDATE owner_keys SET state = 'RELEASED' WHERE owner_id = ?1 AND key = ?2 \
             AND NOT EXISTS (SELECT 1 FROM records WHERE owner_id = ?1 AND key = ?2 AND status = 'ACTIVE')",
        )
        .sql()?;
    statement.execute((owner.owner_id, key.as_str())).sql()?;
    Ok(())
}

/// Who owns a key among visible owners at `now`: level (`false` is the user's) and epoch, outermost first. An owner whose
/// records of the key have all expired owns it no more.
///
/// # Errors
/// As the database says.
pub fn owners_of(db: &Connection, visible: &Visible, key: &FactKey, now: Timestamp) -> Result<Vec<(bool, u64)>, Fault> {
    let sql = format!(
        "SELECT o.agent <> '', k.epoch FROM owner_keys k JOIN owners o ON o.owner_id = k.owner_id JOIN owners r ON r.owner_id = k.owner_id \
         WHERE {} AND k.key = ?1 AND k.state = 'OWNED' AND EXISTS (SELECT 1 FROM records a WHERE a.owner_id = k.owner_id AND a.key = k.key \
         AND a.status = 'ACTIVE' AND (a.expire_time IS NULL OR a.expire_time > ?2)) ORDER BY o.agent",
        visible.condition()
    );
    let mut statement = db.prepare_cached(&sql).sql()?;
    let rows = statement.query_map((key.as_str(), now.micros()), |row| Ok((row.get(0)?, row.get(1)?))).sql()?;
    rows.collect::<rusqlite::Result<Vec<_>>>().sql()
}
