//! Checkpoints in Redis: one hash per task, with a TTL.
//!
//! ```text
//!   strata:working:{tenant and user}task   kind  task  created  generation  version  time  data  holder
//!   strata:working.e:{tenant and user}     user  epoch (of the last erasure)  files (the rewrite that is waited for)
//!   strata:working.t:{tenant and user}     tasks with a board, by the time their record may be dropped
//!   strata:working.r:{replica}             beat (the server's time of its last sign of life)  clean (it stopped and had written all)
//!   strata:working.w:{replica}             boards that others want of it
//!   strata:working.n:{tenant and task}     whose task it is, where there are several replicas
//! ```
//!
//! All keys of a user share a hash tag, so that they live on one node and can be erased together. `holder` is the replica that
//! alone may write the record; empty where any may take it. A replica is named `process.term`: after a silence it goes on in another
//! term, and a takeover from an earlier one finds another holder.

use super::{
    CheckpointStore, Hold, Loaded, SaveOutcome, SavedBoard, Sharing, Snapshot, Taken, Tombstone, Wanted, collect, decode,
    decode_tombstone, encode_tombstone,
};
use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _};
use redis::Script;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use strata_core::policy::erasure::{Medium, Purge};
use strata_core::policy::placement::{Holder, TAKEOVER, Takeover, takeover};
use strata_core::policy::working::IDLE_MAX;
use strata_core::time::{HOUR, SECOND};
use strata_core::{Fault, Owner, Reason, TaskId, TenantId, Timestamp, UserId, id::join, limits};
use strata_runtime::redis_store::{RedisError, RedisPool};

const PREFIX: &str = "strata:working:{";
const EPOCHS: &str = "strata:working.e:{";
const TASKS: &str = "strata:working.t:{";
const REPLICAS: &str = "strata:working.r:{";
const WANTED: &str = "strata:working.w:{";
const NAMES: &str = "strata:working.n:{";
/// Name of a process that shares its boards with no other.
const ALONE: &str = "alone";
/// Records read at the same time on the one connection: at most 64 MiB of full boards with their answers.
const READ: usize = 512;
/// Boards written at the same time on the one connection.
const WIDTH: usize = 32;
/// Milliseconds that the last sign of life of a replica is kept: many times the wait for it.
const BEAT_MS: i64 = 15 * TAKEOVER / 1_000;
/// Milliseconds that a replica is remembered to have written everything: longer than any board that it held.
const RETIRED_MS: i64 = 2 * IDLE_MAX / 1_000;
/// Milliseconds that the list of a user's tasks is kept after the last write to one: longer than any of their records.
const TASKS_MS: i64 = 3 * 24 * HOUR / 1_000;
/// Milliseconds that a task's id belongs to its user after it was last claimed: many times longer than from one claim of a board that
/// is used to the next, which is a day and at most the longest idle time.
const NAME_MS: i64 = 7 * 24 * HOUR / 1_000;

/// KEYS: the task, the epoch, the user's tasks. ARGV: created, generation, version, time, ttl in ms, task, data, when it may be
/// dropped, ttl of the list in ms, process, next holder, whether to seize it. Integers stay below 2^53, which Lua compares exactly.
static SAVE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local function ours(holder, process) return holder == process or string.sub(holder, 1, #process + 1) == process .. '.' end
local epoch = redis.call('HGET', KEYS[2], 'epoch') or '0'
local old = redis.call('HMGET', KEYS[1], 'kind', 'created', 'generation', 'version', 'holder')
local created, generation, version = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if old[1] == 'ended' and tonumber(old[2]) >= created then return {'ended', epoch} end
if old[1] == 'board' then
  local c, g, v = tonumber(old[2]), tonumber(old[3]), tonumber(old[4])
  if c > created or (c == created and (g > generation or (g == generation and v > version))) then return {'superseded', epoch} end
  if ARGV[12] == '0' and not ours(old[5] or 'alone', ARGV[10]) then return {'superseded', epoch} end
end
redis.call('HSET', KEYS[1], 'kind', 'board', 'created', ARGV[1], 'generation', ARGV[2], 'version', ARGV[3], 'time', ARGV[4], 'task', ARGV[6], 'data', ARGV[7], 'holder', ARGV[11])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('ZADD', KEYS[3], ARGV[8], ARGV[6])
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', '(' .. ARGV[4])
redis.call('PEXPIRE', KEYS[3], ARGV[9])
return {'saved', epoch}
",
    )
});

