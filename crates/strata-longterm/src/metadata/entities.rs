//! Entities, their names and their relations. Reads are filtered to visible owners like those of records; what is written
//! was read back from a [`Gated`](strata_core::policy::gate::Gated) statement by `write`.

use super::row::{id_bytes, id_from, json};
use super::{Sql, StoredOwner, Visible, corrupt};
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, Row, params, params_from_iter};
use strata_core::part::{Entity, Origin, Relation};
use strata_core::record::{Source, SourceRef, Status};
use strata_core::{AgentId, FactKey, Fault, MemoryId, Owner, TenantId, Timestamp, UserId};
use strata_text::clean::normal;

/// An entity with the ids of its owner inside the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntity {
    /// The entity.
    pub entity: Entity,
    /// Ids of its owner.
    pub owner: StoredOwner,
}

const COLUMNS: &str = "r.entity_id, r.owner_id, o.user_id, u.tenant, u.user, o.agent, r.kind, r.name, r.aliases, r.prefix, r.status, \
    r.source, r.source_ref, r.source_quote, r.quote_verified, r.create_time, r.update_time, r.version";
const FROM: &str = "entities r JOIN owners o ON o.owner_id = r.owner_id JOIN users u ON u.user_id = o.user_id";

/// Tenant, user and agent as three columns.
pub(super) fn owner_at(row: &Row<'_>, at: usize) -> Result<Owner, Fault> {
    let (tenant, user, agent): (String, String, String) = (row.get(at).sql()?, row.get(at + 1).sql()?, row.get(at + 2).sql()?);
    Ok(Owner {
        tenant: TenantId::new(tenant)?,
        user: UserId::new(user)?,
        agent: if agent.is_empty() { None } else { Some(AgentId::new(agent)?) },
    })
}

/// Status and origin as five columns: status, source, reference, quote, verified.
pub(super) fn origin_at(row: &Row<'_>, at: usize) -> Result<(Status, Origin), Fault> {
    let (status, source): (String, String) = (row.get(at).sql()?, row.get(at + 1).sql()?);
    let source_ref: Option<String> = row.get(at + 2).sql()?;
    let source_ref = source_ref.map(|text| serde_json::from_str::<SourceRef>(&text)).transpose();
    let origin = Origin {
        source: Source::from_name(&source).ok_or_else(|| corrupt("source of a part"))?,
        source_ref: source_ref.map_err(|_| corrupt("reference of a part"))?,
        quote: row.get(at + 3).sql()?,
        quote_verified: row.get(at + 4).sql()?,
    };
    Ok((Status::from_name(&status).ok_or_else(|| corrupt("status of a part"))?, origin))
}

fn read(row: &Row<'_>) -> Result<StoredEntity, Fault> {
    let owner = StoredOwner { owner_id: row.get(1).sql()?, user_id: row.get(2).sql()? };
    let aliases: String = row.get(8).sql()?;
    let (status, origin) = origin_at(row, 10)?;
    let entity = Entity {
        entity_id: id_from(row.get(0).sql()?),
        owner: owner_at(row, 3)?,
        kind: row.get(6).sql()?,
        name: row.get(7).sql()?,
        aliases: serde_json::from_str(&aliases).map_err(|_| corrupt("aliases of an entity"))?,
        prefix: FactKey::new(row.get::<_, String>(9).sql()?)?,
        status,
        origin,
        create_time: Timestamp(row.get(15).sql()?),
        update_time: Timestamp(row.get(16).sql()?),
        version: row.get(17).sql()?,
    };
    Ok(StoredEntity { entity, owner })
}

fn select(db: &Connection, rest: &str, parameters: impl rusqlite::Params) -> Result<Vec<StoredEntity>, Fault> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM {FROM} {rest}")).sql()?;
    let mut rows = statement.query(parameters).sql()?;
    let mut out = Vec::new();
    while let Some(row) = rows.next().sql()? {
        out.push(read(row)?);
    }
    Ok(out)
}

/// An entity by id, whoever owns it: for callers that hold the owner against it.
///
/// # Errors
/// As the database says.
pub fn any(db: &Connection, id: MemoryId) -> Result<Option<StoredEntity>, Fault> {
    Ok(select(db, "WHERE r.entity_id = ?1", [id_bytes(id)])?.pop())
}

