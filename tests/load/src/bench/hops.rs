//! What a call costs over an echo of the same size on the same transport: one hop, and through the router.

use crate::{
    agent::Agent,
    echo::{EchoClient, EchoRequest},
    process::{Cluster, EchoServers, Server, Site},
    report::Measured,
    stats::{Plan, paired},
};
use anyhow::{Context as _, Result};
use prost::Message as _;
use std::time::Duration;
use strata_api::working::v1::GetTaskRequest;
use strata_runtime::RpcChannel;

/// Five seconds in blocks of some 20 ms.
const PLAN: Plan = Plan { warm_up: 300, block: 50, time: Duration::from_secs(5), rest: Duration::ZERO };

/// `get_task_tcp`.
pub async fn get_task(site: &Site, server: &Server) -> Result<Measured> {
    let mut echo = EchoServers::start(site, 1).await?;
    measure(
        &server.channel,
        &mut echo.client,
        "GetTask of a full board, all in one over TCP; raw: echo of the same size in a process of its own",
    )
    .await
}

/// `routed_hop`.
pub async fn routed(site: &Site, cluster: &Cluster) -> Result<Measured> {
    let mut echo = EchoServers::start(site, 2).await?;
    measure(
        &cluster.channel,
        &mut echo.client,
        "GetTask of a full board, client > router > working; raw: an echo behind an echo, two processes",
    )
    .await
}

async fn measure(channel: &RpcChannel, echo: &mut EchoClient, what: &str) -> Result<Measured> {
    let agent = Agent::new(channel);
    agent.board("hop", "board").await.context("the board")?;
    let request = GetTaskRequest { user_id: "hop".into(), task_id: "board".into(), ..GetTaskRequest::default() };
    let answer = agent.working.clone().get_task(request.clone()).await?.into_inner();
    let size = EchoRequest::of_size(request.encoded_len(), answer.encoded_len());
    let mut working = agent.working;
    let ours = async || {
        working.get_task(request.clone()).await?;
        Ok(())
    };
    let both = paired(PLAN, ours, async || echo.measured(&size).await).await?;
    Measured::paired(&both, format!("{what}; {} bytes asked, {} answered", request.encoded_len(), answer.encoded_len()))
}
