//! One pass over a text for everything the gate has to know about its language.

use crate::clean::Cleaned;
use crate::{certainty, clean, cues, orders, pii, reality, relations, script, topics, values};
use strata_core::text::TextFeatures;

/// Reads a text. Pure and linear in its length; callers bound the length (`limits::CONTENT_CHARS`, `limits::TURN_BYTES`).
#[must_use]
pub fn features(text: &str) -> TextFeatures {
    let cleaned = Cleaned::new(text);
    let noise = cues::noise(&cleaned);
    let question = cues::question(text);
    TextFeatures {
        language: script::language(text),
        normal: clean::normal(text),
        content_chars: cues::content_chars(&cleaned),
        values: values::find(&cleaned, text),
        sensitive: pii::find(&cleaned),
        certainty: certainty::of_cleaned(&cleaned),
        negation: certainty::negation_of(&cleaned),
        clauses: certainty::clauses(&cleaned),
        aversion: certainty::aversion(&cleaned),
        noise,
        question,
        // What is not stated does not pass either.
        passing: !noise && !question && cues::passing(&cleaned),
        // "就这样吧" says nothing; it does not speak of something that is not named.
        deictic: !noise && cues::deictic(&cleaned),
        instruction: cues::instruction(&cleaned),
        directive: orders::directive(&cleaned.text),
        hidden: cues::hidden(text),
        durable: cues::durable(&cleaned),
        strong: cues::strong(&cleaned),
        unreal: reality::unreal(&cleaned),
        topics: topics::topics(text),
        reported: cues::reported(&cleaned),
        of_kin: cues::of_kin(&cleaned),
        of_user: cues::of_user(&cleaned),
        relations: relations::relations(&cleaned),
        leanings: relations::leanings(&cleaned),
    }
}
