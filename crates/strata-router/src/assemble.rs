//! AssembleContext: reads the layers at once, each under its own limit of time, and hands what came back to
//! `policy::context`. A layer that fails costs its part and a status, never the answer (case C119).

use crate::call::{Call, level_of};
use crate::decisions::{self, Decided};
use crate::gate::Core;
use crate::layers::{SIDE_LOOK, answer, placed, reading, signed};
use crate::modes::Passage;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;
use strata_api::common::v1::{LayerState, LayerStatus};
use strata_api::convert::{common, router as convert};
use strata_api::internal::v1 as internal;
use strata_api::longterm::v1 as longterm;
use strata_api::router::v1 as pb;
use strata_api::session::v1 as session;
use strata_api::working::v1 as working;
use strata_core::id::Level;
use strata_core::limits::{CONTENT_CHARS, QUERY_CHARS};
use strata_core::policy::authz::Layer;
use strata_core::policy::conflict::POSSIBLY_SUPERSEDED;
use strata_core::policy::context::{self, Block, ContextSettings, Frame, Intent, Item, Label, Material, Tokens};
use strata_core::policy::decision::{Stage, Step};
use strata_core::policy::ownership::{Reading, inner_wins};
use strata_core::rule::Finding;
use strata_core::{Fault, Reason, Timestamp};
use strata_runtime::context::CallContext;
use strata_runtime::metrics::{self, Instruments};
use tonic::{Response, Status};

/// Longest wait for one layer when the caller names no deadline.
const LAYER: Duration = Duration::from_millis(2_000);
/// Newest episodes that may be topics of the session that goes on, and are passed over.
const OWN_TOPICS: i32 = 15;
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