/// An entity by id, if it is visible.
///
/// # Errors
/// As the database says.
pub fn get(db: &Connection, visible: &Visible, id: MemoryId) -> Result<Option<StoredEntity>, Fault> {
    Ok(any(db, id)?.filter(|found| visible.sees(found.owner)))
}

/// Which entities a list is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Only of this type.
    pub kind: Option<String>,
    /// Only with this name or alias, in normal form.
    pub name: Option<String>,
    /// Candidates too.
    pub candidates: bool,
}

/// Visible entities in order of their ids, from the first after `after`.
///
/// # Errors
/// As the database says.
pub fn list(
    db: &Connection,
    visible: &Visible,
    asked: &Asked,
    after: Option<MemoryId>,
    limit: u32,
) -> Result<Vec<StoredEntity>, Fault> {
    let mut rest = format!("WHERE {}", visible.condition());
    let mut values: Vec<SqlValue> = Vec::new();
    let mut bind = |value: SqlValue| {
        values.push(value);
        format!("?{}", values.len())
    };
    if !asked.candidates {
        rest.push_str(" AND r.status = 'ACTIVE'");
    }
    if let Some(kind) = &asked.kind {
        let kind = bind(kind.clone().into());
        rest.push_str(&format!(" AND r.kind = {kind}"));
    }
    if let Some(name) = &asked.name {
        let name = bind(name.clone().into());
        rest.push_str(&format!(
            " AND EXISTS (SELECT 1 FROM entity_names n WHERE n.entity_id = r.entity_id AND n.normal = {name})"
        ));
    }
    if let Some(after) = after {
        let after = bind(id_bytes(after).to_vec().into());
        rest.push_str(&format!(" AND r.entity_id > {after}"));
    }
    let limit = bind(i64::from(limit).into());
    rest.push_str(&format!(" ORDER BY r.entity_id LIMIT {limit}"));
    select(db, &rest, params_from_iter(values))
}

/// The entity of one owner that a draft means: the one of this type and name, else the only one that has the name as alias.
///
/// # Errors
/// As the database says.
pub fn same(db: &Connection, owner: StoredOwner, kind: &str, name: &str) -> Result<Option<StoredEntity>, Fault> {
    let rest = "WHERE r.owner_id = ?1 AND r.kind = ?2 AND r.entity_id IN \
        (SELECT entity_id FROM entity_names WHERE owner_id = ?1 AND normal = ?3) ORDER BY r.normal <> ?3, r.entity_id LIMIT 2";
    let wanted = normal(name);
    let mut found = select(db, rest, params![owner.owner_id, kind, wanted])?;
    if found.len() > 1 && normal(&found[0].entity.name) != wanted {
        return Ok(None);
    }
    Ok(if found.is_empty() { None } else { Some(found.swap_remove(0)) })
}

/// Whether a prefix is taken at this owner.
///
/// # Errors
/// As the database says.
pub fn has_prefix(db: &Connection, owner: StoredOwner, prefix: &FactKey) -> Result<bool, Fault> {
    Ok(!select(db, "WHERE r.owner_id = ?1 AND r.prefix = ?2", params![owner.owner_id, prefix.as_str()])?.is_empty())
}

/// Entities of an owner.
///
/// # Errors
/// As the database says.
pub fn count(db: &Connection, owner: StoredOwner) -> Result<usize, Fault> {
    counted(db, "SELECT count(*) FROM entities WHERE owner_id = ?1", owner)
}

/// Relations of an owner.
///
/// # Errors
/// As the database says.
pub fn count_relations(db: &Connection, owner: StoredOwner) -> Result<usize, Fault> {
    counted(db, "SELECT count(*) FROM relations WHERE owner_id = ?1", owner)
}

