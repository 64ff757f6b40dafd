//! What a store's caller sees of one operation: a client span, a child of the call's, and its time in the metrics. Names and
//! outcomes alone: no statement, no key, no value.

use crate::metrics::{Instruments, Label};
use crate::ports::Stopwatch;
use std::future::Future;
use tracing::Instrument as _;
use tracing::field::Empty;

/// Runs `work` as one operation of `store` (`redis`, `sqlite`, `qdrant`). `operation` is a word of the program, such as `write`
/// or `EVALSHA`; `namespace` is the database, where a process has several.
pub async fn operation<T, E>(
    store: &'static str,
    namespace: &str,
    operation: &str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let span = tracing::info_span!(
        "store",
        otel.name = %format_args!("{store} {operation}"),
        otel.kind = "client",
        otel.status_code = Empty,
        db.system.name = store,
        db.namespace = namespace,
        db.operation.name = operation,
        // Of the rules that decided inside the transaction.
        strata.rules = Empty,
    );
    let watch = Stopwatch::start();
    let outcome = work.instrument(span.clone()).await;
    if outcome.is_err() {
        span.record("otel.status_code", "ERROR");
    }
    let labels = [
        Label::new("store", store),
        Label::new("operation", operation.to_owned()),
        Label::new("outcome", if outcome.is_ok() { "ok" } else { "error" }),
    ];
    Instruments::global().store_seconds.record(watch.elapsed().as_secs_f64(), &labels);
    outcome
}
