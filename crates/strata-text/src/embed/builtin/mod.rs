//! The built-in embedder: Google's universal-sentence-encoder-multilingual v3 (Apache-2.0; English, Chinese and fourteen
//! more languages; 512 dimensions) in Rust, without a native library. `deploy/fetch-model.sh` fetches its two files.
//!
//! Inference is CPU work (about 4 ms a text, 1 ms in a batch), so it runs on a small pool of the embedder's own threads
//! behind a bounded queue; the async caller only waits. Texts that wait together are embedded together.

mod network;
mod npz;
mod sentencepiece;

use self::network::{E, Network};
use self::npz::Arrays;
use self::sentencepiece::SentencePiece;
use super::{EmbedError, Embedder, EmbedderIdentity, Purpose, normalise};
use crate::tokens::cut_chars;
use async_trait::async_trait;
use std::fmt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// The files, and the BLAKE3 digests of the only version this code knows (`fetch-model.sh` checks their SHA-256).
const WEIGHTS: (&str, &str) = ("weights.npz", "44211357e03291bd38468191a81812244b67b72f557b529d78c50c353cacbf95");
const TOKENISER: (&str, &str) = ("sp.model", "f1dc69b82bf26d27f9bcdeda80f5d6f960ae1c7822ab606d9fc3161f0888f716");

/// Name stored with every vector: model, and the head of the SHA-256 of its weights.
const NAME: &str = "use-multilingual-v3@0db566fd";

/// Characters of a text that are read: a record is at most 2,000, a turn's first thousands tell its topic.
const MAX_CHARS: usize = 4_096;
/// Tokens of a text that are read; the model has no limit, its cost is linear.
const MAX_TOKENS: usize = 512;
/// Tokens in one pass through the network: larger ones save nothing and take memory.
const PASS_TOKENS: usize = 384;
/// Calls that may wait.
const QUEUE: usize = 256;
/// Calls taken together from the queue.
const TOGETHER: usize = 32;
/// Threads at most; two saturate the recall path of one replica.
const MAX_THREADS: usize = 4;

struct Job {
    texts: Vec<String>,
    reply: oneshot::Sender<Vec<Vec<f32>>>,
}

/// The embedder; dropping it ends its threads.
pub struct Builtin {
    identity: EmbedderIdentity,
    queue: SyncSender<Job>,
}

impl fmt::Debug for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builtin").field("identity", &self.identity).finish_non_exhaustive()
    }
}

struct Model {
    tokeniser: SentencePiece,
    network: Network,
}

impl Builtin {
    /// Loads and verifies the files of a directory (about half a second of CPU; call it off the async threads) and starts
    /// the threads: as many as there are processors, at most four.
    ///
    /// # Errors
    /// [`EmbedError::Model`] when a file is absent, has another digest, or does not parse. The message names the file and
    /// the command that fetches it.
    pub fn load(directory: impl AsRef<Path>) -> Result<Self, EmbedError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        Self::load_with(directory, threads)
    }

    /// [`Builtin::load`] with a number of threads, at least one.
    ///
    /// # Errors
    /// As [`Builtin::load`].
    pub fn load_with(directory: impl AsRef<Path>, threads: usize) -> Result<Self, EmbedError> {
        let tokeniser = SentencePiece::read(&verified(directory.as_ref(), TOKENISER)?)?;
        let network = Network::new(Arrays::read(&verified(directory.as_ref(), WEIGHTS)?)?, tokeniser.len())?;
        let model = Arc::new(Model { tokeniser, network });
        let (queue, jobs) = sync_channel(QUEUE);
        let jobs = Arc::new(Mutex::new(jobs));
        for number in 0..threads.max(1) {
            let (model, jobs) = (Arc::clone(&model), Arc::clone(&jobs));
            std::thread::Builder::new()
                .name(format!("embed-{number}"))
                .spawn(move || work(&model, &jobs))
                .map_err(|_| EmbedError::Model("no thread can be started".into()))?;
        }
        Ok(Self { identity: identity(), queue })
    }
}

