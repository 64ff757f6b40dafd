//! Boards and sessions are told when a fact of theirs became an overlay (rule P2): an outer level owns the key now. They carry
//! the label and refuse writes themselves, so that reading them asks the ledger nothing.

use crate::gate::Core;
use crate::layers::{SIDE_LOOK, answer, placed, reading, signed};
use crate::owners::{Late, Overlay, Waiting, is_down};
use strata_api::internal::v1::{OverlayFactsRequest, SettleRequest};
use strata_api::session::v1::{GetFactsRequest, SessionFact};
use strata_api::working::v1::GetTaskRequest;
use strata_core::id::Level;
use strata_core::limits::SESSION_FACTS;
use strata_core::policy::authz::Principal;
use strata_core::policy::ownership::Mark;
use strata_core::{Fault, Owner, Reason};

impl Core {
    /// Leaves the mark of an outer owner and tells the boards below it. What cannot be done now is done later; until then
    /// long-term memory itself is asked before every claim.
    pub(crate) async fn leave_mark(&self, principal: &Principal, owner: &Owner, key: &str, mark: Mark) {
        match tokio::time::timeout(SIDE_LOOK, self.owners.mark(owner, key, &mark)).await {
            Ok(Ok(overlaid)) => self.tell_scopes(principal, owner, overlaid).await,
            Ok(Err(_)) | Err(_) => self.owners.later(principal, owner, Late::Mark { key: key.to_owned(), mark }),
        }
    }

    /// Tells boards and sessions of their overlays, now or later.
    pub(crate) async fn tell_scopes(&self, principal: &Principal, owner: &Owner, overlaid: Vec<Overlay>) {
        for overlay in overlaid {
            let told = tokio::time::timeout(SIDE_LOOK, self.tell_scope(principal, owner, &overlay)).await;
            match told {
                Ok(Ok(true)) => {}
                // The write that claimed the key may still be on its way to the board: look once more.
                Ok(Ok(false)) => self.owners.later(principal, owner, Late::Overlay { overlay, looked: true }),
                Ok(Err(_)) | Err(_) => self.owners.later(principal, owner, Late::Overlay { overlay, looked: false }),
            }
        }
    }

    async fn tell_scope(&self, principal: &Principal, owner: &Owner, overlay: &Overlay) -> Result<bool, Fault> {
        match overlay.place.level {
            Level::Task => self.tell_board(principal, owner, overlay).await,
            Level::Session => self.tell_session(principal, owner, overlay).await,
            // Their facts are long-term memory's own.
            Level::User | Level::Agent => Ok(true),
        }
    }

    /// As [`Core::tell_board`], for a session.
    async fn tell_session(&self, principal: &Principal, owner: &Owner, overlay: &Overlay) -> Result<bool, Fault> {
        let facts = match self.session_facts(principal, owner, &overlay.place.id).await {
            Ok(facts) => facts,
            Err(gone) if has_ended(&gone) => return Ok(true),
            Err(fault) => return Err(fault),
        };
        let meant = facts.into_iter().filter(|fact| self.registry.resolve_alias(&fact.key) == overlay.key);
        let (told, keys): (Vec<_>, Vec<_>) = meant.partition(|fact| fact.overlay);
        if keys.is_empty() {
            return Ok(!told.is_empty());
        }
        let keys = keys.into_iter().map(|fact| fact.key).collect();
        self.overlay_session(principal, owner, &overlay.place.id, keys).await.map(|()| true)
    }

    /// Makes facts of a session overlays.
    ///
    /// # Errors
    /// Those of session memory.
    pub(crate) async fn overlay_session(
        &self,
        principal: &Principal,
        owner: &Owner,
        session_id: &str,
        keys: Vec<String>,
    ) -> Result<(), Fault> {
        let request = OverlayFactsRequest {
            user_id: owner.user.as_str().to_owned(),
            agent_id: owner.agent_id().to_owned(),
            session_id: session_id.to_owned(),
            keys,
        };
        let identity = reading(principal, owner).writing(Level::Session, self.fresh_epoch());
        answer(self.layers.session_facts.clone().overlay_facts(signed(request, identity)).await).map(drop)
    }

