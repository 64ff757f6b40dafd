//! What callers see of the promotion channel beside Promote itself: lists and a stream of the journal, facts that are
//! promoted with the end of their task or session, and candidates whose confirmation or end moves their promotion on (rule P6).

use crate::call::Call;
use crate::gate::Core;
use crate::layers::{SIDE_LOOK, answer, reading, signed};
use crate::owners::is_down;
use crate::promote::{Entry, STEP, decode};
use futures::stream::{self, BoxStream, StreamExt as _};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use strata_api::convert::router as convert;
use strata_api::error::status;
use strata_api::longterm::v1 as longterm;
use strata_api::router::v1 as pb;
use strata_api::session::v1 as session;
use strata_api::working::v1 as working;
use strata_core::limits::{self, END_PROMOTIONS};
use strata_core::policy::authz;
use strata_core::policy::promotion::{Event, Origin, Promotion, State};
use strata_core::{Fault, Owner, Reason, SessionId, TaskId};
use tonic::Status;

/// Pause between two looks at the journal for a watcher: routers share it and tell one another nothing.
const WATCH_PAUSE: Duration = Duration::from_millis(500);
/// Promotions named by one watcher.
const WATCHED: usize = 100;
/// The method whose role a promotion at the end of a task or a session needs.
const PROMOTE: &str = "/strata.router.v1.RouterService/Promote";

/// The end of a scope, with facts of it that the caller hands to the router.
pub(crate) trait Ending {
    /// The promotions it brings, each as its own Promote would ask for it.
    fn promotions(&self) -> Vec<pb::PromoteRequest>;

    /// What ends has a legal name.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the field.
    fn check_scope(&self) -> Result<(), Fault>;
}

macro_rules! ending {
    ($request:ty, $asked:ty, $scope:ident, $id:ty, $fact:ident) => {
        impl Ending for $request {
            fn promotions(&self) -> Vec<pb::PromoteRequest> {
                let one = |asked: &$asked| {
                    let fact = pb::$fact { $scope: self.$scope.clone(), key: asked.key.clone() };
                    pb::PromoteRequest {
                        user_id: self.user_id.clone(),
                        agent_id: self.agent_id.clone(),
                        promotion_id: asked.promotion_id.clone(),
                        source: Some(pb::PromotionSource { kind: Some(pb::promotion_source::Kind::$fact(fact)) }),
                        statement: asked.statement.clone(),
                    }
                };
                self.promotions.iter().map(one).collect()
            }

            fn check_scope(&self) -> Result<(), Fault> {
                <$id>::new(self.$scope.as_str()).map(drop)
            }
        }
    };
}

ending!(working::EndTaskRequest, working::TaskPromotion, task_id, TaskId, TaskFact);
ending!(session::EndSessionRequest, session::SessionPromotion, session_id, SessionId, SessionFact);

impl Core {
    /// The promotion of that id, as it stands now.
    ///
    /// # Errors
    /// `INVALID_FIELD`, `NOT_FOUND`; `STORE_UNAVAILABLE`.
    pub(crate) async fn promotion(self: &Arc<Self>, owner: &Owner, promotion_id: &str) -> Result<pb::Promotion, Fault> {
        let promotion_id = convert::promotion_id("promotion_id", promotion_id)?;
        let entry = self.journalled(owner, &promotion_id).await?;
        let entry = entry.ok_or_else(|| Fault::not_found("promotion", promotion_id))?;
        Ok(convert::wire_promotion(&self.refreshed(entry).await?.promotion))
    }

    async fn entries(&self, owner: &Owner) -> Result<Vec<Entry>, Fault> {
        self.ledger.journal_list(&owner.user_key(), self.ports.clock.now()).await?.iter().map(decode).collect()
    }

    /// A page of a user's promotions.
    ///
    /// # Errors
    /// `INVALID_FIELD`, `INVALID_PAGE_TOKEN`; `STORE_UNAVAILABLE`.
    pub(crate) async fn promotions(
        &self,
        call: &Call,
        request: &pb::ListPromotionsRequest,
    ) -> Result<pb::ListPromotionsResponse, Fault> {
        let page = limits::page("page_size", request.page_size, limits::PAGE, limits::PAGE_MAX)?;
        if request.states.len() > limits::FILTER_VALUES {
            return Err(Fault::limit("states", limits::FILTER_VALUES, "states"));
        }
        let states =
            request.states.iter().map(|state| convert::state("states", *state)).collect::<Result<Vec<State>, Fault>>()?;
        let names: Vec<&str> = states.iter().map(|state| state.name()).collect();
        let (user, filter) = (call.owner.user_key(), names.join(","));
        let binding = ["ListPromotions", user.as_str(), request.agent_id.as_str(), filter.as_str()];
        let after = self.tokens.open(&binding, &request.page_token)?;
        let mut meant = self.entries(&call.owner).await?;
        meant
            .retain(|entry| of_agent(entry, &request.agent_id) && (states.is_empty() || states.contains(&entry.promotion.state)));
        // The order is that of the journal; a promotion that has gone meanwhile cannot be found again in it.
        let order = |entry: &Entry| (entry.promotion.create_time, entry.promotion.promotion_id.clone());
        meant.sort_by_key(order);
        let cursor = |entry: &Entry| format!("{}:{}", entry.promotion.create_time.micros(), entry.promotion.promotion_id);
        let start = match after.as_deref().map(parse_cursor) {
            None => 0,
            Some(None) => return Err(Fault::new(Reason::InvalidPageToken, "page_token: not a token of this list")),
            Some(Some(after)) => meant.partition_point(|entry| {
                (entry.promotion.create_time.micros(), entry.promotion.promotion_id.as_str()) <= (after.0, after.1)
            }),
        };
        let size = page.size as usize;
        let rest = meant.len().saturating_sub(start);
        let shown: Vec<&Entry> = meant.iter().skip(start).take(size).collect();
        let next_page_token = match shown.last() {
            Some(last) if rest > size => self.tokens.mint(&binding, &cursor(last)),
            Some(_) | None => String::new(),
        };
        Ok(pb::ListPromotionsResponse {
            promotions: shown.into_iter().map(|entry| convert::wire_promotion(&entry.promotion)).collect(),
            next_page_token,
            capped: page.capped,
        })
    }