/// What the model's cosines mean, from the table of the test `thresholds_part_the_pairs_they_are_for`: unrelated texts lie at
/// -.06 to .21 (5 to 95 %), a question and its answer at .27 to .77, two values of one thing at .60 to .90, two spellings of
/// one statement at .90 and above.
fn identity() -> EmbedderIdentity {
    EmbedderIdentity {
        name: NAME.into(),
        dimensions: E,
        min_similarity: 0.25,
        duplicate_similarity: 0.9,
        conflict_similarity: 0.6,
        topic_similarity: 0.3,
    }
}

fn verified(directory: &Path, (name, digest): (&str, &str)) -> Result<Vec<u8>, EmbedError> {
    let bytes = std::fs::read(directory.join(name))
        .map_err(|error| EmbedError::Model(format!("{name} is not readable ({}); run `make model`", error.kind())))?;
    if blake3::hash(&bytes).to_hex().as_str() != digest {
        return Err(EmbedError::Model(format!("{name} is not the expected version; run `make model`")));
    }
    Ok(bytes)
}

/// Takes jobs until the embedder is dropped. The lock is held while waiting, not while working.
fn work(model: &Model, jobs: &Mutex<Receiver<Job>>) {
    loop {
        let mut taken = Vec::new();
        {
            let jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
            let Ok(first) = jobs.recv() else { return };
            taken.push(first);
            while taken.len() < TOGETHER
                && let Ok(next) = jobs.try_recv()
            {
                taken.push(next);
            }
        }
        // A caller that went away needs no answer.
        taken.retain(|job| !job.reply.is_closed());
        let texts: Vec<&str> = taken.iter().flat_map(|job| job.texts.iter().map(String::as_str)).collect();
        let mut vectors = model.embed(&texts).into_iter();
        for job in taken {
            let _gone = job.reply.send(vectors.by_ref().take(job.texts.len()).collect());
        }
    }
}

impl Model {
    fn embed(&self, texts: &[&str]) -> Vec<Vec<f32>> {
        let mut encoded: Vec<Vec<u32>> = texts.iter().map(|text| self.encode(text)).collect();
        let mut out = Vec::with_capacity(texts.len());
        while !encoded.is_empty() {
            let mut tokens = 0;
            let pass = encoded.iter().position(|ids| {
                tokens += ids.len();
                tokens > PASS_TOKENS
            });
            let rest = encoded.split_off(pass.unwrap_or(encoded.len()).max(1));
            out.extend(self.network.forward(&encoded));
            encoded = rest;
        }
        for vector in &mut out {
            normalise(vector);
        }
        out
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        let mut ids = self.tokeniser.encode(cut_chars(text, MAX_CHARS));
        if ids.len() > MAX_TOKENS
            && let Some(end) = ids.last().copied()
        {
            ids.truncate(MAX_TOKENS - 1);
            ids.push(end);
        }
        ids
    }
}

#[async_trait]
impl Embedder for Builtin {
    fn identity(&self) -> &EmbedderIdentity {
        &self.identity
    }

