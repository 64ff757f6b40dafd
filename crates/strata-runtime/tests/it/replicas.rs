//! Several replicas behind one channel.

use crate::channels::{listen, operator};
use crate::double::{Client, Double, ask, reason};
use std::sync::Arc;
use std::time::Duration;
use strata_core::Reason;
use strata_runtime::channel::{self, EndpointConfig};
use strata_runtime::health::{Health, Latch};
use strata_runtime::replicas::{Place, placed};
use strata_runtime::server::ServeConfig;
use strata_runtime::signing::{KeyRing, SharedKeys, Signer, Verifier};
use strata_runtime::stack::{self, StackDeps};
use strata_runtime::{CallIdentity, Ports, RpcChannel, TaskGroup};
use strata_testkit::eventually;
use tonic::Request;

const SERVICE: &str = "strata.working.v1.WorkingMemoryService";
const SOON: Duration = Duration::from_secs(30);

struct Replica {
    double: Double,
    health: Health,
    tasks: TaskGroup,
    url: String,
}

struct Replicas {
    all: Vec<Replica>,
    signer: Signer,
    tasks: TaskGroup,
}

impl Replicas {
    async fn start(count: usize) -> Self {
        let ports = Ports::system();
        let keys = SharedKeys::new(KeyRing::ephemeral(ports.ids.as_ref()));
        let mut all = Vec::new();
        for _ in 0..count {
            let (tasks, double) = (TaskGroup::new(), Double::default());
            let health = Health::new(&tasks, &[SERVICE]);
            let routes = double.routes().add_service(health.server());
            let verifier = Arc::new(Verifier::new(keys.clone(), ports.clone()));
            let service = stack::internal(routes, verifier, &StackDeps::new(ports.clone()));
            let address = listen(&tasks, service, ServeConfig::default()).await;
            all.push(Replica { double, health, tasks, url: format!("http://{address}") });
        }
        Self { all, signer: Signer::new(keys, ports), tasks: TaskGroup::new() }
    }

    /// A router that knows these, in this order.
    fn router(&self, members: &[usize]) -> RpcChannel {
        let member = |at: &usize| {
            let url = self.all[*at].url.clone();
            let channel = channel::connect(&EndpointConfig::new(url.clone())).expect("a URL");
            (url, channel)
        };
        placed(members.iter().map(member).collect(), SERVICE, &self.signer, &self.tasks)
    }

    fn counts(&self) -> Vec<usize> {
        self.all.iter().map(|replica| Double::count(&replica.double.began)).collect()
    }

    /// Asks, and answers which replicas saw the call.
    async fn ask(&self, router: &RpcChannel, place: Place, what: &'static str) -> (Vec<usize>, Result<(), tonic::Status>) {
        let before = self.counts();
        let mut request: Request<_> = ask(what);
        request.extensions_mut().insert(CallIdentity::new(operator(), None));
        request.extensions_mut().insert(place);
        let answer = Client::new(router.clone()).get_status(request).await.map(drop);
        let seen =
            self.counts().iter().zip(before).enumerate().filter(|(_, (now, before))| *now > before).map(|(at, _)| at).collect();
        (seen, answer)
    }

    /// The replica that serves a key.
    async fn serving(&self, router: &RpcChannel, key: &str) -> usize {
        let (seen, answer) = self.ask(router, self::key(key), "nothing").await;
        answer.unwrap_or_else(|status| panic!("{key}: {status}"));
        assert_eq!(seen.len(), 1, "{key}: {seen:?}");
        seen[0]
    }
}

fn key(key: &str) -> Place {
    Place::Key(vec!["t1".into(), key.into()])
}

fn keys() -> impl Iterator<Item = String> {
    (0..40).map(|n| format!("任务-{n}"))
}

#[tokio::test]
async fn w10_a_key_is_served_by_one_replica_whatever_the_order_of_the_list() {
    let replicas = Replicas::start(3).await;
    let (one, other) = (replicas.router(&[0, 1, 2]), replicas.router(&[2, 0, 1]));
    let mut served = [0; 3];
    for key in keys() {
        let at = replicas.serving(&one, &key).await;
        assert_eq!(replicas.serving(&other, &key).await, at, "{key}");
        served[at] += 1;
    }
    assert!(served.iter().all(|count| *count > 0), "{served:?}");
    for at in 0..3 {
        assert_eq!(replicas.ask(&one, Place::Member(at), "nothing").await.0, [at]);
        assert_eq!(replicas.ask(&other, Place::Member(at), "nothing").await.0, [[2, 0, 1][at]]);
    }
}

#[tokio::test]
async fn w10_the_next_replica_stands_in_for_one_that_is_gone_and_the_others_keep_their_keys() {
    let replicas = Replicas::start(3).await;
    let router = replicas.router(&[0, 1, 2]);
    let mut before = Vec::new();
    for key in keys() {
        before.push((replicas.serving(&router, &key).await, key));
    }
    assert!(replicas.all[1].tasks.shutdown(SOON).await, "gone");
    for (at, key) in &before {
        // What was under way on the broken connection is the caller's to repeat.
        let now = loop {
            let (seen, answer) = replicas.ask(&router, self::key(key), "nothing").await;
            match answer {
                Ok(()) => break seen[0],
                Err(status) => assert_eq!(reason(&status), Reason::StoreUnavailable),
            }
        };
        assert!(if *at == 1 { now != 1 } else { now == *at }, "{key} was at {at} and is at {now}");
    }
    let (seen, answer) = replicas.ask(&router, Place::Member(1), "nothing").await;
    assert!(seen.is_empty());
    assert_eq!(reason(&answer.expect_err("gone")), Reason::StoreUnavailable);
    assert!(replicas.tasks.shutdown(SOON).await);
}

#[tokio::test]
async fn w10_a_replica_that_says_it_does_not_serve_gets_no_calls_until_it_does() {
    let replicas = Replicas::start(2).await;
    let router = replicas.router(&[0, 1]);
    let mut mine = Vec::new();
    for key in keys() {
        if replicas.serving(&router, &key).await == 0 {
            mine.push(key);
        }
    }
    let latch: Latch = replicas.all[0].health.latch(SERVICE, "boards");
    let all_at = |wanted: usize| {
        let (replicas, router, mine) = (&replicas, &router, &mine);
        eventually(SOON, move || async move {
            let mut there = true;
            for key in mine {
                there &= replicas.serving(router, key).await == wanted;
            }
            there
        })
    };
    all_at(1).await;
    drop(latch);
    all_at(0).await;
}

#[tokio::test]
async fn w10_a_call_is_sent_again_only_when_nothing_was_done() {
    let replicas = Replicas::start(3).await;
    let router = replicas.router(&[0, 1, 2]);
    let (seen, answer) = replicas.ask(&router, key("k"), "refuse").await;
    assert_eq!(seen, [0, 1, 2], "each was asked once");
    assert_eq!(reason(&answer.expect_err("none serves")), Reason::NotServing);
    let (seen, answer) = replicas.ask(&router, key("k"), "fail").await;
    assert_eq!(seen.len(), 1, "what came so far may have been done");
    assert_eq!(reason(&answer.expect_err("failed")), Reason::StaleEpoch);
}
