//! The ledger in Redis. All keys of a user share its hash tag, every step is one script, every key has a TTL.

use super::queue::{Backlog, ObserveQueue, Pushed, Waiting};
use super::{
    Change, DecisionLog, DecisionRow, Decisions, JournalRow, Ledger, MAX_FIELDS, OPEN_PAGE, OpenEntry, Swap, Wanted, Written,
};
use async_trait::async_trait;
use redis::{Script, cmd};
use strata_core::limits::{DECISION_SECONDS, DECISIONS_PER_USER, JOURNAL_ENTRIES, OBSERVE_PER_USER, OBSERVE_USERS};
use strata_core::policy::erasure::{Medium, Purge};
use strata_core::time::{DAY, SECOND};
use strata_core::{Fault, Timestamp};
use strata_runtime::redis_store::RedisPool;

/// Names of entries a router has still to look at. One key of its own slot: it is written before the entry and removed
/// after it, so it may name too much, never too little.
const OPEN: &str = "strata:promotions:open";
/// Entries read at a time: about a quarter of a megabyte.
const LIST_PAGE: usize = 128;
/// The list of open entries is renewed by every entry; nothing stays open without being looked at for this long.
const OPEN_TTL_MS: i64 = 30 * DAY / 1_000;

/// Compares every field with what was read, then changes all of them.
/// KEYS: the hash. ARGV: TTL in ms, most fields, then field, old ('-' absent, '=' and the value), new (alike) ...
const SWAP: &str = r"
local grow = 0
for i = 3, #ARGV, 3 do
  local have = redis.call('HGET', KEYS[1], ARGV[i])
  local old = '-'
  if have then old = '=' .. have end
  if old ~= ARGV[i + 1] then return 0 end
  if ARGV[i + 2] ~= '-' and not have then grow = grow + 1 end
end
if grow > 0 and redis.call('HLEN', KEYS[1]) + grow > tonumber(ARGV[2]) then return -1 end
for i = 3, #ARGV, 3 do
  if ARGV[i + 2] == '-' then
    redis.call('HDEL', KEYS[1], ARGV[i])
  else
    redis.call('HSET', KEYS[1], ARGV[i], string.sub(ARGV[i + 2], 2))
  end
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return 1
";

/// Writes an entry against its revision, and its name into the user's list. KEYS: the entry, the list. ARGV: expected
/// revision ('' none), new revision, entry, TTL in ms, open ('1' or '0'), id, time, most entries.
const JOURNAL: &str = r"
if (redis.call('HGET', KEYS[1], 'revision') or '') ~= ARGV[1] then return 0 end
if ARGV[1] == '' then
  if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[8]) then return -1 end
  redis.call('ZADD', KEYS[2], ARGV[7], ARGV[6])
end
redis.call('HSET', KEYS[1], 'revision', ARGV[2], 'entry', ARGV[3], 'open', ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[4]) then redis.call('PEXPIRE', KEYS[2], ARGV[4]) end
return 1
";

/// Takes names off a user's list whose entries are past their time. KEYS: the list, then entries. ARGV: their ids.
const PRUNE: &str = r"
for i = 2, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 0 then redis.call('ZREM', KEYS[1], ARGV[i - 1]) end
end
return 1
";

/// Longest wait for the server to write its files anew.
const PURGE_PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);
/// Appends to a user's stream and drops what is too old or too much. KEYS: the stream. ARGV: TTL in ms, most entries, age in
/// ms, then trace, request, recall, entry ...
const KEEP: &str = r"
for i = 4, #ARGV, 4 do
  redis.call('XADD', KEYS[1], '*', 't', ARGV[i], 'r', ARGV[i + 1], 'c', ARGV[i + 2], 'e', ARGV[i + 3])
end
redis.call('XTRIM', KEYS[1], 'MAXLEN', ARGV[2])
local time = redis.call('TIME')
redis.call('XTRIM', KEYS[1], 'MINID', string.format('%.0f', time[1] * 1000 - ARGV[3]))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
";

