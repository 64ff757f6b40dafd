//! The one encoding of a [`Fault`] as a gRPC status, and back. `ErrorInfo` always; `BadRequest` for fields,
//! `PreconditionFailure` for rules, `RetryInfo` where waiting helps, `ResourceInfo` on not found.

use std::time::Duration;
use strata_core::{
    Code as Class, Fault, Reason,
    error::{FieldViolation as Field, Precondition},
};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, PreconditionViolation, StatusExt};

/// `ErrorInfo.domain` of every error.
pub const DOMAIN: &str = "strata";

const fn code(class: Class) -> Code {
    match class {
        Class::InvalidArgument => Code::InvalidArgument,
        Class::NotFound => Code::NotFound,
        Class::AlreadyExists => Code::AlreadyExists,
        Class::PermissionDenied => Code::PermissionDenied,
        Class::Unauthenticated => Code::Unauthenticated,
        Class::FailedPrecondition => Code::FailedPrecondition,
        Class::Aborted => Code::Aborted,
        Class::ResourceExhausted => Code::ResourceExhausted,
        Class::Unavailable => Code::Unavailable,
        Class::DeadlineExceeded => Code::DeadlineExceeded,
        Class::Unimplemented => Code::Unimplemented,
        Class::Internal => Code::Internal,
    }
}

/// Encodes a fault. Total: every reason has a code.
#[must_use]
pub fn status(fault: Fault) -> Status {
    let mut details = ErrorDetails::new();
    details.set_error_info(
        fault.reason.name(),
        DOMAIN,
        fault.metadata.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect::<std::collections::HashMap<_, _>>(),
    );
    if !fault.fields.is_empty() {
        details
            .set_bad_request(fault.fields.into_iter().map(|f| FieldViolation::new(f.field, f.description)).collect::<Vec<_>>());
    }
    if !fault.preconditions.is_empty() {
        let violations = fault.preconditions.into_iter();
        details.set_precondition_failure(
            violations.map(|p| PreconditionViolation::new(p.rule, p.subject, p.description)).collect::<Vec<_>>(),
        );
    }
    if let Some(ms) = fault.retry_after_ms {
        details.set_retry_info(Some(Duration::from_millis(ms)));
    }
    if fault.reason == Reason::NotFound {
        let value = |key: &str| fault.metadata.iter().find(|(k, _)| *k == key).map(|(_, v)| v.clone()).unwrap_or_default();
        details.set_resource_info(value("resource_type"), value("resource_name"), "", "not found for this owner");
    }
    Status::with_error_details(code(fault.reason.code()), fault.message, details)
}

/// Reads a fault out of a status of one of our services. A status that carries no `ErrorInfo` of ours (made by the
/// transport) becomes the nearest reason, so that a caller never has to guess.
#[must_use]
pub fn fault(status: &Status) -> Fault {
    let details = status.get_error_details();
    let known = details
        .error_info()
        .filter(|info| info.domain == DOMAIN)
        .and_then(|info| Reason::ALL.iter().find(|r| r.name() == info.reason));
    let reason = known.copied().unwrap_or_else(|| transport_reason(status.code()));
    let mut fault = Fault::new(reason, status.message());
    if let Some(info) = details.error_info() {
        for (key, value) in &info.metadata {
            if let Some(key) = METADATA_KEYS.iter().find(|k| *k == key) {
                fault.metadata.push((key, value.clone()));
            }
        }
        fault.metadata.sort();
    }
    if let Some(bad) = details.bad_request() {
        let fields = bad.field_violations.iter();
        fault.fields = fields.map(|f| Field { field: f.field.clone(), description: f.description.clone() }).collect();
    }
    if let Some(failure) = details.precondition_failure() {
        let violations = failure.violations.iter();
        fault.preconditions = violations
            .map(|v| Precondition { rule: v.r#type.clone(), subject: v.subject.clone(), description: v.description.clone() })
            .collect();
    }
    fault.retry_after_ms =
        details.retry_info().and_then(|r| r.retry_delay).map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
    fault
}

/// Metadata keys that faults use; others are not taken over from the wire.
pub const METADATA_KEYS: &[&str] = &[
    "field",
    "limit",
    "unit",
    "store",
    "resource_type",
    "resource_name",
    "role",
    "request_id",
    "owner",
    "level",
    "layer",
    "epoch",
    "key",
    "generation",
    "checkpoint_time",
    "erase_epoch",
    "current_value",
    "value",
    "state",
    "promotion_id",
    "run_id",
    "rule",
    "class",
    "mode",
    "quota",
    "scope",
    "version",
    "revision",
    "cause",
];

const fn transport_reason(code: Code) -> Reason {
    match code {
        Code::InvalidArgument | Code::OutOfRange => Reason::InvalidField,
        Code::NotFound => Reason::NotFound,
        Code::PermissionDenied => Reason::RoleMissing,
        Code::Unauthenticated => Reason::Unauthenticated,
        Code::ResourceExhausted => Reason::Overloaded,
        Code::DeadlineExceeded | Code::Cancelled => Reason::DeadlineExceeded,
        Code::Unimplemented => Reason::NotServed,
        Code::Unavailable => Reason::StoreUnavailable,
        Code::Ok
        | Code::Unknown
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::Internal
        | Code::DataLoss => Reason::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c057_every_reason_survives_the_wire_with_its_details() {
        for reason in Reason::ALL {
            let mut sent = Fault::new(*reason, "text").with("limit", "5").rule("G3", "statement", "no secrets").retry_after(7);
            sent.fields.push(Field { field: "a.b".into(), description: "is required".into() });
            let got = fault(&status(sent.clone()));
            assert_eq!(got, sent, "{}", reason.name());
        }
    }

    #[test]
    fn proto_reasons_equal_the_core_list() {
        let wire: Vec<&str> =
            (1..).map_while(|n| crate::common::v1::ErrorReason::try_from(n).ok()).map(|r| r.as_str_name()).collect();
        let core: Vec<String> = Reason::ALL.iter().map(|r| format!("ERROR_REASON_{}", r.name())).collect();
        assert_eq!(wire, core);
    }
}
