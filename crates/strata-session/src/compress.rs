//! Compression: reads what a plan needs, has the rules decide (`strata_core::policy::session`), and commits by comparing
//! versions. What was appended in between is never covered: a plan covers the turns it has read, no others (case C115).

use crate::store::{Commit, Committed, RequestKey, SessionKey, SessionStore, State, TurnsRead, ended, not_found};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strata_core::policy::session::{
    self as policy, Anchor, Role, SeqRange, SessionSettings, Shape, Summary, SummaryBounds, Turn, TurnCues, Verdict, View,
};
use strata_core::{Clock, Fault, Reason, limits};
use strata_runtime::TaskGroup;
use strata_text::{tokens, turns::turn_cues};

/// Plans that may be overtaken by another commit before the call gives up.
const ATTEMPTS: u32 = 8;
/// Bytes of cues kept for turns that will be judged again.
const CUE_CACHE_BYTES: u64 = 32 * 1024 * 1024;

/// What a compression did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compression {
    /// Summary of the new range; none when there was no turn to compress.
    pub(crate) summary: Option<Summary>,
    /// All anchors afterwards.
    pub(crate) anchors: Vec<Anchor>,
    /// Verdicts of the covered turns.
    pub(crate) verdicts: Vec<Verdict>,
}

/// Answer of a call: a new one, or the encoded one of the first call with the same request.
pub(crate) enum Answer {
    New(Compression),
    Replay(Vec<u8>),
}

/// A request for repetitions: its key, and how its answer is encoded.
pub(crate) struct Request<'a> {
    pub(crate) key: RequestKey,
    pub(crate) encode: &'a (dyn Fn(&Compression) -> Vec<u8> + Send + Sync),
}

type CueKey = (SessionKey, u64, u32);

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

/// Turns with their cues.
#[derive(Clone, Debug, Default)]
struct Judged(BTreeMap<u32, (Turn, Arc<TurnCues>)>);

impl Judged {
    fn views(&self, range: impl std::ops::RangeBounds<u32>) -> Vec<View<'_>> {
        self.0.range(range).map(|(_, (turn, cues))| View { turn, cues }).collect()
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

    fn lane(&self, key: &SessionKey) -> &tokio::sync::Mutex<()> {
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
        self.attempt(settings, key, settings.keep_turns, None).await.map(|_| true)
    }

    /// Compresses what is due, leaving the `keep` newest turns, then remakes old ranges coarser. With nothing to compress
    /// the answer has no summary (rule S8).
    ///
    /// # Errors
    /// `NOT_FOUND`, `SESSION_ENDED`, `REQUEST_ID_REUSED`, `OVERLOADED` when compressions of other replicas kept coming first, errors
    /// of the store. Nothing was written then.
    pub(crate) async fn run(
        &self,
        settings: &SessionSettings,
        key: &SessionKey,
        keep: u32,
        request: Option<Request<'_>>,
    ) -> Result<Answer, Fault> {
        let _lane = self.lane(key).lock().await;
        self.attempt(settings, key, keep, request).await
    }

