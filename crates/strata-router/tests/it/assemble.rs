//! AssembleContext over fake layers.

use crate::layers::memory;
use crate::world::{World, embedded, reason};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strata_api::common::v1::LayerState;
use strata_api::longterm::v1 as longterm;
use strata_api::router::v1 as pb;
use strata_api::session::v1 as session;
use strata_core::Reason;
use strata_core::policy::context;
use strata_router::modes::{Mode, Modes};

fn ask(input: &str) -> pb::AssembleContextRequest {
    pb::AssembleContextRequest {
        user_id: "u1".into(),
        session_id: "s".into(),
        task_id: "t".into(),
        system: "You help with invoices.".into(),
        input: input.into(),
        ..Default::default()
    }
}

async fn world() -> World {
    let world = World::new(embedded()).await;
    world.fake.put_fact("t", "invoice.total", "118.50 EUR");
    world.fake.put_turn("s", session::Role::User, "Please pay invoice 17.");
    world.fake.put_turn("s", session::Role::Assistant, "Looking it up.");
    world.fake.put_turn("s", session::Role::Tool, "{\"total\": 118.5}");
    world.fake.put_turn("s", session::Role::User, "Is it due?");
    let mut state = world.fake.state.lock();
    state.memories = vec![
        memory("00000000-0000-7000-8000-00000000000a", longterm::Kind::Constraint, "", "Never pay on Sundays."),
        memory("00000000-0000-7000-8000-00000000000b", longterm::Kind::Preference, "pay.method", "Pays by bank transfer."),
        memory("00000000-0000-7000-8000-00000000000c", longterm::Kind::Event, "", "Paid invoice 16 in May."),
        memory("00000000-0000-7000-8000-00000000000d", longterm::Kind::Fact, "profile.city", "Lives in Paris."),
    ];
    drop(state);
    world
}

async fn assemble(world: &World, request: pb::AssembleContextRequest) -> pb::AssembleContextResponse {
    world.calls().assemble_context(request).await.unwrap().into_inner()
}

fn state(answer: &pb::AssembleContextResponse, layer: &str) -> LayerState {
    answer.layers.iter().find(|l| l.layer == layer).unwrap().state()
}

#[tokio::test]
async fn a178_a179_a180_a181_every_layer_has_its_block_in_order() {
    let world = world().await;
    let answer = assemble(&world, ask("Is it due?")).await;
    let names: Vec<&str> = answer.blocks.iter().map(|b| b.name.as_str()).collect();
    assert_eq!(names, ["system", "board", "constraints", "facts", "events", "turns", "input"]);
    assert_eq!(answer.text, answer.blocks.iter().map(|b| b.text.as_str()).collect::<String>());
    assert!(answer.text.starts_with("You help with invoices.") && answer.text.ends_with("Is it due?"));
    assert_eq!(answer.text.matches("Is it due?").count(), 1, "the stored turn of the current words is not shown twice");
    // Q1, Q3: what is shown of long-term memory is one recall, with its tokens.
    let recorded = world.fake.state.lock().contexts.remove(0);
    let shown = answer.blocks.iter().flat_map(|block| &block.items).filter(|item| item.layer == "longterm");
    assert_eq!(recorded.memory_ids, shown.map(|item| item.id.clone()).collect::<Vec<_>>());
    assert_eq!((recorded.recall_id, recorded.request_tokens), (answer.recall_id.clone(), u64::from(answer.tokens)));
    let of_memory = answer.blocks.iter().filter(|block| ["constraints", "facts", "events"].contains(&block.name.as_str()));
    assert_eq!(recorded.memory_tokens, of_memory.map(|block| u64::from(block.tokens)).sum::<u64>());
    let parsed = context::parse(&answer.text, &answer.tag);
    assert_eq!(parsed.len(), answer.blocks.iter().map(|b| b.items.len()).sum::<usize>());
    assert!(
        parsed.iter().any(|p| p.text == "118.50 EUR"
            && p.label.contains("| task | checker |")
            && p.label.ends_with("| fact:invoice.total"))
    );
    // A08: layers are told apart, and nothing changes its layer.
    for item in answer.blocks.iter().flat_map(|b| &b.items) {
        let expected = if item.id.starts_with("turn:") {
            "session"
        } else if item.id.contains("-7000-") {
            "longterm"
        } else {
            "working"
        };
        assert_eq!(item.layer, expected, "{}", item.id);
    }
    assert!(answer.budget.iter().map(|line| line.tokens).sum::<u32>().abs_diff(8_000) < 8, "{:?}", answer.budget);
    // C7 and A07: the same stores give the same bytes, and nothing else is remembered.
    let again = assemble(&world, ask("Is it due?")).await;
    let (trace_id, recall_id) = (answer.trace_id.clone(), answer.recall_id.clone());
    assert_eq!(pb::AssembleContextResponse { trace_id, recall_id, ..again }, answer);
}