/// KEYS: the task, the user's tasks. ARGV: end time, ttl in ms, task, data, process. The end time stands in `created`: a board
/// that was started later may follow. An earlier end is kept, so that a repeated one does not prolong it.
static END: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local function ours(holder, process) return holder == process or string.sub(holder, 1, #process + 1) == process .. '.' end
local old = redis.call('HMGET', KEYS[1], 'kind', 'created', 'holder')
if old[1] == 'ended' and tonumber(old[2]) >= tonumber(ARGV[1]) then return 'saved' end
if old[1] == 'board' and not ours(old[3] or 'alone', ARGV[5]) then return 'superseded' end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'kind', 'ended', 'created', ARGV[1], 'time', ARGV[1], 'task', ARGV[3], 'data', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('ZREM', KEYS[2], ARGV[3])
return 'saved'
",
    )
});

/// KEYS: the task, the epoch. ARGV: replica, holder and generation that may be taken from, whether writes were lost then, process. Answers
/// kind, epoch, data, time, holder and generation.
static TAKE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local function ours(holder, process) return holder == process or string.sub(holder, 1, #process + 1) == process .. '.' end
local epoch = redis.call('HGET', KEYS[2], 'epoch') or '0'
local r = redis.call('HMGET', KEYS[1], 'kind', 'data', 'time', 'holder', 'generation')
if not r[1] then return {'absent', epoch, '', '0', '', '0'} end
if r[1] == 'ended' then return {'ended', epoch, r[2], r[3], '', '0'} end
local holder, generation = r[4] or 'alone', r[5]
if holder ~= '' and not ours(holder, ARGV[5]) then
  if holder ~= ARGV[2] or generation ~= ARGV[3] then return {'held', epoch, '', '0', holder, generation} end
  if ARGV[4] == '1' then generation = string.format('%.0f', tonumber(generation) + 1) end
end
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'generation', generation)
return {'board', epoch, r[2], r[3], holder, generation}
",
    )
});

/// KEYS: the task. ARGV: process.
static DISOWN: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local function ours(holder, process) return holder == process or string.sub(holder, 1, #process + 1) == process .. '.' end
local holder = redis.call('HGET', KEYS[1], 'holder')
if holder and ours(holder, ARGV[1]) then return redis.call('HSET', KEYS[1], 'holder', '') end
return 0
",
    )
});

/// KEYS: the replica, what is wanted of it. ARGV: ttl in ms. Answers what is wanted.
static BEAT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], 'beat', time[1] .. string.format('%06d', tonumber(time[2])), 'clean', '0')
redis.call('PEXPIRE', KEYS[1], ARGV[1])
local wanted = redis.call('SMEMBERS', KEYS[2])
if #wanted > 0 then redis.call('DEL', KEYS[2]) end
return wanted
",
    )
});

/// KEYS: the replica. ARGV: ttl in ms.
static RETIRE: LazyLock<Script> =
    LazyLock::new(|| Script::new("redis.call('HSET', KEYS[1], 'clean', '1') redis.call('PEXPIRE', KEYS[1], ARGV[1]) return 1"));

/// KEYS: the replica, what is wanted of it. ARGV: what to want of it while it lives, ttl in ms. Answers `clean`, or how long ago its
/// last sign of life was, in microseconds. Of one that the store has forgotten, as a failover may do with one that lives, time runs
/// from the first question.
static SEEN: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local r = redis.call('HMGET', KEYS[1], 'beat', 'clean')
if r[2] == '1' then return 'clean' end
local time = redis.call('TIME')
if not r[1] then
  r[1] = time[1] .. string.format('%06d', tonumber(time[2]))
  redis.call('HSET', KEYS[1], 'beat', r[1], 'clean', '0')
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if ARGV[1] ~= '' then
  redis.call('SADD', KEYS[2], ARGV[1])
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
end
return string.format('%.0f', tonumber(time[1]) * 1000000 + tonumber(time[2]) - tonumber(r[1]))
",
    )
});

/// KEYS: the name. ARGV: user, ttl in ms, whether to take it. Answers whose it is.
static NAME: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local whose = redis.call('GET', KEYS[1])
if ARGV[3] == '1' and (not whose or whose == ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return ARGV[1]
end
return whose
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
    /// Name of this process.
    process: String,
    /// Where other replicas use the store: how often this one took another name.
    term: Option<Arc<AtomicU64>>,
}

