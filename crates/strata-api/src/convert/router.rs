//! The router's own messages.

use super::common;
use crate::common::v1 as common_pb;
use crate::longterm::v1 as longterm_pb;
use crate::router::v1 as pb;
use crate::session::v1 as session_pb;
use strata_core::policy::authz::Layer;
use strata_core::policy::context::{Context, Placed};
use strata_core::policy::decision::{Decision, Stage, Step};
use strata_core::policy::ownership::{Claim, Mark, writer};
use strata_core::policy::promotion::{Condition, JournalFinding, Judged, Origin, Promotion, State, conditions};
use strata_core::record::Kind;
use strata_core::{FactKey, Fault, SessionId, TaskId, limits};

/// Smallest window of a model in tokens: less holds no question.
pub const WINDOW_MIN: u32 = 256;
/// Largest window of a model in tokens.
pub const WINDOW_MAX: u32 = 2_000_000;
/// Window when none is given.
pub const WINDOW: u32 = 8_000;

/// What a Promote asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Promote {
    /// UUID of the caller.
    pub promotion_id: String,
    /// What is promoted.
    pub origin: Origin,
    /// Kind it becomes.
    pub kind: Kind,
}

/// Checks a Promote.
///
/// # Errors
/// `INVALID_FIELD` naming the field.
pub fn promote(request: &pb::PromoteRequest) -> Result<Promote, Fault> {
    let promotion_id = promotion_id("promotion_id", &request.promotion_id)?;
    let origin = match request.source.as_ref().and_then(|source| source.kind.as_ref()) {
        None => return Err(Fault::field("source", "is required: task_fact, session_fact or turn_quote")),
        Some(pb::promotion_source::Kind::TaskFact(fact)) => Origin::TaskFact {
            task_id: TaskId::new(fact.task_id.as_str())?.as_str().to_owned(),
            key: FactKey::new(fact.key.as_str())?.as_str().to_owned(),
        },
        Some(pb::promotion_source::Kind::SessionFact(fact)) => Origin::SessionFact {
            session_id: SessionId::new(fact.session_id.as_str())?.as_str().to_owned(),
            key: FactKey::new(fact.key.as_str())?.as_str().to_owned(),
        },
        Some(pb::promotion_source::Kind::TurnQuote(quote)) => {
            if quote.seq == 0 {
                return Err(Fault::field("source.turn_quote.seq", "is a turn number, from 1"));
            }
            Origin::TurnQuote {
                session_id: SessionId::new(quote.session_id.as_str())?.as_str().to_owned(),
                seq: quote.seq,
                quote: common::text("source.turn_quote.quote", &quote.quote, limits::QUOTE_CHARS)?,
            }
        }
    };
    let statement = request.statement.as_ref().ok_or_else(|| Fault::field("statement", "is required"))?;
    common::text("statement.content", &statement.content, limits::CONTENT_CHARS)?;
    let kind = kind("statement.kind", statement.kind)?;
    Ok(Promote { promotion_id, origin, kind })
}

/// A promotion's id, in its one spelling.
///
/// # Errors
/// `INVALID_FIELD` naming `field`.
pub fn promotion_id(field: &str, text: &str) -> Result<String, Fault> {
    Ok(uuid::Uuid::parse_str(text).map_err(|_| Fault::field(field, "is required, a UUID"))?.to_string())
}

/// A kind on the wire.
///
/// # Errors
/// `INVALID_FIELD` naming `field`.
pub fn kind(field: &str, raw: i32) -> Result<Kind, Fault> {
    common::enumeration(field, raw, |wire: longterm_pb::Kind| match wire {
        longterm_pb::Kind::Unspecified => None,
        longterm_pb::Kind::Fact => Some(Kind::Fact),
        longterm_pb::Kind::Preference => Some(Kind::Preference),
        longterm_pb::Kind::Constraint => Some(Kind::Constraint),
        longterm_pb::Kind::Goal => Some(Kind::Goal),
        longterm_pb::Kind::Event => Some(Kind::Event),
        longterm_pb::Kind::Experience => Some(Kind::Experience),
        longterm_pb::Kind::Assumption => Some(Kind::Assumption),
        longterm_pb::Kind::ModelSuggestion => Some(Kind::ModelSuggestion),
        longterm_pb::Kind::Summary => Some(Kind::Summary),
    })
}

