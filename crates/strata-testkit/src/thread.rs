//! A thread with a runtime of its own for each server of the kit: a blocking test cannot starve it, and it ends with its
//! owner and not with the runtime of the test that started it.

use std::thread::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Runs one future until it ends or this value is dropped; dropping waits for the thread.
#[derive(Debug)]
pub struct ServerThread {
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl ServerThread {
    /// Starts `serve` on a thread named `name`. Its spawned tasks end with it.
    pub fn start<F>(name: &str, serve: impl FnOnce() -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()>,
    {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let body = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                tokio::select! {
                    () = stopped.cancelled() => {}
                    () = serve() => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body).expect("a thread");
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already; a second one in drop would abort the test run.
            drop(thread.join());
        }
    }
}
