//! The tables of the languages: patterns and a dictionary, a hundred megabytes that a router needs with its first call. One that
//! only stands by does without them; whoever needs them first waits, beside the threads of the runtime: a thread that is busy
//! for seconds looks dead to its peers.

use http::{Request, Response};
use std::sync::Arc;
use strata_runtime::layer::body::Answer;
use strata_runtime::layer::{Middleware, Rpc};
use strata_runtime::task::TaskGroup;
use tokio::sync::OnceCell;
use tonic::body::Body;

/// Makes the tables once, when they are needed first.
#[derive(Debug)]
pub(crate) struct LanguageTables {
    made: OnceCell<()>,
    tasks: TaskGroup,
}

impl LanguageTables {
    /// Not made yet; in a process whose other roles have made them it costs nothing to make them again.
    pub(crate) fn new(tasks: TaskGroup) -> Self {
        Self { made: OnceCell::new(), tasks }
    }

    /// Waits until they are there: about a second, once.
    pub(crate) async fn ready(&self) {
        let make = async {
            // Cancelled at a shutdown: whoever needs them then makes them itself.
            let _ = self.tasks.blocking("language tables", strata_text::warm).await;
        };
        self.made.get_or_init(|| make).await;
    }
}

/// Calls wait for the tables.
#[derive(Debug)]
pub(crate) struct WithLanguage(pub(crate) Arc<LanguageTables>);

impl Middleware for WithLanguage {
    async fn handle<S: Rpc>(self: &Arc<Self>, request: Request<Body>, next: &S) -> Response<Answer> {
        self.0.ready().await;
        next.call(request).await
    }
}
