//! Episodes: what comes in when a session ends, what is masked and left out, who finds it and until when.

use crate::world::*;
use strata_api::convert::common::wire_time;
use strata_api::error;
use strata_api::internal::v1 as internal;
use strata_api::longterm::v1 as pb;
use strata_api::session::v1 as session;
use strata_core::policy::authz::Role;
use strata_core::time::{DAY, SECOND};
use strata_core::{Fault, Reason, limits};

fn say(seq: u32, role: session::Role, text: &str) -> session::Turn {
    session::Turn {
        seq,
        role: role.into(),
        text: text.into(),
        time: Some(wire_time(START.plus(i64::from(seq) * SECOND))),
        tokens: 3,
        ..Default::default()
    }
}

fn user(seq: u32, text: &str) -> session::Turn {
    say(seq, session::Role::User, text)
}

/// A sentence that was copied from a turn of the user.
fn copied(seq: u32, text: &str) -> internal::ArchivedSentence {
    internal::ArchivedSentence { text: text.into(), seqs: vec![seq], quote: text.into(), user: true }
}

fn request(caller: &Caller, name: &str, turns: Vec<session::Turn>) -> internal::ArchiveSessionRequest {
    internal::ArchiveSessionRequest {
        user_id: caller.user.clone(),
        agent_id: caller.agent.clone(),
        session_id: name.into(),
        incarnation: 1,
        turns,
        ..Default::default()
    }
}

async fn send(caller: &Caller, request: internal::ArchiveSessionRequest) -> Result<internal::ArchiveSessionResponse, Fault> {
    caller.target().archive_session(request).await.map(tonic::Response::into_inner).map_err(|s| error::fault(&s))
}

async fn finish(caller: &Caller, name: &str, sentences: Vec<internal::ArchivedSentence>) -> pb::Episode {
    let last = internal::ArchiveSessionRequest { complete: true, sentences, ..request(caller, name, Vec::new()) };
    send(caller, last).await.expect("archived").episode.expect("an episode")
}

async fn archive(
    caller: &Caller,
    name: &str,
    turns: Vec<session::Turn>,
    sentences: Vec<internal::ArchivedSentence>,
) -> pb::Episode {
    send(caller, request(caller, name, turns)).await.expect("archived");
    finish(caller, name, sentences).await
}

async fn episodes(caller: &Caller) -> Vec<pb::Episode> {
    let all = pb::ListEpisodesRequest { user_id: caller.user.clone(), agent_id: caller.agent.clone(), ..Default::default() };
    caller.client().list_episodes(all).await.expect("a list").into_inner().episodes
}

async fn search(caller: &Caller, query: &str) -> internal::SearchArchivedTurnsResponse {
    let by = internal::SearchArchivedTurnsRequest {
        user_id: caller.user.clone(),
        agent_id: caller.agent.clone(),
        query: query.into(),
        ..Default::default()
    };
    caller.target().search_archived_turns(by).await.expect("searched").into_inner()
}

fn texts(found: &internal::SearchArchivedTurnsResponse) -> Vec<String> {
    found.hits.iter().filter_map(|hit| hit.turn.as_ref()).map(|turn| turn.text.clone()).collect()
}

