//! Skills and their versions. Reads are filtered to visible owners; what is written was read back from a gated statement.

use super::entities::{counted, held, origin_at, owner_at};
use super::row::{id_bytes, id_from, json};
use super::{Sql, StoredOwner, Visible, corrupt};
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, Row, params, params_from_iter};
use strata_core::part::Skill;
use strata_core::record::Status;
use strata_core::{Fault, MemoryId, Timestamp};
use strata_text::clean::normal;

/// A skill with the ids of its owner inside the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSkill {
    /// The skill.
    pub skill: Skill,
    /// Ids of its owner.
    pub owner: StoredOwner,
}

const COLUMNS: &str = "r.skill_id, r.owner_id, o.user_id, u.tenant, u.user, o.agent, r.name, r.version, r.triggers, r.steps, r.status, \
    r.source, r.source_ref, r.source_quote, r.quote_verified, r.instruction, r.create_time";
const FROM: &str = "skills r JOIN owners o ON o.owner_id = r.owner_id JOIN users u ON u.user_id = o.user_id";

fn read(row: &Row<'_>) -> Result<StoredSkill, Fault> {
    let owner = StoredOwner { owner_id: row.get(1).sql()?, user_id: row.get(2).sql()? };
    let texts = |at: usize| -> Result<Vec<String>, Fault> {
        serde_json::from_str(&row.get::<_, String>(at).sql()?).map_err(|_| corrupt("texts of a skill"))
    };
    let (status, origin) = origin_at(row, 10)?;
    let skill = Skill {
        skill_id: id_from(row.get(0).sql()?),
        owner: owner_at(row, 3)?,
        name: row.get(6).sql()?,
        version: row.get(7).sql()?,
        triggers: texts(8)?,
        steps: texts(9)?,
        status,
        origin,
        instruction: row.get(15).sql()?,
        create_time: Timestamp(row.get(16).sql()?),
    };
    Ok(StoredSkill { skill, owner })
}

fn select(db: &Connection, rest: &str, parameters: impl rusqlite::Params) -> Result<Vec<StoredSkill>, Fault> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM {FROM} {rest}")).sql()?;
    let mut rows = statement.query(parameters).sql()?;
    let mut out = Vec::new();
    while let Some(row) = rows.next().sql()? {
        out.push(read(row)?);
    }
    Ok(out)
}

/// Versions of these statuses by id, for an export.
///
/// # Errors
/// As the database says.
pub fn exported(db: &Connection, visible: &Visible, statuses: &[Status], skip: u64, limit: u32) -> Result<Vec<Skill>, Fault> {
    let rest = format!("WHERE {} AND {} ORDER BY r.skill_id LIMIT ?1 OFFSET ?2", visible.condition(), held(statuses));
    Ok(select(db, &rest, params![limit, skip])?.into_iter().map(|found| found.skill).collect())
}

/// Every version of a skill of one owner, oldest first.
///
/// # Errors
/// As the database says.
pub fn versions(db: &Connection, owner: StoredOwner, name: &str) -> Result<Vec<StoredSkill>, Fault> {
    select(db, "WHERE r.owner_id = ?1 AND r.normal = ?2 ORDER BY r.version", params![owner.owner_id, normal(name)])
}

/// A version by id, whoever owns it: for callers that hold the owner against it.
///
/// # Errors
/// As the database says.
pub fn any(db: &Connection, id: MemoryId) -> Result<Option<StoredSkill>, Fault> {
    Ok(select(db, "WHERE r.skill_id = ?1", [id_bytes(id)])?.pop())
}

/// Every visible version of a skill, the agent's before the user's, the last first.
///
/// # Errors
/// As the database says.
pub fn named(db: &Connection, visible: &Visible, name: &str) -> Result<Vec<StoredSkill>, Fault> {
    let rest = format!("WHERE {} AND r.normal = ?1 ORDER BY o.agent = '', o.agent, r.version DESC", visible.condition());
    select(db, &rest, [normal(name)])
}

/// Visible skills in force, the agent's before the user's, by name.
///
/// # Errors
/// As the database says.
pub fn in_force(db: &Connection, visible: &Visible) -> Result<Vec<StoredSkill>, Fault> {
    select(db, &format!("WHERE {} AND r.status = 'ACTIVE' ORDER BY o.agent = '', o.agent, r.normal", visible.condition()), [])
}

/// Visible skills in order of their ids, from the first after `after`.
///
/// # Errors
/// As the database says.
pub fn list(
    db: &Connection,
    visible: &Visible,
    name: Option<&str>,
    all_versions: bool,
    after: Option<MemoryId>,
    limit: u32,
) -> Result<Vec<StoredSkill>, Fault> {
    let mut rest = format!("WHERE {}", visible.condition());
    let mut values: Vec<SqlValue> = Vec::new();
    let mut bind = |value: SqlValue| {
        values.push(value);
        format!("?{}", values.len())
    };
    if !all_versions {
        rest.push_str(" AND r.status = 'ACTIVE'");
    }
    if let Some(name) = name {
        let name = bind(normal(name).into());
        rest.push_str(&format!(" AND r.normal = {name}"));
    }
    if let Some(after) = after {
        let after = bind(id_bytes(after).to_vec().into());
        rest.push_str(&format!(" AND r.skill_id > {after}"));
    }
    let limit = bind(i64::from(limit).into());
    rest.push_str(&format!(" ORDER BY r.skill_id LIMIT {limit}"));
    select(db, &rest, params_from_iter(values))
}

/// Versions of skills of an owner.
///
/// # Errors
/// As the database says.
pub fn count(db: &Connection, owner: StoredOwner) -> Result<usize, Fault> {
    counted(db, "SELECT count(*) FROM skills WHERE owner_id = ?1", owner)
}

/// Writes a version. The caller read its words from a gated statement.
///
/// # Errors
/// As the database says.
pub(super) fn put(db: &Connection, owner: StoredOwner, skill: &Skill) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached(
            "INSERT INTO skills (skill_id, owner_id, name, normal, version, triggers, steps, status, source, source_ref, source_quote, \
             quote_verified, instruction, create_time) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        )
        .sql()?;
    let row = params![
        id_bytes(skill.skill_id),
        owner.owner_id,
        skill.name,
        normal(&skill.name),
        skill.version,
        json(&skill.triggers),
        json(&skill.steps),
        skill.status.name(),
        skill.origin.source.name(),
        skill.origin.source_ref.as_ref().map(json),
        skill.origin.quote,
        skill.origin.quote_verified,
        skill.instruction,
        skill.create_time.micros()
    ];
    statement.execute(row).sql()?;
    Ok(())
}

/// Moves a version.
///
/// # Errors
/// As the database says.
pub(super) fn set_status(db: &Connection, id: MemoryId, status: Status) -> Result<(), Fault> {
    let mut statement = db.prepare_cached("UPDATE skills SET status = ?2 WHERE skill_id = ?1").sql()?;
    statement.execute(params![id_bytes(id), status.name()]).sql()?;
    Ok(())
}

/// Removes every version of a skill; answers how many there were.
///
/// # Errors
/// As the database says.
pub(super) fn remove(db: &Connection, owner: StoredOwner, name: &str) -> Result<u32, Fault> {
    let mut statement = db.prepare_cached("DELETE FROM skills WHERE owner_id = ?1 AND normal = ?2").sql()?;
    let gone = statement.execute(params![owner.owner_id, normal(name)]).sql()?;
    Ok(u32::try_from(gone).unwrap_or(u32::MAX))
}
