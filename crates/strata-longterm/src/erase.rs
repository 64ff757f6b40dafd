//! Hard erasure (rules E2 to E6): a journalled saga. One transaction raises the user's erase epoch, writes the intent to the
//! audit and hides what goes; the steps of this role follow, each repeatable, driven by a supervised task that goes on after a
//! crash; the steps of other layers are done by routers and reported here ([`Journal`]). When no step is left everything is
//! looked for once more, and only then the erasure is closed and what it looked for is forgotten.
//!
//! ```text
//!   intent -> log -> records -> derived -> index        here
//!          -> ledger, session, working                  at a router, any of them
//!          -> look again -> close -> fold the log of the file
//! ```
//!
//! Steps do not wait for each other: what a store that is down holds up is stated, and everything else goes on (rule E4). That
//! rows may go before open promotions are cancelled is safe: what was signed before the epoch is refused, and what quotes a turn
//! from before it is refused by its tombstone.
use crate::call::{Call, Service};
use crate::erasure_log::{self, Line};
use crate::metadata::erasures::{self, Erasure, Item, Medium, Scope, Sight, Step, StoreRow};
use crate::metadata::query;
use crate::metadata::wipe::{self, At, Sweep, Tally};
use crate::metadata::{Sql as _, Visible, derived, owner};
use crate::relay::Relay;
use crate::scope::OwnerScope;
use crate::state::State;
use crate::write::Context;
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use strata_api::convert::common::{self, wire_time};
use strata_api::convert::longterm as convert;
use strata_api::error;
use strata_api::internal::v1 as internal;
use strata_api::internal::v1::erasure_journal_service_server::ErasureJournalService;
use strata_api::longterm::v1 as pb;
use strata_core::limits::{self, ERASE_MENTIONS, ERASE_ROWS, ERASE_WORD_CHARS, ERASE_WORDS};
use strata_core::text::SensitiveKind;
use strata_core::time::{DAY, SECOND};
use strata_core::{Fault, MemoryId, Reason, Timestamp};
use strata_runtime::Claims;
use strata_runtime::TaskGroup;
use strata_runtime::metrics::{Instruments, Label};
use strata_runtime::ports::{Stopwatch, pause};
use strata_runtime::task::detached_write;
use strata_text::needles::Needles;
use tonic::{Request, Response, Status};
use uuid::Uuid;

/// Longest time that the call which asks for an erasure waits for it; what is not done by then goes on without it.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long a step waits for the index before it is tried again later.
const INDEX_PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks at the index, and at open erasures that wait for something.
const LOOK: Duration = Duration::from_millis(25);
const AGAIN: Duration = Duration::from_secs(1);
/// An open erasure is left to the router that took it up for this long.
const TAKEN: i64 = 2 * SECOND;
/// Between two looks at media that are waited for.
const MEDIA: i64 = 60 * SECOND;
/// Between two looks whether the copy of the erasure log has all of it: Redis may have lost its memory meanwhile.
const COPY: Duration = Duration::from_secs(60);
/// What the files of an index server wait for. The rewriting of its segments was asked for, but its log keeps what was written
/// until tens of MiB have come after it, and it does not say when.
const INDEX_FILES: &str = "until the copy of the index that held it is dropped: a new one takes its place within qdrant.erase_days, \
    or as soon as `strata reindex` is asked for";
/// Ids that the index is asked about at a time.
const INDEX_IDS: usize = 1_000;
/// Times a plan is made again because its records gained evidence meanwhile.
const PLANS: u32 = 8;
/// Purpose of a receipt's signature.
const RECEIPT: &str = "erasure";

/// What is to be erased.
#[derive(Clone, Debug)]
enum Target {
    Ids(Vec<MemoryId>),
    Filter(Box<convert::Filter>),
    Mentions(Vec<String>),
    Everything,
}

/// What was found for a target before the transaction.
#[derive(Debug, Default)]
struct Plan {
    versions: BTreeMap<MemoryId, u64>,
    scopes: Vec<Scope>,
    not_found: Vec<String>,
    /// Records that the index has; none when it did not answer.
    indexed: Option<u64>,
}

impl Plan {
    /// For a user of whom long-term memory knows nothing: words are looked for in the other layers all the same.
    fn without_records(target: &Target) -> Self {
        let words = match target {
            Target::Mentions(words) => Some(Scope::of_words(words)),
            Target::Ids(_) | Target::Filter(_) | Target::Everything => None,
        };
        Self { scopes: words.into_iter().collect(), ..Self::default() }
    }
}

fn words(field: &str, given: &[String]) -> Result<Vec<String>, Fault> {
    if given.len() > ERASE_WORDS {
        return Err(Fault::limit(field, ERASE_WORDS, "words"));
    }
    let one = |(at, word): (usize, &String)| {
        let field = format!("{field}[{at}]");
        let word = common::text(&field, word, *ERASE_WORD_CHARS.end())?;
        if word.chars().filter(|c| c.is_alphanumeric()).count() < *ERASE_WORD_CHARS.start() {
            return Err(Fault::field(field, "must have 4 letters or digits at least: less stands in too many texts"));
        }
        Ok(word)
    };
    given.iter().enumerate().map(one).collect()
}

