//! The store against the reference model: the same statements, rejections, forgets and restores, in any order, leave the same
//! values in force, the same candidates and the same chain.

use crate::world::*;
use std::collections::{BTreeMap, BTreeSet};
use strata_api::longterm::v1 as pb;
use strata_core::Timestamp;
use strata_core::policy::authz::Role;
use strata_testkit::model::{Rank, Slot, State, Statement, Tier};
use strata_testkit::{Random, ReferenceStore};

/// Between two statements: short, so that a whole run is younger than the oldest change the index may be behind by.
const STEP: i64 = 50_000;

/// A slot as a reader sees it: values in force, what waits, and, of a single slot, the chain.
#[derive(Debug, Default, PartialEq)]
struct View {
    active: Vec<String>,
    waiting: Vec<(String, State)>,
    chain: Vec<String>,
}

fn of_model(model: &ReferenceStore, slot: &Slot) -> View {
    let own = |values: Vec<&str>| values.into_iter().map(str::to_owned).collect();
    let mut active: Vec<String> = own(model.all_active(slot));
    active.sort();
    View {
        active,
        waiting: model.candidates(slot).into_iter().map(|(value, state)| (value.to_owned(), state)).collect(),
        chain: if slot.is_single() { own(model.chain(slot)) } else { Vec::new() },
    }
}

fn of_store(all: &[pb::Memory], slot: &Slot) -> View {
    let of = |status: pb::Status| all.iter().filter(move |m| m.key == slot.key && m.status() == status);
    let mut active: Vec<String> = of(pb::Status::Active).map(value_of).collect();
    active.sort();
    let mut waiting: Vec<(String, State)> = of(pb::Status::Candidate).map(|m| (value_of(m), State::Candidate)).collect();
    waiting.extend(of(pb::Status::Disputed).map(|m| (value_of(m), State::Disputed)));
    // A value that a system has displaced is kept in the chain and also put to the user (key registry); the model has no users
    // to ask.
    let held: BTreeSet<String> = of(pb::Status::Active).chain(of(pb::Status::Superseded)).map(value_of).collect();
    waiting.retain(|(value, _)| !held.contains(value));
    waiting.sort();
    let mut chain = Vec::new();
    if slot.is_single() {
        // Along the links, from the one that nothing precedes.
        let held: BTreeMap<&str, &pb::Memory> =
            of(pb::Status::Active).chain(of(pb::Status::Superseded)).map(|m| (m.memory_id.as_str(), m)).collect();
        let mut by_time: Vec<&&pb::Memory> = held.values().collect();
        by_time.sort_by_key(|m| {
            let time = m.event_time.as_ref().map(|time| (time.seconds, time.nanos));
            (m.status() == pb::Status::Active, time)
        });
        chain = by_time.into_iter().map(|m| value_of(m)).collect();
    }
    View { active, waiting, chain }
}

struct Run {
    world: World,
    user: Caller,
    system: Caller,
    model: ReferenceStore,
    log: Vec<String>,
}

impl Run {
    async fn all(&self) -> Vec<pb::Memory> {
        let statuses = [
            pb::Status::Candidate,
            pb::Status::Active,
            pb::Status::Disputed,
            pb::Status::Superseded,
            pb::Status::Rejected,
            pb::Status::Deleted,
        ];
        self.user.list(pb::RecallFilter { statuses: statuses.map(i32::from).to_vec(), ..Default::default() }).await
    }

    async fn say(&mut self, slot: &Slot, rank: Rank, said: Timestamp, value: &str) {
        let turn_no = u64::try_from(self.log.len()).expect("few");
        let statement = Statement::user((said.micros(), turn_no), value).from_rank(rank);
        let verdict = self.model.state(slot, &statement);
        let wire = states(&slot.key, value, &format!("my {} is {value}", slot.key.replace(['.', '_', '[', ']'], " ").trim()));
        let wire = pb::Statement { source_ref: Some(turn("s1", u32::try_from(turn_no).expect("few") + 1)), ..wire };
        let result = match rank {
            Rank::User => self.user.clone().said(said).remember(wire).await,
            Rank::System => {
                let record = pb::SystemRecord { system: "hr".into(), record_id: format!("r{turn_no}") };
                let wire = pb::Statement {
                    source_ref: Some(pb::SourceRef { kind: Some(pb::source_ref::Kind::SystemRecord(record)) }),
                    trigger: pb::Trigger::Sync.into(),
                    ..from(pb::Source::AuthoritativeSystem, wire)
                };
                self.system.remember(wire).await
            }
            Rank::Observation => self.user.propose(from(pb::Source::Observation, wire)).await,
            Rank::Inference => self.user.propose(from(pb::Source::ModelInference, wire)).await,
        };
        let outcome = result.map(|result| result.outcome());
        self.log.push(format!("{rank:?} says {value} of {} at {}: {verdict:?}, {outcome:?}", slot.key, said.since(START)));
    }

