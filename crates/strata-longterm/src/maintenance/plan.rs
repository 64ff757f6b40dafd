//! One user's plan: what is read, asked of the planner, and worded, before anything is written. Dry run and run plan alike.

use super::compose::{Draft, Source, compose};
use super::{Ask, Maintenance};
use crate::metadata::StoredOwner;
use crate::metadata::insert::Material;
use crate::metadata::insert::Passed;
use crate::metadata::maintenance::{self as store, StoredUser};
use crate::metadata::row::{self, StoredRecord};
use crate::scope::OwnerScope;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strata_api::convert::longterm::indexed_text;
use strata_core::id::join;
use strata_core::policy::forgetting::{AutoRule, Planner, Step, exemption};
use strata_core::policy::gate::{self, Gated, Member, SummarySubmission};
use strata_core::record::Status;
use strata_core::{Fault, MemoryId, Owner, Reason, Timestamp};
use strata_text::{features, terms};
use uuid::Uuid;

/// Fewest records that a summary of a topic stands for: fewer are read as easily themselves.
const FEWEST: usize = 5;

/// A summary that is to be made.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    pub(super) owner: Owner,
    pub(super) stored: StoredOwner,
    /// In the words of the rules.
    pub(super) gated: Gated,
    pub(super) material: Material,
    /// In those that a model chose, if it was asked and they passed. Never part of what a dry run tells.
    pub(super) by_model: Option<(Gated, Material)>,
    pub(super) members: Vec<(MemoryId, Status)>,
    pub(super) span: (Timestamp, Timestamp),
    pub(super) replaces: Option<MemoryId>,
}

/// A fact that events propose.
#[derive(Clone, Debug)]
pub(super) struct Proposal {
    pub(super) owner: Owner,
    pub(super) stored: StoredOwner,
    pub(super) scope: OwnerScope,
    pub(super) memory_id: MemoryId,
    /// Each event's statement, the newest first: that one is the record, the others are its evidence.
    pub(super) passed: Vec<Passed>,
    /// Newest first, with their states.
    pub(super) events: Vec<(MemoryId, Status)>,
    /// Times of the oldest and the newest.
    pub(super) span: (Timestamp, Timestamp),
}

/// What a run does to one user.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) now: Timestamp,
    pub(super) steps: Vec<Step>,
    /// Whose each record of the plan is.
    pub(super) owners: BTreeMap<MemoryId, Owner>,
    /// Records to make, by id.
    pub(super) summaries: BTreeMap<MemoryId, Summary>,
    pub(super) proposals: BTreeMap<MemoryId, Proposal>,
    /// Until when records are compared for near-duplicates after the run.
    pub(super) merged_until: Option<Timestamp>,
    /// Stale summaries that nothing takes the place of.
    pub(super) retire: Vec<MemoryId>,
}

/// What the snapshot says.
struct Snapshot {
    levels: BTreeMap<i64, Owner>,
    subjects: Vec<strata_core::policy::forgetting::Subject>,
    pending: BTreeMap<MemoryId, Vec<MemoryId>>,
    stale: BTreeMap<MemoryId, Vec<MemoryId>>,
}

impl Maintenance {
    /// Plans one user.
    pub(super) async fn plan(&self, user: &StoredUser, ask: &Ask) -> Result<Plan, Fault> {
        let policy = self.state.settings.load_full();
        let now = self.state.ports.clock.now();
        let (registry, named) = (Arc::clone(&self.state.registry), user.clone());
        let read = move |db: &rusqlite::Connection| {
            Ok::<_, Fault>(Snapshot {
                levels: store::levels(db, &named)?,
                subjects: store::subjects(db, named.user_id, &registry)?,
                pending: store::pending_members(db, named.user_id)?,
                stale: store::stale_members(db, named.user_id)?,
            })
        };
        let Snapshot { levels, subjects, pending, stale } = self.state.database.read(read).await?;
        let mut owners: BTreeMap<MemoryId, Owner> =
            subjects.iter().filter_map(|s| Some((s.memory_id, levels.get(&s.level)?.clone()))).collect();
        let scope = self.scope(ask, &user.tenant);
        let mut planner = Planner::new(&policy.forgetting, &scope, subjects, now);
        let (mut summaries, mut retire) = (BTreeMap::new(), Vec::new());

        planner.expiry();
        let mut proposals = BTreeMap::new();
        for repeated in planner.repeated() {
            if let Some(proposal) = self.proposal(repeated, now).await? {
                let events: Vec<MemoryId> = proposal.events.iter().map(|(id, _)| *id).collect();
                planner.make(AutoRule::Propose, proposal.memory_id, &events);
                owners.insert(proposal.memory_id, proposal.owner.clone());
                proposals.insert(proposal.memory_id, proposal);
            }
        }
        for (summary, members) in pending {
            planner.members(summary, &members);
        }
        if planner.asks(AutoRule::Consolidate) {
            for (old, members) in stale {
                let counts = |id: &MemoryId| planner.subject(*id).is_some_and(|s| s.condensable() && exemption(s).is_none());
                let members: Vec<MemoryId> = members.into_iter().filter(counts).collect();
                let words = self.words(members.clone(), Wording { over: 1, fewest: 2, replaces: Some(old) }).await?;
                if words.made.is_empty() {
                    planner.leave(&members, "too few are left for a summary");
                    retire.push(old);
                }
                enter(&mut planner, &mut summaries, &mut owners, words.made);
            }
        }
        for topic in planner.topics() {
            let wording = Wording { over: policy.forgetting.consolidate_over, fewest: FEWEST, replaces: None };
            let words = self.words(topic.members, wording).await?;
            enter(&mut planner, &mut summaries, &mut owners, words.made);
            if !words.left.is_empty() {
                planner.leave(&words.left, "one summary cannot hold enough of them");
            }
        }
        let mut merged_until = None;
        if planner.asks(AutoRule::Merge) {
            let found = self.pairs(user, &planner, now).await?;
            for (survivor, loser) in found.pairs {
                planner.merge(survivor, loser);
            }
            merged_until = found.until;
        }
        planner.access();
        planner.capacity();
        planner.purge();
        Ok(Plan { now, steps: planner.finish(), owners, summaries, proposals, merged_until, retire })
    }

