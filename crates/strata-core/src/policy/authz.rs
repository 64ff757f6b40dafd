//! Who may call what. Authorisation is one total function, [`allow`], over one table, [`METHODS`]: every method of the
//! descriptor set stands there exactly once (`strata-api` tests it), with the layer that serves it, what it does to
//! that layer, and the role it needs. The degradation table (rule D1) and the signed header (rule P10) read the same
//! rows, so no path can be forgotten.

use crate::{Fault, Reason, TenantId, UserId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

crate::record::vocabulary! {
    /// Role of a caller, from its credential (api.md).
    Role {
        /// Writes working memory.
        TaskExecutor = "TASK_EXECUTOR",
        /// Appends turns.
        SessionManager = "SESSION_MANAGER",
        /// The explicit-confirmation entry of long-term memory.
        MemoryWriter = "MEMORY_WRITER",
        /// May write AUTHORITATIVE_SYSTEM facts.
        RecordSystem = "RECORD_SYSTEM",
        /// Reads.
        Reader = "READER",
        /// Forgets and erases.
        Eraser = "ERASER",
        /// Administers.
        Operator = "OPERATOR",
        /// Reads audit and receipts.
        Auditor = "AUDITOR",
    }
}

/// Which service answers a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// Task boards.
    Working,
    /// Turns.
    Session,
    /// Records.
    Longterm,
    /// The router itself.
    Router,
}

impl Layer {
    /// Every layer.
    pub const ALL: [Self; 4] = [Self::Working, Self::Session, Self::Longterm, Self::Router];

    /// Stable lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Session => "session",
            Self::Longterm => "longterm",
            Self::Router => "router",
        }
    }
}

/// What a method does: the row of the degradation table (rule D1) it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Recall, SearchTurns, the memory part of AssembleContext: emptied by RECALL_OFF.
    Recall,
    /// Reads by id, key, list: served in RECALL_OFF and WRITE_OFF.
    Read,
    /// Writes: refused in WRITE_OFF.
    Write,
    /// Observe: only logs in WRITE_OFF and BYPASS.
    Observe,
    /// Promote: deferred in WRITE_OFF.
    Promote,
    /// Forgetting, ending, reporting: served in every mode.
    Release,
    /// Between roles only, on the internal address; never authorised for a caller.
    Internal,
}

/// One RPC.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// Full path, such as `/strata.longterm.v1.LongTermMemoryService/Remember`.
    pub path: &'static str,
    /// Who serves it.
    pub layer: Layer,
    /// What it does.
    pub access: Access,
    /// Any one of these roles suffices; empty for internal methods.
    pub roles: &'static [Role],
}

impl Method {
    /// The method's own name, the part after the last slash.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }

    /// Whether the method may change state, so that a signed header carries level and epoch for it (rule P10).
    #[must_use]
    pub const fn writes(&self) -> bool {
        match self.access {
            Access::Recall | Access::Read => false,
            Access::Write | Access::Observe | Access::Promote | Access::Release | Access::Internal => true,
        }
    }
}

const fn method(path: &'static str, layer: Layer, access: Access, roles: &'static [Role]) -> Method {
    Method { path, layer, access, roles }
}

const TASK: &[Role] = &[Role::TaskExecutor];
const TURNS: &[Role] = &[Role::SessionManager];
const READ: &[Role] = &[Role::Reader];
const TASK_READ: &[Role] = &[Role::TaskExecutor, Role::Reader];
const TURNS_READ: &[Role] = &[Role::SessionManager, Role::Reader];
const WRITE: &[Role] = &[Role::MemoryWriter, Role::RecordSystem];
/// What follows needs the roles of the layers it ends in.
const OBSERVE: &[Role] = &[Role::SessionManager, Role::MemoryWriter, Role::RecordSystem];
const CONFIRM: &[Role] = &[Role::MemoryWriter];
const SYNC: &[Role] = &[Role::RecordSystem];
const FORGET: &[Role] = &[Role::Eraser];
const RECEIPTS: &[Role] = &[Role::Eraser, Role::Auditor];
const AUDIT: &[Role] = &[Role::Auditor];
const OPERATE: &[Role] = &[Role::Operator];
const INTERNAL: &[Role] = &[];

