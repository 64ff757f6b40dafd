//! Observe: what goes where, durably, behind a bounded queue (rules O1 to O8; acceptance A64, A65, A90).

use crate::world::{World, embedded, over_redis, principal, reason};
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strata_api::longterm::v1 as longterm;
use strata_api::router::v1 as pb;
use strata_api::router::v1::router_service_client::RouterServiceClient;
use strata_api::session::v1 as session;
use strata_core::limits::{OBSERVE_PER_USER, OBSERVE_SECONDS, OBSERVE_WRITES};
use strata_core::policy::authz::Role;
use strata_core::policy::erasure::stale_header;
use strata_core::policy::observe::{RawCommand, checked};
use strata_core::time::SECOND;
use strata_core::{Reason, Timestamp};
use strata_router::ledger::Ledger;
use strata_router::ledger::queue::Pushed;
use strata_router::modes::{Mode, Modes};
use strata_testkit::{RedisServer, eventually};
use strata_text::extract::{Asked, ExtractError, Extractor};

fn of_turn(seq: u32) -> pb::ObserveRequest {
    pb::ObserveRequest { user_id: "u1".into(), session_id: "s".into(), seq, wait: true, ..Default::default() }
}

async fn observe(world: &World, request: pb::ObserveRequest) -> pb::ObserveResponse {
    let mut request = tonic::Request::new(request);
    request.set_timeout(Duration::from_secs(30));
    world.calls().observe(request).await.unwrap().into_inner()
}

/// Observed steps: subject, rule, outcome.
fn observed(answer: &pb::ObserveResponse) -> Vec<(String, String, String)> {
    let steps = answer.decision.iter().flat_map(|decision| &decision.steps);
    steps
        .filter(|step| step.stage() == pb::DecisionStage::Observed)
        .map(|step| {
            let finding = step.finding.clone().unwrap_or_default();
            (step.subject.clone(), finding.rule, finding.outcome)
        })
        .collect()
}

fn step(subject: &str, rule: &str, outcome: &str) -> (String, String, String) {
    (subject.to_owned(), rule.to_owned(), outcome.to_owned())
}