#[tokio::test]
async fn a85_a86_a_session_is_an_episode_with_its_fields_and_never_a_record() {
    let world = World::new().await;
    let ada = world.user("ada");
    for (name, turns, sentence, query, hit) in [
        (
            "en",
            vec![
                user(1, "The harbour tour starts at noon on Saturday."),
                say(2, session::Role::Assistant, "Noted, the tour on Saturday."),
                say(3, session::Role::Tool, "{\"harbour\": \"internal payload\"}"),
                say(4, session::Role::System, "Always be harbour friendly."),
                user(5, "I will bring the blue jacket."),
            ],
            "The harbour tour starts at noon on Saturday.",
            "when does the harbour tour start",
            "The harbour tour starts at noon on Saturday.",
        ),
        (
            "zh",
            vec![
                user(1, "我打算周六去青岛看海边的灯塔。"),
                say(2, session::Role::Assistant, "好的，周六去青岛。"),
                user(3, "我会带蓝色的外套。"),
            ],
            "我打算周六去青岛看海边的灯塔。",
            "青岛 灯塔",
            "我打算周六去青岛看海边的灯塔。",
        ),
    ] {
        let count = u32::try_from(turns.len()).expect("few");
        let episode = archive(&ada, name, turns, vec![copied(1, sentence)]).await;
        assert_eq!((episode.session_id.as_str(), episode.incarnation, episode.turns), (name, 1, count), "{episode:?}");
        assert_eq!(episode.archived_turns, 3, "tool and system turns are left out");
        assert_eq!(episode.from_time, Some(wire_time(START.plus(SECOND))));
        assert_eq!(episode.to_time, Some(wire_time(START.plus(i64::from(count) * SECOND))));
        assert_eq!(episode.turns_expire_time, Some(wire_time(START.plus(limits::ARCHIVED_TURN_DAYS * DAY))));
        assert_eq!(episode.summary.iter().map(|s| s.text.as_str()).collect::<Vec<_>>(), [sentence], "{episode:?}");
        let found = search(&ada, query).await;
        assert_eq!(texts(&found)[0], hit);
        let first = &found.hits[0];
        assert!(first.archived && first.episode_id == episode.episode_id && first.score > 0.0, "{first:?}");
        assert!(found.degraded, "without an embedder it goes by words");
    }
    assert!(texts(&search(&ada, "internal payload").await).is_empty());
    assert_eq!(episodes(&ada).await.iter().map(|e| e.session_id.as_str()).collect::<Vec<_>>(), ["zh", "en"], "newest first");
    // A85: four tables with their own rules; nothing of it is a fact.
    assert_eq!(world.count("SELECT count(*) FROM records").await, 0);
    let tables =
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('episodes', 'records', 'entities', 'skills')";
    assert_eq!(world.count(tables).await, 4);
    let recall = pb::RecallRequest { user_id: "ada".into(), query: "harbour tour".into(), ..Default::default() };
    assert!(ada.client().recall(recall).await.expect("recalled").into_inner().items.is_empty());
    assert_eq!(world.count("SELECT count(*) FROM pragma_foreign_key_check").await, 0);
    assert_eq!(world.count("SELECT count(*) FROM archived_turns WHERE owner_id NOT IN (SELECT owner_id FROM owners)").await, 0);
}

#[tokio::test]
async fn c155_s14_secrets_are_masked_in_turns_and_sentences_with_them_are_left_out() {
    let world = World::new().await;
    let ada = world.user("ada");
    let turns = vec![
        user(1, "my password is hunter2-QUARTZ and I like the harbour"),
        user(2, "我的身份证号是11010519491231002X，住在灯塔旁边"),
        user(3, "my card is ４１１１ 1111 1111 1111 for the lighthouse 👍"),
        user(4, "call me at 138\u{200b}0013\u{200b}8000 about the lighthouse"),
        user(5, "I never eat pork."),
        session::Turn { speaker: "password: hunter2secret!".into(), external_id: "13900139000".into(), ..user(6, "Bye then") },
    ];
    let sentences = vec![
        copied(1, "my password is hunter2-QUARTZ and I like the harbour"),
        copied(2, "我的身份证号是11010519491231002X"),
        copied(4, "call me at 13800138000 about the lighthouse"),
        copied(5, "I never eat pork."),
        internal::ArchivedSentence { user: false, ..copied(6, "The assistant booked the tour.") },
        internal::ArchivedSentence { quote: "maybe I live in Hangzhou".into(), ..copied(6, "I live in Hangzhou") },
        copied(6, "use that one"),
    ];
    let episode = archive(&ada, "s", turns, sentences).await;
    assert_eq!(episode.summary.iter().map(|s| s.text.as_str()).collect::<Vec<_>>(), ["I never eat pork."], "{episode:?}");
    let named = |rule: &str, outcome: &str| episode.findings.iter().any(|f| f.rule == rule && f.outcome == outcome);
    for rule in ["G2", "G3", "G4", "G7", "G12"] {
        assert!(named(rule, "LEFT_OUT"), "{rule}: {:?}", episode.findings);
    }
    assert!(named("S14", "MASKED"), "{:?}", episode.findings);
    let said = format!("{episode:?}");
    for part in ["QUARTZ", "hunter2", "11010519491231002X", "1111 1111", "13800138000", "13900139000"] {
        assert!(!said.contains(part) && !world.files_hold(part), "{part}");
    }
    assert!(!world.files_hold("138\u{200b}0013"));
    let found = texts(&search(&ada, "lighthouse").await);
    assert!(found.iter().any(|text| text.contains("[card]")) && found.iter().any(|text| text.contains("[phone]")), "{found:?}");
    assert!(texts(&search(&ada, "hunter2").await).is_empty());
}