/// Every method of the product.
pub const METHODS: &[Method] = &[
    method("/strata.working.v1.WorkingMemoryService/CreateTask", Layer::Working, Access::Write, TASK),
    method("/strata.working.v1.WorkingMemoryService/GetTask", Layer::Working, Access::Read, TASK_READ),
    method("/strata.working.v1.WorkingMemoryService/PutFacts", Layer::Working, Access::Write, TASK),
    method("/strata.working.v1.WorkingMemoryService/UpdateTodos", Layer::Working, Access::Write, TASK),
    method("/strata.working.v1.WorkingMemoryService/AppendDigest", Layer::Working, Access::Write, TASK),
    method("/strata.working.v1.WorkingMemoryService/ListTasks", Layer::Working, Access::Read, TASK_READ),
    method("/strata.working.v1.WorkingMemoryService/WatchTask", Layer::Working, Access::Read, TASK_READ),
    method("/strata.working.v1.WorkingMemoryService/UpdateGoal", Layer::Working, Access::Write, TASK),
    method("/strata.working.v1.WorkingMemoryService/EndTask", Layer::Working, Access::Release, TASK),
    method("/strata.session.v1.SessionMemoryService/AppendTurns", Layer::Session, Access::Write, TURNS),
    method("/strata.session.v1.SessionMemoryService/GetWindow", Layer::Session, Access::Read, TURNS_READ),
    method("/strata.session.v1.SessionMemoryService/ListTurns", Layer::Session, Access::Read, TURNS_READ),
    method("/strata.session.v1.SessionMemoryService/GetTurns", Layer::Session, Access::Read, TURNS_READ),
    method("/strata.session.v1.SessionMemoryService/SearchTurns", Layer::Session, Access::Recall, TURNS_READ),
    method("/strata.session.v1.SessionMemoryService/AnchorTurns", Layer::Session, Access::Write, TURNS),
    method("/strata.session.v1.SessionMemoryService/ReleaseAnchors", Layer::Session, Access::Write, TURNS),
    method("/strata.session.v1.SessionMemoryService/CompressSession", Layer::Session, Access::Write, TURNS),
    method("/strata.session.v1.SessionMemoryService/CommitSummary", Layer::Session, Access::Write, TURNS),
    method("/strata.session.v1.SessionMemoryService/GetSummaries", Layer::Session, Access::Read, TURNS_READ),
    method("/strata.session.v1.SessionMemoryService/ListSessions", Layer::Session, Access::Read, TURNS_READ),
    method("/strata.session.v1.SessionMemoryService/PutFacts", Layer::Session, Access::Write, TURNS),
    method("/strata.session.v1.SessionMemoryService/GetFacts", Layer::Session, Access::Read, TURNS_READ),
    method("/strata.session.v1.SessionMemoryService/PutArtifact", Layer::Session, Access::Write, TURNS),
    method("/strata.session.v1.SessionMemoryService/GetArtifact", Layer::Session, Access::Read, TURNS_READ),
    method("/strata.session.v1.SessionMemoryService/GetSession", Layer::Session, Access::Read, TURNS_READ),
    method("/strata.session.v1.SessionMemoryService/EndSession", Layer::Session, Access::Release, TURNS),
    method("/strata.longterm.v1.LongTermMemoryService/Remember", Layer::Longterm, Access::Write, WRITE),
    method("/strata.longterm.v1.LongTermMemoryService/Propose", Layer::Longterm, Access::Write, WRITE),
    method("/strata.longterm.v1.LongTermMemoryService/ListCandidates", Layer::Longterm, Access::Read, READ),
    method("/strata.longterm.v1.LongTermMemoryService/ConfirmCandidate", Layer::Longterm, Access::Write, CONFIRM),
    method("/strata.longterm.v1.LongTermMemoryService/RejectCandidate", Layer::Longterm, Access::Release, CONFIRM),
    method("/strata.longterm.v1.LongTermMemoryService/Recall", Layer::Longterm, Access::Recall, READ),
    method("/strata.longterm.v1.LongTermMemoryService/GetMemory", Layer::Longterm, Access::Read, READ),
    method("/strata.longterm.v1.LongTermMemoryService/BatchGetMemories", Layer::Longterm, Access::Read, READ),
    method("/strata.longterm.v1.LongTermMemoryService/LookupMemory", Layer::Longterm, Access::Read, READ),
    method("/strata.longterm.v1.LongTermMemoryService/ListMemories", Layer::Longterm, Access::Read, READ),
    method("/strata.longterm.v1.LongTermMemoryService/GetHistory", Layer::Longterm, Access::Read, READ),
    method("/strata.longterm.v1.LongTermMemoryService/UpdateMemory", Layer::Longterm, Access::Write, CONFIRM),
    method("/strata.longterm.v1.LongTermMemoryService/SyncFacts", Layer::Longterm, Access::Write, SYNC),
    method("/strata.longterm.v1.LongTermMemoryService/ReportUsage", Layer::Longterm, Access::Release, READ),
    method("/strata.longterm.v1.LongTermMemoryService/PutEntity", Layer::Longterm, Access::Write, WRITE),
    method("/strata.longterm.v1.LongTermMemoryService/GetEntity", Layer::Longterm, Access::Read, READ),
    method("/strata.longterm.v1.LongTermMemoryService/ListEntities", Layer::Longterm, Access::Read, READ),
    method("/strata.longterm.v1.LongTermMemoryService/LinkEntities", Layer::Longterm, Access::Write, WRITE),
    method("/strata.longterm.v1.LongTermMemoryService/DeleteEntity", Layer::Longterm, Access::Release, FORGET),
    method("/strata.longterm.v1.LongTermMemoryService/PutSkill", Layer::Longterm, Access::Write, CONFIRM),
    method("/strata.longterm.v1.LongTermMemoryService/GetSkill", Layer::Longterm, Access::Read, READ),
    method("/strata.longterm.v1.LongTermMemoryService/ListSkills", Layer::Longterm, Access::Read, READ),
    method("/strata.longterm.v1.LongTermMemoryService/MatchSkills", Layer::Longterm, Access::Read, READ),
    method("/strata.longterm.v1.LongTermMemoryService/DeleteSkill", Layer::Longterm, Access::Release, FORGET),
    method("/strata.longterm.v1.LongTermMemoryService/ListEpisodes", Layer::Longterm, Access::Read, READ),
    method("/strata.longterm.v1.LongTermMemoryService/ExportMemories", Layer::Longterm, Access::Read, READ),
    method("/strata.longterm.v1.LongTermMemoryService/ImportMemories", Layer::Longterm, Access::Write, CONFIRM),
    method("/strata.longterm.v1.LongTermMemoryService/ForgetMemories", Layer::Longterm, Access::Release, FORGET),
    method("/strata.longterm.v1.LongTermMemoryService/RestoreMemories", Layer::Longterm, Access::Write, CONFIRM),
    method("/strata.longterm.v1.LongTermMemoryService/UndoConsolidation", Layer::Longterm, Access::Write, CONFIRM),
    method("/strata.longterm.v1.LongTermMemoryService/EraseMemories", Layer::Longterm, Access::Release, FORGET),
    method("/strata.longterm.v1.LongTermMemoryService/GetErasure", Layer::Longterm, Access::Read, RECEIPTS),
    method("/strata.longterm.v1.LongTermMemoryService/VerifyErasure", Layer::Longterm, Access::Read, RECEIPTS),
    method("/strata.router.v1.RouterService/Promote", Layer::Router, Access::Promote, WRITE),
    method("/strata.router.v1.RouterService/Observe", Layer::Router, Access::Observe, OBSERVE),
    method("/strata.router.v1.RouterService/GetPromotion", Layer::Router, Access::Read, READ),
    method("/strata.router.v1.RouterService/ListPromotions", Layer::Router, Access::Read, READ),
    method("/strata.router.v1.RouterService/WatchPromotions", Layer::Router, Access::Read, READ),
    method("/strata.router.v1.RouterService/AssembleContext", Layer::Router, Access::Recall, READ),
    method("/strata.router.v1.RouterService/GetOwnership", Layer::Router, Access::Read, READ),
    method("/strata.router.v1.RouterService/Explain", Layer::Router, Access::Read, READ),
    method("/strata.admin.v1.AdminService/WatchDecisions", Layer::Router, Access::Read, OPERATE),
    method("/strata.admin.v1.AdminService/GetStatus", Layer::Router, Access::Read, OPERATE),
    method("/strata.admin.v1.AdminService/Reindex", Layer::Longterm, Access::Release, OPERATE),
    method("/strata.admin.v1.AdminService/Backup", Layer::Longterm, Access::Release, OPERATE),
    method("/strata.admin.v1.AdminService/VerifyConsistency", Layer::Longterm, Access::Release, OPERATE),
    method("/strata.admin.v1.AdminService/ListAudit", Layer::Longterm, Access::Release, AUDIT),
    method("/strata.admin.v1.AdminService/VerifyAudit", Layer::Longterm, Access::Release, AUDIT),
    method("/strata.internal.v1.ErasureJournalService/ListOpenErasures", Layer::Longterm, Access::Internal, INTERNAL),
    method("/strata.internal.v1.ErasureJournalService/SettleErasure", Layer::Longterm, Access::Internal, INTERNAL),
    method("/strata.admin.v1.AdminService/GetModes", Layer::Router, Access::Read, OPERATE),
    method("/strata.admin.v1.AdminService/SetMode", Layer::Router, Access::Release, OPERATE),
    method("/strata.admin.v1.AdminService/CreateApiKey", Layer::Router, Access::Release, OPERATE),
    method("/strata.admin.v1.AdminService/ListApiKeys", Layer::Router, Access::Read, OPERATE),
    method("/strata.admin.v1.AdminService/RevokeApiKey", Layer::Router, Access::Release, OPERATE),
    method("/strata.admin.v1.AdminService/SampleForReview", Layer::Longterm, Access::Release, OPERATE),
    method("/strata.admin.v1.AdminService/SubmitReview", Layer::Longterm, Access::Release, OPERATE),
    method("/strata.admin.v1.AdminService/GetQuality", Layer::Router, Access::Read, OPERATE),
    method("/strata.admin.v1.AdminService/RunMaintenance", Layer::Longterm, Access::Release, OPERATE),
    method("/strata.admin.v1.AdminService/Rescan", Layer::Longterm, Access::Release, OPERATE),
    method("/strata.internal.v1.ParticipantService/Seal", Layer::Working, Access::Internal, INTERNAL),
    method("/strata.internal.v1.ParticipantService/Settle", Layer::Working, Access::Internal, INTERNAL),
    method("/strata.internal.v1.SessionFactService/SealFact", Layer::Session, Access::Internal, INTERNAL),
    method("/strata.internal.v1.SessionFactService/OverlayFacts", Layer::Session, Access::Internal, INTERNAL),
    method("/strata.internal.v1.SessionErasureService/EraseContent", Layer::Session, Access::Internal, INTERNAL),
    method("/strata.internal.v1.SessionErasureService/FindContent", Layer::Session, Access::Internal, INTERNAL),
    method("/strata.internal.v1.WorkingErasureService/EraseContent", Layer::Working, Access::Internal, INTERNAL),
    method("/strata.internal.v1.WorkingErasureService/FindContent", Layer::Working, Access::Internal, INTERNAL),
    method("/strata.internal.v1.TargetService/Apply", Layer::Longterm, Access::Internal, INTERNAL),
    method("/strata.internal.v1.TargetService/Abort", Layer::Longterm, Access::Internal, INTERNAL),
    method("/strata.internal.v1.TargetService/GetOwners", Layer::Longterm, Access::Internal, INTERNAL),
    method("/strata.internal.v1.ControlService/ListControl", Layer::Longterm, Access::Internal, INTERNAL),
    method("/strata.internal.v1.ControlService/PutControl", Layer::Longterm, Access::Internal, INTERNAL),
    method("/strata.internal.v1.TargetService/RecordContext", Layer::Longterm, Access::Internal, INTERNAL),
    // What they do to long-term memory decides in its modes, like everyone's writes and recall.
    method("/strata.internal.v1.TargetService/ArchiveSession", Layer::Longterm, Access::Write, INTERNAL),
    method("/strata.internal.v1.TargetService/SearchArchivedTurns", Layer::Longterm, Access::Recall, INTERNAL),
];