/// Entries of a stream that carry a name, so that only they travel. KEYS: the stream. ARGV: name, most.
const NAMED: &str = r"
local found = {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], '-', '+')) do
  local f = entry[2]
  if f[2] == ARGV[1] or f[4] == ARGV[1] or f[6] == ARGV[1] then
    found[#found + 1] = entry
    if #found >= tonumber(ARGV[2]) then break end
  end
end
return found
";

/// Removes entries that hold one of some words. KEYS: the stream. ARGV: the words.
const ERASE: &str = r"
local removed = 0
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], '-', '+')) do
  for i = 1, #ARGV do
    if string.find(entry[2][8], ARGV[i], 1, true) then
      removed = removed + redis.call('XDEL', KEYS[1], entry[1])
      break
    end
  end
end
return removed
";

/// The store.
pub struct RedisLedger {
    pool: RedisPool,
    swap: Script,
    journal: Script,
    keep: Script,
    named: Script,
    erase: Script,
    push: Script,
    moves: Script,
    touch: Script,
    prune: Script,
}

impl std::fmt::Debug for RedisLedger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedisLedger(..)")
    }
}

/// The hash tag of a user: a digest, because ids may hold braces.
fn tag(user: &str) -> String {
    blake3::hash(user.as_bytes()).to_hex()[..32].to_owned()
}

fn hash_key(user: &str) -> String {
    format!("strata:{{{}}}:ledger", tag(user))
}

fn entry_key(user: &str, promotion_id: &str) -> String {
    format!("strata:{{{}}}:promotion:{promotion_id}", tag(user))
}

fn list_key(user: &str) -> String {
    format!("strata:{{{}}}:promotions", tag(user))
}

fn decisions_key(user: &str) -> String {
    format!("strata:{{{}}}:decisions", tag(user))
}

fn ttl_ms(now: Timestamp, keep_until: Timestamp) -> i64 {
    (keep_until.since(now) / 1_000).max(1)
}

/// A list member: both parts, injectively.
fn member(entry: &OpenEntry) -> String {
    format!("{}:{}{}", entry.user.len(), entry.user, entry.promotion_id)
}

fn parse_member(text: &str) -> Option<OpenEntry> {
    let (length, rest) = text.split_once(':')?;
    let (user, promotion_id) = rest.split_at_checked(length.parse().ok()?)?;
    Some(OpenEntry { user: user.to_owned(), promotion_id: promotion_id.to_owned() })
}

impl RedisLedger {
    /// Over a connection that may be down.
    #[must_use]
    pub fn new(pool: RedisPool) -> Self {
        Self {
            pool,
            swap: Script::new(SWAP),
            journal: Script::new(JOURNAL),
            prune: Script::new(PRUNE),
            keep: Script::new(KEEP),
            named: Script::new(NAMED),
            erase: Script::new(ERASE),
            push: Script::new(PUSH),
            moves: Script::new(MOVE),
            touch: Script::new(TOUCH),
        }
    }
}

#[async_trait]
impl Ledger for RedisLedger {
    async fn read(&self, user: &str, fields: &[String], _now: Timestamp) -> Result<Vec<Option<String>>, Fault> {
        if fields.is_empty() {
            return Ok(Vec::new());
        }
        let mut command = cmd("HMGET");
        command.arg(hash_key(user)).arg(fields);
        Ok(self.pool.command(&command).await?)
    }

    async fn swap(&self, user: &str, changes: &[Change], now: Timestamp, keep_until: Timestamp) -> Result<Swap, Fault> {
        let flag = |value: &Option<String>| value.as_ref().map_or_else(|| "-".to_owned(), |v| format!("={v}"));
        let mut args = vec![ttl_ms(now, keep_until).to_string(), MAX_FIELDS.to_string()];
        for change in changes {
            args.extend([change.field.clone(), flag(&change.old), flag(&change.new)]);
        }
        let outcome: i64 = self.pool.script(&self.swap, &[hash_key(user)], args).await?;
        Ok(match outcome {
            1 => Swap::Done,
            -1 => Swap::Full,
            _ => Swap::Lost,
        })
    }

