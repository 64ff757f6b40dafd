//! What an agent does: the public RPCs, and texts to store that a gate lets pass.

use anyhow::{Context as _, Result, ensure};
use std::{cell::RefCell, collections::BTreeMap, time::Duration};
use strata_api::{
    longterm::v1::{self as longterm, long_term_memory_service_client::LongTermMemoryServiceClient},
    router::v1::router_service_client::RouterServiceClient,
    session::v1::{self as session, session_memory_service_client::SessionMemoryServiceClient},
    working::v1::{self as working, working_memory_service_client::WorkingMemoryServiceClient},
};
use strata_core::limits::{APPEND_TURNS, MESSAGE_BYTES};
use strata_runtime::{
    RpcChannel,
    ports::{Stopwatch, pause},
};
use tonic::Status;

/// Turns of a session of the fixture: far below the limit of a session.
const SESSION_TURNS: u64 = 2_000;
/// Calls in flight while a fixture is stored.
const SEEDERS: usize = 32;
/// Longest time until everything stored has its vector.
const INDEXED: Duration = Duration::from_secs(120);

/// Clients of every public service over one channel. Cheap to clone.
#[derive(Clone)]
pub struct Agent {
    /// Boards.
    pub working: WorkingMemoryServiceClient<RpcChannel>,
    /// Sessions.
    pub session: SessionMemoryServiceClient<RpcChannel>,
    /// Records.
    pub longterm: LongTermMemoryServiceClient<RpcChannel>,
    /// Context.
    pub router: RouterServiceClient<RpcChannel>,
}

impl Agent {
    /// Over `channel`.
    pub fn new(channel: &RpcChannel) -> Self {
        let c = || channel.clone();
        Self {
            working: WorkingMemoryServiceClient::new(c()).max_decoding_message_size(MESSAGE_BYTES),
            session: SessionMemoryServiceClient::new(c()).max_decoding_message_size(MESSAGE_BYTES),
            longterm: LongTermMemoryServiceClient::new(c()).max_decoding_message_size(MESSAGE_BYTES),
            router: RouterServiceClient::new(c()).max_decoding_message_size(MESSAGE_BYTES),
        }
    }

    /// Appends user turns, as few calls as the limit allows.
    ///
    /// # Errors
    /// What the server answers.
    pub async fn say(&self, user: &str, session_id: &str, texts: &[String]) -> Result<(), Status> {
        for texts in texts.chunks(APPEND_TURNS) {
            let turns = texts.iter().map(|text| user_turn(text)).collect();
            let request = session::AppendTurnsRequest {
                user_id: user.into(),
                session_id: session_id.into(),
                turns,
                ..session::AppendTurnsRequest::default()
            };
            self.session.clone().append_turns(request).await?;
        }
        Ok(())
    }

    /// A board with a goal, facts, todos and digests as the fixture of board memory has them.
    ///
    /// # Errors
    /// What the server answers.
    pub async fn board(&self, user: &str, task: &str) -> Result<(), Status> {
        let mut working = self.working.clone();
        working.create_task(create_task(user, task)).await?;
        working.put_facts(put_facts(user, task)).await?;
        working.update_todos(update_todos(user, task)).await?;
        for number in 0..BOARD_ITEMS {
            working.append_digest(append_digest(user, task, number)).await?;
        }
        Ok(())
    }

    /// Stores the statements `range` of a user and answers how many became what. The turns they quote are said before, so
    /// that each is verified as an agent's would be.
    ///
    /// # Errors
    /// The first call that the server refused.
    pub async fn remember_all(&self, user: &str, range: std::ops::Range<u64>) -> Result<Outcomes> {
        self.say_statements(user, range.clone()).await?;
        let outcomes = RefCell::new(Outcomes::default());
        let start = range.start;
        let run = crate::generator::closed_count(SEEDERS, range.end - range.start, |number| {
            let (agent, outcomes) = (self.clone(), &outcomes);
            async move {
                let request = remember(user, start + number);
                // A full outbox is no failure of a fixture: wait as an agent would.
                let result = loop {
                    match agent.longterm.clone().remember(request.clone()).await {
                        Ok(answer) => break answer.into_inner().result.unwrap_or_default(),
                        Err(status) if status.code() == tonic::Code::ResourceExhausted => pause(BACKOFF).await,
                        Err(status) => return Err(status),
                    }
                };
                outcomes.borrow_mut().count(&result);
                Ok(())
            }
        })
        .await;
        ensure!(run.failed == 0, "{} statements were refused: {}", run.failed, run.failure.unwrap_or_default());
        Ok(outcomes.into_inner())
    }

