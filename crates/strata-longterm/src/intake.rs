//! From a statement as given to one that passed the gate: language work, slot resolution (rule K0) and the refusing rules,
//! all before any transaction begins (case C134).

use crate::metadata::insert::Material;
use crate::recall::{caller_space, checked};
use crate::scope::OwnerScope;
use crate::state::State;
use std::collections::BTreeSet;
use strata_api::convert::longterm::indexed_text;
use strata_core::policy::authz::{Layer, Role};
use strata_core::policy::gate::{self, Attestation, Door, GateSettings, Gated, Slot, Statement, Submission};
use strata_core::policy::ownership::{self, Place};
use strata_core::record::{Kind, SourceRef, Value};
use strata_core::{FactKey, Fault, MemoryId, Timestamp};
use strata_text::{TextFeatures, features, terms};
use uuid::Uuid;

/// Who submits, and how.
#[derive(Clone, Copy, Debug)]
pub struct Submitter<'a> {
    /// Whose memory.
    pub scope: &'a OwnerScope,
    /// Roles of the caller.
    pub roles: &'a BTreeSet<Role>,
    /// What the router vouches for.
    pub attestation: Attestation,
    /// The door.
    pub door: Door,
    /// Request id, if one was given.
    pub request_id: Option<Uuid>,
    /// Arrival.
    pub now: Timestamp,
}

/// Runs the gate.
///
/// # Errors
/// `GATE_PII`, `GATE_PROVENANCE`, `GATE_CONTENT` listing every rule that refused, never the text;
/// `FACT_OWNED_BY_OTHER_LAYER` for a key that the registry gives to another layer.
pub fn submit(
    state: &State,
    settings: &GateSettings,
    by: &Submitter<'_>,
    statement: Statement,
) -> Result<(Gated, Material), Fault> {
    let slot = slot(state, &statement)?;
    run(state, settings, by, statement, slot, gate::judge)
}

/// Runs what holds for words that passed the gate before ([`gate::readmit`]); their key stays as it is.
///
/// # Errors
/// `GATE_PII`, `GATE_PROVENANCE` listing every rule that refused, never the text.
pub fn readmit(
    state: &State,
    settings: &GateSettings,
    by: &Submitter<'_>,
    statement: Statement,
) -> Result<(Gated, Material), Fault> {
    let slot = statement.key.clone().map(|key| Slot { spec: state.registry.spec(key.as_str()), key, value: None });
    run(state, settings, by, statement, slot, gate::readmit)
}

/// Runs the gate over a part ([`strata_core::part`]): it holds no slot.
///
/// # Errors
/// As [`submit`].
pub fn part(
    state: &State,
    settings: &GateSettings,
    by: &Submitter<'_>,
    statement: Statement,
) -> Result<(Gated, Material), Fault> {
    run(state, settings, by, statement, None, gate::judge)
}

