//! What an erasure takes from the boards of a user (rule E2), and from their checkpoints. Board by board, in order of task; a
//! call stops after a while and names the task it came to.

use crate::boards::{TaskKey, elsewhere};
use crate::custody::{Held, Shared};
use std::sync::Arc;
use std::time::Duration;
use strata_api::convert::erasure::wire_stores;
use strata_api::internal::v1 as pb;
use strata_core::policy::erasure::{Counts, Medium, Physical, Purge, Scope};
use strata_core::policy::working::Board;
use strata_core::{Fault, Owner, Reason, TaskId};
use strata_runtime::ports::Stopwatch;
use strata_text::needles::Needles;

/// Time after which a call hands back a cursor.
const BUDGET: Duration = Duration::from_secs(2);
/// Longest wait for the medium at the end.
const PATIENCE: Duration = Duration::from_secs(3);
/// Times that a board is looked at anew because it was written meanwhile.
const ATTEMPTS: u32 = 16;

const BOARDS: &str = "working.boards";
const REQUESTS: &str = "working.request_ids";
const CHECKPOINTS: &str = "working.checkpoints";

type Part = (Vec<pb::StoreErasure>, String);

/// Where a call goes on.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
struct Cursor {
    /// Last task that was finished.
    after: Option<TaskId>,
    /// Something was removed so far.
    touched: bool,
}

/// One erasure, or a search for what is left of it.
#[derive(Debug)]
pub(crate) struct Eraser<'a> {
    shared: &'a Arc<Shared>,
    owner: Owner,
    scope: Arc<Scope>,
    needles: Arc<Needles>,
}

impl<'a> Eraser<'a> {
    pub(crate) fn new(shared: &'a Arc<Shared>, owner: Owner, scope: Scope) -> Self {
        let needles = Needles::new(scope.texts.iter().map(String::as_str), scope.short_texts.iter().map(String::as_str));
        Self { shared, owner, scope: Arc::new(scope), needles: Arc::new(needles) }
    }

    /// Erases; answers with the counts of this part and the cursor of the next, empty at the end.
    ///
    /// # Errors
    /// `NOT_SERVING` while the boards are not back, `INVALID_FIELD` naming `cursor`, errors of the checkpoint store: what was
    /// done stays done, and is checkpointed when the store is back.
    pub(crate) async fn erase(&self, cursor: &str) -> Result<Part, Fault> {
        if cursor.is_empty() {
            // First of all: from now on nothing older comes in (rule E2).
            let user_key = self.owner.user_key();
            self.shared.boards.raise_epoch(&user_key, self.scope.epoch);
            if let Some(store) = &self.shared.store {
                store.raise_erase_epoch(&user_key, self.scope.epoch, self.shared.now()).await?;
            }
        }
        self.walk(cursor, true).await
    }

    /// Searches; changes nothing.
    ///
    /// # Errors
    /// As [`Eraser::erase`].
    pub(crate) async fn find(&self, cursor: &str) -> Result<Part, Fault> {
        self.walk(cursor, false).await
    }

