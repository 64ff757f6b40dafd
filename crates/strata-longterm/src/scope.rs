//! Whose memory a call may touch. An [`OwnerScope`] is made from the signed header and nothing else can stand in for it,
//! so that a query without an owner cannot be written (rules P10, R1; cases C033, C034).

use strata_api::convert::common;
use strata_core::id::Level;
use strata_core::{AgentId, Fault, Owner, Reason};
use strata_runtime::Claims;

/// The owner of a verified call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerScope {
    owner: Owner,
    erase_epoch: u64,
}

impl OwnerScope {
    /// The owner that a request names, held against the signed header.
    ///
    /// # Errors
    /// `UNSIGNED_CALL` when the header names no user; `OWNER_MISMATCH` when it names another; `INVALID_FIELD`.
    pub fn of(claims: &Claims, user_id: &str, agent_id: &str) -> Result<Self, Fault> {
        let owner = common::owner(&claims.caller, user_id, agent_id)?;
        if claims.require_user()? != &owner.user {
            return Err(Fault::new(Reason::OwnerMismatch, "user_id: the signed header names another user"));
        }
        Ok(Self { owner, erase_epoch: claims.erase_epoch })
    }

    /// [`OwnerScope::of`] for a write: the header must grant one at the owner's level.
    ///
    /// # Errors
    /// As [`OwnerScope::of`]; `UNSIGNED_CALL` without a grant at that level.
    pub fn writing(claims: &Claims, user_id: &str, agent_id: &str) -> Result<Self, Fault> {
        let scope = Self::of(claims, user_id, agent_id)?;
        if claims.require_write()?.level != scope.level() {
            return Err(Fault::new(Reason::UnsignedCall, "the signed header grants a write at another level")
                .with("level", scope.level().name()));
        }
        Ok(scope)
    }

    /// The same user's scope at the level of `agent`: for a line of an import, which names its own level. An agent's scope
    /// does not leave its agent.
    ///
    /// # Errors
    /// `OWNER_MISMATCH` when this scope is an agent's and the level is not its own.
    pub(crate) fn at(&self, agent: Option<&AgentId>) -> Result<Self, Fault> {
        if self.owner.agent.is_some() && self.owner.agent.as_ref() != agent {
            return Err(Fault::new(Reason::OwnerMismatch, "agent_id: the call is another agent's"));
        }
        Ok(Self { owner: Owner { agent: agent.cloned(), ..self.owner.clone() }, erase_epoch: self.erase_epoch })
    }

    /// The same without the age of its call: for a call that can bring nothing back, however late it is.
    pub(crate) fn ageless(self) -> Self {
        Self { erase_epoch: 0, ..self }
    }

    /// The scope of the service's own work over an owner's rows, such as a line of the erasure log: what it writes is held
    /// against the rows themselves, in the same transaction.
    pub(crate) const fn of_service(owner: Owner) -> Self {
        Self { owner, erase_epoch: 0 }
    }

    /// A scope without a header, for tests of what lies below the service.
    #[cfg(test)]
    pub(crate) const fn for_test(owner: Owner) -> Self {
        Self { owner, erase_epoch: 0 }
    }

    /// The owner.
    #[must_use]
    pub const fn owner(&self) -> &Owner {
        &self.owner
    }

    /// USER, or AGENT when the owner names one.
    #[must_use]
    pub const fn level(&self) -> Level {
        if self.owner.agent.is_some() { Level::Agent } else { Level::User }
    }

    /// The user's erase epoch the router has seen; 0 when none.
    #[must_use]
    pub const fn erase_epoch(&self) -> u64 {
        self.erase_epoch
    }

    /// What a page token is bound to beside its method and filter.
    #[must_use]
    pub fn binding(&self) -> [&str; 3] {
        [self.owner.tenant.as_str(), self.owner.user.as_str(), self.owner.agent.as_ref().map_or("", |a| a.as_str())]
    }
}