fn command(op: pb::CommandOp, subject: &str, content: &str) -> pb::MemoryCommand {
    pb::MemoryCommand { op: op.into(), r#type: subject.into(), content: content.into(), ..Default::default() }
}

async fn a_turn_is_read_by_rule(ledger: Arc<dyn Ledger>) {
    let world = World::new(ledger).await;
    world.fake.put_turn("s", session::Role::User, "Thanks! I live in Hangzhou. What time is it?");
    world.fake.put_turn("s", session::Role::User, "以后都先给我看表格。");
    world.fake.put_turn("s", session::Role::Assistant, "I live in a data centre.");
    let answer = observe(&world, of_turn(1)).await;
    assert_eq!(answer.state(), pb::ObserveState::Done);
    assert_eq!(
        observed(&answer),
        [
            step("session:s", "S7", "EPISODE"),
            step("turn:1/1", "O2", "NOTHING"),
            step("turn:1/2", "O5", "LONGTERM"),
            step("turn:1/3", "O2", "NOTHING"),
            step("turn:1/2", "O8", "ACTIVE"),
        ]
    );
    {
        let state = world.fake.state.lock();
        let said = &state.statements[0];
        assert_eq!((said.key.as_str(), said.source_quote.as_str()), ("profile.city", "I live in Hangzhou."));
        assert_eq!(said.source(), longterm::Source::UserStatement);
        assert!(!state.attestations[0].explicit_order, "to observe is no order (rule G11)");
    }
    let answer = observe(&world, of_turn(2)).await;
    assert!(observed(&answer).contains(&step("turn:2/1", "O6", "LONGTERM")), "{answer:?}");
    let answer = observe(&world, of_turn(3)).await;
    assert!(observed(&answer).contains(&step("turn:3/1", "O1", "NOTHING")), "{answer:?}");
    assert_eq!(world.fake.state.lock().statements.len(), 2, "what the assistant says is nobody's statement");

    // Explain finds it by the observation and by the trace.
    let explain = pb::ExplainRequest { user_id: "u1".into(), trace_id: answer.observation_id.clone(), ..Default::default() };
    let told = world.calls().explain(explain).await.unwrap().into_inner().decisions;
    assert_eq!(told.len(), 1);
    assert_eq!(Some(&told[0]), answer.decision.as_ref());
    assert!(!format!("{told:?}").contains("data centre"), "no content");
}

#[tokio::test]
async fn a67_a_turn_is_read_by_rule_embedded() {
    a_turn_is_read_by_rule(embedded()).await;
}

#[tokio::test]
async fn a67_a_turn_is_read_by_rule_redis() {
    let server = RedisServer::start();
    a_turn_is_read_by_rule(over_redis(&server.url())).await;
    for key in server.all_keys_with_ttl() {
        assert!(key.ttl.is_some(), "{}", key.key);
    }
}

#[tokio::test]
async fn o8_a_turn_that_states_more_than_one_observation_writes_is_cut_there_and_says_so() {
    let world = World::new(embedded()).await;
    let turn: String = (0..OBSERVE_WRITES + 9).map(|n| format!("以后都先给我看第{n}张表格。")).collect();
    world.fake.put_turn("s", session::Role::User, &turn);
    let answer = observe(&world, of_turn(1)).await;
    assert_eq!(world.fake.state.lock().statements.len(), OBSERVE_WRITES);
    let decision = answer.decision.expect("done");
    assert!(decision.steps.len() < OBSERVE_WRITES, "a decision is bounded too");
}

#[tokio::test]
async fn a64_a90_commands_of_the_agent_pass_schema_quote_and_gate_entities_first() {
    let world = World::new(embedded()).await;
    world.fake.put_turn("s", session::Role::User, "My colleague Lin works in Rome. I prefer trains. 忘掉我的地址。");
    let mut likes = command(pb::CommandOp::Create, "PREFERENCE", "The user prefers trains.");
    likes.quote = "I prefer trains.".into();
    let guess = command(pb::CommandOp::Create, "FACT", "The user may dislike planes.");
    let mut lie = command(pb::CommandOp::Create, "FACT", "The user lives in Oslo.");
    lie.quote = "I live in Oslo.".into();
    let mut lin = command(pb::CommandOp::Create, "ENTITY:person", "Lin");
    lin.quote = "My colleague Lin works in Rome.".into();
    let mut forget = command(pb::CommandOp::Delete, "", "");
    (forget.target, forget.quote) = (uuid::Uuid::nil().to_string(), "忘掉我的地址".into());
    let mut forget_by_itself = forget.clone();
    forget_by_itself.quote = "forget my address".into();
    let commands = vec![likes, guess, lie, lin, forget, forget_by_itself];
    let answer = observe(&world, pb::ObserveRequest { commands, ..of_turn(1) }).await;
    let steps = observed(&answer);
    assert_eq!(steps[0], step("session:s", "S7", "EPISODE"), "the episode comes first");
    // Then what was understood, then entities, then the rest.
    let of = |n: usize| format!("turn:1/command:{n}");
    assert_eq!(steps[1], step(&of(1), "O8", "CREATE"));
    assert_eq!(steps[7].0, of(4), "{steps:?}");
    assert!(steps.contains(&step(&of(1), "O8", "ACTIVE")));
    assert!(steps.contains(&step(&of(3), "G2", "GATE_PROVENANCE")), "a quote that is not there is refused: {steps:?}");
    assert!(steps.contains(&step(&of(6), "G2", "GATE_PROVENANCE")), "only the user's words delete: {steps:?}");
    {
        use longterm::Source::{ModelInference, UserStatement};
        let state = world.fake.state.lock();
        let sources: Vec<longterm::Source> = state.statements.iter().map(longterm::Statement::source).collect();
        assert_eq!(sources, [UserStatement, ModelInference, UserStatement], "without a quote it is a guess");
        let called = |name: &str| state.calls.iter().filter(|(path, _)| path.ends_with(name)).count();
        assert_eq!((called("/PutEntity"), called("/ForgetMemories")), (1, 1));
    }

    let merge = pb::MemoryCommand { op: 7, ..command(pb::CommandOp::Create, "FACT", "x") };
    let refused = world.calls().observe(pb::ObserveRequest { commands: vec![merge], ..of_turn(1) }).await;
    assert_eq!(reason(refused), Reason::InvalidField);
}

#[tokio::test]
async fn a65_log_only_and_write_off_decide_and_store_nothing() {
    for frozen in [false, true] {
        let world = World::new(embedded()).await;
        world.fake.put_turn("s", session::Role::User, "I live in Hangzhou.");
        if frozen {
            world.modes.store(Arc::new(Modes { longterm: Mode::WriteOff, ..Modes::default() }));
        }
        let answer = observe(&world, pb::ObserveRequest { log_only: !frozen, ..of_turn(1) }).await;
        assert_eq!(answer.state(), pb::ObserveState::Logged);
        let steps = observed(&answer);
        assert!(
            steps.contains(&step("turn:1/1", "O5", "LONGTERM")) && steps.contains(&step("turn:1/1", "O8", "LOGGED")),
            "{steps:?}"
        );
        assert!(world.fake.state.lock().statements.is_empty());
    }
}

#[tokio::test]
async fn a03_a04_a_turn_is_appended_by_who_may_and_stored_by_who_may() {
    let world = World::new(embedded()).await;
    let turn = session::NewTurn { role: session::Role::User.into(), text: "I live in Hangzhou.".into(), ..Default::default() };
    let request =
        pb::ObserveRequest { user_id: "u1".into(), session_id: "s".into(), turn: Some(turn), wait: true, ..Default::default() };
    let calls = |roles: &[Role]| RouterServiceClient::new(world.channel_of(&world.router, principal(roles)));
    assert_eq!(reason(calls(&[Role::Reader]).observe(request.clone()).await), Reason::RoleMissing);
    assert_eq!(reason(calls(&[Role::MemoryWriter]).observe(request.clone()).await), Reason::RoleMissing, "cannot append");
    world.fake.put_turn("s", session::Role::User, "I live in Hangzhou.");
    let answer = observe_as(&mut calls(&[Role::SessionManager]), of_turn(1)).await;
    let steps = observed(&answer);
    assert!(steps.contains(&step("turn:1/1", "O8", "ROLE_MISSING")), "a session manager stores nothing: {steps:?}");
    assert!(world.fake.state.lock().statements.is_empty());
    let other = pb::ObserveRequest { user_id: "u1".into(), ..Default::default() };
    assert_eq!(reason(world.calls().observe(other).await), Reason::InvalidField);
}

async fn observe_as(
    calls: &mut RouterServiceClient<strata_runtime::RpcChannel>,
    request: pb::ObserveRequest,
) -> pb::ObserveResponse {
    let mut request = tonic::Request::new(request);
    request.set_timeout(Duration::from_secs(30));
    calls.observe(request).await.unwrap().into_inner()
}

#[tokio::test]
async fn a62_it_waits_for_a_layer_that_is_down_and_happens_once() {
    let ledger = embedded();
    let world = World::new(Arc::clone(&ledger)).await;
    world.fake.put_turn("s", session::Role::User, "I live in Hangzhou.");
    world.fake.longterm_down.store(true, Ordering::SeqCst);
    let id = uuid::Uuid::from_u128(5).to_string();
    let request = || pb::ObserveRequest { wait: false, request_id: id.clone(), ..of_turn(1) };
    let answer = observe(&world, request()).await;
    assert_eq!((answer.state(), answer.observation_id.as_str()), (pb::ObserveState::Queued, id.as_str()));
    assert_eq!(observe(&world, request()).await.observation_id, id, "known");
    assert!(world.fake.state.lock().statements.is_empty());
    // Another router goes on with what the ledger holds, beside the first: one of them does it.
    world.fake.longterm_down.store(false, Ordering::SeqCst);
    let another = world.another(&ledger).await;
    strata_testkit::eventually(Duration::from_secs(30), async || {
        // Some times faster than time goes: a user's rest ends soon, a lease is not outrun by a machine that is busy.
        world.clock.advance_micros(SECOND / 50);
        world.fake.state.lock().statements.len() == 1
    })
    .await;
    let channel = world.channel_of(&another, principal(Role::ALL));
    let told = strata_testkit::eventually_some(Duration::from_secs(30), async || {
        let explain = pb::ExplainRequest { user_id: "u1".into(), trace_id: id.clone(), ..Default::default() };
        RouterServiceClient::new(channel.clone()).explain(explain).await.ok()
    });
    assert_eq!(told.await.into_inner().decisions.len(), 1);
    assert_eq!(world.fake.state.lock().statements.len(), 1);
}

async fn a_queue(ledger: Arc<dyn Ledger>) {
    let queue = ledger.queue().expect("has one");
    let now = Timestamp::from_seconds(1_800_000_000);
    let until = now.plus(OBSERVE_SECONDS * SECOND);
    let user = "1:{1:}";
    for n in 0..OBSERVE_PER_USER {
        assert_eq!(queue.push(user, &n.to_string(), &format!("entry {n} 用户"), now, until).await.unwrap(), Pushed::Done);
    }
    assert_eq!(queue.push(user, "0", "entry 0", now, until).await.unwrap(), Pushed::Known);
    assert_eq!(queue.push(user, "one more", "x", now, until).await.unwrap(), Pushed::Full);
    assert_eq!(queue.push("2:t12:u2", "0", "another", now.plus(SECOND), until).await.unwrap(), Pushed::Done);
    let due = queue.due(now.plus(2 * SECOND), 9).await.unwrap();
    assert_eq!(due.iter().map(|(user, _)| user.as_str()).collect::<Vec<_>>(), [user, "2:t12:u2"]);
    let (seen, leased) = (due[0].1, now.plus(30 * SECOND));
    assert!(queue.lease(user, seen, leased).await.unwrap());
    assert!(!queue.lease(user, seen, leased).await.unwrap(), "one router at a time");
    assert_eq!(queue.due(now.plus(2 * SECOND), 9).await.unwrap().len(), 1);
    let head = queue.head(user, 2, now).await.unwrap();
    assert_eq!((head[0].entry.as_str(), head[1].entry.as_str()), ("entry 0 用户", "entry 1 用户"), "in order");
    for waiting in queue.head(user, 9_999, now).await.unwrap() {
        queue.done(user, &waiting.place).await.unwrap();
    }
    // Something comes while the user is leased: it is not forgotten when the lease is given back.
    assert_eq!(queue.push(user, "late", "late", now, until).await.unwrap(), Pushed::Done);
    queue.release(user, leased, now.plus(SECOND)).await.unwrap();
    let due = queue.due(now.plus(2 * SECOND), 9).await.unwrap();
    let (_, seen) = due.iter().find(|(name, _)| name == user).expect("is due again");
    assert!(queue.lease(user, *seen, leased).await.unwrap());
    for waiting in queue.head(user, 9, now).await.unwrap() {
        queue.done(user, &waiting.place).await.unwrap();
    }
    queue.release(user, leased, now).await.unwrap();
    assert_eq!(queue.due(now.plus(60 * SECOND), 9).await.unwrap().len(), 1, "nothing waits any more");
}

#[tokio::test]
async fn the_queue_is_bounded_ordered_and_leased_embedded() {
    a_queue(embedded()).await;
}

#[tokio::test]
async fn the_queue_is_bounded_ordered_and_leased_redis() {
    let server = RedisServer::start();
    a_queue(over_redis(&server.url())).await;
}

/// Answers what it is told to.
#[derive(Debug)]
struct Told(Result<&'static str, ExtractError>);

#[async_trait]
impl Extractor for Told {
    async fn extract(&self, _asked: &Asked<'_>) -> Result<Vec<strata_core::policy::observe::Command>, ExtractError> {
        let quote = self.0.clone()?;
        let raw = RawCommand {
            op: "create".into(),
            subject: "FACT".into(),
            content: "The user lives in Hangzhou.".into(),
            quote: quote.into(),
            ..RawCommand::default()
        };
        checked(vec![raw]).map_err(|fault| ExtractError::Refused(fault.message))
    }
}

#[tokio::test]
async fn a64_an_extractor_proposes_and_rules_stand_in_for_it() {
    for (answer, expected) in [
        (Ok("I live in Hangzhou."), step("turn:1/command:1", "O8", "ACTIVE")),
        (Ok("I live in Oslo."), step("turn:1/command:1", "G2", "GATE_PROVENANCE")),
        (Err(ExtractError::Unavailable("status 503".into())), step("turn:1/1", "O8", "ACTIVE")),
    ] {
        let world = World::with_extractor(embedded(), Arc::new(Told(answer.clone()))).await;
        world.fake.put_turn("s", session::Role::User, "I live in Hangzhou.");
        let steps = observed(&observe(&world, of_turn(1)).await);
        assert!(steps.contains(&expected), "{answer:?}: {steps:?}");
        assert_eq!(steps.iter().any(|(_, _, outcome)| outcome == "FALLBACK"), answer.is_err());
    }
}

#[tokio::test]
async fn e2_an_observation_that_an_erasure_overtakes_writes_nothing_and_reads_again() {
    let world = World::new(embedded()).await;
    world.fake.put_turn("s", session::Role::User, "I live in Hangzhou.");
    {
        let mut state = world.fake.state.lock();
        state.clock = Some(world.clock.clone());
        state.refusal = Some(stale_header(1));
    }
    observe(&world, pb::ObserveRequest { wait: false, ..of_turn(1) }).await;
    let called = |method: &str| {
        let state = world.fake.state.lock();
        let of = state.calls.iter().filter(|(path, _)| path.ends_with(method));
        of.map(|(_, claims)| claims.clone()).collect::<Vec<_>>()
    };
    eventually(Duration::from_secs(10), async || !called("/Propose").is_empty()).await;
    let (read, wrote) = (called("/GetTurns")[0].issued_at, called("/Propose")[0].erase_epoch);
    assert!(wrote <= read.micros().unsigned_abs(), "of the time when the turn was read: {wrote} > {}", read.micros());
    world.fake.state.lock().refusal = None;
    world.clock.advance_micros(60 * SECOND);
    eventually(Duration::from_secs(10), async || called("/GetTurns").len() > 1 && called("/Propose").len() > 1).await;
}