/// Language work, then the gate.
fn run(
    state: &State,
    settings: &GateSettings,
    by: &Submitter<'_>,
    statement: Statement,
    slot: Option<Slot<'_>>,
    judge: fn(&GateSettings, Submission<'_>) -> Result<Gated, gate::Refusal>,
) -> Result<(Gated, Material), Fault> {
    let vector = supplied_vector(state, &statement)?;
    let content = features(&statement.content);
    let quote = features(&statement.source_quote);
    let others = [features(&other_texts(&statement))];
    let value = statement.value.as_ref().or_else(|| slot.as_ref().and_then(|slot| slot.value.as_ref()));
    let value_features: Option<TextFeatures> = value.map(|value| features(value.as_text()));
    let index = indexed_text(&statement.content, slot.as_ref().map(|slot| &slot.key), value);
    let resolved_dates = gate::resolved_dates(&quote, by.attestation.turn_time);
    let consented = state.challenges.verify(by.scope.owner(), &statement);
    let submission = Submission {
        content: &content,
        quote: &quote,
        value: value_features.as_ref(),
        others: &others,
        resolved_dates: &resolved_dates,
        slot,
        attestation: by.attestation,
        roles: by.roles,
        door: by.door,
        consented,
        now: by.now,
        statement,
    };
    let gated = judge(settings, submission).map_err(gate::Refusal::fault)?;
    let material =
        Material { memory_id: MemoryId(state.ports.ids.next()), terms: terms(&index), request_id: by.request_id, vector };
    Ok((gated, material))
}

/// The statement's own vector, when the service runs with the callers' embedder; ignored when it makes its own.
fn supplied_vector(state: &State, statement: &Statement) -> Result<Option<(String, Vec<f32>)>, Fault> {
    let Some(space) = caller_space(state.embedder.as_deref()).filter(|_| !statement.vector.is_empty()) else { return Ok(None) };
    let mut vector = statement.vector.clone();
    checked("statement.vector", &mut vector, space.dimensions)?;
    Ok(Some((space.name.clone(), vector)))
}

/// Every text of the caller beside content, quote and value, one a line: secrets hide there too. A metadata pair is read
/// as it would be written, since its key may be what makes its value a secret.
fn other_texts(statement: &Statement) -> String {
    let mut lines: Vec<String> = Vec::new();
    lines.extend(statement.key.as_ref().map(|key| words_of(key.as_str())));
    lines.extend(statement.topic.clone());
    lines.extend(statement.tags.iter().cloned());
    lines.extend(statement.metadata.iter().map(|(key, value)| format!("{key}: {value}")));
    match &statement.source_ref {
        Some(SourceRef::Confirmation { reference }) => lines.push(reference.clone()),
        Some(SourceRef::SystemRecord { .. } | SourceRef::Turn { .. } | SourceRef::Task { .. }) | None => {}
    }
    lines.join("\n")
}

/// A dotted key as words: a number in it stands alone, as in `contact.a13812345678`.
fn words_of(key: &str) -> String {
    let mut out = String::with_capacity(key.len() + 8);
    let mut last = ' ';
    for c in key.chars() {
        if !c.is_alphanumeric() || (c.is_ascii_digit() && last.is_alphabetic()) {
            out.push(' ');
        }
        if c.is_alphanumeric() {
            out.push(c);
        }
        last = c;
    }
    out
}

/// Rule K0: an alias leads to its registered key; a keyless statement is matched by the registry's wordings, in its own
/// words first, then in the quote's.
fn slot<'a>(state: &'a State, statement: &Statement) -> Result<Option<Slot<'a>>, Fault> {
    let apart = matches!(statement.kind, Kind::Assumption | Kind::ModelSuggestion);
    let resolved = match &statement.key {
        Some(key) => {
            let key = state.registry.resolve(key);
            let value = match statement.value {
                Some(_) => None,
                None => matched(state, statement).filter(|(found, _)| *found == key).map(|(_, value)| value),
            };
            Some((key, value))
        }
        None if apart => None,
        None => matched(state, statement).map(|(key, value)| (key, statement.value.is_none().then_some(value))),
    };
    let Some((key, value)) = resolved else { return Ok(None) };
    let spec = state.registry.spec(key.as_str());
    if let Some(spec) = spec
        && let Some(layer) = spec.layer
        && layer != Layer::Longterm
    {
        return Err(ownership::owned_by(key.as_str(), &Place::new(spec.scope, ""), 0).with("layer", layer.name()));
    }
    Ok(Some(Slot { key, spec, value }))
}

fn matched(state: &State, statement: &Statement) -> Option<(FactKey, Value)> {
    if let Some(found) = state.matcher.match_slot(&statement.content) {
        return Some((found.key, Value::Text(found.value)));
    }
    let mut in_quote = state.matcher.match_all(&statement.source_quote).into_iter();
    let found = in_quote.next().filter(|_| in_quote.next().is_none())?;
    // The content must be about that value: a quote may say more than its statement.
    let fixed = !statement.source_quote.contains(&found.value);
    (fixed || statement.content.contains(&found.value)).then_some((found.key, Value::Text(found.value)))
}
