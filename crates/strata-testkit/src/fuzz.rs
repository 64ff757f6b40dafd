//! Mutation of inputs on stable Rust: what strangers can send must never panic, and never open what it should not.
//!
//! A target is a function over bytes. First its corpus is replayed: inputs kept in the repository, found crashes among them. Then
//! mutations of corpus and seeds are tried: some thousand in a test run, for `FUZZ_SECONDS` when that is set. An input that
//! panics is written to the corpus, so that it stays a test from then on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// Mutations in a test run.
const FEW: u64 = 3_000;
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

/// xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        if end == 0 { 0 } else { usize::try_from(self.0 % end as u64).unwrap_or(0) }
    }
}

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

/// Tries a target; `corpus` is its folder.
///
/// # Panics
/// When the target panics; the message names the file that holds the input.
pub fn run(corpus: &Path, seeds: &[Vec<u8>], target: impl Fn(&[u8])) {
    let try_one = |input: &[u8]| {
        if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
            let name = input
                .iter()
                .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
            let path = corpus.join(format!("crash-{name:016x}"));
            std::fs::create_dir_all(corpus).and_then(|()| std::fs::write(&path, input)).expect("the input is kept");
            panic!("the input is kept in {}", path.display());
        }
    };
    let mut inputs: Vec<Vec<u8>> = seeds.to_vec();
    if let Ok(folder) = std::fs::read_dir(corpus) {
        let mut files: Vec<_> = folder.map(|file| file.expect("a file").path()).collect();
        files.sort();
        inputs.extend(files.iter().map(|file| std::fs::read(file).expect("read")));
    }
    assert!(!inputs.is_empty(), "{} is empty and there is no seed", corpus.display());
    inputs.iter().for_each(|input| try_one(input));
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (seconds, began) = (number("FUZZ_SECONDS"), Instant::now());
    let mut random = Random(number("FUZZ_SEED").unwrap_or(0x5eed) | 1);
    let mut tried = 0_u64;
    while seconds.map_or(tried < FEW, |seconds| began.elapsed() < Duration::from_secs(seconds)) {
        let (one, other) = (random.below(inputs.len()), random.below(inputs.len()));
        let input = mutate(&mut random, &inputs[one], &inputs[other]);
        try_one(&input);
        tried += 1;
        // Mutations of mutations reach further; a bounded part of them is kept.
        if tried.is_multiple_of(64) {
            if inputs.len() > 512 {
                let at = inputs.len() - 1 - random.below(256);
                inputs.swap_remove(at);
            }
            inputs.push(input);
        }
    }
    eprintln!("{}: {tried} mutations", corpus.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_panics_is_kept_and_named() {
        let folder = tempfile::tempdir().expect("a folder");
        run(folder.path(), &[b"harmless".to_vec()], |_| {});
        let found = catch_unwind(AssertUnwindSafe(|| run(folder.path(), &[b"abc".to_vec()], |input| assert!(input.len() < 4))));
        assert!(found.is_err());
        let kept: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").collect();
        assert_eq!(kept.len(), 1);
        let again = catch_unwind(AssertUnwindSafe(|| run(folder.path(), &[b"abc".to_vec()], |input| assert!(input.len() < 4))));
        assert!(again.is_err(), "it is replayed");
    }
}