fn target(r: &pb::EraseMemoriesRequest) -> Result<Target, Fault> {
    let named = [!r.memory_ids.is_empty(), r.filter.is_some(), !r.mentions.is_empty(), r.everything];
    if named.iter().filter(|named| **named).count() != 1 {
        return Err(Fault::field("memory_ids", "filter, mentions and everything exclude each other; say one of them"));
    }
    if r.everything {
        return Ok(Target::Everything);
    }
    if let Some(filter) = &r.filter {
        let filter = convert::filter(Some(filter))?;
        if filter == convert::Filter::default() {
            return Err(Fault::field("filter", "admits every record; say everything if that is meant"));
        }
        return Ok(Target::Filter(Box::new(filter)));
    }
    if !r.mentions.is_empty() {
        return Ok(Target::Mentions(words("mentions", &r.mentions)?));
    }
    Ok(Target::Ids(convert::memory_ids("memory_ids", &r.memory_ids)?))
}

/// Owners whose rows a target other than ids is about: an agent's own, or all of the user's.
fn own_level(visible: &Visible, by_agent: bool) -> Visible {
    let owner_ids = match (by_agent, visible.owner_ids.as_slice()) {
        (true, [_, own]) => vec![*own],
        (true, _) => Vec::new(),
        (false, all) => all.to_vec(),
    };
    Visible { owner_ids, ..visible.clone() }
}

fn plan(db: &Connection, visible: &Visible, target: &Target, by_agent: bool, now: Timestamp) -> Result<Plan, Fault> {
    let own = own_level(visible, by_agent);
    let (ids, words): (BTreeSet<MemoryId>, Option<Scope>) = match target {
        Target::Ids(ids) => (ids.iter().copied().collect(), None),
        Target::Filter(filter) => (query::erasable(db, &own, filter, now)?, None),
        Target::Mentions(words) => {
            let needles = Needles::new(words.iter().map(String::as_str), []);
            (wipe::mentioning(db, &own.owner_ids, &needles)?, Some(Scope::of_words(words)))
        }
        Target::Everything => (wipe::all_of(db, &own.owner_ids)?.into_iter().collect(), None),
    };
    if matches!(target, Target::Everything) {
        // What is looked for is whose it is.
        let versions = ids.into_iter().map(|id| (id, 0)).collect();
        return Ok(Plan { versions, ..Plan::default() });
    }
    let (versions, mut scopes) = erasures::gather(db, visible, &ids)?;
    scopes.extend(words);
    let not_found = ids.iter().filter(|id| !versions.contains_key(id)).map(MemoryId::to_string).collect();
    Ok(Plan { versions, scopes, not_found, indexed: None })
}

/// The intent: epoch, audit, journal, tombstones of what goes, and nothing of it is in any answer from here on.
fn intend(
    db: &Connection,
    c: &Context<'_>,
    erasure_id: Uuid,
    everything: bool,
    reason: &str,
    plan: &Plan,
    steps: &[Step],
) -> Result<Erasure, Fault> {
    let stored = owner::ensure(db, c.scope)?;
    let epoch = u64::try_from(c.now.micros()).unwrap_or(0);
    let erasure = Erasure {
        erasure_id,
        user_id: stored.user_id,
        owner: c.scope.owner().clone(),
        everything,
        epoch: erasures::raise_epoch(db, stored.user_id, epoch)?,
        actor: c.actor.to_owned(),
        reason: reason.to_owned(),
        request_time: c.now,
        close_time: None,
        file_time: None,
    };
    erasures::audit(db, &erasure, "ERASE_REQUESTED", None, &erasure_id.to_string(), c.now)?;
    if everything {
        let of = c.scope.owner().agent.is_some().then_some(stored.owner_id);
        erasures::close_past(db, stored.user_id, of, c.now)?;
    }
    erasures::enter(db, &erasure, &plan.scopes, steps)?;
    for store in wipe::STORES {
        erasures::add_store(
            db,
            erasure_id,
            &StoreRow { store: store.to_owned(), medium: Medium::Pending, ..Default::default() },
        )?;
    }
    let mut ids: BTreeSet<MemoryId> = plan.versions.keys().copied().collect();
    if everything {
        ids.extend(wipe::all_of(db, &erasures::owner_ids(db, &erasure)?)?);
    }
    for id in plan.versions.keys() {
        ids.extend(derived::made_from(db, *id)?);
    }
    let index = StoreRow {
        store: "longterm.index".to_owned(),
        found: plan.indexed.unwrap_or(ids.len() as u64),
        medium: Medium::Pending,
        detail: "not told yet".to_owned(),
        ..Default::default()
    };
    erasures::add_store(db, erasure_id, &index)?;
    for id in &ids {
        erasures::note(db, erasure_id, Item::Record, *id, false)?;
        wipe::bury(db, &erasure, c.tombstones, *id)?;
        wipe::hide(db, *id, c.now)?;
    }
    owner::next_revision(db, stored.user_id)?;
    Ok(erasure)
}

impl State {
    /// Steps of an erasure that is asked for now.
    fn steps(&self) -> Vec<Step> {
        let logs = self.erasing.log.is_some();
        Step::ALL.into_iter().filter(|step| logs || *step != Step::Log).collect()
    }