/// The window of an AssembleContext.
///
/// # Errors
/// `INVALID_FIELD` outside its bounds.
pub fn window(asked: i32) -> Result<u32, Fault> {
    match u32::try_from(asked) {
        Ok(0) => Ok(WINDOW),
        Ok(window) if (WINDOW_MIN..=WINDOW_MAX).contains(&window) => Ok(window),
        Ok(_) | Err(_) => Err(Fault::field("window_tokens", format!("must be 0 or lie between {WINDOW_MIN} and {WINDOW_MAX}"))),
    }
}

/// Wire form of a state.
#[must_use]
pub const fn wire_state(state: State) -> pb::PromotionState {
    match state {
        State::Prepared => pb::PromotionState::Prepared,
        State::Applied => pb::PromotionState::Applied,
        State::Committed => pb::PromotionState::Committed,
        State::Refused => pb::PromotionState::Refused,
        State::Queued => pb::PromotionState::Queued,
        State::NeedsConsent => pb::PromotionState::NeedsConsent,
        State::Aborted => pb::PromotionState::Aborted,
        State::InDoubt => pb::PromotionState::InDoubt,
        State::Deferred => pb::PromotionState::Deferred,
        State::Expired => pb::PromotionState::Expired,
    }
}

/// Wire form of a journal's finding.
#[must_use]
pub fn wire_journal_finding(finding: &JournalFinding) -> common_pb::Finding {
    common_pb::Finding { rule: finding.rule.clone(), outcome: finding.outcome.clone(), because: finding.because.clone() }
}

/// A finding of a layer as the journal keeps it.
#[must_use]
pub fn journal_finding(finding: &common_pb::Finding) -> JournalFinding {
    JournalFinding { rule: finding.rule.clone(), outcome: finding.outcome.clone(), because: finding.because.clone() }
}

/// A state on the wire.
///
/// # Errors
/// `INVALID_FIELD` naming `field`.
pub fn state(field: &str, raw: i32) -> Result<State, Fault> {
    let from = |wire: pb::PromotionState| State::ALL.iter().copied().find(|state| wire_state(*state) == wire);
    common::enumeration(field, raw, from)
}

fn wire_source(origin: &Origin) -> pb::PromotionSource {
    let kind = match origin {
        Origin::TaskFact { task_id, key } => {
            pb::promotion_source::Kind::TaskFact(pb::TaskFact { task_id: task_id.clone(), key: key.clone() })
        }
        Origin::SessionFact { session_id, key } => {
            pb::promotion_source::Kind::SessionFact(pb::SessionFact { session_id: session_id.clone(), key: key.clone() })
        }
        Origin::TurnQuote { session_id, seq, quote } => pb::promotion_source::Kind::TurnQuote(pb::TurnQuote {
            session_id: session_id.clone(),
            seq: *seq,
            quote: quote.clone(),
        }),
    };
    pb::PromotionSource { kind: Some(kind) }
}

fn wire_condition((condition, judged): (Condition, Judged)) -> pb::PromotionCondition {
    let (verdict, reason) = match judged {
        Judged::Open => (pb::ConditionVerdict::Open, None),
        Judged::Met => (pb::ConditionVerdict::Met, None),
        Judged::NotMet(finding) => (pb::ConditionVerdict::NotMet, Some(wire_journal_finding(&finding))),
    };
    pb::PromotionCondition { condition: condition.name().to_owned(), verdict: verdict.into(), reason }
}

/// Wire form of a promotion.
#[must_use]
pub fn wire_promotion(promotion: &Promotion) -> pb::Promotion {
    pb::Promotion {
        promotion_id: promotion.promotion_id.clone(),
        state: wire_state(promotion.state).into(),
        findings: promotion.findings.iter().map(wire_journal_finding).collect(),
        memory_id: promotion.memory_id.clone().unwrap_or_default(),
        superseded: promotion.superseded.clone().unwrap_or_default(),
        consent_challenge: promotion.consent_challenge.clone().unwrap_or_default(),
        create_time: Some(common::wire_time(promotion.create_time)),
        update_time: Some(common::wire_time(promotion.update_time)),
        deadline: Some(common::wire_time(promotion.deadline)),
        source: Some(wire_source(&promotion.origin)),
        target: common::wire_level(promotion.target).into(),
        sealed_value: promotion.seal.as_ref().map(|seal| seal.value.clone()).unwrap_or_default(),
        conditions: conditions(promotion).into_iter().map(wire_condition).collect(),
        key: promotion.owned.as_ref().map(|(key, _)| key.clone()).unwrap_or_default(),
    }
}

