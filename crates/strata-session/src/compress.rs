//! What is kept of turns: compressions, summaries that a client made, anchors. Reads what a plan needs, has the rules decide
//! (`strata_core::policy::{session, summary}`), and commits by comparing versions. What was appended in between is never covered: a plan covers the turns it has read, no others (case C115).

use crate::store::{Commit, Committed, Redaction, RequestKey, SessionKey, SessionStore, State, TurnsRead, ended, not_found};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strata_core::policy::session::{
    self as policy, Anchor, Maker, Outcome, Role, SeqRange, SessionSettings, Shape, Summary, SummaryBounds, SummarySentence,
    Turn, TurnCues, Verdict, View,
};
use strata_core::policy::summary as truth;
use strata_core::{Clock, Fault, Reason, limits};
use strata_runtime::TaskGroup;
use strata_text::tokens;
use strata_text::turns::{LANGUAGE, turn_cues};

/// Plans that may be overtaken by another commit before the call gives up.
const ATTEMPTS: u32 = 8;
/// Bytes of cues kept for turns that will be judged again.
const CUE_CACHE_BYTES: u64 = 32 * 1024 * 1024;

/// What is to be changed.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// Compress what is due, leaving the newest turns.
    Compress {
        /// How many stay verbatim.
        keep: u32,
    },
    /// Store a summary that was made elsewhere.
    Summary(Claim),
    /// Pin turns.
    Anchor(Vec<u32>),
    /// End the anchors of turns.
    Release(Vec<u32>),
    /// Close a topic of one incarnation, with its last turn: what of it is not compressed yet is (rule S7).
    Topic {
        /// Incarnation of the session.
        incarnation: u64,
        /// Last turn of the topic.
        last: u32,
    },
}

/// A summary that the client made, or a model of the deployment.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) range: SeqRange,
    pub(crate) sentences: Vec<SummarySentence>,
    /// Hash of the turns as they were read for it; empty: not compared.
    pub(crate) source_hash: String,
    /// Who made it.
    pub(crate) made_by: Maker,
}

/// What a change did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edited {
    /// Summary of the range; none when there was no turn to compress.
    pub(crate) summary: Option<Summary>,
    /// All anchors afterwards; of [`Edit::Anchor`] those of the named turns.
    pub(crate) anchors: Vec<Anchor>,
    /// Verdicts of the covered turns.
    pub(crate) verdicts: Vec<Verdict>,
    /// Turns that are no anchors any more.
    pub(crate) released: Vec<u32>,
    /// Anchors that cannot be released.
    pub(crate) kept: Vec<Anchor>,
}

/// Answer of a call: a new one, or the encoded one of the first call with the same request.
pub(crate) enum Answer {
    New(Edited),
    Replay(Vec<u8>),
}

/// A request for repetitions: its key, and how its answer is encoded.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) key: RequestKey,
    pub(crate) encode: &'a (dyn Fn(&Edited) -> Vec<u8> + Send + Sync),
}

/// Session, incarnation, number and hash of the text: a redacted turn is another one (rule E2), in every replica.
type CueKey = (SessionKey, u64, u32, u64);

fn cue_key(key: &SessionKey, incarnation: u64, turn: &Turn) -> CueKey {
    let mut first = [0; 8];
    blake3::Hasher::new().update(turn.text.as_bytes()).finalize_xof().fill(&mut first);
    (key.clone(), incarnation, turn.seq, u64::from_le_bytes(first))
}

/// Runs compressions.
#[derive(Clone, Debug)]
pub(crate) struct Compressor {
    store: Arc<dyn SessionStore>,
    clock: Arc<dyn Clock>,
    tasks: TaskGroup,
    cues: moka::sync::Cache<CueKey, Arc<TurnCues>>,
    /// One compression of a session at a time in this process: plans that race cost much and gain nothing. Sessions that
    /// share a lane wait for each other.
    lanes: Arc<[tokio::sync::Mutex<()>]>,
}

/// Sessions that can be compressed at once.
const LANES: usize = 64;

/// Turns around a turn among which the rest of its tool call stands.
const PAIR_REACH: u32 = 32;

/// What a summary is made from.
#[derive(Clone, Debug)]
struct Origin {
    range: SeqRange,
    /// Coarseness of the result.
    level: u32,
    shape: Shape,
    /// Turns that are shown verbatim beside a summary of the client.
    anchored: BTreeSet<u32>,
    /// By the client; none: by rule.
    claim: Option<Claim>,
}

