//! What every public method passes: who, whose memory, which mode; what the router vouches for; errors unchanged.

use crate::world::{World, embedded, principal, reason};
use std::sync::atomic::Ordering;
use strata_api::internal::v1::{Attestation, QuoteState};
use strata_api::longterm::v1 as longterm;
use strata_api::session::v1 as session;
use strata_api::working::v1 as working;
use strata_core::policy::authz::{Access, METHODS, Role};
use strata_core::{Fault, Reason, UserId};
use strata_router::modes::{Mode, Modes};
use strata_runtime::RpcChannel;
use tonic::body::Body;

/// Calls a method with an empty message, and answers the reason of the refusal, if it was one.
async fn raw(channel: &RpcChannel, path: &str) -> Option<Reason> {
    use tower::Service as _;
    let frame = http_body_util::Full::new(bytes::Bytes::from_static(&[0, 0, 0, 0, 0]));
    let request = http::Request::post(format!("http://router{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(frame))
        .unwrap();
    let mut channel = channel.clone();
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await.unwrap();
    let response = channel.call(request).await.unwrap();
    let status = tonic::Status::from_header_map(response.headers())?;
    (status.code() != tonic::Code::Ok).then(|| strata_api::error::fault(&status).reason)
}

#[tokio::test]
async fn a02_a03_a04_no_public_method_misses_the_gate() {
    let world = World::new(embedded()).await;
    let mut named = principal(Role::ALL);
    named.user = Some(UserId::new("u1").unwrap());
    let allowed = world.channel_of(&world.router, named);
    for method in METHODS {
        let public = !method.roles.is_empty();
        // Without the role: refused, and no layer hears of it.
        let before = world.fake.state.lock().calls.len();
        let others: Vec<Role> = Role::ALL.iter().copied().filter(|role| !method.roles.contains(role)).collect();
        let refused = raw(&world.channel_of(&world.router, principal(&others)), method.path).await;
        assert_eq!(refused, Some(if public { Reason::RoleMissing } else { Reason::UnsignedCall }), "{}", method.path);
        assert_eq!(world.fake.state.lock().calls.len(), before, "{}", method.path);
        // Without a user: refused, but for the methods that are about none.
        let of_no_user = method.path.starts_with("/strata.admin.");
        if public && !of_no_user {
            assert_eq!(raw(&world.channel(), method.path).await, Some(Reason::InvalidField), "{}", method.path);
        }
        if public {
            let served = raw(&allowed, method.path).await;
            assert!(
                !matches!(served, Some(Reason::NotServed | Reason::Internal | Reason::UnsignedCall)),
                "{}: {served:?}",
                method.path
            );
        }
    }
    // Every call that reached a layer was signed for the caller's own user and method.
    let calls = world.fake.state.lock().calls.clone();
    // The journal of erasures is asked by the router itself, about every tenant.
    for (path, claims) in calls.iter().filter(|(path, _)| !path.contains(".ErasureJournalService/")) {
        assert_eq!((path, claims.caller.id.as_str()), (&claims.method, "key:test"));
        let writes = METHODS.iter().find(|m| m.path == path).is_some_and(|m| m.writes() && m.access != Access::Internal);
        assert!(!writes || claims.write.is_some(), "{path} carries level and epoch");
        assert!(claims.user.as_ref().is_some_and(|user| user.as_str() == "u1") || path.starts_with("/strata.admin."), "{path}");
    }
}

#[tokio::test]
async fn c033_nobody_names_another_user_than_the_credential() {
    let world = World::new(embedded()).await;
    let mut named = principal(Role::ALL);
    named.user = Some(UserId::new("u1").unwrap());
    let channel = world.channel_of(&world.router, named);
    let mut client = longterm::long_term_memory_service_client::LongTermMemoryServiceClient::new(channel);
    let answer = client.recall(longterm::RecallRequest { user_id: "u2".into(), query: "x".into(), ..Default::default() }).await;
    assert_eq!(reason(answer), Reason::OwnerMismatch);
    client.recall(longterm::RecallRequest { query: "x".into(), ..Default::default() }).await.unwrap();
}

#[tokio::test]
async fn errors_of_a_layer_arrive_with_their_details() {
    let world = World::new(embedded()).await;
    let refusal = Fault::new(Reason::GatePii, "no secrets").rule("G3", "statement", "a secret is never stored").retry_after(7);
    world.fake.state.lock().refusal = Some(refusal.clone());
    let statement = longterm::Statement { content: "x".into(), ..Default::default() };
    let answer = world
        .longterm()
        .propose(longterm::ProposeRequest { user_id: "u1".into(), statement: Some(statement), ..Default::default() })
        .await;
    assert_eq!(strata_api::error::fault(&answer.expect_err("refused")), refusal);
}

fn quoted(session: &str, seq: u32, quote: &str) -> longterm::RememberRequest {
    let turn = longterm::TurnRef { session_id: session.into(), seq };
    let statement = longterm::Statement {
        kind: longterm::Kind::Preference.into(),
        content: "The user always wants answers in Chinese.".into(),
        source: longterm::Source::UserStatement.into(),
        source_ref: Some(longterm::SourceRef { kind: Some(longterm::source_ref::Kind::Turn(turn)) }),
        source_quote: quote.into(),
        trigger: longterm::Trigger::UserRequest.into(),
        ..Default::default()
    };
    longterm::RememberRequest { user_id: "u1".into(), statement: Some(statement), ..Default::default() }
}

#[tokio::test]
async fn the_router_vouches_for_a_quote_it_found_in_the_users_turn() {
    let world = World::new(embedded()).await;
    world.fake.put_turn("s1", session::Role::User, "From now on, always reply in Chinese！");
    world.fake.put_turn("s1", session::Role::Assistant, "I will always reply in Chinese.");
    let last = || *world.fake.state.lock().attestations.last().unwrap();
    world.longterm().remember(quoted("s1", 1, "from now on,  always reply in Chinese.")).await.unwrap();
    assert_eq!((last().quote(), last().user_turn, last().explicit_order), (QuoteState::Verified, true, true));
    assert_eq!(last().turn_time.unwrap().seconds, 1_767_225_601, "the store's time of the turn");
    // Not the user's turn, not in it, no such turn.
    for request in [
        quoted("s1", 2, "I will always reply in Chinese"),
        quoted("s1", 1, "always reply in German"),
        quoted("s1", 9, "always reply in Chinese"),
    ] {
        assert_eq!(reason(world.longterm().remember(request).await), Reason::GateProvenance);
        assert_eq!(last().quote(), QuoteState::NotFound);
    }
    // A proposal is no order, whatever its trigger says.
    let statement = quoted("s1", 1, "always reply in Chinese").statement;
    world.longterm().propose(longterm::ProposeRequest { user_id: "u1".into(), statement, ..Default::default() }).await.unwrap();
    assert_eq!((last().quote(), last().explicit_order), (QuoteState::Verified, false));
    // A session that is gone or down never fails the write.
    world.longterm().remember(quoted("gone", 1, "always reply in Chinese")).await.unwrap();
    assert_eq!(last().quote(), QuoteState::Unverifiable);
    world.fake.session_down.store(true, Ordering::SeqCst);
    world.longterm().remember(quoted("s1", 1, "always reply in Chinese")).await.unwrap();
    assert_eq!(last().quote(), QuoteState::Unverifiable);
}

#[tokio::test]
async fn g2_a_quote_cut_out_of_other_words_is_none_on_any_path() {
    use prost::Message as _;
    let world = World::new(embedded()).await;
    world.fake.put_turn("s1", session::Role::User, "Do you think I should move to Rome? Bob says I am rich. I live in Oslo.");
    world.fake.put_turn("s1", session::Role::User, "我不觉得我喜欢咖啡。我吃素。开玩笑的。我住在杭州，有推荐吗？");
    let attested = |method: &str| {
        let claims = world.fake.calls_of(method);
        let attestations = claims.iter().map(|claims| Attestation::decode(claims.attestation.as_slice()).unwrap().quote());
        attestations.collect::<Vec<_>>()
    };
    let mut expected = Vec::new();
    let cuts = [
        (1, "I should move to Rome", false),
        (1, "I am rich", false),
        (1, "I live in Oslo", true),
        (2, "我喜欢咖啡", false),
        (2, "我吃素", false),
        (2, "我住在杭州", true),
    ];
    for (seq, quote, stands) in cuts {
        expected.push(if stands { QuoteState::Verified } else { QuoteState::NotFound });
        let statement = quoted("s1", seq, quote).statement;
        let user_id = || "u1".to_owned();
        let provenance = statement.as_ref().map(|s| longterm::Provenance {
            source: s.source,
            source_ref: s.source_ref.clone(),
            source_quote: s.source_quote.clone(),
            trigger: s.trigger,
            consent: String::new(),
        });
        let mut client = world.longterm();
        // What the layer makes of it is its own affair.
        let _ = client.remember(quoted("s1", seq, quote)).await;
        assert_eq!(attested("Remember"), expected, "Remember {quote}");
        let body = longterm::ProposeRequest { user_id: user_id(), statement: statement.clone(), ..Default::default() };
        let _ = client.propose(body).await;
        assert_eq!(attested("Propose"), expected, "Propose {quote}");
        let memory_id = "m1".to_owned();
        let body = longterm::UpdateMemoryRequest { user_id: user_id(), memory_id, statement, ..Default::default() };
        let _ = client.update_memory(body).await;
        assert_eq!(attested("UpdateMemory"), expected, "UpdateMemory {quote}");
        let body = longterm::PutEntityRequest { user_id: user_id(), provenance: provenance.clone(), ..Default::default() };
        let _ = client.put_entity(body).await;
        assert_eq!(attested("PutEntity"), expected, "PutEntity {quote}");
        let body = longterm::LinkEntitiesRequest { user_id: user_id(), provenance: provenance.clone(), ..Default::default() };
        let _ = client.link_entities(body).await;
        assert_eq!(attested("LinkEntities"), expected, "LinkEntities {quote}");
        let body = longterm::PutSkillRequest { user_id: user_id(), provenance, ..Default::default() };
        let _ = client.put_skill(body).await;
        assert_eq!(attested("PutSkill"), expected, "PutSkill {quote}");
    }
}

#[tokio::test]
async fn c179_modes_are_enforced_at_the_router() {
    let world = World::new(embedded()).await;
    let set = |working, session, longterm| world.modes.store(std::sync::Arc::new(Modes { working, session, longterm }));
    let recall = || longterm::RecallRequest { user_id: "u1".into(), query: "x".into(), ..Default::default() };
    let propose = || longterm::ProposeRequest {
        user_id: "u1".into(),
        statement: Some(longterm::Statement { kind: longterm::Kind::Fact.into(), content: "x".into(), ..Default::default() }),
        ..Default::default()
    };
    let forget = || longterm::ForgetMemoriesRequest { user_id: "u1".into(), ..Default::default() };
    let get = || longterm::GetMemoryRequest { user_id: "u1".into(), ..Default::default() };
    let create = || working::CreateTaskRequest { user_id: "u1".into(), ..Default::default() };

    set(Mode::Normal, Mode::Normal, Mode::RecallOff);
    let answer = world.longterm().recall(recall()).await.unwrap().into_inner();
    assert!(answer.items.is_empty() && answer.findings[0].outcome == "LAYER_RECALL_OFF");
    world.longterm().propose(propose()).await.unwrap();
    world.longterm().get_memory(get()).await.unwrap();
    set(Mode::Normal, Mode::Normal, Mode::WriteOff);
    world.longterm().recall(recall()).await.unwrap();
    assert_eq!(reason(world.longterm().propose(propose()).await), Reason::LayerWriteOff);
    world.longterm().forget_memories(forget()).await.unwrap();
    set(Mode::Normal, Mode::Normal, Mode::Bypass);
    assert_eq!(reason(world.longterm().get_memory(get()).await), Reason::LayerBypassed);
    world.longterm().forget_memories(forget()).await.unwrap();
    world.working().create_task(create()).await.unwrap();
    set(Mode::WriteOff, Mode::Normal, Mode::Normal);
    assert_eq!(reason(world.working().create_task(create()).await), Reason::LayerWriteOff);
    set(Mode::Normal, Mode::RecallOff, Mode::Normal);
    let search = session::SearchTurnsRequest { user_id: "u1".into(), query: "x".into(), ..Default::default() };
    assert!(world.session().search_turns(search).await.unwrap().into_inner().degraded);
    set(Mode::Normal, Mode::Normal, Mode::Normal);
    world.longterm().propose(propose()).await.unwrap();
}

#[tokio::test]
async fn status_names_every_layer_and_reindex_is_passed_on() {
    let world = World::new(embedded()).await;
    world.fake.session_down.store(true, Ordering::SeqCst);
    let answer = world.admin().get_status(strata_api::admin::v1::GetStatusRequest {}).await.unwrap().into_inner();
    let state =
        |name: &str| answer.layers.iter().find(|l| l.layer == name).unwrap().state().as_str_name().replace("LAYER_STATE_", "");
    assert_eq!(["working", "session", "longterm", "router"].map(state), ["OK", "UNAVAILABLE", "OK", "OK"]);
    assert_eq!(answer.settings["mode.longterm"], "NORMAL");
    assert_eq!(answer.settings["ledger"], "embedded");
    let reindexed = world.admin().reindex(strata_api::admin::v1::ReindexRequest {}).await.unwrap().into_inner();
    assert_eq!(reindexed.records, 3);
}

#[tokio::test]
async fn c040_streams_pass_the_gate_by_their_first_message_and_arrive_whole() {
    let world = World::new(embedded()).await;
    let mut named = principal(Role::ALL);
    named.user = Some(UserId::new("u1").unwrap());
    let mut client =
        longterm::long_term_memory_service_client::LongTermMemoryServiceClient::new(world.channel_of(&world.router, named));
    let mut lines = client.export_memories(longterm::ExportMemoriesRequest::default()).await.unwrap().into_inner();
    let mut seen = 0;
    while lines.message().await.unwrap().is_some() {
        seen += 1;
    }
    assert_eq!(seen, 3);

    let message = |user: &str, n: u64| longterm::ImportMemoriesRequest {
        user_id: user.into(),
        line: Some(longterm::ExportLine {
            part: Some(longterm::export_line::Part::Header(longterm::ExportHeader { lines: n, ..Default::default() })),
            ..Default::default()
        }),
        ..Default::default()
    };
    let stream =
        |user: &str| futures::stream::iter((0..4).map(|n| message(if n == 0 { user } else { "" }, n)).collect::<Vec<_>>());
    assert_eq!(client.import_memories(stream("")).await.unwrap().into_inner().lines, 4);
    let imported: Vec<_> = world.fake.state.lock().imported.drain(..).collect();
    assert_eq!(imported, (0..4).map(|n| message(if n == 0 { "u1" } else { "" }, n)).collect::<Vec<_>>());
    assert_eq!(reason(client.import_memories(stream("u2")).await), Reason::OwnerMismatch);
    assert!(world.fake.state.lock().imported.is_empty());
    let empty = world.longterm().import_memories(futures::stream::iter(Vec::<longterm::ImportMemoriesRequest>::new())).await;
    assert_eq!(reason(empty), Reason::InvalidField, "an empty stream names no user");

    world.modes.store(std::sync::Arc::new(Modes { longterm: Mode::WriteOff, ..Modes::default() }));
    assert_eq!(reason(client.import_memories(stream("")).await), Reason::LayerWriteOff);
    assert!(client.export_memories(longterm::ExportMemoriesRequest::default()).await.is_ok());
}

#[tokio::test]
async fn artifacts_pass_the_router_in_both_directions() {
    let world = World::new(embedded()).await;
    let message = |data: &[u8]| session::PutArtifactRequest { data: data.to_vec(), ..Default::default() };
    let first =
        session::PutArtifactRequest { user_id: "u1".into(), session_id: "s".into(), trace_id: "x".into(), ..message(b"ab") };
    let sent = futures::stream::iter([first, message(b"cde"), message(b"")]);
    let stored = world.session().put_artifact(sent).await.unwrap().into_inner().artifact.unwrap();
    assert_eq!(stored.bytes, 5);
    let body =
        session::GetArtifactRequest { user_id: "u1".into(), session_id: "s".into(), trace_id: "x".into(), ..Default::default() };
    let mut parts = world.session().get_artifact(body.clone()).await.unwrap().into_inner();
    let mut read = Vec::new();
    while let Some(part) = parts.message().await.unwrap() {
        read.extend(part.data);
    }
    assert_eq!(read, b"abcde");
    let gone = world.session().get_artifact(session::GetArtifactRequest { trace_id: "y".into(), ..body }).await;
    assert_eq!(reason(gone), Reason::ArtifactGone);
}

#[tokio::test]
async fn a199_reviews_switch_by_themselves_only_when_configured_and_never_over_a_person() {
    use strata_api::admin::v1 as admin;
    let world = World::new(embedded()).await;
    let review = async |suggested: admin::Mode| {
        world.fake.state.lock().suggested = suggested;
        let request = admin::SubmitReviewRequest { sample_id: "s".into(), ..Default::default() };
        assert_eq!(world.admin().submit_review(request).await.unwrap().into_inner().suggested_mode(), suggested);
        let modes = world.admin().get_modes(admin::GetModesRequest {}).await.unwrap().into_inner().modes;
        let longterm = modes.into_iter().find(|mode| mode.layer == "longterm").unwrap();
        (longterm.mode(), longterm.actor)
    };
    assert_eq!(review(admin::Mode::WriteOff).await, (admin::Mode::Normal, String::new()));
    let mut settings = strata_core::policy::settings::PolicySettings::default();
    settings.quality.automatic = true;
    world.settings.store(std::sync::Arc::new(settings));
    assert_eq!(review(admin::Mode::WriteOff).await, (admin::Mode::WriteOff, "automatic".to_owned()));
    assert_eq!(review(admin::Mode::Bypass).await, (admin::Mode::Bypass, "automatic".to_owned()));
    assert_eq!(review(admin::Mode::Normal).await.0, admin::Mode::Normal);
    let by_hand = admin::SetModeRequest {
        layer: "longterm".into(),
        mode: admin::Mode::RecallOff.into(),
        reason: "looking into it".into(),
        ..Default::default()
    };
    world.admin().set_mode(by_hand).await.unwrap();
    for suggested in [admin::Mode::WriteOff, admin::Mode::Normal] {
        assert_eq!(review(suggested).await, (admin::Mode::RecallOff, "key:test".to_owned()));
    }
}
