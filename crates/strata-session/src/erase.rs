//! What an erasure takes from the sessions of a user (rule E2): turns that quote it are redacted in place, and what was made
//! of them is made again without it. Found by reference, and by a search of everything that was written before the erasure.
//!
//! It goes session by session, in order of id, and a call stops after a while with a cursor. Whatever it does is one atomic
//! step of the store that can be repeated: a crash between two steps leaves nothing half-done that a repetition does not find,
//! for a summary names the hash of the turns it was made from, and a redacted turn the erasure that redacted it.

use crate::artifacts;
use crate::shared::Shared;
use crate::store::{Commit, Committed, Head, Redaction, SessionKey, State, TurnsRead, UserTag};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use strata_api::convert::erasure::wire_stores;
use strata_api::internal::v1 as pb;
use strata_core::policy::erasure::{Counts, MARKER, Medium, Purge, Scope};
use strata_core::policy::session::{self as policy, Outcome, SessionFact, Summary, Turn, Verdict};
use strata_core::{FactKey, Fault, Reason, RuleId, SessionId};
use strata_runtime::ports::Stopwatch;
use strata_text::needles::Needles;
use strata_text::tokens;

/// Time after which a call hands back a cursor.
const BUDGET: Duration = Duration::from_secs(2);
/// Longest wait for the medium at the end.
const PATIENCE: Duration = Duration::from_secs(3);
/// Sessions whose heads are read at a time.
const PAGE: u32 = 50;
/// Turns redacted in one step of the store.
const BATCH: usize = 100;
/// Bytes of their texts.
const BATCH_BYTES: usize = 1024 * 1024;
/// Times that a session is begun anew because something else changed it.
const ATTEMPTS: u32 = 16;

const SESSIONS: &str = "session.sessions";
const TURNS: &str = "session.turns";
const SUMMARIES: &str = "session.summaries";
const ANCHORS: &str = "session.anchors";
const VALUES: &str = "session.value_index";
const FACTS: &str = "session.facts";
const ARTIFACTS: &str = "session.artifacts";
const REQUESTS: &str = "session.request_ids";
const STORES: [&str; 8] = [SESSIONS, TURNS, SUMMARIES, ANCHORS, VALUES, FACTS, ARTIFACTS, REQUESTS];

/// Where a call goes on.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
struct Cursor {
    /// Last session that was finished.
    after: Option<SessionId>,
    /// The session in work, and its last artifact that was looked at.
    within: Option<(SessionId, String)>,
    /// Something was removed so far.
    touched: bool,
}

impl Cursor {
    fn decode(text: &str) -> Result<Self, Fault> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_str(text).map_err(|_| Fault::field("cursor", "must be empty or the next_cursor of the call before"))
    }

    fn encode(&self) -> Result<String, Fault> {
        serde_json::to_string(self).map_err(|_| Fault::new(Reason::Internal, "a cursor cannot be written"))
    }
}

type Part = (Vec<pb::StoreErasure>, String);

/// One erasure, or a search for what is left of it.
#[derive(Debug)]
pub(crate) struct Eraser<'a> {
    shared: &'a Arc<Shared>,
    user: UserTag,
    scope: Arc<Scope>,
    needles: Arc<Needles>,
}

/// A turn as it will be, beside what it was.
#[derive(Debug)]
struct Redacted {
    turn: Turn,
    /// Bytes and tokens that it is smaller by.
    bytes: i64,
    tokens: i64,
    /// Nothing but the marker is left.
    whole: bool,
}

/// What one page of turns holds.
#[derive(Debug, Default)]
struct Seen {
    redacted: Vec<Redacted>,
    verdicts: Vec<Verdict>,
    /// Turns that some erasure has redacted before.
    marked: BTreeSet<u32>,
    /// Of which nothing is left.
    empty: BTreeSet<u32>,
    /// Turns that were said after the erasure.
    late: BTreeSet<u32>,
    /// One of these holds it again.
    repeated: bool,
    /// Verdicts that name it as a denied value.
    denied: usize,
}

/// What stands in a session's turns as a whole.
#[derive(Debug, Default)]
struct Marks {
    marked: BTreeSet<u32>,
    empty: BTreeSet<u32>,
    late: BTreeSet<u32>,
    repeated: bool,
    denied: usize,
}