    async fn begin(&self, call: &Call, r: &pb::EraseMemoriesRequest) -> Result<pb::EraseMemoriesResponse, Fault> {
        let target = target(r)?;
        let reason = common::text("reason", &r.reason, limits::REASON_CHARS)?;
        if strata_text::features(&reason).sensitive.iter().any(|span| span.kind != SensitiveKind::Health) {
            return Err(Fault::field("reason", "holds personal data; say why without repeating what is to be erased"));
        }
        let everything = matches!(target, Target::Everything);
        let by_agent = call.scope.owner().agent.is_some();
        let erasure_id = self.ports.ids.next();
        for _ in 0..PLANS {
            let (asked, now) = (target.clone(), call.now);
            let planned = self.read(&call.scope, move |db, visible| plan(db, visible, &asked, by_agent, now)).await?;
            let mut plan = planned.unwrap_or_else(|| Plan::without_records(&target));
            if let (Target::Ids(ids), true) = (&target, plan.versions.is_empty()) {
                let not_found = ids.iter().map(MemoryId::to_string).collect();
                return Ok(pb::EraseMemoriesResponse { erasure: None, not_found });
            }
            if let (Target::Filter(_), true) = (&target, plan.versions.is_empty()) {
                return Ok(pb::EraseMemoriesResponse::default());
            }
            if Sight::of(&plan.scopes).whole.matches(&reason) {
                return Err(Fault::field("reason", "repeats what is to be erased; it is kept in the audit"));
            }
            let ids: Vec<MemoryId> = plan.versions.keys().copied().collect();
            plan.indexed = self.present(call.scope.owner(), &ids).await.ok().map(|found| found.len() as u64);
            let (reason, steps) = (reason.clone(), self.steps());
            let key = call.key("EraseMemories", &r.request_id, r)?;
            let begun = self
                .once(call, key, move |db, context| {
                    for (id, version) in &plan.versions {
                        // It gained evidence, or another call moved it: what is looked for has to be gathered again.
                        if *version > 0 && version_of(db, *id)? != Some(*version) {
                            return Err(Fault::new(Reason::VersionMismatch, "the records change; ask again"));
                        }
                    }
                    let erasure = intend(db, context, erasure_id, everything, &reason, &plan, &steps)?;
                    let answer = pb::EraseMemoriesResponse {
                        erasure: Some(pb::Erasure { erasure_id: erasure.erasure_id.to_string(), ..Default::default() }),
                        not_found: plan.not_found,
                    };
                    Ok((answer, true))
                })
                .await;
            if begun.is_ok() {
                Instruments::global().erasures.add(1, &[Label::new("state", "asked")]);
            }
            match begun {
                Err(changed) if changed.reason == Reason::VersionMismatch => {}
                begun => return begun,
            }
        }
        Err(Fault::new(Reason::Overloaded, "the records change faster than they can be gathered; try again").retry_after(100))
    }

    /// Which of these records the index still has.
    async fn present(&self, owner: &strata_core::Owner, ids: &[MemoryId]) -> Result<Vec<MemoryId>, Fault> {
        let mut found = Vec::new();
        for chunk in ids.chunks(INDEX_IDS) {
            found.extend(self.index.present(owner, chunk).await?);
        }
        Ok(found)
    }

    /// Goes on with every open erasure, and folds the file's log once the closed ones are in it.
    ///
    /// # Errors
    /// As the database says.
    pub(crate) async fn go_on(self: &Arc<Self>) -> Result<(), Fault> {
        if let Err(fault) = self.level_log().await {
            tracing::debug!(%fault, "the copy of the erasure log waits");
        }
        for erasure in self.database.read(erasures::open).await? {
            self.advance(erasure.erasure_id).await?;
        }
        self.fold().await?;
        self.renew_index().await
    }

    /// Has the index filled anew beside the copy that held what was erased, once that is due: the copy is dropped then, with all
    /// its files (rule E3).
    async fn renew_index(&self) -> Result<(), Fault> {
        let now = self.ports.clock.now();
        let looked = self.erasing.level.lock().looked.is_some_and(|looked| now.since(looked) < MEDIA);
        if self.index.is_view() || looked {
            return Ok(());
        }
        self.erasing.level.lock().looked = Some(now);
        let read = |db: &Connection| Ok::<_, Fault>((erasures::index_waits_since(db)?, Relay::since(db)?));
        let (Some(oldest), since) = self.database.read(read).await? else { return Ok(()) };
        if let Some(since) = since.filter(|since| *since > oldest) {
            return self.database.write(move |db| erasures::index_gone(db, since)).await;
        }
        let Some(days) = self.erasing.index_days else { return Ok(()) };
        // A day for the filling itself.
        let due = oldest.plus(i64::from(days.saturating_sub(1)) * DAY);
        if now >= due && !self.relay.status().await?.reindexing {
            tracing::info!("the index is filled anew, so that its server's files are rid of what was erased");
            self.relay.reindex().await?;
        }
        Ok(())
    }

    /// Brings the erasure log and its copy in Redis up to each other (rule E8): once at the start, after Redis was away, and once
    /// a minute.
    async fn level_log(&self) -> Result<(), Fault> {
        let (Some(log), Some(copy)) = (&self.erasing.log, &self.erasing.copy) else { return Ok(()) };
        let (taken_over, level) = {
            let level = self.erasing.level.lock();
            (level.taken_over, level.since.as_ref().is_some_and(|since| since.elapsed() < COPY))
        };
        if !taken_over {
            // It had nothing to say at the start, or Redis was away then.
            let copied = copy.read().await?;
            if copied.foreign > 0 {
                tracing::error!(
                    entries = copied.foreign,
                    "the copy of the erasure log has entries of another deployment, or altered"
                );
            }
            let lines = log.lacks(copied.lines);
            if !lines.is_empty() {
                let (tombstones, now) = (self.tombstones.clone(), self.ports.clock.now());
                let done = erasure_log::replay_unknown(&self.database, lines.clone(), tombstones, now).await?;
                tracing::warn!(lines = lines.len(), ?done, "the erasure log lacked lines that its copy has");
                self.relay.wake();
                let log = log.clone();
                let written =
                    self.tasks.blocking("erasure log", move || lines.iter().try_for_each(|line| log.append(line))).await;
                written.map_err(|_| Fault::new(Reason::Internal, "the erasure log could not be written"))??;
            }
            self.erasing.level.lock().taken_over = true;
        }
        if !level {
            self.erasing.level.lock().since = None;
            copy.catch_up(log, &self.tasks).await?;
            self.erasing.level.lock().since = Some(Stopwatch::start());
        }
        Ok(())
    }