    async fn journal_read(&self, user: &str, promotion_id: &str, _now: Timestamp) -> Result<Option<JournalRow>, Fault> {
        let mut command = cmd("HMGET");
        command.arg(entry_key(user, promotion_id)).arg(&["revision", "entry"]);
        let (revision, entry): (Option<u64>, Option<String>) = self.pool.command(&command).await?;
        Ok(revision.zip(entry).map(|(revision, entry)| JournalRow { revision, entry }))
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
        let name = OpenEntry { user: user.to_owned(), promotion_id: promotion_id.to_owned() };
        if let Some(at) = look_at {
            let mut pipeline = redis::pipe();
            pipeline.cmd("ZADD").arg(OPEN).arg(at.micros()).arg(member(&name)).ignore();
            pipeline.cmd("PEXPIRE").arg(OPEN).arg(OPEN_TTL_MS).ignore();
            self.pool.pipeline::<()>(&pipeline).await?;
        }
        let args = [
            expected.map(|r| r.to_string()).unwrap_or_default(),
            row.revision.to_string(),
            row.entry.clone(),
            ttl_ms(now, keep_until).to_string(),
            u8::from(look_at.is_some()).to_string(),
            promotion_id.to_owned(),
            now.micros().to_string(),
            JOURNAL_ENTRIES.to_string(),
        ];
        let keys = [entry_key(user, promotion_id), list_key(user)];
        let mut written: i64 = self.pool.script(&self.journal, &keys, args.as_slice()).await?;
        if written == -1 {
            // The list names too much: what is past its time makes room.
            self.journal_list(user, now).await?;
            written = self.pool.script(&self.journal, &keys, args.as_slice()).await?;
        }
        if written == 1 && look_at.is_none() {
            self.journal_close(&name).await?;
        }
        Ok(match written {
            1 => Written::Done,
            -1 => Written::Full,
            _ => Written::Lost,
        })
    }

    async fn journal_list(&self, user: &str, _now: Timestamp) -> Result<Vec<JournalRow>, Fault> {
        let mut command = cmd("ZRANGE");
        command.arg(list_key(user)).arg(0).arg(JOURNAL_ENTRIES - 1);
        let ids: Vec<String> = self.pool.command(&command).await?;
        let mut rows = Vec::with_capacity(ids.len());
        for ids in ids.chunks(LIST_PAGE) {
            let mut pipeline = redis::pipe();
            for id in ids {
                pipeline.cmd("HMGET").arg(entry_key(user, id)).arg(&["revision", "entry"]);
            }
            let found: Vec<(Option<u64>, Option<String>)> = self.pool.pipeline(&pipeline).await?;
            let (kept, gone): (Vec<_>, Vec<_>) = ids.iter().zip(found).partition(|(_, (revision, _))| revision.is_some());
            rows.extend(
                kept.into_iter()
                    .filter_map(|(_, (revision, entry))| revision.zip(entry))
                    .map(|(revision, entry)| JournalRow { revision, entry }),
            );
            if !gone.is_empty() {
                let names: Vec<String> = gone.into_iter().map(|(id, _)| id.clone()).collect();
                let keys: Vec<String> =
                    std::iter::once(list_key(user)).chain(names.iter().map(|id| entry_key(user, id))).collect();
                let _pruned: i64 = self.pool.script(&self.prune, &keys, names).await?;
            }
        }
        Ok(rows)
    }

    async fn journal_open(&self, now: Timestamp) -> Result<Vec<OpenEntry>, Fault> {
        let mut command = cmd("ZRANGEBYSCORE");
        command.arg(OPEN).arg("-inf").arg(now.micros()).arg("LIMIT").arg(0).arg(OPEN_PAGE);
        let names: Vec<String> = self.pool.command(&command).await?;
        Ok(names.iter().filter_map(|name| parse_member(name)).collect())
    }

    async fn journal_close(&self, entry: &OpenEntry) -> Result<(), Fault> {
        let mut command = cmd("ZREM");
        command.arg(OPEN).arg(member(entry));
        let _removed: i64 = self.pool.command(&command).await?;
        // Another router may have opened it again in between, and its name must not be the one that was removed.
        let mut command = cmd("HGET");
        command.arg(entry_key(&entry.user, &entry.promotion_id)).arg("open");
        let open: Option<u8> = self.pool.command(&command).await?;
        if open == Some(1) {
            // Looked at by the next recovery, whoever drives it.
            let mut command = cmd("ZADD");
            command.arg(OPEN).arg("NX").arg(0).arg(member(entry));
            let _added: i64 = self.pool.command(&command).await?;
        }
        Ok(())
    }

