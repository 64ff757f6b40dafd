//! What the language work of `strata-text` tells the pure rules about a text. Spans are byte offsets into the original
//! text, always on character boundaries.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Language of a text, by script share (not by a statistical detector: those fail on short and mixed text).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Language {
    /// Latin script dominates.
    English,
    /// Han script dominates.
    Chinese,
    /// Kana, Hangul and the rest.
    Other,
}

/// Kind of a value that must survive letter for letter (rule S3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ValueKind {
    /// A name of a person, place, organisation or product.
    Name,
    /// An id or code: letters and digits mixed, order numbers, versions.
    Id,
    /// An amount of money, or a number with its unit.
    Amount,
    /// A bare number.
    Number,
    /// A date, a time of day, a duration, a relative day.
    Time,
    /// A URL, an e-mail address, a path.
    Url,
}

/// A protected value found in a text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProtectedValue {
    /// Kind.
    pub kind: ValueKind,
    /// The literal text.
    pub text: String,
    /// Normal form for comparison (rule G12): full-width folded, separators dropped, 2:30 pm = 14:30.
    pub normal: String,
    /// First byte in the original text.
    pub start: usize,
    /// Byte after the last one.
    pub end: usize,
}

/// Class of sensitive data found in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SensitiveKind {
    /// Password, key, token, private key, connection string, one-time code: refused (rule G3).
    Secret,
    /// Payment card number (Luhn): refused (rule G3).
    Card,
    /// National id, checksum verified where one exists, or called an id by the user: refused (rule G3).
    NationalId,
    /// Telephone number of a person: needs consent (rule G4).
    Phone,
    /// E-mail address of a person: needs consent (rule G4).
    Email,
    /// Street address of a person: needs consent (rule G4).
    Address,
    /// Health or diet: accepted from a verified user quote, marked PERSONAL (rule G4).
    Health,
}

/// A sensitive span; never logged with its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SensitiveSpan {
    /// Class.
    pub kind: SensitiveKind,
    /// First byte.
    pub start: usize,
    /// Byte after the last one.
    pub end: usize,
}

/// Whether a class is masked where text is kept that nobody was asked about (rule S14): all that rule G3 refuses or rule G4
/// asks consent for by its form. Health is no span to cut out, and in a user's own words it may be kept.
#[must_use]
pub const fn is_masked(kind: SensitiveKind) -> bool {
    mask_label(kind).is_some()
}

const fn mask_label(kind: SensitiveKind) -> Option<&'static str> {
    match kind {
        SensitiveKind::Secret => Some("[secret]"),
        SensitiveKind::Card => Some("[card]"),
        SensitiveKind::NationalId => Some("[id]"),
        SensitiveKind::Phone => Some("[phone]"),
        SensitiveKind::Email => Some("[email]"),
        SensitiveKind::Address => Some("[address]"),
        SensitiveKind::Health => None,
    }
}

/// The text with its masked spans replaced by `[kind]`. `spans` ascend and do not overlap.
#[must_use]
pub fn mask(text: &str, spans: &[SensitiveSpan]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for span in spans {
        let Some(label) = mask_label(span.kind) else { continue };
        out.push_str(&text[from..span.start]);
        out.push_str(label);
        from = span.end;
    }
    out.push_str(&text[from..]);
    out
}

/// How certain a sentence is (rules S5, G12). Ordered: a later one is stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Certainty {
    /// "may", "perhaps", "not sure", "可能", "也许", "mentioned".
    Hedged,
    /// Plain statement.
    Plain,
    /// "confirmed", "definitely", "确认", "肯定".
    Strong,
}

/// Scope of a negation (rule G12): an added wider one is refused ("not every" to "none").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Negation {
    /// No negation.
    None,
    /// "not every", "not always", "不都", "不一定".
    Partial,
    /// "not", "never", "none", "不", "没", "从不".
    Full,
}