/// Wire form of a promotion in the answer of EndSession: the session's package stands below the router's and cannot name its
/// message.
#[must_use]
pub fn wire_session_promotion(promotion: &Promotion) -> session_pb::SessionPromotionStatus {
    let whole = wire_promotion(promotion);
    session_pb::SessionPromotionStatus {
        promotion_id: whole.promotion_id,
        key: promotion.origin.key().unwrap_or_default().to_owned(),
        state: promotion.state.name().to_owned(),
        findings: whole.findings,
        memory_id: whole.memory_id,
        superseded: whole.superseded,
        consent_challenge: whole.consent_challenge,
    }
}

/// Wire form of a claim.
#[must_use]
pub fn wire_claim(claim: &Claim) -> pb::Claim {
    pb::Claim {
        level: common::wire_level(claim.place.level).into(),
        layer: writer(claim.place.level).name().to_owned(),
        scope_id: claim.place.id.clone(),
        epoch: claim.epoch,
        state: claim.state.name().to_owned(),
    }
}

/// Wire form of an outer owner.
#[must_use]
pub fn wire_mark(mark: &Mark) -> pb::Claim {
    pb::Claim {
        level: common::wire_level(mark.place.level).into(),
        layer: writer(mark.place.level).name().to_owned(),
        scope_id: String::new(),
        epoch: mark.epoch,
        state: "OWNED".to_owned(),
    }
}

fn wire_item(item: &Placed) -> pb::ContextItem {
    pb::ContextItem {
        id: item.id.clone(),
        layer: item.layer.to_owned(),
        label: item.label.clone(),
        score: item.score,
        text: item.text.clone(),
    }
}

/// Wire form of a context; layers, questions and the recall id are the caller's.
#[must_use]
pub fn wire_context(context: &Context) -> pb::AssembleContextResponse {
    let block = |shown: &strata_core::policy::context::Shown| pb::ContextBlock {
        name: shown.block.name().to_owned(),
        text: shown.text.clone(),
        tokens: shown.tokens,
        items: shown.items.iter().map(wire_item).collect(),
    };
    pb::AssembleContextResponse {
        blocks: context.blocks.iter().map(block).collect(),
        text: context.text.clone(),
        tokens: context.tokens,
        left_out: context
            .left_out
            .iter()
            .map(|(id, finding)| pb::LeftOut { id: id.clone(), reason: Some(common::wire_finding(finding)) })
            .collect(),
        budget: context
            .shares
            .iter()
            .map(|share| pb::BudgetLine { name: share.name.to_owned(), tokens: share.tokens, used: share.used })
            .collect(),
        tag: context.tag.clone(),
        ..pb::AssembleContextResponse::default()
    }
}

/// Wire form of a context's chat messages.
#[must_use]
pub fn wire_messages(context: &Context) -> Vec<pb::ChatMessage> {
    let messages = strata_core::policy::context::messages(context).into_iter();
    messages.map(|message| pb::ChatMessage { role: message.role.to_owned(), content: message.content }).collect()
}

/// The name that an Explain asks for.
///
/// # Errors
/// `INVALID_FIELD` when it is none.
pub fn trace_id(asked: &str) -> Result<String, Fault> {
    let visible = |b: u8| b.is_ascii_graphic();
    if asked.is_empty() || asked.len() > limits::CALL_ID_BYTES || !asked.bytes().all(visible) {
        return Err(Fault::field(
            "trace_id",
            format!("is required: a W3C trace id, an x-request-id or a recall id, at most {} bytes", limits::CALL_ID_BYTES),
        ));
    }
    Ok(asked.to_owned())
}

/// Wire form of a stage.
#[must_use]
pub const fn wire_stage(stage: Stage) -> pb::DecisionStage {
    match stage {
        Stage::Gate => pb::DecisionStage::Gate,
        Stage::Ownership => pb::DecisionStage::Ownership,
        Stage::Mode => pb::DecisionStage::Mode,
        Stage::Candidate => pb::DecisionStage::Candidate,
        Stage::Injected => pb::DecisionStage::Injected,
        Stage::LeftOut => pb::DecisionStage::LeftOut,
        Stage::Cited => pb::DecisionStage::Cited,
        Stage::Observed => pb::DecisionStage::Observed,
        Stage::Asked => pb::DecisionStage::Asked,
    }
}

