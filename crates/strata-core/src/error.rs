//! One error type for every operation of the product: what went wrong, in which canonical class, whether a retry is
//! safe and whether anything was written. The transport encoding is in `strata-api::error`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Canonical gRPC status class of a [`Reason`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Code {
    InvalidArgument,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    Unauthenticated,
    FailedPrecondition,
    Aborted,
    ResourceExhausted,
    Unavailable,
    DeadlineExceeded,
    Unimplemented,
    Internal,
}

macro_rules! reasons {
    ($( $(#[$doc:meta])* $variant:ident = $wire:literal, $code:ident, retry: $retry:literal, wrote: $wrote:literal; )*) => {
        /// Machine-readable reason of a failure. The wire name is the value of the public proto enum
        /// `strata.common.v1.ErrorReason` without its prefix; `strata-api` tests that both lists are equal.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Reason { $( $(#[$doc])* $variant, )* }
        impl Reason {
            /// Every reason, in declaration order.
            pub const ALL: &'static [Self] = &[ $( Self::$variant, )* ];
            /// Stable wire name, as in `ErrorInfo.reason`.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $( Self::$variant => $wire, )* } }
            /// Canonical status class.
            #[must_use]
            pub const fn code(self) -> Code { match self { $( Self::$variant => Code::$code, )* } }
            /// Whether sending the same request again (same `request_id`) is safe and may succeed.
            #[must_use]
            pub const fn retry_safe(self) -> bool { match self { $( Self::$variant => $retry, )* } }
            /// Whether the failed call may nevertheless have written something.
            #[must_use]
            pub const fn may_have_written(self) -> bool { match self { $( Self::$variant => $wrote, )* } }
        }
    };
}

reasons! {
    /// A field is missing, malformed, out of range or unknown.
    InvalidField = "INVALID_FIELD", InvalidArgument, retry: false, wrote: false;
    /// The same `request_id` was used before with another body.
    RequestIdReused = "REQUEST_ID_REUSED", InvalidArgument, retry: false, wrote: false;
    /// A page token is foreign, altered or stale.
    InvalidPageToken = "INVALID_PAGE_TOKEN", InvalidArgument, retry: false, wrote: false;
    /// No credential, or one that is not known.
    Unauthenticated = "UNAUTHENTICATED", Unauthenticated, retry: false, wrote: false;
    /// The credential lacks the role this method needs.
    RoleMissing = "ROLE_MISSING", PermissionDenied, retry: false, wrote: false;
    /// The credential names another user or tenant than the request.
    OwnerMismatch = "OWNER_MISMATCH", PermissionDenied, retry: false, wrote: false;
    /// The task belongs to another owner, or the id was swapped (rule W2).
    TaskMismatch = "TASK_MISMATCH", PermissionDenied, retry: false, wrote: false;
    /// A layer was called without a valid signed header of the router (rule P10).
    UnsignedCall = "UNSIGNED_CALL", PermissionDenied, retry: false, wrote: false;
    /// No such record, session, task, promotion.
    NotFound = "NOT_FOUND", NotFound, retry: false, wrote: false;
    /// The task has ended; its id is not valid again within the tombstone window (rule W7).
    TaskEnded = "TASK_ENDED", FailedPrecondition, retry: false, wrote: false;
    /// The task id is in use.
    TaskExists = "TASK_EXISTS", AlreadyExists, retry: false, wrote: false;
    /// The board was lost since the generation the caller knows (rule W10).
    TaskLost = "TASK_LOST", FailedPrecondition, retry: false, wrote: false;
    /// A todo may not move that way (rule W6).
    TodoMove = "TODO_MOVE", FailedPrecondition, retry: false, wrote: false;
    /// The value belongs into an artifact, not on the board (rules W4, W5).
    NotABoardValue = "NOT_A_BOARD_VALUE", InvalidArgument, retry: false, wrote: false;
    /// The session has ended (rule S12).
    SessionEnded = "SESSION_ENDED", FailedPrecondition, retry: false, wrote: false;
    /// The gate refused: source or quote (rules G1, G2, G8, G12).
    GateProvenance = "GATE_PROVENANCE", FailedPrecondition, retry: false, wrote: false;
    /// The gate refused: secret, card number or national id (rule G3).
    GatePii = "GATE_PII", FailedPrecondition, retry: false, wrote: false;
    /// The gate refused: noise, passing state or text that cannot be read alone (rules G5, G6, G7).
    GateContent = "GATE_CONTENT", FailedPrecondition, retry: false, wrote: false;
    /// The statement was forgotten and comes from before the erasure (rule E7).
    Forgotten = "FORGOTTEN", FailedPrecondition, retry: false, wrote: false;
    /// The move of status is not allowed.
    StatusMove = "STATUS_MOVE", FailedPrecondition, retry: false, wrote: false;
    /// `etag` does not match the stored version.
    VersionMismatch = "VERSION_MISMATCH", Aborted, retry: false, wrote: false;
    /// An outer level owns the key (rule P2); metadata names owner, level and epoch.
    FactOwnedByOtherLayer = "FACT_OWNED_BY_OTHER_LAYER", FailedPrecondition, retry: false, wrote: false;
    /// The epoch of the write is older than the store's (rule P3).
    StaleEpoch = "STALE_EPOCH", FailedPrecondition, retry: false, wrote: false;
    /// The fact is sealed by a promotion in progress (rule P5).
    FactSealed = "FACT_SEALED", Aborted, retry: true, wrote: false;
    /// A condition of promotion does not hold (rules P6, P8, P9).
    PromotionRefused = "PROMOTION_REFUSED", FailedPrecondition, retry: false, wrote: false;
    /// The promotion passed its deadline or was aborted (rule P5).
    PromotionAborted = "PROMOTION_ABORTED", Aborted, retry: true, wrote: false;
    /// The layer's writes are switched off (rule D1).
    LayerWriteOff = "LAYER_WRITE_OFF", Unavailable, retry: true, wrote: false;
    /// The layer is bypassed (rule D1).
    LayerBypassed = "LAYER_BYPASSED", Unavailable, retry: true, wrote: false;
    /// A documented limit is reached; metadata names field and limit.
    LimitReached = "LIMIT_REACHED", ResourceExhausted, retry: false, wrote: false;
    /// Too many calls are in flight, or a queue is full; wait as `RetryInfo` says.
    Overloaded = "OVERLOADED", ResourceExhausted, retry: true, wrote: false;
    /// The store is full (Redis `maxmemory`, disk).
    StoreFull = "STORE_FULL", ResourceExhausted, retry: true, wrote: false;
    /// A store or layer does not answer. Never reported as "nothing found". A write may have reached it.
    StoreUnavailable = "STORE_UNAVAILABLE", Unavailable, retry: true, wrote: true;
    /// The service is starting or stopping.
    NotServing = "NOT_SERVING", Unavailable, retry: true, wrote: false;
    /// The caller's deadline passed; a write may have happened: retry with the same `request_id`.
    DeadlineExceeded = "DEADLINE_EXCEEDED", DeadlineExceeded, retry: true, wrote: true;
    /// The store holds no state as fresh as the `at_least_as_fresh` token asks.
    NotFreshEnough = "NOT_FRESH_ENOUGH", Unavailable, retry: true, wrote: false;
    /// The method is not served here.
    NotServed = "NOT_SERVED", Unimplemented, retry: false, wrote: false;
    /// A defect of the service; the log line with this request id has the cause.
    Internal = "INTERNAL", Internal, retry: false, wrote: true;
    /// A summary is not true to its turns (rules S3 to S5); metadata and preconditions name the lost or changed value and the
    /// strengthened sentence.
    SummaryRefused = "SUMMARY_REFUSED", FailedPrecondition, retry: false, wrote: false;
    /// The artifact was there and its time is over; its trace id was not reused.
    ArtifactGone = "ARTIFACT_GONE", NotFound, retry: false, wrote: false;
    /// The call was signed before the user's last erasure (rule E2); metadata names the erase epoch.
    StaleEraseEpoch = "STALE_ERASE_EPOCH", Aborted, retry: false, wrote: false;
}

/// One field that was refused, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldViolation {
    /// Path of the field, in the proto's spelling, such as `todos[2].state`.
    pub field: String,
    /// What is wrong and what would be right. Never repeats the refused value.
    pub description: String,
}

/// One precondition that does not hold: a rule of the gate, an owner, a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Precondition {
    /// Rule id, such as `G3`.
    pub rule: String,
    /// What it is about, such as a key or a record id; never content.
    pub subject: String,
    /// The condition in words. Never repeats the refused value.
    pub description: String,
}

