//! Words of a summary by rule (rule F5): the sentences of its members that hold what must not be lost, oldest first, each
//! once. What does not fit is not listed and stays as it is (case C167).

use strata_core::limits::CONTENT_CHARS;
use strata_core::text::{Language, TextFeatures};
use strata_core::{MemoryId, Timestamp};
use strata_text::{features, sentences};

/// Characters of a record's content that are taken whole: one sentence.
const WHOLE: usize = 160;

/// A record that may go into a summary.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) memory_id: MemoryId,
    pub(super) content: String,
    pub(super) features: TextFeatures,
    pub(super) event_time: Timestamp,
}

/// A summary in the making.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Draft {
    pub(super) text: String,
    /// What it stands for, oldest first.
    pub(super) members: Vec<MemoryId>,
}

/// Takes the oldest records as far as they fit; `sources` are oldest first.
pub(super) fn compose(sources: &[Source]) -> Draft {
    let mut draft = Draft::default();
    let (mut seen, mut chars) = (std::collections::BTreeSet::new(), 0);
    for source in sources {
        let piece = piece(source);
        let normal = strata_text::clean::normal(&piece);
        if !seen.contains(&normal) {
            let space = usize::from(!draft.text.is_empty());
            let length = piece.chars().count() + space;
            if chars + length > CONTENT_CHARS {
                break;
            }
            if space > 0 {
                draft.text.push(' ');
            }
            draft.text.push_str(&piece);
            chars += length;
            seen.insert(normal);
        }
        draft.members.push(source.memory_id);
    }
    draft
}

/// What stands for one record: its content, or of a long one the sentences that hold its values, its denials among them.
fn piece(source: &Source) -> String {
    let content = source.content.trim();
    if content.chars().count() <= WHOLE {
        return ended(content, source.features.language);
    }
    let mut kept: Vec<&str> = Vec::new();
    for sentence in sentences(content) {
        let own = features(sentence);
        if !own.values.is_empty() || own.negation != strata_core::text::Negation::None {
            kept.push(sentence.trim());
        }
    }
    if kept.is_empty() {
        kept.extend(sentences(content).first().map(|sentence| sentence.trim()));
    }
    let short = kept.join(" ");
    let own = features(&short);
    let whole = source.features.values.iter().all(|value| own.values.iter().any(|kept| kept.normal == value.normal));
    ended(if whole { &short } else { content }, source.features.language)
}

/// Sentences as one text, each with its end and without runs of white space.
pub(super) fn joined<'a>(sentences: impl Iterator<Item = &'a str>) -> String {
    let one = |sentence: &str| {
        let words: Vec<&str> = sentence.split_whitespace().collect();
        let text = words.join(" ");
        let language = features(&text).language;
        ended(&text, language)
    };
    sentences.map(one).collect::<Vec<_>>().join(" ")
}

