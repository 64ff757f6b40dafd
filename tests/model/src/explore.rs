//! Every interleaving of a small world. The steps of ledger, saga, board and target are the functions of `strata-core` that
//! production calls; what stands here is who calls them when, what is on the way between them, and what breaks.
//!
//! A router does one thing at a time and keeps nothing but that; a call that it gave up may still arrive, once or twice, after
//! anything else. A header is not refused for its age here, which only adds to what may happen.

use crate::bug::Bug;
use stateright::{Model, Property};
use std::collections::{BTreeMap, BTreeSet};
use strata_core::policy::ownership::{self, Chain, ClaimVerdict, KeyState, Mark, Place, SealVerdict, next_epoch};
use strata_core::policy::promotion::{
    self, Action, AtTarget, AtTargetNow, Event, Hold, JournalFinding, Origin, Promotion, State,
};
use strata_core::policy::working::{self, Board, Content, FactWrite, Goal, Ownership, Settle};
use strata_core::time::SECOND;
use strata_core::{FactKey, Owner, Reason, SessionId, TaskId, TenantId, Timestamp, UserId, id::Level};

const KEY: &str = "k";
const TASK: &str = "t";
const SESSION: &str = "s";
const PROMOTION: &str = "p";
/// Seconds at which something happens: within a promotion's deadline, after it, after its seal has fallen, and much later.
const INSTANTS: [i64; 4] = [0, 11, 15, 60];
/// Calls that may be on the way although nobody waits for them.
const ON_THE_WAY: usize = 2;

/// How often each thing may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Left {
    /// Writes of agents to the board.
    pub writes: u8,
    /// Writes of the user to long-term memory.
    pub remembers: u8,
    /// Promotions of the board's fact.
    pub promotes: u8,
    /// A router dies in the middle of what it does.
    pub crashes: u8,
    /// A router gives a call up that is still on the way.
    pub timeouts: u8,
    /// A call is carried out and its answer is lost.
    pub lost: u8,
    /// A call of the saga arrives twice.
    pub doubles: u8,
    /// The target is switched off between seal and apply, and on again.
    pub offs: u8,
    /// The ledger forgets everything.
    pub flushes: u8,
    /// The ledger forgets its last write.
    pub failovers: u8,
    /// The user confirms the candidate.
    pub confirms: u8,
    /// The task ends.
    pub ends: u8,
    /// The user's memory is erased.
    pub erases: u8,
    /// The clock moves to the next of the instants.
    pub ticks: u8,
}

/// The bounds of one exploration.
#[derive(Clone, Copy, Debug)]
pub struct Small {
    /// How often each thing may happen.
    pub left: Left,
    /// Whether the gate lets the fact in at once; else it is queued until it is confirmed.
    pub active: bool,
    /// Whether the fact is a session's, which holds no seal but the epoch of one; else a board's.
    pub session: bool,
    /// The planted mistake.
    pub bug: Option<Bug>,
}

/// Where the fact is before it is promoted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Source {
    Board(Box<Board>),
    Session(Said),
}

/// A session's fact.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Said {
    value: String,
    epoch: u64,
    overlay: bool,
}

impl Source {
    /// Value and epoch of the fact.
    fn fact(&self) -> Option<(String, u64)> {
        match self {
            Self::Board(board) => board.facts.get(&key()).map(|fact| (value_of(&fact.content), fact.epoch)),
            Self::Session(said) => Some((said.value.clone(), said.epoch)),
        }
    }
}

/// What the target knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Target {
    /// Epoch of its ownership; 0 while it does not own the key.
    owner: u64,
    /// Highest epoch it ever gave.
    highest: u64,
    /// What it noted of each beginning of the promotion.
    rows: BTreeMap<String, Row>,
    erase_epoch: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Row {
    Applied,
    Queued,
    Aborted,
}

/// A signed call on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Call {
    from: usize,
    erase_epoch: u64,
    body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Body {
    /// `below`: long-term memory had said, when the claim was made, that it owns the key.
    Put {
        epoch: u64,
        value: u8,
        below: bool,
    },
    Seal {
        epoch: u64,
        deadline: Timestamp,
    },
    /// `fenced`: the beginning that is undone, where nothing of it may be applied any more.
    Settle {
        seal_epoch: u64,
        committed: bool,
        epoch: u64,
        fenced: Option<String>,
    },
    Apply {
        apply_id: String,
        deadline: Timestamp,
    },
    Abort {
        apply_id: String,
    },
}