async fn within<T: Decided>(limit: Duration, asked: impl Future<Output = Result<Response<T>, Status>>) -> Part<T> {
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
    /// What was not looked at, and slots with two values in force, of which recall showed the newer (rules C9, K8).
    alarms: Vec<Finding>,
    /// The last session that ended, when the user goes on with something.
    episode: Option<longterm::Episode>,
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

        let intent = context::intent(&strata_text::clean::searchable(query));
        let limit = CallContext::current().remaining().map_or(LAYER, |left| LAYER.min(left * 7 / 10));
        let (board, history, session_facts, (memory, memory_status)) = futures::join!(
            self.read_board(call, &request.task_id, limit),
            self.read_session(call, &request.session_id, window * settings.history_percent / 100, limit),
            self.read_session_facts(call, &request.session_id, limit),
            self.read_longterm(call, (query, intent), &request.session_id, &settings, limit),
        );

        let mut layers = vec![memory_status];
        let mut material = Material::default();
        let mut left_out = Vec::new();
        let task = board.and_then(|part| {
            layers.push(state_of(Layer::Working, &part));
            if let Part::Here(task) = part { Some(task) } else { None }
        });
        let shadowed = self.shadowed(task.as_ref(), session_facts.as_deref().unwrap_or_default(), &memory);
        if let Some(part) = history {
            let mut status = state_of(Layer::Session, &part);
            if let Part::Here(window) = part {
                if session_facts.is_none() {
                    status = convert::layer_status(Layer::Session, LayerState::Degraded, "its facts did not answer");
                }
                // What was decided in the session stands before what was said in it.
                for fact in session_facts.iter().flatten() {
                    let item = session_fact_item(fact);
                    if shadowed.contains(&item.id) {
                        left_out.push(shadow(&item.id));
                    } else {
                        material.anchors.push(item);
                    }
                }
                session_material(&window, &request.input, &mut material, &mut left_out);
            }
            layers.push(status);
        }
        if let Some(episode) = &memory.episode {
            material.summaries.insert(0, episode_item(episode));
        }
        if let Some(task) = &task {
            material.board = board_items(task, &shadowed, &mut left_out);
        }
        memory_material(&memory, &shadowed, &mut material, &mut left_out);
        left_out.extend(memory.alarms.iter().map(|alarm| (Layer::Longterm.name().to_owned(), alarm.clone())));

        let mut context = context::assemble(&settings, &frame, &material, &Estimator)?;
        context.left_out.extend(left_out);
        let mut response = convert::wire_context(&context);
        layers.sort_by(|a, b| a.layer.cmp(&b.layer));
        let silent = layers.iter().any(|status| {
            let state = LayerState::try_from(status.state).unwrap_or_default();
            status.layer == Layer::Longterm.name() && matches!(state, LayerState::Unavailable | LayerState::Off)
        });
        let questions: Vec<String> =
            memory.questions.iter().filter_map(|one| Some(one.memory.as_ref()?.memory_id.clone())).collect();
        let recall_id = if silent { String::new() } else { self.recorded(call, &context, &questions, &request.session_id).await };
        let intent = intent.finding();
        decisions::note(|| Step::new(Stage::Mode, "intent", intent.rule.0, intent.outcome, &intent.because));
        note(&context, &layers, &recall_id);
        for id in &questions {
            decisions::note(|| Step::new(Stage::Asked, id, "C10", "QUESTION", "due, and not asked in this session yet"));
        }
        if request.messages {
            response.messages = convert::wire_messages(&context);
        }
        response.intent = Some(common::wire_finding(&intent));
        response.reminders = reminders(&settings, &memory.recalled, &context);
        response.layers = layers;
        response.trace_id = decisions::trace_id();
        response.questions_due = memory.questions;
        response.recall_id = recall_id;
        Ok(response)
    }

    /// Counts the context, and makes what it shows of long-term memory one recall that can be reported on (rules Q1, Q3).
    /// Empty when nothing can be: the context is answered all the same.
    async fn recorded(&self, call: &Call, context: &context::Context, questions: &[String], session_id: &str) -> String {
        use context::Block::{Constraints, Events, Facts, Knowledge};
        let of_memory = |shown: &&context::Shown| matches!(shown.block, Constraints | Facts | Events | Knowledge);
        let blocks: Vec<&context::Shown> = context.blocks.iter().filter(of_memory).collect();
        let items = blocks.iter().flat_map(|block| &block.items);
        let request = internal::RecordContextRequest {
            user_id: user(call),
            agent_id: agent(call),
            recall_id: self.ports.ids.next().to_string(),
            // An episode is no record.
            memory_ids: items.map(|item| item.id.clone()).filter(|id| uuid::Uuid::parse_str(id).is_ok()).collect(),
            memory_tokens: blocks.iter().map(|block| u64::from(block.tokens)).sum(),
            request_tokens: u64::from(context.tokens),
            asked_ids: questions.to_vec(),
            // A caller without a session is asked once a call.
            session_id: if session_id.is_empty() { self.ports.ids.next().to_string() } else { session_id.to_owned() },
        };
        let recall_id = if request.memory_ids.is_empty() { String::new() } else { request.recall_id.clone() };
        let identity = reading(&call.principal, &call.owner).writing(level_of(Layer::Longterm, &call.owner), self.fresh_epoch());
        let mut client = self.layers.target.clone();
        let wait = CallContext::current().remaining().map_or(SIDE_LOOK, |left| SIDE_LOOK.min(left / 2));
        match tokio::time::timeout(wait, client.record_context(signed(request, identity))).await.map(answer) {
            Ok(Ok(_)) => recall_id,
            Ok(Err(fault)) => {
                tracing::debug!(reason = fault.reason.name(), "a context was not counted");
                String::new()
            }
            Err(_) => String::new(),
        }
    }

    async fn read_board(&self, call: &Call, task_id: &str, limit: Duration) -> Option<Part<working::Task>> {
        if task_id.is_empty() {
            return None;
        }
        let request = working::GetTaskRequest { user_id: user(call), agent_id: agent(call), task_id: task_id.to_owned() };
        let mut client = self.layers.working.clone();
        Some(match within(limit, client.get_task(placed(request, reading(&call.principal, &call.owner)))).await {
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

    /// Facts of the session; `None` when it does not answer.
    async fn read_session_facts(&self, call: &Call, session_id: &str, limit: Duration) -> Option<Vec<session::SessionFact>> {
        if session_id.is_empty() {
            return Some(Vec::new());
        }
        match tokio::time::timeout(limit, self.session_facts(&call.principal, &call.owner, session_id)).await {
            Ok(Ok(facts)) => Some(facts),
            Ok(Err(fault)) if matches!(fault.reason, Reason::NotFound | Reason::SessionEnded) => Some(Vec::new()),
            Ok(Err(_)) | Err(_) => None,
        }
    }

    async fn read_longterm(
        &self,
        call: &Call,
        (query, intent): (&str, Intent),
        session_id: &str,
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
        let (k, keys) = match intent {
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
            // Explain shows how each score came about. The context as a whole is the recall that can be reported on.
            explain: true,
            no_report: true,
            ..Default::default()
        };
        let identity = || reading(&call.principal, &call.owner);
        let (mut first, mut second, mut third, mut fourth, mut fifth, mut sixth) = (
            self.layers.longterm.clone(),
            self.layers.longterm.clone(),
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
            session_id: session_id.to_owned(),
            page_size: i32::try_from(settings.questions.max(1)).unwrap_or(1),
            ..Default::default()
        };
        let protected = longterm::ListMemoriesRequest { filter: None, protected_only: true, ..constraints.clone() };
        let nothing = query.is_empty() && keys.is_empty();
        let recall = async {
            if nothing {
                return Part::Here(longterm::RecallResponse::default());
            }
            within(limit, first.recall(signed(ask(k, query, keys), identity()))).await
        };
        // Who goes on with something may mean the session before this one (rule C8).
        let episode = async {
            if intent != Intent::Continue {
                return Part::Here(longterm::ListEpisodesResponse::default());
            }
            let page_size = OWN_TOPICS + 1;
            let request =
                longterm::ListEpisodesRequest { user_id: user(call), agent_id: agent(call), page_size, ..Default::default() };
            within(limit, fifth.list_episodes(signed(request, identity()))).await
        };
        let (recalled, constraints, protected, identities, due, episode) = futures::join!(
            recall,
            within(limit, second.list_memories(signed(constraints, identity()))),
            within(limit, sixth.list_memories(signed(protected, identity()))),
            within(limit, third.recall(signed(ask(most, String::new(), resident_keys), identity()))),
            within(limit, fourth.list_candidates(signed(due, identity()))),
            episode,
        );
        let mut status = state_of(Layer::Longterm, &recalled);
        let mut memory = Longterm::default();
        let mut partly = false;
        for (residents, what) in [(constraints, "constraints"), (protected, "protected records")] {
            match residents {
                Part::Here(list) => {
                    if !list.next_page_token.is_empty() {
                        let because = format!("only {} {what} were looked at; ListMemories has the rest", list.memories.len());
                        memory.alarms.push(Finding::new("C9", "OVERFLOW", because));
                    }
                    memory.residents.extend(list.memories);
                }
                Part::Absent(_) => {}
                Part::Failed(_) => partly = true,
            }
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
        match episode {
            // Topics of this session that have ended are in its own summaries.
            Part::Here(list) => memory.episode = list.episodes.into_iter().find(|episode| episode.session_id != session_id),
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
            let doubled = found.findings.into_iter().filter(|one| one.rule == "K8");
            memory.alarms.extend(doubled.map(|one| Finding::new("K8", "ALARM", one.because)));
            memory.recalled = found.items;
        }
        (memory, status)
    }

    /// Which of board, session and memory is shown where more than one has a key (rule P2): ids of the losers.
    fn shadowed(&self, task: Option<&working::Task>, facts: &[session::SessionFact], memory: &Longterm) -> BTreeSet<String> {
        let key_of = |key: &str| self.registry.resolve_alias(key).to_owned();
        // Inner levels first: each is held against every outer one of its key.
        let mut readings: BTreeMap<String, Vec<(String, Reading)>> = BTreeMap::new();
        for fact in task.into_iter().flat_map(|task| &task.facts).filter(|fact| fact.reference.is_none()) {
            let Some(time) = time_of(fact.verified_at.as_ref()) else { continue };
            let reading = Reading { level: Level::Task, time, overlay: fact.overlay, from_user: false };
            readings.entry(key_of(&fact.key)).or_default().push((format!("fact:{}", fact.key), reading));
        }
        for fact in facts {
            let Some(time) = time_of(fact.update_time.as_ref()) else { continue };
            let reading = Reading { level: Level::Session, time, overlay: fact.overlay, from_user: false };
            readings.entry(key_of(&fact.key)).or_default().push((session_fact_id(&fact.key), reading));
        }
        let records = memory.residents.iter().chain(memory.recalled.iter().filter_map(|item| item.memory.as_ref()));
        for record in records.filter(|record| !record.key.is_empty()) {
            let Some(of_key) = readings.get_mut(&key_of(&record.key)) else { continue };
            let Some(time) = time_of(record.event_time.as_ref()) else { continue };
            let level = if record.agent_id.is_empty() { Level::User } else { Level::Agent };
            let source = longterm::Source::try_from(record.source).unwrap_or_default();
            let from_user = matches!(
                source,
                longterm::Source::UserCorrection | longterm::Source::UserStatement | longterm::Source::UserConfirmation
            );
            of_key.push((record.memory_id.clone(), Reading { level, time, overlay: false, from_user }));
        }
        let mut losers = BTreeSet::new();
        for of_key in readings.values() {
            for (at, (inner_id, inner)) in of_key.iter().enumerate() {
                for (outer_id, outer) in of_key.iter().skip(at + 1).filter(|(_, outer)| outer.level != inner.level) {
                    // Records of two levels of long-term memory were decided between by recall.
                    if matches!(inner.level, Level::Task | Level::Session) {
                        losers.insert(if inner_wins(inner, outer) { outer_id.clone() } else { inner_id.clone() });
                    }
                }
            }
        }
        losers
    }
}

/// Notes what became of what was found: shown or left out, and which layers had a say.
fn note(context: &context::Context, layers: &[LayerStatus], recall_id: &str) {
    for status in layers {
        let state = LayerState::try_from(status.state).unwrap_or_default();
        let outcome = bare(state.as_str_name(), "LAYER_STATE_");
        decisions::note(|| Step::new(Stage::Mode, &status.layer, "D2", &outcome, &status.detail));
    }
    for block in &context.blocks {
        for item in &block.items {
            let step = || Step::new(Stage::Injected, &item.id, "C1", "SHOWN", block.block.name()).scored(item.score);
            decisions::note(step);
        }
    }
    for (id, reason) in &context.left_out {
        decisions::note(|| Step::new(Stage::LeftOut, id, reason.rule.0, reason.outcome, &reason.because));
    }
    decisions::recall(recall_id);
}

fn user(call: &Call) -> String {
    call.owner.user.as_str().to_owned()
}

fn agent(call: &Call) -> String {
    call.owner.agent_id().to_owned()
}

fn session_fact_id(key: &str) -> String {
    format!("session_fact:{key}")
}

/// A fact of the session stands with its anchors.
fn session_fact_item(fact: &session::SessionFact) -> Item {
    Item {
        id: session_fact_id(&fact.key),
        layer: Layer::Session.name(),
        block: Block::Summary,
        label: Label {
            kind: "FACT".to_owned(),
            scope: Level::Session.name().to_owned(),
            source: format!("turn:{}", fact.seq),
            time: time_of(fact.update_time.as_ref()),
            confidence: None,
            notes: if fact.overlay { vec!["overlay".to_owned()] } else { Vec::new() },
        },
        score: 0.0,
        text: vec![format!("{}: {}", fact.key, fact.value)],
    }
}

/// What an earlier session was about, trimmed at its sentences like a summary.
fn episode_item(episode: &longterm::Episode) -> Item {
    Item {
        id: format!("episode:{}", episode.episode_id),
        layer: Layer::Longterm.name(),
        block: Block::Summary,
        label: Label {
            kind: "EPISODE".to_owned(),
            scope: Level::User.name().to_owned(),
            source: "EPISODE".to_owned(),
            time: time_of(episode.to_time.as_ref()),
            confidence: None,
            notes: vec!["an earlier session".to_owned()],
        },
        score: 0.0,
        text: episode.summary.iter().map(|sentence| sentence.text.clone()).collect(),
    }
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
    // Residents come without labels.
    if !memory.may_be_replaced_by.is_empty() && !notes.iter().any(|note| note == POSSIBLY_SUPERSEDED) {
        notes.push(POSSIBLY_SUPERSEDED.to_owned());
    }
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

/// What the words touch on and an agent may bring up unasked, as far as the context shows it (rule C11). What stands there for
/// being used often was not touched on.
fn reminders(settings: &ContextSettings, recalled: &[longterm::RecallItem], context: &context::Context) -> Vec<longterm::Memory> {
    let shown: BTreeSet<&str> = context.blocks.iter().flat_map(|block| &block.items).map(|item| item.id.as_str()).collect();
    let touched: Vec<&longterm::Memory> = recalled
        .iter()
        .filter(|item| !item.paths.iter().any(|path| path == "recent"))
        .filter_map(|item| item.memory.as_ref())
        .filter(|memory| shown.contains(memory.memory_id.as_str()))
        .collect();
    let places = context::reminders(settings, touched.iter().map(|memory| &memory.tags));
    places.into_iter().filter_map(|place| touched.get(place).map(|memory| (*memory).clone())).collect()
}

/// Residents are constraints, identity, and whatever is protected (rule C9); the rest is recalled, best first.
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
    // The same statement once, whichever way it came (rule R11): recall merges what it found itself.
    let mut said: BTreeMap<String, String> = BTreeMap::new();
    for record in residents {
        if !seen.insert(record.memory_id.clone()) {
            continue;
        }
        said.entry(strata_text::clean::normal(&record.content)).or_insert_with(|| record.memory_id.clone());
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
        let same = said.get(&strata_text::clean::normal(&record.content));
        if shadowed.contains(&record.memory_id) {
            left_out.push(shadow(&record.memory_id));
        } else if let Some(same) = same {
            left_out.push((record.memory_id.clone(), Finding::new("R11", "MERGED", format!("says the same as {same}"))));
        } else if record.protected {
            material.residents.push(memory_item(record, item.score, &item.labels));
        } else {
            material.recalled.push(memory_item(record, item.score, &item.labels));
        }
    }
}
