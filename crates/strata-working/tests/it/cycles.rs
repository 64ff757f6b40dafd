//! Tasks come and go for as long as the process lives: what they leave behind ends with their tombstones.
//!
//! `STRATA_CYCLES` sets how many tasks (20,000 without it; `make cycles` for a million). With it the resident memory of this very
//! process is compared too, which says nothing while other tests run beside it.

use crate::harness::{Bed, Sqlite, fact, request_id};
use std::time::Duration;
use strata_core::limits::TOMBSTONE_SECONDS;
use strata_testkit::ManualClock;
use strata_working::checkpoint::CheckpointStore as _;
use strata_working::checkpoint::embedded::EmbeddedCheckpoints;
use strata_working::{CheckpointConfig, Counts};

/// Tasks between two moves of the clock.
const ROUND: u64 = 2_000;
/// Least growth that is one, in bytes: what an allocator may keep for itself.
const NOISE: u64 = 8 << 20;

fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    pages.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("resident pages") * 4_096
}

/// A round of tasks, ended, and the clock moved past their tombstones.
async fn round(bed: &Bed, first: u64) {
    let me = bed.me();
    for n in first..first + ROUND {
        let task = format!("task-{n}");
        me.create(&task).await.expect("created");
        me.put_as(&task, vec![fact("a", "v")], 0, &request_id()).await.expect("put");
        me.end(&task).await.expect("ended");
    }
    let counts = bed.role.status().counts;
    assert_eq!((counts.boards, counts.ended), (0, usize::try_from(ROUND).expect("few")));
    bed.clock.advance(Duration::from_secs(TOMBSTONE_SECONDS.unsigned_abs() + 60));
    bed.role.sweep();
    assert_eq!(bed.role.status().counts, Counts::default(), "nothing is left");
}

#[tokio::test]
async fn w7_a_million_tasks_that_came_and_went_leave_memory_where_it_was() {
    let asked = std::env::var("STRATA_CYCLES").ok().and_then(|n| n.parse::<u64>().ok());
    let cycles = asked.unwrap_or(20_000);
    let bed = Bed::start(CheckpointConfig::None, &ManualClock::default()).await;
    let mut early = 0;
    for done in (0..cycles).step_by(usize::try_from(ROUND).expect("few")) {
        round(&bed, done).await;
        // The first tenth pays for threads, buffers and tables.
        if early == 0 && done >= cycles / 10 {
            early = resident();
        }
    }
    let late = resident();
    let said = format!("{} MB after a tenth, {} MB after {cycles} tasks", early >> 20, late >> 20);
    eprintln!("cycles: {said}");
    assert!(asked.is_none() || late <= early + early / 20 + NOISE, "{said}");
}

#[tokio::test]
async fn w7_the_checkpoints_of_tasks_that_came_and_went_are_gone_too() {
    let sqlite = Sqlite::new();
    let database = sqlite.open();
    let bed = Bed::start(CheckpointConfig::Embedded(database.clone()), &ManualClock::default()).await;
    let (me, store, start) = (bed.me(), EmbeddedCheckpoints::new(database), bed.now());
    for n in 0..200 {
        let task = format!("task-{n}");
        me.create(&task).await.expect("created");
        me.end(&task).await.expect("ended");
    }
    bed.role.checkpoint().await.expect("written");
    bed.clock.advance(Duration::from_secs(TOMBSTONE_SECONDS.unsigned_abs() + 60));
    bed.role.sweep();
    assert_eq!(bed.role.status().counts, Counts::default());
    // As of the start nothing had expired: what is listed stands in the file.
    assert_eq!(store.load(start).await.expect("read").ended.len(), 200);
    store.purge(bed.now()).await.expect("dropped");
    let left = store.load(start).await.expect("read");
    assert_eq!((left.boards.len(), left.ended.len()), (0, 0));
}
