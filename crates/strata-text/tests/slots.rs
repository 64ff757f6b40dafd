//! Holds the registry's wordings (rule K0) against sentences that a person judged before the rules were run on them: more than
//! half of them near misses, since a wrong slot supersedes what is true of the user.
#![expect(clippy::print_stdout, reason = "the numbers are for people")]

use std::collections::BTreeMap;
use strata_core::policy::registry::Registry;
use strata_text::slots::SlotMatcher;

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

/// What was found of a key: rightly, wrongly, and not at all.
#[derive(Default)]
struct Count {
    right: u32,
    wrong: u32,
    missed: u32,
}

/// Prints precision and recall per key and every row that is not as judged; the number of those.
fn wrong_rows(table: &str) -> usize {
    let matcher = SlotMatcher::new(&Registry::builtin()).expect("the built-in registry");
    let mut keys: BTreeMap<String, Count> = BTreeMap::new();
    let (mut rows, mut wrong) = (0, 0);
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        rows += 1;
        let mut columns = line.split('\t');
        let text = unescaped(columns.next().unwrap_or_default());
        let mut judged: Vec<(String, String)> = Vec::new();
        while let Some(key) = columns.next().filter(|key| *key != "-") {
            let values = columns.next().expect("a value behind the key");
            judged.extend(values.split("; ").map(|value| (key.to_owned(), value.to_owned())));
        }
        let found: Vec<(String, String)> =
            matcher.match_all(&text).into_iter().map(|slot| (slot.key.as_str().to_owned(), slot.value)).collect();
        for slot in &found {
            let count = keys.entry(slot.0.clone()).or_default();
            if judged.contains(slot) { count.right += 1 } else { count.wrong += 1 }
        }
        for slot in judged.iter().filter(|slot| !found.contains(slot)) {
            keys.entry(slot.0.clone()).or_default().missed += 1;
        }
        judged.sort();
        let mut sorted = found.clone();
        sorted.sort();
        if sorted != judged {
            wrong += 1;
            println!("judged {judged:?}, found {found:?}: {text}");
        }
    }
    let mut all = Count::default();
    let share = |part: u32, rest: u32| f64::from(part) / f64::from((part + rest).max(1));
    for (key, Count { right, wrong, missed }) in keys {
        println!("{key:<22} precision {:.2} recall {:.2} of {}", share(right, wrong), share(right, missed), right + missed);
        all = Count { right: all.right + right, wrong: all.wrong + wrong, missed: all.missed + missed };
    }
    let Count { right, wrong: filled, missed } = all;
    println!("{rows} rows, {wrong} wrong: precision {:.3} recall {:.3}", share(right, filled), share(right, missed));
    wrong
}

#[test]
fn english_slots_are_the_users_own() {
    assert_eq!(wrong_rows(include_str!("data/slots.en.tsv")), 0);
}

#[test]
fn chinese_slots_are_the_users_own() {
    assert_eq!(wrong_rows(include_str!("data/slots.zh.tsv")), 0);
}
