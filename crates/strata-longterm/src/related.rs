//! Which records a statement replaces, or may replace, without sharing a slot with them (rule K0): found by words and, with
//! an embedder, by meaning; judged by what both say. Runs before the write's transaction, which checks again that what was
//! found still stands; the texts of records never change.

use crate::index::{LegQuery, RecordFilter};
use crate::metadata::insert::{Passed, Related};
use crate::metadata::query;
use crate::recall::caller_space;
use crate::scope::OwnerScope;
use crate::state::State;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use strata_core::policy::conflict::{Replacement, replacement};
use strata_core::policy::gate::{Gated, Standing, is_user};
use strata_core::record::{Kind, Tier};
use strata_core::{Fault, MemoryId, Timestamp};
use strata_text::embed::{Purpose, normalise};
use strata_text::{aspect, query_terms};

/// Terms of a statement that are looked for.
const TERMS: usize = 24;
/// Records compared by their words.
const BY_WORDS: usize = 24;
/// Records compared by meaning.
const BY_MEANING: u32 = 8;
/// Longest wait for the statement's vector; without it the words decide.
const EMBED_WAIT: Duration = Duration::from_millis(250);

/// Whether the statement is one that may replace others: the user's own lasting words.
fn replaces(gated: &Gated) -> bool {
    let s = gated.statement();
    is_user(s.source)
        && gated.standing() == Standing::Active
        && gated.tier() == Tier::Stable
        && !gated.is_set()
        && !matches!(s.kind, Kind::Assumption | Kind::ModelSuggestion | Kind::Event | Kind::Experience)
}

impl State {
    /// Finds what the statement replaces, and notes it with what its insertion needs. The vector that was made for it is
    /// kept, so that the relay need not make it again.
    ///
    /// # Errors
    /// As the database says. An index or embedder that does not answer is no error.
    pub(crate) async fn relate(&self, scope: &OwnerScope, now: Timestamp, passed: &mut Passed) -> Result<(), Fault> {
        let (gated, material) = (&passed.0, &mut passed.1);
        if !replaces(gated) {
            return Ok(());
        }
        let content = gated.statement().content.clone();
        let mut said = aspect(&content);
        // The next write compares this one, if it comes to be stored.
        self.aspects.insert(material.memory_id, Arc::new(said.clone()));
        // A correction says by its source that something was wrong.
        said.changes |= gated.statement().source == strata_core::record::Source::UserCorrection;
        let mut cosines: HashMap<MemoryId, f64> = HashMap::new();
        if said.changes || said.denies || !said.values.is_empty() {
            let supplied = material.vector.as_ref().map(|(_, vector)| vector.clone());
            if let Some(vector) = self.vector_of(&content, supplied).await {
                cosines = self.by_meaning(scope, now, vector.clone()).await;
                if let (None, Some(space)) = (&material.vector, self.index.space()) {
                    material.vector = Some((space.model.clone(), vector));
                }
            }
        }
        let near = self.embedder.as_ref().map_or(1.0, |embedder| f64::from(embedder.identity().conflict_similarity));
        let terms: Vec<u32> = query_terms(&content).iter().map(|(term, _)| *term).take(TERMS).collect();
        let keyed = gated.key().is_some();
        let (asked, aspects) = (scope.clone(), self.aspects.clone());
        let found = self
            .read(scope, move |db, visible| {
                let Some(owner) = visible.own(db, &asked)? else { return Ok(Vec::new()) };
                let near_ids: Vec<MemoryId> = cosines.keys().copied().collect();
                let mut out: Vec<(bool, f64, usize, Related)> = Vec::new();
                for old in query::replaceable(db, owner, &terms, BY_WORDS, &near_ids)? {
                    // Two keyed statements meet in their slot, or not at all.
                    if keyed && old.keyed {
                        continue;
                    }
                    let aspect = match aspects.get(&old.id) {
                        Some(kept) => kept,
                        None => {
                            let read = Arc::new(aspect(&query::content_of(db, owner, old.id)?));
                            aspects.insert(old.id, Arc::clone(&read));
                            read
                        }
                    };
                    let cosine = cosines.get(&old.id).copied();
                    let Some(replacement) = replacement(&aspect, &said, cosine, near) else { continue };
                    // The values of a set are taken out by name only, never by likeness. A statement with a slot of its own
                    // raises no question about others.
                    let replacement = if old.is_set { replacement.min(Replacement::May) } else { replacement };
                    if !(keyed && replacement == Replacement::May) {
                        let shared = aspect.topics.intersection(&said.topics).count();
                        let same_relation = !aspect.relations.is_disjoint(&said.relations);
                        out.push((same_relation, cosine.unwrap_or_default(), shared, (old.id, replacement)));
                    }
                }
                // The likest first: of several that may be replaced that one is asked about.
                out.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)).then(b.2.cmp(&a.2)).then(a.3.0.cmp(&b.3.0)));
                Ok(out.into_iter().map(|(.., related)| related).collect())
            })
            .await?;
        material.related = found.unwrap_or_default();
        Ok(())
    }

    async fn vector_of(&self, text: &str, supplied: Option<Vec<f32>>) -> Option<Vec<f32>> {
        let (space, embedder) = (self.index.space()?, self.embedder.as_ref()?);
        if supplied.is_some() || caller_space(Some(embedder.as_ref())).is_some() {
            return supplied;
        }
        if !self.relay.dense_ready() {
            return None;
        }
        let embedded = tokio::time::timeout(EMBED_WAIT, embedder.embed(&[text], Purpose::Document)).await;
        let vector = embedded.ok().and_then(Result::ok).and_then(|mut vectors| vectors.pop());
        vector.and_then(|mut vector| (vector.len() == space.dims && normalise(&mut vector)).then_some(vector))
    }

    async fn by_meaning(&self, scope: &OwnerScope, now: Timestamp, vector: Vec<f32>) -> HashMap<MemoryId, f64> {
        let filter = RecordFilter::active(scope.owner(), now);
        let query = LegQuery { dense: Some(vector), sparse: Vec::new(), limit: BY_MEANING, filter };
        let legs = self.recall.near(scope.owner(), &query).await;
        legs.dense.into_iter().map(|hit| (hit.memory_id, f64::from(hit.score))).collect()
    }
}
