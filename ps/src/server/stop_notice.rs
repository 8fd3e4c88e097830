//! Tells the engine that leads of a shard that was told to stop, until its jobs are kept: without a word it
//! would count as gone, and whoever ended it to start it anew would lose what it alone has.

use std::{
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use syncline_rpc::{
    EngineAddresses, EngineLink, ShardRegistryClient, StoppingShard, Token,
    hello::Role,
    threads::{self, lock},
    within,
};
use tarpc::client;
use tokio::{runtime, sync::oneshot, time::timeout};

use crate::PsError;

/// Between two notices.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// A thread that tells it. It ends when this is dropped.
pub(super) struct StopNotice {
    stopping: Arc<Mutex<StoppingShard>>,
    /// Whose end ends the thread, and the thread.
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl StopNotice {
    /// Begins to tell. Where there is no thread for it, the engine hears nothing.
    pub(super) fn start(engines: EngineAddresses, token: Token, stopping: StoppingShard) -> Self {
        let stopping = Arc::new(Mutex::new(stopping));
        let (end, ended) = oneshot::channel();
        let told = stopping.clone();
        let tell = move || {
            let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else { return };
            runtime.block_on(async {
                tokio::select! {
                    () = keep_telling(engines, token, &told) => {}
                    _ = ended => {}
                }
            });
            // A name that is being looked up is not waited for.
            runtime.shutdown_background();
        };
        let running = threads::spawn("ps-stop", tell).ok().map(|thread| (end, thread));
        Self { stopping, running }
    }

    /// The process cannot end yet, for this reason.
    pub(super) fn held_up(&self, problem: &PsError) {
        lock(&self.stopping).problem = Some(problem.to_string());
    }
}

impl Drop for StopNotice {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.running.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

async fn keep_telling(engines: EngineAddresses, token: Token, stopping: &Mutex<StoppingShard>) {
    let open = |transport| ShardRegistryClient::new(client::Config::default(), transport).spawn();
    let link = EngineLink::new(engines, Role::Shard, token, open);
    loop {
        let shard = lock(stopping).clone();
        let told = link.call(|c| async move { c.stopping(within(ANSWER_TIMEOUT), shard).await });
        // Whether it was heard or not: the next one comes in a moment.
        let _ = timeout(ANSWER_TIMEOUT, told).await;
        tokio::time::sleep(INTERVAL).await;
    }
}
