//! Answers the calls of workers.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use syncline_rpc::{
    Activity, EndedTasks, EngineFault, JobSetup, OrderCursor, PollReply, RegisterReply, WorkerHello,
    WorkerKey, WorkerService, hostname, threads::lock,
};
use syncline_scheduler::{
    core::{Input, Outcome, TaskReport, WorkerInfo},
    ids::{EngineEpoch, Incarnation, JobId, ProcessId},
    tasks::Attempts,
};
use tarpc::context::Context;
use tokio::{sync::OwnedMutexGuard, time::timeout};
use tracing::info;

use super::{
    arrival::Arrival,
    context::{ServiceContext, store_fault},
    lead::Lead,
    liveness::drop_worker,
    poll::PollUpdate,
    predecessors::{is_over, replaced},
    queue::loop_ended,
    sessions::Sessions,
};

/// Longest wait of one poll.
const MAX_POLL_WAIT: Duration = Duration::from_secs(20);
/// So long a poll waits until the ends that it brought are committed. Then it is answered without: a worker
/// that waited for Redis would look as if it were silent.
const MAX_ENDS_WAIT: Duration = Duration::from_secs(1);

/// Serves one worker's connection.
#[derive(Clone)]
pub(super) struct WorkerHandler {
    pub context: ServiceContext,
    /// Number of this connection, never 0.
    pub connection: u64,
    /// The worker that called last on this connection, so that its end can be noticed.
    pub last_worker: Arc<Mutex<Option<Incarnation>>>,
}

impl WorkerHandler {
    /// The worker that calls, noting its connection. Refuses one whose number belongs to another by now.
    fn identify(&self, who: WorkerKey, sessions: &Sessions) -> Result<Incarnation, EngineFault> {
        let worker = who.incarnation;
        if sessions.is_superseded(who) {
            return Err(EngineFault::Dropped);
        }
        if sessions.set_connection(worker, self.connection) {
            *lock(&self.last_worker) = Some(worker);
        }
        Ok(worker)
    }

    /// The worker that reports, alone until the guard is dropped. The report of a worker that was dropped may
    /// still be true: the core knows what to make of it, and there is no guard.
    async fn begin_report(
        &self,
        who: WorkerKey,
    ) -> Result<(Lead, Incarnation, Option<OwnedMutexGuard<()>>), EngineFault> {
        let lead = self.context.lead()?;
        let worker = self.identify(who, &lead.sessions)?;
        lead.sessions.touch(worker);
        lead.store_outage.check()?;
        let alone = lead.sessions.lock_reports(worker).await;
        Ok((lead, worker, alone))
    }
}

/// Commits the ends that came with a poll. `false`: they are not committed, or not yet, and are to come
/// again.
async fn take_ends(lead: &Lead, worker: Incarnation, ended: EndedTasks) -> Result<bool, EngineFault> {
    if ended.groups.is_empty() {
        return Ok(true);
    }
    lead.sessions.touch(worker);
    if lead.store_outage.check().is_err() {
        return Ok(false);
    }
    let Ok(alone) = timeout(MAX_ENDS_WAIT, lead.sessions.lock_reports(worker)).await else {
        return Ok(false);
    };
    let request = lead.queue.request(tasks_ended(lead, worker, ended));
    let Ok(committed) = timeout(MAX_ENDS_WAIT, request).await else { return Ok(false) };
    let mut committed = committed?;
    match timeout(MAX_ENDS_WAIT, &mut committed).await {
        Ok(outcome) => outcome.map_err(|_| loop_ended())?.map(|()| true),
        Err(_) => {
            // What comes again waits for these, instead of being queued behind them.
            tokio::spawn(async move { drop((committed.await, alone)) });
            Ok(false)
        }
    }
}

/// What the loop is told of them.
fn tasks_ended(lead: &Lead, worker: Incarnation, ended: EndedTasks) -> Input {
    let EndedTasks { under, groups } = ended;
    Input::TasksEnded { worker, groups: groups.arrived(), under_another: under != lead.epoch }
}

impl WorkerService for WorkerHandler {
    async fn register(self, _: Context, hello: WorkerHello) -> Result<RegisterReply, EngineFault> {
        let lead = self.context.lead()?;
        lead.store_outage.check()?;
        let incarnation = self.context.store.next_incarnation().await.map_err(store_fault)?;
        let process = ProcessId::new(hello.process);
        let WorkerHello { name, host, pid, training_slot, device, max_batch, trains, capacity, .. } = hello;
        let who = WorkerKey::draw(incarnation);
        let about = WorkerInfo {
            name,
            host,
            device,
            pid,
            process,
            training_slot,
            max_batch,
            trains,
            capacity,
            registration: Some(who.registration),
        }
        .arrived();
        info!(worker = %incarnation, name = about.name, host = about.host, "worker registered");
        for (gone, reason) in replaced(|| lead.sessions.unheard(), &about, hostname().as_deref(), is_over) {
            drop_worker(&self.context, gone, &reason);
        }
        let silence_ms = u64::try_from(self.context.limits.worker_silence.as_millis()).unwrap_or(u64::MAX);
        let registered = RegisterReply { epoch: lead.epoch, who, silence_ms };
        lead.sessions.register(incarnation, about.clone());
        self.identify(who, &lead.sessions)?;
        // It waits for no room: whoever drops this session now has to come behind it.
        lead.queue.try_tell(Input::WorkerJoined { worker: incarnation, about })?;
        // The answer to a question that comes behind it says that it is committed.
        self.context.query(|_| ()).await?;
        Ok(registered)
    }

