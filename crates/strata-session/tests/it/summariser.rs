//! Summaries by a model of the deployment, over a provider that answers well, badly, late and not at all, on both stores.

use crate::harness::{Bed, Caller, Models, SOON, assistant, request_id, sentences, user};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use strata_api::session::v1 as pb;
use strata_core::{Fault, Reason};
use strata_testkit::HttpDouble;
use strata_testkit::eventually;
use strata_testkit::http::Reply;
use strata_text::summarise::{HttpSummariser, HttpSummariserConfig, Summariser};

type Said<'a> = Vec<(&'a str, Vec<u32>)>;

/// What a model says when it does as it is told.
fn say(sentences: &[(&str, Vec<u32>)]) -> Reply {
    let all: Vec<Value> = sentences.iter().map(|(text, turns)| json!({"text": text, "turns": turns})).collect();
    content(&json!({"sentences": all}).to_string())
}

fn content(text: &str) -> Reply {
    Reply::ok(json!({"choices": [{"message": {"role": "assistant", "content": text}}]}).to_string())
}

fn summariser(base: &str, timeout: Duration) -> Arc<dyn Summariser> {
    let config = HttpSummariserConfig { timeout, ..HttpSummariserConfig::new(base, "m") };
    Arc::new(HttpSummariser::new(config).expect("config"))
}

/// A provider that gives the answer it was told last, and the beds that ask it.
struct Provider {
    http: HttpDouble,
    reply: Arc<Mutex<Reply>>,
}

impl Provider {
    fn start() -> Self {
        let reply = Arc::new(Mutex::new(Reply::ok("{}")));
        let next = Arc::clone(&reply);
        Self { http: HttpDouble::start(move |_, _| next.lock().expect("lock").clone()), reply }
    }

    fn answers(&self, reply: Reply) {
        *self.reply.lock().expect("lock") = reply;
    }

    fn models(&self, timeout: Duration) -> Models {
        Models { summariser: Some(summariser(&self.http.base(), timeout)), ..Models::default() }
    }

    /// Bodies of the requests so far.
    fn asked(&self) -> Vec<String> {
        self.http.seen().into_iter().map(|(_, body)| body).collect()
    }
}

/// Long enough for any machine.
const PATIENT: Duration = Duration::from_secs(60);

const LANGUAGES: [&str; 3] = ["en", "zh", "mixed"];

/// Three turns that say something, one of them with a hedge; beside them small talk.
fn dialogue(language: &str) -> Vec<pb::NewTurn> {
    let [first, second, third, thanks] = match language {
        "en" => [
            "The hotel in Vienna costs 129 EUR a night.",
            "The room may be ready at 14:30.",
            "The guest Ms Okafor arrives on 3 June.",
            "Thanks!",
        ],
        "zh" => ["维也纳的酒店一晚要129欧元。", "房间可能14:30准备好。", "客人王芳6月3日到达。", "谢谢！"],
        _ => [
            "🏨 The hotel in Vienna costs １２９ EUR a night.",
            "房间可\u{200b}能14:30准备好。",
            "The guest \u{202e}Ms Okafor\u{202c} arrives on 3 June 🙂.",
            "👍",
        ],
    };
    vec![user(first), assistant(second), user(third), user(thanks)]
}

/// A true summary of it, that no rule would make.
fn good(language: &str, from: u32) -> Said<'static> {
    let texts = match language {
        "en" => ["The Vienna hotel costs 129 EUR a night.", "The room may be ready at 14:30.", "Ms Okafor arrives on 3 June."],
        "zh" => ["维也纳酒店一晚129欧元。", "房间可能14:30准备好。", "王芳6月3日到达。"],
        _ => ["The Vienna hotel costs １２９ EUR a night.", "房间可能14:30准备好。", "Ms Okafor arrives on 3 June."],
    };
    (from..).zip(texts).map(|(seq, text)| (text, vec![seq])).collect()
}

fn with(language: &str, at: usize, text: &'static str) -> Said<'static> {
    let mut said = good(language, 1);
    said[at].0 = text;
    said
}

fn hallucinated(language: &str) -> Said<'static> {
    let text = match language {
        "en" => "The Vienna hotel costs 192 EUR a night.",
        "zh" => "维也纳酒店一晚192欧元。",
        _ => "The Vienna hotel costs １９２ EUR a night.",
    };
    with(language, 0, text)
}