/// A clause of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clause {
    /// Normal form, as [`TextFeatures::normal`].
    pub normal: String,
    /// Widest negation in it.
    pub negation: Negation,
    /// Said under a condition, of a time that is over, in play or in jest: not, or not simply, so (rule G12).
    pub qualified: bool,
    /// Said of a time to come: a plan, a date ahead (rule G12).
    pub ahead: bool,
}

/// Everything the gate needs to know about the language of one text. Made by `strata_text::features`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextFeatures {
    /// Language by script.
    pub language: Language,
    /// Normalised text for dedup: NFKC, lower case, white space and closing punctuation folded, invisible characters
    /// dropped.
    pub normal: String,
    /// Letters, digits and ideographs: the "content characters" of rule G5.
    pub content_chars: usize,
    /// Protected values, in order, not overlapping.
    pub values: Vec<ProtectedValue>,
    /// Sensitive spans, in order, not overlapping; scanned on a copy with invisible characters removed and full-width
    /// folded (case C081), spans in original bytes.
    pub sensitive: Vec<SensitiveSpan>,
    /// Certainty of the weakest clause.
    pub certainty: Certainty,
    /// Widest negation.
    pub negation: Negation,
    /// Clauses in order, each with its own negation: a quote may deny one thing and state another (rule G12).
    pub clauses: Vec<Clause>,
    /// Says no without a negation word: "avoids", "hates", "忌", "讨厌".
    pub aversion: bool,
    /// Greeting, acknowledgement, filler (rule G5).
    pub noise: bool,
    /// Asks and states nothing (rule G5): a question, without a statement beside it.
    pub question: bool,
    /// Passing state, mood, a parameter tried for now (rule G6).
    pub passing: bool,
    /// Cannot be read alone: "that one", "刚才那个" (rule G7).
    pub deictic: bool,
    /// Instruction-like: "ignore previous instructions", role override, exfiltration (rule G8).
    pub instruction: bool,
    /// Orders whoever reads it to do something to the user, their data, money or rights. From the user that is a wish like
    /// any other; from any other source it is instruction-like (rule G8).
    pub directive: bool,
    /// Hidden payload: bidi override, tag characters, zero-width runs (case C081).
    pub hidden: bool,
    /// A durability cue: "from now on", "always", "remember", "以后", "记住" (rule G11).
    pub durable: bool,
    /// Strong wording: "never", "must", "absolutely", "千万", "绝对" (rule G9).
    pub strong: bool,
    /// Tells what is not so: a wish, a jest, a game, what would be if something else were (rule G12).
    pub unreal: bool,
    /// Words that say what the text is about, sorted, without duplicates: stems of Latin words, pairs of ideographs.
    /// Words that only relate ("likes", "lives in", "用户", "喜欢") are not among them (rule G12).
    pub topics: Vec<String>,
    /// Words of others are reported: "my boss said ...", "他说" (rule G12 finer points).
    pub reported: bool,
    /// Speaks of somebody near the user and not of the user: "my brother is ...", "我哥哥..." (rule G12).
    pub of_kin: bool,
    /// Speaks of the user: "I am ...", "我..." (rule G12).
    pub of_user: bool,
    /// Who does what to whom, where the sides cannot be exchanged (rules G12, S5).
    pub relations: Vec<Relation>,
    /// Which way bounds and duties point (rules G12, S5), sorted.
    pub leanings: Vec<Leaning>,
}

/// A word whose two sides cannot be exchanged, and what stands on them: "I owe Lin 500", "茶比咖啡好".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relation {
    /// Canonical form of the word.
    pub word: String,
    /// Stems of the side that acts, sorted; the user is one fixed word.
    pub before: Vec<String>,
    /// Stems of the other side, sorted.
    pub after: Vec<String>,
}

/// Which way a bound, a time or a duty points, and how far a statement reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Leaning {
    /// "At most", "最多".
    AtMost,
    /// "At least", "至少".
    AtLeast,
    /// "Before Friday", "五点之前".
    Earlier,
    /// "After Friday", "五点之后".
    Later,
    /// "Must", "必须".
    Must,
    /// "May", "可以".
    May,
    /// "All", "always", "每", "都".
    Every,
    /// "Some", "sometimes", "有些", "有时".
    Part,
}

