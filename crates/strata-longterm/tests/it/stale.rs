//! Stale leak: what was corrected does not come back as current, by key and by text alone, in English and Chinese. Moves,
//! job changes, reversed preferences, changed amounts, renamed things; each asked in three wordings through the real recall,
//! beside facts that are only near and must stay.

#![expect(clippy::print_stdout, reason = "the numbers are for people")]

use crate::world::*;
use futures::stream::{self, StreamExt};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strata_api::longterm::v1 as pb;
use strata_core::time::SECOND;
use strata_text::embed::{Builtin, Embedder};

/// One kind of correction, with the values it is made with.
#[derive(Clone, Debug, Deserialize)]
struct Template {
    key: String,
    old: String,
    new: String,
    ask: Vec<String>,
    values: Vec<[String; 2]>,
    near: Vec<String>,
}

/// One correction.
#[derive(Clone, Debug)]
struct Case {
    template: Arc<Template>,
    values: [String; 2],
}

impl Case {
    fn filled(&self, text: &str) -> String {
        text.replace("{a}", &self.values[0]).replace("{b}", &self.values[1])
    }
}

/// What became of one correction.
#[derive(Debug, Default)]
struct Seen {
    questions: u32,
    /// The old value was answered as if it held.
    leaks: u32,
    /// The new value was among the answers.
    answered: u32,
    superseded: bool,
    linked: bool,
    /// Near facts that were retired, and that were put in doubt.
    retired: u32,
    doubted: u32,
    near: u32,
    notes: Vec<String>,
}

fn model_dir() -> PathBuf {
    std::env::var_os("MODEL_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/use-multilingual-v3"), PathBuf::from)
}

/// The built-in model where it has been fetched (`make model`); without it recall goes by keys and words.
fn embedder() -> Option<Arc<dyn Embedder>> {
    let dir = model_dir();
    dir.join("weights.npz").exists().then(|| Arc::new(Builtin::load(dir).expect("the model loads")) as Arc<dyn Embedder>)
}

/// Percent of questions that keyless corrections may leak in. Words alone find fewer of the records that speak of one thing.
fn keyless_percent() -> u32 {
    if model_dir().join("weights.npz").exists() { 5 } else { 15 }
}
/// Percent of questions that are answered with the new value, whatever words it was said in.
fn answered_percent() -> u32 {
    if model_dir().join("weights.npz").exists() { 94 } else { 75 }
}

/// Who speaks in a case.
fn speaker(world: &World, n: usize) -> Caller {
    world.user(&format!("u{n}"))
}

fn statement(case: &Case, keyed: bool, text: &str, value: &str) -> pb::Statement {
    match keyed {
        true => states(&case.template.key, if value.is_empty() { "no" } else { value }, text),
        false => says(text),
    }
}

async fn remembered(caller: &Caller, hours: i64, statement: pb::Statement) -> pb::WriteResult {
    let text = statement.content.clone();
    let caller = caller.clone().said(START.plus(hours * 3_600 * SECOND));
    caller.remember(statement).await.unwrap_or_else(|fault| panic!("{text}: {fault:?}"))
}

/// What is said first: facts that are near, and the one that will be corrected.
async fn begin(world: &World, n: usize, case: &Case, keyed: bool) -> (Vec<String>, String) {
    let user = speaker(world, n);
    let mut near = Vec::new();
    for text in &case.template.near {
        near.push(id(&remembered(&user, -9, says(&case.filled(text))).await));
    }
    let old = statement(case, keyed, &case.filled(&case.template.old), &case.values[0]);
    (near, id(&remembered(&user, -8, old).await))
}

