//! AssembleContext: reads the layers at once, each under its own limit of time, and hands what came back to
//! `policy::context`. A layer that fails costs its part and a status, never the answer (case C119).

use crate::gate::{Call, Core};
use crate::layers::{answer, reading, signed};
use crate::modes::Passage;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;
use strata_api::common::v1::{LayerState, LayerStatus};
use strata_api::convert::{common, router as convert};
use strata_api::longterm::v1 as longterm;
use strata_api::router::v1 as pb;
use strata_api::session::v1 as session;
use strata_api::working::v1 as working;
use strata_core::id::Level;
use strata_core::limits::{CONTENT_CHARS, QUERY_CHARS};
use strata_core::policy::authz::Layer;
use strata_core::policy::context::{self, Block, ContextSettings, Frame, Intent, Item, Label, Material, Tokens};
use strata_core::policy::ownership::{Reading, inner_wins};
use strata_core::rule::Finding;
use strata_core::{Fault, Reason, Timestamp};
use strata_runtime::context::CallContext;
use strata_runtime::metrics::{self, Instruments};
use tonic::{Response, Status};

/// Longest wait for one layer when the caller names no deadline.
const LAYER: Duration = Duration::from_millis(2_000);
/// Turns asked for: the budget in tokens is the real bound.
const TURNS: i32 = 200;
/// Digests shown at most: older ones are on the board.
const DIGESTS: usize = 10;
/// Keys looked up for residents at most.
const RESIDENT_KEYS: usize = 32;
/// Bytes of the system instructions, below which the window is the bound.
const SYSTEM_CHARS: usize = 1_000_000;

/// The service's estimator.
struct Estimator;

impl Tokens for Estimator {
    fn count(&self, text: &str) -> u32 {
        strata_text::tokens::count(text)
    }
    fn cut<'a>(&self, text: &'a str, max: u32) -> &'a str {
        strata_text::tokens::cut(text, max)
    }
}

