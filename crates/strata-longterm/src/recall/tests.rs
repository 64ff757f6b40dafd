//! Recall and the relay together, over both indexes.

use super::*;
use crate::index::Space;
use crate::index::exact::{ExactIndex, HOT_BYTES};
use crate::index::qdrant::{QdrantIndex, QdrantSettings};
use crate::testing::{NOW, Put, Store, Words};
use strata_api::longterm::v1::{RecallFilter, RecallRequest, RecallResponse};
use strata_core::time::{HOUR, MINUTE};
use strata_testkit::fixtures::{agent_owner, unique, unique_owner};
use strata_testkit::{ManualClock, SeqIds, WireDouble, eventually};

struct World {
    store: Store,
    recall: Recall,
    relay: Relay,
    clock: ManualClock,
    settings: Arc<ArcSwap<PolicySettings>>,
    words: Option<Words>,
    tasks: TaskGroup,
}

fn words() -> Words {
    Words::new("words@1", 256).teach("beverage", "drink").teach("忌口", "不吃")
}

impl World {
    /// Over the server of `settings`, else over the exact scan.
    async fn over(store: Store, settings: Option<QdrantSettings>, words: Option<Words>) -> Self {
        let embedder = words.clone().map(|words| Arc::new(words) as Arc<dyn Embedder>);
        let space = words.as_ref().map(|w| Space { model: w.identity.name.clone(), dims: w.identity.dimensions });
        let index: Arc<dyn Index> = match settings {
            Some(settings) => Arc::new(QdrantIndex::new(settings, space).expect("a client")),
            None => Arc::new(ExactIndex::new(store.database.clone(), space, HOT_BYTES)),
        };
        let clock = ManualClock::at(NOW);
        let ports = Ports { clock: clock.port(), ids: SeqIds::seeded(7).port() };
        let settings = Arc::new(ArcSwap::from_pointee(PolicySettings::default()));
        let relay =
            Relay::open(ports.clone(), store.database.clone(), Arc::clone(&index), embedder.clone()).await.expect("a relay");
        let recall = Recall::new(RecallParts {
            ports,
            settings: Arc::clone(&settings),
            database: store.database.clone(),
            registry: Arc::new(Registry::builtin()),
            index,
            embedder,
            reranker: None,
            relay: relay.clone(),
        });
        let tasks = TaskGroup::new();
        recall.spawn(&tasks);
        Self { store, recall, relay, clock, settings, words, tasks }
    }

    async fn exact(words: Option<Words>) -> Self {
        Self::over(Store::open(), None, words).await
    }

    async fn on(double: &WireDouble, words: Option<Words>) -> Self {
        Self::over(Store::open(), Some(qdrant(double)), words).await
    }

    /// Starts the relay and waits until the index knows everything.
    async fn delivered(&self) {
        self.relay.spawn(&self.tasks);
        self.settled().await;
    }

    async fn settled(&self) {
        self.relay.wake();
        eventually(Duration::from_secs(20), || async {
            let status = self.relay.status().await.expect("a status");
            status.pending == 0 && !status.reindexing
        })
        .await;
    }

    async fn ask(&self, owner: &Owner, request: RecallRequest) -> Result<RecallResponse, Fault> {
        let request = RecallRequest { user_id: owner.user.as_str().to_owned(), ..request };
        self.recall.recall(&OwnerScope::for_test(owner.clone()), request).await
    }

    async fn found(&self, owner: &Owner, query: &str) -> Vec<String> {
        contents(&self.ask(owner, of(query)).await.expect("an answer"))
    }

    fn set(&self, change: impl FnOnce(&mut RecallSettings)) {
        let mut settings = PolicySettings::clone(&self.settings.load());
        change(&mut settings.recall);
        settings.validate().expect("valid settings");
        self.settings.store(Arc::new(settings));
    }
}

fn qdrant(double: &WireDouble) -> QdrantSettings {
    QdrantSettings { url: double.url(), prefix: unique("recall"), exact: true, ..QdrantSettings::default() }
}

fn of(query: &str) -> RecallRequest {
    RecallRequest { query: query.to_owned(), ..RecallRequest::default() }
}

fn contents(answer: &RecallResponse) -> Vec<String> {
    answer.items.iter().filter_map(|item| Some(item.memory.as_ref()?.content.clone())).collect()
}