fn strengthened(language: &str) -> Said<'static> {
    with(language, 1, if language == "en" { "The room is ready at 14:30." } else { "房间14:30准备好。" })
}

fn lost(language: &str) -> Said<'static> {
    let mut said = good(language, 1);
    said.pop();
    said
}

/// 40 turns, of which three say something. Declared as work: with so much small talk it would be taken for a chat.
async fn forty(me: &Caller, language: &str) {
    let turns = dialogue(language).into_iter().chain((0..36).map(|_| user("ok"))).collect();
    let body = pb::AppendTurnsRequest { session_id: "s".into(), turns, shape: pb::Shape::Task.into(), ..Default::default() };
    me.append_turns(body).await.expect("appended");
}

/// No compression but by wish.
fn by_wish(settings: &mut strata_core::policy::settings::PolicySettings) {
    (settings.session.compress_every, settings.session.compress_tokens) = (1000, 100_000);
}

async fn by_model(me: &Caller, session: &str, request_id: &str) -> Result<pb::CompressSessionResponse, Fault> {
    let body = pb::CompressSessionRequest {
        session_id: session.into(),
        keep_turns: 1,
        require_model: true,
        request_id: request_id.into(),
        ..Default::default()
    };
    me.compress_session(body).await
}

async fn makers(me: &Caller, session: &str) -> Vec<String> {
    me.session(session).await.expect("a session").summaries.into_iter().map(|s| s.made_by).collect()
}

fn named(fault: &Fault) -> String {
    fault.metadata.iter().find(|(key, _)| *key == "value").map(|(_, value)| value.clone()).unwrap_or_default()
}

#[tokio::test]
async fn c108_a_failing_summariser_changes_nothing() {
    let provider = Provider::start();
    let ok = |text: &str| Reply::ok(text.as_bytes().to_vec());
    for language in LANGUAGES {
        for bed in Bed::both_by(by_wish, provider.models(PATIENT)).await {
            let me = bed.me();
            forty(&me, language).await;
            let before = me.window("s", 100, 100_000).await.expect("window");
            let long: String = (0..400).map(|_| "again and again ").collect();
            let failures = [
                ("error", Reply::Answer("500 Internal Server Error".into(), Vec::new()), Reason::StoreUnavailable),
                ("overloaded", Reply::Answer("429 Too Many Requests".into(), Vec::new()), Reason::StoreUnavailable),
                ("no key", Reply::Answer("401 Unauthorized".into(), Vec::new()), Reason::SummaryRefused),
                ("no answer", ok(""), Reason::SummaryRefused),
                ("no JSON", content("The guest arrives soon."), Reason::SummaryRefused),
                ("empty text", say(&with(language, 2, " \u{200b}")), Reason::SummaryRefused),
                ("nothing kept", say(&[]), Reason::SummaryRefused),
                ("longer than its input", say(&[(long.as_str(), vec![1])]), Reason::SummaryRefused),
                ("invalid UTF-8", Reply::ok(vec![b'{', b'"', 0xff, 0xfe, b'"', b'}']), Reason::SummaryRefused),
                ("another turn", say(&good(language, 30)), Reason::SummaryRefused),
                ("a value that nobody said", say(&hallucinated(language)), Reason::SummaryRefused),
                ("a hedge that became a fact", say(&strengthened(language)), Reason::SummaryRefused),
                ("a value that is lost", say(&lost(language)), Reason::SummaryRefused),
            ];
            for (what, reply, reason) in failures {
                provider.answers(reply);
                let fault = by_model(&me, "s", "").await.expect_err(what);
                assert_eq!(fault.reason, reason, "{language} {}: {what}: {fault:?}", bed.store);
                match what {
                    "a value that nobody said" => assert!(!named(&fault).is_empty(), "{fault:?}"),
                    "a value that is lost" => assert!(dialogue(language)[2].text.contains(&named(&fault)), "{fault:?}"),
                    "a hedge that became a fact" => {
                        assert!(fault.preconditions.iter().any(|flaw| flaw.rule == "S5"), "{language}: {fault:?}");
                    }
                    _ => {}
                }
                assert_eq!(me.window("s", 100, 100_000).await.expect("window"), before, "{language} {}: {what}", bed.store);
                assert_eq!(makers(&me, "s").await, Vec::<String>::new());
            }
            // A later good run covers what it would have covered.
            provider.answers(say(&good(language, 1)));
            let made = by_model(&me, "s", "").await.unwrap_or_else(|fault| panic!("{language} {}: {fault:?}", bed.store));
            let summary = made.summary.expect("a summary");
            assert_eq!((summary.from_seq, summary.to_seq, summary.made_by.as_str()), (1, 39, "model"));
            let texts: Vec<&str> = good(language, 1).iter().map(|(text, _)| *text).collect();
            assert_eq!(sentences(std::slice::from_ref(&summary)), texts);
            assert_eq!(made.verdicts.len(), 39);
            let window = me.window("s", 100, 100_000).await.expect("window");
            assert_eq!((sentences(&window.summaries), window.turns.len()), (texts.iter().map(|t| (*t).to_owned()).collect(), 1));
        }
    }
}

