//! From a statement as given to one that passed the gate: language work, slot resolution (rule K0) and the refusing rules,
//! all before any transaction begins (case C134).

use crate::metadata::insert::{Material, Passed};
use crate::recall::{caller_space, checked};
use crate::scope::OwnerScope;
use crate::state::State;
use crate::write;
use std::collections::BTreeSet;
use strata_api::convert::longterm::indexed_text;
use strata_core::policy::authz::{Layer, Role};
use strata_core::policy::gate::{self, Attestation, Door, GateSettings, Gated, Reading, Readings, Slot, Statement, Submission};
use strata_core::policy::ownership::{self, Place};
use strata_core::record::{Kind, SourceRef, Value};
use strata_core::{FactKey, Fault, MemoryId, Timestamp};
use strata_text::clean::normal;
use strata_text::pii::labelled;
use strata_text::slots::SlotMatch;
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

/// Runs the gate. A sentence that names several values of a set ("allergic to peanuts and shrimp") makes a statement of
/// each (rule K11): the first is the answer, the others go with it.
///
/// # Errors
/// `GATE_PII`, `GATE_PROVENANCE`, `GATE_CONTENT` listing every rule that refused, never the text;
/// `FACT_OWNED_BY_OTHER_LAYER` for a key that the registry gives to another layer.
pub fn submit(
    state: &State,
    settings: &GateSettings,
    by: &Submitter<'_>,
    statement: Statement,
) -> Result<(Passed, Vec<Passed>), Fault> {
    let mut slots = slots(state, &statement)?.into_iter();
    let first = slots.next();
    let rest: Vec<Slot<'_>> = slots.collect();
    let read = Read::of(state, by, &statement)?;
    let passed = read.run(state, settings, by, statement.clone(), first, gate::judge)?;
    let each = |slot| read.run(state, settings, by, statement.clone(), Some(slot), gate::judge);
    Ok((passed, rest.into_iter().map(each).collect::<Result<_, _>>()?))
}

/// Runs what holds for words that passed the gate before ([`gate::readmit`]); their key stays as it is.
///
/// # Errors
/// `GATE_PII`, `GATE_PROVENANCE` listing every rule that refused, never the text.
pub fn readmit(state: &State, settings: &GateSettings, by: &Submitter<'_>, statement: Statement) -> Result<Passed, Fault> {
    let slot = statement.key.clone().map(|key| Slot {
        spec: state.registry.spec(key.as_str()),
        key,
        value: None,
        readings: Readings::default(),
    });
    Read::of(state, by, &statement)?.run(state, settings, by, statement, slot, gate::readmit)
}

/// Runs the gate over a part ([`strata_core::part`]): it holds no slot.
///
/// # Errors
/// As [`submit`].
pub fn part(state: &State, settings: &GateSettings, by: &Submitter<'_>, statement: Statement) -> Result<Passed, Fault> {
    Read::of(state, by, &statement)?.run(state, settings, by, statement, None, gate::judge)
}

/// The language work over one statement.
struct Read {
    vector: Option<(String, Vec<f32>)>,
    content: TextFeatures,
    quote: TextFeatures,
    others: [TextFeatures; 1],
    lines: Vec<TextFeatures>,
    resolved_dates: Vec<String>,
    consented: bool,
}

impl Read {
    fn of(state: &State, by: &Submitter<'_>, statement: &Statement) -> Result<Self, Fault> {
        let quote = features(&statement.source_quote);
        // Most statements are their own quote: one reading serves both.
        let same = statement.content == statement.source_quote;
        let content = if same { quote.clone() } else { features(&statement.content) };
        Ok(Self {
            vector: supplied_vector(state, statement)?,
            content,
            others: [features(&other_texts(statement))],
            lines: if by.door.is_part() { statement.content.lines().map(features).collect() } else { Vec::new() },
            resolved_dates: gate::resolved_dates(&quote, by.attestation.turn_time),
            quote,
            consented: state.challenges.verify(by.scope.owner(), statement),
        })
    }