/// A tool call and its results, for one of them; for any other turn the turn alone.
fn unit_of(pairs: &BTreeMap<u32, u32>, seq: u32) -> BTreeSet<u32> {
    let head = pairs.get(&seq).copied().unwrap_or(seq);
    pairs.iter().filter(|(_, call)| **call == head).map(|(result, _)| *result).chain([head, seq]).collect()
}

/// A commit that only a request would be remembered by.
fn changes_nothing(commit: &Commit) -> bool {
    commit.added.is_empty()
        && commit.removed.is_empty()
        && commit.verdicts.is_empty()
        && commit.pinned.is_empty()
        && commit.unpinned.is_empty()
        && commit.topic.is_none()
}

/// Turns with their cues.
#[derive(Clone, Debug, Default)]
struct Judged(BTreeMap<u32, (Turn, Arc<TurnCues>)>);

impl Judged {
    fn views(&self, range: impl std::ops::RangeBounds<u32>) -> Vec<View<'_>> {
        self.0.range(range).map(|(_, (turn, cues))| View { turn, cues }).collect()
    }

    fn pin(&mut self, pinned: impl Fn(u32) -> bool) {
        for (seq, (turn, _)) in &mut self.0 {
            turn.pinned = pinned(*seq);
        }
    }
}

impl Compressor {
    pub(crate) fn new(store: Arc<dyn SessionStore>, clock: Arc<dyn Clock>, tasks: TaskGroup) -> Self {
        let weigh = |_: &CueKey, cues: &Arc<TurnCues>| {
            let sentence =
                |s: &policy::SentenceCues| 160 + 4 * s.terms.len() + s.values.iter().map(|v| 32 + v.text.len()).sum::<usize>();
            u32::try_from(200 + cues.sentences.iter().map(sentence).sum::<usize>()).unwrap_or(u32::MAX)
        };
        let cues = moka::sync::Cache::builder().max_capacity(CUE_CACHE_BYTES).weigher(weigh).build();
        let lanes = (0..LANES).map(|_| tokio::sync::Mutex::new(())).collect();
        Self { store, clock, tasks, cues, lanes }
    }

    pub(crate) fn lane(&self, key: &SessionKey) -> &tokio::sync::Mutex<()> {
        let tag = key.session_tag();
        let place = tag
            .bytes()
            .chain(key.user().as_str().bytes())
            .fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
        &self.lanes[place % LANES]
    }

    /// Compresses what an append made due, unless it is being done already: what comes in meanwhile is due again with the
    /// next append. Answers whether it ran.
    ///
    /// # Errors
    /// As [`Compressor::run`].
    pub(crate) async fn run_due(&self, settings: &SessionSettings, key: &SessionKey) -> Result<bool, Fault> {
        let Ok(_lane) = self.lane(key).try_lock() else { return Ok(false) };
        self.attempt(settings, key, &Edit::Compress { keep: settings.keep_turns }, None, None).await.map(|_| true)
    }

    /// Closes a topic (rule S7). One that is closed already, or is another session's by now, changes nothing.
    ///
    /// # Errors
    /// As [`Compressor::run`].
    pub(crate) async fn end_topic(
        &self,
        settings: &SessionSettings,
        key: &SessionKey,
        incarnation: u64,
        last: u32,
    ) -> Result<(), Fault> {
        self.run(settings, key, &Edit::Topic { incarnation, last }, None, None).await.map(drop)
    }

    /// Makes a change. With nothing to compress the answer has no summary (rule S8).
    ///
    /// # Errors
    /// `NOT_FOUND`, `SESSION_ENDED`, `REQUEST_ID_REUSED`, `SUMMARY_REFUSED`, `VERSION_MISMATCH`, `INVALID_FIELD` naming turns
    /// that are not there or a range that is none, `OVERLOADED` when changes of other replicas kept coming first, errors of
    /// the store. Nothing was written then.
    pub(crate) async fn run(
        &self,
        settings: &SessionSettings,
        key: &SessionKey,
        edit: &Edit,
        request: Option<Request<'_>>,
        erase_epoch: Option<u64>,
    ) -> Result<Answer, Fault> {
        // An anchor costs nothing to plan again and must not wait for a compression that reads thousands of turns.
        let _lane = match edit {
            Edit::Anchor(_) => None,
            Edit::Compress { .. } | Edit::Summary(_) | Edit::Release(_) | Edit::Topic { .. } => Some(self.lane(key).lock().await),
        };
        self.attempt(settings, key, edit, request, erase_epoch).await
    }

