//! What a program uses to submit jobs and to watch them. Needs neither Redis nor ONNX Runtime.

use std::{collections::BTreeMap, time::Duration};

use syncline_scheduler::{
    core::{BarrierExplanation, TaskExplanation},
    graph::TaskId,
    ids::{JobId, Superstep},
    spec::JobSpec,
};

use crate::rpc::{
    CallError, ClientServiceClient, Collected, EngineAddresses, EngineFault, EngineLink, InactiveReason,
    JobFields, JobView, Token, WorkerFields, hello::Role, within,
};

const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a call that may be repeated is repeated while the engine is away.
const RETRY_LIMIT: Duration = Duration::from_secs(20);
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Pause between two polls of a job that is waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Removing files takes a while where there are many.
const GC_TIMEOUT: Duration = Duration::from_secs(120);
/// How long one poll may take: a person who watches wants to know that nothing answers.
const POLL_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to the engine that leads, which comes back after it was lost; cheap to clone.
#[derive(Clone)]
pub struct Client {
    link: EngineLink<ClientServiceClient>,
}

/// Why a call of a client failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    #[error("[E300] the engine at {address} cannot be reached")]
    Unreachable {
        /// With several engines all their addresses.
        address: String,
        #[source]
        source: CallError,
    },
    #[error(transparent)]
    Refused(#[from] EngineFault),
}

impl ClientError {
    /// Whether the engine is away for a while: nobody answers, or nobody leads.
    fn is_away(&self) -> bool {
        match self {
            Self::Unreachable { source, .. } => source.is_passing(),
            Self::Refused(EngineFault::NotActive { why: InactiveReason::Store { .. } }) => false,
            Self::Refused(fault) => {
                matches!(fault, EngineFault::NotActive { .. } | EngineFault::MissingShards { .. })
            }
        }
    }

    /// Whether nothing was asked yet: another engine may be asked instead.
    fn was_not_asked(&self) -> bool {
        match self {
            Self::Unreachable { source: CallError::Hello(_), .. } => self.is_passing(),
            Self::Unreachable { .. } => false,
            Self::Refused(fault) => matches!(fault, EngineFault::NotActive { .. }),
        }
    }

    /// Whether the same call may succeed later: the engine is away, or Redis does not do its part.
    pub fn is_passing(&self) -> bool {
        use EngineFault::{NotActive, Store};
        self.is_away() || matches!(self, Self::Refused(Store { .. } | NotActive { .. }))
    }

    /// What the user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => {
                "is `syncline up` running, and do --engine and --token-file belong to it?"
            }
            Self::Refused(fault) => fault.hint(),
        }
    }
}

impl Client {
    /// Does not connect yet: the first call does. With several engines, calls go to the one that leads.
    pub fn new(engines: impl Into<EngineAddresses>, token: Token) -> Self {
        let open = |transport| ClientServiceClient::new(tarpc::client::Config::default(), transport).spawn();
        Self { link: EngineLink::new(engines.into(), Role::Client, token, open) }
    }

