//! What the router vouches for in a long-term write (rule G2): whether the quote stands in the user's turn it names, and which
//! words of a turn a fact of its session comes from.

use crate::layers::{Layers, answer, reading, signed};
use std::time::Duration;
use strata_api::convert::common;
use strata_api::convert::session as convert;
use strata_api::internal::v1::{Attestation, QuoteState};
use strata_api::longterm::v1 as longterm;
use strata_api::session::v1 as session;
use strata_core::limits::QUOTE_CHARS;
use strata_core::policy::authz::Principal;
use strata_core::policy::promotion::{SealedTurn, word_of};
use strata_core::record::Source;
use strata_core::{Fault, Owner, Reason};
use strata_runtime::context::CallContext;
use strata_text::cues::question;
use strata_text::quote::{cuts_words, stands_in};

/// Longest wait for the turn: a write never fails because a session is slow.
const LOOKUP: Duration = Duration::from_millis(1_000);

/// Looks the quote up. `explicit_order` is the caller's knowledge: Remember on the user's request.
pub(crate) async fn attest(
    layers: &Layers,
    principal: &Principal,
    owner: &Owner,
    statement: &longterm::Statement,
    explicit_order: bool,
) -> Attestation {
    let mut attestation = Attestation { explicit_order, ..Attestation::default() };
    let Some(longterm::source_ref::Kind::Turn(turn)) =
        statement.source_ref.as_ref().and_then(|reference| reference.kind.as_ref())
    else {
        return attestation;
    };
    // Half of the time that is left: the write itself needs the rest.
    let wait = CallContext::current().remaining().map_or(LOOKUP, |left| LOOKUP.min(left / 2));
    let state = match tokio::time::timeout(wait, turn_of(layers, principal, owner, &turn.session_id, turn.seq)).await {
        Ok(Ok(found)) => match found {
            Some(found) => {
                attestation.turn_time = found.time;
                attestation.user_turn = found.role == i32::from(session::Role::User);
                if attestation.user_turn && stands_in(&statement.source_quote, &found.text) {
                    QuoteState::Verified
                } else {
                    QuoteState::NotFound
                }
            }
            None => QuoteState::NotFound,
        },
        // A malformed reference is the caller's mistake, a session that is gone or silent is nobody's.
        Ok(Err(fault)) if fault.reason == Reason::InvalidField => QuoteState::NotFound,
        Ok(Err(_)) | Err(_) => QuoteState::Unverifiable,
    };
    attestation.set_quote(state);
    // The layer's clock is not ours to trust blindly: an unreadable time is none.
    if attestation.turn_time.as_ref().is_some_and(|time| common::time("turn_time", time).is_err()) {
        attestation.turn_time = None;
    }
    attestation
}

/// A turn of a session; none when it has no such turn.
async fn turn_of(
    layers: &Layers,
    principal: &Principal,
    owner: &Owner,
    session_id: &str,
    seq: u32,
) -> Result<Option<session::Turn>, Fault> {
    let request = session::GetTurnsRequest {
        user_id: owner.user.as_str().to_owned(),
        agent_id: owner.agent_id().to_owned(),
        session_id: session_id.to_owned(),
        from_seq: seq,
        to_seq: seq,
    };
    let found = answer(layers.session.clone().get_turns(signed(request, reading(principal, owner))).await)?;
    Ok(found.turns.into_iter().find(|turn| turn.seq == seq))
}

/// What its turn says for a fact of a session, to be kept with the promotion of the fact: the session may end before the target
/// takes it.
///
/// # Errors
/// Those of session memory.
pub(crate) async fn seal_turn(
    layers: &Layers,
    principal: &Principal,
    owner: &Owner,
    session_id: &str,
    fact: &session::SessionFact,
) -> Result<SealedTurn, Fault> {
    let turn = turn_of(layers, principal, owner, session_id, fact.seq).await?;
    let by = turn.as_ref().and_then(|turn| convert::role("role", turn.role).ok());
    let quote = turn.as_ref().and_then(|turn| sentence_with(&fact.value, &turn.text));
    Ok(SealedTurn {
        seq: fact.seq,
        source: word_of(by, quote.is_some()),
        quote: quote.unwrap_or_else(|| fact.value.clone()),
        time: turn.and_then(|turn| common::optional_time("time", turn.time.as_ref()).unwrap_or_default()),
    })
}

/// What was found out about the turn when the fact was sealed, or last looked at.
pub(crate) fn of_sealed(turn: &SealedTurn) -> Attestation {
    let user_turn = turn.source == Source::UserStatement;
    let mut attestation = Attestation { user_turn, turn_time: turn.time.map(common::wire_time), ..Attestation::default() };
    if user_turn {
        attestation.set_quote(QuoteState::Verified);
    }
    attestation
}

/// The sentence of a turn that holds a value, compared in normal form and as whole words; the last one, which corrects the ones
/// before it. A question is nobody's statement, nor is what the turn takes back or hands over to be translated.
fn sentence_with(value: &str, turn: &str) -> Option<String> {
    let value = strata_text::clean::normal(value);
    let holds = |sentence: &&str| {
        let sentence = strata_text::clean::normal(sentence);
        let whole = |at: usize| !cuts_words(&sentence, at..at + value.len());
        !question(&sentence) && sentence.match_indices(&value).any(|(at, _)| whole(at)) && stands_in(&sentence, turn)
    };
    let spans = strata_text::sentence_spans(turn);
    let sentence = spans.into_iter().rev().map(|span| turn[span].trim()).find(holds);
    sentence.filter(|sentence| !value.is_empty() && sentence.chars().count() <= QUOTE_CHARS).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::sentence_with;

    #[test]
    fn a_value_is_quoted_by_the_sentence_that_holds_it() {
        for (value, turn, sentence) in [
            ("CC-42", "Hello there. From now on my cost centre is CC-42! Thanks.", Some("From now on my cost centre is CC-42!")),
            ("cc-42", "My cost centre is ＣＣ－42.", Some("My cost centre is ＣＣ－42.")),
            ("B-2", "My code is B-1 or B-2. No, my code is B-2.", Some("No, my code is B-2.")),
            ("辣", "你好。我不吃辣，谢谢！", Some("我不吃辣，谢谢！")),
            ("上海", "我以后都在上海办公\n好的", Some("我以后都在上海办公")),
            ("四川", "我是四川人", Some("我是四川人")),
            ("4", "我选３，４号", Some("我选３，４号")),
            ("4", "My cost centre is CC-42.", None),
            ("CC-42", "Is my cost centre CC-42?", None),
            ("上海", "你觉得我住在上海吗？", None),
            ("vegetarian", "I eat no meat.", None),
            ("素食", "我不吃肉。", None),
            ("\u{200b}", "anything", None),
            ("Rome", "I live in Oslo. I live in Rome. Just kidding.", None),
            ("罗马", "翻译一下：\n我住在罗马", None),
        ] {
            assert_eq!(sentence_with(value, turn).as_deref(), sentence, "{value} in {turn}");
        }
        assert_eq!(sentence_with("CC-42", &format!("{} CC-42", "word ".repeat(1_000))), None, "longer than any quote");
    }
}
