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

/// Acceptance A131: three rules, and meaning and words where none of them matches.
#[tokio::test]
async fn a131_c8_the_words_decide_where_is_looked_first() {
    let world = world().await;
    for (input, intent) in [
        ("继续刚才那个", "CONTINUE"),
        ("接着说 🙂", "CONTINUE"),
        ("Ａｓ　Ｉ　ｓａｉｄ, the second one", "CONTINUE"),
        ("Go on, please", "CONTINUE"),
        ("我住在哪里？", "PROFILE"),
        ("我的偏\u{200b}好是什么", "PROFILE"),
        ("What's my usual way to pay?", "PROFILE"),
        ("Do I like it spicy?", "PROFILE"),
        ("帮我订一张去上海的票", "HYBRID"),
        ("Is it due?", "HYBRID"),
        ("هل حان الموعد؟", "HYBRID"),
    ] {
        world.fake.state.lock().recalls.clear();
        let answer = assemble(&world, ask(input)).await;
        let told = answer.intent.expect("told");
        assert_eq!((told.rule.as_str(), told.outcome.as_str()), ("C8", intent), "{input}");
        let recalls = std::mem::take(&mut world.fake.state.lock().recalls);
        let asked = recalls.iter().find(|recall| !recall.query.is_empty()).expect("memory is searched whatever is said");
        let by_key = recalls.iter().find(|recall| recall.query.is_empty()).expect("identity is looked up by key");
        match intent {
            // Half of the memory: the session has it first.
            "CONTINUE" => assert_eq!((asked.keys.len(), asked.k), (0, 6), "{input}"),
            "PROFILE" => assert_eq!((&asked.keys, asked.k), (&by_key.keys, 12), "{input}"),
            _ => assert_eq!((asked.keys.len(), asked.k), (0, 12), "{input}"),
        }
    }
    // Words that name a slot are looked up by its key too.
    world.fake.state.lock().recalls.clear();
    assemble(&world, ask("I live in Paris.")).await;
    let recalls = std::mem::take(&mut world.fake.state.lock().recalls);
    assert!(recalls.iter().any(|recall| recall.keys == ["profile.city"] && !recall.query.is_empty()), "{recalls:?}");
}

/// Acceptance A190: what there is is shown or listed with a reason, at every window, and each line of the budget says what it
/// did not use.
#[tokio::test]
async fn a190_nothing_is_dropped_silently_and_the_unused_share_is_told() {
    let world = world().await;
    for n in 0..60 {
        world.fake.put_turn("s", session::Role::User, &format!("Step {n}: please check the delivery of parcel {n}."));
    }
    {
        let mut state = world.fake.state.lock();
        state.memories.extend((0..40).map(|n| {
            let kind = if n % 2 == 0 { longterm::Kind::Constraint } else { longterm::Kind::Fact };
            memory(&format!("00000000-0000-7000-8000-1{n:011}"), kind, "", &format!("Parcel {n} goes to dock {n}. 第{n}号。"))
        }));
    }
    let there: Vec<String> = {
        let state = world.fake.state.lock();
        state.memories.iter().map(|memory| memory.memory_id.clone()).collect()
    };
    let mut unused = Vec::new();
    for window in [400, 1_000, 2_000, 4_000, 16_000, 128_000] {
        let answer = assemble(&world, pb::AssembleContextRequest { window_tokens: window, ..ask("What of parcel 7?") }).await;
        let shown: Vec<&str> = answer.blocks.iter().flat_map(|block| &block.items).map(|item| item.id.as_str()).collect();
        let listed: Vec<&str> = answer.left_out.iter().map(|left| left.id.as_str()).collect();
        for id in &there {
            assert!(shown.contains(&id.as_str()) || listed.contains(&id.as_str()), "{window}: {id} is nowhere");
        }
        assert!(answer.left_out.iter().all(|left| left.reason.as_ref().is_some_and(|why| !why.rule.is_empty())), "{window}");
        // 64 turns: each stands in the window, is listed, or is counted by the session as older than what was read.
        let turns = |ids: &[&str]| ids.iter().filter(|id| id.starts_with("turn:")).count();
        let counted: usize = answer
            .left_out
            .iter()
            .filter(|left| left.id == "turns")
            .filter_map(|left| left.reason.as_ref()?.because.split(' ').next()?.parse::<usize>().ok())
            .sum();
        assert_eq!(turns(&shown) + turns(&listed) + counted, 64, "{window}");
        for line in &answer.budget {
            assert!(line.used <= line.tokens, "{window}: {}", line.name);
        }
        let line = |name: &str| answer.budget.iter().find(|line| line.name == name).expect("a line of the budget");
        assert_eq!((line("tools").used, line("reserve").used), (0, 0), "the caller's to use");
        assert_eq!(line("memory").used + line("history").used > 0, !shown.is_empty(), "{window}");
        unused.push(line("memory").tokens - line("memory").used);
    }
    assert!(unused.windows(2).all(|pair| pair[0] <= pair[1]), "more room, more of it unused: {unused:?}");
    assert!(unused.last().is_some_and(|left| *left > 10_000));

    // More constraints than are looked at: said, not passed over.
    world.fake.state.lock().memories.extend((0..30).map(|n| {
        memory(&format!("00000000-0000-7000-8000-2{n:011}"), longterm::Kind::Constraint, "", &format!("Never open gate {n}."))
    }));
    let answer = assemble(&world, ask("What of parcel 7?")).await;
    let why = answer.left_out.iter().filter_map(|left| left.reason.as_ref()).find(|why| why.because.contains("ListMemories"));
    assert_eq!(why.map(|why| (why.rule.as_str(), why.outcome.as_str())), Some(("C9", "OVERFLOW")));
}

/// Acceptance A211: a hook, not a habit. What the words touch on and is marked comes back as a reminder; the agent decides.
#[tokio::test]
async fn a211_a_known_weak_point_comes_back_as_a_reminder_when_it_is_touched_on() {
    let world = world().await;
    let weak = |n: u32, tags: &[&str], content: &str| longterm::Memory {
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..memory(&format!("00000000-0000-7000-8000-3{n:011}"), longterm::Kind::Experience, "", content)
    };
    world.fake.state.lock().memories = vec![
        weak(1, &[], "Has read about recursion."),
        weak(2, &["course", "weak_point"], "Mixes up closures and currying."),
        weak(3, &["weak_point"], "容易混淆闭包和柯里化。"),
        weak(4, &["weak_point"], "Forgets to close files."),
    ];
    let ids =
        |answer: &pb::AssembleContextResponse| answer.reminders.iter().map(|memory| memory.content.clone()).collect::<Vec<_>>();
    let answer = assemble(&world, ask("How does a closure relate to this?")).await;
    assert_eq!(ids(&answer), ["Mixes up closures and currying.", "容易混淆闭包和柯里化。"], "the best two");
    for reminder in &answer.reminders {
        let shown = answer.blocks.iter().flat_map(|block| &block.items).any(|item| item.id == reminder.memory_id);
        assert!(shown, "what is brought up stands in the context");
    }
    // Without words nothing is touched on, and with recall off there is nothing to remind of.
    assert!(assemble(&world, ask("")).await.reminders.is_empty());
    world.modes.store(Arc::new(Modes { longterm: Mode::RecallOff, ..Modes::default() }));
    assert!(assemble(&world, ask("How does a closure relate to this?")).await.reminders.is_empty());
}
