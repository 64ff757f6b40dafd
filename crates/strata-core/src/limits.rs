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
/// Bytes of a board fact's value (rule W4).
pub const BOARD_FACT_BYTES: usize = 512;
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
/// Characters of a goal's sentence and of its acceptance condition (rule W3).
pub const GOAL_CHARS: usize = 500;
/// Default number of recalled items (rule R8).
pub const RECALL_K: u32 = 5;
/// Largest number of recalled items (rule R8).
pub const RECALL_K_MAX: u32 = 100;
/// Default page size of every list.
pub const PAGE: u32 = 50;
/// Largest page size of every list; more is capped and said so.
pub const PAGE_MAX: u32 = 1_000;
/// Characters of a query: more than any question, less than a document.
pub const QUERY_CHARS: usize = 4_000;
/// Rows of the outbox before writes are pushed back (decision 2 of ARCHITECTURE.md).
pub const OUTBOX_ROWS: u64 = 20_000;
/// Age of the oldest outbox row before writes are pushed back, in seconds.
pub const OUTBOX_AGE_SECONDS: i64 = 60;
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
/// Seconds a promotion may take from seal to apply (rule P5).
pub const PROMOTION_SECONDS: i64 = 10;
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
