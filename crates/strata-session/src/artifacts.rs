//! Raw tool returns on their way in and out: parts of a bounded size, each compressed by itself, so that neither way holds
//! more in memory than one artifact coming in and one part going out.

use crate::shared::{Shared, decoded};
use crate::store::{ArtifactPut, ArtifactWrite, RequestKey, SessionKey};
use futures::stream::BoxStream;
use prost::Message as _;
use std::sync::Arc;
use strata_api::convert::{common, session as convert};
use strata_api::error::{fault, status};
use strata_api::session::v1 as pb;
use strata_core::policy::session::Artifact;
use strata_core::{AgentId, Fault, Reason, Timestamp, limits};
use strata_runtime::task::detached_write;
use tonic::{Status, Streaming};

/// Effort of the compression: the library's own default.
const LEVEL: i32 = 3;

/// Bytes of the part before that a search sees again: more than the longest text that is searched for, written wide and with
/// something invisible behind every letter.
const OVERLAP: usize = 64 * 1024;

/// The messages of a GetArtifact.
pub(crate) type Parts = BoxStream<'static, Result<pb::GetArtifactResponse, Status>>;

fn broken() -> Fault {
    Fault::new(Reason::Internal, "an artifact could not be compressed or read; nothing was written")
}

/// Parts of what has come in so far.
struct Incoming {
    shared: Arc<Shared>,
    hasher: blake3::Hasher,
    bytes: usize,
    part: Vec<u8>,
    parts: Vec<Vec<u8>>,
}

