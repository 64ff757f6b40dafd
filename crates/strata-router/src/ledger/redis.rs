//! The ledger in Redis. All keys of a user share its hash tag, every step is one script, every key has a TTL.

use super::{Change, JournalRow, Ledger, MAX_FIELDS, OPEN_PAGE, OpenEntry, Swap};
use async_trait::async_trait;
use redis::{Script, cmd};
use strata_core::policy::erasure::{Medium, Purge};
use strata_core::{Fault, Timestamp, time::DAY};
use strata_runtime::redis_store::RedisPool;

/// Names of entries a router has still to look at. One key of its own slot: it is written before the entry and removed
/// after it, so it may name too much, never too little.
const OPEN: &str = "strata:promotions:open";
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

/// Writes an entry against its revision, and its id into the user's list. KEYS: the entry, the list. ARGV: expected revision
/// ('' none), new revision, entry, TTL in ms, id.
const JOURNAL: &str = r"
if (redis.call('HGET', KEYS[1], 'revision') or '') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'revision', ARGV[2], 'entry', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('SADD', KEYS[2], ARGV[5])
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[4]) then redis.call('PEXPIRE', KEYS[2], ARGV[4]) end
return 1
";

/// Longest wait for the server to write its files anew.
const PURGE_PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);

/// The store.
pub struct RedisLedger {
    pool: RedisPool,
    swap: Script,
    journal: Script,
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
        Self { pool, swap: Script::new(SWAP), journal: Script::new(JOURNAL) }
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
        open: bool,
        now: Timestamp,
        keep_until: Timestamp,
    ) -> Result<bool, Fault> {
        let name = OpenEntry { user: user.to_owned(), promotion_id: promotion_id.to_owned() };
        if open {
            let mut pipeline = redis::pipe();
            pipeline.cmd("ZADD").arg(OPEN).arg(now.micros()).arg(member(&name)).ignore();
            pipeline.cmd("PEXPIRE").arg(OPEN).arg(OPEN_TTL_MS).ignore();
            self.pool.pipeline::<()>(&pipeline).await?;
        }
        let args = [
            expected.map(|r| r.to_string()).unwrap_or_default(),
            row.revision.to_string(),
            row.entry.clone(),
            ttl_ms(now, keep_until).to_string(),
            promotion_id.to_owned(),
        ];
        let keys = [entry_key(user, promotion_id), list_key(user)];
        let written: i64 = self.pool.script(&self.journal, &keys, args.as_slice()).await?;
        if written == 1 && !open {
            self.journal_close(&name).await?;
        }
        Ok(written == 1)
    }

    async fn journal_open(&self, before: Timestamp, _now: Timestamp) -> Result<Vec<OpenEntry>, Fault> {
        let mut command = cmd("ZRANGEBYSCORE");
        command.arg(OPEN).arg("-inf").arg(before.micros()).arg("LIMIT").arg(0).arg(OPEN_PAGE);
        let names: Vec<String> = self.pool.command(&command).await?;
        Ok(names.iter().filter_map(|name| parse_member(name)).collect())
    }

    async fn journal_close(&self, entry: &OpenEntry) -> Result<(), Fault> {
        let mut command = cmd("ZREM");
        command.arg(OPEN).arg(member(entry));
        let _removed: i64 = self.pool.command(&command).await?;
        Ok(())
    }

    async fn journal_of(&self, user: &str, now: Timestamp) -> Result<Vec<JournalRow>, Fault> {
        let mut command = cmd("SMEMBERS");
        command.arg(list_key(user));
        let mut ids: Vec<String> = self.pool.command(&command).await?;
        ids.sort();
        let mut out = Vec::new();
        for id in ids {
            if let Some(row) = self.journal_read(user, &id, now).await? {
                out.push(row);
                continue;
            }
            // Its entry has lived its time.
            let mut gone = cmd("SREM");
            gone.arg(list_key(user)).arg(&id);
            let _removed: i64 = self.pool.command(&gone).await?;
        }
        Ok(out)
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
        let (keep, medium) = self.pool.purge_files(known.as_deref(), purge, PURGE_PATIENCE).await?;
        if let Some(keep) = keep {
            let _: String = self.pool.command(cmd("SET").arg(&name).arg(keep).arg("PX").arg(OPEN_TTL_MS)).await?;
        }
        Ok(medium)
    }

    async fn sweep(&self, _now: Timestamp) -> Result<(), Fault> {
        Ok(())
    }

    async fn ping(&self) -> Result<(), Fault> {
        Ok(self.pool.ping().await?)
    }

    fn name(&self) -> &'static str {
        "redis"
    }

    async fn close(&self) {}
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