/// What a router is in the middle of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Claiming { owned: u64, floor: u64, value: u8 },
    Putting { call: Call },
    Marking { mark: Mark },
    Driving { entry: Box<Promotion>, call: Call, fencing: Option<Fencing> },
}

/// What a fence is for: what happens once ABORTED stands at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fencing {
    Defer,
    Refuse,
    SourceRefused,
}

/// What the world promised, for the invariants that no single store can see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Ghost {
    /// The seal that the board acknowledged, until it is settled, and when it falls.
    sealed: Option<Timestamp>,
    /// Epoch of the seal that the session answered.
    given: u64,
    /// Beginnings whose source was unsealed as not applied.
    undone: BTreeSet<String>,
    promised: bool,
    ledger_lost: bool,
    erased: u64,
    broken: BTreeSet<&'static str>,
}

/// A state of the small world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    instant: usize,
    ledger: KeyState,
    journal: Option<Promotion>,
    /// Ledger and journal before their last change.
    backup: (KeyState, Option<Promotion>),
    source: Option<Source>,
    /// Whether the source is a session.
    session: bool,
    target: Target,
    /// What the target would come back with, where that is less.
    durable: Option<Target>,
    routers: [Option<Doing>; 2],
    way: Vec<Call>,
    left: Left,
    ghost: Ghost,
}

/// One step of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// An agent writes: the router asks long-term memory for owners.
    Write(usize),
    /// It claims the key and sends the write.
    Claim(usize),
    /// The user's words at long-term memory.
    Remember(usize),
    /// The router leaves the mark.
    Mark(usize),
    /// A promotion is journalled.
    Promote(usize),
    /// A router does one thing that the journal calls for.
    Drive(usize, usize),
    /// It finds the target switched off instead.
    Defer(usize),
    /// A deferred one is offered again.
    Offer(usize),
    /// A queued one is confirmed.
    Confirm(usize),
    /// A call arrives and is answered.
    Arrive(usize),
    /// A call arrives; the answer is lost.
    ArriveUnanswered(usize),
    /// A call arrives, is answered, and will arrive again.
    ArriveTwice(usize),
    /// A router waits no longer.
    GiveUp(usize),
    /// A router dies.
    Crash(usize),
    /// Time passes.
    Tick,
    /// FLUSHALL.
    Flush,
    /// A replica takes over that lacks the last write.
    Failover,
    /// EndTask.
    End,
    /// EraseMemories.
    Erase,
    /// The target stops and comes back with what was durable.
    TargetStops,
}

fn now_at(instant: usize) -> Timestamp {
    Timestamp::from_seconds(1_000 + INSTANTS[instant.min(INSTANTS.len() - 1)])
}

fn key() -> FactKey {
    FactKey::new(KEY).expect("a key")
}

fn owner() -> Owner {
    Owner { tenant: TenantId::new("t").expect("an id"), user: UserId::new("u").expect("an id"), agent: None }
}

fn chain(session: bool) -> Chain {
    if session {
        Chain::session(&owner(), &SessionId::new(SESSION).expect("an id"))
    } else {
        Chain::task(&owner(), None, &TaskId::new(TASK).expect("an id"))
    }
}

fn because() -> JournalFinding {
    JournalFinding { rule: "P6".to_owned(), outcome: "DEFERRED".to_owned(), because: String::new() }
}

fn value_of(content: &Content) -> String {
    match content {
        Content::Value(value) => value.clone(),
        Content::Reference { .. } => String::new(),
    }
}

impl World {
    fn new(left: Left, session: bool) -> Self {
        let (mut ledger, chain) = (KeyState::default(), chain(session));
        let lease = now_at(0).plus(3_600 * SECOND);
        let ClaimVerdict::Granted { epoch } = ledger.claim(&chain, 0, now_at(0), lease) else { unreachable!("nobody has it") };
        let source = if session {
            Source::Session(Said { value: "0".to_owned(), epoch, overlay: false })
        } else {
            let goal = Goal { sentence: "Do it.".to_owned(), acceptance: "It is done.".to_owned() };
            let mut board = Board::new(owner(), TaskId::new(TASK).expect("an id"), None, goal, SECOND * 3_600, now_at(0));
            if let Ok(change) = board.decide_facts(vec![write(0)], Some(epoch), now_at(0)) {
                board.apply(change, now_at(0));
            }
            Source::Board(Box::new(board))
        };
        let mut world = Self {
            instant: 0,
            backup: (ledger.clone(), None),
            ledger,
            journal: None,
            source: Some(source),
            session,
            target: Target::default(),
            durable: None,
            routers: [None, None],
            way: Vec::new(),
            left,
            ghost: Ghost::default(),
        };
        world.settle_board();
        world
    }

