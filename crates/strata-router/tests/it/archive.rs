//! The end of a session as a saga, over fake layers: what happens when long-term memory is down or does not take writes.

use crate::world::{World, embedded, reason};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strata_api::session::v1 as session;
use strata_core::Reason;
use strata_router::modes::{Mode, Modes};
use strata_testkit::eventually;

fn end(require_archive: bool) -> session::EndSessionRequest {
    session::EndSessionRequest { user_id: "u1".into(), session_id: "s".into(), require_archive, ..Default::default() }
}

fn called(world: &World, method: &str) -> usize {
    world.fake.state.lock().calls.iter().filter(|(path, _)| path.ends_with(method)).count()
}

#[tokio::test]
async fn s14_a_session_is_archived_before_it_ends_and_the_archive_is_a_signed_write() {
    let world = World::new(embedded()).await;
    let ended = world.session().end_session(end(true)).await.unwrap().into_inner();
    assert_eq!(ended.episode_id, "e1");
    let state = world.fake.state.lock();
    let order: Vec<&str> = state.calls.iter().filter_map(|(path, _)| path.rsplit('/').next()).collect();
    let place = |method: &str| order.iter().rposition(|name| *name == method).unwrap();
    assert!(place("GetSession") < place("ArchiveSession") && place("ArchiveSession") < place("EndSession"), "{order:?}");
    let archived = state.calls.iter().filter(|(path, _)| path.ends_with("/ArchiveSession"));
    assert!(archived.clone().count() > 0 && archived.clone().all(|(_, claims)| claims.write.is_some()));
}

#[tokio::test]
async fn s14_d1_d2_without_long_term_memory_a_session_ends_and_says_so_or_stays_where_it_must_be_archived() {
    let world = World::new(embedded()).await;
    let mode = |longterm| world.modes.store(Arc::new(Modes { longterm, ..Modes::default() }));
    for (down, longterm, why) in [
        (true, Mode::Normal, "STORE_UNAVAILABLE"),
        (false, Mode::WriteOff, "LAYER_WRITE_OFF"),
        (false, Mode::Bypass, "LAYER_BYPASSED"),
    ] {
        world.fake.longterm_down.store(down, Ordering::SeqCst);
        mode(longterm);
        let before = called(&world, "/EndSession");
        assert_eq!(reason(world.session().end_session(end(true)).await), Reason::StoreUnavailable, "{why}");
        assert_eq!(called(&world, "/EndSession"), before, "the session has not ended: {why}");
        let ended = world.session().end_session(end(false)).await.unwrap().into_inner();
        assert_eq!(called(&world, "/EndSession"), before + 1);
        assert!(ended.episode_id.is_empty());
        assert_eq!((ended.findings[0].rule.as_str(), ended.findings[0].outcome.as_str()), ("S14", "NOT_ARCHIVED"));
        assert!(ended.findings[0].because.contains(why), "{:?}", ended.findings);
    }
    mode(Mode::RecallOff);
    assert_eq!(world.session().end_session(end(true)).await.unwrap().into_inner().episode_id, "e1", "recall off is no write off");
}

#[tokio::test]
async fn s7_e2_a_topic_that_is_being_archived_when_the_user_erases_is_refused() {
    let world = World::new(embedded()).await;
    {
        let mut state = world.fake.state.lock();
        (state.topic_end_seq, state.clock) = (8, Some(world.clock.clone()));
    }
    let append = session::AppendTurnsRequest { user_id: "u1".into(), session_id: "s".into(), ..Default::default() };
    world.session().append_turns(append).await.unwrap();
    eventually(Duration::from_secs(10), async || called(&world, "/ArchiveSession") >= 2).await;
    let state = world.fake.state.lock();
    let find = |method: &str| state.calls.iter().rfind(|(path, _)| path.ends_with(method)).expect("called");
    let (read, late) = (find("/ListTurns").1.issued_at, &find("/ArchiveSession").1);
    assert!(late.issued_at > read);
    // What an erasure takes after the turns were read must not come in behind it: long-term memory tells by this.
    assert!(late.erase_epoch <= read.micros().unsigned_abs(), "{} > {}", late.erase_epoch, read.micros());
}

#[tokio::test]
async fn r14_d2_without_the_archive_a_search_over_turns_has_its_live_hits_and_says_so() {
    let world = World::new(embedded()).await;
    let search = || session::SearchTurnsRequest { user_id: "u1".into(), query: "x".into(), ..Default::default() };
    let ask = async || world.session().search_turns(search()).await.unwrap().into_inner();
    assert!(!ask().await.degraded);
    world.fake.longterm_down.store(true, Ordering::SeqCst);
    assert!(ask().await.degraded);
    world.fake.longterm_down.store(false, Ordering::SeqCst);
    for longterm in [Mode::RecallOff, Mode::Bypass] {
        world.modes.store(Arc::new(Modes { longterm, ..Modes::default() }));
        let before = called(&world, "/SearchArchivedTurns");
        assert!(ask().await.degraded);
        assert_eq!(called(&world, "/SearchArchivedTurns"), before, "{}", longterm.name());
    }
    world.modes.store(Arc::new(Modes { longterm: Mode::WriteOff, ..Modes::default() }));
    assert!(!ask().await.degraded, "write off is no recall off");
}
