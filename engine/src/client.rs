//! What a program uses to submit jobs and to watch them. Needs neither Redis nor ONNX Runtime.

use std::{collections::BTreeMap, time::Duration};

use syncline_scheduler::{
    core::{BarrierExplanation, TaskExplanation},
    graph::TaskId,
    ids::{JobId, Superstep},
    spec::JobSpec,
};

use crate::rpc::{
    CallError, ClientServiceClient, Collected, EngineAddresses, EngineFault, EngineLink, Idle, JobFields,
    JobView, Token, WorkerFields, hello::Role, within,
};

const CALL: Duration = Duration::from_secs(15);
/// How long a call that may be repeated is repeated while the engine is away.
const PATIENCE: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_millis(200);
/// How often a job that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Removing files takes a while where there are many.
const GC_CALL: Duration = Duration::from_secs(120);
/// How long one look at it may take: who watches wants to know that nothing answers.
const LOOK_CALL: Duration = Duration::from_secs(5);

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
            Self::Refused(EngineFault::NotActive { why: Idle::Store { .. } }) => false,
            Self::Refused(fault) => {
                matches!(fault, EngineFault::NotActive { .. } | EngineFault::MissingShards { .. })
            }
        }
    }

    /// Whether nothing was asked yet: another engine may be asked instead.
    fn is_unasked(&self) -> bool {
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
    /// Does not connect yet: the first call does. With several engines whoever leads is asked.
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
                Err(error) if error.is_unasked() => {}
                answered => return answered,
            }
        }
        self.ask(&call).await
    }

    /// Whether waiting cannot help: the one engine that was named stands by for another.
    fn is_misled(&self, error: &ClientError) -> bool {
        let standby = |e: &ClientError| {
            matches!(e, ClientError::Refused(EngineFault::NotActive { why: Idle::Standby { .. } }))
        };
        self.link.addresses().count() == 1 && standby(error)
    }

    /// A call that changes nothing is repeated while the engine is away. What is wrong with Redis is said at once: that
    /// seldom passes by itself.
    async fn patiently<T, F>(&self, call: impl Fn(ClientServiceClient) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Result<T, EngineFault>, tarpc::client::RpcError>>,
    {
        self.repeated(ClientError::is_away, call).await
    }

    /// A call that may be made twice is repeated while it fails in a way that passes.
    async fn repeated<T, F>(
        &self,
        passes: impl Fn(&ClientError) -> bool,
        call: impl Fn(ClientServiceClient) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Result<T, EngineFault>, tarpc::client::RpcError>>,
    {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let error = match self.once(&call).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let late = tokio::time::Instant::now() >= deadline;
            if !passes(&error) || self.is_misled(&error) || late {
                return Err(error);
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Whether the engine answers right now.
    pub async fn ping(&self) -> Result<BTreeMap<String, String>, ClientError> {
        self.once(|c| async move { c.about(within(CALL)).await }).await
    }

    /// Addresses of the parameter shards, waiting until all are there.
    pub async fn shards(&self) -> Result<Vec<String>, ClientError> {
        self.patiently(|c| async move { c.shards(within(CALL)).await }).await
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
        self.repeated(ClientError::is_passing, |c| {
            let spec = spec.clone();
            async move { c.submit(within(CALL), spec, nonce, replace).await }
        })
        .await
    }

    /// Removes a job that is over or damaged, with all that is stored of it but its snapshot files.
    pub async fn delete(&self, job: &JobId) -> Result<(), ClientError> {
        self.once(|c| {
            let job = job.clone();
            async move { c.delete(within(CALL), job).await }
        })
        .await
    }

    /// Removes blobs from the shards that no job names and that came, or were asked for, longer ago than this.
    pub async fn gc(&self, older_than: Duration) -> Result<Collected, ClientError> {
        let older_than_s = older_than.as_secs();
        self.once(|c| async move { c.gc(within(GC_CALL), older_than_s).await }).await
    }

    /// Every job known, oldest first.
    pub async fn jobs(&self) -> Result<Vec<JobFields>, ClientError> {
        self.patiently(|c| async move { c.jobs(within(CALL)).await }).await
    }

    /// Every live worker, oldest first.
    pub async fn workers(&self) -> Result<Vec<WorkerFields>, ClientError> {
        self.patiently(|c| async move { c.workers(within(CALL)).await }).await
    }

    /// One job with its workers as of right now: nothing is repeated.
    pub async fn look(&self, job: &JobId) -> Result<JobView, ClientError> {
        self.once(|c| {
            let job = job.clone();
            async move { c.job(within(LOOK_CALL), job).await }
        })
        .await
    }

    /// One job with its workers.
    pub async fn job(&self, job: &JobId) -> Result<JobView, ClientError> {
        self.patiently(|c| {
            let job = job.clone();
            async move { c.job(within(CALL), job).await }
        })
        .await
    }

    /// Why there is a barrier, whom it waits for, and what was expected of it.
    pub async fn explain_barrier(
        &self,
        job: &JobId,
        barrier: Superstep,
    ) -> Result<BarrierExplanation, ClientError> {
        self.patiently(|c| {
            let job = job.clone();
            async move { c.explain_barrier(within(CALL), job, barrier).await }
        })
        .await
    }

    /// Why a task is in the state it is in.
    pub async fn explain_task(&self, job: &JobId, task: &TaskId) -> Result<TaskExplanation, ClientError> {
        self.patiently(|c| {
            let (job, task) = (job.clone(), task.clone());
            async move { c.explain_task(within(CALL), job, task).await }
        })
        .await
    }

    /// Cancels a job.
    pub async fn cancel(&self, job: &JobId) -> Result<(), ClientError> {
        self.once(|c| {
            let job = job.clone();
            async move { c.cancel(within(CALL), job).await }
        })
        .await
    }

    /// Waits until the job is over, showing every look to `seen`. Gives up when it could not be looked at for some time.
    pub async fn wait(&self, job: &JobId, mut seen: impl FnMut(&JobView)) -> Result<JobView, ClientError> {
        loop {
            let look = |c: ClientServiceClient| {
                let job = job.clone();
                async move { c.job(within(LOOK_CALL), job).await }
            };
            let view = self.repeated(ClientError::is_passing, look).await?;
            seen(&view);
            if matches!(view.job.get("state").map(String::as_str), Some("done" | "failed" | "canceled")) {
                return Ok(view);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
