//! Every bound of the product, in one place, with its reason. A test sends each at, under and over its value.

/// Bytes of a tenant, user, agent, session or task id: fits an UUID with prefixes, keeps composite keys short.
pub const ID_BYTES: usize = 128;
/// Bytes of a fact key (model.md).
pub const KEY_BYTES: usize = 128;
/// Largest gRPC message accepted or sent, in bytes: tonic's own default, stated so that clients can set theirs.
pub const MESSAGE_BYTES: usize = 4 * 1024 * 1024;
/// Characters of a record's content: one self-contained sentence (model.md).
pub const CONTENT_CHARS: usize = 2_000;
/// Characters of a record's quote: the literal sentence it came from.
pub const QUOTE_CHARS: usize = 2_000;
/// Bytes of a record's typed value.
pub const VALUE_BYTES: usize = 4 * 1024;
/// Bytes of a record's metadata, keys and values together (model.md).
pub const METADATA_BYTES: usize = 8 * 1024;
/// Tags of a record.
pub const TAGS: usize = 32;
/// Bytes of a tag: a word or two.
pub const TAG_BYTES: usize = 64;
/// Bytes of a topic: a short name.
pub const TOPIC_BYTES: usize = 128;
/// Characters of the reason a caller gives for forgetting: one or two sentences, kept in history.
pub const REASON_CHARS: usize = 500;
/// Records or keys named in one request: one page.
pub const BATCH_IDS: usize = 1_000;
/// Kinds, tiers or statuses of a filter, repetitions included: every vocabulary is smaller.
pub const FILTER_VALUES: usize = 64;
/// Keys asked for in one lookup of owners (internal.proto).
pub const OWNER_KEYS: usize = 128;
/// Evidence rows kept per record; later ones only count.
pub const EVIDENCE: usize = 64;
/// Bytes of one turn (rule S13).
pub const TURN_BYTES: usize = 64 * 1024;
/// Turns of one session (rule S13).
pub const SESSION_TURNS: u32 = 10_000;
/// Bytes of all turns of one session (rule S13).
pub const SESSION_BYTES: u64 = 16 * 1024 * 1024;
/// Turns in one append: keeps one Redis script short.
pub const APPEND_TURNS: usize = 200;
/// Shortest life of a session in seconds (rule S10).
pub const SESSION_TTL_MIN_SECONDS: i64 = 1;
/// Longest life of a session without use in seconds: 30 days (rule S10).
pub const SESSION_TTL_MAX_SECONDS: i64 = 30 * 24 * 3600;
/// Live sessions of one user: a search looks at each of them.
pub const SESSIONS_PER_USER: u32 = 10_000;
/// Bytes of a speaker's name and of a caller's own turn id: names, not texts.
pub const TURN_NAME_BYTES: usize = 128;
/// Seconds that a store keeps a user's erase epoch (rule E2): as long as a session may live without use. A header that is
/// older has expired long before.
pub const ERASE_EPOCH_SECONDS: i64 = SESSION_TTL_MAX_SECONDS;
/// Texts, short texts or keys that one erasure searches a layer for; it is made in parts when it has more.
pub const ERASE_TEXTS: usize = 512;
/// Turns that one erasure names.
pub const ERASE_TURNS: usize = 10_000;
/// Records that one erasure names.
pub const ERASE_RECORDS: usize = 4_096;
/// Days that the turns of an episode are kept (rule S14).
pub const ARCHIVED_TURN_DAYS: i64 = 30;
/// Episodes of one owner: a session an hour for eleven years.
pub const EPISODES: usize = 100_000;
/// Turns of one call that archives a session: a page of ListTurns.
pub const ARCHIVE_TURNS: usize = 1_000;
/// Characters of what a sentence of an episode is held against: more than its turns say beside it is not needed.
pub const EPISODE_QUOTE_CHARS: usize = 8_000;
/// Turns of one user that a search looks at, newest sessions first: bounds time and the memory of one cached owner.
pub const SEARCH_TURNS: u32 = 20_000;
/// Vectors that one search makes while the caller waits; later ones are made in the background.
pub const SEARCH_EMBEDDINGS: usize = 256;
/// Request ids that a session remembers for writes beside appends; beyond it the oldest is forgotten.
pub const SESSION_REQUESTS: u32 = 1_024;
/// Bytes of the answers kept for them; beyond it the oldest is forgotten. An answer of CompressSession holds a summary.
pub const SESSION_ANSWER_BYTES: u32 = 1024 * 1024;
/// Turns that one call anchors or releases: a page.
pub const ANCHOR_TURNS: usize = 200;
/// Sentences of a summary that a client made: its tokens allow fewer.
pub const SUMMARY_SENTENCES: usize = 200;
/// Turns that a sentence of a summary may name.
pub const SENTENCE_TURNS: usize = 200;
/// Values listed beside the summaries of one window, newest first: their place is outside the prompt.
pub const WINDOW_VALUES: usize = 1_000;
/// Facts of a session: as many keys as four full boards.
pub const SESSION_FACTS: usize = 256;
/// Facts in one write of a session, and keys in one read: as on a board.
pub const SESSION_FACTS_WRITE: usize = 64;
/// Bytes of a session fact's value: as on a board (rule W4).
pub const SESSION_FACT_BYTES: usize = 512;
/// Bytes of one artifact as it is sent (model.md).
pub const ARTIFACT_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of one stored part of an artifact before compression: what a read holds in memory, and a message carries.
pub const ARTIFACT_PART_BYTES: usize = 1024 * 1024;
/// Artifacts of a session that are not gone.
pub const SESSION_ARTIFACTS: usize = 256;
/// Bytes of all artifacts of a session as they are stored.
pub const SESSION_ARTIFACT_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes of a media type.
pub const MEDIA_TYPE_BYTES: usize = 128;
/// Values listed of one summary where summaries are listed by themselves: more than two hundred turns hold.
pub const SUMMARY_VALUES: usize = 10_000;
/// Bytes of the text of turns in one answer: half of a message, so that framing and marks always fit.
pub const TURNS_ANSWER_BYTES: usize = 2 * 1024 * 1024;
/// Bytes of a board fact's value (rule W4).
pub const BOARD_FACT_BYTES: usize = 512;
/// Bytes of a board fact's value that is JSON: more is a raw payload (rule W4).
pub const BOARD_JSON_BYTES: usize = 256;
/// Lines of a board fact's value (rule W4).
pub const BOARD_FACT_LINES: usize = 3;
/// Characters of a fact's source and of a digest's tool: names, not texts.
pub const BOARD_NAME_CHARS: usize = 128;
/// Characters of a todo's step and of its note.
pub const TODO_CHARS: usize = 500;
/// Request ids a board remembers; beyond it the oldest is forgotten. A retry comes within seconds, a board of this many
/// writes within hours.
pub const BOARD_REQUESTS: usize = 4_096;
/// Bytes of answers a board keeps for repeated request ids, the newest first; to an older one the present state is the
/// answer. As much as a full board.
pub const BOARD_ANSWER_BYTES: usize = 64 * 1024;
/// Facts of a board (rule W8).
pub const BOARD_FACTS: usize = 64;
/// Todos of a board (rule W8).
pub const BOARD_TODOS: usize = 128;
/// Digests of a board (rule W8).
pub const BOARD_DIGESTS: usize = 256;
/// Bytes of a whole board (rule W8).
pub const BOARD_BYTES: usize = 64 * 1024;
/// Bytes of all boards of a process: admission instead of eviction.
pub const BOARDS_TOTAL_BYTES: usize = 1024 * 1024 * 1024;
/// Characters of a digest (rule W5).
pub const DIGEST_CHARS: usize = 280;
/// Bytes of a raw return that comes with its digest: with the rest of the request it fits a message.
pub const RESULT_BYTES: usize = 3 * 1024 * 1024;
/// Characters of a goal's sentence and of its acceptance condition (rule W3).
pub const GOAL_CHARS: usize = 500;
/// Default number of recalled items (rule R8).
pub const RECALL_K: u32 = 5;
/// Largest number of recalled items (rule R8).
pub const RECALL_K_MAX: u32 = 100;
/// Bytes of an entity's type: one word.
pub const ENTITY_TYPE_BYTES: usize = 32;
/// Characters of the name of an entity or a skill.
pub const NAME_CHARS: usize = 128;
/// Entities of one owner: as many as records (rule F7).
pub const ENTITIES: usize = 10_000;
/// Relations of one owner.
pub const RELATIONS: usize = 50_000;
/// Bytes of a relation's name.
pub const RELATION_BYTES: usize = 64;
/// Entities that one entity is shown to be related to.
pub const RELATED: u32 = 200;
/// Versions of skills of one owner: a match looks at each in force.
pub const SKILLS: usize = 1_000;
/// Triggers of a skill.
pub const SKILL_TRIGGERS: usize = 8;
/// Characters of a trigger: a phrase.
pub const TRIGGER_CHARS: usize = 200;
/// Steps of a skill.
pub const SKILL_STEPS: usize = 32;
/// Characters of a step.
pub const STEP_CHARS: usize = 500;
/// Facts of one batch of a record system: their answers fit into one message.
pub const SYNC_FACTS: usize = 100;
/// Bytes of a record system's cursor.
pub const CURSOR_BYTES: usize = 512;
/// Records read at a time for an export: few snapshots, little memory.
pub const EXPORT_ROWS: u32 = 64;
/// Lines of an import: they are one transaction, and everyone else's writes wait for it.
pub const IMPORT_LINES: usize = 20_000;
/// Refused lines that the answer of an import lists; more are counted.
pub const IMPORT_REFUSALS: usize = 1_000;
/// Malformed lines that the refusal of an import names.
pub const IMPORT_VIOLATIONS: usize = 100;
/// Default page size of every list.
pub const PAGE: u32 = 50;
/// Largest page size of every list; more is capped and said so.
pub const PAGE_MAX: u32 = 1_000;
/// Characters of a query: more than any question, less than a document.
pub const QUERY_CHARS: usize = 4_000;
/// Rows of the outbox of one tenant before its writes are pushed back (decision 2 of ARCHITECTURE.md).
pub const OUTBOX_ROWS: u64 = 20_000;
/// Rows of the outbox of all tenants before writes are pushed back, whoever's: about 100 MB on disk with their indexes, and minutes of
/// embedding once the index is back.
pub const OUTBOX_TOTAL_ROWS: u64 = 200_000;
/// Age of a tenant's oldest outbox row before its writes are pushed back, in seconds.
pub const OUTBOX_AGE_SECONDS: i64 = 60;
/// Words that one erasure may look for by `mentions`, and that a verification may look for.
pub const ERASE_WORDS: usize = 16;
/// Characters of such a word: shorter ones stand in too many texts, longer ones are no words.
pub const ERASE_WORD_CHARS: std::ops::RangeInclusive<usize> = 4..=200;
/// Texts of one part of an erasure's scope, of each kind: what a layer scans for at a time.
pub const ERASE_SCOPE_TEXTS: usize = 256;
/// Turns that one part of an erasure's scope refers to.
pub const ERASE_SCOPE_TURNS: usize = 4_096;
/// Records of one part of an erasure's scope.
pub const ERASE_SCOPE_RECORDS: usize = 2_048;
/// Rows of a store that one transaction of an erasure looks at: everyone else's writes wait for it.
pub const ERASE_ROWS: u32 = 200;
/// Open erasures that a router takes up at a time.
pub const ERASE_OPEN_PAGE: u32 = 16;
/// Records that hold some of the erased words and were not asked for, as far as a receipt lists them.
pub const ERASE_MENTIONS: u32 = 100;
/// Dimensions of a supplied vector.
pub const VECTOR_DIMS: usize = 4_096;
/// Seconds a signed header is valid, without skew (rule P10).
pub const HEADER_SECONDS: i64 = 5;
/// Seconds of clock skew tolerated between processes.
pub const SKEW_SECONDS: i64 = 2;
/// Bytes of a signed header's attestation (rule P10): it travels as HTTP/2 metadata, which servers bound at 64 KiB.
pub const ATTESTATION_BYTES: usize = 16 * 1024;
/// Signed calls one layer process accepts per second (rule P10): each nonce is remembered for about ten seconds, so this
/// many cost 16 MB.
pub const NONCES_PER_SECOND: usize = 50_000;
/// API keys of a listener: a call is compared with every one of them, 10 ns each, so that its time tells nothing.
pub const API_KEYS: usize = 1_024;
/// API keys of one tenant that are good at a time.
pub const API_KEYS_TENANT: usize = 64;
/// Bytes of an API key's name: it stands in audits and histories.
pub const API_KEY_NAME_BYTES: usize = 64;
/// Modes and API keys that operators have set, of all tenants: every router holds them in memory.
pub const CONTROL_ENTRIES: usize = 4_096;
/// Bytes of one of them as it is stored.
pub const CONTROL_ENTRY_BYTES: usize = 8 * 1024;
/// Bytes of a caller's `x-request-id`: an UUID with a prefix; a longer one is replaced.
pub const CALL_ID_BYTES: usize = 128;
/// Calls a listener serves at a time; more are refused at once, never queued.
pub const CALLS_IN_FLIGHT: usize = 1_024;
/// Bytes of one call's request, all messages of a client stream together.
pub const CALL_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of all requests that a listener is receiving: what they may hold of the process's memory.
pub const BYTES_IN_FLIGHT: usize = 256 * 1024 * 1024;
/// Connections of a listener: with as many file descriptors the stores still get theirs.
pub const CONNECTIONS: usize = 4_096;
/// Calls in flight on one connection: one client cannot take every place of [`CALLS_IN_FLIGHT`].
pub const STREAMS_PER_CONNECTION: u32 = 256;
/// Operations that wait for a store's writer, and that wait for its readers: more means it is too slow to wait for.
pub const STORE_QUEUE: usize = 1_024;
/// Writes in one transaction: bounds how long the first waits for the last.
pub const STORE_BATCH: usize = 128;
/// Seconds a promotion may take from seal to apply (rule P5).
pub const PROMOTION_SECONDS: i64 = 10;
/// Seconds a claim in the ledger lasts without being renewed (rule P2). It is renewed at half of it, which is the longest
/// idle time of a board.
pub const CLAIM_LEASE_SECONDS: i64 = 48 * 3600;
/// Seconds a mark of an outer owner is kept in the ledger: it is found again in long-term memory when it is gone.
pub const MARK_SECONDS: i64 = 30 * 24 * 3600;
/// Seconds a promotion stays in the journal after its last change (policies.md "Where state lives").
pub const JOURNAL_SECONDS: i64 = 7 * 24 * 3600;
/// Seconds a decision is kept for Explain (policies.md "Where state lives").
pub const DECISION_SECONDS: i64 = 7 * 24 * 3600;
/// Decisions kept per user, newest first: an agent that decides once a minute is told all of its last day, and the stream of
/// one user stays under ten megabytes.
pub const DECISIONS_PER_USER: usize = 2_000;
/// Steps of one decision: more than an assembly of the largest window makes.
pub const DECISION_STEPS: usize = 256;
/// Characters of one text of a step: one sentence.
pub const DECISION_TEXT_CHARS: usize = 300;
/// Decisions that wait for the store; more are counted and dropped, since Explain must not slow what it explains.
pub const DECISION_BACKLOG: usize = 4_096;
/// Rules of the policy file for Observe: each is tried on every sentence.
pub const OBSERVE_RULES: usize = 64;
/// Patterns of one of them.
pub const OBSERVE_PATTERNS: usize = 32;
/// Commands of one Observe, and of one answer of an extractor: a turn says no more.
pub const OBSERVE_COMMANDS: usize = 32;
/// Turns of one Observe: what a session says between two summaries, with room.
pub const OBSERVE_TURNS: u32 = 50;
/// Statements that one observation writes: more than anybody says of themselves between two summaries, few enough to be written
/// within its lease.
pub const OBSERVE_WRITES: usize = 512;
/// Observations of one user that wait: a busy agent's of some minutes.
pub const OBSERVE_PER_USER: usize = 256;
/// Users whose observations wait at a time; with as many turns by reference the queue stays under a gigabyte.
pub const OBSERVE_USERS: usize = 10_000;
/// Seconds an observation waits at most (policies.md "Where state lives").
pub const OBSERVE_SECONDS: i64 = 7 * 24 * 3600;
/// Seconds that a router may work on one user's queue before another one may: what it had begun when it died waits as long. More
/// than an extractor and the writes after it take.
pub const OBSERVE_LEASE_SECONDS: i64 = 45;
/// Seconds a queued promotion stays in the journal after its last change: as long as its candidate (90 days, rule F2), and
/// then as any other.
pub const QUEUED_SECONDS: i64 = 97 * 24 * 3600;
/// Promotions of one user in the journal: more than one every three minutes for as long as they are kept. Each confirmation
/// looks through them.
pub const JOURNAL_ENTRIES: usize = 4_096;
/// Facts promoted with the end of their task or session: they are journalled one after the other while the caller waits.
pub const END_PROMOTIONS: usize = 16;
/// Claims and marks that wait for a ledger that is down (rule P4); the oldest are dropped, and found again at the next write.
pub const LEDGER_BACKLOG: usize = 10_000;
/// Seconds an idempotent answer is kept (api.md).
pub const REQUEST_ID_SECONDS: i64 = 24 * 3600;
/// Seconds a tombstone of a task or session is kept (rules W7, S12).
pub const TOMBSTONE_SECONDS: i64 = 24 * 3600;

/// A `page_size` or `k` of a request, resolved: 0 is the default, negative is refused, too large is capped
/// (case C139: the same on every verb).
///
/// # Errors
/// [`crate::Reason::InvalidField`] when negative.
pub fn page(field: &'static str, asked: i32, default: u32, max: u32) -> Result<Page, crate::Fault> {
    let asked = u32::try_from(asked).map_err(|_| crate::Fault::field(field, "must not be negative"))?;
    let size = if asked == 0 { default } else { asked };
    Ok(Page { size: size.min(max), capped: size > max })
}

/// A resolved page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Rows to return at most.
    pub size: u32,
    /// Whether more was asked for than is allowed: the answer says so.
    pub capped: bool,
}