#[tokio::test]
async fn s14_a_part_that_comes_again_changes_nothing_and_a_session_that_went_on_is_one_episode() {
    let world = World::new().await;
    let ada = world.user("ada");
    let first = request(&ada, "s", vec![user(1, "The harbour tour is on Saturday."), user(2, "I bring the blue jacket.")]);
    for _ in 0..3 {
        assert_eq!(send(&ada, first.clone()).await.expect("archived").through_seq, 2);
    }
    // Not whole yet: neither seen nor searched.
    assert!(episodes(&ada).await.is_empty() && search(&ada, "harbour").await.episodes == 0);
    let done = finish(&ada, "s", vec![copied(1, "The harbour tour is on Saturday.")]).await;
    assert_eq!(finish(&ada, "s", vec![copied(2, "I bring the blue jacket.")]).await, done, "the first one stands");
    assert_eq!(send(&ada, first).await.expect("archived").episode, Some(done.clone()));
    assert_eq!(world.count("SELECT count(*) FROM archived_turns").await, 2);
    assert_eq!(world.count("SELECT count(*) FROM episodes").await, 1);

    // It did not end then, and went on.
    let gap = request(&ada, "s", vec![user(4, "too early")]);
    assert_eq!(send(&ada, gap).await.expect_err("a gap").fields[0].field, "turns");
    send(&ada, request(&ada, "s", vec![user(2, "again"), user(3, "The lighthouse is closed.")])).await.expect("archived");
    let more = finish(&ada, "s", vec![copied(3, "The lighthouse is closed.")]).await;
    assert_eq!((more.episode_id.as_str(), more.turns, more.archived_turns), (done.episode_id.as_str(), 3, 3));
    assert_eq!(more.summary[0].text, "The lighthouse is closed.");
    assert_eq!(texts(&search(&ada, "blue jacket").await)[0], "I bring the blue jacket.");

    // The same id again is another session, and an empty one is none.
    let second = internal::ArchiveSessionRequest { incarnation: 2, ..request(&ada, "s", vec![user(1, "Another day.")]) };
    send(&ada, second.clone()).await.expect("archived");
    let ends = internal::ArchiveSessionRequest { incarnation: 2, turns: Vec::new(), complete: true, ..second };
    let other = send(&ada, ends).await.expect("archived").episode.expect("an episode");
    assert_ne!(other.episode_id, done.episode_id);
    assert_eq!(send(&ada, request(&ada, "none", Vec::new())).await.expect("served").episode, None);
}

#[tokio::test]
async fn s14_turns_are_gone_after_thirty_days_and_the_summary_stays() {
    let world = World::new().await;
    let ada = world.user("ada");
    archive(&ada, "old", vec![user(1, "我打算周六去看灯塔。")], vec![copied(1, "我打算周六去看灯塔。")]).await;
    world.clock.advance_micros(limits::ARCHIVED_TURN_DAYS * DAY - 1);
    assert_eq!(texts(&search(&ada, "灯塔").await).len(), 1);
    world.clock.advance_micros(1);
    assert!(search(&ada, "灯塔").await.hits.is_empty(), "by the clock, with or without a sweep");
    let listed = episodes(&ada).await;
    assert_eq!((listed[0].archived_turns, listed[0].summary.len(), listed[0].turns), (0, 1, 1));
    // The next write takes the rows away.
    archive(&ada, "new", vec![user(1, "The lighthouse is closed.")], Vec::new()).await;
    assert_eq!(world.count("SELECT count(*) FROM archived_turns").await, 1);
    let without =
        internal::ArchiveSessionRequest { summary_only: true, ..request(&ada, "summary", vec![user(1, "I like the pier.")]) };
    send(&ada, without).await.expect("archived");
    assert_eq!(finish(&ada, "summary", vec![copied(1, "I like the pier.")]).await.archived_turns, 0);
    assert!(search(&ada, "pier").await.hits.is_empty());
}

