//! SentencePiece unigram tokeniser: the model file, its normaliser, and the best segmentation.
//!
//! The file is a protocol buffer: pieces with their scores in field 1, the normaliser in field 3, whose compiled character
//! map (field 2) is a double array over UTF-8 followed by the replacements.

use crate::embed::EmbedError;

/// Ids the model gives a meaning.
const UNKNOWN: u32 = 0;
const BEGIN: u32 = 1;
const END: u32 = 2;
/// The mark of a word boundary in pieces.
const BOUNDARY: &[u8] = "\u{2581}".as_bytes();
/// What an unknown character costs below the worst piece.
const UNKNOWN_PENALTY: f32 = 10.0;

pub(super) struct SentencePiece {
    /// Pieces with their ids, sorted by bytes.
    pieces: Vec<(Box<[u8]>, u32)>,
    /// For each first byte, its range in `pieces`.
    by_first: Vec<(usize, usize)>,
    scores: Vec<f32>,
    unknown_score: f32,
    character_map: DoubleArray,
}

fn damaged() -> EmbedError {
    EmbedError::Model("sp.model: is damaged".into())
}

impl SentencePiece {
    /// Reads a model.
    ///
    /// # Errors
    /// [`EmbedError::Model`] when the file is no unigram model.
    pub(super) fn read(model: &[u8]) -> Result<Self, EmbedError> {
        let mut pieces: Vec<(Box<[u8]>, u32)> = Vec::new();
        let (mut scores, mut character_map) = (Vec::new(), DoubleArray::default());
        for field in Fields(model) {
            match field? {
                (1, piece) => {
                    let (mut text, mut score) = (&[][..], 0.0);
                    for field in Fields(piece) {
                        match field? {
                            (1, value) => text = value,
                            (2, value) => score = f32::from_le_bytes(value.try_into().map_err(|_| damaged())?),
                            _ => {}
                        }
                    }
                    let id = u32::try_from(scores.len()).map_err(|_| damaged())?;
                    scores.push(score);
                    if !text.is_empty() {
                        pieces.push((text.into(), id));
                    }
                }
                (3, normaliser) => {
                    for field in Fields(normaliser) {
                        if let (2, map) = field? {
                            character_map = DoubleArray::read(map).ok_or_else(damaged)?;
                        }
                    }
                }
                _ => {}
            }
        }
        if pieces.is_empty() {
            return Err(damaged());
        }
        pieces.sort();
        let by_first = (0..=u8::MAX)
            .map(|byte| (pieces.partition_point(|(p, _)| p[0] < byte), pieces.partition_point(|(p, _)| p[0] <= byte)))
            .collect();
        let unknown_score = scores.iter().copied().fold(f32::MAX, f32::min) - UNKNOWN_PENALTY;
        Ok(Self { pieces, by_first, scores, unknown_score, character_map })
    }

    /// Number of ids.
    pub(super) fn len(&self) -> usize {
        self.scores.len()
    }