impl Marks {
    /// What stands there.
    fn see(&mut self, seen: &Seen) {
        self.marked.extend(&seen.marked);
        self.empty.extend(&seen.empty);
        self.late.extend(&seen.late);
        self.repeated |= seen.repeated;
        self.denied += seen.denied;
    }

    /// What will stand there once it is redacted.
    fn take(&mut self, seen: &Seen) {
        self.see(seen);
        for redacted in &seen.redacted {
            self.marked.insert(redacted.turn.seq);
            if redacted.whole {
                self.empty.insert(redacted.turn.seq);
            }
        }
    }
}

impl<'a> Eraser<'a> {
    pub(crate) fn new(shared: &'a Arc<Shared>, user: UserTag, scope: Scope) -> Self {
        let needles = Needles::new(scope.texts.iter().map(String::as_str), scope.short_texts.iter().map(String::as_str));
        Self { shared, user, scope: Arc::new(scope), needles: Arc::new(needles) }
    }

    /// Erases; answers with the counts of this part and the cursor of the next, empty at the end.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming `cursor`, errors of the store: what was done stays done.
    pub(crate) async fn erase(&self, cursor: &str) -> Result<Part, Fault> {
        if cursor.is_empty() {
            // First of all: from now on nothing older comes in (rule E2).
            let now = self.shared.ports.clock.now();
            let highest = self.shared.store.raise_erase_epoch(&self.user, self.scope.epoch, now).await?;
            self.shared.epochs.raise(&self.user, highest);
            while self.shared.store.drop_expired(&self.user, now).await? {}
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
        let mut cursor = Cursor::decode(cursor)?;
        let watch = Stopwatch::start();
        let mut counts = Counts::default();
        loop {
            let now = self.shared.ports.clock.now();
            let heads = self.shared.store.session_page(&self.user, None, now, cursor.after.as_ref(), PAGE).await?;
            if heads.is_empty() {
                break;
            }
            for head in heads {
                if watch.elapsed() >= BUDGET {
                    return Ok((wire_stores(&counts, &[]), cursor.encode()?));
                }
                let within = cursor.within.take().filter(|(session, _)| *session == head.session).map(|(_, trace)| trace);
                let mut part = Counts::default();
                let left = self.session(&head, within, remove, &watch, &mut part).await?;
                cursor.touched |= !part.is_empty();
                counts.add(&part);
                if let Some(trace) = left {
                    cursor.within = Some((head.session, trace));
                    return Ok((wire_stores(&counts, &[]), cursor.encode()?));
                }
                cursor.after = Some(head.session);
            }
        }
        let purge = match (remove, cursor.touched) {
            (false, _) => Purge::Look,
            (true, true) => Purge::Anew,
            (true, false) => Purge::Again,
        };
        let medium: Medium = self.shared.store.medium(&self.user, purge, PATIENCE).await?;
        Ok((wire_stores(&counts, &STORES.map(|store| (store, Some(medium)))), String::new()))
    }

    /// One session. Answers with the artifact that was looked at last when time ran out in the middle.
    async fn session(
        &self,
        head: &Head,
        within: Option<String>,
        remove: bool,
        watch: &Stopwatch,
        counts: &mut Counts,
    ) -> Result<Option<String>, Fault> {
        let key = SessionKey::of_user(self.user.clone(), head.session.clone());
        if self.scope.everything {
            if self.scope.covers(head.agent.as_ref()) && self.scope.reaches(head.create_time) {
                self.whole(&key, remove, counts).await?;
            }
            return Ok(None);
        }
        if !self.scope.covers(head.agent.as_ref()) && !self.scope.turns.contains_key(&head.session) {
            return Ok(None);
        }
        if within.is_none() {
            if remove {
                // A compression of this process waits for the end of it rather than be overtaken again and again.
                let _lane = self.shared.compressor.lane(&key).lock().await;
                self.redact(&key, counts).await?;
            } else {
                self.look(&key, counts).await?;
            }
            if remove && !counts.is_empty() {
                self.shared.searcher.forget(&key);
                let mut again = Counts::default();
                self.look(&key, &mut again).await?;
                counts.remain(&again);
            }
        }
        self.artifacts(&key, within, remove, watch, counts).await
    }

    /// Ends a session: a content-free tombstone is left (rule S12).
    async fn whole(&self, key: &SessionKey, remove: bool, counts: &mut Counts) -> Result<(), Fault> {
        let store = &self.shared.store;
        let now = self.shared.ports.clock.now();
        let Some(state) = store.state(key, now).await? else { return Ok(()) };
        let facts = store.facts(key, now).await?.map_or(0, |facts| facts.len());
        let artifacts = store.artifacts(key, now).await?.len();
        let answers = store.answers(key, now).await?.len();
        let values = state.summaries.iter().map(|summary| summary.values.len()).sum();
        let items = [
            (SESSIONS, 1),
            (TURNS, state.head.last as usize),
            (SUMMARIES, state.summaries.len()),
            (ANCHORS, state.anchors.len()),
            (VALUES, values),
            (FACTS, facts),
            (ARTIFACTS, artifacts),
            (REQUESTS, answers),
        ];
        if !remove {
            items.into_iter().for_each(|(store, items)| counts.found(store, items));
            return Ok(());
        }
        match store.end(key, None, now, None).await {
            Ok(_) => {}
            Err(fault) if fault.reason == Reason::NotFound => return Ok(()),
            Err(fault) => return Err(fault),
        }
        self.shared.searcher.forget(key);
        items.into_iter().for_each(|(store, items)| counts.removed(store, items));
        if store.state(key, now).await?.is_some_and(|again| again.head.incarnation == state.head.incarnation) {
            let mut again = Counts::default();
            items.into_iter().for_each(|(store, items)| again.found(store, items));
            counts.remain(&again);
        }
        Ok(())
    }

    /// Reads a page of turns for what is to be redacted.
    async fn page(&self, session: &SessionId, read: TurnsRead) -> Result<Seen, Fault> {
        let (scope, needles) = (Arc::clone(&self.scope), Arc::clone(&self.needles));
        let named = self.scope.turns.get(session).cloned().unwrap_or_default();
        let work = move || {
            let verdicts: BTreeMap<u32, Verdict> = read.verdicts.into_iter().map(|v| (v.seq, v)).collect();
            let mut seen = Seen::default();
            for turn in read.turns {
                let verdict = verdicts.get(&turn.seq);
                let named = named.contains(&turn.seq);
                if turn.redacted > 0 {
                    seen.marked.insert(turn.seq);
                    if turn.text == MARKER {
                        seen.empty.insert(turn.seq);
                    }
                }
                if !scope.reaches(turn.time) {
                    seen.late.insert(turn.seq);
                    if !named {
                        seen.repeated |= needles.matches(&turn.text);
                        continue;
                    }
                }
                let (seq, empty) = (turn.seq, turn.redacted > 0 && turn.text == MARKER);
                let redacted = redacted(turn, named, verdict, &scope, &needles);
                let empty = empty || redacted.as_ref().is_some_and(|redacted| redacted.whole);
                if let Some(verdict) = verdicts.get(&seq) {
                    seen.denied += usize::from(verdict.denied.iter().any(|value| needles.matches(value)));
                    seen.verdicts.extend(cleaned(verdict, empty, &needles));
                }
                seen.redacted.extend(redacted);
            }
            seen
        };
        self.shared.tasks.blocking("session erasure", work).await.map_err(|_| failed())
    }

    /// Redacts turns, then sees to what was made of them.
    async fn redact(&self, key: &SessionKey, counts: &mut Counts) -> Result<(), Fault> {
        let answers = self.matching_answers(key).await?;
        'again: for _ in 0..ATTEMPTS {
            let Some(mut state) = self.shared.store.state(key, self.shared.ports.clock.now()).await? else { return Ok(()) };
            let mut marks = Marks::default();
            let mut next = 1;
            while next <= state.head.last {
                let now = self.shared.ports.clock.now();
                let Some(read) = self.shared.store.turns(key, now, next, state.head.last).await? else { return Ok(()) };
                let Some(last) = read.turns.last().map(|turn| turn.seq) else { break };
                if read.head.incarnation != state.head.incarnation {
                    continue 'again;
                }
                let seen = self.page(key.session(), read).await?;
                marks.take(&seen);
                for part in batches(seen.redacted, seen.verdicts) {
                    if !self.commit_turns(key, &mut state, part, counts).await? {
                        continue 'again;
                    }
                }
                next = last + 1;
            }
            counts.removed(VALUES, marks.denied);
            if !self.summaries(key, &mut state, &marks, counts).await? {
                continue 'again;
            }
            self.facts(key, &marks, true, counts).await?;
            let hit = !counts.is_empty();
            if hit || (answers > 0 && !marks.repeated) {
                // With any of the steps above they have lost their content already; they count all the same.
                self.shared.store.forget_answers(key, self.shared.ports.clock.now()).await?;
                counts.removed(REQUESTS, answers);
            }
            return Ok(());
        }
        Err(Fault::new(Reason::Overloaded, "other changes of a session kept coming first; what was erased stays erased")
            .retry_after(100))
    }