#[tokio::test]
async fn c108_a_summariser_that_hangs_costs_its_timeout_and_changes_nothing() {
    let provider = Provider::start();
    provider.answers(Reply::Hang);
    for bed in Bed::both_by(by_wish, provider.models(Duration::from_millis(500))).await {
        let me = bed.me();
        me.append("s", dialogue("en")).await.expect("appended");
        assert_eq!(by_model(&me, "s", "").await.expect_err("late").reason, Reason::StoreUnavailable);
        assert_eq!(makers(&me, "s").await, Vec::<String>::new());
        // Nobody else waits for it: the rules summarise at once.
        assert_eq!(me.compress("s", 1).await.expect("by rule").summary.expect("a summary").made_by, "rules");
    }
}

#[tokio::test]
async fn s2_a_model_betters_what_the_rules_summarised_and_they_stand_where_it_fails() {
    for language in LANGUAGES {
        let provider = Provider::start();
        for bed in Bed::both_by(by_wish, provider.models(PATIENT)).await {
            let me = bed.me();
            // Down: the rules summarise, and the range is asked for again with the next compression.
            provider.answers(Reply::Answer("503 Service Unavailable".into(), Vec::new()));
            let asked = provider.asked().len();
            me.append("s", dialogue(language)).await.expect("appended");
            let by_rule = me.compress("s", 1).await.expect("compressed").summary.expect("a summary");
            assert_eq!(by_rule.made_by, "rules");
            eventually(SOON, async || provider.asked().len() > asked).await;
            assert_eq!(makers(&me, "s").await, ["rules"]);
            // Back: it is asked for both ranges, and only the good answer is taken.
            provider.answers(say(&good(language, 1)));
            me.append("s", dialogue(language)).await.expect("appended");
            let all = |wanted: &'static [&'static str]| {
                let me = me.clone();
                // Another look at the session asks again for what had no answer.
                async move {
                    me.compress("s", 1).await.expect("compressed");
                    makers(&me, "s").await == wanted
                }
            };
            eventually(SOON, || all(&["model", "rules"])).await;
            let now = me.session("s").await.expect("a session").summaries;
            let texts: Vec<&str> = good(language, 1).iter().map(|(text, _)| *text).collect();
            assert_eq!(sentences(&now[..1]), texts, "{language} {}", bed.store);
            assert_eq!((now[0].from_seq, now[0].to_seq), (by_rule.from_seq, by_rule.to_seq));
            assert_eq!(
                (&now[0].values, &now[0].source_hash),
                (&by_rule.values, &by_rule.source_hash),
                "the index is the service's"
            );
            // Refused once, and once more after it was told why, a range is not asked for again; what is new is.
            let second = || provider.asked().iter().skip(asked).filter(|body| body.contains("\\\"turn\\\":5,")).count();
            eventually(SOON, async || second() == 2).await;
            provider.answers(say(&good(language, 9)));
            me.append("s", dialogue(language)).await.expect("appended");
            eventually(SOON, || all(&["model", "rules", "model"])).await;
            assert_eq!(second(), 2);
        }
    }
}