    fn now(&self) -> Timestamp {
        now_at(self.instant)
    }

    /// Where the source claims the key.
    fn chain(&self) -> Chain {
        chain(self.session)
    }

    fn lease(&self) -> Timestamp {
        self.now().plus(3_600 * SECOND)
    }

    fn broken(&mut self, invariant: &'static str) {
        self.ghost.broken.insert(invariant);
    }

    /// What counts changes and touches makes states differ that behave alike.
    fn settle_board(&mut self) {
        if let Some(Source::Board(board)) = &mut self.source {
            board.version = 1;
            board.idle_deadline = Timestamp(i64::MAX);
        }
    }

    /// A step of the ledger, with the invariants that production asserts.
    fn ledger<T>(&mut self, step: impl FnOnce(&mut KeyState) -> T) -> T {
        let before = self.ledger.clone();
        let answer = step(&mut self.ledger);
        if self.ledger != before {
            if !ownership::invariant::hold(&self.ledger) || !ownership::invariant::epochs_grow(&before, &self.ledger) {
                self.broken(LEDGER);
            }
            self.backup = (before, self.journal.clone());
        }
        answer
    }

    /// Journals what happened, against the revision that the router has read.
    fn advance(&mut self, entry: &Promotion, event: Event) {
        let Ok((next, _)) = promotion::step(entry, event, self.now()) else { return };
        if !promotion::invariant::hold(entry, &next) {
            self.broken(JOURNAL);
        }
        if self.journal.as_ref().is_some_and(|journal| journal.revision == entry.revision) {
            self.backup = (self.ledger.clone(), self.journal.replace(next));
        }
    }

    fn send(&mut self, call: Call) {
        if !self.way.contains(&call) {
            self.way.push(call);
            self.way.sort();
        }
    }

    fn call(&self, from: usize, body: Body) -> Call {
        Call { from, erase_epoch: self.ghost.erased, body }
    }

    /// Sends one call of the saga and waits for it.
    fn drive(&mut self, router: usize, entry: Promotion, body: Body, fencing: Option<Fencing>) {
        let call = self.call(router, body);
        self.send(call.clone());
        self.routers[router] = Some(Doing::Driving { entry: Box::new(entry), call, fencing });
    }

    /// As `strata-router::promote::act`.
    fn act(&mut self, router: usize, action: Action, bug: Option<Bug>) {
        let Some(entry) = self.journal.clone() else { return };
        let (now, place) = (self.now(), self.chain().own().clone());
        match action {
            Action::Probe => {
                if let Some(epoch) = self.seal_claim(&entry, 0) {
                    self.advance(&entry, Event::Sealing { epoch });
                }
            }
            Action::Seal => {
                let floor = entry.seal_epoch.unwrap_or_default().saturating_sub(1);
                if let Some(epoch) = self.seal_claim(&entry, floor) {
                    let deadline = entry.deadline;
                    self.drive(router, entry, Body::Seal { epoch, deadline }, None);
                }
            }
            Action::Apply => {
                let (apply_id, deadline) = (entry.apply_id(), entry.deadline);
                self.drive(router, entry, Body::Apply { apply_id, deadline }, None);
            }
            Action::Abort => {
                if bug == Some(Bug::UndoWithoutFence) && entry.state == State::Prepared {
                    self.advance(&entry, Event::AbortWritten);
                    return;
                }
                let apply_id = entry.apply_id();
                self.drive(router, entry, Body::Abort { apply_id }, None);
            }
            Action::Commit => {
                let seal_epoch = entry.seal_epoch.unwrap_or_default();
                self.drive(router, entry, Body::Settle { seal_epoch, committed: true, epoch: 0, fenced: None }, None);
            }
            Action::Undo => {
                let fresh = self.ledger(|state| state.settle(&place, PROMOTION, None, now));
                let seal_epoch = entry.seal_epoch.unwrap_or_default();
                let epoch = fresh.unwrap_or_else(|| next_epoch(seal_epoch, now));
                // What is in doubt may have been applied: the source is free all the same, by then.
                let fenced = match entry.state {
                    State::InDoubt => None,
                    State::Deferred => Some(Promotion { round: entry.round.saturating_sub(1), ..entry.clone() }.apply_id()),
                    State::Prepared
                    | State::Applied
                    | State::Committed
                    | State::Refused
                    | State::Queued
                    | State::NeedsConsent
                    | State::Aborted
                    | State::Expired => Some(entry.apply_id()),
                };
                self.drive(router, entry, Body::Settle { seal_epoch, committed: false, epoch, fenced }, None);
            }
        }
    }