/// Kind, time, task, data, holder.
type Row = (Option<String>, Option<i64>, Option<String>, Option<Vec<u8>>, Option<String>);

impl RedisCheckpoints {
    /// Uses `pool`, as the only process that serves boards.
    #[must_use]
    pub fn new(pool: RedisPool) -> Self {
        Self { pool, process: ALONE.to_owned(), term: None }
    }

    /// Uses `pool` as one of several. `process` names this one, at each of its starts by another name without a dot.
    #[must_use]
    pub fn shared(pool: RedisPool, process: String) -> Self {
        Self { pool, process, term: Some(Arc::default()) }
    }

    /// This process, in the records of what it holds.
    fn replica(&self) -> String {
        match &self.term {
            Some(term) => self.name_in(term.load(Ordering::SeqCst)),
            None => self.process.clone(),
        }
    }

    fn name_in(&self, term: u64) -> String {
        format!("{}.{term}", self.process)
    }

    async fn save_one(&self, board: &Snapshot) -> Result<SaveOutcome, RedisError> {
        let user = board.owner.user_key();
        // Not in the script: the id of a task may lie on another server than its user.
        if board.name
            && self.term.is_some()
            && self.claimed(&board.owner, &board.task, true).await?.is_some_and(|whose| whose != user)
        {
            tracing::error!(
                task_id = board.task.as_str(),
                "the store lost whose this task is, and another user started one of its id"
            );
        }
        let (holder, seize) = match board.hold {
            Hold::Keep => (self.replica(), 0),
            Hold::Release => (String::new(), 0),
            Hold::Seize => (self.replica(), 1),
        };
        let args = (
            (board.create_time.micros(), board.generation, board.version, board.time.micros()),
            (ttl_ms(board.time, board.expire_time), board.task.as_str(), board.data.as_slice()),
            (board.expire_time.micros(), TASKS_MS, self.process.as_str(), holder, seize),
        );
        let keys = [key(&user, &board.task), epoch_key(&user), tasks_key(&user)];
        let (outcome, _epoch): (String, u64) = self.pool.script(&SAVE, &keys, args).await?;
        Ok(match outcome.as_str() {
            "saved" => SaveOutcome::Saved,
            "ended" => SaveOutcome::Ended,
            _ => SaveOutcome::Superseded,
        })
    }

    /// One command a key, many at a time: the keys of several users may lie on several servers.
    async fn rows(&self, keys: &[String]) -> Result<Vec<Row>, RedisError> {
        let read = |key: &String| {
            let mut command = redis::cmd("HMGET");
            command.arg(key).arg(&["kind", "time", "task", "data", "holder"]);
            async move { self.pool.command::<Row>(&command).await }
        };
        futures::stream::iter(keys.iter().map(read)).buffered(READ).try_collect().await
    }

    /// What is known of a replica; wants something of it while it lives.
    async fn seen(&self, replica: &str, want: &str) -> Result<Holder, RedisError> {
        let seen: String = self.pool.script(&SEEN, &[replica_key(replica), wanted_key(replica)], (want, BEAT_MS)).await?;
        Ok(match seen.as_str() {
            "clean" => Holder::Retired,
            // Whole microseconds, by the script.
            ago => Holder::Seen(ago.parse().unwrap_or_default()),
        })
    }

    async fn claimed(&self, owner: &Owner, task: &TaskId, claim: bool) -> Result<Option<String>, RedisError> {
        self.pool.script(&NAME, &[name_key(owner, task)], (owner.user_key(), NAME_MS, u8::from(claim))).await
    }

    async fn retires(&self, replica: &str) -> Result<(), RedisError> {
        let _: i64 = self.pool.script(&RETIRE, &[replica_key(replica)], RETIRED_MS).await?;
        Ok(())
    }

    async fn beats(&self) -> Result<Vec<String>, RedisError> {
        let replica = self.replica();
        self.pool.script(&BEAT, &[replica_key(&replica), wanted_key(&replica)], BEAT_MS).await
    }
}

fn key(user_key: &str, task: &TaskId) -> String {
    format!("{PREFIX}{user_key}}}{}", join(&[task.as_str()]))
}

fn epoch_key(user_key: &str) -> String {
    format!("{EPOCHS}{user_key}}}")
}

