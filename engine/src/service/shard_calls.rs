//! Calls to the processes that serve shards, and to those that follow them.

use std::{
    fmt,
    time::{Duration, Instant},
};

use syncline_rpc::{CallError, EngineFault, Reconnecting, ShardClient, ShardFault};
use syncline_scheduler::ids::ShardIndex;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::{
    shard_slots::ShardSlots,
    shards::{ShardDirectory, ShardEntry},
};

/// Pause between two tries to reach a shard.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

impl ShardDirectory {
    async fn client(&self, index: ShardIndex) -> (u64, Reconnecting<ShardClient>) {
        let mut changed = self.changed.subscribe();
        loop {
            let client = self.lock().primary(index).map(|k| (k.hello.boot, k.client.clone()));
            if let Some(client) = client {
                return client;
            }
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns when another process serves the shard.
    async fn replaced(&self, index: ShardIndex, boot: u64) {
        let mut changed = self.changed.subscribe();
        while self.lock().primary(index).is_none_or(|now| now.hello.boot == boot) {
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Calls one shard, again and again until it answers, whatever process serves it. Only for calls that may be repeated.
    pub(super) async fn call<T, F>(&self, index: ShardIndex, call: impl Fn(ShardClient) -> F) -> T
    where
        F: Future<Output = Result<T, tarpc::client::RpcError>>,
    {
        let mut unanswered = None;
        loop {
            let (boot, client) = self.client(index).await;
            unanswered.take_if(|order: &mut UnansweredOrder<'_>| order.boot != boot);
            let answer = tokio::select! {
                answer = client.call(&call) => answer,
                // What the other one would still answer is of no use, and it may be stuck.
                () = self.replaced(index, boot) => continue,
            };
            match answer {
                Ok(value) => {
                    // Who answers one order is reached, whatever else takes long there.
                    self.lock().note_order(index, boot, true, Instant::now());
                    return value;
                }
                Err(error) => debug!(shard = %index, error = %describe(&error), "shard does not answer yet"),
            }
            unanswered.get_or_insert_with(|| UnansweredOrder::new(self, index, boot));
            tokio::select! {
                () = sleep(RETRY_PAUSE) => {}
                () = self.replaced(index, boot) => {}
            }
        }
    }

    /// Calls one shard once, if it is there.
    pub(super) async fn call_if_present<T, F>(
        &self,
        index: ShardIndex,
        call: impl FnOnce(ShardClient) -> F,
    ) -> Option<Result<T, CallError>>
    where
        F: Future<Output = Result<T, tarpc::client::RpcError>>,
    {
        self.call_holder(|slots| slots.primary(index), call).await
    }

    /// Calls the process that follows a shard once, if there is one.
    pub(super) async fn call_standby<T, F>(
        &self,
        index: ShardIndex,
        call: impl FnOnce(ShardClient) -> F,
    ) -> Option<Result<T, CallError>>
    where
        F: Future<Output = Result<T, tarpc::client::RpcError>>,
    {
        self.call_holder(|slots| slots.standby(index), call).await
    }

    /// Calls one process once, if it is there.
    async fn call_holder<T, F>(
        &self,
        find: impl FnOnce(&ShardSlots<Reconnecting<ShardClient>>) -> Option<&ShardEntry>,
        call: impl FnOnce(ShardClient) -> F,
    ) -> Option<Result<T, CallError>>
    where
        F: Future<Output = Result<T, tarpc::client::RpcError>>,
    {
        let client = find(&self.lock()).map(|holder| holder.client.clone())?;
        Some(client.call(call).await)
    }

    /// Calls one shard once, as soon as it is there.
    pub(super) async fn call_once<T, F>(
        &self,
        index: ShardIndex,
        call: impl FnOnce(ShardClient) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, tarpc::client::RpcError>>,
    {
        self.client(index).await.1.call(call).await
    }

    /// Lets a shard do once what somebody waits for, and then the process that follows it, if there is one: what that has is there twice, and
    /// `what` it keeps, if it does not do it, is told in the log. Fails if the shard is not there, or does not do it.
    pub(super) async fn ask_both<T: fmt::Debug, F>(
        &self,
        shard: ShardIndex,
        what: &str,
        call: impl Fn(ShardClient) -> F,
    ) -> Result<T, EngineFault>
    where
        F: Future<Output = Result<Result<T, ShardFault>, tarpc::client::RpcError>>,
    {
        let failed = |cause| EngineFault::Shard { shard, cause };
        let answer = self.call_if_present(shard, &call).await.ok_or_else(|| self.missing_fault())?;
        let done = answer.map_err(|e| failed(describe(&e)))?.map_err(|fault| failed(fault.to_string()))?;
        match self.call_standby(shard, call).await {
            None | Some(Ok(Ok(_))) => {}
            failed => warn!(%shard, ?failed, "the standby of the shard keeps {what}"),
        }
        Ok(done)
    }
}

/// An order that a process has not answered, as long as it is repeated: given up, it says nothing any more.
struct UnansweredOrder<'a> {
    shards: &'a ShardDirectory,
    index: ShardIndex,
    boot: u64,
}

impl<'a> UnansweredOrder<'a> {
    fn new(shards: &'a ShardDirectory, index: ShardIndex, boot: u64) -> Self {
        shards.lock().note_order(index, boot, false, Instant::now());
        Self { shards, index, boot }
    }
}

impl Drop for UnansweredOrder<'_> {
    fn drop(&mut self) {
        self.shards.lock().note_order(self.index, self.boot, true, Instant::now());
    }
}

fn describe(error: &CallError) -> String {
    match error {
        CallError::Lost(cause) => format!("{error}: {cause}"),
        other => other.to_string(),
    }
}