/// What one layer gave.
enum Part<T> {
    Here(T),
    /// Not there for this owner: nothing to show, nothing wrong.
    Absent(&'static str),
    Failed(&'static str),
}

async fn within<T>(limit: Duration, asked: impl Future<Output = Result<Response<T>, Status>>) -> Part<T> {
    match tokio::time::timeout(limit, asked).await.map(answer) {
        Ok(Ok(got)) => Part::Here(got),
        Ok(Err(fault)) if fault.reason == Reason::NotFound => Part::Absent("not found"),
        Ok(Err(fault)) if matches!(fault.reason, Reason::TaskEnded | Reason::SessionEnded) => Part::Absent("has ended"),
        Ok(Err(fault)) => Part::Failed(fault.reason.name()),
        Err(_) => Part::Failed(Reason::DeadlineExceeded.name()),
    }
}

fn state_of<T>(layer: Layer, part: &Part<T>) -> LayerStatus {
    match part {
        Part::Here(_) => convert::layer_status(layer, LayerState::Ok, ""),
        Part::Absent(what) => convert::layer_status(layer, LayerState::Ok, *what),
        Part::Failed(reason) => {
            convert::layer_status(layer, LayerState::Unavailable, format!("{}: unavailable ({reason})", layer.name()))
        }
    }
}

/// The name of a wire enum's value without its prefix.
fn bare(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_owned()
}

fn time_of(time: Option<&prost_types::Timestamp>) -> Option<Timestamp> {
    common::optional_time("time", time).ok().flatten()
}

/// What long-term memory gave.
#[derive(Default)]
struct Longterm {
    residents: Vec<longterm::Memory>,
    recalled: Vec<longterm::RecallItem>,
    questions: Vec<longterm::Candidate>,
    recall_id: String,
}

impl Core {
    /// Assembles.
    ///
    /// # Errors
    /// `INVALID_FIELD` when a field is malformed, or input or system do not fit into the window.
    pub(crate) async fn assemble(
        &self,
        call: &Call,
        request: pb::AssembleContextRequest,
    ) -> Result<pb::AssembleContextResponse, Fault> {
        let answer = self.assembled(call, request).await?;
        for line in answer.budget.iter().filter(|line| line.used > 0) {
            let section = metrics::Label::new("section", line.name.clone());
            Instruments::global().context_tokens.add(u64::from(line.used), &[section]);
        }
        Ok(answer)
    }

    async fn assembled(&self, call: &Call, request: pb::AssembleContextRequest) -> Result<pb::AssembleContextResponse, Fault> {
        let settings = self.settings.load().context.clone();
        let window = convert::window(request.window_tokens)?;
        let query = if request.query.trim().is_empty() { &request.input } else { &request.query };
        common::optional_text("query", &request.query, QUERY_CHARS)?;
        // Checked before any layer is asked: what cannot be shown whole is refused at once.
        common::optional_text("system", &request.system, SYSTEM_CHARS)?;
        // Its length is bounded by the window; blank is allowed, since a query may stand alone.
        common::optional_text("input", &request.input, strata_core::limits::MESSAGE_BYTES)?;
        let frame = Frame { system: &request.system, input: &request.input, window };
        context::assemble(&settings, &frame, &Material::default(), &Estimator)?;

        let limit = CallContext::current().remaining().map_or(LAYER, |left| LAYER.min(left * 7 / 10));
        let (board, history, (memory, memory_status)) = futures::join!(
            self.read_board(call, &request.task_id, limit),
            self.read_session(call, &request.session_id, window * settings.history_percent / 100, limit),
            self.read_longterm(call, query, &settings, limit),
        );

        let mut layers = vec![memory_status];
        let mut material = Material::default();
        let mut left_out = Vec::new();
        let task = board.and_then(|part| {
            layers.push(state_of(Layer::Working, &part));
            if let Part::Here(task) = part { Some(task) } else { None }
        });
        if let Some(part) = history {
            layers.push(state_of(Layer::Session, &part));
            if let Part::Here(window) = part {
                session_material(&window, &request.input, &mut material, &mut left_out);
            }
        }
        let shadowed = task.as_ref().map(|task| self.shadowed(task, &memory)).unwrap_or_default();
        if let Some(task) = &task {
            material.board = board_items(task, &shadowed, &mut left_out);
        }
        memory_material(&memory, &shadowed, &mut material, &mut left_out);

        let mut context = context::assemble(&settings, &frame, &material, &Estimator)?;
        context.left_out.extend(left_out);
        let mut response = convert::wire_context(&context);
        layers.sort_by(|a, b| a.layer.cmp(&b.layer));
        response.layers = layers;
        response.questions_due = memory.questions;
        response.recall_id = memory.recall_id;
        Ok(response)
    }

    async fn read_board(&self, call: &Call, task_id: &str, limit: Duration) -> Option<Part<working::Task>> {
        if task_id.is_empty() {
            return None;
        }
        let request = working::GetTaskRequest { user_id: user(call), agent_id: agent(call), task_id: task_id.to_owned() };
        let mut client = self.layers.working.clone();
        Some(match within(limit, client.get_task(signed(request, reading(&call.principal, &call.owner)))).await {
            Part::Here(working::GetTaskResponse { task: Some(task) }) => Part::Here(task),
            Part::Here(working::GetTaskResponse { task: None }) => Part::Absent("not found"),
            Part::Absent(what) => Part::Absent(what),
            Part::Failed(why) => Part::Failed(why),
        })
    }

    async fn read_session(
        &self,
        call: &Call,
        session_id: &str,
        tokens: u32,
        limit: Duration,
    ) -> Option<Part<session::GetWindowResponse>> {
        if session_id.is_empty() {
            return None;
        }
        let request = session::GetWindowRequest {
            user_id: user(call),
            agent_id: agent(call),
            session_id: session_id.to_owned(),
            max_turns: TURNS,
            max_tokens: i32::try_from(tokens.max(1)).unwrap_or(i32::MAX),
            no_renew: false,
        };
        let mut client = self.layers.session.clone();
        Some(within(limit, client.get_window(signed(request, reading(&call.principal, &call.owner)))).await)
    }

    async fn read_longterm(
        &self,
        call: &Call,
        query: &str,
        settings: &ContextSettings,
        limit: Duration,
    ) -> (Longterm, LayerStatus) {
        if call.passage == Passage::Empty {
            return (
                Longterm::default(),
                convert::layer_status(Layer::Longterm, LayerState::Off, "LAYER_RECALL_OFF: recall is switched off"),
            );
        }
        let query = strata_text::tokens::cut_chars(query.trim(), QUERY_CHARS).to_owned();
        let most = i32::try_from(settings.max_items).unwrap_or(i32::MAX);
        let resident_keys: Vec<String> = self
            .registry
            .keys()
            .iter()
            .filter(|spec| spec.resident && !spec.is_family())
            .map(|spec| spec.pattern.clone())
            .take(RESIDENT_KEYS)
            .collect();
        let (k, keys) = match context::intent(&query) {
            // The session has it first; memory adds what it must.
            Intent::Continue => (most.div_euclid(2).max(1), Vec::new()),
            Intent::Profile => (most, resident_keys.clone()),
            Intent::Hybrid => {
                (most, self.slots.match_slot(&query).map(|slot| slot.key.as_str().to_owned()).into_iter().collect())
            }
        };
        let ask = |k, query: String, keys: Vec<String>| longterm::RecallRequest {
            user_id: user(call),
            agent_id: agent(call),
            query,
            keys,
            k,
            ..Default::default()
        };
        let identity = || reading(&call.principal, &call.owner);
        let (mut first, mut second, mut third, mut fourth) = (
            self.layers.longterm.clone(),
            self.layers.longterm.clone(),
            self.layers.longterm.clone(),
            self.layers.longterm.clone(),
        );
        let constraints = longterm::ListMemoriesRequest {
            user_id: user(call),
            agent_id: agent(call),
            filter: Some(longterm::RecallFilter { kinds: vec![longterm::Kind::Constraint.into()], ..Default::default() }),
            page_size: most.saturating_mul(2),
            ..Default::default()
        };
        let due = longterm::ListCandidatesRequest {
            user_id: user(call),
            agent_id: agent(call),
            due_only: true,
            page_size: i32::try_from(settings.questions.max(1)).unwrap_or(1),
            ..Default::default()
        };
        let nothing = query.is_empty() && keys.is_empty();
        let recall = async {
            if nothing {
                return Part::Here(longterm::RecallResponse::default());
            }
            within(limit, first.recall(signed(ask(k, query, keys), identity()))).await
        };
        let (recalled, constraints, identities, due) = futures::join!(
            recall,
            within(limit, second.list_memories(signed(constraints, identity()))),
            within(limit, third.recall(signed(ask(most, String::new(), resident_keys), identity()))),
            within(limit, fourth.list_candidates(signed(due, identity()))),
        );
        let mut status = state_of(Layer::Longterm, &recalled);
        let mut memory = Longterm::default();
        let mut partly = false;
        match constraints {
            Part::Here(list) => memory.residents.extend(list.memories),
            Part::Absent(_) => {}
            Part::Failed(_) => partly = true,
        }
        match identities {
            Part::Here(found) => memory.residents.extend(found.items.into_iter().filter_map(|item| item.memory)),
            Part::Absent(_) => {}
            Part::Failed(_) => partly = true,
        }
        match due {
            Part::Here(list) => memory.questions = list.candidates.into_iter().take(settings.questions as usize).collect(),
            Part::Absent(_) => {}
            Part::Failed(_) => partly = true,
        }
        if let Part::Here(found) = recalled {
            if found.degraded || partly {
                status = convert::layer_status(
                    Layer::Longterm,
                    LayerState::Degraded,
                    if partly { "some of it did not answer" } else { "keyword recall only" },
                );
            }
            memory.recalled = found.items;
            memory.recall_id = found.recall_id;
        }
        (memory, status)
    }

    /// Which of board and memory is shown where both have a key (rule P2): ids of the losers.
    fn shadowed(&self, task: &working::Task, memory: &Longterm) -> BTreeSet<String> {
        let mut board: BTreeMap<String, &working::Fact> = BTreeMap::new();
        for fact in task.facts.iter().filter(|fact| fact.reference.is_none()) {
            board.insert(self.registry.resolve_alias(&fact.key).to_owned(), fact);
        }
        let records = memory.residents.iter().chain(memory.recalled.iter().filter_map(|item| item.memory.as_ref()));
        records
            .filter_map(|record| {
                let fact = board.get(self.registry.resolve_alias(&record.key))?;
                let inner = Reading {
                    level: Level::Task,
                    time: time_of(fact.verified_at.as_ref())?,
                    overlay: fact.overlay,
                    from_user: false,
                };
                let level = if record.agent_id.is_empty() { Level::User } else { Level::Agent };
                let source = longterm::Source::try_from(record.source).unwrap_or_default();
                let from_user = matches!(
                    source,
                    longterm::Source::UserCorrection | longterm::Source::UserStatement | longterm::Source::UserConfirmation
                );
                let outer = Reading { level, time: time_of(record.event_time.as_ref())?, overlay: false, from_user };
                Some(if inner_wins(&inner, &outer) { record.memory_id.clone() } else { format!("fact:{}", fact.key) })
            })
            .collect()
    }
}

fn user(call: &Call) -> String {
    call.owner.user.as_str().to_owned()
}

fn agent(call: &Call) -> String {
    call.owner.agent.as_ref().map(|agent| agent.as_str().to_owned()).unwrap_or_default()
}

fn shadow(id: &str) -> (String, Finding) {
    (id.to_owned(), Finding::new("P2", "SHADOWED", "another level's value of this key is shown"))
}

/// Goal, facts, open todos, the newest digests, done todos.
fn board_items(task: &working::Task, shadowed: &BTreeSet<String>, left_out: &mut Vec<(String, Finding)>) -> Vec<Item> {
    let item = |id: String, kind: &str, source: &str, time: Option<Timestamp>, notes: Vec<String>, text: String| Item {
        id,
        layer: Layer::Working.name(),
        block: Block::Board,
        label: Label {
            kind: kind.to_owned(),
            scope: Level::Task.name().to_owned(),
            source: source.to_owned(),
            time,
            confidence: None,
            notes,
        },
        score: 0.0,
        text: vec![text],
    };
    let mut items = Vec::new();
    if let Some(goal) = &task.goal {
        let text = format!("{} Done when: {}", goal.sentence, goal.acceptance);
        items.push(item("goal".into(), "GOAL", "", time_of(task.create_time.as_ref()), Vec::new(), text));
    }
    for fact in &task.facts {
        let id = format!("fact:{}", fact.key);
        if shadowed.contains(&id) {
            left_out.push(shadow(&id));
            continue;
        }
        let text = match &fact.reference {
            Some(reference) => format!("see the record {} (version {})", reference.memory_id, reference.version),
            None => fact.value.clone(),
        };
        let notes = if fact.overlay { vec!["overlay".to_owned()] } else { Vec::new() };
        items.push(item(id, "FACT", &fact.source, time_of(fact.verified_at.as_ref()), notes, text));
    }
    let todo = |todo: &working::Todo| {
        let state = working::TodoState::try_from(todo.state).unwrap_or_default();
        let text = if todo.note.is_empty() { todo.step.clone() } else { format!("{} ({})", todo.step, todo.note) };
        item(format!("todo:{}", todo.id), "TODO", "", None, vec![bare(state.as_str_name(), "TODO_STATE_")], text)
    };
    let is_done = |todo: &&working::Todo| todo.state == i32::from(working::TodoState::Done);
    items.extend(task.todos.iter().filter(|t| !is_done(t)).map(todo));
    for (n, digest) in task.digests.iter().enumerate().rev() {
        let id = format!("digest:{}", n + 1);
        if task.digests.len() - n > DIGESTS {
            left_out.push((id, Finding::new("C4", "CAP", format!("only the newest {DIGESTS} digests are shown"))));
            continue;
        }
        let notes = vec![digest.trace_id.clone()];
        items.push(item(id, "DIGEST", &digest.tool, time_of(digest.time.as_ref()), notes, digest.sentence.clone()));
    }
    items.extend(task.todos.iter().filter(is_done).map(todo));
    items
}

fn turn_item(turn: &session::Turn, block: Block, notes: Vec<String>) -> Item {
    let role = session::Role::try_from(turn.role).unwrap_or_default();
    Item {
        id: format!("turn:{}", turn.seq),
        layer: Layer::Session.name(),
        block,
        label: Label {
            kind: bare(role.as_str_name(), "ROLE_"),
            scope: Level::Session.name().to_owned(),
            source: turn.speaker.clone(),
            time: time_of(turn.time.as_ref()),
            confidence: None,
            notes,
        },
        score: 0.0,
        text: vec![turn.text.clone()],
    }
}

fn session_material(
    window: &session::GetWindowResponse,
    input: &str,
    material: &mut Material,
    left_out: &mut Vec<(String, Finding)>,
) {
    for summary in &window.summaries {
        material.summaries.push(Item {
            id: format!("summary:{}-{}", summary.from_seq, summary.to_seq),
            layer: Layer::Session.name(),
            block: Block::Summary,
            label: Label {
                kind: "SUMMARY".to_owned(),
                scope: Level::Session.name().to_owned(),
                source: summary.made_by.clone(),
                time: time_of(summary.to_time.as_ref()),
                confidence: None,
                notes: Vec::new(),
            },
            score: 0.0,
            text: summary.sentences.iter().map(|sentence| sentence.text.clone()).collect(),
        });
    }
    if let Some(system) = &window.system {
        material.anchors.push(turn_item(system, Block::Summary, Vec::new()));
    }
    for turn in &window.anchors {
        let reason = window.anchor_reasons.iter().find(|anchor| anchor.seq == turn.seq).and_then(|anchor| anchor.reason.as_ref());
        material.anchors.push(turn_item(turn, Block::Summary, reason.map(|reason| reason.rule.clone()).into_iter().collect()));
    }
    // The current words are shown as the input, not a second time as the turn they were stored as.
    let current =
        window.turns.last().filter(|turn| turn.role == i32::from(session::Role::User) && turn.text == input).map(|turn| turn.seq);
    for turn in window.turns.iter().filter(|turn| Some(turn.seq) != current) {
        let item = turn_item(turn, Block::Turns, Vec::new());
        // A result joins the unit of its call (rule S6).
        let joins = turn.role == i32::from(session::Role::Tool);
        match material.turns.last_mut() {
            Some(unit) if joins => unit.push(item),
            Some(_) | None => material.turns.push(vec![item]),
        }
    }
    for seq in &window.anchors_left_out {
        left_out.push((format!("turn:{seq}"), Finding::new("S11", "POINTER", "anchors take at most their share of the history")));
    }
    if window.turns_left_out > 0 {
        left_out.push((
            "turns".to_owned(),
            Finding::new("C3", "WINDOW", format!("{} older turns; read them by number", window.turns_left_out)),
        ));
    }
}

fn memory_item(memory: &longterm::Memory, score: f64, labels: &[String]) -> Item {
    let kind = longterm::Kind::try_from(memory.kind).unwrap_or_default();
    let source = longterm::Source::try_from(memory.source).unwrap_or_default();
    let scope = if memory.agent_id.is_empty() {
        Level::User.name().to_owned()
    } else {
        format!("{} {}", Level::Agent.name(), memory.agent_id)
    };
    let mut notes = labels.to_vec();
    if memory.tier == i32::from(longterm::Tier::Temporary) {
        notes.push("TEMPORARY".to_owned());
    }
    Item {
        id: memory.memory_id.clone(),
        layer: Layer::Longterm.name(),
        block: convert::kind("kind", memory.kind).map_or(Block::Knowledge, Block::of),
        label: Label {
            kind: bare(kind.as_str_name(), "KIND_"),
            scope,
            source: bare(source.as_str_name(), "SOURCE_"),
            time: time_of(memory.event_time.as_ref()),
            confidence: Some(memory.confidence),
            notes,
        },
        score,
        text: vec![strata_text::tokens::cut_chars(&memory.content, CONTENT_CHARS).to_owned()],
    }
}

/// Residents are constraints, identity, and whatever recalled is protected (rule C9); the rest is recalled, best first.
fn memory_material(
    memory: &Longterm,
    shadowed: &BTreeSet<String>,
    material: &mut Material,
    left_out: &mut Vec<(String, Finding)>,
) {
    let mut residents: Vec<&longterm::Memory> = memory.residents.iter().collect();
    // Importance first, then a total order, so that the same records give the same bytes (rule C7).
    residents.sort_by(|a, b| (b.protected, b.importance, &a.memory_id).cmp(&(a.protected, a.importance, &b.memory_id)));
    let mut seen = BTreeSet::new();
    for record in residents {
        if !seen.insert(record.memory_id.clone()) {
            continue;
        }
        if shadowed.contains(&record.memory_id) {
            left_out.push(shadow(&record.memory_id));
        } else {
            material.residents.push(memory_item(record, 0.0, &[]));
        }
    }
    for item in &memory.recalled {
        let Some(record) = &item.memory else { continue };
        if !seen.insert(record.memory_id.clone()) {
            continue;
        }
        if shadowed.contains(&record.memory_id) {
            left_out.push(shadow(&record.memory_id));
        } else if record.protected {
            material.residents.push(memory_item(record, item.score, &item.labels));
        } else {
            material.recalled.push(memory_item(record, item.score, &item.labels));
        }
    }
}
