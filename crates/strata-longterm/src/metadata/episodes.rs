//! Episodes and their turns. Reads are filtered to visible owners like those of records, and turns past their time are not
//! read, whether or not they are still there (rule S14). What is written comes from [`super::insert::episodes`] only.

use super::entities::{counted, owner_at};
use super::row::{id_bytes, id_from, json};
use super::search::{vector_bytes, vector_of};
use super::{Sql, StoredOwner, Visible, corrupt};
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, Row, params, params_from_iter};
use strata_core::episode::Episode;
use strata_core::policy::session::{Role, Turn};
use strata_core::{AgentId, Fault, MemoryId, SessionId, Timestamp};
use strata_text::turn_rank::{IndexedTurn, StoredAnalysis};

const COLUMNS: &str = "r.episode_id, u.tenant, u.user, o.agent, r.session_id, r.incarnation, r.from_time, r.to_time, r.summary, \
    r.through, r.kept, r.complete, r.create_time, r.turns_expire_time, r.findings, r.from_seq, r.closed";
const FROM: &str = "episodes r JOIN owners o ON o.owner_id = r.owner_id JOIN users u ON u.user_id = o.user_id";

fn read(row: &Row<'_>) -> Result<Episode, Fault> {
    let text = |at: usize| row.get::<_, String>(at).sql();
    Ok(Episode {
        episode_id: id_from(row.get(0).sql()?),
        owner: owner_at(row, 1)?,
        session: SessionId::new(text(4)?)?,
        incarnation: row.get(5).sql()?,
        from_time: Timestamp(row.get(6).sql()?),
        to_time: Timestamp(row.get(7).sql()?),
        summary: serde_json::from_str(&text(8)?).map_err(|_| corrupt("summary of an episode"))?,
        through: row.get(9).sql()?,
        kept: row.get(10).sql()?,
        complete: row.get(11).sql()?,
        create_time: Timestamp(row.get(12).sql()?),
        turns_expire_time: Timestamp(row.get(13).sql()?),
        findings: serde_json::from_str(&text(14)?).map_err(|_| corrupt("findings of an episode"))?,
        from: row.get(15).sql()?,
        closed: row.get(16).sql()?,
    })
}

fn select(db: &Connection, rest: &str, parameters: impl rusqlite::Params) -> Result<Vec<Episode>, Fault> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM {FROM} {rest}")).sql()?;
    let mut rows = statement.query(parameters).sql()?;
    let mut out = Vec::new();
    while let Some(row) = rows.next().sql()? {
        out.push(read(row)?);
    }
    Ok(out)
}

/// The newest episode of one incarnation of a session, whole or not.
///
/// # Errors
/// As the database says.
pub fn of_session(db: &Connection, owner: StoredOwner, session: &SessionId, incarnation: u64) -> Result<Option<Episode>, Fault> {
    let rest = "WHERE r.owner_id = ?1 AND r.session_id = ?2 AND r.incarnation = ?3 ORDER BY r.from_seq DESC LIMIT 1";
    Ok(select(db, rest, params![owner.owner_id, session.as_str(), incarnation])?.pop())
}

/// [`of_session`] for a reader: at the user's own level, or an agent's.
///
/// # Errors
/// As the database says.
pub fn known(
    db: &Connection,
    visible: &Visible,
    agent: Option<&AgentId>,
    session: &SessionId,
    incarnation: u64,
) -> Result<Option<Episode>, Fault> {
    let rest = format!(
        "WHERE {} AND o.agent = ?1 AND r.session_id = ?2 AND r.incarnation = ?3 ORDER BY r.from_seq DESC LIMIT 1",
        visible.condition()
    );
    let level = agent.map_or("", |agent| agent.as_str());
    Ok(select(db, &rest, params![level, session.as_str(), incarnation])?.pop())
}

/// Which episodes a list is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Session.
    pub session: Option<SessionId>,
    /// With a turn at this time or later.
    pub from_time: Option<Timestamp>,
    /// With a turn before this time.
    pub to_time: Option<Timestamp>,
}