    /// Puts redacted turns in place and forgets what was noted of them, in one step. False: something else came first.
    async fn commit_turns(
        &self,
        key: &SessionKey,
        state: &mut State,
        (redacted, verdicts): (Vec<Redacted>, Vec<Verdict>),
        counts: &mut Counts,
    ) -> Result<bool, Fault> {
        let through = state.head.through;
        let covered: i64 = redacted.iter().filter(|r| r.turn.seq <= through).map(|r| r.tokens).sum();
        let whole: BTreeSet<u32> = redacted.iter().filter(|r| r.whole).map(|r| r.turn.seq).collect();
        let touched: BTreeSet<u32> = redacted.iter().map(|r| r.turn.seq).collect();
        let anchors = state.anchors.iter().filter(|anchor| touched.contains(&anchor.seq)).count();
        let through_tokens = state.head.through_tokens.saturating_add_signed(-covered);
        let unchanged = self.shared.compressor.unchanged(key, state);
        let turns = redacted.len();
        let commit = Commit {
            through_tokens,
            anchors: unchanged.anchors.iter().filter(|anchor| !whole.contains(&anchor.seq)).cloned().collect(),
            unpinned: whole.iter().copied().filter(|seq| state.pins.contains(seq)).collect(),
            verdicts: verdicts.into_iter().filter(|verdict| verdict.seq <= through).collect(),
            redaction: Redaction {
                bytes: redacted.iter().map(|r| r.bytes).sum(),
                tokens: redacted.iter().map(|r| r.tokens).sum(),
                turns: redacted.into_iter().map(|r| r.turn).collect(),
                answers: true,
            },
            ..unchanged
        };
        if self.shared.store.commit(commit).await? != Committed::Yes {
            return Ok(false);
        }
        counts.removed(TURNS, turns);
        counts.removed(ANCHORS, anchors);
        state.head.version += 1;
        state.head.through_tokens = through_tokens;
        state.anchors.retain(|anchor| !whole.contains(&anchor.seq));
        state.pins.retain(|seq| !whole.contains(seq));
        Ok(true)
    }

