//! Change of topic (rule S7), over the gRPC path on both stores, with an embedder that knows two subjects in two languages.

use crate::harness::{Bed, Caller, SOON, assistant, call, result, user};
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use strata_api::session::v1 as pb;
use strata_testkit::eventually;
use strata_text::embed::{EmbedError, Embedder, EmbedderIdentity, Purpose};

const SUBJECTS: [&[&str]; 2] = [&["train", "火车"], &["dough", "面团"]];

/// One dimension per subject, and one for all the rest. Counts the texts it embeds.
#[derive(Debug)]
struct Subjects {
    identity: EmbedderIdentity,
    texts: AtomicUsize,
}

impl Subjects {
    fn new() -> Arc<Self> {
        let identity = EmbedderIdentity {
            name: "subjects".into(),
            dimensions: SUBJECTS.len() + 1,
            min_similarity: 0.5,
            duplicate_similarity: 0.9,
            conflict_similarity: 0.8,
            topic_similarity: 0.5,
        };
        Arc::new(Self { identity, texts: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl Embedder for Subjects {
    fn identity(&self) -> &EmbedderIdentity {
        &self.identity
    }

    async fn embed(&self, texts: &[&str], _purpose: Purpose) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.texts.fetch_add(texts.len(), Ordering::Relaxed);
        let of = |text: &&str| {
            let mut vector: Vec<f32> = SUBJECTS.iter().map(|s| f32::from(u8::from(s.iter().any(|w| text.contains(w))))).collect();
            vector.push(f32::from(u8::from(vector.iter().all(|x| *x == 0.0))));
            vector
        };
        Ok(texts.iter().map(of).collect())
    }
}

/// Six turns and more about trains, in a language of its own each, with what keyboards put between words.
fn trains(language: &str) -> Vec<pb::NewTurn> {
    let texts: [&str; 8] = match language {
        "en" => [
            "The train to Vienna leaves at 10:42 on Friday evening.",
            "Your train has a sleeping car with nine compartments.",
            "A seat in that train costs 120 EUR without a meal.",
            "The train stops in Salzburg and Linz for ten minutes.",
            "Platform four is where the train usually waits.",
            "My wife takes the earlier train from Munich.",
            "Thanks!",
            "The conductor of the train checks passports at the border.",
        ],
        "zh" => [
            "去维也纳的火车星期五晚上十点四十二分出发。",
            "这趟火车有九个卧铺包厢，可以睡觉。",
            "这趟火车的座位要一百二十欧元，不含餐费。",
            "火车在萨尔茨堡和林茨各停靠十分钟左右。",
            "火车一般停在第四站台等候乘客上车。",
            "我妻子坐早一点的火车从慕尼黑过来。",
            "谢谢！",
            "火车的列车员会在边境检查护照和签证。",
        ],
        _ => [
            "🚆 The train to Vienna leaves at １０：４２ on Friday evening.",
            "这趟火车有九个\u{200b}卧铺包厢，可以睡觉。",
            "A seat in that train costs \u{202e}120\u{202c} EUR without a meal.",
            "火车在萨尔茨堡和林茨各停靠１０分钟左右。",
            "Ｐｌａｔｆｏｒｍ four is where the train usually waits 🙂.",
            "我妻子坐早一点的火车从慕尼黑过来 👩‍👩‍👧。",
            "👍",
            "The conductor of the train says שלום and checks passports.",
        ],
    };
    (0..).zip(texts).map(|(n, text)| if n % 2 == 0 { user(text) } else { assistant(text) }).collect()
}

fn bread(language: &str, number: usize) -> pb::NewTurn {
    let texts = match language {
        "en" => ["Now the bread: let the dough rest for two hours.", "Fold the dough three times with wet hands."],
        "zh" => ["现在说面包：面团要静置两个小时再揉。", "用湿手把面团折叠三次，然后放进烤箱。"],
        _ => ["🍞 Ｎｏｗ the bread: let the dough rest for two hours.", "用湿手把面\u{feff}团折叠三次：面团放进烤箱。"],
    };
    user(texts[number % 2])
}

async fn topic_end(me: &Caller, session: &str) -> u32 {
    me.session(session).await.expect("a session").topic_end_seq
}

async fn ends_at(me: &Caller, session: &str, seq: u32) {
    eventually(SOON, async || topic_end(me, session).await == seq).await;
}

/// Waits until turns have their vectors, and so were judged or are being.
async fn embedded(embedder: &Subjects, texts: usize) {
    eventually(SOON, async || embedder.texts.load(Ordering::Relaxed) >= texts).await;
}

#[tokio::test]
async fn a43_a_change_of_topic_compresses_the_old_topic_and_nothing_of_the_new_one() {
    for language in ["en", "zh", "mixed"] {
        for bed in Bed::both_with(|_| {}, Some(Subjects::new())).await {
            let me = bed.me();
            assert_eq!(me.append("s", trains(language)).await.expect("appended").topic_end_seq, 0);
            me.append("s", vec![bread(language, 0)]).await.expect("appended");
            me.append("s", vec![bread(language, 1)]).await.expect("appended");
            ends_at(&me, "s", 8).await;
            let window = me.window("s", 20, 4_000).await.expect("window");
            assert_eq!(window.turns.iter().map(|t| t.seq).collect::<Vec<_>>(), [9, 10], "{language} {}", bed.store);
            let ranges: Vec<(u32, u32)> = window.summaries.iter().map(|s| (s.from_seq, s.to_seq)).collect();
            assert_eq!(ranges, [(1, 8)], "well below ten turns beyond the kept ones: {language}");
            let told = crate::harness::sentences(&window.summaries).join(" ");
            assert!(!told.contains("dough") && !told.contains("面团"), "{told}");
            // What was compressed stays readable by its number, letter for letter.
            let old = me.turns("s", 1, 8).await.expect("turns");
            assert!(old.iter().zip(trains(language)).all(|(stored, said)| stored.text == said.text));
            // The next append tells it.
            assert_eq!(me.append("s", vec![bread(language, 2)]).await.expect("appended").topic_end_seq, 8);
        }
    }
}

#[tokio::test]
async fn a43_a_dialogue_that_keeps_its_topic_has_no_end_of_one() {
    for language in ["en", "zh", "mixed"] {
        let embedder = Subjects::new();
        for bed in Bed::both_with(|_| {}, Some(embedder.clone())).await {
            let before = embedder.texts.load(Ordering::Relaxed);
            let me = bed.me();
            let mut said = trains(language);
            // One turn aside is a digression, however often.
            said.push(bread(language, 0));
            said.extend(trains(language));
            said.push(bread(language, 1));
            said.extend(trains(language));
            let all = said.len();
            for part in said.chunks(3) {
                me.append("s", part.to_vec()).await.expect("appended");
            }
            embedded(&embedder, before + all).await;
            // The change that comes at last is the only one: all pairs before it were judged.
            me.append("s", vec![bread(language, 0), bread(language, 1)]).await.expect("appended");
            ends_at(&me, "s", u32::try_from(all).expect("few")).await;
            let summaries = me.session("s").await.expect("a session").summaries;
            assert!(summaries.last().is_some_and(|s| s.to_seq as usize == all), "{summaries:?}");
        }
    }
}

#[tokio::test]
async fn a43_s7_without_vectors_or_by_setting_no_topic_ends() {
    let embedder = Subjects::new();
    let by_setting = Bed::both_with(|settings| settings.session.topic_changes = false, Some(embedder.clone())).await;
    let without = Bed::both().await;
    for (bed, has_vectors) in by_setting.into_iter().map(|bed| (bed, true)).chain(without.into_iter().map(|bed| (bed, false))) {
        let before = embedder.texts.load(Ordering::Relaxed);
        let me = bed.me();
        me.append("s", trains("en")).await.expect("appended");
        me.append("s", (0..4).map(|n| bread("en", n)).collect()).await.expect("appended");
        if has_vectors {
            embedded(&embedder, before + 12).await;
        }
        assert_eq!(me.append("s", vec![bread("en", 1)]).await.expect("appended").topic_end_seq, 0);
        let session = me.session("s").await.expect("a session");
        assert_eq!((session.topic_end_seq, session.summaries.len()), (0, 0));
    }
}

#[tokio::test]
async fn a43_c115_appends_that_race_with_the_end_of_a_topic_are_not_lost_and_not_covered() {
    for bed in Bed::both_with(|_| {}, Some(Subjects::new())).await {
        let me = bed.me();
        me.append("s", trains("en")).await.expect("appended");
        let racing = (0..24).map(|n| {
            let me = me.clone();
            async move { me.append("s", vec![bread("en", n)]).await.map(|_| ()) }
        });
        for appended in futures::future::join_all(racing).await {
            appended.expect("appended");
        }
        ends_at(&me, "s", 8).await;
        let session = me.session("s").await.expect("a session");
        assert_eq!(session.last_seq, 32);
        let mut next = 1;
        for summary in &session.summaries {
            assert_eq!(summary.from_seq, next, "no hole, no overlap: {:?}", session.summaries);
            next = summary.to_seq + 1;
        }
        assert!(next - 1 < session.last_seq, "the newest turns are verbatim");
        let turns = me.turns("s", 1, 32).await.expect("turns");
        assert_eq!(turns.iter().map(|t| t.seq).collect::<Vec<_>>(), (1..=32).collect::<Vec<_>>());
        let window = me.window("s", 40, 100_000).await.expect("window");
        let shown: Vec<u32> = window.turns.iter().map(|t| t.seq).collect();
        assert_eq!(shown, (next..=32).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a43_s6_a_topic_does_not_end_inside_a_tool_call() {
    for bed in Bed::both_with(|_| {}, Some(Subjects::new())).await {
        let me = bed.me();
        let mut said = trains("en");
        said.push(call("c1", "look_up the seat map of the train car for two adults"));
        said.extend([bread("en", 0), bread("en", 1)]);
        said.push(result("c1", "seat map: 12A, 12B"));
        me.append("s", said).await.expect("appended");
        ends_at(&me, "s", 9).await;
        let summaries = me.session("s").await.expect("a session").summaries;
        assert_eq!(summaries.iter().map(|s| s.to_seq).collect::<Vec<_>>(), [8], "the call waits for its result");
    }
}

#[tokio::test]
async fn a43_an_ended_session_takes_its_topics_with_it() {
    for bed in Bed::both_with(|_| {}, Some(Subjects::new())).await {
        let me = bed.me();
        me.append("s", trains("zh")).await.expect("appended");
        me.append("s", vec![bread("zh", 0), bread("zh", 1)]).await.expect("appended");
        ends_at(&me, "s", 8).await;
        me.end("s").await.expect("ended");
        bed.clock.advance(std::time::Duration::from_secs(25 * 3600));
        me.append("s", trains("zh")).await.expect("a new session under the same id");
        assert_eq!(topic_end(&me, "s").await, 0);
    }
}