#[tokio::test]
async fn s3_what_was_wrong_is_told_to_the_model_once_and_small_talk_never_is() {
    for language in ["en", "zh"] {
        let (bad, better) = (lost(language), good(language, 1));
        let http = HttpDouble::start(move |_, body| {
            let asked: Value = serde_json::from_str(body).expect("JSON");
            say(if asked["messages"].as_array().is_some_and(|all| all.len() > 2) { &better } else { &bad })
        });
        let models = Models { summariser: Some(summariser(&http.base(), PATIENT)), ..Models::default() };
        for bed in Bed::both_by(by_wish, models).await {
            let me = bed.me();
            me.append("s", dialogue(language)).await.expect("appended");
            me.append("s", vec![user("ok")]).await.expect("appended");
            let (before, id) = (http.seen().len(), request_id());
            let made = by_model(&me, "s", &id).await.expect("better");
            assert_eq!(made.summary.as_ref().expect("a summary").made_by, "model");
            let seen: Vec<String> = http.seen().into_iter().skip(before).map(|(_, body)| body).collect();
            assert_eq!(seen.len(), 2);
            let lost = if language == "en" { "3 June" } else { "6月3日" };
            let last: Value = serde_json::from_str(&seen[1]).expect("JSON");
            assert!(last["messages"][3]["content"].as_str().is_some_and(|text| text.contains(lost)), "{}", seen[1]);
            assert!(seen.iter().all(|body| !body.contains("Thanks!") && !body.contains("谢谢")));
            // C058: a repetition gives the first answer and asks nobody.
            assert_eq!(by_model(&me, "s", &id).await.expect("again"), made);
            assert_eq!(http.seen().len(), before + 2);
            // S8: nothing to compress, nothing worth keeping: no model is needed.
            me.append("s", vec![user("ok"), user("thanks")]).await.expect("appended");
            assert_eq!(by_model(&me, "s", "").await.expect("small talk").summary, None);
            assert_eq!(by_model(&me, "s", "").await.expect("nothing").summary, None);
            assert_eq!(http.seen().len(), before + 2);
        }
    }
}