pub(super) fn counted(db: &Connection, sql: &str, owner: StoredOwner) -> Result<usize, Fault> {
    let mut statement = db.prepare_cached(sql).sql()?;
    let count: i64 = statement.query_row([owner.owner_id], |row| row.get(0)).sql()?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Writes an entity: new, or as it is now. The caller read its words from a gated statement.
///
/// # Errors
/// As the database says.
pub(super) fn put(db: &Connection, owner: StoredOwner, entity: &Entity) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached(
            "INSERT INTO entities (entity_id, owner_id, kind, name, normal, aliases, prefix, status, source, source_ref, source_quote, \
             quote_verified, create_time, update_time, version) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15) \
             ON CONFLICT (entity_id) DO UPDATE SET name = ?4, normal = ?5, aliases = ?6, status = ?8, source = ?9, update_time = ?14, \
             version = ?15",
        )
        .sql()?;
    let id = id_bytes(entity.entity_id);
    let row = params![
        id,
        owner.owner_id,
        entity.kind,
        entity.name,
        normal(&entity.name),
        json(&entity.aliases),
        entity.prefix.as_str(),
        entity.status.name(),
        entity.origin.source.name(),
        entity.origin.source_ref.as_ref().map(json),
        entity.origin.quote,
        entity.origin.quote_verified,
        entity.create_time.micros(),
        entity.update_time.micros(),
        entity.version
    ];
    statement.execute(row).sql()?;
    let mut clear = db.prepare_cached("DELETE FROM entity_names WHERE entity_id = ?1").sql()?;
    clear.execute([id]).sql()?;
    let mut name =
        db.prepare_cached("INSERT OR IGNORE INTO entity_names (entity_id, owner_id, normal) VALUES (?1, ?2, ?3)").sql()?;
    for text in std::iter::once(&entity.name).chain(&entity.aliases) {
        name.execute(params![id, owner.owner_id, normal(text)]).sql()?;
    }
    Ok(())
}

/// Removes an entity with its names and relations; answers how many relations went.
///
/// # Errors
/// As the database says.
pub(super) fn remove(db: &Connection, id: MemoryId) -> Result<u32, Fault> {
    let id = id_bytes(id);
    let mut ends = db.prepare_cached("DELETE FROM relations WHERE from_id = ?1 OR to_id = ?1").sql()?;
    let gone = ends.execute([id]).sql()?;
    let mut statement = db.prepare_cached("DELETE FROM entities WHERE entity_id = ?1").sql()?;
    statement.execute([id]).sql()?;
    Ok(u32::try_from(gone).unwrap_or(u32::MAX))
}

/// Visible relations of an entity, in a fixed order.
///
/// # Errors
/// As the database says.
pub fn relations_of(db: &Connection, visible: &Visible, id: MemoryId, limit: u32) -> Result<Vec<Relation>, Fault> {
    let sql = format!(
        "SELECT r.from_id, r.relation, r.to_id, r.create_time, r.status, r.source, r.source_ref, r.source_quote, r.quote_verified \
         FROM relations r WHERE (r.from_id = ?1 OR r.to_id = ?1) AND {} ORDER BY r.from_id, r.relation, r.to_id, r.owner_id LIMIT ?2",
        visible.condition()
    );
    relations(db, &sql, params![id_bytes(id), limit])
}

/// One relation of an owner.
///
/// # Errors
/// As the database says.
pub fn relation(
    db: &Connection,
    owner: StoredOwner,
    from: MemoryId,
    relation: &str,
    to: MemoryId,
) -> Result<Option<Relation>, Fault> {
    let sql = "SELECT from_id, relation, to_id, create_time, status, source, source_ref, source_quote, quote_verified FROM relations \
        WHERE from_id = ?1 AND relation = ?2 AND to_id = ?3 AND owner_id = ?4";
    Ok(relations(db, sql, params![id_bytes(from), relation, id_bytes(to), owner.owner_id])?.pop())
}

pub(super) fn relations(db: &Connection, sql: &str, parameters: impl rusqlite::Params) -> Result<Vec<Relation>, Fault> {
    let mut statement = db.prepare_cached(sql).sql()?;
    let mut rows = statement.query(parameters).sql()?;
    let mut out = Vec::new();
    while let Some(row) = rows.next().sql()? {
        let (status, origin) = origin_at(row, 4)?;
        out.push(Relation {
            from: id_from(row.get(0).sql()?),
            relation: row.get(1).sql()?,
            to: id_from(row.get(2).sql()?),
            status,
            origin,
            create_time: Timestamp(row.get(3).sql()?),
        });
    }
    Ok(out)
}