    /// The gate over it, as a statement about this slot.
    fn run(
        &self,
        state: &State,
        settings: &GateSettings,
        by: &Submitter<'_>,
        statement: Statement,
        slot: Option<Slot<'_>>,
        judge: fn(&GateSettings, Submission<'_>) -> Result<Gated, gate::Refusal>,
    ) -> Result<Passed, Fault> {
        let value = statement.value.as_ref().or_else(|| slot.as_ref().and_then(|slot| slot.value.as_ref()));
        let value_features: Option<TextFeatures> = value.map(|value| features(value.as_text()));
        let index = indexed_text(&statement.content, slot.as_ref().map(|slot| &slot.key), value);
        let submission = Submission {
            content: &self.content,
            quote: &self.quote,
            value: value_features.as_ref(),
            others: &self.others,
            lines: &self.lines,
            resolved_dates: &self.resolved_dates,
            slot,
            attestation: by.attestation,
            roles: by.roles,
            door: by.door,
            consented: self.consented,
            now: by.now,
            statement,
        };
        let gated = judge(settings, submission).map_err(gate::Refusal::fault).inspect_err(write::count_refused)?;
        let memory_id = MemoryId(state.ports.ids.next());
        let vector = self.vector.clone();
        Ok((
            gated,
            Material {
                memory_id,
                terms: terms(&index),
                request_id: by.request_id,
                session_id: None,
                vector,
                related: Vec::new(),
            },
        ))
    }
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
    lines.extend(split_secrets(statement));
    match &statement.source_ref {
        Some(SourceRef::Confirmation { reference }) => lines.push(reference.clone()),
        Some(SourceRef::SystemRecord { .. } | SourceRef::Turn { .. } | SourceRef::Task { .. }) | None => {}
    }
    lines.join("\n")
}

/// A secret whose name stands in one field and whose value in another: key and value, topic and tag, two tags.
fn split_secrets(statement: &Statement) -> Vec<String> {
    let key = statement.key.as_ref().map(|key| words_of(key.as_str()));
    let labels = key.iter().chain(&statement.topic).chain(&statement.tags).map(String::as_str);
    let value = statement.value.as_ref().map(Value::as_text);
    let values: Vec<&str> = value
        .into_iter()
        .chain(statement.topic.as_deref())
        .chain(statement.tags.iter().map(String::as_str))
        .chain(statement.metadata.values().map(String::as_str))
        .collect();
    labels.flat_map(|label| values.iter().filter_map(move |value| labelled(label, value))).collect()
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

/// What the registry's wordings read in a statement.
struct Worded {
    content: Vec<SlotMatch>,
    /// Empty where the content is its own quote.
    quote: Vec<SlotMatch>,
}

impl Worded {
    fn of(state: &State, statement: &Statement) -> Self {
        let same = statement.content == statement.source_quote;
        Self {
            content: state.matcher.match_all(&statement.content),
            quote: if same { Vec::new() } else { state.matcher.match_all(&statement.source_quote) },
        }
    }

    /// Keys and values of a statement that names no key, or no value: in its own words first, then in the quote's.
    fn slots(&self, state: &State, statement: &Statement) -> Vec<(FactKey, Value)> {
        if let Some(first) = self.content.first() {
            // One value of a single slot: what a second sentence says of it is another statement.
            let many = if state.registry.is_set(&first.key) { usize::MAX } else { 1 };
            let of_key = self.content.iter().filter(|slot| slot.key == first.key).take(many);
            return of_key.map(|slot| (slot.key.clone(), Value::Text(slot.value.clone()))).collect();
        }
        let [found] = self.quote.as_slice() else { return Vec::new() };
        // The content must be about that value: a quote may say more than its statement.
        let fixed = !statement.source_quote.contains(&found.value);
        let about = fixed || statement.content.contains(&found.value);
        about.then(|| (found.key.clone(), Value::Text(found.value.clone()))).into_iter().collect()
    }

    /// What they read of one key.
    fn readings(&self, statement: &Statement, key: &FactKey) -> Readings {
        let read = |found: &[SlotMatch], text: &str| {
            let of_key = found.iter().filter(|slot| slot.key == *key);
            of_key.map(|slot| Reading { normal: normal(&slot.value), written: text.contains(&slot.value) }).collect()
        };
        Readings { content: read(&self.content, &statement.content), quote: read(&self.quote, &statement.source_quote) }
    }
}

/// Rule K0: an alias leads to its registered key; a keyless statement is matched by the registry's wordings. Several only
/// where a sentence names several values of a set.
fn slots<'a>(state: &'a State, statement: &Statement) -> Result<Vec<Slot<'a>>, Fault> {
    let apart = matches!(statement.kind, Kind::Assumption | Kind::ModelSuggestion);
    let named = statement.key.as_ref().map(|key| state.registry.resolve(key));
    if apart && named.is_none() {
        return Ok(Vec::new());
    }
    let worded = Worded::of(state, statement);
    let resolved: Vec<(FactKey, Option<Value>)> = match (named, &statement.value) {
        (Some(key), Some(_)) => vec![(key, None)],
        (Some(key), None) => {
            let found: Vec<_> = worded.slots(state, statement).into_iter().filter(|(found, _)| *found == key).collect();
            if found.is_empty() { vec![(key, None)] } else { found.into_iter().map(|(key, value)| (key, Some(value))).collect() }
        }
        (None, Some(_)) => worded.slots(state, statement).into_iter().take(1).map(|(key, _)| (key, None)).collect(),
        (None, None) => worded.slots(state, statement).into_iter().map(|(key, value)| (key, Some(value))).collect(),
    };
    let mut out = Vec::with_capacity(resolved.len());
    for (key, value) in resolved {
        let spec = state.registry.spec(key.as_str());
        if let Some(spec) = spec
            && let Some(layer) = spec.layer
            && layer != Layer::Longterm
        {
            return Err(ownership::owned_by(key.as_str(), &Place::new(spec.scope, ""), 0).with("layer", layer.name()));
        }
        out.push(Slot { readings: worded.readings(statement, &key), key, spec, value });
    }
    Ok(out)
}