impl Incoming {
    async fn take(&mut self, mut data: &[u8]) -> Result<(), Fault> {
        self.bytes += data.len();
        if self.bytes > limits::ARTIFACT_BYTES {
            return Err(Fault::limit("data", limits::ARTIFACT_BYTES, "bytes of an artifact"));
        }
        self.hasher.update(data);
        while !data.is_empty() {
            let room = limits::ARTIFACT_PART_BYTES - self.part.len();
            let (now, later) = data.split_at(room.min(data.len()));
            self.part.extend_from_slice(now);
            data = later;
            if self.part.len() == limits::ARTIFACT_PART_BYTES {
                self.close().await?;
            }
        }
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Fault> {
        if self.part.is_empty() {
            return Ok(());
        }
        let part = std::mem::take(&mut self.part);
        let compress = move || zstd::bulk::compress(&part, LEVEL);
        let compressed = self.shared.tasks.blocking("artifact compression", compress).await.map_err(|_| broken())?;
        self.parts.push(compressed.map_err(|_| broken())?);
        Ok(())
    }
}

/// Where an artifact goes, and by whom.
pub(crate) struct Destination {
    pub(crate) key: SessionKey,
    pub(crate) agent: Option<AgentId>,
    pub(crate) now: Timestamp,
    /// Erase epoch of the signed header (rule E2).
    pub(crate) erase_epoch: u64,
}

/// Stores what the stream brings, `header` first.
pub(crate) async fn put(
    shared: &Arc<Shared>,
    to: Destination,
    mut header: pb::PutArtifactRequest,
    mut rest: Streaming<pb::PutArtifactRequest>,
) -> Result<pb::PutArtifactResponse, Fault> {
    let Destination { key, agent, now, erase_epoch } = to;
    let mut artifact = convert::artifact(&header, now)?;
    let request_id = common::request_id(&header.request_id)?;
    let mut incoming =
        Incoming { shared: Arc::clone(shared), hasher: blake3::Hasher::new(), bytes: 0, part: Vec::new(), parts: Vec::new() };
    let mut data = std::mem::take(&mut header.data);
    loop {
        incoming.take(&data).await?;
        let Some(mut message) = rest.message().await.map_err(|status| fault(&status))? else { break };
        data = std::mem::take(&mut message.data);
        if message != pb::PutArtifactRequest::default() {
            return Err(Fault::field("trace_id", "belongs into the first message of the stream, as all but data"));
        }
    }
    incoming.close().await?;
    let Incoming { hasher, bytes, parts, .. } = incoming;
    artifact.bytes = bytes as u64;
    artifact.stored_bytes = parts.iter().map(Vec::len).sum::<usize>() as u64;
    artifact.parts = u32::try_from(parts.len()).map_err(|_| broken())?;
    artifact.hash = hasher.finalize().to_hex().to_string();
    let answer = |artifact: &Artifact| pb::PutArtifactResponse { artifact: Some(convert::wire_artifact(artifact)) };
    let request = request_id.map(|id| {
        header.request_id = String::new();
        header.user_id = String::new();
        header.data = artifact.hash.clone().into_bytes();
        (RequestKey::new("PutArtifact", id, &header.encode_to_vec()), answer(&artifact).encode_to_vec())
    });
    let stored = answer(&artifact);
    let upload = shared.ports.ids.next().simple().to_string();
    let write = ArtifactWrite { key, agent, now, artifact, parts, upload, erase_epoch, request };
    let store = Arc::clone(&shared.store);
    match detached_write(async move { store.put_artifact(write).await }).await? {
        ArtifactPut::Stored => Ok(stored),
        ArtifactPut::Known(artifact) => Ok(answer(&artifact)),
        ArtifactPut::Replay(bytes) => decoded(&bytes),
    }
}

/// What is left to be read.
struct Outgoing {
    shared: Arc<Shared>,
    key: SessionKey,
    artifact: Artifact,
    next: u32,
    hasher: blake3::Hasher,
}

impl Outgoing {
    async fn next(mut self) -> Result<Option<(pb::GetArtifactResponse, Self)>, Fault> {
        let empty = self.artifact.parts == 0 && self.next == 0;
        if self.next >= self.artifact.parts && !empty {
            return Ok(None);
        }
        let mut data = Vec::new();
        if !empty {
            // The service's time of now: what ends in the middle of a read ends.
            let now = self.shared.ports.clock.now();
            let stored = self.shared.store.artifact_part(&self.key, now, &self.artifact.trace_id, self.next).await?;
            let read = move || zstd::bulk::decompress(&stored, limits::ARTIFACT_PART_BYTES);
            let part = self.shared.tasks.blocking("artifact reading", read).await.map_err(|_| broken())?;
            data = part.map_err(|_| broken())?;
            self.hasher.update(&data);
        }
        let artifact = (self.next == 0).then(|| convert::wire_artifact(&self.artifact));
        self.next += 1;
        if self.next >= self.artifact.parts && self.hasher.finalize().to_hex().as_str() != self.artifact.hash {
            tracing::error!("the bytes of an artifact are not those that were stored");
            return Err(Fault::new(Reason::Internal, "the artifact is damaged"));
        }
        Ok(Some((pb::GetArtifactResponse { artifact, data }, self)))
    }
}

/// Reads an artifact's bytes in parts, until `found` says of one that it is enough; answers whether it did. Each look sees the
/// end of the part before as well, so that nothing is missed between two parts.
///
/// # Errors
/// `ARTIFACT_GONE`, those of the store, `INTERNAL` for a part that cannot be read.
pub(crate) async fn any_part(
    shared: &Shared,
    key: &SessionKey,
    artifact: &Artifact,
    found: impl Fn(&[u8]) -> bool + Clone + Send + 'static,
) -> Result<bool, Fault> {
    let mut window = Vec::new();
    for part in 0..artifact.parts {
        let stored = shared.store.artifact_part(key, shared.ports.clock.now(), &artifact.trace_id, part).await?;
        let (found, mut before) = (found.clone(), std::mem::take(&mut window));
        let look = move || {
            let part = zstd::bulk::decompress(&stored, limits::ARTIFACT_PART_BYTES).map_err(|_| broken())?;
            before.drain(..before.len().saturating_sub(OVERLAP));
            before.extend(part);
            Ok::<_, Fault>((found(&before), before))
        };
        let (hit, seen) = shared.tasks.blocking("artifact search", look).await.map_err(|_| broken())??;
        if hit {
            return Ok(true);
        }
        window = seen;
    }
    Ok(false)
}

/// Reads an artifact part by part.
///
/// # Errors
/// `NOT_FOUND`, `ARTIFACT_GONE`, those of the store.
pub(crate) async fn get(
    shared: &Arc<Shared>,
    key: SessionKey,
    agent: Option<&AgentId>,
    now: Timestamp,
    trace_id: &str,
) -> Result<Parts, Fault> {
    let artifact = shared.store.artifact(&key, agent, now, trace_id).await?;
    let outgoing = Outgoing { shared: Arc::clone(shared), key, artifact, next: 0, hasher: blake3::Hasher::new() };
    Ok(Box::pin(futures::stream::try_unfold(outgoing, |outgoing| async move { outgoing.next().await.map_err(status) })))
}
