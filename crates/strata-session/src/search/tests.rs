//! How often turns are analysed, by count.

use super::*;
use crate::store::Append;
use crate::store::embedded::{EmbeddedSessions, MIGRATIONS};
use std::sync::atomic::Ordering;
use std::time::Duration;
use strata_core::policy::recall::RecallSettings;
use strata_core::policy::session::{Role, Turn};
use strata_core::{Owner, TenantId, Timestamp, UserId};
use strata_runtime::sqlite::{Database, Location, SqliteSettings};
use strata_testkit::{ManualClock, eventually};

struct Bed {
    _folder: tempfile::TempDir,
    tasks: TaskGroup,
    searcher: Searcher,
    key: SessionKey,
    user: UserTag,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let location = Location::File(folder.path().join("session.db"));
        let database = Database::open(&location, MIGRATIONS, SqliteSettings::default()).expect("a database");
        let tasks = TaskGroup::new();
        let clock = ManualClock::at(Timestamp(1_800_000_000_000_000)).port();
        let (searcher, mut queue) = Searcher::new(Arc::new(EmbeddedSessions::new(database)), clock, tasks.clone(), None);
        let (worker, token) = (searcher.clone(), tasks.token().clone());
        tasks.spawn("new turns", async move {
            while let Some(Some(key)) = token.run_until_cancelled(queue.recv()).await {
                worker.complete(&key).await.expect("analysed");
            }
        });
        let owner = Owner { tenant: TenantId::new("t").expect("id"), user: UserId::new("u").expect("id"), agent: None };
        let key = SessionKey::new(&owner, &SessionId::new("s").expect("id"));
        Self { _folder: folder, tasks, searcher, key, user: UserTag::of(&owner) }
    }

    async fn append(&self, from: usize, count: usize) {
        let turn = |n: usize| Turn {
            seq: 0,
            role: Role::User,
            text: format!("Parcel {n} goes to dock {}. 第{n}个包裹。", n % 7),
            tool_call_id: None,
            pinned: false,
            time: self.searcher.clock.now(),
            client_time: None,
            tokens: 9,
            speaker: String::new(),
            external_id: String::new(),
            redacted: 0,
        };
        let (mut next, end) = (from, from + count);
        while next < end {
            let some = (end - next).min(limits::APPEND_TURNS);
            let append = Append {
                key: self.key.clone(),
                agent: None,
                turns: (next..next + some).map(turn).collect(),
                shape: None,
                ttl: 3_600_000_000,
                request: None,
                now: self.searcher.clock.now(),
                due_turns: u32::MAX,
                due_tokens: u64::MAX,
                erase_epoch: 0,
            };
            let done = self.searcher.store.append(append).await.expect("appended");
            self.searcher.appended(&self.key, done.first + done.count - 1, done.count);
            next += some;
        }
    }

    async fn search(&self, text: &str) -> Vec<u32> {
        let query = Query { user: self.user.clone(), agent: None, session: None, text: text.to_owned(), k: 5 };
        let found = self.searcher.search(&RecallSettings::default(), &SessionSettings::default(), query).await.expect("searched");
        found.hits.iter().map(|hit| hit.turn.0.seq).collect()
    }

    fn made(&self) -> usize {
        self.searcher.made.load(Ordering::Relaxed)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r14_a_turn_is_analysed_once_however_many_search_and_however_long_the_session_grows() {
    let bed = Bed::new();
    bed.append(0, 3_000).await;
    // Thirty-two readers at once, while the background looks at the same turns.
    let searches = (0..32_u32).map(|n| {
        let bed = &bed;
        async move { (n, bed.search(&format!("parcel {}", 100 + n)).await) }
    });
    let found = futures::future::join_all(searches).await;
    assert!(found.iter().all(|(n, hits)| hits.first() == Some(&(101 + n))), "{found:?}");
    assert_eq!(bed.made(), 3_000, "each turn once");
    // What comes later costs what it is, not what was there before.
    for round in 1..=10 {
        bed.append(3_000 + 10 * (round - 1), 10).await;
        bed.search("dock").await;
        assert_eq!(bed.made(), 3_000 + 10 * round);
    }
    assert!(bed.tasks.shutdown(Duration::from_secs(30)).await);
}

#[tokio::test]
async fn r14_turns_are_analysed_before_anybody_searches() {
    let bed = Bed::new();
    bed.append(0, ANALYSE_EVERY as usize * 4 + 3).await;
    eventually(Duration::from_secs(30), || async { bed.made() >= ANALYSE_EVERY as usize * 4 }).await;
    bed.search("parcel").await;
    assert_eq!(bed.made(), ANALYSE_EVERY as usize * 4 + 3);
    assert!(bed.tasks.shutdown(Duration::from_secs(30)).await);
}
