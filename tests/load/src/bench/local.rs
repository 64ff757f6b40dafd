//! What needs no server: a call between roles of one process, and the built-in embedder.

use crate::{
    agent::statement,
    echo::{Echo, EchoClient, EchoRequest},
    process::{Site, cpu_seconds, signing_keys},
    report::Measured,
    stats::{Latencies, Plan, paired},
};
use anyhow::{Context as _, Result};
use std::{sync::Arc, time::Duration};
use strata_core::{
    TenantId, UserId,
    policy::authz::{Principal, Role},
};
use strata_runtime::{
    CallIdentity, Ports, channel,
    ports::Stopwatch,
    signing::{KeyRing, SharedKeys, Signer, Verifier},
    stack::{self, StackDeps},
};
use strata_text::embed::{Builtin, Embedder as _, Purpose};

/// Calls of microseconds. A verifier accepts a limited number of signed calls a second: with the rests it is not reached.
const CALLS: Plan = Plan { warm_up: 2_000, block: 500, time: Duration::from_secs(3), rest: Duration::from_millis(20) };
/// Bytes of the call and of its answer: a GetTask of a full board, about.
const BYTES: (usize, usize) = (40, 4_000);
/// Texts embedded together.
const BATCH: u64 = 32;
/// Time for the embedder: its CPU time is told in hundredths of a second.
const EMBED: Duration = Duration::from_secs(5);

/// Whoever calls in this bench.
pub fn principal() -> Result<Principal> {
    let roles = Role::ALL.iter().copied().collect();
    Ok(Principal { id: "bench".into(), tenant: TenantId::new("local")?, user: None, roles })
}

/// `local_call`: the signed header, its verification and every layer of a listener, in one process, over the bare handler.
pub async fn call() -> Result<Measured> {
    let ports = Ports::system();
    let keys = SharedKeys::new(KeyRing::parse(&signing_keys())?);
    let verifier = Arc::new(Verifier::new(keys.clone(), ports.clone()));
    let layers = stack::internal(Echo::answering(), verifier, &StackDeps::new(ports.clone()));
    let mut signed = EchoClient::new(Signer::new(keys, ports).sign(channel::local(layers)));
    let mut bare = EchoClient::new(channel::local(Echo::answering()));
    let identity = CallIdentity::new(principal()?, Some(UserId::new("u")?));
    let message = EchoRequest::of_size(BYTES.0, BYTES.1);
    let ours = async || {
        let mut request = tonic::Request::new(message.clone());
        request.extensions_mut().insert(identity.clone());
        signed.request(request).await.context("a signed local call")?;
        Ok(())
    };
    let both = paired(CALLS, ours, async || bare.measured(&message).await).await?;
    let note = "a trivial handler behind signer, local channel, verifier and every layer of the internal stack; raw: the same handler behind the \
                bare local channel; the limit is on the difference";
    Measured::paired(&both, note)
}

/// `embed_builtin`: texts a CPU-second of the built-in embedder.
pub async fn embed(site: &Site) -> Result<Measured> {
    anyhow::ensure!(site.has_model(), "the embedding model is not in {}: make model", site.model_dir.display());
    let model = Builtin::load_with(&site.model_dir, 1)?;
    let texts = |batch: u64| -> Vec<String> { (batch * BATCH..(batch + 1) * BATCH).map(text).collect() };
    let embed = async |batch: u64| -> Result<()> {
        let texts = texts(batch);
        let refs: Vec<&str> = texts.iter().map(String::as_str).collect();
        model.embed(&refs, Purpose::Document).await?;
        Ok(())
    };
    embed(0).await?;
    let (watch, cpu) = (Stopwatch::start(), cpu_seconds()?);
    let mut batches = Latencies::new();
    let mut done = 1;
    while watch.elapsed() < EMBED {
        let batch = Stopwatch::start();
        embed(done).await?;
        batches.record(batch.elapsed());
        done += 1;
    }
    let spent = cpu_seconds()? - cpu;
    let texts = batches.count() * BATCH;
    let mut measured = Measured::alone(
        &batches,
        format!(
            "{texts} sentences, English of some 70 characters and Chinese of some 30, in batches of {BATCH} on one thread, {spent:.2} s of CPU; times are of a batch"
        ),
    );
    measured.per_second = Some(texts as f64 / spent);
    Ok(measured)
}

/// A statement in English, and one of the same kind in Chinese.
fn text(number: u64) -> String {
    if number.is_multiple_of(2) {
        statement(number)
    } else {
        format!("请记住，我把第{number}号蓝色笔记本放在办公室左边的第二个抽屉里。")
    }
}