fn paths(answer: &RecallResponse) -> Vec<&str> {
    answer.items[0].paths.iter().map(String::as_str).collect()
}

fn refused_field(answer: Result<RecallResponse, Fault>) -> String {
    answer.expect_err("refused").fields[0].field.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn c126_a_write_is_recalled_at_once_and_a_forgotten_one_is_not() {
    let double = WireDouble::start();
    for world in [World::exact(Some(words())).await, World::on(&double, Some(words())).await] {
        let owner = unique_owner();
        // Without the relay: the row is in the outbox only.
        let id = world.store.put(Put::new(&owner, "prefers a warm drink")).await;
        let answer = world.ask(&owner, of("beverage warm")).await.expect("an answer");
        assert_eq!(contents(&answer), ["prefers a warm drink"]);
        assert_eq!(paths(&answer), ["dense", "keyword", "pending"]);
        world.store.change(id, "status = 'DELETED'").await;
        assert!(world.found(&owner, "beverage warm").await.is_empty());

        world.store.change(id, "status = 'ACTIVE'").await;
        world.delivered().await;
        let answer = world.ask(&owner, of("beverage warm")).await.expect("an answer");
        assert_eq!(paths(&answer), ["dense", "keyword"], "the index has it now");
        world.store.change(id, "status = 'DELETED'").await;
        assert!(world.found(&owner, "beverage warm").await.is_empty(), "though the index was not told yet");
        world.settled().await;
        assert!(world.found(&owner, "beverage warm").await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c127_a_lost_index_degrades_recall_and_catches_up() {
    let double = WireDouble::start();
    let world = World::on(&double, Some(words())).await;
    let owner = unique_owner();
    for n in 0..50 {
        world.store.put(Put::new(&owner, &format!("note {n} about gardening"))).await;
    }
    let forgotten = world.store.put(Put::new(&owner, "drink oat milk").slot("diet.milk", "oat")).await;
    world.delivered().await;

    double.stop();
    let answer = world.ask(&owner, of("oat milk")).await.expect("an answer");
    assert!(answer.degraded);
    assert_eq!(contents(&answer), ["drink oat milk"]);
    assert_eq!(answer.findings[0].rule, "D2");
    let by_key = RecallRequest { keys: vec!["diet.milk".into()], ..RecallRequest::default() };
    let answer = world.ask(&owner, by_key).await.expect("an answer");
    assert_eq!(paths(&answer), ["key"], "an exact key needs no index");
    world.store.put(Put::new(&owner, "drink plum juice")).await;
    world.store.change(forgotten, "status = 'DELETED'").await;
    world.relay.wake();
    assert!(world.found(&owner, "oat").await.is_empty(), "forgotten at once");
    assert_eq!(world.found(&owner, "plum").await, ["drink plum juice"]);
    eventually(Duration::from_secs(10), || async { world.relay.status().await.expect("a status").index_down }).await;

    double.resume();
    world.settled().await;
    world.clock.advance(Duration::from_secs(60));
    eventually(Duration::from_secs(10), || async {
        let answer = world.ask(&owner, of("beverage plum")).await.expect("an answer");
        !answer.degraded
            && contents(&answer).first().is_some_and(|text| text == "drink plum juice")
            && !contents(&answer).iter().any(|text| text.contains("oat"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c076_c077_c083_words_alone_find_what_they_name_and_nothing_else() {
    let world = World::exact(None).await;
    let owner = unique_owner();
    let records = [
        "用户不吃辣,忌口海鲜",
        "東京の予算承認は月曜日",
        "배포 점검표는 스테이징에서 확인",
        "throughput is 3 GB/s",
        "I don't drink wine",
        "a state-of-the-art engine",
        "written in C++",
        "choose a AND b",
        "he said \"quoted\" words",
        "the function f (x)",
        "select * from t",
        "use NEAR here",
        "filter col:val now",
        "^a anchors",
        "上海的天气",
    ];
    for text in records {
        world.store.put(Put::new(&owner, text)).await;
    }
    world.delivered().await;
    for (query, record) in [
        ("不吃辣", 0),
        ("忌口", 0),
        ("辣", 0),
        ("予算", 1),
        ("점검표", 2),
        ("GB/s", 3),
        ("don't", 4),
        ("state-of-the-art", 5),
        ("C++", 6),
        ("a AND b", 7),
        ("\"quoted\"", 8),
        ("(x)", 9),
        ("*", 10),
        ("NEAR", 11),
        ("col:val", 12),
        ("^a", 13),
        ("ＧＢ/ｓ", 3),
    ] {
        let found = world.found(&owner, query).await;
        assert_eq!(found.first().map(String::as_str), Some(records[record]), "{query}");
    }
    for query in ["不吃辣", "忌口", "予算", "점검표", "辣"] {
        assert_eq!(world.found(&owner, query).await.len(), 1, "{query}");
    }
    for query in ["！？。…", "👍", "👨‍👩‍👧", "——"] {
        assert_eq!(world.found(&owner, query).await, Vec::<String>::new(), "{query}");
    }
    for query in ["", " ", "\n\t", "\u{200b}"] {
        assert_eq!(refused_field(world.ask(&owner, of(query)).await), "query", "{query:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c077_with_vectors_too_a_query_without_words_finds_nothing() {
    let world = World::exact(Some(words())).await;
    let owner = unique_owner();
    for text in ["用户不吃辣", "likes tea", "天气好"] {
        world.store.put(Put::new(&owner, text)).await;
    }
    world.delivered().await;
    for query in ["！？。…", "👍"] {
        assert!(world.found(&owner, query).await.is_empty(), "{query}");
    }
    assert_eq!(world.found(&owner, "辣").await, ["用户不吃辣"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn c033_c041_owners_and_agents_see_what_is_theirs() {
    let world = World::exact(Some(words())).await;
    let owner = unique_owner();
    let agent = |name| agent_owner(owner.tenant.as_str(), owner.user.as_str(), name);
    let other = unique_owner();
    world.store.put(Put::new(&owner, "lives in Norway").slot("home.country", "Norway")).await;
    world.store.put(Put::new(&other, "lives in Chile").slot("home.country", "Chile")).await;
    world.store.put(Put::new(&agent("health"), "physiotherapy on Thursdays")).await;
    for round in 0..2 {
        let all = RecallRequest { k: 50, ..of("lives in which country") };
        assert_eq!(contents(&world.ask(&owner, all).await.expect("an answer")), ["lives in Norway"]);
        assert_eq!(world.found(&agent("health"), "physiotherapy").await, ["physiotherapy on Thursdays"]);
        assert_eq!(world.found(&owner, "physiotherapy").await, ["physiotherapy on Thursdays"]);
        assert!(world.found(&agent("travel"), "physiotherapy").await.is_empty());
        assert_eq!(world.found(&agent("travel"), "lives").await, ["lives in Norway"]);
        assert!(world.found(&unique_owner(), "lives").await.is_empty());
        if round == 0 {
            world.delivered().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k10_an_agent_shadows_the_user_and_temporary_overlays_stable() {
    let world = World::exact(Some(words())).await;
    let owner = unique_owner();
    let agent = agent_owner(owner.tenant.as_str(), owner.user.as_str(), "a1");
    world.store.put(Put::new(&owner, "the user lives in Berlin city").slot("profile.city", "Berlin")).await;
    world.store.put(Put::new(&agent, "lives in Paris").slot("profile.city", "Paris")).await;
    let temporary = Put { tier: Tier::Temporary, expire_time: Some(NOW.plus(HOUR)), ..Put::new(&owner, "eats meat this week") };
    world.store.put(Put::new(&owner, "eats vegan").slot("diet.style", "vegan")).await;
    world.store.put(temporary.slot("diet.style", "meat")).await;
    world.delivered().await;

    let answer = world.ask(&agent, of("the user lives in Berlin city")).await.expect("an answer");
    assert_eq!(contents(&answer), ["lives in Paris"], "the value in force stands for the one that was found");
    assert_eq!(answer.items[0].labels, ["AGENT shadows USER"]);
    assert_eq!(world.found(&owner, "lives").await.len(), 2, "a user-wide reader sees both levels");

    let answer = world.ask(&owner, of("eats vegan")).await.expect("an answer");
    assert_eq!(
        (contents(&answer), answer.items[0].labels.clone()),
        (vec!["eats meat this week".into()], vec!["TEMPORARY overlays STABLE".into()])
    );
    let stable = RecallFilter { tiers: vec![pb::Tier::Stable.into()], ..RecallFilter::default() };
    let answer = world.ask(&owner, RecallRequest { filter: Some(stable), ..of("eats vegan") }).await.expect("an answer");
    assert_eq!(contents(&answer), ["eats vegan"], "a133: no temporary state in the place of a stable preference");
    world.clock.advance(Duration::from_secs(3600));
    assert_eq!(world.found(&owner, "eats vegan").await, ["eats vegan"], "when it ends the stable one shows again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a133_c096_expired_records_are_not_recalled_and_are_found_as_expired() {
    let world = World::exact(Some(words())).await;
    let owner = unique_owner();
    world
        .store
        .put(Put { expire_time: Some(NOW.plus(1_000_000)), tier: Tier::Temporary, ..Put::new(&owner, "wants quiet rooms") })
        .await;
    world.delivered().await;
    assert_eq!(world.found(&owner, "quiet rooms").await.len(), 1);
    world.clock.advance(Duration::from_secs(2));
    assert!(world.found(&owner, "quiet rooms").await.is_empty());
    let expired = RecallFilter { statuses: vec![pb::Status::Expired.into()], ..RecallFilter::default() };
    let answer = world.ask(&owner, RecallRequest { filter: Some(expired), ..of("quiet rooms") }).await.expect("an answer");
    assert_eq!(answer.items[0].labels, ["EXPIRED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a115_a125_c139_c140_k_limits_and_is_never_padded() {
    let world = World::exact(None).await;
    let owner = unique_owner();
    for n in 0..30 {
        world.store.put(Put::new(&owner, &format!("tea number {n}"))).await;
    }
    world.store.put(Put::new(&owner, "one about coffee")).await;
    world.delivered().await;
    for (k, expected, capped) in
        [(0, 5, false), (1, 1, false), (29, 29, false), (30, 30, false), (100, 30, false), (101, 30, true), (i32::MAX, 30, true)]
    {
        let answer = world.ask(&owner, RecallRequest { k, ..of("tea") }).await.expect("an answer");
        assert_eq!((answer.items.len(), answer.capped), (expected, capped), "k {k}");
    }
    assert_eq!(refused_field(world.ask(&owner, RecallRequest { k: -1, ..of("tea") }).await), "k");
    assert_eq!(world.found(&owner, "coffee").await, ["one about coffee"]);
    world.set(|s| s.k = 2);
    assert_eq!(world.found(&owner, "tea").await.len(), 2, "a hot reload counts at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn c071_c072_windows_have_two_ends_and_what_is_not_understood_is_refused() {
    let world = World::exact(None).await;
    let owner = unique_owner();
    let day = 24 * HOUR;
    for (n, at) in [-1, 0, 12 * HOUR, day - 1, day].into_iter().enumerate() {
        world.store.put(Put { event_time: NOW.plus(at), ..Put::new(&owner, &format!("meeting {n}")) }).await;
    }
    let window = |from: i64, to: i64| RecallFilter {
        from: Some(common::wire_time(NOW.plus(from))),
        to: Some(common::wire_time(NOW.plus(to))),
        ..RecallFilter::default()
    };
    let ask = |filter| RecallRequest { filter: Some(filter), k: 50, ..of("meeting") };
    let mut found = contents(&world.ask(&owner, ask(window(0, day))).await.expect("an answer"));
    found.sort();
    assert_eq!(found, ["meeting 1", "meeting 2", "meeting 3"]);
    assert_eq!(refused_field(world.ask(&owner, ask(window(1, 0))).await), "filter.to");
    assert_eq!(
        refused_field(world.ask(&owner, ask(RecallFilter { kinds: vec![99], ..RecallFilter::default() })).await),
        "filter.kinds"
    );
    for min_score in [f64::NAN, -0.1, 1.1] {
        assert_eq!(refused_field(world.ask(&owner, RecallRequest { min_score, ..of("meeting") }).await), "min_score");
    }
    assert_eq!(refused_field(world.ask(&owner, RecallRequest { vector: vec![1.0], ..of("meeting") }).await), "vector");
    assert_eq!(refused_field(world.ask(&owner, of(&"x".repeat(4_001))).await), "query");
    let fresh = |revision: &str| RecallRequest { at_least_as_fresh: revision.into(), ..of("meeting") };
    assert_eq!(refused_field(world.ask(&owner, fresh("soon")).await), "at_least_as_fresh");
    assert_eq!(world.ask(&owner, fresh("6")).await.expect_err("not there").reason, Reason::NotFreshEnough);
    assert!(world.ask(&owner, fresh("5")).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a130_keys_come_first_and_a126_paths_and_factors_are_explained() {
    let world = World::exact(Some(words())).await;
    let owner = unique_owner();
    world.store.put(Put::new(&owner, "is called Ada").slot("profile.name", "Ada")).await;
    world.store.put(Put { confidence: 0.5, ..Put::new(&owner, "drink tea daily") }).await;
    world.delivered().await;
    let request = RecallRequest { keys: vec!["profile.name".into()], explain: true, ..of("drink tea daily") };
    let answer = world.ask(&owner, request).await.expect("an answer");
    assert_eq!(contents(&answer), ["is called Ada", "drink tea daily"]);
    assert_eq!(answer.items[0].paths, ["key"]);
    let explain = &answer.items[1].explain;
    assert_eq!((explain["dense_rank"], explain["keyword_rank"], explain["fused"], explain["freshness"]), (1.0, 1.0, 1.0, 1.0));
    let expected =
        explain["fused"] * (0.6 * explain["freshness"] + 0.4 * explain["boost"]) * explain["confidence"] * explain["importance"];
    assert!((answer.items[1].score - expected).abs() < 1e-12);
    assert!(answer.findings.iter().any(|finding| finding.rule == "R4"));
    assert!(world.found(&owner, "drink tea").await.len() == 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a132_paraphrases_give_one_entry_and_differing_values_two() {
    let world = World::exact(Some(words())).await;
    let owner = unique_owner();
    world.store.put(Put { confidence: 0.95, ..Put::new(&owner, "drink is green tea") }).await;
    world.store.put(Put::new(&owner, "beverage is green tea")).await;
    world.delivered().await;
    let answer = world.ask(&owner, of("green tea")).await.expect("an answer");
    assert_eq!(contents(&answer), ["drink is green tea"]);
    assert_eq!(answer.items[0].labels, ["MERGED 1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a129_what_was_cited_often_lately_comes_along_and_says_so() {
    let world = World::exact(None).await;
    let owner = unique_owner();
    let cited =
        |text: &str, cites, days: i64| Put { cites, last_cited_at: Some(NOW.plus(-days * 24 * HOUR)), ..Put::new(&owner, text) };
    world.store.put(cited("plays chess", 3, 1)).await;
    world.store.put(cited("rides bikes", 9, 15)).await;
    world.store.put(cited("reads maps", 2, 0)).await;
    world.store.put(Put::new(&owner, "likes tea")).await;
    world.delivered().await;
    let answer = world.ask(&owner, of("tea")).await.expect("an answer");
    assert_eq!(contents(&answer), ["likes tea", "plays chess"]);
    assert_eq!(
        (answer.items[1].labels.clone(), answer.items[1].paths.clone()),
        (vec!["RECENTLY FREQUENT".into()], vec!["recent".into()])
    );
    assert_eq!(world.ask(&owner, RecallRequest { k: 1, ..of("tea") }).await.expect("an answer").items.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn c146_recalls_are_counted_later_and_earn_no_citation() {
    let world = World::exact(None).await;
    let owner = unique_owner();
    world.store.put(Put::new(&owner, "likes tea")).await;
    for _ in 0..20 {
        world.ask(&owner, of("tea")).await.expect("an answer");
    }
    world.recall.settle().await;
    assert_eq!(world.store.value::<i64>("SELECT recall_count FROM records").await, 20);
    assert_eq!(world.store.value::<i64>("SELECT cite_count FROM records").await, 0);
    assert_eq!(world.store.value::<Option<i64>>("SELECT last_cited_at FROM records").await, None);
    assert_eq!(world.store.value::<i64>("SELECT version FROM records").await, 1, "a count is no change of the record");
    assert_eq!(world.store.value::<i64>("SELECT count(*) FROM recalls").await, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn k8_of_two_active_values_only_the_newer_is_returned_with_an_alarm() {
    let world = World::exact(Some(words())).await;
    let owner = unique_owner();
    let old = Put { valid_to: Some(NOW.plus(MINUTE)), event_time: NOW.plus(-MINUTE), ..Put::new(&owner, "lives in Berlin") };
    world.store.put(old.slot("profile.city", "Berlin")).await;
    world.store.put(Put::new(&owner, "lives in Paris").slot("profile.city", "Paris")).await;
    world.delivered().await;
    let answer = world.ask(&owner, of("lives in Berlin")).await.expect("an answer");
    assert_eq!(contents(&answer), ["lives in Paris"]);
    assert_eq!((answer.findings[0].rule.as_str(), answer.findings[0].outcome.as_str()), ("K8", "ALARM"));
}

#[tokio::test(flavor = "multi_thread")]
async fn k0_a_value_that_a_newer_one_may_replace_is_never_shown_without_it() {
    let world = World::exact(None).await;
    let owner = unique_owner();
    world.store.put(Put::new(&owner, "rent is twelve hundred a month")).await;
    let newer = world.store.put(Put::new(&owner, "pays the landlord fourteen hundred")).await;
    world.store.put(Put::new(&owner, "keeps bees on the roof")).await;
    // One value of another user points at it too: nobody's link reaches over.
    let stranger = world.store.put(Put::new(&unique_owner(), "is not of this user")).await;
    for id in [newer, stranger] {
        let link = "conflicts_with = (SELECT memory_id FROM records WHERE content LIKE 'rent is%')";
        world.store.change(id, link).await;
    }
    world.delivered().await;
    let answer = world.ask(&owner, of("rent twelve hundred month")).await.expect("an answer");
    assert_eq!(contents(&answer), ["pays the landlord fourteen hundred", "rent is twelve hundred a month"]);
    assert_eq!((paths(&answer), answer.items[1].labels.clone()), (vec!["link"], vec!["POSSIBLY SUPERSEDED".to_owned()]));
    // In the room of one, the newer is shown.
    let one = world.ask(&owner, RecallRequest { k: 1, ..of("rent twelve hundred month") }).await.expect("an answer");
    assert_eq!(contents(&one), ["pays the landlord fourteen hundred"]);
    // A newer one that is forgotten replaces nothing.
    world.store.change(newer, "status = 'DELETED'").await;
    assert_eq!(world.found(&owner, "rent twelve hundred month").await, ["rent is twelve hundred a month"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn c123_c125_another_embedder_is_noticed_and_every_record_embedded_again() {
    let world = World::exact(Some(words())).await;
    let owner = unique_owner();
    for n in 0..300 {
        world.store.put(Put { outbox: n % 2 == 0, ..Put::new(&owner, &format!("drink number {n} is tea")) }).await;
    }
    world.delivered().await;
    assert!(world.tasks.shutdown(Duration::from_secs(10)).await);
    let made = world.store.value::<i64>("SELECT count(*) FROM vectors WHERE model = 'words@1'").await;
    assert_eq!(made, 150, "what was in the outbox");

    // The same dimension, another model.
    let world = World::over(world.store, None, Some(Words::new("words@2", 256))).await;
    assert!(!world.relay.dense_ready());
    let answer = world.ask(&owner, of("drink number 7")).await.expect("an answer");
    assert!(answer.degraded && answer.findings.iter().any(|finding| finding.outcome == "REINDEXING"));
    assert!(answer.items.iter().all(|item| item.paths == ["keyword"] || item.paths == ["keyword", "pending"]));
    world.store.put(Put::new(&owner, "written while switching")).await;
    assert_eq!(world.found(&owner, "switching").await, ["written while switching"]);
    world.delivered().await;
    assert!(world.relay.dense_ready());
    assert_eq!(world.store.value::<i64>("SELECT count(*) FROM vectors WHERE model = 'words@2'").await, 301);
    assert_eq!(world.store.value::<i64>("SELECT count(*) FROM records WHERE embedding_model = 'words@2'").await, 301);
    let answer = world.ask(&owner, of("written while switching")).await.expect("an answer");
    assert!(!answer.degraded && answer.items[0].paths == ["dense", "keyword"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn c127_an_embedder_that_is_down_degrades_recall_and_keeps_the_outbox() {
    let embedder = words();
    let world = World::exact(Some(embedder.clone())).await;
    let owner = unique_owner();
    embedder.set_down(true);
    world.store.put(Put::new(&owner, "likes tea")).await;
    world.relay.spawn(&world.tasks);
    world.relay.wake();
    eventually(Duration::from_secs(10), || async { world.relay.status().await.expect("a status").embedder_down }).await;
    let answer = world.ask(&owner, of("likes tea")).await.expect("an answer");
    assert!(answer.degraded);
    assert_eq!(contents(&answer), ["likes tea"]);
    embedder.set_down(false);
    world.settled().await;
    let answer = world.ask(&owner, of("likes tea")).await.expect("an answer");
    assert!(!answer.degraded && answer.items[0].paths == ["dense", "keyword"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn c134_a_slow_embedder_holds_no_transaction() {
    let mut embedder = words();
    embedder.delay = Duration::from_secs(3);
    let world = World::exact(Some(embedder)).await;
    let owner = unique_owner();
    world.store.put(Put::new(&owner, "likes tea")).await;
    world.relay.spawn(&world.tasks);
    world.relay.wake();
    let calls = Arc::clone(&world.words.as_ref().expect("an embedder").calls);
    eventually(Duration::from_secs(10), || async { calls.load(Ordering::Relaxed) > 0 }).await;
    let watch = strata_runtime::ports::Stopwatch::start();
    for n in 0..20 {
        world.store.put(Put { outbox: false, ..Put::new(&owner, &format!("note {n}")) }).await;
    }
    assert!(watch.elapsed() < Duration::from_millis(2_500), "{:?}", watch.elapsed());
    assert_eq!(world.relay.status().await.expect("a status").pending, 1, "the embedder is still at it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_delivers_what_is_left_and_a_reindex_restores_a_lost_index() {
    let double = WireDouble::start();
    let config = qdrant(&double);
    let world = World::over(Store::open(), Some(config.clone()), Some(words())).await;
    let owner = unique_owner();
    world.relay.spawn(&world.tasks);
    for n in 0..20 {
        world.store.put(Put::new(&owner, &format!("drink number {n}"))).await;
    }
    assert!(world.tasks.shutdown(Duration::from_secs(10)).await);
    assert_eq!(world.relay.status().await.expect("a status").pending, 0);

    let embedder = words();
    let world = World::over(world.store, Some(config), Some(embedder.clone())).await;
    world.delivered().await;
    double.lose_everything();
    let answer = world.ask(&owner, of("drink number")).await.expect("an answer");
    assert!(answer.degraded && contents(&answer).len() == 5, "found by words");
    // Filled again without being asked.
    eventually(Duration::from_secs(20), || async { double.collections().first().is_some_and(|name| double.points(name) == 20) })
        .await;
    world.settled().await;
    let answer = world.ask(&owner, of("drink number")).await.expect("an answer");
    assert!(!answer.degraded && contents(&answer).len() == 5);
    assert_eq!(embedder.calls.load(Ordering::Relaxed), 2, "two queries: stored vectors are used again");
    assert_eq!(world.relay.reindex().await.expect("started"), 20);
    world.settled().await;
    assert_eq!(world.found(&owner, "drink number").await.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a134_an_erased_record_is_gone_from_every_index() {
    let double = WireDouble::start();
    for world in [World::exact(Some(words())).await, World::on(&double, Some(words())).await] {
        let owner = unique_owner();
        let id = world.store.put(Put::new(&owner, "a drink to forget")).await;
        world.delivered().await;
        assert_eq!(world.found(&owner, "drink forget").await.len(), 1);
        world.store.erase(id).await;
        assert!(world.found(&owner, "drink forget").await.is_empty());
        world.settled().await;
        let index = &world.recall.parts.index;
        assert_eq!(index.present(&owner, &[id]).await.expect("an answer"), [], "{}", index.name());
        assert_eq!(index.count(&owner).await.expect("counted"), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c141_thresholds_cut_from_the_low_end() {
    let world = World::exact(Some(words())).await;
    let owner = unique_owner();
    for text in ["alpha beta gamma delta", "alpha beta gamma", "alpha beta", "omega psi"] {
        world.store.put(Put::new(&owner, text)).await;
    }
    world.delivered().await;
    let ask = |min_score| RecallRequest { min_score, explain: true, ..of("alpha beta gamma delta") };
    let all = world.ask(&owner, ask(0.0)).await.expect("an answer");
    assert_eq!(contents(&all), ["alpha beta gamma delta", "alpha beta gamma", "alpha beta"]);
    let fused: Vec<f64> = all.items.iter().map(|item| item.explain["fused"]).collect();
    for kept in 1..3 {
        let between = f64::midpoint(fused[kept - 1], fused[kept]);
        assert_eq!(world.ask(&owner, ask(between)).await.expect("an answer").items.len(), kept);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c126_a_record_far_back_in_a_long_outbox_is_found_by_its_words() {
    let double = WireDouble::start();
    let world = World::on(&double, Some(words())).await;
    world.recall.parts.index.prepare().await.expect("an empty index");
    let owner = unique_owner();
    world.store.put(Put::new(&owner, "the very first sentence")).await;
    for n in 0..PENDING_ROWS {
        world.store.put(Put::new(&owner, &format!("drink number {n}"))).await;
    }
    let found = world.found(&owner, "first sentence").await;
    assert_eq!(found.first().map(String::as_str), Some("the very first sentence"));
}

/// Likes what was found last; knows what it was asked, or is down.
#[derive(Debug, Default)]
struct Contrary {
    down: std::sync::atomic::AtomicBool,
    asked: parking_lot::Mutex<Vec<String>>,
}

#[async_trait::async_trait]
impl Reranker for Contrary {
    async fn score(&self, query: &str, texts: &[&str]) -> Result<Vec<f64>, strata_text::rerank::RerankError> {
        if self.down.load(Ordering::Relaxed) {
            return Err(strata_text::rerank::RerankError::Unavailable("down".into()));
        }
        *self.asked.lock() = std::iter::once(query).chain(texts.iter().copied()).map(str::to_owned).collect();
        Ok((0..texts.len()).map(|at| at as f64).collect())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r9_a_remote_reranker_orders_what_was_found_and_its_absence_is_said() {
    let mut world = World::exact(Some(words())).await;
    let reranker = Arc::new(Contrary::default());
    world.recall.parts.reranker = Some(Arc::clone(&reranker) as Arc<dyn Reranker>);
    world.set(|recall| recall.rerank = Rerank::Remote);
    let owner = unique_owner();
    world.store.put(Put { key: Some("coffee.milk".into()), ..Put::new(&owner, "oat milk in the coffee") }).await;
    for content in ["coffee", "coffee with a biscuit", "coffee with a biscuit and a newspaper"] {
        world.store.put(Put::new(&owner, content)).await;
    }
    world.delivered().await;
    let ask = |keys: &[&str], k| RecallRequest { keys: keys.iter().map(|key| (*key).into()).collect(), k, ..of("coffee") };
    let by_score = ["coffee", "coffee with a biscuit", "oat milk in the coffee", "coffee with a biscuit and a newspaper"];
    let reversed: Vec<&str> = by_score.iter().rev().copied().collect();

    let answer = world.ask(&owner, ask(&[], 10)).await.expect("an answer");
    assert_eq!(*reranker.asked.lock(), [&["coffee"], &by_score[..]].concat(), "asked in the order of scores");
    assert_eq!(contents(&answer), reversed);
    let answer = world.ask(&owner, ask(&[], 2)).await.expect("an answer");
    assert_eq!(contents(&answer), reversed[..2], "more than was asked for is looked at");
    let answer = world.ask(&owner, ask(&["coffee.milk"], 10)).await.expect("an answer");
    assert_eq!(contents(&answer)[0], "oat milk in the coffee", "what was asked for by key stays first");
    assert_eq!(contents(&answer)[1..], [reversed[0], reversed[2], reversed[3]]);

    reranker.down.store(true, Ordering::Relaxed);
    let answer = world.ask(&owner, ask(&[], 10)).await.expect("an answer all the same");
    assert_eq!(contents(&answer), by_score);
    let rules: Vec<&str> = answer.findings.iter().map(|finding| finding.outcome.as_str()).collect();
    assert_eq!(rules, ["NOT_RERANKED"]);
    world.recall.parts.reranker = None;
    let answer = world.ask(&owner, ask(&[], 10)).await.expect("an answer");
    assert!(contents(&answer) == by_score && answer.findings.len() == 1);
    assert!(world.tasks.shutdown(Duration::from_secs(10)).await);
}