#[tokio::test]
async fn c115_appends_and_anchors_during_a_summary_of_the_model_are_neither_lost_nor_covered() {
    for language in ["en", "zh"] {
        let entered = Arc::new(AtomicBool::new(false));
        let (go, wait) = mpsc::channel::<()>();
        let (inside, better) = (Arc::clone(&entered), good(language, 1));
        let http = HttpDouble::start(move |_, _| {
            inside.store(true, Ordering::Relaxed);
            wait.recv_timeout(PATIENT).expect("the test goes on");
            say(&better)
        });
        let models = Models { summariser: Some(summariser(&http.base(), PATIENT)), ..Models::default() };
        for bed in Bed::both_by(by_wish, models).await {
            let me = bed.me();
            forty(&me, language).await;
            entered.store(false, Ordering::Relaxed);
            let meanwhile = async {
                eventually(SOON, async || entered.load(Ordering::Relaxed)).await;
                for n in 0..10 {
                    me.append("s", vec![user(&format!("meanwhile {n}"))]).await.expect("an append waits for no model");
                }
                assert_eq!(me.anchor("s", &[12]).await.expect("anchored"), [12]);
                go.send(()).expect("the model waits");
            };
            let (made, ()) = tokio::join!(by_model(&me, "s", ""), meanwhile);
            let summary = made.expect("summarised").summary.expect("a summary");
            assert_eq!((summary.from_seq, summary.to_seq), (1, 39), "{language} {}", bed.store);
            let window = me.window("s", 100, 100_000).await.expect("window");
            let shown: Vec<u32> = window.turns.iter().map(|t| t.seq).collect();
            assert_eq!(shown, (40..=50).collect::<Vec<_>>());
            assert_eq!(window.anchors.iter().map(|t| t.seq).collect::<Vec<_>>(), [12]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s2_the_model_is_asked_once_for_a_range_however_often_it_is_wanted() {
    const SESSIONS: usize = 20;
    let provider = Provider::start();
    provider.answers(say(&good("en", 1)));
    for bed in Bed::both_by(by_wish, provider.models(PATIENT)).await {
        let me = bed.me();
        let before = provider.asked().len();
        let wanted = async |session: String| {
            me.append(&session, dialogue("en")).await.expect("appended");
            let (me, session) = (&me, session.as_str());
            // Each of them has the model look at the session.
            futures::future::join_all((0..4).map(async |_| me.compress(session, 1).await.expect("by rule"))).await;
            eventually(SOON, async || makers(me, session).await == ["model"]).await;
        };
        futures::future::join_all((0..SESSIONS).map(|n| wanted(format!("s{n}")))).await;
        // Whoever was before it in the queue has been looked at.
        wanted("last".into()).await;
        assert_eq!(provider.asked().len() - before, SESSIONS + 1, "{}", bed.store);
    }
}

#[tokio::test]
async fn c058_a_repetition_while_the_model_is_asked_waits_for_that_answer() {
    let entered = Arc::new(AtomicBool::new(false));
    let (go, wait) = mpsc::channel::<()>();
    let inside = Arc::clone(&entered);
    let http = HttpDouble::start(move |_, _| {
        inside.store(true, Ordering::Relaxed);
        wait.recv_timeout(PATIENT).expect("the test goes on");
        say(&good("en", 1))
    });
    let models = Models { summariser: Some(summariser(&http.base(), PATIENT)), ..Models::default() };
    for bed in Bed::both_by(by_wish, models).await {
        let me = bed.me();
        me.append("s", dialogue("en")).await.expect("appended");
        entered.store(false, Ordering::Relaxed);
        let (before, id) = (http.seen().len(), request_id());
        let (first, again, other) = (by_model(&me, "s", &id), by_model(&me, "s", &id), by_model(&me, "s", ""));
        let answered = async {
            eventually(SOON, async || entered.load(Ordering::Relaxed)).await;
            go.send(()).expect("the model waits");
        };
        let (first, again, other, ()) = tokio::join!(first, again, other, answered);
        let first = first.expect("summarised");
        assert_eq!(first.summary.as_ref().expect("a summary").made_by, "model");
        assert_eq!((again.expect("the same"), other.expect("nothing is left").summary), (first, None), "{}", bed.store);
        assert_eq!(http.seen().len(), before + 1);
    }
}

#[tokio::test]
async fn a30_a31_what_was_overturned_is_in_no_summary_of_a_model_or_a_client() {
    let provider = Provider::start();
    for (language, said, wrong, right) in [
        (
            "en",
            ["The budget for the trip is $200.", "No wait, the budget for the trip is $300.", "ok"],
            ["The budget for the trip is $200.", "The trip has a budget of $200."],
            ["The budget for the trip is $300.", "The trip's budget went from $200 to $300."],
        ),
        (
            "zh",
            ["这次旅行的预算是200元。", "不对，这次旅行的预算是300元。", "好的"],
            ["这次旅行的预算是200元。", "旅行预算200元。"],
            ["这次旅行的预算是300元。", "旅行预算从200元改为300元。"],
        ),
    ] {
        for bed in Bed::both_by(by_wish, provider.models(PATIENT)).await {
            let me = bed.me();
            for (n, text) in right.into_iter().enumerate() {
                let session = format!("s{n}");
                me.append(&session, said.iter().map(|text| user(text)).collect()).await.expect("appended");
                for wrong in wrong {
                    // Beside the present state, so that nothing is lost.
                    let both = [(wrong, vec![1]), (right[0], vec![2])];
                    provider.answers(say(&both));
                    let fault = by_model(&me, &session, "").await.expect_err(wrong);
                    assert_eq!(fault.reason, Reason::SummaryRefused, "{language}: {wrong}: {fault:?}");
                    let both: Vec<(&str, &[u32])> = both.iter().map(|(text, seqs)| (*text, seqs.as_slice())).collect();
                    let fault = me.summarise(&session, 1..=2, &both).await.expect_err(wrong);
                    assert!(fault.preconditions.iter().any(|flaw| flaw.rule == "S2b"), "{language}: {wrong}: {fault:?}");
                }
                provider.answers(say(&[(text, vec![1, 2])]));
                let made = by_model(&me, &session, "").await.unwrap_or_else(|fault| panic!("{language}: {text}: {fault:?}"));
                assert_eq!(made.summary.expect("a summary").made_by, "model");
            }
        }
    }
}

#[tokio::test]
async fn s2_without_a_model_there_is_none_to_require() {
    for bed in Bed::both().await {
        let me = bed.me();
        me.append("s", dialogue("en")).await.expect("appended");
        let fault = by_model(&me, "s", "").await.expect_err("no model");
        assert_eq!((fault.reason, fault.fields[0].field.as_str()), (Reason::InvalidField, "require_model"));
    }
}
