//! When deleted values have left the files of a Redis server (rule E3). A deletion frees memory at once, but the append-only
//! file and the snapshot hold the value until the server writes them anew. Both are asked for and waited for, never taken for
//! granted: a managed server may refuse, and a rewrite that began before the deletion does not count.

use crate::ports::{Stopwatch, pause};
use crate::redis_store::{RedisError, RedisPool};
use std::time::Duration;
use strata_core::policy::erasure::{Medium, Physical, Purge};

/// Between two looks at a rewrite that runs.
const LOOK: Duration = Duration::from_millis(50);

/// What must have been written for the files to be free of what was deleted: to be kept with the deletion, in text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rewrite {
    /// The process that counts.
    run_id: String,
    /// Rewrites of the append-only file that must have been made; none when there is no such file.
    aof: Option<u64>,
    /// Snapshots that must have been saved; none when none are.
    rdb: Option<u64>,
}

/// What a server says of its files.
#[derive(Clone, Debug, Default)]
struct Files {
    run_id: String,
    aof: bool,
    /// Counted as they begin.
    aof_rewrites: u64,
    aof_runs: bool,
    aof_waits: bool,
    aof_failed: bool,
    /// Counted as they begin.
    rdb_saves: u64,
    rdb_runs: bool,
    rdb_failed: bool,
    loading: bool,
}

impl Files {
    fn parse(info: &str) -> Self {
        let mut files = Self::default();
        for (name, value) in info.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            let number = || value.parse().unwrap_or_default();
            match name {
                "run_id" => value.clone_into(&mut files.run_id),
                "aof_enabled" => files.aof = value == "1",
                "aof_rewrite_in_progress" => files.aof_runs = value != "0",
                "aof_rewrite_scheduled" => files.aof_waits = value != "0",
                "aof_last_bgrewrite_status" => files.aof_failed = value != "ok",
                "aof_rewrites" => files.aof_rewrites = number(),
                "rdb_bgsave_in_progress" => files.rdb_runs = value != "0",
                "rdb_last_bgsave_status" => files.rdb_failed = value != "ok",
                "rdb_saves" => files.rdb_saves = number(),
                "loading" => files.loading = value != "0",
                _ => {}
            }
        }
        files
    }
}

impl Rewrite {
    /// As text, without content.
    fn encode(&self) -> String {
        let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
        format!("{},{},{}", self.run_id, number(self.aof), number(self.rdb))
    }

    /// Back from [`Rewrite::encode`].
    fn decode(text: &str) -> Option<Self> {
        let mut parts = text.split(',');
        let run_id = parts.next().filter(|id| !id.is_empty())?.to_owned();
        let number = |text: &str| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) };
        Some(Self { run_id, aof: number(parts.next()?)?, rdb: number(parts.next()?)? })
    }

    /// Whether append-only file and snapshot are as needed.
    fn met(&self, files: &Files) -> (bool, bool) {
        let met = |needed: Option<u64>, begun: u64, runs: bool, failed: bool| {
            needed.is_none_or(|needed| (begun > needed || (begun == needed && !runs)) && !failed)
        };
        (
            met(self.aof, files.aof_rewrites, files.aof_runs, files.aof_failed),
            met(self.rdb, files.rdb_saves, files.rdb_runs, files.rdb_failed),
        )
    }
}

/// What a receipt says of a server's files.
const fn medium(state: Physical) -> Medium {
    Medium {
        state,
        detail: match state {
            Physical::Gone => "append-only file and snapshot were written anew",
            Physical::Pending => "waits for the server to write append-only file and snapshot anew",
            Physical::NotPermitted => "the server refuses to be asked: its operator must rewrite append-only file and snapshot",
        },
    }
}

impl RedisPool {
    /// Sees to the files of the server that holds `key`, after a deletion there. `known` is what an earlier call left to be kept; answers what is to be kept now, if
    /// anything, and the state.
    ///
    /// # Errors
    /// [`RedisError`] of an outage.
    pub async fn purge_files(
        &self,
        key: &str,
        known: Option<&str>,
        purge: Purge,
        patience: Duration,
    ) -> Result<(Option<String>, Medium), RedisError> {
        let needed = match (purge, known.and_then(Rewrite::decode)) {
            (Purge::Look, None) => return Ok((None, medium(Physical::Pending))),
            (Purge::Look, Some(needed)) => return Ok((None, medium(self.rewritten(key, &needed).await?))),
            (Purge::Again, Some(needed)) => Some(needed),
            (Purge::Again, None) | (Purge::Anew, _) => self.rewrite_needed(key).await?,
        };
        let Some(needed) = needed else { return Ok((None, medium(Physical::NotPermitted))) };
        let (needed, state) = self.rewrite(key, needed, patience).await?;
        Ok((Some(needed.encode()), medium(state)))
    }

    async fn files(&self, key: &str) -> Result<Files, RedisError> {
        let server: String = self.command_at(key, redis::cmd("INFO").arg("server")).await?;
        let persistence: String = self.command_at(key, redis::cmd("INFO").arg("persistence")).await?;
        Ok(Files::parse(&format!("{server}\n{persistence}")))
    }