    async fn ask<T, F>(&self, call: impl FnOnce(ClientServiceClient) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Result<T, EngineFault>, tarpc::client::RpcError>>,
    {
        let address = || self.link.addresses().to_string();
        let unreachable = |source| ClientError::Unreachable { address: address(), source };
        Ok(self.link.call(call).await.map_err(unreachable)??)
    }

    /// Asks each engine once at most, until one leads.
    async fn once<T, F>(&self, call: impl Fn(ClientServiceClient) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Result<T, EngineFault>, tarpc::client::RpcError>>,
    {
        for _ in 1..self.link.addresses().count() {
            match self.ask(&call).await {
                Err(error) if error.was_not_asked() => {}
                answered => return answered,
            }
        }
        self.ask(&call).await
    }

    /// Whether waiting cannot help: the one engine that was named stands by for another.
    fn names_only_a_standby(&self, error: &ClientError) -> bool {
        let standby = |e: &ClientError| {
            matches!(e, ClientError::Refused(EngineFault::NotActive { why: InactiveReason::Standby { .. } }))
        };
        self.link.addresses().count() == 1 && standby(error)
    }

    /// A call that changes nothing is repeated while the engine is away. What is wrong with Redis is said at once: that
    /// seldom passes by itself.
    async fn retry_while_away<T, F>(&self, call: impl Fn(ClientServiceClient) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Result<T, EngineFault>, tarpc::client::RpcError>>,
    {
        self.retry_while(ClientError::is_away, call).await
    }

    /// A call that may be made twice is repeated while it fails in a way that passes.
    async fn retry_while<T, F>(
        &self,
        passes: impl Fn(&ClientError) -> bool,
        call: impl Fn(ClientServiceClient) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Result<T, EngineFault>, tarpc::client::RpcError>>,
    {
        let deadline = tokio::time::Instant::now() + RETRY_LIMIT;
        loop {
            let error = match self.once(&call).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let late = tokio::time::Instant::now() >= deadline;
            if !passes(&error) || self.names_only_a_standby(&error) || late {
                return Err(error);
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Whether the engine answers right now.
    pub async fn ping(&self) -> Result<BTreeMap<String, String>, ClientError> {
        self.once(|c| async move { c.about(within(CALL_TIMEOUT)).await }).await
    }

    /// Addresses of the parameter shards, waiting until all are there.
    pub async fn shards(&self) -> Result<Vec<String>, ClientError> {
        self.retry_while_away(|c| async move { c.shards(within(CALL_TIMEOUT)).await }).await
    }

    /// Submits a job whose blobs are uploaded. Returns when it is committed in Redis. Repeated while the engine is away,
    /// which makes no second job.
    pub async fn submit(&self, spec: JobSpec) -> Result<(), ClientError> {
        self.submit_as(spec, false).await
    }

    /// The same; a job of the same name that is over makes room, with all that is stored of it but its snapshot files.
    pub async fn submit_replacing(&self, spec: JobSpec) -> Result<(), ClientError> {
        self.submit_as(spec, true).await
    }

    async fn submit_as(&self, spec: JobSpec, replace: bool) -> Result<(), ClientError> {
        let nonce: u32 = rand::random();
        self.retry_while(ClientError::is_passing, |c| {
            let spec = spec.clone();
            async move { c.submit(within(CALL_TIMEOUT), spec, nonce, replace).await }
        })
        .await
    }

    /// Removes a job that is over or damaged, with all that is stored of it but its snapshot files.
    pub async fn delete(&self, job: &JobId) -> Result<(), ClientError> {
        self.once(|c| {
            let job = job.clone();
            async move { c.delete(within(CALL_TIMEOUT), job).await }
        })
        .await
    }

    /// Removes blobs from the shards that no job names and that came, or were asked for, longer ago than this.
    pub async fn gc(&self, older_than: Duration) -> Result<Collected, ClientError> {
        let older_than_s = older_than.as_secs();
        self.once(|c| async move { c.gc(within(GC_TIMEOUT), older_than_s).await }).await
    }

    /// Every job known, oldest first.
    pub async fn jobs(&self) -> Result<Vec<JobFields>, ClientError> {
        self.retry_while_away(|c| async move { c.jobs(within(CALL_TIMEOUT)).await }).await
    }

    /// Every live worker, oldest first.
    pub async fn workers(&self) -> Result<Vec<WorkerFields>, ClientError> {
        self.retry_while_away(|c| async move { c.workers(within(CALL_TIMEOUT)).await }).await
    }

    /// One job with its workers as of right now: nothing is repeated.
    pub async fn job_once(&self, job: &JobId) -> Result<JobView, ClientError> {
        self.once(|c| {
            let job = job.clone();
            async move { c.job(within(POLL_TIMEOUT), job).await }
        })
        .await
    }

    /// One job with its workers.
    pub async fn job(&self, job: &JobId) -> Result<JobView, ClientError> {
        self.retry_while_away(|c| {
            let job = job.clone();
            async move { c.job(within(CALL_TIMEOUT), job).await }
        })
        .await
    }

    /// Why there is a barrier, whom it waits for, and what was expected of it.
    pub async fn explain_barrier(
        &self,
        job: &JobId,
        barrier: Superstep,
    ) -> Result<BarrierExplanation, ClientError> {
        self.retry_while_away(|c| {
            let job = job.clone();
            async move { c.explain_barrier(within(CALL_TIMEOUT), job, barrier).await }
        })
        .await
    }

    /// Why a task is in the state it is in.
    pub async fn explain_task(&self, job: &JobId, task: &TaskId) -> Result<TaskExplanation, ClientError> {
        self.retry_while_away(|c| {
            let (job, task) = (job.clone(), task.clone());
            async move { c.explain_task(within(CALL_TIMEOUT), job, task).await }
        })
        .await
    }

    /// Cancels a job.
    pub async fn cancel(&self, job: &JobId) -> Result<(), ClientError> {
        self.once(|c| {
            let job = job.clone();
            async move { c.cancel(within(CALL_TIMEOUT), job).await }
        })
        .await
    }

    /// Waits until the job is over, calling `on_poll` with every poll. Fails when no poll has succeeded for some time.
    pub async fn wait(&self, job: &JobId, mut on_poll: impl FnMut(&JobView)) -> Result<JobView, ClientError> {
        loop {
            let poll = |c: ClientServiceClient| {
                let job = job.clone();
                async move { c.job(within(POLL_TIMEOUT), job).await }
            };
            let view = self.retry_while(ClientError::is_passing, poll).await?;
            on_poll(&view);
            if matches!(view.job.get("state").map(String::as_str), Some("done" | "failed" | "canceled")) {
                return Ok(view);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
