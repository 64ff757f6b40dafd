//! Checkpoints in Redis: one hash per task, with a TTL.
//!
//! ```text
//!   strata:working:{tenant and user}task   kind  task  created  generation  version  time  data
//!   strata:working.clean                   the marker of a clean stop
//!   strata:working.e:{tenant and user}     user  epoch (of the last erasure)  files (the rewrite that is waited for)
//! ```
//!
//! All keys of a user share a hash tag, so that they live on one node and can be erased together.

use super::{CheckpointStore, Loaded, SaveOutcome, Snapshot, Tombstone, collect, encode_tombstone};
use async_trait::async_trait;
use redis::Script;
use std::sync::LazyLock;
use std::time::Duration;
use strata_core::policy::erasure::{Medium, Purge};
use strata_core::{Fault, Owner, TaskId, Timestamp, id::join, limits};
use strata_runtime::redis_store::{RedisError, RedisPool};

const PREFIX: &str = "strata:working:{";
const CLEAN: &str = "strata:working.clean";
const EPOCHS: &str = "strata:working.e:{";
/// Keys asked for in one step of the scan, and read in one round trip.
const SCAN: usize = 512;
/// Boards written at the same time on the one connection.
const WIDTH: usize = 32;

/// KEYS: the task. ARGV: created, generation, version, time, ttl in ms, task, data. Integers stay below 2^53, which Lua
/// compares exactly.
static SAVE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local old = redis.call('HMGET', KEYS[1], 'kind', 'created', 'generation', 'version')
local created, generation, version = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if old[1] == 'ended' and tonumber(old[2]) >= created then return 'ended' end
if old[1] == 'board' then
  local c, g, v = tonumber(old[2]), tonumber(old[3]), tonumber(old[4])
  if c > created or (c == created and (g > generation or (g == generation and v > version))) then return 'superseded' end
end
redis.call('HSET', KEYS[1], 'kind', 'board', 'created', ARGV[1], 'generation', ARGV[2], 'version', ARGV[3], 'time', ARGV[4], 'task', ARGV[6], 'data', ARGV[7])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 'saved'
",
    )
});

/// KEYS: the task. ARGV: end time, ttl in ms, task, data. The end time stands in `created`: a board that was started later
/// may follow. An earlier end is kept, so that a repeated one does not prolong it.
static END: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local old = redis.call('HMGET', KEYS[1], 'kind', 'created')
if old[1] == 'ended' and tonumber(old[2]) >= tonumber(ARGV[1]) then return 0 end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'kind', 'ended', 'created', ARGV[1], 'time', ARGV[1], 'task', ARGV[3], 'data', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
",
    )
});

/// KEYS: the epoch. ARGV: user, epoch, ttl in ms.
static RAISE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local highest = redis.call('HGET', KEYS[1], 'epoch')
if not highest or tonumber(highest) < tonumber(ARGV[2]) then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'user', ARGV[1], 'epoch', ARGV[2])
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
",
    )
});

/// KEYS: the epoch. ARGV: what is waited for. Not where there is no epoch.
static WAIT: LazyLock<Script> = LazyLock::new(|| {
    Script::new("if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], 'files', ARGV[1]) end return 1")
});

/// Checkpoints in Redis.
#[derive(Clone, Debug)]
pub struct RedisCheckpoints {
    pool: RedisPool,
}

type Row = (Option<String>, Option<i64>, Option<String>, Option<Vec<u8>>);

impl RedisCheckpoints {
    /// Uses `pool`.
    #[must_use]
    pub const fn new(pool: RedisPool) -> Self {
        Self { pool }
    }

    async fn save_one(&self, board: &Snapshot) -> Result<SaveOutcome, RedisError> {
        let args = (
            board.create_time.micros(),
            board.generation,
            board.version,
            board.time.micros(),
            ttl_ms(board.time, board.expire_time),
            board.task.as_str(),
            board.data.as_slice(),
        );
        let outcome: String = self.pool.script(&SAVE, &[key(&board.owner, &board.task)], args).await?;
        Ok(match outcome.as_str() {
            "saved" => SaveOutcome::Saved,
            "ended" => SaveOutcome::Ended,
            _ => SaveOutcome::Superseded,
        })
    }

