//! Recall on a Qdrant server over one batched filtered query of both legs.

use super::{environment, longterm::QUESTION};
use crate::{
    agent::Agent,
    process::{Embedder, Server, Site},
    report::Measured,
    stats::{Plan, paired},
};
use anyhow::{Context as _, Result, ensure};
use qdrant_client::{
    Qdrant,
    qdrant::{
        Condition, Filter, Query, QueryBatchPointsBuilder, QueryPoints, QueryPointsBuilder, ScrollPointsBuilder, VectorInput,
        vector_output, vectors_output::VectorsOptions,
    },
};
use std::{collections::BTreeSet, time::Duration};
use strata_api::longterm::v1::RecallRequest;
use strata_core::policy::recall::RecallSettings;

/// Five seconds in blocks of some 50 ms.
const PLAN: Plan = Plan { warm_up: 100, block: 20, time: Duration::from_secs(5), rest: Duration::ZERO };
/// Records of the user.
const RECORDS: u64 = 1_000;

/// `recall_qdrant`.
pub async fn recall(site: &Site) -> Result<Measured> {
    let url = environment("QDRANT_URL")?;
    let client = Qdrant::from_url(&url).build()?;
    let before = collections(&client).await?;
    let server = Server::all_in_one_with(site, Embedder::Builtin, &format!("[qdrant]\nurl = {url:?}\n")).await?;
    let user = super::longterm::seed(&server, RECORDS).await?;
    let mut longterm = Agent::new(&server.channel).longterm;
    let request = RecallRequest { user_id: user, query: QUESTION.into(), ..RecallRequest::default() };
    let answer = longterm.recall(request.clone()).await?.into_inner();
    ensure!(!answer.items.is_empty() && !answer.degraded, "the recall is empty or degraded");

    let after = collections(&client).await?;
    let ours = after.iter().find(|name| !before.contains(*name)).or_else(|| after.iter().find(|n| n.starts_with("strata")));
    let collection = ours.context("no collection of ours")?;
    let batch = QueryBatchPointsBuilder::new(collection, legs(&client, collection).await?).build();
    let ours = async || {
        longterm.recall(request.clone()).await?;
        Ok(())
    };
    let raw = async || {
        client.query_batch(batch.clone()).await?;
        Ok(())
    };
    let both = paired(PLAN, ours, raw).await?;
    server.stop();
    let note = format!(
        "Recall by the public RPC, all in one over TCP, {RECORDS} records of one user on Qdrant, k 5, the query's vector cached; raw: one batch of a dense and \
         a sparse query with the owner's filter, {} hits each",
        hits()
    );
    Measured::paired(&both, note)
}

/// Hits of each leg, as many as a recall asks for (rule R3).
fn hits() -> u64 {
    let settings = RecallSettings::default();
    settings.leg_limit(settings.k).into()
}

async fn collections(client: &Qdrant) -> Result<BTreeSet<String>> {
    Ok(client.list_collections().await?.collections.into_iter().map(|c| c.name).collect())
}

/// A dense and a sparse query like those of a recall, with the vectors and the owner of a stored point.
async fn legs(client: &Qdrant, collection: &str) -> Result<Vec<QueryPoints>> {
    let scroll = ScrollPointsBuilder::new(collection).limit(1).with_payload(true).with_vectors(true);
    let point = client.scroll(scroll).await?.result.into_iter().next().context("no point")?;
    let owner = point.payload.get("owner").and_then(|v| v.as_str().cloned()).context("a point without an owner")?;
    let Some(VectorsOptions::Vectors(vectors)) = point.vectors.and_then(|v| v.vectors_options) else {
        anyhow::bail!("a point without vectors")
    };
    let leg = |name: &str, vector: VectorInput| {
        QueryPointsBuilder::new(collection)
            .query(Query::new_nearest(vector))
            .using(name.to_owned())
            .filter(Filter::must([Condition::matches("owner", owner.clone())]))
            .limit(hits())
            .with_payload(true)
            .build()
    };
    let mut legs = Vec::new();
    for (name, vector) in vectors.vectors {
        match vector.into_vector() {
            vector_output::Vector::Dense(dense) => legs.push(leg(&name, VectorInput::new_dense(dense.data))),
            vector_output::Vector::Sparse(sparse) => {
                legs.push(leg(&name, VectorInput::new_sparse(sparse.indices, sparse.values)))
            }
            vector_output::Vector::MultiDense(_) => {}
        }
    }
    ensure!(legs.len() == 2, "a point has {} vectors, not a dense and a sparse one", legs.len());
    Ok(legs)
}