    /// Ids of a text, between the ids for begin and end; a text without a piece gives the unknown id.
    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        let text = self.normalise(text);
        if text.is_empty() {
            return vec![BEGIN, UNKNOWN, END];
        }
        // Viterbi: the best score of a segmentation that ends at each byte, and its last piece.
        let mut best = vec![f32::NEG_INFINITY; text.len() + 1];
        let mut last = vec![(0, UNKNOWN); text.len() + 1];
        best[0] = 0.0;
        let mut at = 0;
        while at < text.len() {
            let width = character_width(&text[at..]);
            let mut covered = false;
            self.pieces_at(&text[at..], |length, id| {
                let score = best[at] + self.scores[id as usize];
                if score > best[at + length] {
                    best[at + length] = score;
                    last[at + length] = (at, id);
                }
                covered |= length == width;
            });
            let score = best[at] + self.unknown_score;
            if !covered && score > best[at + width] {
                best[at + width] = score;
                last[at + width] = (at, UNKNOWN);
            }
            at += width;
        }
        let mut ids = vec![END];
        let mut at = text.len();
        while at > 0 {
            let (from, id) = last[at];
            ids.push(id);
            at = from;
        }
        ids.push(BEGIN);
        ids.reverse();
        ids
    }

    /// Calls `found` with length and id of every piece that `text` begins with, shortest first.
    fn pieces_at(&self, text: &[u8], mut found: impl FnMut(usize, u32)) {
        let Some(&first) = text.first() else { return };
        let (mut low, mut high) = self.by_first[usize::from(first)];
        let mut depth = 1;
        while low < high {
            let (piece, id) = &self.pieces[low];
            if piece.len() == depth {
                found(depth, *id);
                low += 1;
            }
            let Some(&next) = text.get(depth) else { return };
            let range = &self.pieces[low..high];
            let from = range.partition_point(|(p, _)| p[depth] < next);
            let to = from + range[from..].partition_point(|(p, _)| p[depth] == next);
            (low, high) = (low + from, low + to);
            depth += 1;
        }
    }

    /// The character map applied, blanks as boundary marks, one in front, none doubled, none at the end.
    fn normalise(&self, text: &str) -> Vec<u8> {
        let mut rest = text.as_bytes();
        let mut out = Vec::with_capacity(text.len() + BOUNDARY.len());
        let mut after_blank = true;
        while !rest.is_empty() {
            let (mut mapped, taken) = self.character_map.longest(rest);
            rest = &rest[taken..];
            while after_blank && mapped.first() == Some(&b' ') {
                mapped = &mapped[1..];
            }
            let Some(&closing) = mapped.last() else { continue };
            if out.is_empty() {
                out.extend_from_slice(BOUNDARY);
            }
            for &byte in mapped {
                if byte == b' ' {
                    out.extend_from_slice(BOUNDARY);
                } else {
                    out.push(byte);
                }
            }
            after_blank = closing == b' ';
        }
        while out.ends_with(BOUNDARY) {
            out.truncate(out.len() - BOUNDARY.len());
        }
        out
    }
}

/// Bytes of the UTF-8 character that `text` begins with.
fn character_width(text: &[u8]) -> usize {
    let width = match text.first() {
        Some(0xf0..) => 4,
        Some(0xe0..) => 3,
        Some(0xc0..) => 2,
        _ => 1,
    };
    width.min(text.len())
}

/// A trie over bytes in the layout of the Darts-clone library, with the texts its leaves stand for.
#[derive(Default)]
struct DoubleArray {
    units: Vec<u32>,
    texts: Vec<u8>,
}

impl DoubleArray {
    /// Length of the units in bytes (4, little endian), the units, the zero-ended texts.
    fn read(map: &[u8]) -> Option<Self> {
        let (length, rest) = map.split_first_chunk::<4>()?;
        let (units, texts) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        Some(Self { units: units.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect(), texts: texts.to_vec() })
    }

    /// Replacement of the longest key that `text` begins with, else its first character; and how many bytes that took.
    fn longest<'a>(&'a self, text: &'a [u8]) -> (&'a [u8], usize) {
        let offset = |unit: u32| ((unit >> 10) << ((unit & 0x200) >> 6)) as usize;
        let mut found = None;
        if let Some(root) = self.units.first() {
            let mut at = offset(*root);
            for (depth, &byte) in text.iter().enumerate() {
                at ^= usize::from(byte);
                let Some(&unit) = self.units.get(at) else { break };
                if unit & 0x8000_00ff != u32::from(byte) {
                    break;
                }
                at ^= offset(unit);
                if unit & 0x100 != 0 {
                    found = self.units.get(at).map(|leaf| ((leaf & 0x7fff_ffff) as usize, depth + 1));
                }
            }
        }
        if let Some((from, taken)) = found
            && let Some(rest) = self.texts.get(from..)
        {
            let length = rest.iter().position(|b| *b == 0).unwrap_or(rest.len());
            return (&rest[..length], taken);
        }
        let width = character_width(text);
        (&text[..width], width)
    }
}

/// Number and content of a protocol buffer's fields; a number's content is empty.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, &'a [u8]), EmbedError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(damaged))
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, &'a [u8])> {
        let tag = self.varint()?;
        let length = match tag & 7 {
            0 => {
                self.varint()?;
                0
            }
            1 => 8,
            2 => usize::try_from(self.varint()?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (content, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some((tag >> 3, content))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}