    /// Does what is due of one erasure. What cannot be done now is noted with its reason.
    pub(crate) async fn advance(self: &Arc<Self>, erasure_id: Uuid) -> Result<(), Fault> {
        let _alone = self.erasing.alone.lock().await;
        // Twice: what a look again finds is removed at once.
        for _ in 0..2 {
            let found = self
                .database
                .read(move |db| Ok::<_, Fault>((erasures::any(db, erasure_id)?, erasures::waiting(db, erasure_id)?)));
            let (Some(erasure), waiting) = found.await? else { return Ok(()) };
            if erasure.close_time.is_some() {
                return Ok(());
            }
            for waiting in waiting.iter().filter(|waiting| !waiting.step.is_outside()) {
                let step = waiting.step;
                if let Err(fault) = self.step(&erasure, step).await {
                    tracing::warn!(%erasure_id, step = step.name(), reason = fault.reason.name(), "a step of an erasure waits");
                    let problem = fault.message;
                    self.database.write(move |db| erasures::stuck(db, erasure_id, step, &problem)).await?;
                }
            }
            let left = self.database.read(move |db| erasures::waiting(db, erasure_id)).await?;
            if !left.is_empty() || self.close(&erasure).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn step(self: &Arc<Self>, erasure: &Erasure, step: Step) -> Result<(), Fault> {
        match step {
            Step::Log => self.log(erasure).await?,
            Step::Records => self.remove_records(erasure).await?,
            Step::Derived => {
                self.sweep(erasure, true, &[]).await?;
                self.forget_caches(erasure).await?;
            }
            Step::Index => self.clear_index(erasure).await?,
            Step::Ledger | Step::Session | Step::Working => return Ok(()),
        }
        let erasure_id = erasure.erasure_id;
        self.database.write(move |db| erasures::done(db, erasure_id, step)).await?;
        Ok(())
    }

    /// The line of an erasure, in the log and in its copy.
    async fn log(&self, erasure: &Erasure) -> Result<(), Fault> {
        let Some(log) = self.erasing.log.clone() else { return Ok(()) };
        let of = erasure.clone();
        let line = self.database.read(move |db| Line::of(db, &of)).await?;
        let logged = line.clone();
        let written = self.tasks.blocking("erasure log", move || log.append(&logged)).await;
        written.map_err(|_| Fault::new(Reason::Internal, "the erasure log could not be written"))??;
        if let Some(copy) = &self.erasing.copy
            && let Err(fault) = copy.put([&line]).await
        {
            self.erasing.level.lock().since = None;
            return Err(Fault { message: format!("the copy of the erasure log: {}", fault.message), ..fault });
        }
        Ok(())
    }

    async fn remove_records(&self, erasure: &Erasure) -> Result<(), Fault> {
        loop {
            let (erasure, tombstones, now) = (erasure.clone(), self.tombstones.clone(), self.ports.clock.now());
            let more = self
                .database
                .write(move |db| {
                    let ids = erasures::items(db, erasure.erasure_id, Item::Record, true, ERASE_ROWS)?;
                    let mut tally = Tally::default();
                    for id in &ids {
                        wipe::remove(db, &erasure, &tombstones, *id, now, &mut tally)?;
                    }
                    note_tally(db, &erasure, tally)?;
                    Ok::<_, Fault>(!ids.is_empty())
                })
                .await?;
            self.relay.wake();
            if !more {
                return Ok(());
            }
        }
    }

    /// Walks over what the owner has in this file: removes, or only counts what is found. `more` is looked for too.
    async fn sweep(&self, erasure: &Erasure, change: bool, more: &[String]) -> Result<Tally, Fault> {
        let erasure_id = erasure.erasure_id;
        let mut scopes = self.database.read(move |db| erasures::scopes(db, erasure_id)).await?;
        if !more.is_empty() {
            scopes.push(Scope::of_words(more));
        }
        let sight = Arc::new(Sight::of(&scopes));
        let (mut all, mut at) = (Tally::default(), Some(At::default()));
        while let Some(from) = at {
            let (erasure, sight, tombstones, now) =
                (erasure.clone(), Arc::clone(&sight), self.tombstones.clone(), self.ports.clock.now());
            let page = move |db: &Connection| {
                let sweep = Sweep { erasure: &erasure, sight: &sight, tombstones: &tombstones, now, change };
                let mut tally = Tally::default();
                let next = sweep.page(db, from, &mut tally)?;
                if change {
                    note_tally(db, &erasure, tally.clone())?;
                }
                Ok::<_, Fault>((next, tally))
            };
            let (next, tally) = if change { self.database.write(page).await? } else { self.database.read(page).await? };
            all.merge(tally);
            at = next;
        }
        if change {
            self.relay.wake();
        }
        Ok(all)
    }

    /// Forgets what is kept in memory of texts and records that went.
    async fn forget_caches(&self, erasure: &Erasure) -> Result<(), Fault> {
        let erasure_id = erasure.erasure_id;
        let read = move |db: &Connection| {
            Ok::<_, Fault>((erasures::scopes(db, erasure_id)?, erasures::items(db, erasure_id, Item::Record, false, u32::MAX)?))
        };
        let (scopes, ids) = self.database.read(read).await?;
        for id in &ids {
            self.aspects.invalidate(id);
            self.recall.forget(*id);
        }
        if let Some(embedder) = &self.embedder {
            scopes.iter().flat_map(|scope| scope.texts.iter().chain(&scope.values)).for_each(|text| embedder.forget(text));
        }
        Ok(())
    }

    /// Waits until the relay has taken everything out of the index, and looks whether it is.
    async fn clear_index(&self, erasure: &Erasure) -> Result<(), Fault> {
        let erasure_id = erasure.erasure_id;
        let watch = Stopwatch::start();
        loop {
            let pending = self.database.read(move |db| erasures::in_outbox(db, erasure_id)).await?;
            if !pending {
                break;
            }
            if watch.elapsed() > INDEX_PATIENCE {
                return Err(Fault::unavailable("search index"));
            }
            self.relay.wake();
            pause(LOOK).await;
        }
        if erasure.everything {
            self.index.erase_owner(&erasure.owner).await?;
            // What was said since belongs into it again.
            let (of, now) = (erasure.clone(), self.ports.clock.now());
            self.database.write(move |db| erasures::tell_index_again(db, &of, now)).await?;
            self.relay.wake();
        }
        let ids = self.database.read(move |db| erasures::items(db, erasure_id, Item::Record, false, u32::MAX)).await?;
        let left = self.present(&erasure.owner, &ids).await?.len();
        if left > 0 {
            return Err(Fault::new(Reason::StoreUnavailable, format!("the search index still holds {left} of them")));
        }
        self.index.reclaim().await?;
        let detail = if self.index.is_view() { "until the log of the database file is folded in" } else { INDEX_FILES };
        self.database
            .write(move |db| {
                let found = erasures::stores(db, erasure_id)?.into_iter().find(|row| row.store == "longterm.index");
                let removed = found.map_or(0, |row| row.found.saturating_sub(row.removed));
                let row = StoreRow {
                    store: "longterm.index".to_owned(),
                    removed,
                    medium: Medium::Pending,
                    detail: detail.to_owned(),
                    ..Default::default()
                };
                erasures::add_store(db, erasure_id, &row)
            })
            .await
    }

    /// Looks for everything again. Found nothing: the erasure is closed. Else the steps that left something run again.
    async fn close(self: &Arc<Self>, erasure: &Erasure) -> Result<bool, Fault> {
        let found = self.sweep(erasure, false, &[]).await?;
        let erasure_id = erasure.erasure_id;
        let ids = self.database.read(move |db| erasures::items(db, erasure_id, Item::Record, false, u32::MAX)).await?;
        let in_index = match self.present(&erasure.owner, &ids).await {
            Ok(found) => found.len() as u64,
            Err(fault) => {
                let problem = fault.message;
                self.database
                    .write(move |db| {
                        erasures::again(db, erasure_id, Step::Index)?;
                        erasures::stuck(db, erasure_id, Step::Index, &problem)
                    })
                    .await?;
                return Ok(false);
            }
        };
        let clean = found.found() == 0 && in_index == 0;
        let (of, now, logs) = (erasure.clone(), self.ports.clock.now(), self.erasing.log.is_some());
        self.database
            .write(move |db| {
                if !clean {
                    for (store, (remaining, _)) in &found.0 {
                        erasures::set_remaining(db, erasure_id, store, *remaining)?;
                    }
                    erasures::set_remaining(db, erasure_id, "longterm.index", in_index)?;
                    if found.found() > 0 {
                        erasures::again(db, erasure_id, Step::Derived)?;
                    }
                    return erasures::again(db, erasure_id, Step::Index);
                }
                for store in wipe::STORES.into_iter().chain(["longterm.index"]) {
                    erasures::set_remaining(db, erasure_id, store, 0)?;
                }
                erasures::close(db, &of, now)
            })
            .await?;
        if clean {
            tracing::info!(%erasure_id, "an erasure is closed: nothing of it was found again");
            Instruments::global().erasures.add(1, &[Label::new("state", "closed")]);
            if logs {
                // The line of the close; without it a restore still erases what the first line names.
                // The copy gets it at the next look.
                let closed = Erasure { close_time: Some(now), ..erasure.clone() };
                if let Err(fault) = self.log(&closed).await {
                    tracing::error!(%erasure_id, reason = fault.reason.name(), "the erasure log or its copy lacks the close of an erasure yet");
                }
            }
            self.fold().await?;
        }
        Ok(clean)
    }

    /// Folds the file's log in once there are closed erasures whose content stood in it.
    async fn fold(&self) -> Result<(), Fault> {
        let ids = self.database.read(erasures::unfolded).await?;
        if ids.is_empty() || !self.database.checkpoint().await? {
            return Ok(());
        }
        let now = self.ports.clock.now();
        let own_file = self.index.is_view();
        self.database.write(move |db| erasures::folded(db, &ids, own_file, now)).await
    }

    /// The receipt as it stands, signed.
    pub(crate) async fn receipt(&self, erasure_id: Uuid) -> Result<Option<pb::Erasure>, Fault> {
        let now = self.ports.clock.now();
        let read = move |db: &Connection| {
            let Some(erasure) = erasures::any(db, erasure_id)? else { return Ok(None) };
            let stores = erasures::stores(db, erasure_id)?;
            let waiting = erasures::waiting(db, erasure_id)?;
            let memories = erasures::count_records(db, erasure_id)?;
            let mentions = erasures::items(db, erasure_id, Item::Mention, false, ERASE_MENTIONS)?;
            Ok::<_, Fault>(Some((erasure, stores, waiting, memories, mentions, Relay::since(db)?)))
        };
        let Some((erasure, mut stores, waiting, memories, mentions, since)) = self.database.read(read).await? else {
            return Ok(None);
        };
        self.index_files(&erasure, since, &mut stores);
        stores.extend(self.backups_of(&erasure, now).await);
        stores.sort_by(|a, b| a.store.cmp(&b.store));
        let gone = erasure.close_time.is_some() && stores.iter().all(|row| row.medium == Medium::Gone);
        let state = match (erasure.close_time, gone) {
            (None, _) => pb::ErasureState::Running,
            (Some(_), false) => pb::ErasureState::Erased,
            (Some(_), true) => pb::ErasureState::Gone,
        };
        let text = |agent: Option<&strata_core::AgentId>| agent.map_or_else(String::new, |agent| agent.as_str().to_owned());
        let mut receipt = pb::Erasure {
            erasure_id: erasure_id.to_string(),
            tenant_id: erasure.owner.tenant.as_str().to_owned(),
            user_id: erasure.owner.user.as_str().to_owned(),
            agent_id: text(erasure.owner.agent.as_ref()),
            everything: erasure.everything,
            state: state.into(),
            actor: erasure.actor,
            reason: erasure.reason,
            request_time: Some(wire_time(erasure.request_time)),
            erase_time: erasure.close_time.map(wire_time),
            memories,
            stores: stores.iter().map(wire_store).collect(),
            pending: waiting
                .into_iter()
                .map(|waiting| pb::PendingStep {
                    step: waiting.step.name().to_owned(),
                    attempts: waiting.attempts,
                    problem: waiting.problem,
                })
                .collect(),
            also_mentioned_by: mentions.iter().map(MemoryId::to_string).collect(),
            as_of: Some(wire_time(now)),
            signature: String::new(),
        };
        receipt.signature = self.seals.sign(&erasure.owner.tenant, RECEIPT, &prost::Message::encode_to_vec(&receipt));
        Ok(Some(receipt))
    }

    /// What is known of an index server's files: rid of it once a copy that was created later has taken the place of all earlier
    /// ones; else by when that is.
    fn index_files(&self, erasure: &Erasure, since: Option<Timestamp>, stores: &mut [StoreRow]) {
        let Some(closed) = erasure.close_time.filter(|_| !self.index.is_view()) else { return };
        for row in stores.iter_mut().filter(|row| row.store == "longterm.index" && row.medium == Medium::Pending) {
            if since.is_some_and(|since| since > closed) {
                (row.medium, row.gone_by) = (Medium::Gone, None);
                row.detail.clear();
            } else {
                row.gone_by = self.erasing.index_days.map(|days| closed.plus(i64::from(days) * DAY));
            }
        }
    }

    /// Copies of the database from before the erasure was done.
    async fn backups_of(&self, erasure: &Erasure, now: Timestamp) -> Option<StoreRow> {
        let folder = self.erasing.backups.clone()?;
        let until = erasure.close_time.unwrap_or(now);
        let older =
            self.tasks.blocking("backups of an erasure", move || crate::backup::made_before(&folder, until)).await.ok()?;
        let newest = older.last().copied();
        let days = self.erasing.backup_days;
        let gone_by = newest.zip(days).map(|(made, days)| made.plus(i64::from(days) * DAY));
        let detail = match (newest, days) {
            (None, _) => "",
            (Some(_), Some(_)) => "until the backups from before are deleted; restoring one does not bring it back",
            (Some(_), None) => {
                "until the backups from before are deleted: storage.backup_days says when; restoring one does not bring it back"
            }
        };
        let count = older.len() as u64;
        Some(StoreRow {
            store: "backups".to_owned(),
            found: count,
            removed: 0,
            remaining: count,
            verified: true,
            medium: if count == 0 { Medium::Gone } else { Medium::Pending },
            gone_by,
            detail: detail.to_owned(),
        })
    }

    async fn own_erasure(&self, claims: &Claims, user_id: &str, erasure_id: &str) -> Result<Erasure, Fault> {
        let id = Uuid::parse_str(erasure_id).map_err(|_| Fault::field("erasure_id", "is required, a UUID"))?;
        let owner = OwnerScope::of(claims, user_id, "")?.owner().clone();
        let found = self.database.read(move |db| erasures::any(db, id)).await?;
        found
            .filter(|erasure| erasure.owner.user_level() == owner)
            .ok_or_else(|| Fault::not_found("erasure", erasure_id.to_owned()))
    }
}

/// Adds what was found and removed to the receipt.
fn note_tally(db: &Connection, erasure: &Erasure, tally: Tally) -> Result<(), Fault> {
    for (store, (found, removed)) in tally.0 {
        let row = StoreRow {
            store: store.to_owned(),
            found,
            removed,
            medium: Medium::Pending,
            detail: "until the log of the database file is folded in".to_owned(),
            ..Default::default()
        };
        erasures::add_store(db, erasure.erasure_id, &row)?;
    }
    Ok(())
}

fn version_of(db: &Connection, id: MemoryId) -> Result<Option<u64>, Fault> {
    let mut statement = db.prepare_cached("SELECT version FROM records WHERE memory_id = ?1").sql()?;
    rusqlite::OptionalExtension::optional(statement.query_row([crate::metadata::row::id_bytes(id)], |row| row.get(0))).sql()
}

fn wire_store(row: &StoreRow) -> pb::ErasedStore {
    let medium = match row.medium {
        Medium::Unknown => pb::Medium::Unspecified,
        Medium::Gone => pb::Medium::Gone,
        Medium::Pending => pb::Medium::Pending,
        Medium::NotPermitted => pb::Medium::NotPermitted,
    };
    pb::ErasedStore {
        store: row.store.clone(),
        found: row.found,
        removed: row.removed,
        remaining: row.remaining,
        verified: row.verified,
        medium: medium.into(),
        gone_by: row.gone_by.map(wire_time),
        detail: row.detail.clone(),
    }
}

/// Goes on with open erasures: at the start, when there is a new one, and while one waits for something.
pub(crate) fn spawn(state: &Arc<State>, tasks: &TaskGroup) {
    let state = Arc::clone(state);
    let token = tasks.token().clone();
    tasks.spawn("erasures", async move {
        while !token.is_cancelled() {
            if let Err(fault) = state.go_on().await {
                tracing::warn!(reason = fault.reason.name(), "erasures wait for the database");
            }
            tokio::select! {
                () = token.cancelled() => {}
                () = pause(AGAIN) => {}
                () = state.erasing.wake.notified() => {}
            }
        }
    });
}

impl Service {
    pub(crate) async fn erase_memories(
        &self,
        request: Request<pb::EraseMemoriesRequest>,
    ) -> Result<pb::EraseMemoriesResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let mut call = Call::write(state, &request, &r.user_id, &r.agent_id)?;
        // Two copies of one request race, or two erasures: the later one is older than the epoch of the earlier one.
        call.scope = call.scope.ageless();
        let key = call.key("EraseMemories", &r.request_id, r)?;
        let mut answer = match state.replay::<pb::EraseMemoriesResponse>(&call, key.as_ref()).await? {
            Some(answer) => answer,
            None => state.begin(&call, r).await?,
        };
        let Some(begun) = &answer.erasure else { return Ok(answer) };
        let id = Uuid::parse_str(&begun.erasure_id).map_err(|_| Fault::new(Reason::Internal, "a stored answer is damaged"))?;
        let driver = Arc::clone(state);
        let driven = detached_write(async move { driver.advance(id).await });
        // It goes on without its caller; what holds it up is in the receipt.
        if let Ok(Err(fault)) = tokio::time::timeout(PATIENCE, driven).await {
            tracing::warn!(reason = fault.reason.name(), "an erasure waits for the database");
        }
        answer.erasure = state.receipt(id).await?;
        Ok(answer)
    }

    pub(crate) async fn get_erasure(&self, request: Request<pb::GetErasureRequest>) -> Result<pb::GetErasureResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let erasure = state.own_erasure(Claims::of(&request)?, &r.user_id, &r.erasure_id).await?;
        Ok(pb::GetErasureResponse { erasure: state.receipt(erasure.erasure_id).await? })
    }

