//! The embedded ledger of production on a database in memory, as routers of the simulation reach it: late, now and then without
//! an answer, down, emptied, or without its last writes.

use super::Shared;
use crate::bug::Bug;
use async_trait::async_trait;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strata_core::limits::SKEW_SECONDS;
use strata_core::policy::erasure::{Medium, Purge};
use strata_core::policy::ownership::KeyState;
use strata_core::time::SECOND;
use strata_core::{Fault, Owner, TenantId, Timestamp, UserId};
use strata_router::Journalled;
use strata_router::ledger::embedded::EmbeddedLedger;
use strata_router::ledger::{Change, JournalRow, Ledger, OpenEntry, Swap, Written};
use strata_runtime::ports::pause;
use strata_runtime::sqlite::Location;

/// A write that was carried out, to be carried out again without the last of them.
#[derive(Clone, Debug)]
enum Op {
    Swap(String, Vec<Change>, Timestamp, Timestamp),
    Journal(String, String, Option<u64>, JournalRow, Option<Timestamp>, Timestamp, Timestamp),
    Close(OpenEntry),
}

/// The store.
#[derive(Debug)]
pub(crate) struct SimLedger {
    shared: Arc<Shared>,
    store: Mutex<Arc<EmbeddedLedger>>,
    done: Mutex<Vec<Op>>,
    down: AtomicBool,
    lost: AtomicBool,
}

/// The store, as one router reaches it until it dies.
#[derive(Debug)]
pub(crate) struct Reached {
    ledger: Arc<SimLedger>,
    alive: Arc<AtomicBool>,
}

fn open() -> Arc<EmbeddedLedger> {
    Arc::new(EmbeddedLedger::open(&Location::Memory).expect("a database in memory"))
}

