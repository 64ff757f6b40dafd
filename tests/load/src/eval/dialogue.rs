//! Files of dialogues: JSON Lines, read one dialogue at a time.

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::Deserialize;
use std::{
    fs::File,
    io::{BufRead as _, BufReader, Lines},
    iter::Peekable,
    path::Path,
};

/// Something said.
#[derive(Clone, Debug, Deserialize)]
pub struct Turn {
    /// Id, unique in the dialogue.
    pub id: String,
    /// Session; empty: the only one.
    #[serde(default)]
    pub session: String,
    /// Who spoke.
    #[serde(default)]
    pub speaker: String,
    /// `user` or `assistant`.
    pub role: String,
    /// When, ISO 8601; without a zone it is read as UTC.
    #[serde(default)]
    pub time: Option<String>,
    /// What.
    pub text: String,
    /// Annotated values that stand letter for letter in the text.
    #[serde(default)]
    pub values: Vec<String>,
}

/// A question.
#[derive(Clone, Debug, Deserialize)]
pub struct Query {
    /// What is asked.
    pub text: String,
    /// Ids of the turns that hold the evidence.
    #[serde(default)]
    pub gold: Vec<String>,
    /// Class of the question.
    #[serde(default)]
    pub category: String,
    /// Nothing in the dialogue answers it.
    #[serde(default)]
    pub abstain: bool,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line {
    Meta { dialogue: String },
    Turn(Turn),
    Query(Query),
}

/// One dialogue.
#[derive(Clone, Debug, Default)]
pub struct Dialogue {
    /// Name.
    pub name: String,
    /// What was said, in order.
    pub turns: Vec<Turn>,
    /// What is asked, after everything was said.
    pub queries: Vec<Query>,
}

impl Dialogue {
    /// Turns and queries.
    pub fn steps(&self) -> usize {
        self.turns.len() + self.queries.len()
    }
}

/// The dialogues of a file, one in memory at a time.
pub struct Reader {
    lines: Peekable<Lines<BufReader<File>>>,
    number: usize,
}

impl Reader {
    /// Opens.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
        Ok(Self { lines: BufReader::new(file).lines().peekable(), number: 0 })
    }

    fn dialogue(&mut self) -> Result<Dialogue> {
        let mut dialogue: Option<Dialogue> = None;
        while let Some(line) = self.lines.peek() {
            let text = line.as_ref().map_err(|error| anyhow!("line {}: {}", self.number + 1, error.kind()))?;
            let parsed = if text.trim().is_empty() {
                None
            } else {
                Some(serde_json::from_str(text).with_context(|| format!("line {}", self.number + 1))?)
            };
            if dialogue.is_some() && matches!(parsed, Some(Line::Meta { .. })) {
                break;
            }
            self.number += 1;
            self.lines.next();
            match (parsed, &mut dialogue) {
                (None, _) => {}
                (Some(Line::Meta { dialogue: name }), _) => dialogue = Some(Dialogue { name, ..Dialogue::default() }),
                (Some(Line::Turn(turn)), Some(dialogue)) => dialogue.turns.push(turn),
                (Some(Line::Query(query)), Some(dialogue)) => dialogue.queries.push(query),
                (Some(Line::Turn(_) | Line::Query(_)), None) => {
                    return Err(anyhow!("line {}: no meta line before it", self.number));
                }
            }
        }
        let dialogue = dialogue.context("no dialogue")?;
        ensure!(!dialogue.turns.is_empty(), "dialogue {} has no turns", dialogue.name);
        Ok(dialogue)
    }
}

impl Iterator for Reader {
    type Item = Result<Dialogue>;

    fn next(&mut self) -> Option<Self::Item> {
        self.lines.peek()?;
        let dialogue = self.dialogue();
        if dialogue.is_err() {
            // What follows a malformed line is not read as something else.
            while self.lines.next().is_some() {}
        }
        Some(dialogue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn read(text: &str) -> Vec<Result<Dialogue>> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("a file");
        Reader::open(file.path()).expect("a reader").collect()
    }

    const TWO: &str = r#"{"type":"meta","dialogue":"a","set":"s","language":"en","licence":"x"}
{"type":"turn","id":"1","session":"s","seq":1,"speaker":"Ada","role":"user","time":null,"text":"hello","values":["hello"]}

{"type":"query","id":"q","text":"who?","gold":["1"],"category":"c","answer":"Ada","abstain":false}
{"type":"meta","dialogue":"b"}
{"type":"turn","id":"1","role":"assistant","text":"你好"}
"#;

    #[test]
    fn dialogues_are_read_one_after_another() {
        let dialogues: Vec<_> = read(TWO).into_iter().collect::<Result<_>>().expect("two dialogues");
        assert_eq!(
            dialogues.iter().map(|d| (d.name.as_str(), d.turns.len(), d.queries.len())).collect::<Vec<_>>(),
            [("a", 1, 1), ("b", 1, 0)]
        );
        assert_eq!(
            (dialogues[0].turns[0].values.clone(), dialogues[1].turns[0].text.as_str()),
            (vec!["hello".to_owned()], "你好")
        );
    }

    #[test]
    fn the_set_of_paraphrases_is_as_large_as_it_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/paraphrase/paraphrase.jsonl");
        let dialogues: Vec<_> = Reader::open(&path).expect("a reader").collect::<Result<_>>().expect("one dialogue");
        let set = &dialogues[0];
        assert_eq!((dialogues.len(), set.turns.len(), set.queries.len()), (1, 600, 200));
        let of = |category: &str| set.queries.iter().filter(|q| q.category == category).count();
        assert_eq!(["en", "zh", "across", "mixed"].map(of), [70, 70, 40, 20]);
        let ids: HashSet<&str> = set.turns.iter().map(|t| t.id.as_str()).collect();
        let texts: HashSet<&str> = set.turns.iter().map(|t| t.text.as_str()).collect();
        let gold: HashSet<&str> = set.queries.iter().flat_map(|q| q.gold.iter().map(String::as_str)).collect();
        assert_eq!((ids.len(), texts.len(), gold.len()), (600, 600, 200), "ids, texts and evidence differ");
        assert!(gold.is_subset(&ids));
    }

    #[test]
    fn a_malformed_line_is_named_and_ends_the_file() {
        for (text, why) in
            [("{\"type\":\"turn\",\"id\":\"1\",\"role\":\"user\",\"text\":\"x\"}\n", "no meta"), ("nonsense\n{}\n", "line 1")]
        {
            let mut read = read(text);
            assert_eq!(read.len(), 1);
            let error = format!("{:#}", read.remove(0).expect_err("malformed"));
            assert!(error.contains(why), "{error}");
        }
    }
}