    /// Says the turns that the statements `range` quote.
    ///
    /// # Errors
    /// What the server answers.
    pub async fn say_statements(&self, user: &str, range: std::ops::Range<u64>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            // A session is begun at its first turn, so that numbers of turns follow from numbers of statements.
            ensure!(at.is_multiple_of(APPEND_TURNS as u64) || at == range.start, "sessions are said in whole batches");
            let end = range.end.min((at / SESSION_TURNS + 1) * SESSION_TURNS);
            let texts: Vec<String> = (at..end).map(statement).collect();
            self.say(user, &session_of(at).0, &texts).await.context("a fixture turn")?;
            at = end;
        }
        Ok(())
    }

    /// Waits until a record has its vector and those before it too.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn await_indexed(&self, user: &str, memory_id: &str) -> Result<()> {
        let watch = Stopwatch::start();
        loop {
            let request = longterm::GetMemoryRequest { user_id: user.into(), memory_id: memory_id.into(), ..Default::default() };
            let memory = self.longterm.clone().get_memory(request).await?.into_inner().memory.unwrap_or_default();
            if !memory.embedding_model.is_empty() {
                return Ok(());
            }
            ensure!(watch.elapsed() < INDEXED, "a record still has no vector after {INDEXED:?}");
            pause(Duration::from_millis(20)).await;
        }
    }
}

/// Wait before a write that was pushed back is tried again.
const BACKOFF: Duration = Duration::from_millis(50);

/// How many statements became what.
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    /// Count by outcome.
    pub by_name: BTreeMap<&'static str, u64>,
    /// The newest record.
    pub last: Option<String>,
}

impl Outcomes {
    fn count(&mut self, result: &longterm::WriteResult) {
        *self.by_name.entry(result.outcome().as_str_name()).or_default() += 1;
        self.last = result.memory.as_ref().map(|m| m.memory_id.clone()).or(self.last.take());
    }

    /// Records that are active.
    pub fn active(&self) -> u64 {
        self.by_name.get(longterm::Outcome::Active.as_str_name()).copied().unwrap_or_default()
    }
}

/// A turn of the user.
pub fn user_turn(text: &str) -> session::NewTurn {
    session::NewTurn { role: session::Role::User as i32, text: text.into(), ..session::NewTurn::default() }
}

const WHAT: [&str; 40] = [
    "notebook",
    "bicycle",
    "teapot",
    "guitar",
    "umbrella",
    "camera",
    "lantern",
    "telescope",
    "ladder",
    "compass",
    "kettle",
    "violin",
    "backpack",
    "hammock",
    "suitcase",
    "clock",
    "sofa",
    "piano",
    "canoe",
    "kite",
    "tent",
    "skateboard",
    "printer",
    "toolbox",
    "microscope",
    "drum",
    "blanket",
    "rug",
    "vase",
    "mirror",
    "stove",
    "helmet",
    "globe",
    "wallet",
    "whistle",
    "raincoat",
    "easel",
    "loom",
    "anvil",
    "rowing boat",
];
const HOW: [&str; 29] = [
    "green",
    "wooden",
    "folding",
    "silver",
    "antique",
    "heavy",
    "striped",
    "tiny",
    "borrowed",
    "blue",
    "velvet",
    "copper",
    "waterproof",
    "handmade",
    "broken",
    "spare",
    "yellow",
    "leather",
    "painted",
    "rusty",
    "foldable",
    "electric",
    "marble",
    "woollen",
    "round",
    "tall",
    "secondhand",
    "embroidered",
    "polished",
];
const WHERE: [&str; 23] = [
    "cellar",
    "attic",
    "office",
    "garage",
    "kitchen",
    "greenhouse",
    "hallway",
    "workshop",
    "caravan",
    "library",
    "shed",
    "studio",
    "boathouse",
    "nursery",
    "pantry",
    "garden",
    "balcony",
    "laundry room",
    "guest room",
    "stable",
    "lobby",
    "classroom",
    "museum",
];

/// Statement `number`: a sentence that stands alone, is the user's own and holds nothing personal. The first 26,680 differ
/// in more than a number.
pub fn statement(number: u64) -> String {
    let pick = |list: &'static [&'static str], by: u64| list[usize::try_from(by % list.len() as u64).unwrap_or_default()];
    // The lengths have no common divisor: every combination comes before one comes again.
    let (what, how, place) = (pick(&WHAT, number), pick(&HOW, number), pick(&WHERE, number));
    format!("Please remember that I keep my {how} {what} number {number} in the {place}.")
}

/// Session and turn number of statement `number`.
fn session_of(number: u64) -> (String, u32) {
    let seq = u32::try_from(number % SESSION_TURNS + 1).unwrap_or(u32::MAX);
    (format!("s{}", number / SESSION_TURNS), seq)
}

