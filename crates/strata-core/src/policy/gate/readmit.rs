//! Words that passed the gate before and come back: a record whose labels change, a signed line of an export. What a
//! statement needs at its first entry (trigger, provenance, quote, content) was judged then; what may never be stored is
//! looked for again, since the rules improve (rules G3, G8; E6 and E7 are the store's).

use super::{
    Door, Gated, Refusal, Sensitivity, Standing, Submission, Verdict, class_words, gated, is_contact, is_never_stored, is_user,
    refusal,
};
use crate::rule::Finding;
use crate::text::SensitiveKind;

/// Runs rules G3 and G8 over every text, and for new labels rule G4.
///
/// # Errors
/// A [`Refusal`] listing every rule that objected.
pub fn readmit(settings: &super::GateSettings, submission: Submission<'_>) -> Result<Gated, Refusal> {
    let s = &submission.statement;
    let texts = || [submission.content, submission.quote].into_iter().chain(submission.value).chain(submission.others);
    let mut refused = Vec::new();
    let mut findings = Vec::new();
    let worst = texts().flat_map(|t| &t.sensitive).map(|span| span.kind).filter(|kind| is_never_stored(*kind)).min();
    if let Some(kind) = worst {
        refused.push(Finding::new("G3", "REFUSED", format!("holds {}, which is never stored", class_words(kind))));
    }
    let instruction = texts().any(|t| t.instruction);
    if instruction && !is_user(s.source) {
        refused.push(Finding::new("G8", "REFUSED", "reads like an instruction and does not come from the user"));
    }
    if texts().any(|t| t.hidden) {
        refused.push(Finding::new("G8", "REFUSED", "hides characters that a reader does not see"));
    }
    if !refused.is_empty() {
        return Err(refusal(refused, worst));
    }
    let sensitive = |of: fn(SensitiveKind) -> bool| texts().flat_map(|t| &t.sensitive).any(|span| of(span.kind));
    let personal = sensitive(is_contact) || sensitive(|kind| kind == SensitiveKind::Health);
    let sensitivity = if personal { Sensitivity::Personal } else { Sensitivity::None };
    // The words themselves had their consent; labels that come new need their own.
    let new_contact = submission.others.iter().flat_map(|t| &t.sensitive).any(|span| is_contact(span.kind));
    let standing = if submission.door == Door::Update && new_contact && !submission.consented {
        findings.push(Finding::new("G4", "NEEDS_CONSENT", "holds a phone number, e-mail or street address"));
        Standing::NeedsConsent
    } else {
        Standing::Active
    };
    let verdict = Verdict { standing, findings, passing_wish: false, user_counts: false, sensitivity, instruction };
    Ok(gated(settings, submission, verdict))
}