    /// Promotions as they stand, then each that changed, until the caller leaves or the router stops.
    ///
    /// # Errors
    /// `INVALID_FIELD`, `NOT_FOUND`; `STORE_UNAVAILABLE`, which also ends the stream.
    pub(crate) async fn watch_promotions(
        self: &Arc<Self>,
        call: Call,
        request: pb::WatchPromotionsRequest,
    ) -> Result<BoxStream<'static, Result<pb::WatchPromotionsResponse, Status>>, Fault> {
        if request.promotion_ids.len() > WATCHED {
            return Err(Fault::limit("promotion_ids", WATCHED, "promotions"));
        }
        let ids = request
            .promotion_ids
            .iter()
            .map(|id| convert::promotion_id("promotion_ids", id))
            .collect::<Result<Vec<String>, Fault>>()?;
        let mut watching = Watching {
            core: Arc::clone(self),
            owner: call.owner,
            agent_id: request.agent_id,
            ids,
            seen: BTreeMap::new(),
            changed: VecDeque::new(),
        };
        // What cannot be watched is said at once.
        watching.look().await?;
        let next = |watching: Option<Watching>| async move {
            let mut watching = watching?;
            loop {
                if let Some(promotion) = watching.changed.pop_front() {
                    return Some((Ok(pb::WatchPromotionsResponse { promotion: Some(promotion) }), Some(watching)));
                }
                strata_runtime::ports::pause(WATCH_PAUSE).await;
                if let Err(fault) = watching.look().await {
                    return Some((Err(status(fault)), None));
                }
            }
        };
        let stop = self.tasks.token().clone();
        Ok(stream::unfold(Some(watching), next).take_until(stop.cancelled_owned()).boxed())
    }

    /// A queued one whose candidate is in force meanwhile begins anew; one whose candidate has gone is over (rule P6).
    /// Anything else is answered as it stands.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    pub(crate) async fn refreshed(self: &Arc<Self>, entry: Entry) -> Result<Entry, Fault> {
        let queued = entry.promotion.state == State::Queued && !entry.promotion.is_open();
        let Some(memory_id) = entry.promotion.memory_id.clone().filter(|_| queued) else { return Ok(entry) };
        let request = longterm::GetMemoryRequest {
            user_id: entry.owner.user.as_str().to_owned(),
            agent_id: entry.owner.agent_id().to_owned(),
            memory_id,
        };
        let mut client = self.layers.longterm.clone();
        let asked = client.get_memory(signed(request, reading(&entry.principal, &entry.owner)));
        match tokio::time::timeout(STEP, asked).await.map(answer) {
            Ok(Ok(found)) => match found.memory.unwrap_or_default().status() {
                longterm::Status::Active => Box::pin(self.readmit(entry)).await,
                longterm::Status::Candidate | longterm::Status::Disputed | longterm::Status::Unspecified => Ok(entry),
                longterm::Status::Superseded
                | longterm::Status::Expired
                | longterm::Status::Archived
                | longterm::Status::Rejected
                | longterm::Status::Deleted => self.advance(&entry, Event::CandidateGone).await,
            },
            Ok(Err(fault)) if fault.reason == Reason::NotFound => self.advance(&entry, Event::CandidateGone).await,
            // It is looked at again later.
            Ok(Err(_)) | Err(_) => Ok(entry),
        }
    }

    /// A candidate was confirmed, gathered enough evidence, or was rejected: the promotion that waits for it is moved on.
    /// Best effort: the recovery looks at every queued promotion from time to time.
    pub(crate) async fn candidate_moved(self: &Arc<Self>, owner: &Owner, memory_id: &str) {
        let Ok(Ok(entries)) = tokio::time::timeout(SIDE_LOOK, self.entries(owner)).await else { return };
        let waits =
            |entry: &Entry| entry.promotion.state == State::Queued && entry.promotion.memory_id.as_deref() == Some(memory_id);
        for entry in entries.into_iter().filter(waits) {
            let promotion_id = entry.promotion.promotion_id.clone();
            if let Err(fault) = self.refreshed(entry).await {
                tracing::warn!(promotion_id, reason = fault.reason.name(), "a queued promotion waits for the next look");
            }
        }
    }

    /// Moves the promotion of a written record on, when evidence put the record in force.
    pub(crate) async fn evidence_added(self: &Arc<Self>, owner: &Owner, result: Option<&longterm::WriteResult>) {
        let Some(result) = result else { return };
        let Some(memory) = result.memory.as_ref() else { return };
        if result.outcome() == longterm::Outcome::EvidenceAdded && memory.status() == longterm::Status::Active {
            self.candidate_moved(owner, &memory.memory_id).await;
        }
    }

    /// Journals the promotions that go with the end of a task or a session, and drives them as far as they go (rule P6). The
    /// scope may end when this has returned: what is deferred goes on with the journalled values. All are checked before the first
    /// is journalled: where one is refused none has begun.
    ///
    /// # Errors
    /// Those of Promote, naming the promotion; `STORE_UNAVAILABLE` when the journal or the source does not answer: then the scope
    /// must not end.
    pub(crate) async fn promote_at_end(self: &Arc<Self>, call: &Call, end: &impl Ending) -> Result<Vec<Promotion>, Fault> {
        let asked = end.promotions();
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        if asked.len() > END_PROMOTIONS {
            return Err(Fault::limit("promotions", END_PROMOTIONS, "promotions"));
        }
        authz::allow(&call.principal, PROMOTE)?;
        end.check_scope()?;
        let mut checked: Vec<(Entry, bool)> = Vec::with_capacity(asked.len());
        for (at, request) in asked.into_iter().enumerate() {
            let (entry, new) = self.check(call, request).await.map_err(|fault| of_promotion(at, fault))?;
            let promotion = &entry.promotion;
            if promotion.journalled.is_none() && promotion.is_open() {
                return Err(Fault::unavailable(source_layer(&promotion.origin)));
            }
            // One id for two of them shows in the journal when it is too late for the first.
            let before = checked.iter().find(|(before, _)| before.promotion.promotion_id == promotion.promotion_id);
            before
                .map_or(Ok(()), |(before, _)| before.is_asked_for_by(&promotion.digest))
                .map_err(|fault| of_promotion(at, fault))?;
            checked.push((entry, new));
        }
        let mut entries = Vec::with_capacity(checked.len());
        for (entry, new) in checked {
            entries.push(if new { self.enter(entry).await?.0 } else { entry });
        }
        let driven = entries.into_iter().map(|entry| async {
            let known = entry.clone();
            let open = entry.promotion.is_open();
            // It stands in the journal: whatever goes wrong now, the recovery goes on.
            if open { self.drive_detached(entry).await.unwrap_or(known) } else { known }
        });
        Ok(futures::future::join_all(driven).await.into_iter().map(|entry| entry.promotion).collect())
    }
}

