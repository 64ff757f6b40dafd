//! Quality at the service: what was shown and used, drawn for review, reviewed, and what follows (rules Q1 to Q4, D3).

use crate::metadata::row::by_id;
use crate::metadata::{ledger, quality};
use crate::shown;
use crate::state::State;
use std::sync::Arc;
use strata_api::admin::v1 as pb;
use strata_api::convert::admin::wire_mode;
use strata_api::convert::common::{self, wire_finding, wire_time};
use strata_api::convert::quality as wire;
use strata_core::limits;
use strata_core::policy::quality::{alarms, hit_rate, token_share};
use strata_core::time::HOUR;
use strata_core::{Fault, Timestamp};
use strata_runtime::Claims;
use strata_runtime::metrics::{Instruments, Label};
use tonic::Request;
use uuid::Uuid;

/// Samples drawn when none are asked for.
const SAMPLES: u32 = 10;
/// Most samples of one draw: a person's work of an hour.
const SAMPLES_MAX: u32 = 100;
/// Hours of a window when none is asked for.
const WINDOW: u32 = 24;
/// Longest window, in hours: 31 days.
const WINDOW_MAX: u32 = 31 * 24;

fn tenant<T>(request: &Request<T>) -> Result<(String, String), Fault> {
    let claims = Claims::of(request)?;
    Ok((claims.caller.tenant.as_str().to_owned(), claims.caller.id.clone()))
}

/// Draws samples of what was shown.
///
/// # Errors
/// `INVALID_FIELD`; as the database says.
pub(crate) async fn sample(
    state: &Arc<State>,
    request: &Request<pb::SampleForReviewRequest>,
) -> Result<pb::SampleForReviewResponse, Fault> {
    let (tenant, _) = tenant(request)?;
    Claims::of(request)?.require_write()?;
    let r = request.get_ref();
    let request_id = common::request_id(&r.request_id)?;
    let page = limits::page("count", r.count, SAMPLES, SAMPLES_MAX)?;
    let now = state.ports.clock.now();
    let seed = request_id.unwrap_or_else(|| state.ports.ids.next());
    // Whoever reviews reads what users said.
    state.note(&Claims::of(request)?.caller, "REVIEW_SAMPLED", "", page.size.to_string()).await?;
    // What was answered before is counted before it is drawn from.
    state.recall.settle().await;
    let samples = state
        .database
        .write(move |db| {
            let mut out = Vec::new();
            for sample in quality::draw(db, &tenant, (seed, request_id), page.size as usize, now)? {
                let Some(found) = by_id(db, sample.memory_id)? else { continue };
                out.push(pb::ReviewSample {
                    sample_id: sample.sample_id.to_string(),
                    recall_id: sample.recall_id.to_string(),
                    shown_time: Some(wire_time(sample.shown_at)),
                    memory: Some(shown::wire(db, &found)?),
                });
            }
            Ok::<_, Fault>(out)
        })
        .await?;
    Ok(pb::SampleForReviewResponse { samples, capped: page.capped })
}

/// Takes a review.
///
/// # Errors
/// `INVALID_FIELD`; `NOT_FOUND` when the tenant has no such sample; as the database says.
pub(crate) async fn review(
    state: &Arc<State>,
    request: &Request<pb::SubmitReviewRequest>,
) -> Result<pb::SubmitReviewResponse, Fault> {
    let (tenant, reviewer) = tenant(request)?;
    Claims::of(request)?.require_write()?;
    let r = request.get_ref();
    common::request_id(&r.request_id)?;
    let sample_id = Uuid::parse_str(&r.sample_id).map_err(|_| Fault::field("sample_id", "is not a sample id (a UUID)"))?;
    let verdict = wire::verdict("verdict", r.verdict)?;
    let (settings, now) = (state.settings.load().quality.clone(), state.ports.clock.now());
    let by = Claims::of(request)?.caller.clone();
    let (reviews, causes) = state
        .database
        .write(move |db| {
            let reviewed = quality::review(db, &tenant, (sample_id, verdict), &reviewer, &settings, now)?;
            ledger::administered(db, now, &by, "REVIEWED", "", &format!("{sample_id} {}", verdict.name()))?;
            Ok::<_, Fault>(reviewed)
        })
        .await?;
    Instruments::global().reviews.add(1, &[Label::new("verdict", verdict.name())]);
    if causes.mode() != strata_core::policy::modes::Mode::Normal {
        tracing::warn!(suggested = causes.mode().name(), reviews = reviews.total(), "reviews suggest another mode (rule D3)");
    }
    Ok(pb::SubmitReviewResponse {
        reviews: Some(wire::reviews(&reviews)),
        suggested_mode: wire_mode(causes.mode()).into(),
        maintenance_suggested: causes.stale,
    })
}

/// Hit rate, pollution, token share, alarms, and what they suggest.
///
/// # Errors
/// `INVALID_FIELD`; as the database says.
pub(crate) async fn report(
    state: &Arc<State>,
    request: &Request<pb::GetQualityRequest>,
) -> Result<pb::GetQualityResponse, Fault> {
    let (tenant, _) = tenant(request)?;
    let page = limits::page("window_hours", request.get_ref().window_hours, WINDOW, WINDOW_MAX)?;
    if page.capped {
        return Err(Fault::field("window_hours", format!("must be at most {WINDOW_MAX}")));
    }
    let settings = state.settings.load().quality.clone();
    state.recall.settle().await;
    // Whole hours, the present one included.
    let now = state.ports.clock.now();
    let to = Timestamp((now.micros().div_euclid(HOUR) + 1).saturating_mul(HOUR));
    let length = i64::from(page.size) * HOUR;
    let (from, before) = (to.plus(-length), to.plus(-2 * length));
    let by_tenant = tenant.clone();
    let ((counts, reviews), earlier, causes, since) = state
        .database
        .read(move |db| {
            let window = |from, to| {
                let (counts, reviews) =
                    (quality::counts(db, &by_tenant, from, to)?, quality::reviews_between(db, &by_tenant, from, to)?);
                Ok::<_, Fault>((counts, reviews))
            };
            let since = quality::counted_since(db, &by_tenant)?;
            Ok::<_, Fault>((window(from, to)?, window(before, from)?, quality::causes(db, &by_tenant)?, since))
        })
        .await?;
    let pollution = reviews.pollution();
    let raised = alarms((&counts, &reviews), (&earlier.0, &earlier.1), &settings);
    Ok(pb::GetQualityResponse {
        from_time: Some(wire_time(from)),
        to_time: Some(wire_time(to)),
        counted_since: since.map(wire_time),
        recalled: counts.recalled,
        cited: counts.cited,
        hit_rate: hit_rate(counts.cited, counts.recalled),
        contexts: counts.contexts,
        memory_tokens: counts.memory_tokens,
        request_tokens: counts.request_tokens,
        token_share: token_share(counts.memory_tokens, counts.request_tokens),
        reviews: Some(wire::reviews(&reviews)),
        pollution_rate: pollution.map(|(rate, _)| rate),
        pollution_low: pollution.map(|(_, interval)| interval.low),
        pollution_high: pollution.map(|(_, interval)| interval.high),
        alarms: raised
            .iter()
            .map(|alarm| pb::Alarm {
                finding: Some(wire_finding(&alarm.finding)),
                value: alarm.value,
                threshold: alarm.threshold,
            })
            .collect(),
        suggested_mode: wire_mode(causes.mode()).into(),
        maintenance_suggested: causes.stale,
        automatic: settings.automatic,
    })
}