impl Leaning {
    /// The way of which this one would say more than it, or something else; none where it says less: what holds of all holds
    /// of some.
    #[must_use]
    pub const fn opposite(self) -> Option<Self> {
        match self {
            Self::AtMost => Some(Self::AtLeast),
            Self::AtLeast => Some(Self::AtMost),
            Self::Earlier => Some(Self::Later),
            Self::Later => Some(Self::Earlier),
            Self::Must => Some(Self::May),
            Self::May => Some(Self::Must),
            Self::Every => Some(Self::Part),
            Self::Part => None,
        }
    }
}

/// Whether a claim exchanges the sides of a relation of its source: something of each side stands on the other, and the
/// source says it nowhere the claim's way.
#[must_use]
pub fn reverses(claim: &[Relation], source: &[Relation]) -> bool {
    let meet = |a: &[String], b: &[String]| a.iter().any(|word| b.binary_search(word).is_ok());
    claim.iter().any(|said| {
        let of_word = || source.iter().filter(|other| other.word == said.word);
        let same = of_word().any(|other| meet(&said.before, &other.before) && meet(&said.after, &other.after));
        !same && of_word().any(|other| meet(&said.before, &other.after) && meet(&said.after, &other.before))
    })
}

/// The leaning of a claim that its source has only the other way round.
#[must_use]
pub fn turns_round(claim: &[Leaning], source: &[Leaning]) -> Option<Leaning> {
    claim.iter().copied().find(|way| {
        let turned = |other: Leaning| source.contains(&other) && !claim.contains(&other);
        !source.contains(way) && way.opposite().is_some_and(turned)
    })
}

/// Pairs of letters that follow each other: how alike two clauses are, in any script.
#[must_use]
pub fn letter_pairs(text: &str) -> BTreeSet<(char, char)> {
    let letters: Vec<char> = text.chars().filter(|c| c.is_alphanumeric()).collect();
    letters.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

/// What a statement says of what, as far as two statements are to be compared (rule K0). Made by `strata_text::aspect`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aspect {
    /// Of whom it is, when not of the user: "my sister", "Bruno".
    pub subject: Option<String>,
    /// Words that say what it is about, as [`TextFeatures::topics`].
    pub topics: BTreeSet<String>,
    /// The topics that are no part of a protected value: "rent" of "my rent is 1200 dollars".
    pub frame: BTreeSet<String>,
    /// Protected values in normal form, with their kinds.
    pub values: BTreeSet<(ValueKind, String)>,
    /// Names that tell which of several things it is about: "Bruno" of "Bruno weighs 12 kg".
    pub heads: BTreeSet<String>,
    /// How the subject stands to it: classes such as `consume`, `live`, `attitude`.
    pub relations: BTreeSet<String>,
    /// Says no.
    pub denies: bool,
    /// Says that something is no longer as it was: "any more", "switched to", "改成", "不再".
    pub changes: bool,
    /// Topics of what it says is over: "coffee" of "I gave up coffee".
    pub former: BTreeSet<String>,
    /// Adds to what was: "also", "too", "也", "还".
    pub adds: bool,
    /// Tells something that happened once.
    pub episode: bool,
    /// Topics of the kind of thing of which there is another one now: "gym" of "I changed gyms".
    pub renewed: BTreeSet<String>,
}

/// Whether words stand in a text: at word borders when they are spelled in ASCII, anywhere when in ideographs.
#[must_use]
pub fn stands_in(text: &str, words: &str) -> bool {
    let bound = |c: Option<char>| !words.is_ascii() || c.is_none_or(|c| !c.is_ascii_alphanumeric());
    text.match_indices(words)
        .any(|(at, _)| bound(text[..at].chars().next_back()) && bound(text[at + words.len()..].chars().next()))
}