/// The rows by their paths: each layer that a call passes asks for its own.
static BY_PATH: LazyLock<HashMap<&str, &Method>> = LazyLock::new(|| METHODS.iter().map(|method| (method.path, method)).collect());

/// The row of a method path.
#[must_use]
pub fn find(path: &str) -> Option<&'static Method> {
    BY_PATH.get(path).copied()
}

/// The caller, from its credential. Inserted by the auth layer; nothing in a request body can change it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// Stable id for audit and history, such as `key:ci` or `local`.
    pub id: String,
    /// The tenant: the only source of a tenant in the product.
    pub tenant: TenantId,
    /// The user, where the credential names one: then no other user can be named.
    pub user: Option<UserId>,
    /// What it may do.
    pub roles: BTreeSet<Role>,
}

impl Principal {
    /// The owner's user for a request that names `asked`.
    ///
    /// # Errors
    /// `OWNER_MISMATCH` when the credential names another user, `INVALID_FIELD` when none is named at all.
    pub fn user_for(&self, asked: &str) -> Result<UserId, Fault> {
        match &self.user {
            Some(own) if asked.is_empty() || asked == own.as_str() => Ok(own.clone()),
            Some(_) => Err(Fault::new(Reason::OwnerMismatch, "user_id: the credential belongs to another user")),
            None => UserId::new(asked),
        }
    }
}

