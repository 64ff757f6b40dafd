//! Holds the judgement of quotes (rule G2) against what a person said of them, in English and Chinese: half of the rows are
//! near misses that have to stand.
#![expect(clippy::print_stdout, reason = "the numbers are for people")]

use strata_text::quote::stands_in;

/// Least share of rows of each verdict on which the rules and the person agree.
const AGREEMENT: f64 = 0.95;

/// `\n` and `\uXXXX` written out, as the tables spell what cannot be seen.
fn unescaped(text: &str) -> String {
    let text = text.replace("\\n", "\n");
    let mut parts = text.split("\\u");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at(4);
        out.push(u32::from_str_radix(code, 16).ok().and_then(char::from_u32).expect("a character's number"));
        out.push_str(rest);
    }
    out
}

/// Prints the rows on which the rules disagree, and the shares; answers the lower one.
fn agreement(name: &str, table: &str) -> f64 {
    let [mut same, mut all] = [[0_u32; 2]; 2];
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let [verdict, turn, quote] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("three columns: {line}") };
        let expected = verdict == "+";
        let found = stands_in(&unescaped(quote), &unescaped(turn));
        all[usize::from(expected)] += 1;
        if found == expected {
            same[usize::from(expected)] += 1;
        } else {
            println!("{name} {verdict} {turn} | {quote}");
        }
    }
    println!("{name}: {} of {} that do not stand, {} of {} that stand", same[0], all[0], same[1], all[1]);
    assert!(all.iter().all(|rows| *rows > 60), "rows of the table");
    let share = |n: usize| f64::from(same[n]) / f64::from(all[n]);
    share(0).min(share(1))
}

#[test]
fn g2_quotes_are_judged_as_a_person_judges_them() {
    let english = agreement("en", include_str!("data/quotes_en.tsv"));
    let chinese = agreement("zh", include_str!("data/quotes_zh.tsv"));
    assert!(english >= AGREEMENT && chinese >= AGREEMENT, "{english} and {chinese}");
}