    pub(crate) async fn verify_erasure(
        &self,
        request: Request<pb::VerifyErasureRequest>,
    ) -> Result<pb::VerifyErasureResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let erasure = state.own_erasure(Claims::of(&request)?, &r.user_id, &r.erasure_id).await?;
        let words = words("texts", &r.texts)?;
        let found = state.sweep(&erasure, false, &words).await?;
        let erasure_id = erasure.erasure_id;
        let ids = state.database.read(move |db| erasures::items(db, erasure_id, Item::Record, false, u32::MAX)).await?;
        let (in_index, mut unanswered) = match state.present(&erasure.owner, &ids).await {
            Ok(found) => (Some(found.len() as u64), Vec::new()),
            Err(_) => (None, vec!["longterm.index".to_owned()]),
        };
        let row = |store: &str, remaining: u64| pb::ErasedStore {
            store: store.to_owned(),
            remaining,
            verified: true,
            ..pb::ErasedStore::default()
        };
        let of = |store: &str| found.0.get(store).map_or(0, |(found, _)| *found);
        let mut stores: Vec<pb::ErasedStore> = wipe::STORES.iter().map(|store| row(store, of(store))).collect();
        stores.extend(in_index.map(|found| row("longterm.index", found)));
        stores.sort_by(|a, b| a.store.cmp(&b.store));
        let absent = unanswered.is_empty() && stores.iter().all(|store| store.remaining == 0);
        unanswered.sort();
        Ok(pb::VerifyErasureResponse { absent, stores, unanswered, time: Some(wire_time(state.ports.clock.now())) })
    }
}