/// The order to remember statement `number`, quoting its turn.
pub fn remember(user: &str, number: u64) -> longterm::RememberRequest {
    let (session_id, seq) = session_of(number);
    let text = statement(number);
    let turn = longterm::TurnRef { session_id, seq };
    longterm::RememberRequest {
        user_id: user.into(),
        statement: Some(longterm::Statement {
            kind: longterm::Kind::Fact as i32,
            content: text.clone(),
            source: longterm::Source::UserStatement as i32,
            source_ref: Some(longterm::SourceRef { kind: Some(longterm::source_ref::Kind::Turn(turn)) }),
            source_quote: text,
            trigger: longterm::Trigger::UserRequest as i32,
            ..longterm::Statement::default()
        }),
        ..longterm::RememberRequest::default()
    }
}

/// Facts, todos and digests of a board, each.
pub const BOARD_ITEMS: u32 = 10;

/// `text` filled up with a sentence-like tail to `bytes` bytes.
fn padded(text: &str, bytes: usize) -> String {
    const FILL: &str =
        " and then the next one is checked against the list so that nothing of it is lost on the way to the end of the page";
    let fill: String = FILL.chars().cycle().take(bytes.saturating_sub(text.len())).collect();
    format!("{text}{fill}")
}

/// A board's start: a goal of 80 bytes.
pub fn create_task(user: &str, task: &str) -> working::CreateTaskRequest {
    let goal = working::Goal { sentence: padded("Book the invoice", 60), acceptance: padded("It is booked", 20) };
    working::CreateTaskRequest { user_id: user.into(), task_id: task.into(), goal: Some(goal), ..Default::default() }
}

/// Ten facts of 40 bytes.
pub fn put_facts(user: &str, task: &str) -> working::PutFactsRequest {
    let fact = |n| working::Fact {
        key: format!("invoice.field_{n}"),
        value: padded(&format!("value {n}"), 40),
        source: "reader".into(),
        ..working::Fact::default()
    };
    working::PutFactsRequest {
        user_id: user.into(),
        task_id: task.into(),
        facts: (0..BOARD_ITEMS).map(fact).collect(),
        ..Default::default()
    }
}

/// Ten todos of 40 bytes.
pub fn update_todos(user: &str, task: &str) -> working::UpdateTodosRequest {
    let todo = |n| working::Todo {
        id: format!("t{n}"),
        step: padded(&format!("step {n}"), 40),
        state: working::TodoState::Pending as i32,
        ..working::Todo::default()
    };
    working::UpdateTodosRequest {
        user_id: user.into(),
        task_id: task.into(),
        todos: (0..BOARD_ITEMS).map(todo).collect(),
        ..Default::default()
    }
}

/// A digest of 120 bytes.
pub fn append_digest(user: &str, task: &str, number: u32) -> working::AppendDigestRequest {
    let digest = working::Digest {
        tool: "reader".into(),
        sentence: padded(&format!("page {number} was read"), 120),
        trace_id: format!("trace-{number}"),
        ..working::Digest::default()
    };
    working::AppendDigestRequest { user_id: user.into(), task_id: task.into(), digest: Some(digest), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn statements_differ_in_more_than_their_number() {
        let words: BTreeSet<String> = (0..26_680).map(|n| statement(n).replace(&format!(" {n} "), " ")).collect();
        assert_eq!(words.len(), WHAT.len() * HOW.len() * WHERE.len());
        assert_eq!(words.len(), 26_680);
    }

    #[test]
    fn a_statement_quotes_its_own_turn() {
        assert_eq!(session_of(0), ("s0".to_owned(), 1));
        assert_eq!(session_of(SESSION_TURNS), ("s1".to_owned(), 1));
        let request = remember("u", SESSION_TURNS + 4).statement.expect("a statement");
        assert_eq!(request.content, statement(SESSION_TURNS + 4));
        assert_eq!(request.content, request.source_quote);
    }

    #[test]
    fn a_board_has_the_sizes_of_its_row() {
        let goal = create_task("u", "t").goal.expect("a goal");
        assert_eq!(goal.sentence.len() + goal.acceptance.len(), 80);
        let facts = put_facts("u", "t").facts;
        assert!(facts.len() == 10 && facts.iter().all(|f| f.value.len() == 40));
        let todos = update_todos("u", "t").todos;
        assert!(todos.len() == 10 && todos.iter().all(|t| t.step.len() == 40));
        assert_eq!(append_digest("u", "t", 9).digest.expect("a digest").sentence.len(), 120);
    }
}
