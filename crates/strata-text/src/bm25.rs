//! BM25 weights, in the wire form of Qdrant's sparse vectors: the document side carries the saturated, length-normed
//! term frequency, the query side the owner's IDF (rule R3). The local index uses the same numbers, so both rank alike.

use crate::Terms;

/// Term frequency saturation.
pub const K1: f32 = 1.2;
/// Share of length normalisation.
pub const B: f32 = 0.75;
/// Average length of a memory in words: one sentence. A constant, so that a stored weight never goes stale.
pub const AVERAGE_LENGTH: f32 = 16.0;

/// Weight of each term of a document, ascending by hash: `tf (k1 + 1) / (tf + k1 (1 - b + b length / average))`, above 0
/// and below `k1 + 1`.
#[must_use]
pub fn document_weights(terms: &Terms, average_length: f32) -> Vec<(u32, f32)> {
    let norm = K1 * (1.0 - B + B * terms.length as f32 / average_length.max(1.0));
    terms
        .counts
        .iter()
        .map(|(hash, count)| {
            let tf = *count as f32;
            (*hash, tf * (K1 + 1.0) / (tf + norm))
        })
        .collect()
}

/// Weights of a turn of a dialogue: as [`document_weights`], but a turn shorter than a sentence weighs as one. "Jon, same
/// here!" is not about Jon because it is short (rule R14).
#[must_use]
pub fn turn_weights(terms: &Terms) -> Vec<(u32, f32)> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let length = terms.length.max(AVERAGE_LENGTH as u32);
    document_weights(&Terms { counts: terms.counts.clone(), length }, AVERAGE_LENGTH)
}

/// Inverse document frequency of a term that `matching` of `documents` hold: `ln(1 + (n - m + .5) / (m + .5))`, above 0.
#[must_use]
pub fn idf(documents: u64, matching: u64) -> f32 {
    let (n, m) = (documents as f64, matching.min(documents) as f64);
    (1.0 + (n - m + 0.5) / (m + 0.5)).ln() as f32
}

/// Largest score a query could get: every term at full saturation.
#[must_use]
pub fn ceiling(query_idf: impl IntoIterator<Item = f32>) -> f32 {
    query_idf.into_iter().sum::<f32>() * (K1 + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_weights() {
        let terms = Terms { counts: vec![(1, 1), (2, 3)], length: 16 };
        let weights = document_weights(&terms, AVERAGE_LENGTH);
        assert!((weights[0].1 - 1.0).abs() < 1e-6, "tf 1 at average length weighs 1");
        assert!((weights[1].1 - 3.0 * 2.2 / 4.2).abs() < 1e-6);
        let long = document_weights(&Terms { counts: vec![(1, 1)], length: 160 }, AVERAGE_LENGTH);
        assert!(long[0].1 < weights[0].1);
        let short = Terms { counts: vec![(1, 1)], length: 2 };
        assert!(document_weights(&short, AVERAGE_LENGTH)[0].1 > 1.0);
        assert!((turn_weights(&short)[0].1 - 1.0).abs() < 1e-6, "a short turn gains nothing by being short");
        assert_eq!(turn_weights(&Terms { counts: vec![(1, 1)], length: 160 }), long);
    }

    #[test]
    fn idf_falls_with_frequency_and_stays_positive() {
        assert!(idf(100, 1) > idf(100, 50));
        assert!(idf(100, 100) > 0.0);
        assert!(idf(1, 5) > 0.0);
        assert!((idf(10, 0) - (22.0_f32).ln()).abs() < 1e-6);
    }
}