    async fn attempt(
        &self,
        settings: &SessionSettings,
        key: &SessionKey,
        edit: &Edit,
        request: Option<Request<'_>>,
        erase_epoch: Option<u64>,
    ) -> Result<Answer, Fault> {
        for _ in 0..ATTEMPTS {
            let now = self.clock.now();
            if let Some(request) = &request
                && let Some(answer) = self.store.committed(key, now, request.key).await?
            {
                return Ok(Answer::Replay(answer));
            }
            let state = self.store.state(key, now).await?.ok_or_else(|| not_found(key.session()))?;
            let (mut commit, edited) = match edit {
                Edit::Compress { keep } => self.plan(settings, key, &state, *keep).await?,
                Edit::Summary(claim) => self.plan_claim(settings, key, &state, claim).await?,
                Edit::Anchor(seqs) => self.plan_anchors(key, &state, seqs).await?,
                Edit::Release(seqs) => self.plan_release(settings, key, &state, seqs).await?,
                Edit::Topic { incarnation, last } => self.plan_topic(settings, key, &state, *incarnation, *last).await?,
            };
            if request.is_none() && changes_nothing(&commit) {
                return Ok(Answer::New(edited));
            }
            commit.erase_epoch = erase_epoch;
            commit.request = request.as_ref().map(|r| (r.key, (r.encode)(&edited)));
            match self.store.commit(commit).await? {
                Committed::Yes => return Ok(Answer::New(edited)),
                Committed::Raced => {}
                Committed::Gone => return Err(ended(key.session())),
            }
        }
        Err(Fault::new(Reason::Overloaded, "other changes of the session kept coming first; nothing was written")
            .retry_after(100))
    }

    /// What [`Edit::Compress`] would do, with the incarnation; nothing is changed.
    ///
    /// # Errors
    /// As [`Compressor::run`].
    pub(crate) async fn draft(&self, settings: &SessionSettings, key: &SessionKey, keep: u32) -> Result<(u64, Edited), Fault> {
        let state = self.store.state(key, self.clock.now()).await?.ok_or_else(|| not_found(key.session()))?;
        let (_, edited) = self.plan(settings, key, &state, keep).await?;
        Ok((state.head.incarnation, edited))
    }

