//! A copy in Redis of what a process keeps in a file of its own: texts by name in one hash, without a TTL. It knows nothing of
//! what they say; who writes them signs them.

use crate::redis_store::{RedisError, RedisPool};
use futures::FutureExt as _;
use redis::cmd;
use std::collections::{BTreeMap, BTreeSet};

/// Texts in one command: a few hundred KiB at most, so that others wait milliseconds.
const CHUNK: usize = 256;

/// The copy. Cheap to clone. Its commands are boxed: callers of many layers would else have types too deep for the compiler.
#[derive(Clone, Debug)]
pub struct RedisMirror {
    pool: RedisPool,
    key: &'static str,
}

impl RedisMirror {
    /// In the hash `key`.
    #[must_use]
    pub const fn new(pool: RedisPool, key: &'static str) -> Self {
        Self { pool, key }
    }

    /// Names of all texts.
    ///
    /// # Errors
    /// [`RedisError`].
    pub async fn names(&self) -> Result<BTreeSet<String>, RedisError> {
        self.pool.command(cmd("HKEYS").arg(self.key)).boxed().await
    }

    /// All texts.
    ///
    /// # Errors
    /// [`RedisError`].
    pub async fn read(&self) -> Result<BTreeMap<String, String>, RedisError> {
        self.pool.command(cmd("HGETALL").arg(self.key)).boxed().await
    }

    /// Writes texts under their names; may be repeated.
    ///
    /// # Errors
    /// [`RedisError`]; some may be there then.
    pub async fn put(&self, texts: &[(String, String)]) -> Result<(), RedisError> {
        for part in texts.chunks(CHUNK) {
            let mut command = cmd("HSET");
            command.arg(self.key);
            for (name, text) in part {
                command.arg(name).arg(text);
            }
            self.pool.command::<u64>(&command).boxed().await?;
        }
        Ok(())
    }
}