fn tasks_key(user_key: &str) -> String {
    format!("{TASKS}{user_key}}}")
}

fn replica_key(replica: &str) -> String {
    format!("{REPLICAS}{replica}}}")
}

fn wanted_key(replica: &str) -> String {
    format!("{WANTED}{replica}}}")
}

fn name_key(owner: &Owner, task: &TaskId) -> String {
    format!("{NAMES}{}}}", join(&[owner.tenant.as_str(), task.as_str()]))
}

fn ttl_ms(from: Timestamp, to: Timestamp) -> i64 {
    (to.since(from) / 1_000).max(1)
}

/// No id holds a line feed.
fn wanted_text(owner: &Owner, task: &TaskId) -> String {
    [owner.tenant.as_str(), owner.user.as_str(), task.as_str()].join("\n")
}

fn wanted(text: &str) -> Option<Wanted> {
    let mut parts = text.split('\n');
    let (tenant, user, task) = (parts.next()?, parts.next()?, parts.next()?);
    let owner = Owner { tenant: TenantId::new(tenant).ok()?, user: UserId::new(user).ok()?, agent: None };
    Some(Wanted { owner, task: TaskId::new(task).ok()? })
}

#[async_trait]
impl CheckpointStore for RedisCheckpoints {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn load(&self, now: Timestamp) -> Result<Loaded, Fault> {
        let clean = self.seen(&self.process, "").await? == Holder::Retired;
        let mut loaded = Loaded { clean, ..Loaded::default() };
        for key in self.pool.scan(EPOCHS, "hash").await? {
            let epoch: (Option<String>, Option<u64>) =
                self.pool.command(redis::cmd("HMGET").arg(key).arg(&["user", "epoch"])).await?;
            if let (Some(user), Some(epoch)) = epoch {
                loaded.epochs.push((user, epoch));
            }
        }
        // Whether the boards of a holder are as they stood when it stopped.
        let mut holders = BTreeMap::from([(String::new(), true), (self.process.clone(), clean)]);
        for some in self.pool.scan(PREFIX, "hash").await?.chunks(READ) {
            for row in self.rows(some).await? {
                // A key that expired between the two steps reads as nothing.
                let (Some(kind), Some(time), Some(task), Some(data), holder) = row else { continue };
                let holder = holder.unwrap_or_else(|| ALONE.to_owned());
                let standing = match holders.get(&holder) {
                    Some(clean) => *clean,
                    None => {
                        let clean = match takeover(self.seen(&holder, "").await?).0 {
                            Takeover::Clean => true,
                            Takeover::Lossy => false,
                            Takeover::Wait(_) => {
                                let why = "another process serves boards of this store: set working.shared, or end it";
                                return Err(Fault::new(Reason::NotServing, why).retry_after(1_000));
                            }
                        };
                        holders.insert(holder.clone(), clean);
                        clean
                    }
                };
                collect(&mut loaded, &task, kind == "ended", Timestamp(time), &data, now, (standing, holder == self.process));
            }
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

    async fn end(&self, tombstone: &Tombstone) -> Result<SaveOutcome, Fault> {
        let data = encode_tombstone(tombstone)?;
        let ttl = ttl_ms(tombstone.end_time, tombstone.expire_time);
        let args = (tombstone.end_time.micros(), ttl, tombstone.task.as_str(), data, self.process.as_str());
        let user = tombstone.owner.user_key();
        let outcome: String = self.pool.script(&END, &[key(&user, &tombstone.task), tasks_key(&user)], args).await?;
        if outcome != "saved" {
            return Ok(SaveOutcome::Superseded);
        }
        if self.term.is_some() {
            // As long as the tombstone: then anyone may use the id.
            let name = name_key(&tombstone.owner, &tombstone.task);
            self.pool.command::<i64>(redis::cmd("PEXPIRE").arg(name).arg(ttl)).await?;
        }
        Ok(SaveOutcome::Saved)
    }

    async fn mark_clean(&self, clean: bool) -> Result<(), Fault> {
        if clean {
            self.retires(&self.replica()).await?;
        } else {
            self.beats().await?;
        }
        Ok(())
    }

    async fn life(&self) -> Result<Option<String>, Fault> {
        Ok(self.pool.lives().await?)
    }

    async fn alive(&self) -> Result<(), Fault> {
        self.beats().await?;
        Ok(())
    }

    fn sharing(&self) -> Option<&dyn Sharing> {
        self.term.is_some().then_some(self as &dyn Sharing)
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

#[async_trait]
impl Sharing for RedisCheckpoints {
    async fn beat(&self) -> Result<Vec<Wanted>, Fault> {
        Ok(self.beats().await?.iter().filter_map(|text| wanted(text)).collect())
    }

    fn renew(&self) -> String {
        let former = self.term.as_ref().map_or(0, |term| term.fetch_add(1, Ordering::SeqCst));
        self.name_in(former)
    }

    async fn retire(&self, former: &str) -> Result<(), Fault> {
        Ok(self.retires(former).await?)
    }

    async fn take(&self, owner: &Owner, task: &TaskId) -> Result<(Taken, u64), Fault> {
        let user = owner.user_key();
        let keys = [key(&user, task), epoch_key(&user)];
        let (mut from, mut lossy) = ((String::new(), 0), false);
        // Once to see who holds it, once to take it; once more when it changed hands in between.
        for _ in 0..3 {
            let args = (self.replica(), from.0.as_str(), from.1, u8::from(lossy), self.process.as_str());
            let (kind, epoch, data, time, holder, generation): (String, u64, Vec<u8>, i64, String, u64) =
                self.pool.script(&TAKE, &keys, args).await?;
            let taken = match kind.as_str() {
                "absent" => Taken::Absent,
                "ended" => decode_tombstone(&data).map_or(Taken::Damaged, Taken::Ended),
                "board" => match decode(&data, Timestamp(time)) {
                    // Raised, now or by one who took it before and did not come to write it.
                    Some(saved) => Taken::Board(Box::new(at_generation(saved, generation))),
                    None => Taken::Damaged,
                },
                _ => match takeover(self.seen(&holder, &wanted_text(owner, task)).await?).0 {
                    Takeover::Wait(micros) => Taken::Held(micros),
                    verdict @ (Takeover::Clean | Takeover::Lossy) => {
                        (from, lossy) = ((holder, generation), verdict == Takeover::Lossy);
                        continue;
                    }
                },
            };
            return Ok((taken, epoch));
        }
        Ok((Taken::Held(SECOND), 0))
    }

    async fn disown(&self, owner: &Owner, task: &TaskId) -> Result<(), Fault> {
        let _: i64 = self.pool.script(&DISOWN, &[key(&owner.user_key(), task)], self.process.as_str()).await?;
        Ok(())
    }

    async fn erase_epoch(&self, owner: &Owner) -> Result<u64, Fault> {
        let epoch: Option<u64> = self.pool.command(redis::cmd("HGET").arg(epoch_key(&owner.user_key())).arg("epoch")).await?;
        Ok(epoch.unwrap_or_default())
    }

    async fn named(&self, owner: &Owner, task: &TaskId, claim: bool) -> Result<Option<String>, Fault> {
        Ok(self.claimed(owner, task, claim).await?)
    }

    async fn tasks(&self, owner: &Owner) -> Result<Vec<TaskId>, Fault> {
        let names: Vec<String> = self.pool.command(redis::cmd("ZRANGE").arg(tasks_key(&owner.user_key())).arg(0).arg(-1)).await?;
        let mut tasks: Vec<TaskId> = names.into_iter().filter_map(|name| TaskId::new(name).ok()).collect();
        tasks.sort();
        Ok(tasks)
    }

    async fn look(&self, owner: &Owner, tasks: &[TaskId], now: Timestamp) -> Result<Vec<SavedBoard>, Fault> {
        let user = owner.user_key();
        let mut loaded = Loaded::default();
        for some in tasks.chunks(READ) {
            let keys: Vec<String> = some.iter().map(|task| key(&user, task)).collect();
            for row in self.rows(&keys).await? {
                if let (Some(kind), Some(time), Some(task), Some(data), _) = row {
                    collect(&mut loaded, &task, kind == "ended", Timestamp(time), &data, now, (true, false));
                }
            }
        }
        Ok(loaded.boards)
    }
}

/// The board as the record counts its losses.
fn at_generation(mut saved: SavedBoard, generation: u64) -> SavedBoard {
    if generation > saved.board.generation {
        saved.board.generation = generation - 1;
        saved.board.lose(saved.time);
        saved.clean = false;
    }
    saved
}