/// A failure of an operation. Text is for people; `reason` is for code. Never holds a driver's message or user content, but
/// for the one value that [`Reason::SummaryRefused`] has to name (rule S3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Why.
    pub reason: Reason,
    /// One sentence for people: what failed and what to do.
    pub message: String,
    /// Refused fields, for [`Code::InvalidArgument`].
    pub fields: Vec<FieldViolation>,
    /// Rules that refused, for [`Code::FailedPrecondition`].
    pub preconditions: Vec<Precondition>,
    /// Key and value pairs for `ErrorInfo.metadata`, such as `owner`, `level`, `epoch`, `limit`.
    pub metadata: Vec<(&'static str, String)>,
    /// How long to wait before a retry helps, in milliseconds.
    pub retry_after_ms: Option<u64>,
}

impl Fault {
    /// A fault with a reason and a sentence.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            fields: Vec::new(),
            preconditions: Vec::new(),
            metadata: Vec::new(),
            retry_after_ms: None,
        }
    }

    /// A refused field.
    pub fn field(field: impl Into<String>, description: impl Into<String>) -> Self {
        let (field, description) = (field.into(), description.into());
        let mut fault = Self::new(Reason::InvalidField, format!("{field}: {description}"));
        fault.fields.push(FieldViolation { field, description });
        fault
    }

    /// A record, session, task or promotion that is not there (for this owner).
    pub fn not_found(what: &'static str, name: impl Into<String>) -> Self {
        Self::new(Reason::NotFound, format!("no such {what}")).with("resource_type", what).with("resource_name", name)
    }

    /// A limit that is reached: names the field and the limit (case C087).
    pub fn limit(field: impl Into<String>, limit: impl fmt::Display, unit: &'static str) -> Self {
        let field = field.into();
        Self::new(Reason::LimitReached, format!("{field}: the limit of {limit} {unit} is reached"))
            .with("field", field)
            .with("limit", limit.to_string())
            .with("unit", unit)
    }

    /// A store or layer that does not answer; `what` names it, the cause belongs into the log.
    #[must_use]
    pub fn unavailable(what: &'static str) -> Self {
        let mut fault = Self::new(Reason::StoreUnavailable, format!("{what} does not answer; retry with the same request_id"))
            .with("store", what);
        fault.retry_after_ms = Some(500);
        fault
    }

    /// Adds a metadata pair.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.metadata.push((key, value.into()));
        self
    }

    /// Adds the rule that refused.
    #[must_use]
    pub fn rule(mut self, rule: impl Into<String>, subject: impl Into<String>, description: impl Into<String>) -> Self {
        self.preconditions.push(Precondition { rule: rule.into(), subject: subject.into(), description: description.into() });
        self
    }

    /// States how long to wait.
    #[must_use]
    pub const fn retry_after(mut self, ms: u64) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.name(), self.message)
    }
}

impl std::error::Error for Fault {}