    /// Remakes every summary that holds it or comes from what was redacted. False: something else came first.
    async fn summaries(&self, key: &SessionKey, state: &mut State, marks: &Marks, counts: &mut Counts) -> Result<bool, Fault> {
        let settings = self.shared.settings.load().session.clone();
        for summary in state.summaries.clone() {
            let (hit, values) = self.holds(key, state, &summary, marks).await?;
            if !hit {
                continue;
            }
            let mut remade = self.shared.compressor.again(&settings, key, state, &summary).await?;
            if let Some(remade) = &mut remade {
                // What only stands there once more is cut out by name.
                remade
                    .sentences
                    .retain(|s| marks.late.is_superset(&s.seqs.iter().copied().collect()) || !self.needles.matches(&s.text));
                remade.values.retain(|v| marks.late.contains(&v.seq) || !self.needles.matches(&v.value));
            }
            let commit = Commit {
                removed: vec![summary.from],
                added: remade.into_iter().collect(),
                redaction: Redaction { answers: true, ..Redaction::default() },
                ..self.shared.compressor.unchanged(key, state)
            };
            if self.shared.store.commit(commit).await? != Committed::Yes {
                return Ok(false);
            }
            state.head.version += 1;
            counts.removed(SUMMARIES, 1);
            counts.removed(VALUES, values);
        }
        Ok(true)
    }