#[tokio::test]
async fn a200_c119_a_failed_layer_costs_its_part_only() {
    let world = world().await;
    world.fake.session_hangs.store(true, Ordering::SeqCst);
    let mut request = tonic::Request::new(ask("Is it due?"));
    request.set_timeout(Duration::from_millis(600));
    let answer = world.calls().assemble_context(request).await.unwrap().into_inner();
    assert_eq!(state(&answer, "session"), LayerState::Unavailable);
    assert!(answer.layers.iter().any(|l| l.detail.starts_with("session: unavailable")));
    assert!(answer.text.contains("Never pay on Sundays.") && answer.text.contains("118.50 EUR"));
    world.fake.session_hangs.store(false, Ordering::SeqCst);

    // A197: with long-term memory down, board and session go on.
    world.fake.longterm_down.store(true, Ordering::SeqCst);
    let answer = assemble(&world, ask("Is it due?")).await;
    assert_eq!(
        (state(&answer, "longterm"), state(&answer, "session"), state(&answer, "working")),
        (LayerState::Unavailable, LayerState::Ok, LayerState::Ok)
    );
    assert!(
        answer.text.contains("118.50 EUR") && answer.text.contains("Please pay invoice 17.") && !answer.text.contains("Sundays")
    );

    world.fake.working_down.store(true, Ordering::SeqCst);
    world.fake.session_down.store(true, Ordering::SeqCst);
    let answer = assemble(&world, ask("Is it due?")).await;
    assert!(answer.layers.iter().all(|l| l.state() == LayerState::Unavailable));
    assert_eq!(answer.text, "You help with invoices.\nIs it due?");
}

#[tokio::test]
async fn keyword_recall_alone_is_shown_and_said() {
    let world = world().await;
    world.fake.state.lock().degraded = true;
    let answer = assemble(&world, ask("Is it due?")).await;
    assert_eq!(state(&answer, "longterm"), LayerState::Degraded);
    assert!(answer.text.contains("Pays by bank transfer."));
}

#[tokio::test]
async fn constraints_and_identity_are_in_whatever_is_asked() {
    let world = world().await;
    // Continuing asks for less of the memory, nothing asks for none: what is resident stays.
    for input in ["继续", ""] {
        let answer = assemble(&world, ask(input)).await;
        assert!(answer.text.contains("Never pay on Sundays.") && answer.text.contains("Lives in Paris."), "{input}");
    }
}

#[tokio::test]
async fn c179_recall_off_takes_the_memory_out_and_says_so() {
    let world = world().await;
    for mode in [Mode::RecallOff, Mode::Bypass] {
        world.modes.store(Arc::new(Modes { longterm: mode, ..Modes::default() }));
        let answer = assemble(&world, ask("Is it due?")).await;
        assert_eq!(state(&answer, "longterm"), LayerState::Off);
        assert!(
            !answer.text.contains("Sundays")
                && answer.text.contains("118.50 EUR")
                && answer.text.contains("Please pay invoice 17.")
        );
    }
}