/// The journal, for routers.
#[derive(Clone, Debug)]
pub struct Journal {
    state: Arc<State>,
}

impl Journal {
    /// Over the role's state.
    #[must_use]
    pub const fn new(state: Arc<State>) -> Self {
        Self { state }
    }

    async fn list(
        &self,
        request: Request<internal::ListOpenErasuresRequest>,
    ) -> Result<internal::ListOpenErasuresResponse, Fault> {
        Claims::of(&request)?;
        let r = request.into_inner();
        let now = self.state.ports.clock.now();
        let named = match r.erasure_id.as_str() {
            "" => None,
            text => Some(Uuid::parse_str(text).map_err(|_| Fault::field("erasure_id", "is no UUID"))?),
        };
        let since = erasures::Since { open: now.plus(-TAKEN), closed: now.plus(-MEDIA) };
        let read = move |db: &Connection| {
            let found = match named {
                None => erasures::take_up(db, since, now)?,
                Some(id) => {
                    erasures::taken(db, id, now)?;
                    erasures::any(db, id)?.into_iter().filter(|found| r.closed || found.close_time.is_none()).collect()
                }
            };
            let mut out = Vec::with_capacity(found.len());
            for erasure in found {
                let steps = match erasure.close_time {
                    None => erasures::waiting(db, erasure.erasure_id)?
                        .iter()
                        .map(|w| w.step)
                        .filter(|s| s.is_outside())
                        .map(Step::name)
                        .collect(),
                    Some(_) => erasures::pending_media(db, erasure.erasure_id)?,
                };
                out.push(internal::OpenErasure {
                    tenant_id: erasure.owner.tenant.as_str().to_owned(),
                    scopes: wire_scopes(&erasure, erasures::scopes(db, erasure.erasure_id)?),
                    steps: steps.into_iter().map(str::to_owned).collect(),
                    actor: erasure.actor,
                });
            }
            Ok::<_, Fault>(internal::ListOpenErasuresResponse { erasures: out })
        };
        // Nothing to take up is the rule: then nothing is written.
        if named.is_none() && !self.state.database.read(move |db| erasures::any_outside(db, since)).await? {
            return Ok(internal::ListOpenErasuresResponse::default());
        }
        self.state.database.write(read).await
    }