/// The correction, and the questions after it.
async fn play(world: &World, n: usize, case: &Case, keyed: bool, (near, old): (Vec<String>, String)) -> Seen {
    let mut seen = Seen::default();
    let user = speaker(world, n);
    let old_text = case.filled(&case.template.old);
    let new_text = case.filled(&case.template.new);
    let new = remembered(&user, -1, statement(case, keyed, &new_text, &case.values[1])).await;
    if status(&new) != pb::Status::Active {
        seen.notes.push(format!("waits: {new_text:?} {:?}", rules(&new)));
    }
    let was = user.get(&old).await.expect("history has the old value");
    seen.superseded = was.status() == pb::Status::Superseded;
    if seen.superseded {
        assert_eq!(was.superseded_by, id(&new), "{new_text}");
        let chain = user.history(pb::GetHistoryRequest { memory_id: id(&new), ..Default::default() }).await.expect("served");
        assert!(chain.memories.iter().any(|m| m.memory_id == old), "{new_text}: the chain does not hold the old value");
    }
    let linked = user.candidates(true).await.into_iter().find(|c| c.memory.as_ref().is_some_and(|m| m.memory_id == id(&new)));
    seen.linked = linked.as_ref().is_some_and(|c| c.conflicts_with == old);
    for (id, text) in near.iter().zip(&case.template.near) {
        seen.near += 1;
        let memory = user.get(id).await.expect("there");
        if memory.status() != pb::Status::Active {
            seen.retired += 1;
            seen.notes.push(format!("retired: {:?} by {new_text:?}", case.filled(text)));
        }
        if linked.as_ref().is_some_and(|c| c.conflicts_with == *id) {
            seen.doubted += 1;
            seen.notes.push(format!("doubted: {:?} by {new_text:?}", case.filled(text)));
        }
    }
    for question in &case.template.ask {
        seen.questions += 1;
        let question = case.filled(question);
        let request = pb::RecallRequest { user_id: user.user.clone(), query: question.clone(), ..Default::default() };
        let answer = user.client().recall(request).await.expect("an answer").into_inner();
        let found = |id: &str| answer.items.iter().position(|item| item.memory.as_ref().is_some_and(|m| m.memory_id == id));
        let (old_at, new_at) = (found(&old), found(&id(&new)));
        seen.answered += u32::from(new_at.is_some());
        if let Some(at) = old_at {
            let labelled = answer.items[at].labels.iter().any(|label| label == "POSSIBLY SUPERSEDED" || label == "SUPERSEDED");
            if !labelled {
                seen.leaks += 1;
                seen.notes.push(format!("leak: {question:?} answers {old_text:?} in spite of {new_text:?}"));
            }
        }
    }
    seen
}