    fn seal_claim(&mut self, entry: &Promotion, floor: u64) -> Option<u64> {
        let (now, until, chain) = (self.now(), entry.doubt_at(), self.chain());
        match self.ledger(|state| state.seal(&chain, PROMOTION, floor, until, now)) {
            SealVerdict::Sealed { epoch } => Some(epoch),
            SealVerdict::SealedByOther { .. } => None,
        }
    }

    /// A call is carried out; the answer is what the router makes of it.
    fn carry_out(&mut self, call: &Call, small: &Small) -> Answer {
        match &call.body {
            Body::Put { epoch, value, below } => self.put(*epoch, *value, *below, small.bug),
            Body::Seal { epoch, deadline } => self.seal(*epoch, *deadline, small.bug),
            Body::Settle { seal_epoch, committed, epoch, fenced } => self.settle(*seal_epoch, *committed, *epoch, fenced.clone()),
            Body::Apply { apply_id, deadline } => self.apply(apply_id, *deadline, call.erase_epoch, small),
            Body::Abort { apply_id } => self.abort(apply_id),
        }
    }

    fn put(&mut self, epoch: u64, value: u8, below: bool, bug: Option<Bug>) -> Answer {
        let now = self.now();
        let careless = bug == Some(Bug::SkipEpochCheck);
        let Some(source) = &mut self.source else { return Answer::Done };
        let before = source.fact().map_or(0, |(_, epoch)| epoch);
        match source {
            Source::Board(board) => {
                match board.decide_facts(vec![write(value)], if careless { None } else { Some(epoch) }, now) {
                    Ok(change) => board.apply(change, now),
                    Err(fault) if fault.reason == Reason::StaleEpoch => return Answer::Stale(before),
                    Err(_) => return Answer::Done,
                }
            }
            Source::Session(said) => {
                if said.overlay {
                    return Answer::Done;
                }
                if !careless && said.epoch > epoch {
                    return Answer::Stale(before);
                }
                *said = Said { value: value.to_string(), epoch, overlay: false };
            }
        }
        if !ownership::invariant::stores_never_step_back(before, epoch) {
            self.broken(STALE);
        }
        if below {
            self.broken(BELOW);
        }
        if self.ghost.sealed.is_some_and(|falls| now < falls) || epoch < self.ghost.given {
            self.broken(SEALED);
        }
        Answer::Done
    }

    fn seal(&mut self, epoch: u64, deadline: Timestamp, bug: Option<Bug>) -> Answer {
        let now = self.now();
        let ended = || Answer::Happened(Event::SourceEnded { because: because() });
        let refused = || Answer::Happened(Event::SourceRefused { because: because() });
        let Some(source) = &mut self.source else { return ended() };
        let before = source.fact().map_or(0, |(_, epoch)| epoch);
        match source {
            Source::Board(board) => {
                let seal = working::Seal { key: key(), promotion_id: PROMOTION.to_owned(), epoch, deadline };
                match board.decide_seal(&seal, now) {
                    Ok(change) => {
                        if let Some(change) = change
                            && bug != Some(Bug::NoSeal)
                        {
                            board.apply(change, now);
                        }
                    }
                    Err(fault) if fault.reason == Reason::StaleEpoch => return Answer::Stale(before),
                    Err(fault) if fault.reason == Reason::FactOwnedByOtherLayer => return refused(),
                    Err(_) => return Answer::Done,
                }
            }
            Source::Session(said) if said.overlay => return refused(),
            Source::Session(said) if said.epoch > epoch => return Answer::Stale(before),
            Source::Session(said) => {
                if bug != Some(Bug::NoSeal) {
                    said.epoch = epoch;
                }
            }
        }
        let Some((value, at)) = source.fact() else { return ended() };
        match source {
            Source::Board(_) => self.ghost.sealed = Some(working::seal_falls_at(deadline)),
            Source::Session(_) => self.ghost.given = epoch,
        }
        Answer::Happened(Event::Sealed(sealed(value, if bug == Some(Bug::NoSeal) { epoch } else { at })))
    }