/// The fault, as one of the promotion of that place.
fn of_promotion(at: usize, mut fault: Fault) -> Fault {
    if is_down(&fault) {
        return fault;
    }
    let name = format!("promotions[{at}]");
    fault.message = format!("{name}{}{}", if fault.fields.is_empty() { ": " } else { "." }, fault.message);
    for violation in &mut fault.fields {
        violation.field = format!("{name}.{}", violation.field);
    }
    fault.with("field", name)
}

const fn source_layer(origin: &Origin) -> &'static str {
    match origin {
        Origin::TaskFact { .. } => "working memory",
        Origin::SessionFact { .. } | Origin::TurnQuote { .. } => "session memory",
    }
}

fn of_agent(entry: &Entry, agent_id: &str) -> bool {
    agent_id.is_empty() || entry.owner.agent.as_ref().is_some_and(|agent| agent.as_str() == agent_id)
}

fn parse_cursor(text: &str) -> Option<(i64, &str)> {
    let (time, promotion_id) = text.split_once(':')?;
    Some((time.parse().ok()?, promotion_id))
}

/// What one watcher has been shown.
struct Watching {
    core: Arc<Core>,
    owner: Owner,
    agent_id: String,
    ids: Vec<String>,
    /// Revision last shown, by promotion.
    seen: BTreeMap<String, u64>,
    changed: VecDeque<pb::Promotion>,
}

impl Watching {
    async fn look(&mut self) -> Result<(), Fault> {
        let mut entries = Vec::new();
        if self.ids.is_empty() {
            entries = self.core.entries(&self.owner).await?;
        } else {
            for id in &self.ids {
                match self.core.journalled(&self.owner, id).await? {
                    Some(entry) => entries.push(entry),
                    // One that was shown is past its time in the journal.
                    None if self.seen.contains_key(id) => {}
                    None => return Err(Fault::not_found("promotion", id.clone())),
                }
            }
        }
        for entry in entries.iter().filter(|entry| of_agent(entry, &self.agent_id)) {
            let promotion = &entry.promotion;
            if self.seen.insert(promotion.promotion_id.clone(), promotion.revision) != Some(promotion.revision) {
                self.changed.push_back(convert::wire_promotion(promotion));
            }
        }
        Ok(())
    }
}