/// Visible whole episodes, newest first, from the first before `before`.
///
/// # Errors
/// As the database says.
pub fn list(
    db: &Connection,
    visible: &Visible,
    asked: &Asked,
    before: Option<MemoryId>,
    limit: u32,
) -> Result<Vec<Episode>, Fault> {
    let mut rest = format!("WHERE {} AND r.complete = 1", visible.condition());
    let mut values: Vec<SqlValue> = Vec::new();
    let mut bind = |condition: &str, value: SqlValue| {
        values.push(value);
        rest.push_str(&format!(" {condition} ?{}", values.len()));
    };
    if let Some(session) = &asked.session {
        bind("AND r.session_id =", session.as_str().to_owned().into());
    }
    if let Some(from) = asked.from_time {
        bind("AND r.to_time >=", from.micros().into());
    }
    if let Some(to) = asked.to_time {
        bind("AND r.from_time <", to.micros().into());
    }
    if let Some(before) = before {
        bind("AND r.episode_id <", id_bytes(before).to_vec().into());
    }
    bind("ORDER BY r.episode_id DESC LIMIT", i64::from(limit).into());
    select(db, &rest, params_from_iter(values))
}

/// Visible whole episodes whose turns may be searched now, newest first, as many as hold `turns` turns together; with
/// whether there are more.
///
/// # Errors
/// As the database says.
pub fn searchable(
    db: &Connection,
    visible: &Visible,
    session: Option<&SessionId>,
    now: Timestamp,
    turns: u32,
) -> Result<(Vec<Episode>, bool), Fault> {
    let one = if session.is_some() { "AND r.session_id = ?2" } else { "AND ?2 = ''" };
    let rest = format!(
        "WHERE {} AND r.complete = 1 AND r.kept > 0 AND r.turns_expire_time > ?1 {one} ORDER BY r.episode_id DESC LIMIT ?3",
        visible.condition()
    );
    let name = session.map_or("", |session| session.as_str());
    // Each has a turn at least.
    let found = select(db, &rest, params![now.micros(), name, turns + 1])?;
    let (all, mut room) = (found.len(), turns);
    let fitting: Vec<Episode> = found
        .into_iter()
        .take_while(|episode| {
            let fits = episode.kept <= room;
            room = room.saturating_sub(episode.kept);
            fits
        })
        .collect();
    let cut = fitting.len() < all;
    Ok((fitting, cut))
}

/// The analysed turns of a visible episode by number, with their vectors where they are of `model`.
///
/// # Errors
/// As the database says.
pub fn analysed(
    db: &Connection,
    visible: &Visible,
    episode: MemoryId,
    model: Option<&str>,
) -> Result<Vec<(u32, IndexedTurn)>, Fault> {
    let sql = format!(
        "SELECT r.seq, r.role, r.words, r.asking, r.names, r.terms, CASE WHEN r.model = ?2 THEN r.vector END \
         FROM archived_turns r WHERE {} AND r.episode_id = ?1 ORDER BY r.seq",
        visible.condition()
    );
    let mut statement = db.prepare_cached(&sql).sql()?;
    let mut rows = statement.query(params![id_bytes(episode), model]).sql()?;
    let mut out = Vec::new();
    while let Some(row) = rows.next().sql()? {
        let role: String = row.get(1).sql()?;
        let (names, terms): (Vec<u8>, Vec<u8>) = (row.get(4).sql()?, row.get(5).sql()?);
        let analysis = StoredAnalysis {
            weights: weights_of(&terms),
            words: row.get(2).sql()?,
            asking: row.get(3).sql()?,
            speaker: words_of(&names),
        };
        let turn = IndexedTurn::stored(Role::from_name(&role).ok_or_else(|| corrupt("role of a turn"))?, analysis);
        if let Some(vector) = row.get::<_, Option<Vec<u8>>>(6).sql()? {
            turn.set_vector(vector_of(&vector));
        }
        out.push((row.get(0).sql()?, turn));
    }
    Ok(out)
}

/// One turn of a visible episode.
///
/// # Errors
/// As the database says.
pub fn turn(db: &Connection, visible: &Visible, episode: MemoryId, seq: u32) -> Result<Option<Turn>, Fault> {
    let sql = format!(
        "SELECT r.role, r.text, r.speaker, r.external_id, r.time, r.client_time, r.tokens FROM archived_turns r \
         WHERE {} AND r.episode_id = ?1 AND r.seq = ?2",
        visible.condition()
    );
    let mut statement = db.prepare_cached(&sql).sql()?;
    let mut rows = statement.query(params![id_bytes(episode), seq]).sql()?;
    let Some(row) = rows.next().sql()? else { return Ok(None) };
    let role: String = row.get(0).sql()?;
    Ok(Some(Turn {
        seq,
        role: Role::from_name(&role).ok_or_else(|| corrupt("role of a turn"))?,
        text: row.get(1).sql()?,
        tool_call_id: None,
        pinned: false,
        time: Timestamp(row.get(4).sql()?),
        client_time: row.get::<_, Option<i64>>(5).sql()?.map(Timestamp),
        tokens: row.get(6).sql()?,
        speaker: row.get(2).sql()?,
        external_id: row.get(3).sql()?,
        redacted: 0,
    }))
}