    async fn forget_user(&self, user: &str) -> Result<u64, Fault> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("HLEN").arg(hash_key(user));
        pipeline.cmd("DEL").arg(hash_key(user)).ignore();
        let (fields,): (u64,) = self.pool.pipeline(&pipeline).await?;
        Ok(fields)
    }

    async fn medium(&self, user: &str, purge: Purge) -> Result<Medium, Fault> {
        let name = format!("strata:{{{}}}:ledger-purge", tag(user));
        let known: Option<String> = self.pool.command(cmd("GET").arg(&name)).await?;
        let (keep, medium) = self.pool.purge_files(&name, known.as_deref(), purge, PURGE_PATIENCE).await?;
        if let Some(keep) = keep {
            let _: String = self.pool.command(cmd("SET").arg(&name).arg(keep).arg("PX").arg(OPEN_TTL_MS)).await?;
        }
        Ok(medium)
    }

    async fn sweep(&self, _now: Timestamp) -> Result<(), Fault> {
        Ok(())
    }

    fn decisions(&self) -> Option<&dyn DecisionLog> {
        Some(self)
    }

    fn queue(&self) -> Option<&dyn ObserveQueue> {
        Some(self)
    }

    async fn ping(&self) -> Result<(), Fault> {
        Ok(self.pool.ping().await?)
    }

    fn name(&self) -> &'static str {
        "redis"
    }

    async fn close(&self) {}
}

/// Entries of a stream: its ids, and fields with values, flat.
type StreamRows = Vec<(String, Vec<String>)>;

/// Where a stream begins.
const BEGIN: &str = "0-0";

/// A cursor of this store: an id of a stream.
fn id_of(cursor: &str) -> Result<&str, Fault> {
    if cursor.is_empty() {
        return Ok(BEGIN);
    }
    let is_id = cursor.split_once('-').is_some_and(|(ms, n)| ms.parse::<u64>().is_ok() && n.parse::<u64>().is_ok());
    if is_id { Ok(cursor) } else { Err(Fault::field("after", "is no cursor of this store")) }
}

#[async_trait]
impl DecisionLog for RedisLedger {
    async fn keep(&self, user: &str, rows: &[DecisionRow], now: Timestamp, keep_until: Timestamp) -> Result<(), Fault> {
        let age_ms = DECISION_SECONDS * 1_000;
        let mut args = vec![ttl_ms(now, keep_until).to_string(), DECISIONS_PER_USER.to_string(), age_ms.to_string()];
        for DecisionRow { names, entry } in rows {
            args.extend(names.iter().cloned().chain([entry.clone()]));
        }
        let _done: i64 = self.pool.script(&self.keep, &[decisions_key(user)], args).await?;
        Ok(())
    }

    async fn kept(&self, user: &str, wanted: &Wanted, limit: usize, _now: Timestamp) -> Result<Decisions, Fault> {
        let key = decisions_key(user);
        let (rows, asked): (StreamRows, &str) = match wanted {
            Wanted::Named(name) => (self.pool.script(&self.named, &[key], (name, limit)).await?, BEGIN),
            Wanted::After(cursor) => {
                let after = id_of(cursor)?;
                let mut command = cmd("XRANGE");
                command.arg(key).arg(format!("({after}")).arg("+").arg("COUNT").arg(limit);
                (self.pool.command(&command).await?, after)
            }
            Wanted::Newest => {
                let mut command = cmd("XREVRANGE");
                command.arg(key).arg("+").arg("-").arg("COUNT").arg(1);
                let newest: StreamRows = self.pool.command(&command).await?;
                let cursor = newest.into_iter().next().map_or_else(|| BEGIN.to_owned(), |(id, _)| id);
                return Ok(Decisions { entries: Vec::new(), cursor });
            }
        };
        let cursor = rows.last().map_or_else(|| asked.to_owned(), |(id, _)| id.clone());
        let entries = rows.into_iter().filter_map(|(_, fields)| fields.into_iter().nth(7)).collect();
        Ok(Decisions { entries, cursor })
    }

