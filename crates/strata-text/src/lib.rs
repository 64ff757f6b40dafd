//! Language work for English and Chinese, with a substring fallback for Japanese and Korean. Pure functions over text,
//! and the embedders; no store, no clock, no runtime.
//!
//! * [`fn@analyze`], [`terms`], [`query_terms`], [`bm25`]: the keyword leg of recall (rule R3);
//! * [`fn@features`]: everything the gate has to know about a text (rules G3 to G12, S3, S5);
//! * [`quote`]: whether a quote says what the turn says that it is cut from (rule G2);
//! * [`tokens`], [`sentences`]: budgets and cuts (rules C4, S11; cases C080, C084);
//! * [`slots`]: from a sentence to a registered key (rule K0);
//! * [`embed`]: from a text to a vector;
//! * [`turn_rank`]: ranking of turns (rule R14);
//! * [`needles`]: finding and cutting out what is to be erased (rule E2);
//! * [`rerank`]: a second look at what was found (rule R9);
//! * [`observe`], [`extract`]: what an agent's turns say for memory (rules O);
//! * [`summarise`]: summaries of turns by a model (rule S2).
//!
//! Text is scanned on a cleaned copy ([`clean::Cleaned`]) so that invisible and look-alike characters hide nothing
//! (case C081); every span that leaves the crate is a byte range of the original.

pub mod analyze;
pub mod bm25;
pub mod certainty;
pub mod clean;
pub mod cues;
pub mod embed;
pub mod extract;
pub mod http;
pub mod needles;
pub mod numerals;
pub mod observe;
pub mod pii;
pub mod quote;
pub mod rerank;
pub mod script;
pub mod sentence;
pub mod slots;
pub mod summarise;
pub mod tokens;
pub mod turn_rank;
pub mod turns;
pub mod values;

mod asking;
mod aspect;
mod brief;
mod chat;
mod features;
mod kinds;
mod light;
mod literals;
mod mentions;
mod orders;
mod pattern;
mod phrases;
mod reality;
mod relations;
mod spans;
mod times;
mod topics;
mod transient;

pub use analyze::{Terms, analyze, analyze_query, query_terms, terms};
pub use aspect::aspect;
pub use features::features;
pub use sentence::{sentence_spans, sentences};
pub use strata_core::text::{Language, TextFeatures};

/// Inflates the segmentation dictionary and reads every table of wordings, so that the first request does not pay for it
/// (about a second). Call once at start, off the async threads.
pub fn warm() {
    let text = "预热 warm-up: 我住在杭州, call 138 0013 8000 tomorrow at 2:30 pm in Hangzhou.";
    let _ = analyze(text);
    let _ = turns::statements(text, strata_core::policy::session::Role::User);
    let _ = aspect(text);
    let _ = quote::stands_in("我住在杭州", text);
}
