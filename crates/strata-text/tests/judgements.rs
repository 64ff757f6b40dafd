//! Holds the table of rule S2 against 200 turns in each language that a person judged before the rules were run on them.
#![expect(clippy::print_stdout, reason = "the numbers are for people")]

use std::collections::BTreeMap;
use strata_core::Timestamp;
use strata_core::policy::session::{Role, Turn, View, judge};
use strata_text::tokens;
use strata_text::turns::turn_cues;

/// Least share of turns on which the rules and the person agree.
const AGREEMENT: f64 = 0.90;

/// `\uXXXX` written out, as the tables spell what cannot be seen.
fn unescaped(text: &str) -> String {
    let mut parts = text.split("\\u");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at(4);
        out.push(u32::from_str_radix(code, 16).ok().and_then(char::from_u32).expect("a character's number"));
        out.push_str(rest);
    }
    out
}

fn turn(seq: u32, who: &str, text: &str, call: &mut u32) -> Turn {
    let role = match who.chars().next() {
        Some('U') => Role::User,
        Some('T') => Role::Tool,
        _ => Role::Assistant,
    };
    if who.starts_with('C') {
        *call = seq;
    }
    let text = unescaped(text);
    Turn {
        seq,
        role,
        tokens: tokens::count(&text),
        text,
        tool_call_id: who.starts_with(['C', 'T']).then(|| format!("call-{call}")),
        pinned: who.ends_with('P'),
        time: Timestamp(i64::from(seq)),
        client_time: None,
        speaker: String::new(),
        external_id: String::new(),
        redacted: 0,
    }
}

/// Share of the turns on which the rules agree with the table's judgements; prints the others.
fn agreement(table: &str) -> f64 {
    let lines: String = table.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let (mut same, mut all) = (0, 0);
    let mut rows: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for dialogue in lines.split("\n\n").map(str::trim).filter(|dialogue| !dialogue.is_empty()) {
        let mut call = 0;
        let mut judged = Vec::new();
        let mut turns = Vec::new();
        for (at, line) in dialogue.lines().enumerate() {
            let [rule, who, text] = line.splitn(3, '\t').collect::<Vec<_>>()[..] else { panic!("three columns: {line}") };
            judged.push(rule);
            turns.push(turn(at as u32 + 1, who, text, &mut call));
        }
        let cues: Vec<_> = turns.iter().map(|turn| turn_cues(&turn.text, turn.role)).collect();
        let views: Vec<View<'_>> = turns.iter().zip(&cues).map(|(turn, cues)| View { turn, cues }).collect();
        for (verdict, (rule, turn)) in judge(&views).iter().zip(judged.iter().zip(&turns)) {
            let row = rows.entry(rule).or_default();
            row.1 += 1;
            all += 1;
            if verdict.rule.0 == *rule {
                row.0 += 1;
                same += 1;
            } else {
                println!("{rule} by the person, {} by the rules: {}", verdict.rule.0, turn.text);
            }
        }
    }
    assert_eq!(all, 200, "turns in the table");
    println!("{rows:?}");
    f64::from(same) / f64::from(all)
}

#[test]
fn s2_the_rules_judge_english_turns_as_a_person_did() {
    let share = agreement(include_str!("data/judgements.en.tsv"));
    assert!(share >= AGREEMENT, "{share:.3}");
    println!("{share:.3}");
}

#[test]
fn s2_the_rules_judge_chinese_turns_as_a_person_did() {
    let share = agreement(include_str!("data/judgements.zh.tsv"));
    assert!(share >= AGREEMENT, "{share:.3}");
    println!("{share:.3}");
}