/// Writes a relation: new, or as it is now.
///
/// # Errors
/// As the database says.
pub(super) fn put_relation(db: &Connection, owner: StoredOwner, relation: &Relation) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached(
            "INSERT INTO relations (from_id, relation, to_id, owner_id, status, source, source_ref, source_quote, quote_verified, \
             create_time) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
             ON CONFLICT (from_id, relation, to_id, owner_id) DO UPDATE SET status = ?5, source = ?6",
        )
        .sql()?;
    let row = params![
        id_bytes(relation.from),
        relation.relation,
        id_bytes(relation.to),
        owner.owner_id,
        relation.status.name(),
        relation.origin.source.name(),
        relation.origin.source_ref.as_ref().map(json),
        relation.origin.quote,
        relation.origin.quote_verified,
        relation.create_time.micros()
    ];
    statement.execute(row).sql()?;
    Ok(())
}

/// Takes a relation away; answers whether it was there.
///
/// # Errors
/// As the database says.
pub(super) fn unlink(db: &Connection, owner: StoredOwner, from: MemoryId, relation: &str, to: MemoryId) -> Result<bool, Fault> {
    let mut statement =
        db.prepare_cached("DELETE FROM relations WHERE from_id = ?1 AND relation = ?2 AND to_id = ?3 AND owner_id = ?4").sql()?;
    Ok(statement.execute(params![id_bytes(from), relation, id_bytes(to), owner.owner_id]).sql()? > 0)
}

/// Condition on the status of parts an export holds, by column `r.status`.
pub(super) fn held(statuses: &[Status]) -> String {
    let names: Vec<String> = statuses.iter().map(|status| format!("'{}'", status.name())).collect();
    format!("r.status IN ({})", names.join(", "))
}

/// Visible entities, relations and versions of skills of these statuses, counted.
///
/// # Errors
/// As the database says.
pub fn counts(db: &Connection, visible: &Visible, statuses: &[Status]) -> Result<[u64; 3], Fault> {
    let mut out = [0; 3];
    for (count, table) in out.iter_mut().zip(["entities", "relations", "skills"]) {
        let sql = format!("SELECT count(*) FROM {table} r WHERE {} AND {}", visible.condition(), held(statuses));
        *count = db.prepare_cached(&sql).sql()?.query_row([], |row| row.get(0)).sql()?;
    }
    Ok(out)
}

/// Entities of these statuses by id, for an export: it holds the revision still, so rows can be skipped by number.
///
/// # Errors
/// As the database says.
pub fn exported(db: &Connection, visible: &Visible, statuses: &[Status], skip: u64, limit: u32) -> Result<Vec<Entity>, Fault> {
    let rest = format!("WHERE {} AND {} ORDER BY r.entity_id LIMIT ?1 OFFSET ?2", visible.condition(), held(statuses));
    Ok(select(db, &rest, params![limit, skip])?.into_iter().map(|found| found.entity).collect())
}

/// Relations of these statuses in a fixed order, with whose they are, for an export.
///
/// # Errors
/// As the database says.
pub fn exported_relations(
    db: &Connection,
    visible: &Visible,
    statuses: &[Status],
    skip: u64,
    limit: u32,
) -> Result<Vec<(Owner, Relation)>, Fault> {
    let order = "ORDER BY r.from_id, r.relation, r.to_id, o.agent LIMIT ?1 OFFSET ?2";
    let from = "FROM relations r JOIN owners o ON o.owner_id = r.owner_id JOIN users u ON u.user_id = o.user_id";
    let which = format!("{from} WHERE {} AND {} {order}", visible.condition(), held(statuses));
    let mut statement = db.prepare_cached(&format!("SELECT u.tenant, u.user, o.agent {which}")).sql()?;
    let mut rows = statement.query(params![limit, skip]).sql()?;
    let mut owners = Vec::new();
    while let Some(row) = rows.next().sql()? {
        owners.push(owner_at(row, 0)?);
    }
    let columns =
        "r.from_id, r.relation, r.to_id, r.create_time, r.status, r.source, r.source_ref, r.source_quote, r.quote_verified";
    let found = relations(db, &format!("SELECT {columns} {which}"), params![limit, skip])?;
    Ok(owners.into_iter().zip(found).collect())
}
