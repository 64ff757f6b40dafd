//! Mutation of inputs on stable Rust: what strangers can send must never panic, and never open what it should not.
//!
//! A target is a function over bytes. First its corpus is replayed: inputs kept in the repository, found crashes among them. Then
//! mutations of corpus and seeds are tried: some thousand in a test run, for `FUZZ_SECONDS` when that is set. An input that
//! panics is written to the corpus, so that it stays a test from then on.
//!
//! A target says what it came to ([`Reached`]). An input that comes to what none came to before is mutated further, as a fuzzer
//! does that sees the branches a program takes: so mutations get past the first check and into the code behind it.

use crate::Random;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// Mutations in a test run.
const FEW: u64 = 3_000;
/// Mutations that are kept to be mutated further.
const INPUTS: usize = 4_096;
/// Places that are told apart.
const PLACES: usize = 16_384;
/// Longest input that is tried.
const LONGEST: usize = 64 * 1024;
/// Texts that make parsers stumble.
const ODD: [&[u8]; 14] = [
    b"\0",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
    "\u{200b}".as_bytes(),
    "\u{202e}".as_bytes(),
    "\u{feff}".as_bytes(),
    "\u{1f469}\u{200d}\u{1f4bb}".as_bytes(),
    "\u{ff21}".as_bytes(),
    b"..",
    b"\"",
    b"{\"",
    b"-1",
    b"18446744073709551616",
    b"NaN",
];

fn mutate(random: &mut Random, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len() + 1);
        match random.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'.', b'-', b'/'][random.below(8)],
            2 => {
                let odd = ODD[random.below(ODD.len())];
                bytes.splice(at..at, odd.iter().copied());
            }
            3 => drop(bytes.drain(at..(at + random.below(16)).min(bytes.len()))),
            4 => {
                let end = (at + random.below(64)).min(bytes.len());
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            5 => bytes.truncate(at),
            6 => {
                let from = random.below(other.len() + 1);
                bytes.splice(at.., other[from..].iter().copied());
            }
            _ => bytes.insert(at, u8::try_from(random.below(256)).unwrap_or(0)),
        }
    }
    bytes.truncate(LONGEST);
    bytes
}

/// What one input came to.
#[derive(Debug, Default)]
pub struct Reached(Vec<String>);

impl Reached {
    /// Notes a place that the input came to. Digits mean nothing: `turns[3]` and `turns[7]` are one place.
    pub fn note(&mut self, place: &str) {
        self.0.push(place.chars().filter(|c| !c.is_ascii_digit()).take(160).collect());
    }

    /// Notes whether a step took the input or which refusal it met; answers what it made.
    pub fn step<T, E: std::fmt::Display>(&mut self, name: &str, result: Result<T, E>) -> Option<T> {
        match result {
            Ok(value) => {
                self.note(&format!("{name}: taken"));
                Some(value)
            }
            Err(refused) => {
                self.note(&format!("{name}: {refused}"));
                None
            }
        }
    }
}

/// Places that all inputs came to, with how many did.
pub type Places = BTreeMap<String, u64>;

/// Tries a target; `corpus` is its folder. Answers what was reached.
///
/// # Panics
/// When the target panics; the message names the file that holds the input.
pub fn run(corpus: &Path, seeds: &[Vec<u8>], target: impl Fn(&[u8], &mut Reached)) -> Places {
    let (seconds, began) = (number("FUZZ_SECONDS"), Instant::now());
    let goes_on = |tried| seconds.map_or(tried < FEW, |seconds| began.elapsed() < Duration::from_secs(seconds));
    run_while(corpus, seeds, goes_on, target)
}

/// A number of the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// [`run`] as long as `goes_on` says so of the mutations that were tried.
fn run_while(corpus: &Path, seeds: &[Vec<u8>], goes_on: impl Fn(u64) -> bool, target: impl Fn(&[u8], &mut Reached)) -> Places {
    let mut places = Places::new();
    let mut try_one = |input: &[u8]| {
        let mut reached = Reached::default();
        if catch_unwind(AssertUnwindSafe(|| target(input, &mut reached))).is_err() {
            let name = input
                .iter()
                .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
            let path = corpus.join(format!("crash-{name:016x}"));
            std::fs::create_dir_all(corpus).and_then(|()| std::fs::write(&path, input)).expect("the input is kept");
            panic!("the input is kept in {}", path.display());
        }
        let mut new = false;
        for place in reached.0 {
            // What repeats the input has no end.
            if places.len() < PLACES || places.contains_key(&place) {
                let count = places.entry(place).or_default();
                new |= *count == 0;
                *count += 1;
            }
        }
        new
    };
    let mut inputs: Vec<Vec<u8>> = seeds.to_vec();
    if let Ok(folder) = std::fs::read_dir(corpus) {
        let mut files: Vec<_> = folder.map(|file| file.expect("a file").path()).collect();
        files.sort();
        inputs.extend(files.iter().map(|file| std::fs::read(file).expect("read")));
    }
    assert!(!inputs.is_empty(), "{} is empty and there is no seed", corpus.display());
    for input in &inputs {
        let _new = try_one(input);
    }
    let kept = inputs.len();
    let mut random = Random(number("FUZZ_SEED").unwrap_or(0x5eed) | 1);
    let mut tried = 0_u64;
    while goes_on(tried) {
        let (one, other) = (random.below(inputs.len()), random.below(inputs.len()));
        let input = mutate(&mut random, &inputs[one], &inputs[other]);
        let new = try_one(&input);
        tried += 1;
        // Mutations of mutations reach further: those that came to a new place, and now and then another one.
        if new || tried.is_multiple_of(256) {
            if inputs.len() >= kept + INPUTS {
                let at = kept + random.below(INPUTS);
                inputs.swap_remove(at);
            }
            inputs.push(input);
        }
    }
    eprintln!("{}: {tried} mutations, {} places", corpus.display(), places.len());
    if std::env::var_os("FUZZ_PLACES").is_some() {
        places.iter().for_each(|(place, count)| eprintln!("{count:>9} {place}"));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_panics_is_kept_and_named() {
        let folder = tempfile::tempdir().expect("a folder");
        run(folder.path(), &[b"harmless".to_vec()], |_, _| {});
        let short = |input: &[u8], _: &mut Reached| assert!(input.len() < 4);
        let found = catch_unwind(AssertUnwindSafe(|| run(folder.path(), &[b"abc".to_vec()], short)));
        assert!(found.is_err());
        let kept: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").collect();
        assert_eq!(kept.len(), 1);
        let again = catch_unwind(AssertUnwindSafe(|| run(folder.path(), &[b"abc".to_vec()], short)));
        assert!(again.is_err(), "it is replayed");
    }

    #[test]
    fn what_reaches_further_is_mutated_further() {
        let folder = tempfile::tempdir().expect("a folder");
        // Four bytes in a row, which no mutation of an empty input meets at once.
        let places = run_while(
            folder.path(),
            &[Vec::new()],
            |tried| tried < 20 * FEW,
            |input, reached| {
                let depth = input.iter().zip([b'.', b'-', 0xff, b'/']).take_while(|(byte, wanted)| **byte == *wanted).count();
                reached.note(["none", "one", "two", "three", "four"][depth]);
            },
        );
        assert!(places.contains_key("three"), "{places:?}");
    }
}