    async fn walk(&self, cursor: &str, remove: bool) -> Result<Part, Fault> {
        if !self.shared.boards.is_open() {
            return Err(Fault::new(Reason::NotServing, "working memory is starting or stopping; retry").retry_after(500));
        }
        let mut cursor: Cursor = if cursor.is_empty() {
            Cursor::default()
        } else {
            let wrong = |_| Fault::field("cursor", "must be empty or the next_cursor of the call before");
            serde_json::from_str(cursor).map_err(wrong)?
        };
        let watch = Stopwatch::start();
        let mut counts = Counts::default();
        for key in self.shared.tasks_of(&self.owner).await? {
            if cursor.after.as_ref().is_some_and(|after| key.task() <= after) {
                continue;
            }
            if watch.elapsed() >= BUDGET {
                let next =
                    serde_json::to_string(&cursor).map_err(|_| Fault::new(Reason::Internal, "a cursor cannot be written"))?;
                return Ok((wire_stores(&counts, &[]), next));
            }
            let part = self.task(&key, remove).await?;
            cursor.touched |= remove && !part.is_empty();
            counts.add(&part);
            cursor.after = Some(key.task().clone());
        }
        // Boards that were redacted or ended while the store was down.
        self.shared.flush(&self.shared.boards.dirty_of(&self.owner)).await?;
        let purge = match (remove, cursor.touched) {
            (false, _) => Purge::Look,
            (true, true) => Purge::Anew,
            (true, false) => Purge::Again,
        };
        let memory = Medium { state: Physical::Gone, detail: "boards live in memory alone" };
        let checkpoints = match &self.shared.store {
            Some(store) => store.medium(&self.owner.user_key(), purge, PATIENCE).await?,
            None => Medium { state: Physical::Gone, detail: "no checkpoints are kept" },
        };
        let stores = [(BOARDS, Some(memory)), (REQUESTS, Some(memory)), (CHECKPOINTS, Some(checkpoints))];
        Ok((wire_stores(&counts, &stores), String::new()))
    }

    /// One task, wherever its board is: with several replicas it comes here first, and counts once it has been looked at and
    /// written without leaving in between.
    async fn task(&self, key: &TaskKey, remove: bool) -> Result<Counts, Fault> {
        let mut part = Counts::default();
        for _ in 0..ATTEMPTS {
            if self.shared.hold(&self.owner, key).await? == Held::Nowhere {
                return Ok(part);
            }
            self.board(key, remove, &mut part).await?;
            if remove && !part.is_empty() {
                let mut again = Counts::default();
                self.board(key, false, &mut again).await?;
                part.remain(&again);
                // Its last checkpoint holds what it held: it is written anew before anything is said of it.
                self.shared.flush(std::slice::from_ref(key)).await?;
                if self.shared.store.is_some() {
                    part.removed(CHECKPOINTS, 1);
                }
            }
            if self.shared.sharing().is_none() || self.shared.boards.confirm(key).is_ok() {
                return Ok(part);
            }
        }
        Err(elsewhere())
    }

    async fn board(&self, key: &TaskKey, remove: bool, counts: &mut Counts) -> Result<(), Fault> {
        for _ in 0..ATTEMPTS {
            let Some((board, requests)) = self.shared.boards.copy(key) else { return Ok(()) };
            if !self.scope.covers(board.owner.agent.as_ref()) || !self.scope.reaches(board.create_time) {
                return Ok(());
            }
            if self.scope.everything {
                if !remove {
                    counts.found(BOARDS, 1);
                } else if self.shared.boards.destroy(key, self.shared.now()) {
                    counts.removed(BOARDS, 1);
                }
                return Ok(());
            }
            let answers = requests.answers().filter(|answer| self.needles.matches_bytes(answer)).count();
            let after = self.without(&board);
            let slots = after.as_ref().map_or(0, |(_, slots)| *slots);
            if slots == 0 && answers == 0 {
                return Ok(());
            }
            if !remove {
                counts.found(BOARDS, slots);
                counts.found(REQUESTS, answers);
                return Ok(());
            }
            // Answers alone: the board stays as it is, its answers go.
            let after = after.map_or_else(|| Board { version: board.version + 1, ..board.clone() }, |(after, _)| after);
            if self.shared.boards.redact(key, &board, after) {
                counts.removed(BOARDS, slots);
                counts.removed(REQUESTS, answers);
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
        Err(Fault::new(Reason::Overloaded, "writes of a task kept coming first; what was erased stays erased").retry_after(100))
    }

    /// At most 64 KiB of texts: no work for another thread.
    fn without(&self, board: &Board) -> Option<(Board, usize)> {
        board.redacted(&self.scope, &|text| self.needles.matches(text), &|text| self.needles.redact(text))
    }
}