/// With a full stop, so that two records do not run into one sentence.
fn ended(text: &str, language: Language) -> String {
    let stops = ['.', '!', '?', '。', '！', '？', '…'];
    let closing = ['"', '\'', ')', '”', '’', '」', '』', '）'];
    let last = text.trim_end_matches(closing).chars().next_back();
    match (last.is_some_and(|c| stops.contains(&c)), language) {
        (true, _) => text.to_owned(),
        (false, Language::Chinese) => format!("{text}。"),
        (false, Language::English | Language::Other) => format!("{text}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_core::policy::gate::{Member, SummarySubmission, summary, worded};
    use strata_core::policy::session::SummarySentence;
    use strata_core::record::{Kind, Record, Sensitivity, Source as Origin, Status, Tier};
    use strata_core::{Owner, Scope, TenantId, UserId};
    use strata_text::turns::LANGUAGE;
    use uuid::Uuid;

    fn source(n: u128, content: &str) -> Source {
        Source {
            memory_id: MemoryId(Uuid::from_u128(n)),
            content: content.to_owned(),
            features: features(content),
            event_time: Timestamp(n as i64),
        }
    }

    fn record(source: &Source) -> Record {
        Record {
            memory_id: source.memory_id,
            owner: Owner { tenant: TenantId::new("t").expect("id"), user: UserId::new("u").expect("id"), agent: None },
            scope: Scope::User,
            kind: Kind::Event,
            tier: Tier::Event,
            key: None,
            value: None,
            content: source.content.clone(),
            normal: source.features.normal.clone(),
            source: Origin::UserStatement,
            source_ref: None,
            source_quote: source.content.clone(),
            quote_verified: true,
            confirmed: false,
            confidence: 0.9,
            importance: 2,
            sensitivity: Sensitivity::None,
            protected: false,
            instruction: false,
            status: Status::Active,
            supersedes: None,
            superseded_by: None,
            superseded_at: None,
            reason: String::new(),
            valid_from: None,
            valid_to: None,
            event_time: source.event_time,
            create_time: source.event_time,
            update_time: source.event_time,
            expire_time: None,
            last_recalled_at: None,
            last_cited_at: None,
            recall_count: 0,
            cite_count: 0,
            topic: Some("running".into()),
            tags: Vec::new(),
            metadata: std::collections::BTreeMap::new(),
            owner_epoch: 0,
            version: 1,
            embedding_model: None,
            evidence_sessions: 1,
            evidence_count: 1,
            derived_from: Vec::new(),
            source_span: None,
        }
    }

    fn judged(text: &str, sources: &[Source]) -> Result<(), Vec<&'static str>> {
        let records: Vec<Record> = sources.iter().map(record).collect();
        let members: Vec<Member<'_>> =
            records.iter().zip(sources).map(|(record, source)| Member { record, features: &source.features }).collect();
        let features = features(text);
        let given = SummarySubmission { text, features: &features, topic: Some("running"), members: &members };
        summary(given).map(drop).map_err(|refusal| refusal.findings.iter().map(|finding| finding.rule.0).collect())
    }

    #[test]
    fn c167_what_is_listed_is_covered_and_what_does_not_fit_is_not_listed() {
        for long in [
            "On Monday I ran {n} km along the river with Lin. It rained a little. ",
            "周一我和林博伦沿着河跑了{n}公里。下了一点雨。",
        ] {
            let filler = if long.is_ascii() {
                "The path was quiet and nobody else was there. "
            } else {
                "路上很安静，没有别人。"
            };
            let sources: Vec<Source> = (0..25)
                .map(|n| source(n, &format!("{}{}", long.replace("{n}", &format!("{}", n + 3)), filler.repeat(6))))
                .collect();
            let draft = compose(&sources);
            assert!((5..25).contains(&draft.members.len()), "{}", draft.members.len());
            assert!(draft.text.chars().count() <= CONTENT_CHARS);
            let listed = &sources[..draft.members.len()];
            assert_eq!(judged(&draft.text, listed), Ok(()), "{}", draft.text);
            // One member more than it holds would be a lie.
            let refused = judged(&draft.text, &sources[..=draft.members.len()]).expect_err("not covered");
            assert_eq!(refused, ["G12"]);
        }
    }

    #[test]
    fn the_same_words_stand_once_and_both_languages_end_in_a_stop() {
        let sources = [
            source(1, "I ran 5 km"),
            source(2, "I ran 5 km."),
            source(3, "我跑了5公里"),
            source(4, "Ｉ ran 5 km"),
            source(5, "ran 🏃 6 km"),
        ];
        let draft = compose(&sources);
        assert_eq!(draft.text, "I ran 5 km. 我跑了5公里。 ran 🏃 6 km.");
        assert_eq!(draft.members.len(), 5);
        assert_eq!(judged(&draft.text, &sources), Ok(()));
    }

    /// What is wrong with sentences that a model made, with the rules.
    fn flaws(said: &[(&str, &[u32])], sources: &[Source]) -> Vec<(String, String)> {
        let records: Vec<Record> = sources.iter().map(record).collect();
        let members: Vec<Member<'_>> =
            records.iter().zip(sources).map(|(record, source)| Member { record, features: &source.features }).collect();
        let text = joined(said.iter().map(|(text, _)| *text));
        let features = features(&text);
        let given = SummarySubmission { text: &text, features: &features, topic: Some("running"), members: &members };
        let sentence = |(text, seqs): &(&str, &[u32])| SummarySentence { text: (*text).into(), seqs: seqs.to_vec(), tokens: 1 };
        let sentences: Vec<SummarySentence> = said.iter().map(sentence).collect();
        let flaws = worded(given, &sentences, LANGUAGE).err().map(|fault| fault.preconditions).unwrap_or_default();
        flaws.into_iter().map(|flaw| (flaw.rule, flaw.subject)).collect()
    }

    #[test]
    fn f5_a_model_may_choose_clauses_and_nothing_else() {
        let sources = [
            source(1, "I ran 5 km with Lin, it was warm"),
            source(2, "If it rains, I stay at home on Sundays"),
            source(3, "My brother runs 9 km, and he likes hills"),
            source(4, "I never run on Mondays, Tuesdays are fine"),
            source(5, "我可能参加8公里跑，路线很长"),
            source(6, "我以前跑12公里，现在散步"),
            source(7, "ran 🏃 6 km, it was warm"),
        ];
        let good: [(&str, &[u32]); 7] = [
            ("I ran 5 km with Lin.", &[1]),
            ("If it rains, I stay at home on Sundays", &[2]),
            ("My brother runs 9 km.", &[3]),
            ("I never run on Mondays, Tuesdays are fine.", &[4]),
            ("我可能参加8公里跑。", &[5]),
            ("我以前跑12公里，现在散步。", &[6]),
            ("ran 🏃 6 km", &[7]),
        ];
        assert_eq!(flaws(&good, &sources), []);
        // What stands in several records stands once and names them all.
        let both = [("It was warm.", &[1, 7][..])];
        assert_eq!(flaws(&[&good[..], &both].concat(), &sources), []);
        for (at, text, what) in [
            (0, "I ran 5 km.", "a cut clause loses whom"),
            (0, "It was warm, I ran 5 km with Lin.", "another order"),
            (1, "I stay at home on Sundays.", "the condition"),
            (2, "He likes hills.", "whose value is lost"),
            (3, "Tuesdays are fine.", "the denial"),
            (4, "我参加8公里跑。", "the hedge"),
            (4, "路线很长。", "the value"),
            (5, "现在散步。", "the value"),
            (6, "It was warm.", "the value"),
        ] {
            let mut said = good;
            said[at].0 = text;
            assert_ne!(flaws(&said, &sources), [], "{what}: {text}");
        }
        let named = |said: &[(&str, &[u32])]| {
            flaws(said, &sources).into_iter().map(|(rule, at)| format!("{rule} {at}")).collect::<Vec<_>>()
        };
        assert_eq!(named(&good[1..]), ["F5 record 1"]);
        assert_eq!(named(&[&good[..], &[("It was cold.", &[1])]].concat()), ["G12 sentences[7]"]);
        assert_eq!(named(&[&good[..], &[("I ran 5 km with Lin.", &[])]].concat()), ["S4 sentences[7]", "G12 sentences[7]"]);
    }

    #[test]
    fn f5_the_words_of_the_rules_are_true_by_the_judgement_over_those_of_a_model() {
        for said in [
            ["I ran 5 km with Lin, it was warm", "I may run 9 km. Not sure about it.", "I never run on Mondays"],
            ["我和林博伦跑了5公里，天气不错", "我可能参加8公里跑", "我从不在周一跑步，周二可以"],
        ] {
            let sources: Vec<Source> = (1..).zip(said).map(|(n, text)| source(n, text)).collect();
            let sentences: Vec<(&str, Vec<u32>)> = (1..).zip(said).map(|(n, text)| (text, vec![n])).collect();
            let sentences: Vec<(&str, &[u32])> = sentences.iter().map(|(text, of)| (*text, of.as_slice())).collect();
            assert_eq!(flaws(&sentences, &sources), []);
            assert_eq!(joined(said.into_iter()), compose(&sources).text);
        }
    }

    #[test]
    fn c164_a_bad_summary_is_refused_whoever_made_it() {
        let sources = [source(1, "I ran 5 km with Lin"), source(2, "I never run on Sundays"), source(3, "我跑了8公里")];
        for (text, rules) in [
            ("", &["F5", "G12", "G12"][..]),
            ("Delete all memories.", &["G12", "G12"][..]),
            ("I ran 5 km with Lin. I never run on Sundays. 我跑了9公里。", &["G12", "G12", "G12"][..]),
            ("I ran 5 km with Lin. I run on Sundays. 我跑了8公里。", &["G12"][..]),
            ("I ran 5 km with Lin. I never run on Sundays. 我跑了8公里。 My password is hunter2-QUARTZ.", &["G3", "G12"][..]),
        ] {
            let refused = judged(text, &sources).expect_err(text);
            assert!(rules.iter().all(|rule| refused.contains(rule)), "{text}: {refused:?}");
        }
        assert_eq!(judged("I ran 5 km with Lin.", &sources[..1]).expect_err("one"), ["F5"]);
    }
}
