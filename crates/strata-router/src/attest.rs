//! What the router vouches for in a long-term write (rule G2): whether the quote stands in the user's turn it names.

use crate::layers::{Layers, answer, reading, signed};
use std::time::Duration;
use strata_api::convert::common;
use strata_api::internal::v1::{Attestation, QuoteState};
use strata_api::longterm::v1 as longterm;
use strata_api::session::v1 as session;
use strata_core::policy::authz::Principal;
use strata_core::{Owner, Reason};
use strata_runtime::context::CallContext;

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
    let request = session::GetTurnsRequest {
        user_id: owner.user.as_str().to_owned(),
        agent_id: owner.agent.as_ref().map(|agent| agent.as_str().to_owned()).unwrap_or_default(),
        session_id: turn.session_id.clone(),
        from_seq: turn.seq,
        to_seq: turn.seq,
    };
    let mut client = layers.session.clone();
    // Half of the time that is left: the write itself needs the rest.
    let wait = CallContext::current().remaining().map_or(LOOKUP, |left| LOOKUP.min(left / 2));
    let looked = tokio::time::timeout(wait, client.get_turns(signed(request, reading(principal, owner)))).await;
    let state = match looked.map(answer) {
        Ok(Ok(found)) => match found.turns.iter().find(|found| found.seq == turn.seq) {
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

/// Whether a quote stands in a turn, compared in normal form (NFKC, case, white space, invisible characters). A part of a
/// clause counts only if what was left out before it neither negates nor hedges it: "吃辣" is no quote of "不吃辣".
pub(crate) fn stands_in(quote: &str, turn: &str) -> bool {
    let (quote, turn) = (strata_text::clean::normal(quote), strata_text::clean::normal(turn));
    if quote.is_empty() {
        return false;
    }
    let said = strata_text::features(&quote);
    turn.match_indices(&quote).any(|(at, _)| {
        // Of a question only the whole is a quote: what it asks is not what the user said.
        let sentence = strata_text::sentence_spans(&turn).into_iter().find(|span| span.contains(&at));
        if sentence.is_some_and(|span| strata_text::features(&turn[span]).question) && !said.question {
            return false;
        }
        let before = &turn[..at];
        let clause = before.rfind(is_clause_end).map_or(0, |end| end + turn[end..].chars().next().map_or(0, char::len_utf8));
        if turn[clause..at].trim().is_empty() {
            return true;
        }
        let inside_word = |a: Option<char>, b: Option<char>| {
            a.zip(b).is_some_and(|(a, b)| a.is_ascii_alphanumeric() && b.is_ascii_alphanumeric())
        };
        if inside_word(before.chars().next_back(), quote.chars().next())
            || inside_word(quote.chars().next_back(), turn[at + quote.len()..].chars().next())
        {
            return false;
        }
        let whole = strata_text::features(&turn[clause..at + quote.len()]);
        whole.negation <= said.negation && whole.certainty >= said.certainty
    })
}

const fn is_clause_end(c: char) -> bool {
    matches!(c, ',' | '.' | ';' | ':' | '!' | '?' | '\n' | '"' | '(' | ')' | '…' | '，' | '。' | '；' | '：' | '！' | '？')
}

#[cfg(test)]
mod tests {
    use super::stands_in;

    #[test]
    fn a_quote_stands_in_its_turn_in_normal_form() {
        for (quote, turn) in [
            ("我不吃辣。", "你好！我不吃辣，谢谢"),
            ("From now on, always reply in Chinese", "ok.  from now on,\n always reply in Chinese!"),
            ("我的预算是１２００元", "我的预算是1200元左右"),
            ("I live in Berlin", "Hi, I live in Berlin 👋"),
            ("like tea", "I like tea"),
        ] {
            assert!(stands_in(quote, turn), "{quote} in {turn}");
        }
    }

    #[test]
    fn a_quote_that_turns_the_meaning_or_is_not_there_is_refused() {
        for (quote, turn) in [
            ("", "anything"),
            ("\u{200b}", "anything"),
            ("我吃辣", "我不吃辣"),
            ("吃辣", "我不吃辣"),
            ("like tea", "I do not like tea"),
            ("art", "I want to start"),
            ("I live in Paris", "I live in Berlin"),
            ("my cost centre is A-100", "Is it true that my cost centre is A-100? I guess so."),
            ("I have a meeting on 5 May", "Do I have a meeting on 5 May?"),
            ("我住在上海", "你觉得我住在上海吗？"),
        ] {
            assert!(!stands_in(quote, turn), "{quote} in {turn}");
        }
    }
}