    /// Whether a summary holds it, or was made when a turn it covers was not redacted yet; and how many of its values do.
    async fn holds(&self, key: &SessionKey, state: &State, summary: &Summary, marks: &Marks) -> Result<(bool, usize), Fault> {
        let sentence =
            summary.sentences.iter().any(|s| !s.seqs.iter().all(|seq| marks.late.contains(seq)) && self.needles.matches(&s.text));
        let mut stale = false;
        let covered: BTreeSet<u32> = marks.marked.range(summary.from..=summary.to).copied().collect();
        if !covered.is_empty() {
            let (turns, _) = self.shared.compressor.read(key, state.head.incarnation, summary.from, summary.to).await?;
            stale = summary.source_hash != policy::source_hash(&turns);
        }
        let held = |v: &&policy::ValueReference| {
            (stale && covered.contains(&v.seq)) || (!marks.late.contains(&v.seq) && self.needles.matches(&v.value))
        };
        let values = summary.values.iter().filter(held).count();
        Ok((sentence || stale || values > 0, values))
    }

    /// Facts under an erased key, with an erased value, or from a turn of which nothing is left.
    async fn facts(&self, key: &SessionKey, marks: &Marks, remove: bool, counts: &mut Counts) -> Result<(), Fault> {
        let now = self.shared.ports.clock.now();
        let facts = self.shared.store.facts(key, now).await?.unwrap_or_default();
        let hit = |fact: &&SessionFact| {
            let of_nothing = marks.empty.contains(&fact.seq);
            (self.scope.reaches(fact.time) || of_nothing)
                && (of_nothing
                    || self.scope.keys.contains(&fact.key)
                    || self.needles.matches(&fact.value)
                    || self.needles.matches(fact.key.as_str()))
        };
        let hits: Vec<FactKey> = facts.iter().filter(hit).map(|fact| fact.key.clone()).collect();
        if hits.is_empty() {
            return Ok(());
        }
        if !remove {
            counts.found(FACTS, hits.len());
            return Ok(());
        }
        let (removed, emptied): (Vec<_>, Vec<_>) = hits.into_iter().partition(|key| self.needles.matches(key.as_str()));
        self.shared.store.erase_facts(key, now, &emptied, &removed).await?;
        counts.removed(FACTS, emptied.len() + removed.len());
        Ok(())
    }

    /// How many remembered answers hold it.
    async fn matching_answers(&self, key: &SessionKey) -> Result<usize, Fault> {
        let answers = self.shared.store.answers(key, self.shared.ports.clock.now()).await?;
        let needles = Arc::clone(&self.needles);
        let work = move || answers.iter().filter(|answer| needles.matches_bytes(answer)).count();
        self.shared.tasks.blocking("session erasure", work).await.map_err(|_| failed())
    }

    /// Counts what a removal would take, artifacts apart.
    async fn look(&self, key: &SessionKey, counts: &mut Counts) -> Result<(), Fault> {
        let Some(state) = self.shared.store.state(key, self.shared.ports.clock.now()).await? else { return Ok(()) };
        let mut marks = Marks::default();
        let mut touched = BTreeSet::new();
        let mut next = 1;
        while next <= state.head.last {
            let now = self.shared.ports.clock.now();
            let Some(read) = self.shared.store.turns(key, now, next, state.head.last).await? else { return Ok(()) };
            let Some(last) = read.turns.last().map(|turn| turn.seq) else { break };
            let seen = self.page(key.session(), read).await?;
            marks.see(&seen);
            touched.extend(seen.redacted.iter().map(|redacted| redacted.turn.seq));
            next = last + 1;
        }
        counts.found(TURNS, touched.len());
        counts.found(VALUES, marks.denied);
        counts.found(ANCHORS, state.anchors.iter().filter(|anchor| touched.contains(&anchor.seq)).count());
        for summary in &state.summaries {
            let (hit, values) = self.holds(key, &state, summary, &marks).await?;
            let derived = touched.range(summary.from..=summary.to).next().is_some();
            counts.found(SUMMARIES, usize::from(hit || derived));
            counts.found(VALUES, values);
        }
        self.facts(key, &marks, false, counts).await?;
        if !marks.repeated {
            counts.found(REQUESTS, self.matching_answers(key).await?);
        }
        Ok(())
    }