    async fn settle(&self, request: Request<internal::SettleErasureRequest>) -> Result<internal::SettleErasureResponse, Fault> {
        Claims::of(&request)?.require_write()?;
        let r = request.into_inner();
        let id = Uuid::parse_str(&r.erasure_id).map_err(|_| Fault::field("erasure_id", "is no UUID"))?;
        let step = Step::from_name(&r.step).filter(|step| step.is_outside());
        let step = step.ok_or_else(|| Fault::field("step", "is no step of a router"))?;
        let now = self.state.ports.clock.now();
        let rows = r.stores.iter().map(|store| stored(step, store)).collect::<Result<Vec<_>, Fault>>()?;
        self.state
            .database
            .write(move |db| {
                let Some(erasure) = erasures::any(db, id)? else {
                    return Err(Fault::not_found("erasure", id.to_string()));
                };
                erasures::taken(db, id, now)?;
                if !r.problem.is_empty() {
                    return erasures::stuck(db, id, step, &r.problem);
                }
                let left: u64 = rows.iter().map(|row| row.remaining).sum();
                let news = erasure.close_time.is_some() || left > 0 || erasures::done(db, id, step)?;
                if news {
                    rows.iter().try_for_each(|row| erasures::add_store(db, id, row))?;
                }
                if left > 0 {
                    erasures::stuck(db, id, step, "something was found when it was looked for again")?;
                }
                Ok(())
            })
            .await?;
        let driver = Arc::clone(&self.state);
        let driven = detached_write(async move { driver.advance(id).await });
        if let Ok(Err(fault)) = tokio::time::timeout(PATIENCE, driven).await {
            tracing::warn!(reason = fault.reason.name(), "an erasure waits for the database");
        }
        Ok(internal::SettleErasureResponse { erasure: self.state.receipt(id).await? })
    }
}

