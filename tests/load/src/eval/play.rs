//! Plays one dialogue: turns are appended, then questions asked, sentences proposed or the session compressed, by set.

use super::{
    dialogue::{Dialogue, Turn},
    metrics::{SetMetrics, ValueFate},
};
use crate::agent::Agent;
use anyhow::{Context as _, Result};
use std::{collections::HashMap, time::Duration};
use strata_api::{
    error::fault,
    longterm::v1 as longterm,
    session::v1::{self as session, Role},
};
use strata_core::limits::{APPEND_TURNS, CONTENT_CHARS, QUERY_CHARS, TURN_BYTES};
use strata_runtime::{
    RpcChannel,
    ports::{Stopwatch, pause},
};
use tonic::Code;

/// Hits of a search: the deepest recall that is told.
const HITS: i32 = 50;
/// Turns that stay verbatim when a session is compressed.
const KEEP: i32 = 4;
/// Turns from which a dialogue counts as long when tokens are compared.
const LONG: usize = 20;
/// Bytes of text in one append: half a message.
const APPEND_BYTES: usize = 2 * 1024 * 1024;
/// Longest time until every turn has its vector.
const VECTORS: Duration = Duration::from_secs(180);
/// Deadline of one call.
const PATIENCE: Duration = Duration::from_secs(60);
/// Life of a session: longer than any run.
const TTL_SECONDS: i64 = 7 * 24 * 3_600;

/// What is done with a set beyond searching.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drill {
    /// Search for evidence only.
    Search,
    /// Compress each session and look for the values of covered turns.
    Compress,
    /// Propose every sentence of the user.
    Propose,
    /// Remember every turn, and ask by `Recall` instead of by searching turns.
    Recall,
}

fn drill(set: &str) -> Drill {
    match set {
        "crosswoz" | "sgd" => Drill::Compress,
        "memorybank" | "evermemos" => Drill::Propose,
        "paraphrase" => Drill::Recall,
        _ => Drill::Search,
    }
}

/// Plays dialogues against a server.
pub struct Player {
    agent: Agent,
    run: String,
    has_vectors: bool,
    played: std::cell::Cell<u64>,
}

/// A turn as it was stored.
struct Stored<'a> {
    session: String,
    seq: u32,
    turn: &'a Turn,
}

impl Player {
    /// Over `channel`; users are named after `run`. `has_vectors`: the server makes them.
    pub fn new(channel: &RpcChannel, run: String, has_vectors: bool) -> Self {
        Self { agent: Agent::new(channel), run, has_vectors, played: std::cell::Cell::new(0) }
    }

    /// Plays `dialogue` as the set wants it.
    ///
    /// # Errors
    /// When the server does not answer, or refuses what is within its limits.
    pub async fn play(&self, set: &str, dialogue: &Dialogue, metrics: &mut SetMetrics) -> Result<()> {
        // By number: the name of a dialogue may be longer than an id.
        self.played.set(self.played.get() + 1);
        let user = format!("{}-{}", self.run, self.played.get());
        metrics.count("dialogues", 1);
        let stored = self.append(&user, dialogue, metrics).await?;
        match drill(set) {
            Drill::Search => {}
            Drill::Compress => self.compress(&user, &stored, metrics).await?,
            Drill::Propose => self.propose(&user, &stored, metrics).await?,
            Drill::Recall => {
                let records = self.remember(&user, &stored, metrics).await?;
                return self.recall(&user, &records, dialogue, metrics).await;
            }
        }
        self.ask(&user, dialogue, metrics).await
    }