fn wire_step(step: &Step) -> pb::DecisionStep {
    pb::DecisionStep {
        stage: wire_stage(step.stage).into(),
        subject: step.subject.clone(),
        finding: Some(common_pb::Finding {
            rule: step.rule.clone(),
            outcome: step.outcome.clone(),
            because: step.because.clone(),
        }),
        score: step.score.unwrap_or_default(),
        factors: step.factors.iter().map(|(name, value)| (name.clone(), *value)).collect(),
    }
}

/// Wire form of a decision.
#[must_use]
pub fn wire_decision(decision: &Decision) -> pb::Decision {
    pb::Decision {
        time: Some(common::wire_time(decision.time)),
        trace_id: decision.trace_id.clone(),
        request_id: decision.request_id.clone(),
        method: decision.method.clone(),
        caller: decision.caller.clone(),
        agent_id: decision.agent.clone(),
        outcome: decision.outcome.clone(),
        recall_id: decision.recall_id.clone(),
        steps: decision.steps.iter().map(wire_step).collect(),
        steps_left_out: decision.left_out,
    }
}

/// Status of a layer in an answer that spans several.
#[must_use]
pub fn layer_status(layer: Layer, state: common_pb::LayerState, detail: impl Into<String>) -> common_pb::LayerStatus {
    common_pb::LayerStatus { layer: layer.name().to_owned(), state: state.into(), detail: detail.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_has_a_wire_form_and_a_trace_id_is_checked() {
        for stage in Stage::ALL {
            assert_eq!(wire_stage(*stage).as_str_name(), format!("DECISION_STAGE_{}", stage.name()));
        }
        assert_eq!(trace_id("4bf92f3577b34da6a3ce929d0e0e4736").expect("an id"), "4bf92f3577b34da6a3ce929d0e0e4736");
        for bad in ["", " ", "a b", "用", &"x".repeat(limits::CALL_ID_BYTES + 1)] {
            assert_eq!(trace_id(bad).expect_err("refused").fields[0].field, "trace_id");
        }
    }

    #[test]
    fn every_state_and_kind_has_a_wire_form() {
        for state in State::ALL {
            assert_eq!(wire_state(*state).as_str_name(), format!("PROMOTION_STATE_{}", state.name()));
            assert_eq!(super::state("states[0]", wire_state(*state).into()), Ok(*state));
        }
        for kind in Kind::ALL {
            let raw = longterm_pb::Kind::from_str_name(&format!("KIND_{}", kind.name())).expect("on the wire");
            assert_eq!(super::kind("k", raw.into()), Ok(*kind));
        }
        assert!(super::kind("k", 0).is_err() && super::kind("k", 99).is_err());
    }

    #[test]
    fn a_promote_names_its_bad_field() {
        let good = pb::PromoteRequest {
            promotion_id: uuid::Uuid::nil().to_string(),
            source: Some(pb::PromotionSource {
                kind: Some(pb::promotion_source::Kind::TurnQuote(pb::TurnQuote {
                    session_id: "s".into(),
                    seq: 1,
                    quote: "以后都用中文".into(),
                })),
            }),
            statement: Some(longterm_pb::Statement {
                kind: longterm_pb::Kind::Preference.into(),
                content: "用户要求以后都用中文回复".into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        assert_eq!(promote(&good).expect("good").kind, Kind::Preference);
        let field = |edit: &dyn Fn(&mut pb::PromoteRequest)| {
            let mut bad = good.clone();
            edit(&mut bad);
            promote(&bad).expect_err("refused").fields[0].field.clone()
        };
        assert_eq!(field(&|r| r.promotion_id = "x".into()), "promotion_id");
        assert_eq!(field(&|r| r.source = None), "source");
        assert_eq!(field(&|r| r.statement = None), "statement");
        assert_eq!(field(&|r| r.statement.as_mut().expect("set").kind = 0), "statement.kind");
        assert_eq!(field(&|r| r.statement.as_mut().expect("set").content = " ".into()), "statement.content");
        assert_eq!([window(0), window(256)].map(|w| w.expect("in bounds")), [WINDOW, 256]);
        assert!(window(-1).is_err() && window(255).is_err() && window(2_000_001).is_err());
    }
}
