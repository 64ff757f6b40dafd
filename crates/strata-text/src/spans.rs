//! Spans that do not overlap, found in order of preference.

use crate::clean::Cleaned;
use std::collections::BTreeMap;
use std::ops::Range;

/// Finds so far; an earlier one keeps its place where spans overlap. Logarithmic per find, so that a turn full of numbers
/// costs no more than one of words.
pub(crate) struct Disjoint<T>(BTreeMap<usize, (usize, T)>);

impl<T> Disjoint<T> {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Whether a span is not empty and overlaps none.
    pub(crate) fn is_free(&self, span: &Range<usize>) -> bool {
        !span.is_empty() && self.0.range(..span.end).next_back().is_none_or(|(_, (end, _))| *end <= span.start)
    }

    /// Adds a find where it is free.
    pub(crate) fn add(&mut self, span: Range<usize>, find: T) {
        if self.is_free(&span) {
            self.0.insert(span.start, (span.end, find));
        }
    }

    /// The finds, in text order.
    fn into_iter(self) -> impl Iterator<Item = (Range<usize>, T)> {
        self.0.into_iter().map(|(start, (end, find))| (start..end, find))
    }
}

impl<T> Disjoint<T> {
    /// The finds with their spans in the original, in text order. Of two finds in one original character ("½" reads as 1/2)
    /// the first stays.
    pub(crate) fn into_original(self, cleaned: &Cleaned) -> impl Iterator<Item = (Range<usize>, T)> {
        let mut end = 0;
        self.into_iter().filter_map(move |(span, find)| {
            let span = cleaned.original(span);
            (span.start >= end && !span.is_empty()).then(|| {
                end = span.end;
                (span, find)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_find_keeps_its_place() {
        let mut finds = Disjoint::new();
        for (span, name) in [
            (5..9, "a"),
            (0..5, "b"),
            (8..12, "over the end"),
            (4..6, "over the start"),
            (6..7, "inside"),
            (0..20, "around"),
            (3..3, "empty"),
            (9..10, "c"),
        ] {
            finds.add(span, name);
        }
        assert_eq!(finds.into_iter().collect::<Vec<_>>(), [(0..5, "b"), (5..9, "a"), (9..10, "c")]);
    }
}