    /// Remakes adjacent ranges as one from their originals until none are due (rule S4).
    pub(crate) async fn coarsen(&self, settings: &SessionSettings, key: &SessionKey) -> Result<(), Fault> {
        let _lane = self.lane(key).lock().await;
        for _ in 0..ATTEMPTS {
            let Some(state) = self.store.state(key, self.clock.now()).await? else { return Ok(()) };
            let Some(range) = policy::ranges_to_merge(&state.summaries, settings.summary_fan_in) else { return Ok(()) };
            let inside: Vec<&Summary> = state.summaries.iter().filter(|s| s.from >= range.from && s.to <= range.to).collect();
            let level = inside.iter().map(|s| s.level).max().unwrap_or(0) + 1;
            let removed = inside.iter().map(|s| s.from).collect();
            let shape = state.head.shape.unwrap_or(Shape::Exploratory);
            let origin = Origin { range, level, shape, anchored: BTreeSet::new(), claim: None };
            let Some(added) = self.remake(settings, key, &state, origin, &BTreeMap::new()).await? else { return Ok(()) };
            let anchors = state.anchors.iter().filter(|a| a.seq <= state.head.through).cloned().collect();
            let commit = Commit { anchors, removed, added: vec![added], ..self.unchanged(key, &state) };
            if self.store.commit(commit).await? == Committed::Gone {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The range of a summary again, from its originals as they are now; none when they are gone.
    pub(crate) async fn again(
        &self,
        settings: &SessionSettings,
        key: &SessionKey,
        state: &State,
        summary: &Summary,
    ) -> Result<Option<Summary>, Fault> {
        let origin = Origin {
            range: SeqRange { from: summary.from, to: summary.to },
            level: summary.level,
            shape: state.head.shape.unwrap_or(Shape::Exploratory),
            anchored: BTreeSet::new(),
            claim: None,
        };
        self.remake(settings, key, state, origin, &BTreeMap::new()).await
    }

    pub(crate) fn unchanged(&self, key: &SessionKey, state: &State) -> Commit {
        Commit {
            key: key.clone(),
            now: self.clock.now(),
            incarnation: state.head.incarnation,
            version: state.head.version,
            through: state.head.through,
            through_tokens: state.head.through_tokens,
            topic: None,
            shape: None,
            anchors: state.anchors.iter().filter(|a| a.seq <= state.head.through).cloned().collect(),
            removed: Vec::new(),
            added: Vec::new(),
            verdicts: Vec::new(),
            pinned: Vec::new(),
            unpinned: Vec::new(),
            redaction: Redaction::default(),
            erase_epoch: None,
            request: None,
        }
    }

    async fn plan(
        &self,
        settings: &SessionSettings,
        key: &SessionKey,
        state: &State,
        keep: u32,
    ) -> Result<(Commit, Edited), Fault> {
        let head = &state.head;
        let nothing = || (self.unchanged(key, state), Edited { anchors: state.anchors.clone(), ..Edited::default() });
        if head.last <= head.through {
            return Ok(nothing());
        }
        let pending = self.read(key, head.incarnation, head.through + 1, head.last).await?.0;
        let Some(range) = policy::range_due(settings, &pending, keep) else { return Ok(nothing()) };
        self.plan_range(settings, key, state, pending, range, None).await
    }

    /// The end of a topic: its turns are compressed whatever their number, those of the new one are not (rules S6, S7).
    async fn plan_topic(
        &self,
        settings: &SessionSettings,
        key: &SessionKey,
        state: &State,
        incarnation: u64,
        last: u32,
    ) -> Result<(Commit, Edited), Fault> {
        let head = &state.head;
        if head.incarnation != incarnation || last <= head.topic || last >= head.last {
            return Ok((self.unchanged(key, state), Edited::default()));
        }
        let pending =
            if last > head.through { self.read(key, head.incarnation, head.through + 1, head.last).await?.0 } else { Vec::new() };
        let (commit, edited) = match policy::whole_calls(&pending, SeqRange { from: head.through + 1, to: last }) {
            Some(range) => self.plan_range(settings, key, state, pending, range, None).await?,
            None => (self.unchanged(key, state), Edited::default()),
        };
        Ok((Commit { topic: Some(last), ..commit }, edited))
    }

    /// A summary that was made elsewhere, of the next turns or instead of whole ranges (rules S3 to S6).
    async fn plan_claim(
        &self,
        settings: &SessionSettings,
        key: &SessionKey,
        state: &State,
        claim: &Claim,
    ) -> Result<(Commit, Edited), Fault> {
        let (head, range) = (&state.head, claim.range);
        if range.to > head.last {
            return Err(Fault::field("to_seq", format!("the last turn of the session is {}", head.last)));
        }
        if range.from == head.through + 1 {
            let pending = self.read(key, head.incarnation, range.from, head.last).await?.0;
            let pairs = policy::tool_pairs(&pending);
            if let Some((_, call)) = pairs.iter().find(|(result, call)| **call <= range.to && **result > range.to) {
                return Err(Fault::field("to_seq", format!("parts the tool call of turn {call} from its results (rule S6)")));
            }
            return self.plan_range(settings, key, state, pending, range, Some(claim.clone())).await;
        }
        let inside: Vec<&Summary> = state.summaries.iter().filter(|s| s.from >= range.from && s.to <= range.to).collect();
        let whole = inside.first().is_some_and(|s| s.from == range.from) && inside.last().is_some_and(|s| s.to == range.to);
        if !whole {
            let next = head.through + 1;
            let fix =
                format!("must be {next}, the first turn that is not compressed yet, or range over whole summaries (rule S4)");
            return Err(Fault::field("from_seq", fix));
        }
        let origin = Origin {
            range,
            level: inside.iter().map(|s| s.level).max().unwrap_or(0),
            shape: state.head.shape.unwrap_or(Shape::Exploratory),
            anchored: state.anchors.iter().map(|a| a.seq).collect(),
            claim: Some(claim.clone()),
        };
        let removed = inside.iter().map(|s| s.from).collect();
        let added = self.remake(settings, key, state, origin, &BTreeMap::new()).await?.ok_or_else(failed)?;
        let commit = Commit { removed, added: vec![added.clone()], ..self.unchanged(key, state) };
        Ok((commit, Edited { summary: Some(added), anchors: state.anchors.clone(), ..Edited::default() }))
    }

    /// Turns that are anchored by wish (rule S2c), each with the rest of its tool call (rule S6).
    async fn plan_anchors(&self, key: &SessionKey, state: &State, seqs: &[u32]) -> Result<(Commit, Edited), Fault> {
        let head = &state.head;
        if let Some(seq) = seqs.iter().find(|seq| **seq > head.last) {
            return Err(Fault::field("seqs", format!("there is no turn {seq}; the last turn of the session is {}", head.last)));
        }
        let named = self.store.pick(key, self.clock.now(), head.incarnation, seqs).await?;
        let mut wanted: BTreeSet<u32> = seqs.iter().copied().collect();
        for (turn, _) in named.iter().filter(|(turn, _)| matches!(turn.role, Role::Assistant | Role::Tool)) {
            let from = if turn.role == Role::Tool { turn.seq.saturating_sub(PAIR_REACH).max(1) } else { turn.seq };
            let near = self.read(key, head.incarnation, from, turn.seq.saturating_add(PAIR_REACH)).await?.0;
            wanted.extend(unit_of(&policy::tool_pairs(&near), turn.seq));
        }
        let known: BTreeMap<u32, &Anchor> = state.anchors.iter().map(|a| (a.seq, a)).collect();
        let anchor = |seq: &u32| {
            let new = || Anchor { seq: *seq, rule: strata_core::RuleId("S2c"), retracted_by: 0 };
            known.get(seq).map_or_else(new, |anchor| (*anchor).clone())
        };
        let anchors = wanted.iter().map(anchor).collect();
        let pinned = wanted.iter().copied().filter(|seq| !state.pins.contains(seq)).collect();
        Ok((Commit { pinned, ..self.unchanged(key, state) }, Edited { anchors, ..Edited::default() }))
    }

    /// Anchors that end by wish. Their turns are judged again without the wish, and the ranges they stand in are remade, so
    /// that what was verbatim is summarised now (rules S2, S3).
    async fn plan_release(
        &self,
        settings: &SessionSettings,
        key: &SessionKey,
        state: &State,
        seqs: &[u32],
    ) -> Result<(Commit, Edited), Fault> {
        let (head, named) = (&state.head, seqs.iter().copied().collect::<BTreeSet<u32>>());
        let anchors: BTreeMap<u32, &Anchor> = state.anchors.iter().map(|a| (a.seq, a)).collect();
        let mut commit = self.unchanged(key, state);
        let (mut released, mut kept) = (BTreeSet::new(), Vec::new());
        for summary in &state.summaries {
            let asked: Vec<u32> =
                named.range(summary.from..=summary.to).copied().filter(|seq| anchors.contains_key(seq)).collect();
            if asked.is_empty() {
                continue;
            }
            let (turns, stored) = self.read(key, head.incarnation, summary.from, summary.to).await?;
            let pairs = policy::tool_pairs(&turns);
            let units: BTreeSet<u32> = asked.iter().flat_map(|seq| unit_of(&pairs, *seq)).collect();
            let stored: BTreeMap<u32, Verdict> = stored.into_iter().map(|v| (v.seq, v)).collect();
            let mut judged = Judged::default();
            self.judge_into(&mut judged, key, head.incarnation, turns).await?;
            judged.pin(|seq| state.pins.contains(&seq) && !named.contains(&seq) && !units.contains(&seq));
            let again =
                self.tasks.blocking("session release", move || policy::judge(&judged.views(..))).await.map_err(|_| failed())?;
            let mut newer = BTreeMap::new();
            for mut verdict in again.into_iter().filter(|v| units.contains(&v.seq)) {
                let Some(anchor) = anchors.get(&verdict.seq) else { continue };
                // What later ranges took back is not seen from here.
                if let Some(old) = stored.get(&verdict.seq).filter(|old| old.retracted_by > verdict.retracted_by) {
                    verdict.retracted_by = old.retracted_by;
                    verdict.retracted_sentences.clone_from(&old.retracted_sentences);
                    verdict.denied.clone_from(&old.denied);
                }
                if matches!(verdict.rule.0, "S2a" | "S6") && verdict.is_anchor() {
                    kept.push((*anchor).clone());
                    continue;
                }
                if verdict.outcome == Outcome::Anchored {
                    verdict.outcome = Outcome::Summarised;
                }
                released.insert(verdict.seq);
                newer.insert(verdict.seq, verdict);
            }
            if newer.is_empty() {
                continue;
            }
            let origin = Origin {
                range: SeqRange { from: summary.from, to: summary.to },
                level: summary.level,
                shape: head.shape.unwrap_or(Shape::Exploratory),
                anchored: BTreeSet::new(),
                claim: None,
            };
            if let Some(remade) = self.remake(settings, key, state, origin, &newer).await? {
                commit.removed.push(summary.from);
                commit.added.push(remade);
            }
            commit.verdicts.extend(newer.into_values());
        }
        // Turns that were not compressed yet are anchors by wish alone.
        released.extend(named.range(head.through + 1..).copied().filter(|seq| state.pins.contains(seq)));
        commit.anchors.retain(|anchor| !released.contains(&anchor.seq));
        commit.unpinned = released.iter().copied().filter(|seq| state.pins.contains(seq)).collect();
        Ok((commit, Edited { released: released.into_iter().collect(), kept, ..Edited::default() }))
    }

    /// Compresses one range: by rule, or as it was claimed.
    async fn plan_range(
        &self,
        settings: &SessionSettings,
        key: &SessionKey,
        state: &State,
        pending: Vec<Turn>,
        range: SeqRange,
        claim: Option<Claim>,
    ) -> Result<(Commit, Edited), Fault> {
        let head = &state.head;
        let mut judged = Judged::default();
        self.judge_into(&mut judged, key, head.incarnation, pending).await?;
        // Anchors of earlier ranges may be released, and with a retraction any turn within reach may be hit.
        let old: Vec<u32> = state
            .anchors
            .iter()
            .map(|a| a.seq)
            .filter(|seq| *seq <= head.through)
            .rev()
            .take(crate::store::WINDOW_ANCHORS as usize)
            .collect();
        let picked = self.store.pick(key, self.clock.now(), head.incarnation, &old).await?;
        self.judge_into(&mut judged, key, head.incarnation, picked.into_iter().map(|(turn, _)| turn).collect()).await?;
        let mut earlier: BTreeMap<u32, Verdict> = BTreeMap::new();
        if judged.views(head.through + 1..).iter().any(|v| v.cues.retracts()) && head.through > 0 {
            let from = (head.through + 1).saturating_sub(settings.retraction_reach).max(1);
            let (turns, verdicts) = self.read(key, head.incarnation, from, head.through).await?;
            self.judge_into(&mut judged, key, head.incarnation, turns).await?;
            earlier.extend(verdicts.into_iter().map(|v| (v.seq, v)));
        }
        // A wish may have come, or gone, after the turn.
        judged.pin(|seq| state.pins.contains(&seq));

        let settings = settings.clone();
        let state = Arc::new(state.clone());
        let judged = Arc::new(judged);
        let decide = {
            let (judged, state) = (Arc::clone(&judged), Arc::clone(&state));
            move || decide(&settings, &state, &judged, range, &earlier, claim.as_ref())
        };
        let decided = self.tasks.blocking("session plan", decide).await.map_err(|_| failed())??;

        // Ranges that hold a turn which has been taken back since are remade from their originals without it.
        let mut added = vec![decided.summary.clone()];
        let mut removed = Vec::new();
        for old in &state.summaries {
            let hit = decided.retracted.range(old.from..=old.to).next().is_some();
            if hit {
                let origin = Origin {
                    range: SeqRange { from: old.from, to: old.to },
                    level: old.level,
                    shape: decided.shape,
                    anchored: BTreeSet::new(),
                    claim: None,
                };
                if let Some(remade) = self.remake(&decided.settings, key, &state, origin, &decided.retracted).await? {
                    removed.push(old.from);
                    added.push(remade);
                }
            }
        }
        let tokens: u64 = judged.views(range.from..=range.to).iter().map(|v| u64::from(v.turn.tokens)).sum();
        let mut verdicts = decided.verdicts.clone();
        verdicts.extend(decided.retracted.values().cloned());
        // What was taken back is no wish any more (rule S2b).
        let unpinned: Vec<u32> =
            verdicts.iter().filter(|v| !v.is_anchor() && state.pins.contains(&v.seq)).map(|v| v.seq).collect();
        let commit = Commit {
            through: range.to,
            through_tokens: state.head.through_tokens + tokens,
            shape: if state.head.declared { None } else { Some(decided.shape) },
            anchors: decided.anchors.clone(),
            removed,
            added,
            verdicts,
            unpinned,
            ..self.unchanged(key, &state)
        };
        let pins = state.anchors.iter().filter(|a| a.seq > range.to).cloned();
        let anchors = decided.anchors.into_iter().chain(pins).collect();
        Ok((commit, Edited { summary: Some(decided.summary), anchors, verdicts: decided.verdicts, ..Edited::default() }))
    }

    /// One range again, from its originals and the verdicts they have, `newer` ones first.
    async fn remake(
        &self,
        settings: &SessionSettings,
        key: &SessionKey,
        state: &State,
        origin: Origin,
        newer: &BTreeMap<u32, Verdict>,
    ) -> Result<Option<Summary>, Fault> {
        let range = origin.range;
        let (turns, stored) = self.read(key, state.head.incarnation, range.from, range.to).await?;
        let mut verdicts: BTreeMap<u32, Verdict> = stored.into_iter().map(|v| (v.seq, v)).collect();
        verdicts.extend(newer.range(range.from..=range.to).map(|(seq, v)| (*seq, v.clone())));
        let mut judged = Judged::default();
        self.judge_into(&mut judged, key, state.head.incarnation, turns).await?;
        let bounds = SummaryBounds {
            tokens: settings.summary_tokens,
            tool_tokens: settings.tool_sentence_tokens,
            shape: origin.shape,
            level: origin.level,
        };
        let work = move || {
            let views = judged.views(..);
            let Some(summary) = policy::summarise(&views, &verdicts, bounds, &tokens::count, &tokens::cut) else {
                return Ok(None);
            };
            match origin.claim {
                None => Ok(Some(summary)),
                Some(claim) => claimed(summary, &claim, &views, &verdicts, &origin.anchored, bounds).map(Some),
            }
        };
        self.tasks.blocking("session summary", work).await.map_err(|_| failed())?
    }

    /// Turns of a range with their verdicts, in as many steps as their size asks for.
    pub(crate) async fn read(
        &self,
        key: &SessionKey,
        incarnation: u64,
        from: u32,
        to: u32,
    ) -> Result<(Vec<Turn>, Vec<Verdict>), Fault> {
        let (mut turns, mut verdicts) = (Vec::new(), Vec::new());
        let mut next = from;
        while next <= to {
            let TurnsRead { head, turns: part, verdicts: judged } =
                self.store.turns(key, self.clock.now(), next, to).await?.ok_or_else(|| ended(key.session()))?;
            if head.incarnation != incarnation {
                return Err(ended(key.session()));
            }
            let Some(last) = part.last() else { break };
            next = last.seq + 1;
            turns.extend(part);
            verdicts.extend(judged);
        }
        Ok((turns, verdicts))
    }

    /// Adds turns with their cues, read off the async threads unless cached.
    async fn judge_into(&self, judged: &mut Judged, key: &SessionKey, incarnation: u64, turns: Vec<Turn>) -> Result<(), Fault> {
        let (cache, key) = (self.cues.clone(), key.clone());
        let work = move || {
            turns
                .into_iter()
                .map(|turn| {
                    let place = cue_key(&key, incarnation, &turn);
                    let cues = cache.get(&place).unwrap_or_else(|| {
                        let cues = Arc::new(turn_cues(&turn.text, turn.role));
                        cache.insert(place, Arc::clone(&cues));
                        cues
                    });
                    (turn.seq, (turn, cues))
                })
                .collect::<Vec<_>>()
        };
        judged.0.extend(self.tasks.blocking("session cues", work).await.map_err(|_| failed())?);
        Ok(())
    }

    /// Shape of the newest turns by rule, for a session whose shape is not known yet.
    pub(crate) async fn shape(
        &self,
        key: &SessionKey,
        incarnation: u64,
        last: u32,
    ) -> Result<(Shape, strata_core::rule::Finding), Fault> {
        let turns = self.read(key, incarnation, last.saturating_sub(SHAPE_TURNS).max(1), last).await?.0;
        let mut judged = Judged::default();
        self.judge_into(&mut judged, key, incarnation, turns).await?;
        Ok(policy::infer_shape(&judged.views(..)))
    }
}

/// Newest turns that say what shape a session has.
const SHAPE_TURNS: u32 = 40;

fn failed() -> Fault {
    Fault::new(Reason::Internal, "a compression ended unexpectedly; nothing was written")
}

/// What the rules decided.
struct Decided {
    settings: SessionSettings,
    summary: Summary,
    shape: Shape,
    /// All anchors up to the end of the range.
    anchors: Vec<Anchor>,
    /// Verdicts of the range.
    verdicts: Vec<Verdict>,
    /// Turns of earlier ranges that a new turn takes back, with their new verdicts.
    retracted: BTreeMap<u32, Verdict>,
}

fn decide(
    settings: &SessionSettings,
    state: &State,
    judged: &Judged,
    range: SeqRange,
    earlier: &BTreeMap<u32, Verdict>,
    claim: Option<&Claim>,
) -> Result<Decided, Fault> {
    let all = judged.views(..);
    let verdicts = policy::judge(&all);
    let by_seq: BTreeMap<u32, Verdict> = verdicts.into_iter().map(|v| (v.seq, v)).collect();
    let covered: Vec<Verdict> = by_seq.range(range.from..=range.to).map(|(_, v)| v.clone()).collect();

    // Of a turn that was judged before, only what the new turns do to it counts: they see less of its past than the
    // judgement then did.
    let new_from = state.head.through + 1;
    let mut retracted = BTreeMap::new();
    for (seq, verdict) in by_seq.range(..new_from) {
        let known = earlier.get(seq).map_or(0, |v| v.retracted_by);
        if verdict.retracted_by >= new_from && verdict.retracted_by != known {
            let mut verdict = verdict.clone();
            if let Some(old) = earlier.get(seq) {
                let sentences: BTreeSet<u32> =
                    old.retracted_sentences.iter().chain(&verdict.retracted_sentences).copied().collect();
                let denied: BTreeSet<String> = old.denied.iter().chain(&verdict.denied).cloned().collect();
                verdict.retracted_sentences = sentences.into_iter().collect();
                verdict.denied = denied.into_iter().collect();
            }
            retracted.insert(*seq, verdict);
        }
    }
    let mut anchors: BTreeMap<u32, Anchor> = BTreeMap::new();
    for anchor in state.anchors.iter().filter(|a| a.seq < new_from) {
        let released = match (retracted.get(&anchor.seq), by_seq.get(&anchor.seq)) {
            (Some(verdict), _) => !verdict.is_anchor(),
            (None, Some(verdict)) => anchor.rule.0 == "S2d" && !verdict.is_anchor(),
            (None, None) => false,
        };
        if !released {
            let retracted_by = retracted.get(&anchor.seq).map_or(anchor.retracted_by, |v| v.retracted_by);
            anchors.insert(anchor.seq, Anchor { retracted_by, ..anchor.clone() });
        }
    }
    anchors.extend(policy::next_anchors(&[], &covered, range.to).into_iter().map(|a| (a.seq, a)));

    let (inferred, _) = policy::infer_shape(&judged.views(new_from..));
    let shape = match (state.head.declared, state.head.shape) {
        (true, Some(shape)) => shape,
        // A session that once was work stays work: small talk in between does not unmake it.
        (_, Some(known)) if known < inferred => known,
        _ => inferred,
    };
    let bounds = SummaryBounds { tokens: settings.summary_tokens, tool_tokens: settings.tool_sentence_tokens, shape, level: 0 };
    let views = judged.views(range.from..=range.to);
    let mut summary = policy::summarise(&views, &by_seq, bounds, &tokens::count, &tokens::cut).ok_or_else(failed)?;
    if let Some(claim) = claim {
        let anchored = anchors.keys().copied().collect();
        summary = claimed(summary, claim, &views, &by_seq, &anchored, bounds)?;
    }
    let anchors = anchors.into_values().collect();
    Ok(Decided { settings: settings.clone(), summary, shape, anchors, verdicts: covered, retracted })
}

/// The claimed sentences in place of those that the rules made of the same turns, if they are true to them. The value index
/// is the service's own.
fn claimed(
    rules: Summary,
    claim: &Claim,
    views: &[View<'_>],
    verdicts: &BTreeMap<u32, Verdict>,
    anchored: &BTreeSet<u32>,
    bounds: SummaryBounds,
) -> Result<Summary, Fault> {
    if !claim.source_hash.is_empty() && claim.source_hash != rules.source_hash {
        return Err(Fault::new(Reason::VersionMismatch, "source_hash: the turns are not those it was made of; read them again"));
    }
    let summary = Summary { sentences: claim.sentences.clone(), made_by: claim.made_by, ..rules };
    truth::verify(&summary, views, verdicts, anchored, bounds, LANGUAGE).map_err(|flaws| truth::refusal(&flaws))?;
    Ok(summary)
}

/// Values of windows are listed newest first up to a bound: how many each summary may list.
pub(crate) fn value_shares(summaries: &[&Summary]) -> Vec<usize> {
    let mut left = limits::WINDOW_VALUES;
    let mut shares: Vec<usize> = summaries
        .iter()
        .rev()
        .map(|summary| {
            let share = summary.values.len().min(left);
            left -= share;
            share
        })
        .collect();
    shares.reverse();
    shares
}
