//! What a tenant may keep: refused at every door by name, counted as the rows are, and free again once something is gone.

use crate::erase::{asks, erase};
use crate::gate::{DOORS, through};
use crate::transfer::{export, import};
use crate::world::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use strata_api::longterm::v1 as pb;
use strata_core::policy::quota::{Quota, QuotaSettings};
use strata_core::{Fault, Reason};

fn bound(world: &World, tenant: &str, quota: Quota) {
    let tenants = BTreeMap::from([(tenant.to_owned(), quota)]);
    world.quotas.store(Arc::new(QuotaSettings { tenants, ..QuotaSettings::default() }));
}

/// The quota that a refusal names.
fn named(fault: &Fault) -> &str {
    assert_eq!((fault.reason, fault.retry_after_ms), (Reason::LimitReached, None), "{fault}");
    fault.metadata.iter().find(|(key, _)| *key == "quota").map_or("", |(_, name)| name.as_str())
}

/// The counters, checked against the rows.
async fn counted(world: &World) -> (i64, i64) {
    let wrong = "SELECT (SELECT count(*) FROM owners o WHERE (o.records, o.bytes) <> (SELECT count(*), coalesce(sum(r.bytes), 0) \
                 FROM records r WHERE r.owner_id = o.owner_id)) + (SELECT count(*) FROM tenants t WHERE (t.records, t.bytes) <> \
                 (SELECT sum(o.records), sum(o.bytes) FROM owners o JOIN users u ON u.user_id = o.user_id WHERE u.tenant = t.tenant))";
    assert_eq!(world.count(wrong).await, 0, "a counter and its rows differ");
    let of = "SELECT coalesce(max(records), 0) FROM tenants WHERE tenant = 't1'";
    let bytes = "SELECT coalesce(max(bytes), 0) FROM tenants WHERE tenant = 't1'";
    (world.count(of).await, world.count(bytes).await)
}

fn lot(n: usize) -> pb::Statement {
    says(&format!("I always park in lot {n}, 我总是停在{n}号车位 🅿\u{fe0f}"))
}

#[tokio::test]
async fn a_full_quota_refuses_at_every_door_and_names_itself() {
    let world = World::new().await;
    let (ada, bob) = (world.user("ada"), world.user("bob"));
    for n in 1..=2 {
        ada.remember(lot(n)).await.expect("stored");
    }
    let agent = world.user("ada").agent("travel");
    agent.remember(lot(3)).await.expect("stored");
    bob.remember(lot(4)).await.expect("stored");
    let (records, bytes) = counted(&world).await;
    assert_eq!(records, 4);
    let text: usize = (1..=4).map(|n| lot(n).content.len() * 2).sum();
    assert!(bytes >= i64::try_from(text).expect("few"), "content and quote count, in bytes: {bytes}");

    let bytes = u64::try_from(bytes).expect("few");
    for (quota, name, bob_too) in [
        (Quota { records: 4, ..Quota::default() }, "records", true),
        (Quota { records_per_user: 3, ..Quota::default() }, "records_per_user", false),
        (Quota { bytes, ..Quota::default() }, "bytes", true),
        (Quota { bytes_per_user: bytes * 3 / 4, ..Quota::default() }, "bytes_per_user", false),
    ] {
        bound(&world, "t1", quota);
        for (n, door) in DOORS.into_iter().enumerate() {
            let refused = through(door, &ada, lot(90 + n), 90 + n).await.expect_err("full");
            assert_eq!(named(&refused), name, "{door:?}");
        }
        // All agents of a user share what the user has.
        assert_eq!(named(&agent.remember(lot(95)).await.expect_err("full")), name);
        if bob_too {
            assert_eq!(named(&bob.remember(lot(96)).await.expect_err("full")), name);
        }
        // What is there already needs no room, another tenant has its own, and reading is no matter of quotas.
        ada.remember(lot(1)).await.expect("the same again");
        assert_eq!(ada.list(pb::RecallFilter::default()).await.len(), 3);
        assert_eq!(counted(&world).await.0, 4, "{name}: nothing was kept of what was refused");
    }
    world.user("ada").tenant("t2").remember(lot(1)).await.expect("another tenant");
    bound(&world, "t1", Quota { bytes: bytes + 1, ..Quota::default() });
    ada.remember(lot(97)).await.expect("the record that goes beyond is kept");
    assert_eq!(named(&ada.remember(lot(98)).await.expect_err("and no other")), "bytes");
}

#[tokio::test]
async fn an_import_ends_at_the_quota_and_what_is_erased_or_shortened_makes_room() {
    let source = World::new().await;
    let ada = source.user("ada");
    for n in 1..=5 {
        ada.remember(lot(n)).await.expect("stored");
    }
    let file = export(&ada, pb::ExportScope::Active).await.expect("exported");

    let world = World::seeded(8).await;
    let ada = world.user("ada");
    bound(&world, "t1", Quota { records: 3, ..Quota::default() });
    assert_eq!(named(&import(&ada, &file).await.expect_err("two too many")), "records");
    let (records, _) = counted(&world).await;
    assert!(records <= 3, "{records}");
    bound(&world, "t1", Quota { records: 5, ..Quota::default() });
    import(&ada, &file).await.expect("all of it, whatever came before");
    let (records, bytes) = counted(&world).await;
    assert_eq!(records, 5);
    assert_eq!(named(&ada.remember(lot(6)).await.expect_err("full")), "records");

    // Forgotten is not gone: it can come back.
    let all = ada.list(pb::RecallFilter::default()).await;
    ada.forget(&[&all[0].memory_id], &[]).await;
    assert_eq!(named(&ada.remember(lot(6)).await.expect_err("full")), "records");
    let gone = pb::EraseMemoriesRequest { memory_ids: vec![all[0].memory_id.clone()], ..asks(&ada) };
    erase(&ada, gone).await.expect("erased");
    strata_testkit::eventually(std::time::Duration::from_secs(30), async || ada.remember(lot(6)).await.is_ok()).await;
    // Tags are text too, and count as they change.
    let tags = vec!["parking".to_owned(), "停车".to_owned()];
    let change = pb::UpdateMemoryRequest {
        user_id: "ada".into(),
        memory_id: all[1].memory_id.clone(),
        memory: Some(pb::MemoryPatch { tags, ..Default::default() }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["tags".into()] }),
        ..Default::default()
    };
    ada.client().update_memory(change).await.expect("changed");
    let (_, after) = counted(&world).await;
    assert!(after > bytes, "{after} {bytes}");
}