    /// What must be written for all that is deleted by now to be gone from the server's files. None when it does not say.
    ///
    /// # Errors
    /// [`RedisError`] of an outage.
    async fn rewrite_needed(&self, key: &str) -> Result<Option<Rewrite>, RedisError> {
        let files = match self.files(key).await {
            Ok(files) => files,
            Err(RedisError::Refused | RedisError::Other) => return Ok(None),
            Err(error @ (RedisError::Full | RedisError::NotWritable | RedisError::Unavailable | RedisError::Paused)) => {
                return Err(error);
            }
        };
        // Where the configuration may not be read, snapshots are taken for granted.
        let saves = self.command_at::<Vec<String>>(key, redis::cmd("CONFIG").arg("GET").arg("save")).await;
        let snapshots = files.rdb_saves > 0 || saves.map_or(true, |pair| pair.get(1).is_some_and(|s| !s.is_empty()));
        // One that runs already began before this moment.
        Ok(Some(Rewrite {
            aof: files.aof.then(|| files.aof_rewrites + 1),
            rdb: snapshots.then(|| files.rdb_saves + 1),
            run_id: files.run_id,
        }))
    }

    /// Whether the files were written; changes nothing. A server that was started anew since counts from zero: its files are
    /// then taken to hold what they held.
    ///
    /// # Errors
    /// [`RedisError`] of an outage.
    async fn rewritten(&self, key: &str, needed: &Rewrite) -> Result<Physical, RedisError> {
        match self.files(key).await {
            Ok(files) if files.run_id == needed.run_id && needed.met(&files) == (true, true) => Ok(Physical::Gone),
            Ok(_) => Ok(Physical::Pending),
            Err(RedisError::Refused | RedisError::Other) => Ok(Physical::NotPermitted),
            Err(error @ (RedisError::Full | RedisError::NotWritable | RedisError::Unavailable | RedisError::Paused)) => {
                Err(error)
            }
        }
    }

    /// Asks the server to write its files, and waits for it up to `patience`. Answers what is still needed with the state:
    /// after a restart of the server that is another than before.
    ///
    /// # Errors
    /// [`RedisError`] of an outage.
    async fn rewrite(&self, key: &str, needed: Rewrite, patience: Duration) -> Result<(Rewrite, Physical), RedisError> {
        let watch = Stopwatch::start();
        let mut needed = needed;
        loop {
            let files = match self.files(key).await {
                Ok(files) => files,
                Err(RedisError::Refused | RedisError::Other) => return Ok((needed, Physical::NotPermitted)),
                Err(error @ (RedisError::Full | RedisError::NotWritable | RedisError::Unavailable | RedisError::Paused)) => {
                    return Err(error);
                }
            };
            if files.run_id != needed.run_id {
                match self.rewrite_needed(key).await? {
                    Some(again) => needed = again,
                    None => return Ok((needed, Physical::NotPermitted)),
                }
                continue;
            }
            let (aof, rdb) = needed.met(&files);
            if aof && rdb {
                return Ok((needed, Physical::Gone));
            }
            // One at a time: each forks the server.
            if !files.aof_runs && !files.aof_waits && !files.rdb_runs && !files.loading {
                let mut command = redis::cmd(if aof { "BGSAVE" } else { "BGREWRITEAOF" });
                if aof {
                    command.arg("SCHEDULE");
                }
                match self.command_at::<String>(key, &command).await {
                    Ok(_) => {}
                    // Another caller was faster, or the server has no such command.
                    Err(RedisError::Refused | RedisError::Other) => {
                        let again = self.files(key).await?;
                        if !again.aof_runs && !again.aof_waits && !again.rdb_runs && needed.met(&again) == (aof, rdb) {
                            return Ok((needed, Physical::NotPermitted));
                        }
                    }
                    Err(error @ (RedisError::Full | RedisError::NotWritable | RedisError::Unavailable | RedisError::Paused)) => {
                        return Err(error);
                    }
                }
            }
            if watch.elapsed() >= patience {
                return Ok((needed, Physical::Pending));
            }
            pause(LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_kept_as_text() {
        for rewrite in
            [Rewrite { run_id: "ab".into(), aof: Some(3), rdb: None }, Rewrite { run_id: "ab".into(), aof: None, rdb: Some(0) }]
        {
            assert_eq!(Rewrite::decode(&rewrite.encode()), Some(rewrite));
        }
        assert_eq!(Rewrite::decode(""), None);
        assert_eq!(Rewrite::decode("ab,x,1"), None);
    }

    #[test]
    fn a_rewrite_that_runs_or_failed_does_not_count() {
        let needed = Rewrite { run_id: "r1".into(), aof: Some(5), rdb: Some(2) };
        let told = |aof: &str| Files::parse(&format!("run_id:r1\r\naof_enabled:1\r\n{aof}rdb_saves:2\r\n"));
        assert_eq!(needed.met(&told("aof_rewrites:4\r\n")), (false, true));
        assert_eq!(needed.met(&told("aof_rewrites:5\r\naof_rewrite_in_progress:1\r\n")), (false, true));
        assert_eq!(needed.met(&told("aof_rewrites:5\r\naof_last_bgrewrite_status:err\r\n")), (false, true));
        assert_eq!(needed.met(&told("aof_rewrites:5\r\naof_last_bgrewrite_status:ok\r\n")), (true, true));
        assert_eq!(needed.met(&told("aof_rewrites:6\r\naof_rewrite_in_progress:1\r\n")), (true, true));
    }
}