#[tokio::test]
async fn a179_an_input_that_does_not_fit_is_refused() {
    let world = world().await;
    let mut request = ask(&"words ".repeat(400));
    request.window_tokens = 256;
    let fault = strata_api::error::fault(&world.calls().assemble_context(request.clone()).await.expect_err("too large"));
    assert_eq!((fault.reason, fault.fields[0].field.as_str()), (Reason::InvalidField, "input"));
    request.window_tokens = 255;
    assert_eq!(reason(world.calls().assemble_context(request).await), Reason::InvalidField);
}

#[tokio::test]
async fn c084_a_chinese_context_holds_its_budget() {
    let world = World::new(embedded()).await;
    {
        let mut state = world.fake.state.lock();
        state.memories = (0..600)
            .map(|n| {
                memory(
                    &format!("00000000-0000-7000-8000-{n:012}"),
                    longterm::Kind::Fact,
                    "",
                    &format!("用户在第{n}次会议上确认了预算方案，并要求保留原始记录。"),
                )
            })
            .collect();
    }
    for n in 0..40 {
        world.fake.put_turn("s", session::Role::User, &format!("第{n}轮：请把上次的方案再检查一遍，特别是付款条件和交付时间。"));
    }
    let request = pb::AssembleContextRequest {
        user_id: "u1".into(),
        session_id: "s".into(),
        input: "预算是多少？".into(),
        window_tokens: 4_000,
        ..Default::default()
    };
    let answer = assemble(&world, request).await;
    assert!(answer.tokens <= 3_600 && strata_text::tokens::count(&answer.text) == answer.tokens);
    for line in &answer.budget {
        assert!(line.used <= line.tokens, "{}", line.name);
    }
    let cjk = answer.text.chars().filter(|c| ('\u{4e00}'..='\u{9fff}').contains(c)).count();
    assert!(answer.tokens as usize >= cjk, "at least one token for every ideograph");
    assert!(answer.blocks.iter().any(|b| b.name == "turns") && answer.blocks.iter().any(|b| b.name == "facts"));
    assert!(!answer.left_out.is_empty());
}

#[tokio::test]
async fn two_due_candidates_come_back_as_questions() {
    let world = world().await;
    world.fake.state.lock().due = (0..3)
        .map(|n| longterm::Candidate {
            memory: Some(memory(&format!("d{n}"), longterm::Kind::Fact, "", "Perhaps.")),
            due: true,
            ..Default::default()
        })
        .collect();
    let answer = assemble(&world, ask("Is it due?")).await;
    assert_eq!(answer.questions_due.len(), 2);
    assert!(!answer.text.contains("Perhaps."));
}

#[tokio::test]
async fn an_overlay_older_than_the_users_words_loses_to_them() {
    let world = world().await;
    // The board's value was checked before the user's statement, and the user's level owns the key.
    world.fake.put_fact("t", "home.city", "Berlin");
    world.fake.state.lock().tasks.get_mut("t").unwrap().get_mut("home.city").unwrap().overlay = true;
    let answer = assemble(&world, ask("Where do I live?")).await;
    assert!(answer.text.contains("Lives in Paris.") && !answer.text.contains("Berlin"));
    assert!(answer.left_out.iter().any(|l| l.id == "fact:home.city" && l.reason.as_ref().unwrap().rule == "P2"));
    // A value that is no overlay is the innermost one and wins.
    world.fake.state.lock().tasks.get_mut("t").unwrap().get_mut("home.city").unwrap().overlay = false;
    let answer = assemble(&world, ask("Where do I live?")).await;
    assert!(answer.text.contains("Berlin") && !answer.text.contains("Lives in Paris."));
}

#[tokio::test]
async fn a_board_is_not_in_a_context_without_its_task() {
    let world = world().await;
    world
        .working()
        .end_task(strata_api::working::v1::EndTaskRequest { user_id: "u1".into(), task_id: "t".into(), ..Default::default() })
        .await
        .unwrap();
    let answer = assemble(&world, ask("118.50 EUR")).await;
    let board = answer.blocks.iter().flat_map(|b| &b.items).filter(|i| i.layer == "working").count();
    assert_eq!((board, state(&answer, "working")), (0, LayerState::Ok));
}

