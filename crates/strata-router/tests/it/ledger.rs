//! One behaviour, both stores.

use crate::world::{embedded, over_redis};
use std::sync::Arc;
use strata_core::Timestamp;
use strata_core::time::{DAY, SECOND};
use strata_router::ledger::{Change, JournalRow, Ledger, OpenEntry, Swap};
use strata_testkit::RedisServer;

fn change(field: &str, old: Option<&str>, new: Option<&str>) -> Change {
    Change { field: field.into(), old: old.map(Into::into), new: new.map(Into::into) }
}

fn row(revision: u64) -> JournalRow {
    JournalRow { revision, entry: format!("entry {revision} 用户 \0 \" '") }
}

async fn suite(ledger: Arc<dyn Ledger>) {
    let now = Timestamp::from_seconds(1_800_000_000);
    let until = now.plus(DAY);
    let users = ["2:t12:u1", "1:{1:}", "3:用2:户"];
    for user in users {
        let fields = ["a".to_owned(), "b".to_owned(), "c:用户".to_owned()];
        assert_eq!(ledger.read(user, &fields, now).await.unwrap(), [None, None, None]);
        assert_eq!(ledger.read(user, &[], now).await.unwrap(), Vec::<Option<String>>::new());
        assert_eq!(
            ledger.swap(user, &[change("a", None, Some("1")), change("b", None, Some(""))], now, until).await.unwrap(),
            Swap::Done
        );
        assert_eq!(ledger.read(user, &fields, now).await.unwrap(), [Some("1".into()), Some(String::new()), None]);
        // All or nothing, against what was read: also that something was absent or empty.
        for lost in [
            change("a", None, Some("2")),
            change("a", Some("x"), Some("2")),
            change("b", None, None),
            change("c:用户", Some(""), None),
        ] {
            assert_eq!(ledger.swap(user, &[change("a", Some("1"), Some("9")), lost], now, until).await.unwrap(), Swap::Lost);
        }
        assert_eq!(ledger.read(user, &fields, now).await.unwrap(), [Some("1".into()), Some(String::new()), None]);
        let done = [change("a", Some("1"), None), change("b", Some(""), Some("-")), change("c:用户", None, Some("=x"))];
        assert_eq!(ledger.swap(user, &done, now, until).await.unwrap(), Swap::Done);
        assert_eq!(ledger.read(user, &fields, now).await.unwrap(), [None, Some("-".into()), Some("=x".into())]);
    }

    for (n, user) in (0..).zip(users) {
        let at = now.plus(n * SECOND);
        assert!(ledger.journal_write(user, "p:1", None, &row(0), true, at, until).await.unwrap());
        assert!(!ledger.journal_write(user, "p:1", None, &row(0), true, at, until).await.unwrap(), "it is there");
        assert!(!ledger.journal_write(user, "p:1", Some(5), &row(6), true, at, until).await.unwrap(), "another revision");
        assert!(ledger.journal_write(user, "p:1", Some(0), &row(1), true, at, until).await.unwrap());
        assert_eq!(ledger.journal_read(user, "p:1", now).await.unwrap(), Some(row(1)));
        assert_eq!(ledger.journal_read(user, "p:2", now).await.unwrap(), None);
    }
    let names = |entries: Vec<OpenEntry>| entries.into_iter().map(|e| e.user).collect::<Vec<_>>();
    assert_eq!(names(ledger.journal_open(now.plus(SECOND), now).await.unwrap()), users[..2], "oldest first, not the fresh one");
    assert!(ledger.journal_write(users[0], "p:1", Some(1), &row(2), false, now, until).await.unwrap());
    assert_eq!(names(ledger.journal_open(now.plus(DAY / 2), now).await.unwrap()), users[1..]);
    ledger.sweep(now).await.unwrap();
    assert_eq!(ledger.journal_read(users[0], "p:1", now).await.unwrap(), Some(row(2)), "a closed one is kept");
    ledger.ping().await.unwrap();
}

#[tokio::test]
async fn the_embedded_ledger_behaves() {
    let ledger = embedded();
    suite(Arc::clone(&ledger)).await;
    // Past its time it is gone, before and after the sweep, and can be written anew.
    let later = Timestamp::from_seconds(1_800_000_000).plus(2 * DAY);
    assert_eq!(ledger.read("2:t12:u1", &["b".into()], later).await.unwrap(), [None]);
    assert_eq!(ledger.journal_read("2:t12:u1", "p:1", later).await.unwrap(), None);
    assert!(ledger.journal_write("2:t12:u1", "p:1", None, &row(0), false, later, later.plus(DAY)).await.unwrap());
    ledger.sweep(later).await.unwrap();
    assert_eq!(ledger.journal_read("2:t12:u1", "p:1", later).await.unwrap(), Some(row(0)));
}

#[tokio::test]
async fn the_redis_ledger_behaves_and_every_key_has_a_ttl() {
    let server = RedisServer::start();
    suite(over_redis(&server.url())).await;
    let keys = server.all_keys_with_ttl();
    assert_eq!(keys.len(), 10, "a hash, an entry and its list per user, and the list of open ones: {keys:?}");
    for key in keys {
        assert!(key.ttl.is_some(), "{}", key.key);
        assert!(
            key.key == "strata:promotions:open" || (key.key.contains('{') && key.key.matches('}').count() == 1),
            "one hash tag: {}",
            key.key
        );
    }
}

#[tokio::test]
async fn the_redis_ledger_behaves_on_every_form_of_redis() {
    suite(over_redis(&strata_testkit::redis::shared_url())).await;
}