    /// A record of the store by slot, value and one of these states.
    async fn find(&self, slot: &Slot, value: &str, states: &[pb::Status]) -> Option<String> {
        let all = self.all().await;
        let found = all.iter().rev().find(|m| m.key == slot.key && value_of(m) == value && states.contains(&m.status()));
        found.map(|m| m.memory_id.clone())
    }
}

async fn play(seed: u64, steps: usize) {
    let world = World::unsynced(seed).await;
    let user = world.user("u1");
    let system = user.clone().roles([Role::RecordSystem, Role::MemoryWriter, Role::Reader]);
    let mut run = Run { user, system, model: ReferenceStore::default(), log: Vec::new(), world };
    let slots = [
        Slot::new("t1/u1", "seat.row", Tier::Stable),
        Slot::new("t1/u1", "gate.number", Tier::Stable),
        Slot::new("t1/u1", "bag.label[]", Tier::Stable),
    ];
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut said: BTreeSet<i64> = BTreeSet::new();
    let mut forgotten: BTreeMap<String, Vec<String>> = slots.iter().map(|slot| (slot.key.clone(), Vec::new())).collect();
    for step in 0..steps {
        run.world.clock.advance_micros(STEP);
        let now = strata_core::Clock::now(&run.world.clock);
        let slot = slots[random.below(slots.len())].clone();
        let view = of_model(&run.model, &slot);
        match random.below(12) {
            0 if !view.waiting.is_empty() => {
                let value = view.waiting[random.below(view.waiting.len())].0.clone();
                let open = [pb::Status::Candidate, pb::Status::Disputed];
                let id = run.find(&slot, &value, &open).await.expect("it waits in the store too");
                run.user.reject(&id).await.expect("rejected");
                assert!(run.model.reject(&slot, &value, (now.micros(), 0)));
                run.log.push(format!("reject {value} of {}", slot.key));
            }
            1 if !view.active.is_empty() || !view.waiting.is_empty() => {
                let live: Vec<String> = view.active.iter().cloned().chain(view.waiting.iter().map(|(v, _)| v.clone())).collect();
                let value = live[random.below(live.len())].clone();
                let states = [pb::Status::Active, pb::Status::Candidate, pb::Status::Disputed];
                let id = run.find(&slot, &value, &states).await.expect("it is live in the store too");
                run.user.forget(&[&id], &[]).await;
                assert!(run.model.forget(&slot, &value));
                forgotten.get_mut(&slot.key).expect("a list").push(value.clone());
                run.log.push(format!("forget {value} of {}", slot.key));
            }
            2 if !forgotten[&slot.key].is_empty() => {
                let of_slot = forgotten.get_mut(&slot.key).expect("a list");
                let value = of_slot.swap_remove(random.below(of_slot.len()));
                let id = run.find(&slot, &value, &[pb::Status::Deleted]).await.expect("it is forgotten in the store too");
                let answer = run.user.restore(&[&id]).await;
                let verdict = run.model.restore(&slot, &value);
                let came = answer.memories.first().map(|m| m.status());
                run.log.push(format!("restore {value} of {}: {verdict:?}, {came:?}", slot.key));
            }
            _ => {
                let rank =
                    [Rank::Inference, Rank::Observation, Rank::System, Rank::User, Rank::User, Rank::User][random.below(6)];
                // Late arrivals are the user's: only a turn says when it was.
                let mut at = now;
                if rank == Rank::User && random.below(4) == 0 && step > 4 {
                    at = START.plus(i64::try_from(random.below(step)).expect("few") * STEP + 1);
                    while !said.insert(at.micros()) {
                        at = at.plus(1);
                    }
                }
                let value = format!("v{step:03}");
                run.say(&slot, rank, at, &value).await;
            }
        }
        run.model.check().expect("the model is consistent");
        let all = run.all().await;
        for slot in &slots {
            let (expected, found) = (of_model(&run.model, slot), of_store(&all, slot));
            assert_eq!(found, expected, "seed {seed}, step {step}, {}:\n{}", slot.key, run.log.join("\n"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k1_k2_k4_k5_k11_store_and_model_agree_on_random_operations() {
    for seed in 1..=6 {
        play(seed, 200).await;
    }
}