    async fn attempt(
        &self,
        settings: &SessionSettings,
        key: &SessionKey,
        keep: u32,
        request: Option<Request<'_>>,
    ) -> Result<Answer, Fault> {
        for _ in 0..ATTEMPTS {
            let now = self.clock.now();
            if let Some(request) = &request
                && let Some(answer) = self.store.committed(key, now, request.key).await?
            {
                return Ok(Answer::Replay(answer));
            }
            let state = self.store.state(key, now).await?.ok_or_else(|| not_found(key.session()))?;
            let (mut commit, compression) = self.plan(settings, key, state, keep).await?;
            commit.request = request.as_ref().map(|r| (r.key, (r.encode)(&compression)));
            if compression.summary.is_none() && request.is_none() {
                return Ok(Answer::New(compression));
            }
            match self.store.commit(commit).await? {
                Committed::Yes => return Ok(Answer::New(compression)),
                Committed::Raced => {}
                Committed::Gone => return Err(ended(key.session())),
            }
        }
        Err(Fault::new(Reason::Overloaded, "other compressions of the session kept coming first; nothing was written")
            .retry_after(100))
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
            let Some(added) = self.remake(settings, key, &state, range, level, shape, &BTreeMap::new()).await? else {
                return Ok(());
            };
            let anchors = state.anchors.iter().filter(|a| a.seq <= state.head.through).cloned().collect();
            let commit = Commit { anchors, removed, added: vec![added], ..self.unchanged(key, &state) };
            if self.store.commit(commit).await? == Committed::Gone {
                return Ok(());
            }
        }
        Ok(())
    }

    fn unchanged(&self, key: &SessionKey, state: &State) -> Commit {
        Commit {
            key: key.clone(),
            now: self.clock.now(),
            incarnation: state.head.incarnation,
            version: state.head.version,
            through: state.head.through,
            through_tokens: state.head.through_tokens,
            shape: None,
            anchors: state.anchors.iter().filter(|a| a.seq <= state.head.through).cloned().collect(),
            removed: Vec::new(),
            added: Vec::new(),
            verdicts: Vec::new(),
            request: None,
        }
    }

    async fn plan(
        &self,
        settings: &SessionSettings,
        key: &SessionKey,
        state: State,
        keep: u32,
    ) -> Result<(Commit, Compression), Fault> {
        let head = &state.head;
        let nothing = |state: &State| {
            (self.unchanged(key, state), Compression { anchors: state.anchors.clone(), ..Compression::default() })
        };
        if head.last <= head.through {
            return Ok(nothing(&state));
        }
        let pending = self.read(key, head.incarnation, head.through + 1, head.last).await?.0;
        let Some(range) = policy::range_due(settings, &pending, keep) else { return Ok(nothing(&state)) };

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

        let settings = settings.clone();
        let state = Arc::new(state);
        let judged = Arc::new(judged);
        let decide = {
            let (judged, state) = (Arc::clone(&judged), Arc::clone(&state));
            move || decide(&settings, &state, &judged, range, &earlier)
        };
        let decided = self.tasks.blocking("session plan", decide).await.map_err(|_| failed())?;

        // Ranges that hold a turn which has been taken back since are remade from their originals without it.
        let mut added = vec![decided.summary.clone()];
        let mut removed = Vec::new();
        for old in &state.summaries {
            let hit = decided.retracted.range(old.from..=old.to).next().is_some();
            if hit {
                let range = SeqRange { from: old.from, to: old.to };
                if let Some(remade) =
                    self.remake(&decided.settings, key, &state, range, old.level, decided.shape, &decided.retracted).await?
                {
                    removed.push(old.from);
                    added.push(remade);
                }
            }
        }
        let tokens: u64 = judged.views(range.from..=range.to).iter().map(|v| u64::from(v.turn.tokens)).sum();
        let mut verdicts = decided.verdicts.clone();
        verdicts.extend(decided.retracted.values().cloned());
        let commit = Commit {
            through: range.to,
            through_tokens: state.head.through_tokens + tokens,
            shape: if state.head.declared { None } else { Some(decided.shape) },
            anchors: decided.anchors.clone(),
            removed,
            added,
            verdicts,
            ..self.unchanged(key, &state)
        };
        let pins = state.anchors.iter().filter(|a| a.seq > range.to).cloned();
        let anchors = decided.anchors.into_iter().chain(pins).collect();
        Ok((commit, Compression { summary: Some(decided.summary), anchors, verdicts: decided.verdicts }))
    }

    /// One range again, from its originals and the verdicts they have, `newer` ones first.
    #[expect(clippy::too_many_arguments, reason = "a summary's whole origin, named")]
    async fn remake(
        &self,
        settings: &SessionSettings,
        key: &SessionKey,
        state: &State,
        range: SeqRange,
        level: u32,
        shape: Shape,
        newer: &BTreeMap<u32, Verdict>,
    ) -> Result<Option<Summary>, Fault> {
        let (turns, stored) = self.read(key, state.head.incarnation, range.from, range.to).await?;
        let mut verdicts: BTreeMap<u32, Verdict> = stored.into_iter().map(|v| (v.seq, v)).collect();
        verdicts.extend(newer.range(range.from..=range.to).map(|(seq, v)| (*seq, v.clone())));
        let mut judged = Judged::default();
        self.judge_into(&mut judged, key, state.head.incarnation, turns).await?;
        let bounds = SummaryBounds { tokens: settings.summary_tokens, tool_tokens: settings.tool_sentence_tokens, shape, level };
        let work = move || policy::summarise(&judged.views(..), &verdicts, bounds, &tokens::count, &tokens::cut);
        self.tasks.blocking("session summary", work).await.map_err(|_| failed())
    }

    /// Turns of a range with their verdicts, in as many steps as their size asks for.
    async fn read(&self, key: &SessionKey, incarnation: u64, from: u32, to: u32) -> Result<(Vec<Turn>, Vec<Verdict>), Fault> {
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
                    let place = (key.clone(), incarnation, turn.seq);
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
) -> Decided {
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
    let summary = policy::summarise(&views, &by_seq, bounds, &tokens::count, &tokens::cut).unwrap_or_else(|| Summary {
        from: range.from,
        to: range.to,
        sentences: Vec::new(),
        values: Vec::new(),
        made_by: policy::Maker::Rules,
        level: 0,
        from_time: strata_core::Timestamp::ZERO,
        to_time: strata_core::Timestamp::ZERO,
    });
    Decided { settings: settings.clone(), summary, shape, anchors: anchors.into_values().collect(), verdicts: covered, retracted }
}

/// Whether a turn is worth finding: instructions are not part of what was said.
pub(crate) const fn is_said(role: Role) -> bool {
    match role {
        Role::User | Role::Assistant | Role::Tool => true,
        Role::System => false,
    }
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