    async fn poll(
        self,
        _: Context,
        who: WorkerKey,
        activity: Activity,
        cursor: OrderCursor,
        ended: EndedTasks,
        wait_ms: u64,
    ) -> Result<PollReply, EngineFault> {
        let lead = self.context.lead()?;
        let worker = self.identify(who, &lead.sessions)?;
        let ends_taken = take_ends(&lead, worker, ended).await?;
        let wait_ms = if ends_taken { wait_ms } else { 0 };
        let wait = Duration::from_millis(wait_ms).min(MAX_POLL_WAIT);
        let epoch = lead.epoch;
        let known_orders = (cursor.epoch == epoch).then_some(cursor.next);
        let mut activity = activity.arrived();
        if let Some(calls) = activity.calls.take() {
            lead.sessions.set_calls(worker, calls, lead.clock.now_us() / 1_000);
        }
        let news = lead.sessions.poll(worker, activity, known_orders, wait).await;
        let PollUpdate { assignments, revoked, orders } = news.ok_or(EngineFault::Dropped)?;
        let shards = lead.shards.addresses().unwrap_or_default();
        Ok(PollReply {
            epoch,
            assignments,
            revoked,
            shards,
            shards_heard: lead.shards.are_heard(),
            lead_expired: lead.store_outage.lead_expired(),
            orders,
            ends_taken,
        })
    }

    async fn report(
        self,
        _: Context,
        who: WorkerKey,
        reports: Vec<TaskReport>,
    ) -> Result<EngineEpoch, EngineFault> {
        let (lead, worker, _alone) = self.begin_report(who).await?;
        let mut reports = reports.arrived();
        // Whatever is done was pulled from all shards, and pushed to them.
        if reports.iter().any(|report| !matches!(report.outcome, Outcome::Failed { .. })) {
            lead.shards.note_reached();
        }
        // They are handled in order, so that the last one's commit covers them all.
        if let Some(last) = reports.pop() {
            for report in reports {
                lead.queue.try_tell(Input::Report { worker, report })?;
            }
            lead.queue.commit(Input::Report { worker, report: last }).await?;
        }
        Ok(lead.epoch)
    }

    async fn finished(
        self,
        _: Context,
        who: WorkerKey,
        ended: EndedTasks,
    ) -> Result<EngineEpoch, EngineFault> {
        let (lead, worker, _alone) = self.begin_report(who).await?;
        lead.queue.commit(tasks_ended(&lead, worker, ended)).await?;
        Ok(lead.epoch)
    }

    async fn setup(self, _: Context, job: JobId) -> Result<JobSetup, EngineFault> {
        // Another engine may know the job.
        let lead = self.context.undisputed_lead()?;
        let (nonce, train) = lead.jobs.training(&job).ok_or(EngineFault::UnknownJob { job })?;
        let shards = lead.shards.all_addresses().await;
        Ok(JobSetup { epoch: lead.epoch, nonce, train: (*train).clone(), shards })
    }

    async fn leave(self, _: Context, who: WorkerKey, begun: Vec<Attempts>) -> Result<(), EngineFault> {
        let lead = self.context.lead()?;
        let worker = self.identify(who, &lead.sessions)?;
        // Also while Redis takes no writes: nobody would say so again of a worker whose session is closed.
        lead.queue.try_tell(Input::WorkerLeft { worker, begun })?;
        lead.sessions.close(worker);
        // The answer to a question that comes behind it says that it is committed.
        self.context.query(|_| ()).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::service::fake_shard::leading_engine;

    #[tokio::test]
    async fn an_engine_whose_lease_is_over_does_not_say_that_a_job_is_unknown() {
        let engine = leading_engine().await;
        let context = engine.context.clone();
        let handler = WorkerHandler { context, connection: 1, last_worker: Arc::default() };
        let setup = async || handler.clone().setup(Context::current(), "digits".parse().unwrap()).await;
        assert!(matches!(setup().await, Err(EngineFault::UnknownJob { .. })));
        engine.lead.store_outage.set_lead_until(Instant::now());
        assert!(matches!(setup().await, Err(EngineFault::NotActive { .. })));
    }
}
