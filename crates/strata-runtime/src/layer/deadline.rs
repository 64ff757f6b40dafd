//! Deadlines. tonic enforces `grpc-timeout` in its transport only, so a local call would have none; and tonic reports an
//! expired one as CANCELLED, which tells the caller nothing. This layer does it for both, slightly earlier, as
//! DEADLINE_EXCEEDED with a reason.

use super::body::{Answer, exceeded};
use super::{Middleware, Rpc, refuse};
use crate::context::CallContext;
use crate::ports::Stopwatch;
use http::{HeaderMap, HeaderValue, Request, Response};
use std::sync::Arc;
use std::time::Duration;
use strata_core::Fault;
use tonic::body::Body;

/// The caller's timeout, as gRPC spells it.
const GRPC_TIMEOUT_HEADER: &str = "grpc-timeout";

/// The layer. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// For a caller that names none: until the response head. A stream then may go on for ever.
    pub default: Duration,
    /// Longest time any caller gets for a response head.
    pub max: Duration,
    /// Both of these for [`LONG_METHODS`].
    pub maintenance: Duration,
}

/// Methods that walk a whole store: their time grows with it.
pub const LONG_METHODS: [&str; 10] = [
    "/strata.admin.v1.AdminService/ListAudit",
    "/strata.admin.v1.AdminService/VerifyAudit",
    "/strata.admin.v1.AdminService/Reindex",
    "/strata.admin.v1.AdminService/Backup",
    "/strata.admin.v1.AdminService/VerifyConsistency",
    "/strata.admin.v1.AdminService/RunMaintenance",
    "/strata.admin.v1.AdminService/Rescan",
    "/strata.longterm.v1.LongTermMemoryService/ExportMemories",
    "/strata.longterm.v1.LongTermMemoryService/ImportMemories",
    "/strata.longterm.v1.LongTermMemoryService/VerifyErasure",
];

impl Default for Deadline {
    fn default() -> Self {
        Self { default: Duration::from_secs(10), max: Duration::from_secs(60), maintenance: Duration::from_secs(600) }
    }
}

/// How much earlier than the caller's transport this layer gives up: 5 ms, or a twentieth of a short deadline.
fn margin(timeout: Duration) -> Duration {
    (timeout / 20).min(Duration::from_millis(5))
}

/// Reads `grpc-timeout`: at most 8 digits and a unit. `None` when absent.
///
/// # Errors
/// `INVALID_FIELD` when it is there and malformed.
pub fn parse(headers: &HeaderMap) -> Result<Option<Duration>, Fault> {
    let Some(value) = headers.get(GRPC_TIMEOUT_HEADER) else { return Ok(None) };
    let parsed = || {
        let (digits, unit) = value.to_str().ok()?.split_at_checked(value.len().checked_sub(1)?)?;
        if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let n: u64 = digits.parse().ok()?;
        match unit {
            "H" => Some(Duration::from_secs(n * 3600)),
            "M" => Some(Duration::from_secs(n * 60)),
            "S" => Some(Duration::from_secs(n)),
            "m" => Some(Duration::from_millis(n)),
            "u" => Some(Duration::from_micros(n)),
            "n" => Some(Duration::from_nanos(n)),
            _ => None,
        }
    };
    parsed().map(Some).ok_or_else(|| Fault::field(GRPC_TIMEOUT_HEADER, "must be 1 to 8 digits and one of H, M, S, m, u, n"))
}

/// Writes the time left of the current call (or what the request asks for, if that is less) as `grpc-timeout`.
///
/// # Errors
/// `DEADLINE_EXCEEDED` when no time is left: the call is not made at all.
pub fn propagate(headers: &mut HeaderMap) -> Result<(), Fault> {
    let own = parse(headers)?;
    let Some(left) = CallContext::current().remaining() else { return Ok(()) };
    let left = own.map_or(left, |own| own.min(left));
    if left.is_zero() {
        return Err(exceeded());
    }
    let text = format(left);
    headers.insert(GRPC_TIMEOUT_HEADER, HeaderValue::try_from(text).map_err(|_| exceeded())?);
    Ok(())
}

/// The finest unit in which the duration has at most 8 digits.
fn format(timeout: Duration) -> String {
    let units = [(timeout.as_nanos(), 'n'), (timeout.as_micros(), 'u'), (timeout.as_millis(), 'm')];
    match units.iter().find(|(n, _)| *n < 100_000_000) {
        Some((n, unit)) => format!("{n}{unit}"),
        None => format!("{}S", timeout.as_secs().min(99_999_999)),
    }
}

impl Middleware for Deadline {
    async fn handle<S: Rpc>(self: &Arc<Self>, request: Request<Body>, next: &S) -> Response<Answer> {
        let asked = match parse(request.headers()) {
            Ok(asked) => asked,
            Err(fault) => return refuse(fault),
        };
        let long = LONG_METHODS.contains(&request.uri().path());
        let (default, max) = if long { (self.maintenance, self.maintenance) } else { (self.default, self.max) };
        let timeout = asked.unwrap_or(default).min(max);
        let end = Stopwatch::start().at(timeout.saturating_sub(margin(timeout)));
        let context = CallContext { deadline: Some(end), ..CallContext::current() };
        match tokio::time::timeout_at(end, context.scope(next.call(request))).await {
            Err(_) => refuse(exceeded()),
            // A caller that named a deadline means the whole call, streams included.
            Ok(response) if asked.is_some() => response.map(|answer| answer.until(end)),
            Ok(response) => response,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static(GRPC_TIMEOUT_HEADER), HeaderValue::from_str(value).expect("ascii"))])
    }

    #[test]
    fn parses_every_unit_and_refuses_the_rest() {
        for (text, millis) in [("1H", 3_600_000), ("2M", 120_000), ("3S", 3_000), ("40m", 40), ("5000u", 5), ("6000000n", 6)] {
            assert_eq!(parse(&headers(text)).expect(text), Some(Duration::from_millis(millis)));
        }
        assert_eq!(parse(&HeaderMap::new()).expect("absent"), None);
        for text in ["", "S", "1", "1s", "-1S", "123456789S", "1.5S", "+1S", "1 S"] {
            assert!(parse(&headers(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn formats_what_it_parses_with_at_most_8_digits() {
        for timeout in [
            Duration::from_nanos(7),
            Duration::from_micros(99_999),
            Duration::from_millis(1_500),
            Duration::from_secs(3_600 * 24 * 40),
        ] {
            let text = format(timeout);
            assert!(text.len() <= 9, "{text}");
            let back = parse(&headers(&text)).expect("well formed").expect("there");
            assert!(back <= timeout && timeout - back < Duration::from_secs(1), "{text}");
        }
    }

    #[test]
    fn long_methods_are_methods() {
        assert!(LONG_METHODS.iter().all(|path| strata_core::policy::authz::find(path).is_some()));
    }

    #[test]
    fn fires_before_the_transport_does() {
        for millis in [1, 10, 100, 10_000] {
            let timeout = Duration::from_millis(millis);
            assert!(margin(timeout) > Duration::ZERO && margin(timeout) <= Duration::from_millis(5));
            assert!(timeout > margin(timeout) * 10);
        }
    }
}
