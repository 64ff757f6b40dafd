//! Context assembly over the slowest single layer call of it.

use crate::{
    agent::Agent,
    process::Server,
    report::Measured,
    stats::{Latencies, Plan, paired},
};
use anyhow::{Context as _, Result, ensure};
use std::{collections::BTreeMap, time::Duration};
use strata_api::{
    longterm::v1::RecallRequest,
    router::v1::AssembleContextRequest,
    session::v1::GetWindowRequest,
    working::v1::{GetTaskRequest, PutFactsRequest},
};
use strata_runtime::ports::Stopwatch;

/// Five seconds in blocks of some 20 ms.
const PLAN: Plan = Plan { warm_up: 100, block: 20, time: Duration::from_secs(5), rest: Duration::ZERO };
/// Calls of each layer that find the slowest.
const TRIES: usize = 200;
/// Items of each layer.
const ITEMS: u64 = 4;

const USER: &str = "assemble";
const QUESTION: &str = "Where do I keep the notebook, the bicycle, the teapot and the guitar?";

/// `assemble_12`.
pub async fn assemble(server: &Server) -> Result<Measured> {
    let agent = Agent::new(&server.channel);
    let outcomes = agent.remember_all(USER, 0..ITEMS).await?;
    ensure!(outcomes.active() == ITEMS, "the memories are not active: {:?}", outcomes.by_name);
    agent.await_indexed(USER, &outcomes.last.context("a record")?).await?;
    let turns: Vec<String> = (0..ITEMS).map(|n| format!("Today I moved box {n} to the other shelf.")).collect();
    agent.say(USER, "talk", &turns).await?;
    agent.working.clone().create_task(crate::agent::create_task(USER, "task")).await?;
    let all = crate::agent::put_facts(USER, "task");
    let facts = PutFactsRequest { facts: all.facts.iter().take(ITEMS as usize).cloned().collect(), ..all };
    agent.working.clone().put_facts(facts).await?;

    let (user_id, session_id, task_id) = (USER.to_owned(), "talk".to_owned(), "task".to_owned());
    let get_task = GetTaskRequest { user_id: user_id.clone(), task_id: task_id.clone(), ..GetTaskRequest::default() };
    let get_window = GetWindowRequest { user_id: user_id.clone(), session_id: session_id.clone(), ..GetWindowRequest::default() };
    let recall = RecallRequest { user_id: user_id.clone(), query: QUESTION.into(), ..RecallRequest::default() };
    let request =
        AssembleContextRequest { user_id, session_id, task_id, input: QUESTION.into(), ..AssembleContextRequest::default() };
    let single = async |name: &str| -> Result<()> {
        match name {
            "GetTask" => drop(agent.working.clone().get_task(get_task.clone()).await?),
            "GetWindow" => drop(agent.session.clone().get_window(get_window.clone()).await?),
            _ => drop(agent.longterm.clone().recall(recall.clone()).await?),
        }
        Ok(())
    };
    let mut singles: BTreeMap<&str, Latencies> = BTreeMap::new();
    for _ in 0..TRIES {
        for name in ["GetTask", "GetWindow", "Recall"] {
            let call = Stopwatch::start();
            single(name).await?;
            singles.entry(name).or_insert_with(Latencies::new).record(call.elapsed());
        }
    }
    let medians: BTreeMap<&str, f64> = singles.iter().filter_map(|(name, l)| Some((*name, l.p50()?))).collect();
    let slowest = medians.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(name, _)| *name).context("a layer call")?;

    let answer = agent.router.clone().assemble_context(request.clone()).await?.into_inner();
    let items: usize = answer.blocks.iter().map(|b| b.items.len()).sum();
    let by_layer = answer.blocks.iter().flat_map(|b| &b.items).fold(BTreeMap::<&str, usize>::new(), |mut by, item| {
        *by.entry(item.layer.as_str()).or_default() += 1;
        by
    });
    let ours = async || {
        agent.router.clone().assemble_context(request.clone()).await?;
        Ok(())
    };
    let both = paired(PLAN, ours, async || single(slowest).await).await?;
    let note = format!(
        "AssembleContext, all in one over TCP, {items} items ({by_layer:?}), the query's vector cached; raw: {slowest}, the slowest of the single \
         calls ({})",
        medians.iter().map(|(name, us)| format!("{name} {us:.0} us")).collect::<Vec<_>>().join(", ")
    );
    Measured::paired(&both, note)
}