    async fn erase(&self, user: &str, ids: Option<&[String]>) -> Result<u64, Fault> {
        let key = decisions_key(user);
        let Some(ids) = ids else {
            let mut pipeline = redis::pipe();
            pipeline.atomic().cmd("XLEN").arg(&key).cmd("DEL").arg(&key).ignore();
            let (removed,): (u64,) = self.pool.pipeline(&pipeline).await?;
            return Ok(removed);
        };
        let ids: Vec<&String> = ids.iter().filter(|id| !id.is_empty()).collect();
        if ids.is_empty() {
            return Ok(0);
        }
        Ok(self.pool.script(&self.erase, &[key], ids).await?)
    }
}

/// Users with something that waits. One key of its own slot: it is written before a stream and after it, so it may name too
/// much, never too little.
const USERS: &str = "strata:observe:users";
/// Kept as long as anything waits.
const USERS_TTL_MS: i64 = 30 * DAY / 1_000;

/// Appends to a user's queue. KEYS: the stream. ARGV: most entries, id, entry, TTL in ms. 1 done, 0 known, -1 full.
const PUSH: &str = r"
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], '-', '+')) do
  if entry[2][2] == ARGV[2] then return 0 end
end
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[1]) then return -1 end
redis.call('XADD', KEYS[1], '*', 'i', ARGV[2], 'e', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
";

/// Moves a user's time if it is what was seen. KEYS: the set. ARGV: member, seen, new; no new removes it.
const MOVE: &str = r"
local have = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not have or tonumber(have) ~= tonumber(ARGV[2]) then return 0 end
if ARGV[3] == '' then redis.call('ZREM', KEYS[1], ARGV[1]) else redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1]) end
return 1
";

/// Names a user after a push, or moves the name of a leased one a little: its router, about to take it off the list, then does
/// not.
/// KEYS: the set. ARGV: member, now.
const TOUCH: &str = r"
local have = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not have then
  redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
elseif tonumber(have) > tonumber(ARGV[2]) then
  redis.call('ZADD', KEYS[1], string.format('%.0f', tonumber(have) + 1), ARGV[1])
end
return 1
";

fn observe_key(user: &str) -> String {
    format!("strata:{{{}}}:observe", tag(user))
}

impl RedisLedger {
    /// Names a user as one with something that waits, unless it is named.
    async fn name_user(&self, user: &str, now: Timestamp) -> Result<(), Fault> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("ZADD").arg(USERS).arg("NX").arg(now.micros()).arg(user).ignore();
        pipeline.cmd("PEXPIRE").arg(USERS).arg(USERS_TTL_MS).ignore();
        Ok(self.pool.pipeline::<()>(&pipeline).await?)
    }
}

#[async_trait]
impl ObserveQueue for RedisLedger {
    async fn push(&self, user: &str, id: &str, entry: &str, now: Timestamp, keep_until: Timestamp) -> Result<Pushed, Fault> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("ZCARD").arg(USERS).cmd("ZSCORE").arg(USERS).arg(user);
        let (users, named): (usize, Option<f64>) = self.pool.pipeline(&pipeline).await?;
        if named.is_none() && users >= OBSERVE_USERS {
            return Ok(Pushed::Full);
        }
        // Before: a router that dies now leaves a name, not a queue that nobody looks at.
        self.name_user(user, now).await?;
        let ttl = ttl_ms(now, keep_until);
        let args = (OBSERVE_PER_USER, id, entry, ttl);
        let pushed: i64 = self.pool.script(&self.push, &[observe_key(user)], args).await?;
        // After: a router that saw the queue empty meanwhile has taken the name off the list, or is about to.
        let _touched: i64 = self.pool.script(&self.touch, &[USERS], (user, now.micros())).await?;
        Ok(match pushed {
            1 => Pushed::Done,
            0 => Pushed::Known,
            _ => Pushed::Full,
        })
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<(String, Timestamp)>, Fault> {
        let mut command = cmd("ZRANGEBYSCORE");
        command.arg(USERS).arg("-inf").arg(now.micros()).arg("WITHSCORES").arg("LIMIT").arg(0).arg(limit);
        let found: Vec<(String, i64)> = self.pool.command(&command).await?;
        Ok(found.into_iter().map(|(user, at)| (user, Timestamp(at))).collect())
    }