    /// Names of the hashes that begin with a prefix, each once.
    async fn scan(&self, prefix: &str) -> Result<Vec<String>, RedisError> {
        let mut seen = std::collections::BTreeSet::new();
        let mut cursor = 0_u64;
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(format!("{prefix}*")).arg("COUNT").arg(SCAN).arg("TYPE").arg("hash");
            let (next, keys): (u64, Vec<String>) = self.pool.command(&scan).await?;
            // SCAN may return a key twice.
            seen.extend(keys);
            cursor = next;
            if cursor == 0 {
                return Ok(seen.into_iter().collect());
            }
        }
    }

    async fn read(&self, keys: &[String], now: Timestamp, loaded: &mut Loaded) -> Result<(), RedisError> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut pipeline = redis::pipe();
        for key in keys {
            pipeline.cmd("HMGET").arg(key).arg(&["kind", "time", "task", "data"]);
        }
        let rows: Vec<Row> = self.pool.pipeline(&pipeline).await?;
        for row in rows {
            // A key that expired between the two steps reads as nothing.
            if let (Some(kind), Some(time), Some(task), Some(data)) = row {
                collect(loaded, &task, kind == "ended", Timestamp(time), &data, now);
            }
        }
        Ok(())
    }
}

fn key(owner: &Owner, task: &TaskId) -> String {
    format!("{PREFIX}{}}}{}", owner.user_key(), join(&[task.as_str()]))
}

fn epoch_key(user_key: &str) -> String {
    format!("{EPOCHS}{user_key}}}")
}

fn ttl_ms(from: Timestamp, to: Timestamp) -> i64 {
    (to.since(from) / 1_000).max(1)
}

#[async_trait]
impl CheckpointStore for RedisCheckpoints {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn load(&self, now: Timestamp) -> Result<Loaded, Fault> {
        let mut loaded = Loaded { clean: self.pool.command::<bool>(redis::cmd("EXISTS").arg(CLEAN)).await?, ..Loaded::default() };
        for key in self.scan(EPOCHS).await? {
            let epoch: (Option<String>, Option<u64>) =
                self.pool.command(redis::cmd("HMGET").arg(key).arg(&["user", "epoch"])).await?;
            if let (Some(user), Some(epoch)) = epoch {
                loaded.epochs.push((user, epoch));
            }
        }
        for some in self.scan(PREFIX).await?.chunks(SCAN) {
            self.read(some, now, &mut loaded).await?;
        }
        Ok(loaded)
    }

    async fn save(&self, boards: &[Snapshot]) -> Result<Vec<SaveOutcome>, Fault> {
        let mut outcomes = Vec::with_capacity(boards.len());
        for some in boards.chunks(WIDTH) {
            for outcome in futures::future::join_all(some.iter().map(|board| self.save_one(board))).await {
                outcomes.push(outcome?);
            }
        }
        Ok(outcomes)
    }

    async fn end(&self, tombstone: &Tombstone) -> Result<(), Fault> {
        let data = encode_tombstone(tombstone)?;
        let ttl = ttl_ms(tombstone.end_time, tombstone.expire_time);
        let args = (tombstone.end_time.micros(), ttl, tombstone.task.as_str(), data);
        self.pool.script::<i64>(&END, &[key(&tombstone.owner, &tombstone.task)], args).await?;
        Ok(())
    }

    async fn mark_clean(&self, clean: bool) -> Result<(), Fault> {
        if clean {
            // It outlives every board that was flushed with it.
            let ttl = strata_core::policy::working::IDLE_MAX / 1_000_000 * 2;
            self.pool.command::<()>(redis::cmd("SET").arg(CLEAN).arg(1).arg("EX").arg(ttl)).await?;
        } else {
            self.pool.command::<i64>(redis::cmd("DEL").arg(CLEAN)).await?;
        }
        Ok(())
    }

    async fn raise_erase_epoch(&self, user_key: &str, epoch: u64, _now: Timestamp) -> Result<(), Fault> {
        let args = (user_key, epoch, limits::ERASE_EPOCH_SECONDS * 1_000);
        let _: i64 = self.pool.script(&RAISE, &[epoch_key(user_key)], args).await?;
        Ok(())
    }

    async fn medium(&self, user_key: &str, purge: Purge, patience: Duration) -> Result<Medium, Fault> {
        let name = epoch_key(user_key);
        let known: Option<String> = self.pool.command(redis::cmd("HGET").arg(&name).arg("files")).await?;
        let (keep, medium) = self.pool.purge_files(&name, known.as_deref(), purge, patience).await?;
        if let Some(keep) = keep {
            let _: i64 = self.pool.script(&WAIT, &[name], keep).await?;
        }
        Ok(medium)
    }

    async fn purge(&self, _now: Timestamp) -> Result<(), Fault> {
        Ok(())
    }
}