#[tokio::test]
async fn p2_facts_of_the_session_are_shown_and_the_inner_level_wins() {
    let world = world().await;
    let fact =
        |key: &str, value: &str| session::SessionFact { key: key.into(), value: value.into(), seq: 1, ..Default::default() };
    let put = session::PutFactsRequest {
        user_id: "u1".into(),
        session_id: "s".into(),
        facts: vec![fact("order.number", "17"), fact("profile.city", "Lisbon")],
        ..Default::default()
    };
    world.session().put_facts(put).await.unwrap();
    let now = Some(prost_types::Timestamp { seconds: 1_767_225_700, nanos: 0 });
    for fact in world.fake.state.lock().facts.get_mut("s").unwrap().values_mut() {
        fact.update_time = now;
    }
    let answer = assemble(&world, ask("Is it due?")).await;
    let summary = answer.blocks.iter().find(|block| block.name == "summary").expect("the session's state");
    let shown: Vec<(&str, &str)> = summary.items.iter().map(|item| (item.id.as_str(), item.text.as_str())).collect();
    assert!(shown.contains(&("session_fact:order.number", "order.number: 17")), "{shown:?}");
    // The session's own value of a key hides the user's record of it, which is listed.
    assert!(answer.text.contains("Lisbon") && !answer.text.contains("Lives in Paris."));
    assert!(answer.left_out.iter().any(|left| left.id.ends_with("-00000000000d") && left.reason.as_ref().unwrap().rule == "P2"));
}

#[tokio::test]
async fn c8_going_on_shows_what_the_session_before_was_about() {
    let world = world().await;
    let sentence = |text: &str| longterm::EpisodeSentence { text: text.into(), seqs: vec![1] };
    world.fake.state.lock().episodes = vec![longterm::Episode {
        episode_id: "e7".into(),
        summary: vec![sentence("The user planned the move to Lisbon.")],
        ..Default::default()
    }];
    let answer = assemble(&world, ask("继续上次的话题")).await;
    assert!(answer.text.contains("planned the move") && answer.text.contains("EPISODE"));
    // It is no record: nothing of it can be reported as used.
    assert!(!world.fake.state.lock().contexts.last().unwrap().memory_ids.iter().any(|id| id.starts_with("episode")));
    let answer = assemble(&world, ask("Is it due?")).await;
    assert!(!answer.text.contains("planned the move"));
}

#[tokio::test]
async fn rule_c10_a_question_is_recorded_as_asked_in_its_session() {
    let world = world().await;
    let due = "00000000-0000-7000-8000-0000000000dd";
    world.fake.state.lock().due = vec![longterm::Candidate {
        memory: Some(memory(due, longterm::Kind::Fact, "", "Perhaps.")),
        due: true,
        ..Default::default()
    }];
    let answer = assemble(&world, ask("Is it due?")).await;
    assert_eq!(answer.questions_due.len(), 1);
    let state = world.fake.state.lock();
    let recorded = state.contexts.last().unwrap();
    assert_eq!((recorded.asked_ids.clone(), recorded.session_id.as_str()), (vec![due.to_owned()], "s"));
}

#[tokio::test]
async fn a132_the_same_statement_is_shown_once_and_the_context_is_messages_too() {
    let world = world().await;
    world.fake.state.lock().memories.push(memory(
        "00000000-0000-7000-8000-00000000000e",
        longterm::Kind::Fact,
        "",
        "never pay on SUNDAYS",
    ));
    let answer = assemble(&world, pb::AssembleContextRequest { messages: true, ..ask("Is it due?") }).await;
    assert_eq!(answer.text.to_lowercase().matches("sundays").count(), 1);
    assert!(answer.left_out.iter().any(|left| left.reason.as_ref().unwrap().rule == "R11"));
    let roles: Vec<&str> = answer.messages.iter().map(|message| message.role.as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
    assert!(answer.messages[0].content.contains("118.50 EUR") && answer.messages[4].content == "Is it due?");
    assert!(assemble(&world, ask("Is it due?")).await.messages.is_empty(), "only when asked for");
}
