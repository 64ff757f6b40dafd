//! Change of topic (rule S7): a dialogue has gone on to something else when two content turns in a row are unlike the mean of
//! the four before them. What a turn means is a vector of the embedder, and how unlike is unlike enough is the embedder's own
//! threshold; without one no topic ends.

/// Content turns whose mean a new one is held against.
pub const TOPIC_MEAN: usize = 4;
/// Turns that a topic has at least.
pub const TOPIC_TURNS: u32 = 6;

/// A turn that says something, with its vector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContentTurn<'a> {
    /// Turn number.
    pub seq: u32,
    /// All of one embedder.
    pub vector: &'a [f32],
}

/// The last turns of the topics that ended, ascending. `turns` are content turns in order of number. `before` is the last turn
/// of the topic that ended last; zero before the first one. A pair of turns whose second is not after `judged` was judged
/// before. `threshold` is the least cosine of a turn with the mean of its own topic.
///
/// Both turns are held against the same four: the first unlike one is no part of the topic until the second one is like it.
/// The topic ends with the turn right before them, so that the small talk in between is the old topic's.
#[must_use]
pub fn topics_ended(turns: &[ContentTurn<'_>], before: u32, judged: u32, threshold: f32) -> Vec<u32> {
    let mut ended = Vec::new();
    let mut before = before;
    let mut start = turns.partition_point(|turn| turn.seq <= before);
    let mut at = start + TOPIC_MEAN;
    while at + 1 < turns.len() {
        let last = turns[at].seq.saturating_sub(1);
        let is_new = turns[at + 1].seq > judged;
        if is_new && at >= start + TOPIC_MEAN && last.saturating_sub(before) >= TOPIC_TURNS {
            let mean = mean(&turns[at - TOPIC_MEAN..at]);
            if [at, at + 1].into_iter().all(|i| cosine(turns[i].vector, &mean) < threshold) {
                ended.push(last);
                before = last;
                start = at;
                at += TOPIC_MEAN;
                continue;
            }
        }
        at += 1;
    }
    ended
}

fn mean(turns: &[ContentTurn<'_>]) -> Vec<f32> {
    let mut sum = vec![0.0; turns.first().map_or(0, |turn| turn.vector.len())];
    for turn in turns {
        sum.iter_mut().zip(turn.vector).for_each(|(sum, x)| *sum += x);
    }
    sum
}

/// Cosine of two vectors. Vectors of different spaces, and one without length, are taken for alike: they say nothing of a change.
fn cosine(a: &[f32], b: &[f32]) -> f32 {
    if a.len() != b.len() {
        return 1.0;
    }
    let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f32>();
    let length = (dot(a, a) * dot(b, b)).sqrt();
    if length > 0.0 { dot(a, b) / length } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [u32; 0] = [];
    const A: [f32; 3] = [1.0, 0.0, 0.0];
    const B: [f32; 3] = [0.0, 1.0, 0.0];
    const C: [f32; 3] = [0.0, 0.0, 1.0];

    /// Content turns in order; a dot is a turn that says nothing.
    fn turns(topics: &str) -> Vec<ContentTurn<'static>> {
        let vector = |topic| match topic {
            'a' => Some(&A[..]),
            'b' => Some(&B[..]),
            'c' => Some(&C[..]),
            _ => None,
        };
        (1..).zip(topics.chars()).filter_map(|(seq, topic)| Some(ContentTurn { seq, vector: vector(topic)? })).collect()
    }

    fn ended(topics: &str, before: u32) -> Vec<u32> {
        topics_ended(&turns(topics), before, 0, 0.3)
    }

    #[test]
    fn a43_two_unlike_turns_in_a_row_end_a_topic() {
        assert_eq!(ended("aaaaaabb", 0), [6]);
        assert_eq!(ended("aaaaaab", 0), NONE, "one alone does not");
        assert_eq!(ended("aaaaaabaaaabaa", 0), NONE, "nor two that are not in a row");
        assert_eq!(ended("aaaaaabc", 0), [6], "each is unlike the old topic");
        assert_eq!(ended("aaaaaa..b.b", 0), [8], "what says nothing in between is the old topic's, and parts no pair");
    }

    #[test]
    fn a43_topics_are_six_turns_apart() {
        assert_eq!(ended("aaaabb", 0), NONE, "four turns are no topic yet");
        assert_eq!(ended("aaaabbb", 0), NONE, "and then the new turns are part of it");
        assert_eq!(ended("aaaa..bb", 0), [6]);
        assert_eq!(ended("aaaaaabbbbcc", 0), [6], "the second change comes too soon");
        assert_eq!(ended("aaaaaabbbbbbcc", 0), [6, 12]);
        assert_eq!(ended("aaaaaabbbbbbcc", 6), [12], "what ended before does not end again");
    }

    #[test]
    fn a43_four_content_turns_are_needed_and_pairs_are_judged_once() {
        assert_eq!(ended("a.a.a...bb", 0), NONE);
        let all = turns("aaaaaabbbbbbcc");
        for judged in 0..=14 {
            let expected: Vec<u32> = [(6, 8), (12, 14)].into_iter().filter(|(_, at)| *at > judged).map(|(end, _)| end).collect();
            let before = if judged >= 8 { 6 } else { 0 };
            assert_eq!(topics_ended(&all, before, judged, 0.3), expected, "{judged}");
        }
        assert_eq!(topics_ended(&[], 0, 0, 0.3), NONE);
    }

    #[test]
    fn a43_the_threshold_is_the_embedders_and_other_spaces_say_nothing() {
        let half = [0.5, 0.866_025_4, 0.0];
        let mut like: Vec<ContentTurn<'_>> = turns("aaaaaa");
        like.extend([7, 8].map(|seq| ContentTurn { seq, vector: &half }));
        assert_eq!(topics_ended(&like, 0, 0, 0.45), NONE);
        assert_eq!(topics_ended(&like, 0, 0, 0.55), [6]);
        let mut other = turns("aaaaaa");
        other.extend([7, 8].map(|seq| ContentTurn { seq, vector: &B[..2] }));
        assert_eq!(topics_ended(&other, 0, 0, 0.3), NONE);
        let mut nothing = turns("aaaaaa");
        nothing.extend([7, 8].map(|seq| ContentTurn { seq, vector: &[0.0; 3] }));
        assert_eq!(topics_ended(&nothing, 0, 0, 0.3), NONE);
    }
}