    async fn embed(&self, texts: &[&str], _purpose: Purpose) -> Result<Vec<Vec<f32>>, EmbedError> {
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, answer) = oneshot::channel();
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        self.queue.try_send(Job { texts, reply }).map_err(|error| match error {
            TrySendError::Full(_) => EmbedError::Overloaded,
            TrySendError::Disconnected(_) => EmbedError::Unavailable("the embedding threads have ended".into()),
        })?;
        answer.await.map_err(|_| EmbedError::Unavailable("the embedding threads have ended".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embed::cosine;
    use std::path::PathBuf;
    use std::sync::LazyLock;

    fn directory() -> PathBuf {
        std::env::var_os("MODEL_DIR")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/use-multilingual-v3"), PathBuf::from)
    }

    static BUILTIN: LazyLock<Builtin> = LazyLock::new(|| match Builtin::load(directory()) {
        Ok(builtin) => builtin,
        Err(error) => panic!("the built-in model is not here: {error}: run make model"),
    });

    async fn vectors(texts: &[&str]) -> Vec<Vec<f32>> {
        BUILTIN.embed(texts, Purpose::Document).await.expect("vectors")
    }

    #[tokio::test]
    async fn a209_vectors_are_of_unit_length_whatever_the_text() {
        let long = "很长的句子。".repeat(5_000);
        let texts = ["", " ", "a", "不吃辣", "👍", "\u{200b}", "ﬁ ½ Ⅳ", "\u{fdfa}", "مرحبا", &long, "zzzzqqqqxxxx\u{10ffff}"];
        let vectors = vectors(&texts).await;
        assert_eq!(vectors.len(), texts.len());
        for (vector, text) in vectors.iter().zip(texts) {
            assert_eq!(vector.len(), E);
            let length: f32 = vector.iter().map(|x| x * x).sum();
            assert!((length - 1.0).abs() < 1e-4, "{:?}", text.chars().take(8).collect::<String>());
        }
        assert!(BUILTIN.embed(&[], Purpose::Query).await.expect("none").is_empty());
    }

    /// First components as the reference implementation in Python gives them.
    #[tokio::test]
    async fn golden_vectors_of_the_reference_implementation() {
        for (text, expected) in GOLDEN {
            let vector = vectors(&[text]).await.remove(0);
            for (x, y) in vector.iter().zip(expected) {
                assert!((x - y).abs() < 1e-4, "{text}: {x} is not {y}");
            }
        }
    }

    #[tokio::test]
    async fn a_batch_gives_what_single_calls_give() {
        let texts: Vec<String> = (0..70).map(|i| format!("用户 {i} prefers 选项 {} for the {i}th time", i * 7 % 11)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let together = vectors(&texts).await;
        for (text, expected) in texts.iter().zip(&together).step_by(9) {
            assert!(cosine(&vectors(&[text]).await[0], expected) > 0.9999, "{text}");
        }
    }

    #[tokio::test]
    async fn many_callers_at_once_are_all_answered() {
        let calls = (0..40).map(|i| async move { (i, vectors(&[&format!("memory {i}")]).await.remove(0)) });
        for (i, vector) in futures_all(calls).await {
            let alone = vectors(&[&format!("memory {i}")]).await.remove(0);
            assert!(cosine(&vector, &alone) > 0.9999);
        }
    }

    /// Drives futures together on this task.
    async fn futures_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
        let mut set: Vec<_> = futures.map(|f| (Box::pin(f), None)).collect();
        std::future::poll_fn(|context| {
            for (future, output) in &mut set {
                if output.is_none()
                    && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
                {
                    *output = Some(value);
                }
            }
            if set.iter().all(|(_, output)| output.is_some()) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        set.into_iter().filter_map(|(_, output)| output).collect()
    }

    #[tokio::test]
    async fn thresholds_part_the_pairs_they_are_for() {
        let identity = BUILTIN.identity();
        let mut similar = Vec::new();
        for (a, b, relation) in PAIRS {
            let v = vectors(&[a, b]).await;
            similar.push((*relation, cosine(&v[0], &v[1]), *a, *b));
        }
        similar.sort_by(|x, y| x.0.cmp(y.0).then(x.1.total_cmp(&y.1)));
        for (relation, cosine, a, b) in &similar {
            eprintln!("{relation:10} {cosine:7.4}  {a} | {b}");
        }
        let share = |relation: &str, holds: &dyn Fn(f32) -> bool| {
            let all: Vec<f32> = similar.iter().filter(|s| s.0 == relation).map(|s| s.1).collect();
            all.iter().filter(|c| holds(**c)).count() as f32 / all.len() as f32
        };
        assert!(share("unrelated", &|c| c < identity.min_similarity) >= 0.9);
        assert!(share("answer", &|c| c >= identity.min_similarity) >= 0.8);
        assert!(share("conflict", &|c| c >= identity.conflict_similarity) >= 0.8);
        assert!(share("unrelated", &|c| c < identity.conflict_similarity) >= 1.0);
        assert!(share("duplicate", &|c| c >= identity.duplicate_similarity) >= 0.8);
    }

    #[test]
    fn a_missing_or_altered_file_is_refused_by_name() {
        let empty = std::env::temp_dir().join(format!("strata-no-model-{}", std::process::id()));
        std::fs::create_dir_all(&empty).expect("directory");
        let error = Builtin::load(&empty).expect_err("no file").to_string();
        assert!(error.contains("sp.model") && error.contains("make model"), "{error}");
        std::fs::write(empty.join("sp.model"), "altered").expect("write");
        let error = Builtin::load(&empty).expect_err("altered").to_string();
        assert!(error.contains("not the expected version"), "{error}");
        std::fs::remove_dir_all(&empty).expect("clean up");
    }

    #[test]
    fn damaged_model_files_are_errors_not_panics() {
        for bytes in [
            &b""[..],
            b"\x0a",
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x0a\x02\x0a\x01",
            b"\x1a\x06\x12\x04\xff\xff\xff\xff",
            b"\xff\xff",
        ] {
            assert!(SentencePiece::read(bytes).is_err());
            assert!(Arrays::read(bytes).is_err());
        }
    }

    /// Pairs and what they are to each other.
    const PAIRS: &[(&str, &str, &str)] = &[
        ("The user does not eat spicy food.", "The user doesn't eat spicy food", "duplicate"),
        ("用户不吃辣。", "用户不吃辣", "duplicate"),
        ("I live in Hangzhou.", "I live in Hangzhou!", "duplicate"),
        ("The cost centre is CC-1042.", "The cost center is CC-1042.", "duplicate"),
        ("我对花生过敏", "我对花生过敏。", "duplicate"),
        ("I live in Hangzhou.", "I live in Shanghai.", "conflict"),
        ("My cost centre is CC-1042.", "My cost centre is CC-2077.", "conflict"),
        ("I eat spicy food.", "I don't eat spicy food.", "conflict"),
        ("我住在杭州。", "我住在上海。", "conflict"),
        ("我不吃辣。", "我能吃辣。", "conflict"),
        ("The meeting is on Monday.", "The meeting is on Friday.", "conflict"),
        ("会议在周一。", "会议改到周五。", "conflict"),
        ("The user prefers email.", "The user prefers phone calls.", "conflict"),
        ("每日限额是5000元", "每日限额是8000元", "conflict"),
        ("Where does the user live?", "The user lives in Hangzhou.", "answer"),
        ("用户住在哪里？", "用户住在杭州。", "answer"),
        ("What can't the user eat?", "The user is allergic to peanuts.", "answer"),
        ("点菜要注意什么", "用户不吃辣", "answer"),
        ("How should I contact them?", "The user prefers to be contacted by email.", "answer"),
        ("报销用哪个成本中心", "默认成本中心是 CC-2077", "answer"),
        ("哪个座位", "用户坐飞机喜欢靠窗的座位", "answer"),
        ("Which seat should I book?", "The user prefers an aisle seat.", "answer"),
        ("What language should I reply in?", "Always reply in Chinese.", "answer"),
        ("用户几号生日", "用户的生日是5月3日", "answer"),
        ("The deploy failed at midnight.", "The user likes hiking.", "unrelated"),
        ("用户不吃辣。", "数据库的端口是 6543。", "unrelated"),
        ("The user prefers email.", "The invoice total is 118.50 EUR.", "unrelated"),
        ("我住在杭州。", "周三下午开评审会。", "unrelated"),
        ("The staging server is down.", "用户对花生过敏", "unrelated"),
        ("My birthday is May 3.", "The build takes ten minutes.", "unrelated"),
        ("退款要主管批准", "用户喜欢靠窗的座位", "unrelated"),
        ("The project is written in Rust.", "My daughter plays the piano.", "unrelated"),
        ("每天早上跑步", "合同编号是 A-17", "unrelated"),
        ("Her desk is on floor 3.", "He drinks green tea.", "unrelated"),
        ("What is the weather in Paris?", "The user works at Acme.", "unrelated"),
        ("今天天气怎么样", "用户的默认成本中心是 CC-2077", "unrelated"),
    ];

    const GOLDEN: &[(&str, [f32; 4])] = &[
        ("The user prefers to be contacted by email.", [-0.021493, -0.035545, -0.107313, 0.052971]),
        ("用户不吃辣，对花生过敏。", [-0.062958, 0.071038, -0.035760, 0.022570]),
        ("Ｆｕｌｌ－ｗｉｄｔｈ ﬁ ① 👍", [0.077848, -0.061755, -0.007954, 0.014504]),
        ("東京の予算", [0.083458, -0.022734, 0.049801, 0.008442]),
        ("a", [0.104737, 0.040033, 0.021943, -0.003539]),
    ];
}