    fn settle(&mut self, seal_epoch: u64, committed: bool, epoch: u64, fenced: Option<String>) -> Answer {
        let now = self.now();
        match &mut self.source {
            Some(Source::Board(board)) => {
                let settle = Settle { key: key(), promotion_id: PROMOTION.to_owned(), seal_epoch, committed, epoch };
                if let Some(change) = board.decide_settle(&settle) {
                    board.apply(change, now);
                    self.ghost.sealed = None;
                }
            }
            // It held no seal: where nothing was committed it is not even told.
            Some(Source::Session(said)) => said.overlay |= committed,
            None => {}
        }
        self.ghost.undone.extend(fenced);
        Answer::Happened(Event::Settled)
    }

    fn at(&self) -> AtTarget {
        AtTarget { owned: Some((KEY.to_owned(), self.target.owner)), ..AtTarget::default() }
    }

    fn answer_of(&self, row: Row) -> Event {
        match row {
            Row::Applied => Event::Applied(self.at()),
            Row::Queued => Event::Queued(AtTarget::default()),
            Row::Aborted => Event::AbortWritten,
        }
    }

    fn apply(&mut self, apply_id: &str, deadline: Timestamp, erase_epoch: u64, small: &Small) -> Answer {
        let now = self.now();
        if !ownership::admits_erase_epoch(erase_epoch, self.target.erase_epoch) {
            return Answer::Happened(Event::Refused { findings: vec![because()] });
        }
        let row = self.target.rows.get(apply_id).copied();
        match promotion::at_target(row.map(|row| row != Row::Aborted), deadline, now) {
            AtTargetNow::Refuse => Answer::Happened(Event::AbortWritten),
            AtTargetNow::Repeat => Answer::Happened(self.answer_of(row.unwrap_or(Row::Aborted))),
            AtTargetNow::Apply => {
                if small.bug == Some(Bug::AckBeforeCommit) && self.durable.is_none() {
                    self.durable = Some(self.target.clone());
                }
                // A confirmed candidate is in force already: its next beginning finds it so.
                let row = if small.active || apply_id != PROMOTION { Row::Applied } else { Row::Queued };
                self.target.rows.insert(apply_id.to_owned(), row);
                if row == Row::Applied {
                    self.target.highest = next_epoch(self.target.highest, now);
                    self.target.owner = self.target.highest;
                    if !ownership::admits_erase_epoch(erase_epoch, self.ghost.erased) {
                        self.broken(ERASED);
                    }
                }
                Answer::Happened(self.answer_of(row))
            }
        }
    }

    fn abort(&mut self, apply_id: &str) -> Answer {
        let row = *self.target.rows.entry(apply_id.to_owned()).or_insert(Row::Aborted);
        Answer::Happened(self.answer_of(row))
    }

    /// The answer reaches the router that waits for it.
    fn answered(&mut self, call: &Call, answer: Answer) {
        let Some(doing) = self.routers[call.from].clone() else { return };
        match (doing, answer) {
            (Doing::Putting { call: waits }, answer) if waits == *call => {
                let Body::Put { value, .. } = call.body else { return };
                self.routers[call.from] = match answer {
                    // Owners are asked for anew.
                    Answer::Stale(floor) => Some(Doing::Claiming { owned: self.target.owner, floor, value }),
                    Answer::Done | Answer::Happened(_) => None,
                };
            }
            (Doing::Driving { entry, call: waits, fencing }, answer) if waits == *call => {
                self.routers[call.from] = None;
                match answer {
                    Answer::Done => {}
                    // Claimed again above the board's epoch.
                    Answer::Stale(floor) => {
                        if let Some(epoch) = self.seal_claim(&entry, floor) {
                            let deadline = entry.deadline;
                            self.drive(call.from, *entry, Body::Seal { epoch, deadline }, None);
                        }
                    }
                    Answer::Happened(event) => self.happened(call.from, &entry, event, fencing),
                }
            }
            _ => {}
        }
    }