#[tokio::test]
async fn c033_c034_c131_an_episode_is_its_owners_alone() {
    let world = World::new().await;
    let ada = world.user("ada");
    let helper = ada.clone().agent("helper");
    archive(&ada, "mine", vec![user(1, "The harbour tour is on Saturday.")], Vec::new()).await;
    archive(&helper, "agents", vec![user(1, "The harbour office is closed.")], Vec::new()).await;
    for n in 0..3 {
        archive(&ada, &format!("more {n}"), vec![user(1, "Nothing special today.")], Vec::new()).await;
    }
    for stranger in [ada.clone().tenant("t2"), world.user("bob"), world.user("ada%")] {
        assert!(episodes(&stranger).await.is_empty() && search(&stranger, "harbour").await.hits.is_empty());
    }
    let other = ada.clone().agent("other");
    assert_eq!(texts(&search(&other, "harbour").await), ["The harbour tour is on Saturday."], "the user's, not another agent's");
    assert_eq!(texts(&search(&helper, "harbour").await).len(), 2);
    assert_eq!(episodes(&helper).await.len(), 5);
    assert_eq!(episodes(&other).await.len(), 4);
    let named = internal::SearchArchivedTurnsRequest {
        user_id: "ada".into(),
        session_id: "agents".into(),
        query: "harbour".into(),
        ..Default::default()
    };
    let of_one = ada.target().search_archived_turns(named).await.expect("searched").into_inner();
    assert_eq!(texts(&of_one), ["The harbour office is closed."]);

    // The header names the user; a body that names another is refused. Tokens are one owner's.
    let foreign = internal::ArchiveSessionRequest { user_id: "bob".into(), ..request(&ada, "s", vec![user(1, "x y z")]) };
    assert_eq!(send(&ada, foreign).await.expect_err("refused").reason, Reason::OwnerMismatch);
    let page = |user: &str, token: &str| pb::ListEpisodesRequest {
        user_id: user.into(),
        page_size: 2,
        page_token: token.into(),
        ..Default::default()
    };
    let first = ada.client().list_episodes(page("ada", "")).await.expect("a page").into_inner();
    let second = ada.client().list_episodes(page("ada", &first.next_page_token)).await.expect("a page").into_inner();
    let all: std::collections::BTreeSet<String> =
        first.episodes.iter().chain(&second.episodes).map(|e| e.episode_id.clone()).collect();
    assert_eq!(all.len(), 4);
    let bob = world.user("bob");
    let stolen = bob.client().list_episodes(page("bob", &first.next_page_token)).await.expect_err("foreign");
    assert_eq!(error::fault(&stolen).reason, Reason::InvalidPageToken);
    let filtered = pb::ListEpisodesRequest { session_id: "mine".into(), ..page("ada", &first.next_page_token) };
    let moved = ada.client().list_episodes(filtered).await.expect_err("another list");
    assert_eq!(error::fault(&moved).reason, Reason::InvalidPageToken);
    let between = pb::ListEpisodesRequest { from_time: Some(wire_time(START.plus(DAY))), ..page("ada", "") };
    assert!(ada.client().list_episodes(between).await.expect("a page").into_inner().episodes.is_empty());
    let backwards = pb::ListEpisodesRequest {
        from_time: Some(wire_time(START.plus(DAY))),
        to_time: Some(wire_time(START)),
        ..page("ada", "")
    };
    assert_eq!(error::fault(&ada.client().list_episodes(backwards).await.expect_err("no time")).fields[0].field, "to_time");
    // Ending a session is no right to write memories: the layer asks for a signed write, not for a role of the caller.
    let ends = ada.clone().roles([Role::SessionManager]);
    assert!(send(&ends, request(&ends, "by the manager", vec![user(1, "A quiet day.")])).await.is_ok());
}

#[tokio::test]
async fn s14_rows_go_with_their_owner() {
    let world = World::new().await;
    let ada = world.user("ada");
    archive(&ada, "s", vec![user(1, "The harbour tour is on Saturday.")], Vec::new()).await;
    let erase = |db: &rusqlite::Connection| Ok::<_, strata_runtime::sqlite::SqliteError>(db.execute("DELETE FROM owners", [])?);
    world.database.write(erase).await.expect("erased");
    assert_eq!(world.count("SELECT (SELECT count(*) FROM episodes) + (SELECT count(*) FROM archived_turns)").await, 0);
}