    /// Artifacts after `within` that hold it. Answers with the one that was looked at last when time runs out.
    async fn artifacts(
        &self,
        key: &SessionKey,
        within: Option<String>,
        remove: bool,
        watch: &Stopwatch,
        counts: &mut Counts,
    ) -> Result<Option<String>, Fault> {
        if self.needles.is_empty() {
            return Ok(None);
        }
        let mut looked = within;
        for artifact in self.shared.store.artifacts(key, self.shared.ports.clock.now()).await? {
            if looked.as_ref().is_some_and(|looked| artifact.trace_id <= *looked) || !self.scope.reaches(artifact.create_time) {
                continue;
            }
            if watch.elapsed() >= BUDGET && looked.is_some() {
                return Ok(looked);
            }
            let told =
                [&artifact.trace_id, &artifact.task_id, &artifact.content_type].iter().any(|text| self.needles.matches(text));
            let needles = Arc::clone(&self.needles);
            let held = match artifacts::any_part(self.shared, key, &artifact, move |bytes| needles.matches_bytes(bytes)).await {
                Ok(held) => held,
                Err(fault) if fault.reason == Reason::ArtifactGone => false,
                Err(fault) => return Err(fault),
            };
            if told || held {
                if remove {
                    self.shared.store.erase_artifact(key, self.shared.ports.clock.now(), &artifact, told).await?;
                    // The answer to the call that stored it names its hash.
                    self.shared.store.forget_answers(key, self.shared.ports.clock.now()).await?;
                    counts.removed(ARTIFACTS, 1);
                } else {
                    counts.found(ARTIFACTS, 1);
                }
            }
            looked = Some(artifact.trace_id);
        }
        Ok(None)
    }
}

fn failed() -> Fault {
    Fault::new(Reason::Internal, "a part of an erasure ended unexpectedly; what was erased stays erased")
}

/// The turn without what is to be erased; none when it has none of it. A turn that is named, and holds it in other words than
/// those that are known, goes whole.
fn redacted(turn: Turn, named: bool, verdict: Option<&Verdict>, scope: &Scope, needles: &Needles) -> Option<Redacted> {
    let named = named && turn.redacted < scope.epoch && turn.text != MARKER;
    let cut = needles.redact(&turn.text);
    let call = turn.tool_call_id.as_deref().is_some_and(|id| needles.matches(id));
    let (speaker, external) = (needles.matches(&turn.speaker), needles.matches(&turn.external_id));
    if !named && cut.is_none() && !call && !speaker && !external {
        return None;
    }
    let text = match cut {
        // Sentences that were taken back are known by their place, which moves.
        Some(text) if verdict.is_none_or(|verdict| verdict.retracted_sentences.is_empty()) => text,
        Some(_) => MARKER.to_owned(),
        None if named => MARKER.to_owned(),
        None => turn.text.clone(),
    };
    let after = Turn {
        tokens: tokens::count(&text),
        text,
        tool_call_id: turn.tool_call_id.clone().filter(|_| !call),
        speaker: if speaker { String::new() } else { turn.speaker.clone() },
        external_id: if external { String::new() } else { turn.external_id.clone() },
        redacted: scope.epoch.max(turn.redacted),
        ..turn
    };
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    Some(Redacted {
        bytes: signed(turn.bytes()) - signed(after.bytes()),
        tokens: i64::from(turn.tokens) - i64::from(after.tokens),
        whole: after.text == MARKER,
        turn: after,
    })
}

/// The verdict of a turn of which nothing is left, or without a denied value that is to be erased; none when it stays.
fn cleaned(verdict: &Verdict, empty: bool, needles: &Needles) -> Option<Verdict> {
    let mut clean = verdict.clone();
    clean.denied.retain(|value| !needles.matches(value));
    if empty {
        clean = Verdict {
            seq: verdict.seq,
            rule: RuleId("E2"),
            outcome: Outcome::Dropped,
            retracted_by: verdict.retracted_by,
            retracted_sentences: Vec::new(),
            denied: Vec::new(),
        };
    }
    (clean != *verdict).then_some(clean)
}

/// Steps of a bounded size. Verdicts go with the first that comes, or alone.
fn batches(redacted: Vec<Redacted>, verdicts: Vec<Verdict>) -> Vec<(Vec<Redacted>, Vec<Verdict>)> {
    let mut parts: Vec<(Vec<Redacted>, Vec<Verdict>)> = Vec::new();
    let mut bytes = 0;
    for redacted in redacted {
        let size = redacted.turn.text.len();
        match parts.last_mut().filter(|(turns, _)| turns.len() < BATCH && bytes + size <= BATCH_BYTES) {
            Some((turns, _)) => {
                turns.push(redacted);
                bytes += size;
            }
            None => {
                parts.push((vec![redacted], Vec::new()));
                bytes = size;
            }
        }
    }
    for part in verdicts.chunks(BATCH * 10) {
        parts.push((Vec::new(), part.to_vec()));
    }
    parts
}