    fn happened(&mut self, router: usize, entry: &Promotion, event: Event, fencing: Option<Fencing>) {
        let (now, place) = (self.now(), self.chain().own().clone());
        match (&event, entry.state) {
            (Event::Settled, State::Applied | State::Committed) => {
                let mark = entry.owned.clone().map(|(_, epoch)| Mark { place: Place::user(), epoch });
                self.ledger(|state| state.settle(&place, PROMOTION, mark, now));
                self.advance(entry, event);
            }
            (Event::SourceEnded { .. }, _) => {
                self.ledger(|state| state.settle(&place, PROMOTION, None, now));
                self.advance(entry, event);
            }
            (Event::SourceRefused { .. }, _) => {
                self.ledger(|state| state.settle(&place, PROMOTION, None, now));
                let apply_id = entry.apply_id();
                self.drive(router, entry.clone(), Body::Abort { apply_id }, Some(Fencing::SourceRefused));
            }
            (Event::AbortWritten, State::Prepared) if fencing == Some(Fencing::SourceRefused) => {
                self.advance(entry, Event::SourceRefused { because: because() });
            }
            (Event::AbortWritten, State::Prepared) if fencing == Some(Fencing::Defer) => {
                self.advance(entry, Event::FencedOff { because: because() });
            }
            (Event::AbortWritten, State::Prepared) if fencing == Some(Fencing::Refuse) => {
                self.advance(entry, Event::Refused { findings: vec![because()] });
            }
            (Event::Refused { .. }, State::Prepared) if entry.hold == Hold::Sealed => {
                let apply_id = entry.apply_id();
                self.drive(router, entry.clone(), Body::Abort { apply_id }, Some(Fencing::Refuse));
            }
            _ => self.advance(entry, event),
        }
    }
}

/// What came back.
#[derive(Clone, Debug)]
enum Answer {
    Done,
    Stale(u64),
    Happened(Event),
}

fn sealed(value: String, epoch: u64) -> promotion::Seal {
    promotion::Seal { value, source: String::new(), epoch, session_id: String::new(), verified_at: None, turn: None }
}

fn write(value: u8) -> FactWrite {
    FactWrite {
        key: key(),
        content: Content::Value(value.to_string()),
        source: "s".to_owned(),
        trace_id: String::new(),
        verified_at: Some(Timestamp::ZERO),
    }
}

/// Invariants by name; each is a property of the model.
const LEDGER: &str = "the ledger's invariants hold after each of its steps";
const JOURNAL: &str = "the journal's invariants hold after each of its steps";
const STALE: &str = "no store takes a write of an older epoch";
const BELOW: &str = "nobody writes below a level that owns the key";
const SEALED: &str = "a sealed source is not written";
const ERASED: &str = "nothing signed before an erasure is carried out after it";