fn stored(step: Step, store: &internal::StoreErasure) -> Result<StoreRow, Fault> {
    if store.store.is_empty() || store.store.len() > 64 || !store.store.starts_with(step.name()) {
        return Err(Fault::field("stores", "must be stores of the step"));
    }
    let medium = match store.physical() {
        internal::PhysicalState::Unspecified | internal::PhysicalState::Gone => Medium::Gone,
        internal::PhysicalState::Pending => Medium::Pending,
        internal::PhysicalState::NotPermitted => Medium::NotPermitted,
    };
    Ok(StoreRow {
        store: store.store.clone(),
        found: store.found,
        removed: store.removed,
        remaining: store.remaining,
        verified: true,
        medium,
        gone_by: common::optional_time("gone_by", store.gone_by.as_ref())?,
        detail: store.detail.chars().take(200).collect(),
    })
}

/// The scopes of an erasure for other layers.
fn wire_scopes(erasure: &Erasure, scopes: Vec<Scope>) -> Vec<internal::ErasureScope> {
    let whole = internal::ErasureScope {
        user_id: erasure.owner.user.as_str().to_owned(),
        erasure_id: erasure.erasure_id.to_string(),
        erase_epoch: erasure.epoch,
        everything: erasure.everything,
        agent_id: erasure.owner.agent.as_ref().map_or_else(String::new, |agent| agent.as_str().to_owned()),
        ..Default::default()
    };
    if erasure.everything {
        return vec![whole];
    }
    // An agent that names records by id may name the user's: where these are repeated does not depend on the agent.
    let whole = internal::ErasureScope { agent_id: String::new(), ..whole };
    let part = |scope: Scope| internal::ErasureScope {
        turns: scope
            .turns
            .into_iter()
            .map(|(session_id, seqs)| internal::TurnRange { session_id, seqs: seqs.into_iter().collect() })
            .collect(),
        texts: scope.texts.into_iter().chain(scope.values).chain(scope.names).collect(),
        short_texts: scope.short.into_iter().collect(),
        keys: scope.keys.into_iter().collect(),
        memory_ids: scope.memory_ids.iter().map(Uuid::to_string).collect(),
        ..whole.clone()
    };
    scopes.into_iter().map(part).collect()
}

fn finish<T>(answer: Result<T, Fault>) -> Result<Response<T>, Status> {
    answer.map(Response::new).map_err(error::status)
}

#[tonic::async_trait]
impl ErasureJournalService for Journal {
    async fn list_open_erasures(
        &self,
        request: Request<internal::ListOpenErasuresRequest>,
    ) -> Result<Response<internal::ListOpenErasuresResponse>, Status> {
        finish(self.list(request).await)
    }
    async fn settle_erasure(
        &self,
        request: Request<internal::SettleErasureRequest>,
    ) -> Result<Response<internal::SettleErasureResponse>, Status> {
        finish(self.settle(request).await)
    }
}