/// Waits for the store's thread on this one: virtual time stands still meanwhile, so nothing depends on how fast it is.
fn wait<T>(work: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    // A task's budget would put off a wake-up until this thread is free again, which waits for it.
    let mut work = std::pin::pin!(tokio::task::unconstrained(work));
    loop {
        match work.as_mut().poll(&mut context) {
            std::task::Poll::Ready(answer) => return answer,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

impl SimLedger {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let (down, lost) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { shared, store: Mutex::new(open()), done: Mutex::default(), down, lost }
    }

    pub(crate) fn for_router(self: &Arc<Self>, alive: Arc<AtomicBool>) -> Reached {
        Reached { ledger: Arc::clone(self), alive }
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.shared.log(&format!("ledger down: {down}"));
        self.down.store(down, Ordering::SeqCst);
    }

    /// Whether it ever forgot anything: promises of the journal hold only while it does not.
    pub(crate) fn was_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Forgets everything.
    pub(crate) fn flush(&self) {
        self.shared.log("ledger flushed");
        self.lost.store(true, Ordering::SeqCst);
        self.done.lock().clear();
        *self.store.lock() = open();
    }

    /// A replica takes over that lacks the last `n` writes.
    pub(crate) fn fail_over(&self, n: usize) {
        let mut done = self.done.lock();
        let keep = done.len().saturating_sub(n);
        self.shared.log(&format!("ledger fails over: {} of {} writes", keep, done.len()));
        self.lost.store(true, Ordering::SeqCst);
        done.truncate(keep);
        let store = open();
        for op in done.iter() {
            let again = match op.clone() {
                Op::Swap(user, changes, now, until) => wait(store.swap(&user, &changes, now, until)).map(drop),
                Op::Journal(user, id, expected, row, look_at, now, until) => {
                    wait(store.journal_write(&user, &id, expected, &row, look_at, now, until)).map(drop)
                }
                Op::Close(entry) => wait(store.journal_close(&entry)),
            };
            again.expect("a write that was carried out before");
        }
        *self.store.lock() = store;
    }

    /// The journal at the end.
    pub(crate) fn entries(&self, user: &str) -> Vec<Journalled> {
        let owner = Owner { tenant: TenantId::new("t1").expect("an id"), user: UserId::new(user).expect("an id"), agent: None };
        let store = Arc::clone(&*self.store.lock());
        let rows = wait(store.journal_list(&owner.user_key(), Timestamp::from_seconds(1_800_000_000))).expect("a list");
        rows.iter().map(|row| Journalled::read(row).expect("an entry")).collect()
    }
}

impl Reached {
    /// The store, late; or no answer. A dead router hears nothing and does nothing any more.
    async fn store(&self) -> Result<Arc<EmbeddedLedger>, Fault> {
        let shared = &self.ledger.shared;
        if shared.trouble(50) {
            pause(shared.rng.millis(12)).await;
        }
        if !self.alive.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.ledger.down.load(Ordering::SeqCst) || shared.trouble(1) {
            return Err(Fault::unavailable("the ledger"));
        }
        Ok(Arc::clone(&*self.ledger.store.lock()))
    }

    /// The answer to a write, which may get lost, or find the router dead.
    async fn answer<T>(&self, answer: T) -> Result<T, Fault> {
        if !self.alive.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.ledger.shared.trouble(1) {
            return Err(Fault::unavailable("the ledger"));
        }
        Ok(answer)
    }

    fn done(&self, op: Op) {
        self.ledger.done.lock().push(op);
    }

    /// The ledger forgets marks, and with them the levels around a claim.
    fn without_marks(&self, changes: &[Change]) -> Vec<Change> {
        let blind = |text: &String| match serde_json::from_str::<KeyState>(text) {
            Ok(state) => serde_json::to_string(&KeyState { marks: Vec::new(), ..state }).unwrap_or_else(|_| text.clone()),
            Err(_) => text.clone(),
        };
        let keys = |change: &Change| change.field.starts_with("k:");
        changes
            .iter()
            .map(|change| match keys(change) {
                true => Change { new: change.new.as_ref().map(blind), ..change.clone() },
                false => change.clone(),
            })
            .collect()
    }
}

#[async_trait]
impl Ledger for Reached {
    async fn read(&self, user: &str, fields: &[String], now: Timestamp) -> Result<Vec<Option<String>>, Fault> {
        let store = self.store().await?;
        wait(store.read(user, fields, now))
    }

    async fn swap(&self, user: &str, changes: &[Change], now: Timestamp, keep_until: Timestamp) -> Result<Swap, Fault> {
        let store = self.store().await?;
        let blind = self.ledger.shared.bug == Some(Bug::IgnoreChain);
        let changes = if blind { self.without_marks(changes) } else { changes.to_vec() };
        let swapped = wait(store.swap(user, &changes, now, keep_until))?;
        if swapped == Swap::Done {
            self.done(Op::Swap(user.to_owned(), changes, now, keep_until));
        }
        self.answer(swapped).await
    }

    async fn journal_read(&self, user: &str, promotion_id: &str, now: Timestamp) -> Result<Option<JournalRow>, Fault> {
        let store = self.store().await?;
        wait(store.journal_read(user, promotion_id, now))
    }

    async fn journal_list(&self, user: &str, now: Timestamp) -> Result<Vec<JournalRow>, Fault> {
        let store = self.store().await?;
        wait(store.journal_list(user, now))
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
        let store = self.store().await?;
        if self.ledger.shared.bug == Some(Bug::DropJournal) {
            return Ok(Written::Done);
        }
        let written = wait(store.journal_write(user, promotion_id, expected, row, look_at, now, keep_until))?;
        if written == Written::Done {
            let (user, id) = (user.to_owned(), promotion_id.to_owned());
            self.done(Op::Journal(user, id, expected, row.clone(), look_at, now, keep_until));
        }
        self.answer(written).await
    }

    async fn journal_open(&self, now: Timestamp) -> Result<Vec<OpenEntry>, Fault> {
        let store = self.store().await?;
        wait(store.journal_open(now))
    }

    async fn journal_close(&self, entry: &OpenEntry) -> Result<(), Fault> {
        let store = self.store().await?;
        wait(store.journal_close(entry))?;
        self.done(Op::Close(entry.clone()));
        Ok(())
    }

    async fn forget_user(&self, user: &str) -> Result<u64, Fault> {
        let store = self.store().await?;
        wait(store.forget_user(user))
    }

    async fn medium(&self, user: &str, purge: Purge) -> Result<Medium, Fault> {
        let store = self.store().await?;
        wait(store.medium(user, purge))
    }

    async fn sweep(&self, now: Timestamp) -> Result<(), Fault> {
        let store = self.store().await?;
        // Never past what a failover may need again.
        wait(store.sweep(now.plus(-SKEW_SECONDS * SECOND)))
    }

    async fn ping(&self) -> Result<(), Fault> {
        self.store().await.map(drop)
    }

    fn name(&self) -> &'static str {
        "simulated"
    }

    async fn close(&self) {}
}