    /// Words summaries of records, off the threads that serve calls.
    async fn words(&self, members: Vec<MemoryId>, wording: Wording) -> Result<Words, Fault> {
        let read = move |db: &rusqlite::Connection| {
            let found = members.iter().map(|id| row::by_id(db, *id));
            Ok::<_, Fault>(found.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect::<Vec<_>>())
        };
        let records = self.state.database.read(read).await?;
        let work = self.tasks.blocking("maintenance words", move || word(records, &wording));
        work.await.map_err(|_| Fault::new(Reason::Internal, "the wording of summaries ended unexpectedly"))
    }
}

fn enter(
    planner: &mut Planner<'_>,
    summaries: &mut BTreeMap<MemoryId, Summary>,
    owners: &mut BTreeMap<MemoryId, Owner>,
    made: Vec<Summary>,
) {
    for mut summary in made {
        let id = summary.material.memory_id;
        for (member, status) in &mut summary.members {
            *status = planner.subject(*member).map_or(*status, |s| s.status);
        }
        let members: Vec<MemoryId> = summary.members.iter().map(|(member, _)| *member).collect();
        planner.condense(id, &members);
        owners.insert(id, summary.owner.clone());
        summaries.insert(id, summary);
    }
}

/// How records are worded.
#[derive(Clone, Copy, Debug)]
struct Wording {
    /// Summaries are made while more than this are left.
    over: usize,
    /// Fewest that one stands for.
    fewest: usize,
    replaces: Option<MemoryId>,
}

#[derive(Debug, Default)]
struct Words {
    made: Vec<Summary>,
    /// Records of which none could be made.
    left: Vec<MemoryId>,
}

/// Summaries of records, oldest first, while enough are left.
fn word(mut records: Vec<StoredRecord>, wording: &Wording) -> Words {
    records.sort_by_key(|found| (found.record.event_time, found.record.memory_id));
    let sources: Vec<Source> = records
        .iter()
        .map(|found| Source {
            memory_id: found.record.memory_id,
            features: features(&found.record.content),
            content: found.record.content.clone(),
            event_time: found.record.event_time,
        })
        .collect();
    let (mut words, mut at) = (Words::default(), 0);
    while sources.len() - at > wording.over {
        let draft = compose(&sources[at..]);
        let taken = draft.members.len();
        let range = at..at + taken;
        let made = if taken < wording.fewest { None } else { judged(&draft, &records[range.clone()], &sources[range], wording) };
        let Some(made) = made else {
            words.left = sources[at..].iter().map(|source| source.memory_id).collect();
            break;
        };
        words.made.push(made);
        at += taken;
    }
    words
}

/// The draft, if the gate takes it.
fn judged(draft: &Draft, records: &[StoredRecord], sources: &[Source], wording: &Wording) -> Option<Summary> {
    let content = features(&draft.text);
    let members: Vec<Member<'_>> =
        records.iter().zip(sources).map(|(found, source)| Member { record: &found.record, features: &source.features }).collect();
    let first = records.first()?;
    let topic = first.record.topic.as_deref();
    let given = SummarySubmission { text: &draft.text, features: &content, topic, members: &members };
    let gated = match gate::summary(given) {
        Ok(gated) => gated,
        Err(refusal) => {
            let rules: BTreeSet<&str> = refusal.findings.iter().map(|finding| finding.rule.0).collect();
            tracing::warn!(?rules, members = records.len(), "a summary was refused: its records stay as they are");
            return None;
        }
    };
    let ids: Vec<String> = draft.members.iter().map(MemoryId::to_string).collect();
    let parts: Vec<&str> = std::iter::once("summary").chain(ids.iter().map(String::as_str)).collect();
    // Derived from its members: the plan of a dry run names the record that the run makes.
    let memory_id = MemoryId(Uuid::new_v5(&Uuid::NAMESPACE_OID, join(&parts).as_bytes()));
    let material = material(memory_id, &draft.text);
    let times = || sources.iter().map(|source| source.event_time);
    Some(Summary {
        owner: first.record.owner.clone(),
        stored: first.owner,
        gated,
        material,
        by_model: None,
        members: records.iter().map(|found| (found.record.memory_id, found.record.status)).collect(),
        span: (times().min()?, times().max()?),
        replaces: wording.replaces,
    })
}

/// What is stored beside the words of a summary.
pub(super) fn material(memory_id: MemoryId, text: &str) -> Material {
    Material {
        memory_id,
        terms: terms(&indexed_text(text, None, None)),
        request_id: None,
        vector: None,
        related: Vec::new(),
        session_id: None,
    }
}