/// Episodes of an owner, whole or not.
///
/// # Errors
/// As the database says.
pub fn count(db: &Connection, owner: StoredOwner) -> Result<usize, Fault> {
    counted(db, "SELECT count(*) FROM episodes WHERE owner_id = ?1", owner)
}

/// Writes an episode, new or changed.
///
/// # Errors
/// As the database says.
pub(super) fn put(db: &Connection, owner: StoredOwner, episode: &Episode) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached(
            "INSERT INTO episodes (episode_id, owner_id, session_id, incarnation, from_time, to_time, summary, through, kept, complete, \
             create_time, turns_expire_time, findings, from_seq, closed) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15) \
             ON CONFLICT (episode_id) DO UPDATE SET to_time = ?6, summary = ?7, through = ?8, kept = ?9, complete = ?10, \
             turns_expire_time = ?12, findings = ?13, closed = ?15",
        )
        .sql()?;
    let row = params![
        id_bytes(episode.episode_id),
        owner.owner_id,
        episode.session.as_str(),
        episode.incarnation,
        episode.from_time.micros(),
        episode.to_time.micros(),
        json(&episode.summary),
        episode.through,
        episode.kept,
        episode.complete,
        episode.create_time.micros(),
        episode.turns_expire_time.micros(),
        json(&episode.findings),
        episode.from,
        episode.closed,
    ];
    statement.execute(row).sql()?;
    Ok(())
}

/// Writes a turn of an episode with its analysis, and its vector with the name of its model.
///
/// # Errors
/// As the database says.
pub(super) fn put_turn(
    db: &Connection,
    owner: StoredOwner,
    episode: MemoryId,
    turn: &Turn,
    vector: Option<(&str, &[f32])>,
) -> Result<(), Fault> {
    let analysis = IndexedTurn::new(turn).analysis();
    let names: Vec<u8> = analysis.speaker.iter().flat_map(|term| term.to_le_bytes()).collect();
    let terms: Vec<u8> =
        analysis.weights.iter().flat_map(|(term, weight)| [term.to_le_bytes(), weight.to_le_bytes()]).flatten().collect();
    let mut statement = db
        .prepare_cached(
            "INSERT INTO archived_turns (episode_id, seq, owner_id, role, text, speaker, external_id, time, client_time, tokens, words, \
             asking, names, terms, model, vector) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        )
        .sql()?;
    let row = params![
        id_bytes(episode),
        turn.seq,
        owner.owner_id,
        turn.role.name(),
        turn.text,
        turn.speaker,
        turn.external_id,
        turn.time.micros(),
        turn.client_time.map(|time| time.micros()),
        turn.tokens,
        analysis.words,
        analysis.asking,
        names,
        terms,
        vector.map(|(model, _)| model),
        vector.map(|(_, vector)| vector_bytes(vector)),
    ];
    statement.execute(row).sql()?;
    Ok(())
}

/// Removes the turns of a few episodes past their time, so that no write pays for all of them.
///
/// # Errors
/// As the database says.
pub(super) fn expire(db: &Connection, now: Timestamp) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached(
            "SELECT episode_id FROM episodes WHERE kept > 0 AND turns_expire_time <= ?1 ORDER BY turns_expire_time LIMIT 4",
        )
        .sql()?;
    let ids = statement.query_map([now.micros()], |row| row.get::<_, [u8; 16]>(0)).sql()?;
    let ids = ids.collect::<rusqlite::Result<Vec<_>>>().sql()?;
    for id in ids {
        db.prepare_cached("DELETE FROM archived_turns WHERE episode_id = ?1").sql()?.execute([id]).sql()?;
        db.prepare_cached("UPDATE episodes SET kept = 0 WHERE episode_id = ?1").sql()?.execute([id]).sql()?;
    }
    Ok(())
}

fn words_of(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}

fn weights_of(bytes: &[u8]) -> Vec<(u32, f32)> {
    let one = |c: &[u8]| (u32::from_le_bytes([c[0], c[1], c[2], c[3]]), f32::from_le_bytes([c[4], c[5], c[6], c[7]]));
    bytes.chunks_exact(8).map(one).collect()
}