    /// All facts of a session.
    ///
    /// # Errors
    /// Those of session memory.
    pub(crate) async fn session_facts(
        &self,
        principal: &Principal,
        owner: &Owner,
        session_id: &str,
    ) -> Result<Vec<SessionFact>, Fault> {
        let request = GetFactsRequest {
            user_id: owner.user.as_str().to_owned(),
            agent_id: owner.agent_id().to_owned(),
            session_id: session_id.to_owned(),
            page_size: i32::try_from(SESSION_FACTS).unwrap_or(i32::MAX),
            ..Default::default()
        };
        Ok(answer(self.layers.session.clone().get_facts(signed(request, reading(principal, owner))).await)?.facts)
    }

    /// A board may know the key by an alias: all of its facts that mean the key become overlays. A board that has ended has
    /// nothing to be told. False: the board has no such fact.
    async fn tell_board(&self, principal: &Principal, owner: &Owner, overlay: &Overlay) -> Result<bool, Fault> {
        let agent_id = owner.agent_id().to_owned();
        let (user_id, task_id) = (owner.user.as_str().to_owned(), overlay.place.id.clone());
        let request = GetTaskRequest { user_id: user_id.clone(), agent_id: agent_id.clone(), task_id: task_id.clone() };
        let board = match answer(self.layers.working.clone().get_task(placed(request, reading(principal, owner))).await) {
            Ok(found) => found.task.unwrap_or_default(),
            Err(gone) if has_ended(&gone) => return Ok(true),
            Err(fault) => return Err(fault),
        };
        let mut known = false;
        let means = |key: &str| self.registry.resolve_alias(key) == overlay.key;
        for fact in board.facts.into_iter().filter(|fact| fact.reference.is_none() && means(&fact.key)) {
            known = true;
            if fact.overlay {
                continue;
            }
            let request = SettleRequest {
                user_id: user_id.clone(),
                agent_id: agent_id.clone(),
                task_id: task_id.clone(),
                key: fact.key,
                // No promotion moved the owner: the id is nobody's.
                promotion_id: self.ports.ids.next().to_string(),
                seal_epoch: 0,
                committed: true,
                epoch: 0,
            };
            let identity = reading(principal, owner).writing(Level::Task, self.fresh_epoch());
            match answer(self.layers.participant.clone().settle(placed(request, identity)).await) {
                Ok(_) => {}
                Err(gone) if has_ended(&gone) => return Ok(true),
                Err(fault) => return Err(fault),
            }
        }
        Ok(known)
    }

    /// Does what waited for the ledger or a board; stops at the first store that is still down.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`: the rest waits on.
    pub(crate) async fn catch_up(&self) -> Result<(), Fault> {
        while let Some(waiting) = self.owners.take_late() {
            let Waiting { principal, owner, late } = &waiting;
            let done = match late {
                Late::Claim { chain, keys, epoch } => self.owners.enter(owner, chain, keys, *epoch).await,
                Late::Mark { key, mark } => self.owners.mark(owner, key, mark).await,
                Late::Overlay { overlay, looked } => {
                    let again = |known: bool| if known || *looked { Vec::new() } else { vec![overlay.clone()] };
                    // A layer that never answers must not hold up everything else that waits.
                    let told = tokio::time::timeout(SIDE_LOOK, self.tell_scope(principal, owner, overlay)).await;
                    told.unwrap_or_else(|_| Err(Fault::unavailable("the layer"))).map(again)
                }
            };
            match done {
                Ok(overlaid) => self.tell_scopes(principal, owner, overlaid).await,
                Err(fault) => {
                    if is_down(&fault) {
                        self.owners.still_late(waiting);
                    }
                    return Err(fault);
                }
            }
        }
        Ok(())
    }
}

/// Nothing is left to be told.
pub(crate) fn has_ended(fault: &Fault) -> bool {
    matches!(fault.reason, Reason::NotFound | Reason::TaskEnded | Reason::TaskLost | Reason::SessionEnded)
}