impl Model for Small {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.left, self.session)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let left = &world.left;
        let now = world.now();
        for router in 0..world.routers.len() {
            match &world.routers[router] {
                None => {
                    if left.writes > 0 && world.source.is_some() {
                        steps.push(Step::Write(router));
                    }
                    if left.remembers > 0 {
                        steps.push(Step::Remember(router));
                    }
                    match &world.journal {
                        None if left.promotes > 0 && world.source.is_some() => steps.push(Step::Promote(router)),
                        None => {}
                        Some(entry) => {
                            let due = promotion::due(entry, now);
                            steps.extend((0..due.len()).map(|at| Step::Drive(router, at)));
                            if due.contains(&Action::Apply) && left.offs > 0 {
                                steps.push(Step::Defer(router));
                            }
                            if entry.state == State::Deferred && due.is_empty() {
                                steps.push(Step::Offer(router));
                            }
                            if entry.state == State::Queued && entry.hold != Hold::Sealed && left.confirms > 0 {
                                steps.push(Step::Confirm(router));
                            }
                        }
                    }
                }
                Some(doing) => {
                    match doing {
                        Doing::Claiming { .. } => steps.push(Step::Claim(router)),
                        Doing::Marking { .. } => steps.push(Step::Mark(router)),
                        Doing::Putting { .. } | Doing::Driving { .. } => {
                            if left.timeouts > 0 {
                                steps.push(Step::GiveUp(router));
                            }
                        }
                    }
                    if left.crashes > 0 {
                        steps.push(Step::Crash(router));
                    }
                }
            }
        }
        for (at, call) in world.way.iter().enumerate() {
            steps.push(Step::Arrive(at));
            if left.lost > 0 {
                steps.push(Step::ArriveUnanswered(at));
            }
            if left.doubles > 0 && !matches!(call.body, Body::Put { .. }) {
                steps.push(Step::ArriveTwice(at));
            }
        }
        if left.ticks > 0 && world.instant + 1 < INSTANTS.len() {
            steps.push(Step::Tick);
        }
        if left.flushes > 0 {
            steps.push(Step::Flush);
        }
        if left.failovers > 0 && (&world.ledger, &world.journal) != (&world.backup.0, &world.backup.1) {
            steps.push(Step::Failover);
        }
        if left.ends > 0 && world.source.is_some() {
            steps.push(Step::End);
        }
        if left.erases > 0 {
            steps.push(Step::Erase);
        }
        if world.durable.is_some() {
            steps.push(Step::TargetStops);
        }
    }

    fn next_state(&self, last: &World, step: Step) -> Option<World> {
        let mut world = last.clone();
        let now = world.now();
        match step {
            Step::Write(router) => {
                world.left.writes -= 1;
                let value = self.left.writes - world.left.writes;
                world.routers[router] = Some(Doing::Claiming { owned: world.target.owner, floor: 0, value });
            }
            Step::Claim(router) => {
                let Some(Doing::Claiming { owned, floor, value }) = world.routers[router].take() else { return None };
                let (lease, chain) = (world.lease(), world.chain());
                let owned_marks: Vec<Mark> =
                    (owned > 0).then(|| Mark { place: Place::user(), epoch: owned }).into_iter().collect();
                let blind = self.bug == Some(Bug::IgnoreChain);
                let verdict = world.ledger(|state| {
                    let mut seen = state.clone();
                    if blind {
                        seen.marks.clear();
                    } else {
                        seen.reconcile(&chain, &owned_marks);
                    }
                    let verdict = seen.claim(&chain, floor, now, lease);
                    if let ClaimVerdict::Granted { .. } = verdict {
                        *state = seen;
                    }
                    verdict
                });
                if let ClaimVerdict::Granted { epoch } = verdict {
                    let call = world.call(router, Body::Put { epoch, value, below: owned > 0 });
                    world.send(call.clone());
                    world.routers[router] = Some(Doing::Putting { call });
                }
            }
            Step::Remember(router) => {
                world.left.remembers -= 1;
                world.target.highest = next_epoch(world.target.highest, now);
                world.target.owner = world.target.highest;
                let mark = Mark { place: Place::user(), epoch: world.target.owner };
                world.routers[router] = Some(Doing::Marking { mark });
            }
            Step::Mark(router) => {
                let Some(Doing::Marking { mark }) = world.routers[router].take() else { return None };
                world.ledger(|state| state.mark(mark));
            }
            Step::Promote(_) => {
                world.left.promotes -= 1;
                let (value, epoch) = world.source.as_ref()?.fact()?;
                let key = KEY.to_owned();
                let origin = if self.session {
                    Origin::SessionFact { session_id: SESSION.to_owned(), key }
                } else {
                    Origin::TaskFact { task_id: TASK.to_owned(), key }
                };
                let mut entry = Promotion::new(PROMOTION.to_owned(), origin, Level::User, String::new(), now);
                entry.journalled = Some(sealed(value, epoch));
                world.ghost.promised = true;
                if self.bug != Some(Bug::DropJournal) {
                    world.backup = (world.ledger.clone(), world.journal.replace(entry));
                }
            }
            Step::Drive(router, at) => {
                let action = *promotion::due(world.journal.as_ref()?, now).get(at)?;
                world.act(router, action, self.bug);
            }
            Step::Defer(router) => {
                world.left.offs -= 1;
                let entry = world.journal.clone()?;
                if entry.hold != Hold::Sealed {
                    world.advance(&entry, Event::TargetOff { because: because() });
                } else if self.bug == Some(Bug::UndoWithoutFence) {
                    world.advance(&entry, Event::FencedOff { because: because() });
                } else {
                    let apply_id = entry.apply_id();
                    world.drive(router, entry, Body::Abort { apply_id }, Some(Fencing::Defer));
                }
            }
            Step::Offer(_) => {
                let entry = world.journal.clone()?;
                world.advance(&entry, Event::Offered);
            }
            Step::Confirm(_) => {
                world.left.confirms -= 1;
                let entry = world.journal.clone()?;
                // The candidate is in force from here on.
                world.target.highest = next_epoch(world.target.highest, now);
                world.target.owner = world.target.highest;
                world.advance(&entry, Event::Readmitted);
            }
            Step::Arrive(at) | Step::ArriveUnanswered(at) | Step::ArriveTwice(at) => {
                let call = world.way.get(at)?.clone();
                let (twice, unanswered) = (matches!(step, Step::ArriveTwice(_)), matches!(step, Step::ArriveUnanswered(_)));
                if twice {
                    world.left.doubles -= 1;
                } else {
                    world.way.remove(at);
                }
                let answer = world.carry_out(&call, self);
                if unanswered {
                    world.left.lost -= 1;
                    // The router gives up and looks at the journal again.
                    if let Some(Doing::Putting { call: waits } | Doing::Driving { call: waits, .. }) = &world.routers[call.from]
                        && *waits == call
                    {
                        world.routers[call.from] = None;
                    }
                } else {
                    world.answered(&call, answer);
                }
            }
            Step::GiveUp(router) => {
                world.left.timeouts -= 1;
                let doing = world.routers[router].take()?;
                if let Doing::Driving { entry, call, fencing: None } = doing
                    && matches!(call.body, Body::Abort { .. })
                    && now >= entry.doubt_at()
                {
                    world.advance(&entry, Event::TargetSilent);
                }
                if world.way.len() > ON_THE_WAY {
                    world.way.remove(0);
                }
            }
            Step::Crash(router) => {
                world.left.crashes -= 1;
                world.routers[router] = None;
            }
            Step::Tick => {
                world.left.ticks -= 1;
                world.instant += 1;
                if world.ghost.sealed.is_some_and(|falls| world.now() >= falls) {
                    world.ghost.sealed = None;
                }
            }
            Step::Flush => {
                world.left.flushes -= 1;
                world.ghost.ledger_lost = true;
                (world.ledger, world.journal) = (KeyState::default(), None);
                world.backup = (KeyState::default(), None);
            }
            Step::Failover => {
                world.left.failovers -= 1;
                world.ghost.ledger_lost = true;
                (world.ledger, world.journal) = world.backup.clone();
            }
            Step::End => {
                world.left.ends -= 1;
                world.source = None;
                (world.ghost.sealed, world.ghost.given) = (None, 0);
                let chain = world.chain();
                world.ledger(|state| state.end(chain.own()));
            }
            Step::Erase => {
                world.left.erases -= 1;
                world.ghost.erased = next_epoch(world.ghost.erased, now);
                if self.bug != Some(Bug::EraseWithoutEpoch) {
                    world.target.erase_epoch = world.ghost.erased;
                }
                world.target.owner = 0;
            }
            Step::TargetStops => world.target = world.durable.take()?,
        }
        world.settle_board();
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        macro_rules! unbroken {
            ($name:ident) => {
                Property::<Self>::always($name, |_, world: &World| !world.ghost.broken.contains($name))
            };
        }
        vec![
            unbroken!(LEDGER),
            unbroken!(JOURNAL),
            unbroken!(STALE),
            unbroken!(BELOW),
            unbroken!(SEALED),
            unbroken!(ERASED),
            Property::<Self>::always("an acknowledged promotion is in the journal", |_, world: &World| {
                !world.ghost.promised || world.ghost.ledger_lost || world.journal.is_some()
            }),
            Property::<Self>::always("what was committed was applied", |_, world: &World| {
                let moved = world.journal.as_ref().is_some_and(|e| matches!(e.state, State::Applied | State::Committed));
                !moved || world.target.rows.values().any(|row| *row == Row::Applied)
            }),
            Property::<Self>::always("a promotion is applied once", |_, world: &World| {
                world.target.rows.values().filter(|row| **row == Row::Applied).count() <= 1
            }),
            Property::<Self>::always("what was undone is never applied", |_, world: &World| {
                world.ghost.undone.iter().all(|id| world.target.rows.get(id) != Some(&Row::Applied))
            }),
            Property::<Self>::always("a closed promotion has settled its source", |_, world: &World| {
                let (Some(entry), Some(source)) = (&world.journal, &world.source) else { return true };
                if entry.is_open() || entry.hold != Hold::Settled {
                    return true;
                }
                match source {
                    Source::Board(board) => {
                        let Some(fact) = board.facts.get(&key()) else { return true };
                        match (&entry.state, &fact.ownership) {
                            (State::Committed, Ownership::Owned | Ownership::Sealed { .. }) => false,
                            (_, Ownership::Sealed { epoch, .. }) => entry.seal_epoch != Some(*epoch),
                            (_, Ownership::Owned | Ownership::Overlay) => true,
                        }
                    }
                    Source::Session(said) => entry.state != State::Committed || said.overlay,
                }
            }),
            // The model is not empty: what should happen does.
            Property::<Self>::sometimes("a promotion is committed", |_, world: &World| {
                world.journal.as_ref().is_some_and(|entry| entry.state == State::Committed && !entry.is_open())
            }),
        ]
    }
}
