//! Near-duplicates (rule R11, A167): what recall shows as one becomes one record. Only what is new since the last run is
//! compared, with what lies closest to it by meaning; distinct numbers, names or denials are never the same.

use super::Maintenance;
use crate::index::{LegQuery, RecordFilter};
use crate::metadata::maintenance as store;
use crate::metadata::row::{self, StoredRecord};
use crate::metadata::{maintenance::StoredUser, search};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use strata_core::policy::conflict::rank;
use strata_core::policy::forgetting::{Planner, survivor};
use strata_core::{Fault, MemoryId, Timestamp};
use strata_text::embed::{Purpose, normalise};
use strata_text::features;

/// New records compared in one run over one user; the rest is compared by the next.
const NEW: u32 = 200;
/// Records that lie closest to one.
const CLOSEST: u32 = 8;

/// Pairs to merge, and up to when records are compared then.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    /// The one that stays, the one that goes.
    pub(super) pairs: Vec<(MemoryId, MemoryId)>,
    pub(super) until: Option<Timestamp>,
}

impl Maintenance {
    /// Finds near-duplicates of what is new. Without vectors there are none: the same words are one record at the write.
    pub(super) async fn pairs(&self, user: &StoredUser, planner: &Planner<'_>, now: Timestamp) -> Result<Pairs, Fault> {
        let (Some(space), Some(embedder)) = (self.state.index.space().cloned(), self.state.embedder.clone()) else {
            return Ok(Pairs::default());
        };
        if !self.state.relay.dense_ready() {
            return Ok(Pairs::default());
        }
        let user_id = user.user_id;
        let fresh = self.state.database.read(move |db| store::unmerged(db, user_id, NEW)).await?;
        let full = fresh.len() >= NEW as usize;
        let mut out = Pairs {
            until: if full { fresh.last().map(|found| found.record.create_time) } else { Some(now) },
            ..Pairs::default()
        };
        let near = f64::from(self.state.settings.load().recall.near_duplicate_cosine as f32);
        let mut gone: BTreeMap<MemoryId, MemoryId> = BTreeMap::new();
        for found in fresh {
            let id = found.record.memory_id;
            let (model, content) = (space.model.clone(), found.record.content.clone());
            let stored = self.state.database.read(move |db| search::vector(db, id, &model)).await?;
            let vector = match stored {
                Some(vector) => vector,
                None if embedder.is_caller() => continue,
                None => {
                    let made = embedder.embed(&[content.as_str()], Purpose::Document).await.ok().and_then(|mut all| all.pop());
                    let made = made.and_then(|mut v| (v.len() == space.dims && normalise(&mut v)).then_some(v));
                    let Some(made) = made else { continue };
                    made
                }
            };
            let filter = RecordFilter::active(&found.record.owner, now);
            let query = LegQuery { dense: Some(vector), sparse: Vec::new(), limit: CLOSEST, filter };
            // An index that does not answer costs this run's merging and nothing else.
            let Ok(legs) = self.state.index.search(&found.record.owner, &query).await else { return Ok(Pairs::default()) };
            for hit in legs.dense.into_iter().filter(|hit| f64::from(hit.score) > near && hit.memory_id != id) {
                let Some(other) = self.state.database.read(move |db| row::by_id(db, hit.memory_id)).await? else { continue };
                if gone.contains_key(&id) || gone.contains_key(&hit.memory_id) || !same(&found, &other) {
                    continue;
                }
                let (Some(a), Some(b)) = (planner.subject(id), planner.subject(hit.memory_id)) else { continue };
                let facts = |r: &StoredRecord| (r.record.cite_count, rank(r.record.source, false));
                let ((cites_a, rank_a), (cites_b, rank_b)) = (facts(&found), facts(&other));
                let (stays, goes) = match survivor((a, cites_a, rank_a), (b, cites_b, rank_b)) {
                    Ordering::Less | Ordering::Equal => (id, hit.memory_id),
                    Ordering::Greater => (hit.memory_id, id),
                };
                gone.insert(goes, stays);
                out.pairs.push((stays, goes));
            }
        }
        Ok(out)
    }
}

/// Whether two records claim the same: of one owner, kind and tier, keyless, with the same values in their order, the same
/// denial and the same certainty.
fn same(a: &StoredRecord, b: &StoredRecord) -> bool {
    let (x, y) = (&a.record, &b.record);
    let alike = a.owner == b.owner && x.kind == y.kind && x.tier == y.tier && x.key.is_none() && y.key.is_none();
    if !alike {
        return false;
    }
    let (f, g) = (features(&x.content), features(&y.content));
    let values = |f: &strata_text::TextFeatures| f.values.iter().map(|value| value.normal.clone()).collect::<Vec<_>>();
    f.negation == g.negation && f.certainty == g.certainty && f.language == g.language && values(&f) == values(&g)
}