/// The end of a topic at its turn `last`, while the session goes on.
async fn close(caller: &Caller, name: &str, last: u32, sentences: Vec<internal::ArchivedSentence>) -> pb::Episode {
    let whole =
        internal::ArchiveSessionRequest { complete: true, closes_seq: last, sentences, ..request(caller, name, Vec::new()) };
    let answer = send(caller, whole).await.expect("archived");
    answer.episode.expect("an episode")
}

fn range(episode: &pb::Episode) -> (u32, u32, u32, u32) {
    (episode.from_seq, episode.to_seq, episode.turns, episode.archived_turns)
}

#[tokio::test]
async fn a43_s7_topics_of_a_session_are_episodes_that_share_no_turn() {
    let world = World::new().await;
    let ada = world.user("ada");
    send(&ada, request(&ada, "s", vec![user(1, "The harbour tour is on Saturday."), user(2, "我带蓝色的外套。")]))
        .await
        .expect("there");
    let harbour = close(&ada, "s", 2, vec![copied(1, "The harbour tour is on Saturday.")]).await;
    assert_eq!(range(&harbour), (1, 2, 2, 2));
    assert_eq!(close(&ada, "s", 2, Vec::new()).await, harbour, "closed once");
    let state = send(&ada, request(&ada, "s", Vec::new())).await.expect("served");
    assert_eq!((state.through_seq, state.closed_seq), (2, 2));

    // What the session says later is another episode; what comes again, late, is none.
    let bread = vec![user(3, "面团要静置两个小时。"), user(4, "The oven is at 230 degrees.")];
    assert_eq!(send(&ada, request(&ada, "s", bread.clone())).await.expect("there").through_seq, 4);
    send(&ada, request(&ada, "s", vec![user(1, "late"), user(2, "late")])).await.expect("passed over");
    send(&ada, request(&ada, "s", bread)).await.expect("passed over");
    // Turns of the next topic came in between: the close of an earlier one changes nothing.
    assert_eq!(range(&close(&ada, "s", 3, Vec::new()).await), (3, 4, 2, 0));
    assert_eq!(episodes(&ada).await, std::slice::from_ref(&harbour), "not whole yet");
    let end = finish(&ada, "s", vec![copied(4, "The oven is at 230 degrees.")]).await;
    assert_eq!(range(&end), (3, 4, 2, 2));
    assert_ne!(end.episode_id, harbour.episode_id);
    // It did not end then after all, and its topic ends one turn later.
    send(&ada, request(&ada, "s", vec![user(5, "The crust is done.")])).await.expect("there");
    assert_eq!(range(&close(&ada, "s", 5, vec![copied(5, "The crust is done.")]).await), (3, 5, 3, 3));

    let list = episodes(&ada).await;
    assert_eq!(list.iter().map(range).collect::<Vec<_>>(), [(3, 5, 3, 3), (1, 2, 2, 2)]);
    assert_eq!(list[0].from_time, Some(wire_time(START.plus(3 * SECOND))));
    assert_eq!(list[1].to_time, Some(wire_time(START.plus(2 * SECOND))));
    assert_eq!(world.count("SELECT count(*) FROM archived_turns").await, 5);
    assert_eq!(world.count("SELECT count(DISTINCT seq) FROM archived_turns").await, 5);
    for (query, seq, episode) in
        [("harbour tour", 1, &list[1]), ("蓝色 外套", 2, &list[1]), ("面团 静置", 3, &list[0]), ("oven", 4, &list[0])]
    {
        let hit = search(&ada, query).await.hits.remove(0);
        let turn = hit.turn.expect("a turn");
        assert_eq!(
            (turn.seq, turn.session_id.as_str(), hit.episode_id.as_str()),
            (seq, "s", episode.episode_id.as_str()),
            "{query}"
        );
    }
    let alone = internal::ArchiveSessionRequest { closes_seq: 5, ..request(&ada, "s", Vec::new()) };
    assert_eq!(send(&ada, alone).await.expect_err("without complete").fields[0].field, "closes_seq");
}
