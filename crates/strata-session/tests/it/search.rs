//! SearchTurns (rules R3, R4, R14).

use crate::harness::{Bed, SOON, assistant, system, user};
use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use strata_api::session::v1 as pb;
use strata_testkit::eventually;
use strata_text::embed::{EmbedError, Embedder, EmbedderIdentity, Purpose};

/// Knows a few synonyms: each group of words is one dimension. Counts the texts it embeds.
#[derive(Debug)]
struct Synonyms {
    identity: EmbedderIdentity,
    texts: AtomicUsize,
    down: AtomicBool,
}

const GROUPS: [&[&str]; 3] = [&["boat", "ship", "船"], &["doctor", "physician", "医生"], &["money", "cash", "钱"]];

impl Synonyms {
    fn new() -> Arc<Self> {
        let identity = EmbedderIdentity {
            name: "synonyms".into(),
            dimensions: 4,
            min_similarity: 0.5,
            duplicate_similarity: 0.9,
            conflict_similarity: 0.8,
            topic_similarity: 0.0,
        };
        Arc::new(Self { identity, texts: AtomicUsize::new(0), down: AtomicBool::new(false) })
    }
}

#[async_trait]
impl Embedder for Synonyms {
    fn identity(&self) -> &EmbedderIdentity {
        &self.identity
    }

    async fn embed(&self, texts: &[&str], _purpose: Purpose) -> Result<Vec<Vec<f32>>, EmbedError> {
        if self.down.load(Ordering::Relaxed) {
            return Err(EmbedError::Unavailable("down".into()));
        }
        self.texts.fetch_add(texts.len(), Ordering::Relaxed);
        let of = |text: &&str| {
            let mut vector: Vec<f32> = GROUPS.iter().map(|g| f32::from(u8::from(g.iter().any(|w| text.contains(w))))).collect();
            vector.push(0.0);
            strata_text::embed::normalise(&mut vector);
            vector
        };
        Ok(texts.iter().map(of).collect())
    }
}

fn texts(answer: &pb::SearchTurnsResponse) -> Vec<String> {
    answer.hits.iter().map(|h| h.turn.as_ref().expect("a turn").text.clone()).collect()
}

#[tokio::test]
async fn words_alone_find_turns_of_all_live_sessions_and_say_so() {
    for bed in Bed::both().await {
        let me = bed.me();
        me.append("a", vec![system("You know the harbour."), user("The harbour tour starts at noon."), assistant("Nice.")])
            .await
            .expect("appended");
        me.append("b", vec![user("我的猫叫米粒，住在杭州。"), user("The invoice INV-4711 is paid.")]).await.expect("appended");
        let found = me.search("when does the harbour tour start?", 5).await.expect("search");
        assert!(found.degraded);
        assert_eq!(texts(&found)[0], "The harbour tour starts at noon.");
        assert!(!texts(&found).iter().any(|t| t.contains("You know")), "instructions are not what was said");
        assert_eq!(texts(&me.search("杭州", 5).await.expect("search"))[0], "我的猫叫米粒，住在杭州。");
        assert_eq!(texts(&me.search("INV-4711", 5).await.expect("search"))[0], "The invoice INV-4711 is paid.");
        assert!(me.search("！？👍", 5).await.expect("search").hits.is_empty());
        let only = pb::SearchTurnsRequest { session_id: "b".into(), query: "harbour".into(), ..Default::default() };
        assert!(me.search_turns(only).await.expect("search").hits.is_empty());
        let never = pb::SearchTurnsRequest { session_id: "never".into(), query: "harbour".into(), ..Default::default() };
        assert_eq!(me.search_turns(never).await.expect_err("not there").reason, strata_core::Reason::NotFound);
        // A new turn is found at once.
        me.append("a", vec![user("The lighthouse keeper retired.")]).await.expect("appended");
        assert_eq!(texts(&me.search("lighthouse", 5).await.expect("search"))[0], "The lighthouse keeper retired.");
    }
}

#[tokio::test]
async fn the_speaker_is_part_of_what_is_searched() {
    for bed in Bed::both().await {
        let me = bed.me();
        let by = |speaker: &str, text: &str| pb::NewTurn { speaker: speaker.into(), ..user(text) };
        me.append(
            "s",
            vec![by("Caroline", "I went to the support group."), by("Melanie", "I painted a sunrise."), by("Caroline", "Great.")],
        )
        .await
        .expect("appended");
        let found = me.search("What did Melanie paint?", 3).await.expect("search");
        assert_eq!(texts(&found)[0], "I painted a sunrise.");
    }
}

#[tokio::test]
async fn r3_vectors_find_what_words_do_not_and_are_made_in_the_background() {
    let embedder = Synonyms::new();
    for bed in Bed::both_with(|_| {}, Some(embedder.clone())).await {
        let me = bed.me();
        let before = embedder.texts.load(Ordering::Relaxed);
        me.append("s", vec![user("We rented a ship."), user("My physician is strict."), user("Lunch was late.")])
            .await
            .expect("appended");
        eventually(SOON, || async { embedder.texts.load(Ordering::Relaxed) == before + 3 }).await;
        let body = pb::SearchTurnsRequest { query: "boat".into(), explain: true, ..Default::default() };
        let found = me.search_turns(body.clone()).await.expect("search");
        assert!(!found.degraded);
        assert_eq!(texts(&found)[0], "We rented a ship.");
        assert!(found.hits[0].explain.contains_key("cosine") && found.hits[0].score <= 1.0);
        assert_eq!(embedder.texts.load(Ordering::Relaxed), before + 4, "the query alone: vectors are kept");
        assert!(me.search("zebra", 5).await.expect("search").hits.is_empty(), "no absolute signal, no hit");

        embedder.down.store(true, Ordering::Relaxed);
        let found = me.search("physician boat", 5).await.expect("search goes on");
        assert!(found.degraded && texts(&found) == ["My physician is strict."]);
        embedder.down.store(false, Ordering::Relaxed);
        assert!(!me.search("boat", 5).await.expect("search").degraded);
    }
}

#[tokio::test]
async fn ten_thousand_turns_are_searched_without_reading_them_again() {
    for bed in Bed::both_with(|s| s.session.compress_every = 1000, None).await {
        let me = bed.me();
        for part in 0..50 {
            let talk = (0..200).map(|n| user(&format!("parcel {part}-{n} went to depot {n}"))).collect();
            me.append("s", talk).await.expect("appended");
        }
        let first = me.search("parcel 7-77", 5).await.expect("search");
        assert_eq!(texts(&first)[0], "parcel 7-77 went to depot 77");
        let watch = strata_runtime::ports::Stopwatch::start();
        let again = me.search("parcel 8-88", 5).await.expect("search");
        assert_eq!(texts(&again)[0], "parcel 8-88 went to depot 88");
        assert!(watch.elapsed() < std::time::Duration::from_secs(2), "{:?}", watch.elapsed());
    }
}