    async fn append<'a>(&self, user: &str, dialogue: &'a Dialogue, metrics: &mut SetMetrics) -> Result<Vec<Stored<'a>>> {
        let mut stored = Vec::new();
        for batch in batches(&dialogue.turns) {
            let session_id = session_of(&batch[0]);
            let request = session::AppendTurnsRequest {
                user_id: user.into(),
                session_id: session_id.clone(),
                turns: batch.iter().map(new_turn).collect(),
                ttl: Some(prost_types::Duration { seconds: TTL_SECONDS, nanos: 0 }),
                ..session::AppendTurnsRequest::default()
            };
            let answer = self.agent.session.clone().append_turns(patient(request)).await.context("AppendTurns")?.into_inner();
            metrics.count("turns", batch.len() as u64);
            metrics.count("turns_cut", batch.iter().filter(|t| t.text.len() > TURN_BYTES).count() as u64);
            stored.extend(answer.seqs.into_iter().zip(batch).map(|(seq, turn)| Stored {
                session: session_id.clone(),
                seq,
                turn,
            }));
        }
        Ok(stored)
    }

    /// Asks every question by searching all sessions of the user.
    async fn ask(&self, user: &str, dialogue: &Dialogue, metrics: &mut SetMetrics) -> Result<()> {
        let Some(first) = dialogue.queries.first() else { return Ok(()) };
        if self.has_vectors {
            self.await_vectors(user, &first.text, metrics).await?;
        }
        for query in &dialogue.queries {
            let answer = self.search(user, &query.text).await?;
            metrics.count("searches_degraded", u64::from(answer.degraded));
            let found: Vec<(String, f64)> =
                answer.hits.into_iter().map(|hit| (hit.turn.unwrap_or_default().external_id, hit.score)).collect();
            metrics.search(&found, &query.gold, &query.category, query.abstain);
        }
        Ok(())
    }

    /// Vectors of long dialogues are made in the background: searches until none is missing.
    async fn await_vectors(&self, user: &str, query: &str, metrics: &mut SetMetrics) -> Result<()> {
        let watch = Stopwatch::start();
        while self.search(user, query).await?.degraded {
            if watch.elapsed() > VECTORS {
                // A server without an embedder stays degraded: that is an answer too.
                metrics.count("dialogues_without_vectors", 1);
                break;
            }
            pause(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    async fn search(&self, user: &str, query: &str) -> Result<session::SearchTurnsResponse> {
        let request = session::SearchTurnsRequest {
            user_id: user.into(),
            query: query.chars().take(QUERY_CHARS).collect(),
            k: HITS,
            ..session::SearchTurnsRequest::default()
        };
        let watch = Stopwatch::start();
        loop {
            let answer = self.agent.session.clone().search_turns(patient(request.clone())).await;
            match answer {
                Ok(answer) => return Ok(answer.into_inner()),
                // The first search of a long dialogue makes hundreds of vectors; what it made is kept.
                Err(status) if status.code() == Code::DeadlineExceeded && watch.elapsed() < VECTORS => {}
                Err(status) => return Err(status).context("SearchTurns"),
            }
        }
    }

    /// Compresses each session and looks for the annotated values of the turns that no longer stand in the window.
    async fn compress(&self, user: &str, stored: &[Stored<'_>], metrics: &mut SetMetrics) -> Result<()> {
        let mut sessions: HashMap<&str, Vec<&Stored<'_>>> = HashMap::new();
        for turn in stored {
            sessions.entry(&turn.session).or_default().push(turn);
        }
        for (session_id, turns) in sessions {
            let (user_id, id) = (user.to_owned(), session_id.to_owned());
            let request = session::CompressSessionRequest {
                user_id: user_id.clone(),
                session_id: id.clone(),
                keep_turns: KEEP,
                ..session::CompressSessionRequest::default()
            };
            let compressed =
                self.agent.session.clone().compress_session(patient(request)).await.context("CompressSession")?.into_inner();
            let request = session::GetSessionRequest { user_id: user_id.clone(), session_id: id.clone(), ..Default::default() };
            let whole = self.agent.session.clone().get_session(request).await.context("GetSession")?.into_inner();
            let request =
                session::GetWindowRequest { user_id, session_id: id, max_turns: KEEP, no_renew: true, ..Default::default() };
            let window = self.agent.session.clone().get_window(request).await.context("GetWindow")?.into_inner();
            metrics.count("sessions", 1);
            metrics.count("summaries", whole.summaries.len() as u64);
            metrics.count("window_tokens", u64::from(window.tokens));
            let summaries: Vec<&session::Summary> = whole.summaries.iter().chain(&compressed.summary).collect();
            let index = self.value_index(user, session_id, window.last_seq).await?;
            let by_range = self.by_ranges(user, session_id, &summaries, &window.anchors).await?;
            let kept = Kept::new(&summaries, &window, index);
            if turns.len() >= LONG {
                let full: u64 = turns.iter().map(|turn| u64::from(strata_text::tokens::count(&turn.turn.text))).sum();
                metrics.count("dialogues_long", 1);
                metrics.tokens(full, u64::from(window.tokens));
            }
            for turn in turns {
                if turn.seq + KEEP as u32 <= window.last_seq {
                    metrics.count("turns_covered", 1);
                    // Some sets annotate a value in other words than the turn's.
                    for value in turn.turn.values.iter().filter(|value| turn.turn.text.contains(value.as_str())) {
                        let fate = kept.fate(value, &turn.turn.text, by_range.get(&turn.seq).map(String::as_str));
                        metrics.value(fate);
                    }
                }
            }
        }
        Ok(())
    }

    /// The value index of the compressed turns, every page.
    async fn value_index(&self, user: &str, session_id: &str, last_seq: u32) -> Result<Vec<String>> {
        let mut request = session::GetFactsRequest {
            user_id: user.into(),
            session_id: session_id.into(),
            from_seq: 1,
            to_seq: last_seq,
            page_size: 1_000,
            ..session::GetFactsRequest::default()
        };
        let mut out = Vec::new();
        loop {
            let page = self.agent.session.clone().get_facts(patient(request.clone())).await.context("GetFacts")?.into_inner();
            out.extend(page.values.into_iter().map(|value| value.value));
            if page.next_page_token.is_empty() {
                return Ok(out);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// The turns that the listed ranges and anchors lead to, read again.
    async fn by_ranges(
        &self,
        user: &str,
        session_id: &str,
        summaries: &[&session::Summary],
        anchors: &[session::Turn],
    ) -> Result<HashMap<u32, String>> {
        let mut out: HashMap<u32, String> = anchors.iter().map(|turn| (turn.seq, turn.text.clone())).collect();
        for summary in summaries {
            let request = session::GetTurnsRequest {
                user_id: user.into(),
                session_id: session_id.into(),
                from_seq: summary.from_seq,
                to_seq: summary.to_seq,
                ..session::GetTurnsRequest::default()
            };
            let turns = self.agent.session.clone().get_turns(patient(request)).await.context("GetTurns")?.into_inner().turns;
            out.extend(turns.into_iter().map(|turn| (turn.seq, turn.text)));
        }
        Ok(out)
    }

    /// Asks the server to remember every turn as it stands and counts what became of it. Answers which turn each record
    /// came from.
    async fn remember(&self, user: &str, stored: &[Stored<'_>], metrics: &mut SetMetrics) -> Result<HashMap<String, String>> {
        let mut records = HashMap::new();
        let mut last = None;
        for Stored { session, seq, turn } in stored {
            let at = longterm::TurnRef { session_id: session.clone(), seq: *seq };
            let request = longterm::RememberRequest {
                user_id: user.into(),
                statement: Some(longterm::Statement {
                    kind: longterm::Kind::Fact as i32,
                    content: turn.text.clone(),
                    source: longterm::Source::UserStatement as i32,
                    source_ref: Some(longterm::SourceRef { kind: Some(longterm::source_ref::Kind::Turn(at)) }),
                    source_quote: turn.text.clone(),
                    trigger: longterm::Trigger::UserRequest as i32,
                    ..longterm::Statement::default()
                }),
                ..longterm::RememberRequest::default()
            };
            let remember = async || self.agent.longterm.clone().remember(request.clone()).await;
            match patiently(remember).await {
                Ok(answer) => {
                    let result = answer.into_inner().result.unwrap_or_default();
                    count_outcome(&result, metrics);
                    if let Some(memory) = result.memory {
                        last = Some(memory.memory_id.clone());
                        records.insert(memory.memory_id, turn.id.clone());
                    }
                }
                Err(status) => count_refusal(&status, metrics).map_err(|()| status).context("Remember")?,
            }
        }
        if let (Some(last), true) = (last, self.has_vectors) {
            self.agent.await_indexed(user, &last).await?;
        }
        Ok(records)
    }

    /// Asks every question by `Recall`.
    async fn recall(
        &self,
        user: &str,
        records: &HashMap<String, String>,
        dialogue: &Dialogue,
        metrics: &mut SetMetrics,
    ) -> Result<()> {
        for query in &dialogue.queries {
            let request = longterm::RecallRequest {
                user_id: user.into(),
                query: query.text.clone(),
                k: HITS,
                ..longterm::RecallRequest::default()
            };
            let answer = self.agent.longterm.clone().recall(patient(request)).await.context("Recall")?.into_inner();
            metrics.count("recalls_degraded", u64::from(answer.degraded));
            let turn = |item: longterm::RecallItem| Some((records.get(&item.memory?.memory_id)?.clone(), item.score));
            let found: Vec<(String, f64)> = answer.items.into_iter().filter_map(turn).collect();
            metrics.search(&found, &query.gold, &query.category, query.abstain);
        }
        Ok(())
    }

    /// Proposes every sentence of the user and counts what became of it.
    async fn propose(&self, user: &str, stored: &[Stored<'_>], metrics: &mut SetMetrics) -> Result<()> {
        for Stored { session, seq, turn } in stored.iter().filter(|s| s.turn.role == "user") {
            for sentence in strata_text::sentences(&turn.text) {
                let sentence = sentence.trim();
                if sentence.is_empty() || sentence.chars().count() > CONTENT_CHARS {
                    continue;
                }
                metrics.count("statements", 1);
                let at = longterm::TurnRef { session_id: session.clone(), seq: *seq };
                let request = longterm::ProposeRequest {
                    user_id: user.into(),
                    statement: Some(longterm::Statement {
                        kind: longterm::Kind::Fact as i32,
                        content: sentence.into(),
                        source: longterm::Source::UserStatement as i32,
                        source_ref: Some(longterm::SourceRef { kind: Some(longterm::source_ref::Kind::Turn(at)) }),
                        source_quote: sentence.into(),
                        trigger: longterm::Trigger::SessionEnd as i32,
                        ..longterm::Statement::default()
                    }),
                    ..longterm::ProposeRequest::default()
                };
                let propose = async || self.agent.longterm.clone().propose(request.clone()).await;
                match patiently(propose).await {
                    Ok(answer) => count_outcome(&answer.into_inner().result.unwrap_or_default(), metrics),
                    Err(status) => count_refusal(&status, metrics).map_err(|()| status).context("Propose")?,
                }
            }
        }
        Ok(())
    }
}

fn count_outcome(result: &longterm::WriteResult, metrics: &mut SetMetrics) {
    let name = result.outcome().as_str_name().trim_start_matches("OUTCOME_").to_lowercase();
    metrics.count(format!("outcome/{name}"), 1);
    metrics.count("superseded", u64::from(!result.superseded.is_empty()));
}

/// Counts what the gate refused; anything else is no answer.
fn count_refusal(status: &tonic::Status, metrics: &mut SetMetrics) -> Result<(), ()> {
    if !matches!(status.code(), Code::FailedPrecondition | Code::InvalidArgument) {
        return Err(());
    }
    metrics.count(format!("refused/{}", fault(status).reason.name().to_lowercase()), 1);
    Ok(())
}

/// Writes again while the outbox is full: the embedder needs a moment.
async fn patiently<T>(write: impl AsyncFn() -> Result<T, tonic::Status>) -> Result<T, tonic::Status> {
    loop {
        match write().await {
            Err(status) if status.code() == Code::ResourceExhausted => pause(Duration::from_millis(100)).await,
            answer => return answer,
        }
    }
}

/// With a deadline for a machine that does other things too: what is counted here is not time.
fn patient<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(PATIENCE);
    request
}

fn session_of(turn: &Turn) -> String {
    // Ids neither begin nor end with white space; names of a data set do.
    let session = turn.session.trim();
    if session.is_empty() { "main".into() } else { session.to_owned() }
}

/// Runs of turns of one session, within the limits of one append.
fn batches(turns: &[Turn]) -> Vec<&[Turn]> {
    let mut batches = Vec::new();
    let (mut from, mut bytes) = (0, 0);
    for (at, turn) in turns.iter().enumerate() {
        let full = at - from >= APPEND_TURNS || bytes + turn.text.len() > APPEND_BYTES;
        if at > from && (full || turn.session != turns[from].session) {
            batches.push(&turns[from..at]);
            (from, bytes) = (at, 0);
        }
        bytes += turn.text.len();
    }
    if from < turns.len() {
        batches.push(&turns[from..]);
    }
    batches
}

fn new_turn(turn: &Turn) -> session::NewTurn {
    let role = match turn.role.as_str() {
        "assistant" => Role::Assistant,
        "system" => Role::System,
        "tool" => Role::Tool,
        _ => Role::User,
    };
    session::NewTurn {
        role: role as i32,
        text: turn.text[..turn.text.floor_char_boundary(TURN_BYTES)].to_owned(),
        client_time: turn.time.as_deref().and_then(utc),
        speaker: turn.speaker.clone(),
        external_id: turn.id.clone(),
        ..session::NewTurn::default()
    }
}

/// A time of the file; without a zone it is UTC.
fn utc(text: &str) -> Option<prost_types::Timestamp> {
    let time: jiff::Timestamp = text
        .parse()
        .ok()
        .or_else(|| Some(text.parse::<jiff::civil::DateTime>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp()))?;
    Some(prost_types::Timestamp { seconds: time.as_second(), nanos: time.subsec_nanosecond() })
}

/// What a compressed session still says.
struct Kept {
    /// Clauses of summaries and anchors.
    clauses: Vec<String>,
    texts: Vec<String>,
    index: Vec<String>,
}

impl Kept {
    fn new(summaries: &[&session::Summary], window: &session::GetWindowResponse, index: Vec<String>) -> Self {
        let sentences = summaries.iter().flat_map(|s| s.sentences.iter().map(|x| x.text.clone()));
        let texts: Vec<String> = sentences.chain(window.anchors.iter().map(|turn| turn.text.clone())).collect();
        let clauses = texts.iter().flat_map(|text| clauses(text)).collect();
        Self { clauses, texts, index }
    }

    /// What became of a value of a turn; `read` is the turn as a listed range gave it.
    fn fate(&self, value: &str, turn: &str, read: Option<&str>) -> ValueFate {
        let words: Vec<String> = strata_text::analyze_query(&turn.replace(value, " "));
        let says_more = |clause: &str| {
            let rest = strata_text::analyze_query(&clause.replacen(value, " ", 1));
            words.iter().any(|word| rest.contains(word))
        };
        let told = self.clauses.iter().any(|clause| clause.contains(value) && says_more(clause));
        // A value that itself holds a comma stands in no single clause.
        let told = told || self.texts.iter().any(|text| text.contains(value) && clauses(value).len() > 1 && says_more(text));
        let kept = self.texts.iter().chain(&self.index).any(|text| text.contains(value));
        ValueFate { told, kept, reachable: read.is_some_and(|text| text.contains(value)) }
    }
}

/// A text cut at the marks that end a clause; not within a number. In Chinese a half-width comma parts the items of a list.
fn clauses(text: &str) -> Vec<String> {
    let ends = if text.contains(strata_text::script::is_han) { ";!?，。；！？\n" } else { ",;!?，。；！？\n" };
    let marks: Vec<(usize, char)> = text.char_indices().filter(|(_, c)| ends.contains(*c)).collect();
    let mut out = Vec::new();
    let mut from = 0;
    for (at, mark) in marks {
        let next = at + mark.len_utf8();
        if text[next..].starts_with(|c: char| c.is_ascii_digit()) && text[..at].ends_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        out.push(text[from..at].trim().to_owned());
        from = next;
    }
    out.push(text[from..].trim().to_owned());
    out.retain(|clause| !clause.is_empty());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(session: &str, text: &str) -> Turn {
        Turn {
            id: "1".into(),
            session: session.into(),
            speaker: String::new(),
            role: "user".into(),
            time: None,
            text: text.into(),
            values: Vec::new(),
        }
    }

    #[test]
    fn batches_keep_to_one_session_and_to_the_limits() {
        let mut turns: Vec<Turn> = (0..450).map(|_| turn("a", "x")).collect();
        turns.push(turn("b", "x"));
        turns.push(turn("a", "x"));
        let sizes: Vec<usize> = batches(&turns).iter().map(|b| b.len()).collect();
        assert_eq!(sizes, [200, 200, 50, 1, 1]);
        let large: Vec<Turn> = (0..3).map(|_| turn("a", &"x".repeat(APPEND_BYTES / 2 + 1))).collect();
        assert_eq!(batches(&large).len(), 3);
        assert!(batches(&[]).is_empty());
    }

    #[test]
    fn sessions_are_named_as_ids_are() {
        assert_eq!(["", " Jason /2023-04-27", "s"].map(|name| session_of(&turn(name, "x"))), ["main", "Jason /2023-04-27", "s"]);
    }

    #[test]
    fn times_without_a_zone_are_utc() {
        let seconds = |text: &str| utc(text).map(|t| t.seconds);
        assert_eq!(seconds("1970-01-02T00:00:00"), Some(86_400));
        assert_eq!(seconds("1970-01-02T00:00:00Z"), Some(86_400));
        assert_eq!(seconds("1970-01-02T08:00:00+08:00"), Some(86_400));
        assert_eq!(seconds("tomorrow"), None);
    }

    #[test]
    fn a_long_turn_is_cut_between_characters() {
        let text = "好".repeat(TURN_BYTES / 3 + 10);
        let cut = new_turn(&turn("a", &text)).text;
        assert!(cut.len() <= TURN_BYTES && cut.len() > TURN_BYTES - 3);
    }

    #[test]
    fn a40_a_value_is_told_only_beside_another_word_of_its_turn() {
        let sentence = |text: &str| session::SummarySentence { text: text.into(), seqs: vec![1] };
        let summary = session::Summary {
            sentences: vec![sentence("The table is for 2 people, 11:30 am"), sentence("周边有故宫, 天坛，还不错")],
            ..Default::default()
        };
        let window = session::GetWindowResponse {
            anchors: vec![session::Turn { text: "pay 40 now".into(), ..Default::default() }],
            ..Default::default()
        };
        let kept = Kept::new(&[&summary], &window, vec!["68元".into()]);
        let told = |value: &str, turn: &str| kept.fate(value, turn, Some(turn));
        assert!(told("2 people", "A table for 2 people please").told);
        assert!(told("pay 40", "Please pay 40 now").kept);
        assert!(told("天坛", "有故宫, 天坛").told, "an enumeration is one clause");
        let bare = told("11:30 am", "The table is at 11:30 am");
        assert!(!bare.told && bare.kept && bare.reachable, "alone between its commas");
        let indexed = told("68元", "人均消费68元");
        assert!(!indexed.told && indexed.kept);
        assert_eq!(kept.fate("驴杂汤", "驴杂汤", None), ValueFate::default());
        assert_eq!(clauses("costs 1,200 euros, they say; really"), ["costs 1,200 euros", "they say", "really"]);
    }
}
