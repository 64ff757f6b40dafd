//! Values that tests need and do not care about.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use strata_core::id::{AgentId, FactKey, Owner, SessionId, TaskId, TenantId, UserId};

/// The owner `tenant`/`user`, without an agent.
///
/// # Panics
/// When either is no legal id.
#[must_use]
pub fn owner(tenant: &str, user: &str) -> Owner {
    Owner {
        tenant: TenantId::new(tenant).expect("a legal tenant id"),
        user: UserId::new(user).expect("a legal user id"),
        agent: None,
    }
}

/// The owner `tenant`/`user`/`agent`.
///
/// # Panics
/// When one of them is no legal id.
#[must_use]
pub fn agent_owner(tenant: &str, user: &str, agent: &str) -> Owner {
    Owner { agent: Some(AgentId::new(agent).expect("a legal agent id")), ..owner(tenant, user) }
}

/// An owner no other test has, in this process or another: two tests can share one server without seeing each other.
#[must_use]
pub fn unique_owner() -> Owner {
    owner(&unique("t"), "u1")
}

/// `prefix-` and a suffix no other call gives, in this process or another on the same machine.
///
/// # Panics
/// When the system clock stands before 1970.
#[must_use]
pub fn unique(prefix: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_nanos();
    format!("{prefix}-{:x}-{nanos:x}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A session id.
///
/// # Panics
/// When it is not legal.
#[must_use]
pub fn session(id: &str) -> SessionId {
    SessionId::new(id).expect("a legal session id")
}

/// A task id.
///
/// # Panics
/// When it is not legal.
#[must_use]
pub fn task(id: &str) -> TaskId {
    TaskId::new(id).expect("a legal task id")
}

/// A fact key.
///
/// # Panics
/// When it is not legal.
#[must_use]
pub fn key(key: &str) -> FactKey {
    FactKey::new(key).expect("a legal fact key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_names_differ_and_are_legal_ids() {
        let names: std::collections::BTreeSet<_> = (0..1_000).map(|_| unique_owner().tenant).collect();
        assert_eq!(names.len(), 1_000);
        assert_eq!(agent_owner("t1", "u1", "a1").user_level(), owner("t1", "u1"));
    }
}
