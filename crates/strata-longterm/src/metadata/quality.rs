//! Counts of quality and reviews (rules Q1 to Q4, D3), per tenant. What they mean is `strata_core::policy::quality`.

use super::row::{id_bytes, id_from};
use super::{Sql, corrupt};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeSet;
use strata_core::policy::quality::{Causes, Counts, QualitySettings, Reviews, Verdict};
use strata_core::time::{DAY, HOUR};
use strata_core::{Fault, MemoryId, Timestamp};
use strata_runtime::sqlite::SqliteError;
use uuid::Uuid;

/// Days that counts are kept: a year and a month, so that a month can be compared with the same one before.
pub const COUNT_DAYS: i64 = 396;
/// Days that a sample waits for its review.
pub const SAMPLE_DAYS: i64 = 7;
/// Reviews kept per tenant, the newest: as many as a suggestion may look at.
const REVIEWS_KEPT: i64 = 10_000;
/// Recalls a sample is drawn from, the newest.
const RECALLS_SAMPLED: i64 = 5_000;

fn hour(time: Timestamp) -> i64 {
    time.micros().div_euclid(HOUR)
}

fn stored(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn count(n: i64) -> u64 {
    u64::try_from(n).unwrap_or_default()
}

/// Adds to the counts of an hour.
///
/// # Errors
/// [`SqliteError`].
pub fn add(db: &Connection, tenant: &str, time: Timestamp, counts: &Counts) -> Result<(), SqliteError> {
    db.prepare_cached(
        "INSERT INTO quality_counts (tenant, hour, recalled, cited, contexts, memory_tokens, request_tokens)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (tenant, hour) DO UPDATE SET
         recalled = recalled + excluded.recalled, cited = cited + excluded.cited, contexts = contexts + excluded.contexts,
         memory_tokens = memory_tokens + excluded.memory_tokens, request_tokens = request_tokens + excluded.request_tokens",
    )?
    .execute(params![
        tenant,
        hour(time),
        stored(counts.recalled),
        stored(counts.cited),
        stored(counts.contexts),
        stored(counts.memory_tokens),
        stored(counts.request_tokens)
    ])?;
    db.prepare_cached("DELETE FROM quality_counts WHERE tenant = ?1 AND hour < ?2")?
        .execute(params![tenant, hour(time.plus(-COUNT_DAYS * DAY))])?;
    Ok(())
}

/// Counts of a window, whole hours: from the hour of `from` up to the hour of `to`, which is not in it.
///
/// # Errors
/// As the database says.
pub fn counts(db: &Connection, tenant: &str, from: Timestamp, to: Timestamp) -> Result<Counts, Fault> {
    db.prepare_cached(
        "SELECT coalesce(sum(recalled), 0), coalesce(sum(cited), 0), coalesce(sum(contexts), 0), coalesce(sum(memory_tokens), 0),
         coalesce(sum(request_tokens), 0) FROM quality_counts WHERE tenant = ?1 AND hour >= ?2 AND hour < ?3",
    )
    .sql()?
    .query_row(params![tenant, hour(from), hour(to)], |row| {
        Ok(Counts {
            recalled: count(row.get(0)?),
            cited: count(row.get(1)?),
            contexts: count(row.get(2)?),
            memory_tokens: count(row.get(3)?),
            request_tokens: count(row.get(4)?),
        })
    })
    .sql()
}

/// The first hour that is counted, for "since when".
///
/// # Errors
/// As the database says.
pub fn counted_since(db: &Connection, tenant: &str) -> Result<Option<Timestamp>, Fault> {
    let mut statement = db.prepare_cached("SELECT min(hour) FROM quality_counts WHERE tenant = ?1").sql()?;
    let first: Option<i64> = statement.query_row([tenant], |row| row.get(0)).sql()?;
    Ok(first.map(|hour| Timestamp(hour.saturating_mul(HOUR))))
}

fn tally(db: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<Reviews, Fault> {
    let mut statement = db.prepare_cached(sql).sql()?;
    let rows = statement.query_map(params, |row| row.get::<_, String>(0)).sql()?;
    let mut reviews = Reviews::default();
    for row in rows {
        reviews.add(Verdict::from_name(&row.sql()?).ok_or_else(|| corrupt("reviews.verdict"))?);
    }
    Ok(reviews)
}

/// Reviews made in a window.
///
/// # Errors
/// As the database says.
pub fn reviews_between(db: &Connection, tenant: &str, from: Timestamp, to: Timestamp) -> Result<Reviews, Fault> {
    let sql = "SELECT verdict FROM reviews WHERE tenant = ?1 AND verdict IS NOT NULL AND reviewed_at >= ?2 AND reviewed_at < ?3";
    tally(db, sql, params![tenant, from.micros(), to.micros()])
}

/// The newest reviews (rule D3).
fn newest_reviews(db: &Connection, tenant: &str, most: u32) -> Result<Reviews, Fault> {
    let sql =
        "SELECT verdict FROM reviews WHERE tenant = ?1 AND verdict IS NOT NULL ORDER BY reviewed_at DESC, sample_id LIMIT ?2";
    tally(db, sql, params![tenant, most])
}

/// Causes in force.
///
/// # Errors
/// As the database says.
pub fn causes(db: &Connection, tenant: &str) -> Result<Causes, Fault> {
    let mut statement = db.prepare_cached("SELECT wrong_write, stale, mismatch FROM quality_causes WHERE tenant = ?1").sql()?;
    let found =
        statement.query_row([tenant], |row| Ok(Causes { wrong_write: row.get(0)?, stale: row.get(1)?, mismatch: row.get(2)? }));
    Ok(found.optional().sql()?.unwrap_or_default())
}

/// Something that was shown and is to be reviewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its id.
    pub sample_id: Uuid,
    /// The recall that showed it.
    pub recall_id: Uuid,
    /// The record.
    pub memory_id: MemoryId,
    /// When it was shown.
    pub shown_at: Timestamp,
}

fn sample(row: &rusqlite::Row<'_>) -> rusqlite::Result<Sample> {
    Ok(Sample {
        sample_id: Uuid::from_bytes(row.get(0)?),
        recall_id: Uuid::from_bytes(row.get(1)?),
        memory_id: id_from(row.get(2)?),
        shown_at: Timestamp(row.get(3)?),
    })
}

/// Draws at most `most` samples of what was shown in the last day: every showing is equally likely, by a hash under `seed`.
/// What was drawn before is not drawn again. The same `request_id` answers with the same samples.
///
/// # Errors
/// As the database says.
pub fn draw(
    db: &Connection,
    tenant: &str,
    (seed, request_id): (Uuid, Option<Uuid>),
    most: usize,
    now: Timestamp,
) -> Result<Vec<Sample>, Fault> {
    db.prepare_cached("DELETE FROM reviews WHERE verdict IS NULL AND sampled_at < ?1")
        .sql()?
        .execute([now.plus(-SAMPLE_DAYS * DAY).micros()])
        .sql()?;
    if let Some(request_id) = request_id {
        let mut statement = db
            .prepare_cached(
                "SELECT sample_id, recall_id, memory_id, shown_at FROM reviews WHERE tenant = ?1 AND request_id = ?2
                 ORDER BY sample_id",
            )
            .sql()?;
        let drawn: Vec<Sample> =
            statement.query_map(params![tenant, request_id.as_bytes()], sample).sql()?.collect::<Result<_, _>>().sql()?;
        if !drawn.is_empty() {
            return Ok(drawn);
        }
    }
    let mut shown: Vec<Sample> = Vec::new();
    let mut statement = db
        .prepare_cached(
            "SELECT r.recall_id, r.time, r.memory_ids FROM recalls r JOIN users u ON u.user_id = r.user_id
             WHERE u.tenant = ?1 AND r.time >= ?2 ORDER BY r.time DESC LIMIT ?3",
        )
        .sql()?;
    let mut rows = statement.query(params![tenant, now.plus(-DAY).micros(), RECALLS_SAMPLED]).sql()?;
    while let Some(row) = rows.next().sql()? {
        let (recall, time, ids): ([u8; 16], i64, Vec<u8>) = (row.get(0).sql()?, row.get(1).sql()?, row.get(2).sql()?);
        for id in ids.as_chunks::<16>().0 {
            let mut hasher = blake3::Hasher::new();
            hasher.update(seed.as_bytes()).update(&recall).update(id);
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
            shown.push(Sample {
                sample_id: Uuid::from_bytes(bytes),
                recall_id: Uuid::from_bytes(recall),
                memory_id: id_from(*id),
                shown_at: Timestamp(time),
            });
        }
    }
    shown.sort_unstable_by_key(|sample| sample.sample_id);
    let mut insert = db
        .prepare_cached(
            "INSERT INTO reviews (sample_id, tenant, request_id, recall_id, memory_id, shown_at, sampled_at)
             SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE EXISTS (SELECT 1 FROM records WHERE memory_id = ?5 AND status <> 'DELETED')
             ON CONFLICT DO NOTHING",
        )
        .sql()?;
    let mut drawn = Vec::new();
    let mut seen = BTreeSet::new();
    for sample in shown {
        if drawn.len() >= most {
            break;
        }
        // One record once: a person is not asked the same twice in a row.
        if !seen.insert(sample.memory_id) {
            continue;
        }
        let added = insert
            .execute(params![
                sample.sample_id.as_bytes(),
                tenant,
                request_id.map(Uuid::into_bytes),
                sample.recall_id.as_bytes(),
                id_bytes(sample.memory_id),
                sample.shown_at.micros(),
                now.micros()
            ])
            .sql()?;
        if added == 1 {
            drawn.push(sample);
        }
    }
    Ok(drawn)
}

/// Stores what a person made of a sample, and what the newest reviews say together. A second review of a sample replaces the
/// first.
///
/// # Errors
/// `NOT_FOUND` when the tenant has no such sample; as the database says.
pub fn review(
    db: &Connection,
    tenant: &str,
    (sample_id, verdict): (Uuid, Verdict),
    reviewer: &str,
    settings: &QualitySettings,
    now: Timestamp,
) -> Result<(Reviews, Causes), Fault> {
    let changed = db
        .prepare_cached("UPDATE reviews SET verdict = ?3, reviewer = ?4, reviewed_at = ?5 WHERE tenant = ?1 AND sample_id = ?2")
        .sql()?
        .execute(params![tenant, sample_id.as_bytes(), verdict.name(), reviewer, now.micros()])
        .sql()?;
    if changed == 0 {
        return Err(Fault::not_found("sample", sample_id.to_string()));
    }
    db.prepare_cached(
        "DELETE FROM reviews WHERE tenant = ?1 AND verdict IS NOT NULL AND reviewed_at < (SELECT reviewed_at FROM reviews
         WHERE tenant = ?1 AND verdict IS NOT NULL ORDER BY reviewed_at DESC LIMIT 1 OFFSET ?2)",
    )
    .sql()?
    .execute(params![tenant, REVIEWS_KEPT])
    .sql()?;
    let newest = newest_reviews(db, tenant, settings.reviews)?;
    let before = causes(db, tenant)?;
    let after = before.after(&newest, settings);
    if after != before {
        db.prepare_cached(
            "INSERT INTO quality_causes (tenant, wrong_write, stale, mismatch, changed_at) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (tenant) DO UPDATE SET wrong_write = excluded.wrong_write, stale = excluded.stale,
             mismatch = excluded.mismatch, changed_at = excluded.changed_at",
        )
        .sql()?
        .execute(params![tenant, after.wrong_write, after.stale, after.mismatch, now.micros()])
        .sql()?;
    }
    Ok((newest, after))
}