/// Whether the principal may call the method.
///
/// # Errors
/// `ROLE_MISSING` naming one role that would suffice; `NOT_SERVED` for a path that is not in the table.
pub fn allow(principal: &Principal, path: &str) -> Result<&'static Method, Fault> {
    let Some(method) = find(path) else {
        return Err(Fault::new(Reason::NotServed, "no such method"));
    };
    if method.roles.iter().any(|role| principal.roles.contains(role)) {
        return Ok(method);
    }
    let Some(role) = method.roles.first() else {
        return Err(Fault::new(Reason::UnsignedCall, "the method is served between roles only, with a signed header"));
    };
    Err(Fault::new(Reason::RoleMissing, format!("{} needs the role {}", method.name(), role.name())).with("role", role.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(roles: &[Role]) -> Principal {
        Principal {
            id: "key:test".into(),
            tenant: TenantId::new("t1").expect("id"),
            user: None,
            roles: roles.iter().copied().collect(),
        }
    }

    #[test]
    fn a02_a03_a04_each_layer_has_its_one_writer_role() {
        for method in METHODS {
            for role in Role::ALL {
                let verdict = allow(&principal(&[*role]), method.path);
                assert_eq!(verdict.is_ok(), method.roles.contains(role), "{} {}", method.path, role.name());
            }
            assert!(allow(&principal(&[]), method.path).is_err(), "{} without a role", method.path);
            if method.access == Access::Write {
                let expected: &[Role] = match method.layer {
                    Layer::Working => TASK,
                    Layer::Session => TURNS,
                    Layer::Longterm => WRITE,
                    Layer::Router => &[],
                };
                assert!(method.roles.iter().all(|r| expected.contains(r)), "{} is written by its layer's role only", method.path);
            }
        }
    }

    #[test]
    fn paths_are_unique() {
        let set: BTreeSet<_> = METHODS.iter().map(|m| m.path).collect();
        assert_eq!(set.len(), METHODS.len());
    }

    #[test]
    fn c033_the_user_comes_from_the_credential_or_is_named() {
        let mut p = principal(&[]);
        assert!(p.user_for("").is_err());
        assert_eq!(p.user_for("u1").expect("named").as_str(), "u1");
        p.user = Some(UserId::new("u1").expect("id"));
        assert_eq!(p.user_for("").expect("own").as_str(), "u1");
        assert_eq!(p.user_for("u2").expect_err("foreign").reason, Reason::OwnerMismatch);
    }
}