/// Plays every correction; answers leaks and questions.
async fn measure(language: &str, table: &str, keyed: bool) -> (u32, u32) {
    let templates: Vec<Arc<Template>> = table
        .lines()
        .map(|line| Arc::new(serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))))
        .collect();
    assert!(templates.len() >= 40, "{language}");
    let cases: Vec<Case> = templates
        .iter()
        .flat_map(|template| template.values.iter().map(|values| Case { template: Arc::clone(template), values: values.clone() }))
        .collect();
    assert!(cases.len() >= 200, "{language}");
    let embedder = embedder();
    let by = if embedder.is_some() { "words and meaning" } else { "words" };
    let world = World::with_embedder(7, embedder).await;
    let begun: Vec<(Vec<String>, String)> =
        stream::iter(cases.iter().enumerate()).map(|(n, case)| begin(&world, n, case, keyed)).buffered(16).collect().await;
    // A correction comes when the index knows what it corrects.
    world.settled().await;
    let seen: Vec<Seen> = stream::iter(cases.iter().enumerate().zip(begun))
        .map(|((n, case), begun)| play(&world, n, case, keyed, begun))
        .buffered(16)
        .collect()
        .await;
    let sum = |part: fn(&Seen) -> u32| seen.iter().map(part).sum::<u32>();
    let (leaks, questions) = (sum(|s| s.leaks), sum(|s| s.questions));
    let superseded = sum(|s| u32::from(s.superseded));
    let (retired, doubted, near) = (sum(|s| s.retired), sum(|s| s.doubted), sum(|s| s.near));
    let ratio = |part: u32, whole: u32| f64::from(part) / f64::from(whole.max(1));
    println!(
        "stale, {language}, {}, by {by}: {} corrections, {} superseded, {} linked; {leaks} leaks of {questions} questions ({:.3}), \
         the new value answered {:.3}; {near} near facts: {retired} retired, {doubted} doubted; precision of supersession {:.3}",
        if keyed { "keyed" } else { "keyless" },
        cases.len(),
        superseded,
        sum(|s| u32::from(s.linked)),
        ratio(leaks, questions),
        ratio(sum(|s| s.answered), questions),
        ratio(superseded, superseded + retired),
    );
    for note in seen.iter().flat_map(|s| &s.notes) {
        println!("  {note}");
    }
    assert_eq!(retired, 0, "{language}: an unrelated fact was retired");
    let answered = sum(|s| s.answered);
    assert!(
        answered * 100 >= questions * answered_percent(),
        "{language}: the new value is answered to {answered} of {questions}"
    );
    if keyed {
        assert_eq!(superseded as usize, cases.len(), "{language}: every keyed correction supersedes");
    }
    (leaks, questions)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a103_a204_k1_keyed_corrections_never_leak_in_english() {
    assert_eq!(measure("English", include_str!("data/stale.en.jsonl"), true).await.0, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a103_a204_k1_keyed_corrections_never_leak_in_chinese() {
    assert_eq!(measure("Chinese", include_str!("data/stale.zh.jsonl"), true).await.0, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a103_k0_keyless_corrections_leak_under_a_twentieth_in_english() {
    let (leaks, questions) = measure("English", include_str!("data/stale.en.jsonl"), false).await;
    assert!(leaks * 100 < questions * keyless_percent(), "{leaks} of {questions}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a103_k0_keyless_corrections_leak_under_a_twentieth_in_chinese() {
    let (leaks, questions) = measure("Chinese", include_str!("data/stale.zh.jsonl"), false).await;
    assert!(leaks * 100 < questions * keyless_percent(), "{leaks} of {questions}");
}

/// What was replaced is looked for by its own words, and what is answered is what stands in its place: over a chain, before and
/// after the index knows, for its owner alone, and not once it was forgotten.
#[tokio::test]
async fn k0_what_stands_in_the_place_of_a_found_record_is_answered() {
    for (key, said, asked) in [
        (
            "profile.city",
            [
                ("Berlin", "I live in Berlin beside the zoo"),
                ("Munich", "Actually, I moved to Munich"),
                ("Graz", "Graz is my home now"),
            ],
            "do I live beside the zoo",
        ),
        (
            "travel.seat",
            [("靠窗", "我坐飞机要靠窗的座位"), ("过道", "以后都要过道"), ("前排", "我现在更喜欢前排")],
            "飞机靠窗的座位",
        ),
        (
            "taste.first",
            [
                ("blue", "My favourite ｃｏｌｏｕｒ is blue 🙂"),
                ("green", "I like gr\u{200b}een best"),
                ("אדום", "From now on I prefer אדום"),
            ],
            "favourite colour",
        ),
    ] {
        let world = World::new().await;
        let user = world.user("u1");
        let recall = async |by: &Caller, statuses: Vec<i32>| {
            let filter = Some(pb::RecallFilter { statuses, ..Default::default() });
            let request = pb::RecallRequest { user_id: by.user.clone(), query: asked.into(), filter, ..Default::default() };
            by.client().recall(request).await.expect("an answer").into_inner().items
        };
        let mut ids = Vec::new();
        for (n, (value, text)) in said.into_iter().enumerate() {
            let hours = i64::try_from(n).expect("few") - 9;
            let stored = remembered(&user, hours, states(key, value, text)).await;
            assert_eq!(status(&stored), pb::Status::Active, "{text}: {:?}", stored.findings);
            ids.push(id(&stored));
            for settled in [false, true] {
                if settled {
                    world.settled().await;
                }
                let items = recall(&user, Vec::new()).await;
                let found: Vec<&str> =
                    items.iter().filter_map(|item| item.memory.as_ref()).map(|memory| memory.memory_id.as_str()).collect();
                assert_eq!(found, [ids[n].as_str()], "{text}, settled {settled}");
                assert_eq!(items[0].paths.iter().any(|path| path == "link"), n > 0, "{text}: {:?}", items[0].paths);
            }
        }
        // Who asks for what was replaced gets that itself.
        let old = recall(&user, vec![pb::Status::Superseded.into()]).await;
        assert!(old.iter().any(|item| item.memory.as_ref().is_some_and(|memory| memory.memory_id == ids[0])));
        assert!(
            old.iter().all(|item| item.labels.contains(&"SUPERSEDED".to_owned()) && !item.paths.contains(&"link".to_owned()))
        );
        for stranger in [world.user("u2"), user.clone().tenant("t2")] {
            assert!(recall(&stranger, Vec::new()).await.is_empty());
        }
        user.forget(&[&ids[2]], &[]).await;
        assert!(recall(&user, Vec::new()).await.is_empty(), "nothing stands in its place any more");
    }
}