    async fn backlog(&self, limit: usize) -> Result<Backlog, Fault> {
        let last = isize::try_from(limit).unwrap_or(isize::MAX) - 1;
        let mut pipeline = redis::pipe();
        pipeline.cmd("ZCARD").arg(USERS).cmd("ZRANGE").arg(USERS).arg(0).arg(last);
        let (users, named): (u64, Vec<String>) = self.pool.pipeline(&pipeline).await?;
        let mut backlog = Backlog { users, ..Backlog::default() };
        // At once: one round trip's time, however many users wait.
        let looks = named.iter().map(|user| async {
            let key = observe_key(user);
            let mut pipeline = redis::pipe();
            pipeline.cmd("XLEN").arg(&key).cmd("XRANGE").arg(&key).arg("-").arg("+").arg("COUNT").arg(1);
            let found: (u64, StreamRows) = self.pool.pipeline(&pipeline).await?;
            Ok::<_, Fault>(found)
        });
        for (waiting, head) in futures::future::try_join_all(looks).await? {
            backlog.entries += waiting;
            // An entry's place begins with the milliseconds at which Redis took it.
            let pushed = head.first().and_then(|(place, _)| place.split('-').next()?.parse::<i64>().ok());
            let pushed = pushed.map(|millis| Timestamp(millis.saturating_mul(SECOND / 1_000)));
            backlog.oldest = backlog.oldest.into_iter().chain(pushed).min();
        }
        Ok(backlog)
    }

    async fn lease(&self, user: &str, seen: Timestamp, until: Timestamp) -> Result<bool, Fault> {
        let moved: i64 = self.pool.script(&self.moves, &[USERS], (user, seen.micros(), until.micros())).await?;
        Ok(moved == 1)
    }

    async fn head(&self, user: &str, limit: usize, _now: Timestamp) -> Result<Vec<Waiting>, Fault> {
        let mut command = cmd("XRANGE");
        command.arg(observe_key(user)).arg("-").arg("+").arg("COUNT").arg(limit);
        let rows: StreamRows = self.pool.command(&command).await?;
        let waiting = |(place, fields): (String, Vec<String>)| {
            let entry = fields.into_iter().nth(3)?;
            Some(Waiting { place, entry })
        };
        Ok(rows.into_iter().filter_map(waiting).collect())
    }

    async fn done(&self, user: &str, place: &str) -> Result<(), Fault> {
        let mut command = cmd("XDEL");
        command.arg(observe_key(user)).arg(place);
        let _removed: i64 = self.pool.command(&command).await?;
        Ok(())
    }

    async fn release(&self, user: &str, leased: Timestamp, next: Timestamp) -> Result<(), Fault> {
        let mut command = cmd("XLEN");
        command.arg(observe_key(user));
        let left: i64 = self.pool.command(&command).await?;
        if left == 0 {
            let removed: i64 = self.pool.script(&self.moves, &[USERS], (user, leased.micros(), "")).await?;
            if removed == 1 {
                return Ok(());
            }
        }
        // Nobody else moves a leased name but a push, by a little.
        let mut command = cmd("ZADD");
        command.arg(USERS).arg("XX").arg(next.micros()).arg(user);
        let _moved: i64 = self.pool.command(&command).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_open_entries_round_trip() {
        for (user, promotion_id) in [("2:t12:u1", "p"), ("", ""), ("1:{1:}", ":7"), ("3:用", "é:1")] {
            let entry = OpenEntry { user: user.into(), promotion_id: promotion_id.into() };
            assert_eq!(parse_member(&member(&entry)), Some(entry));
        }
        assert_eq!(parse_member("99:short"), None);
    }
}
