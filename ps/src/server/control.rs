//! The engine's orders, over tarpc. Everything that may block runs on the blocking pool.

use std::{sync::Arc, time::Duration};

use syncline_rpc::{
    BarrierOrder, ClockRoster, ClosedBarrier, Collected, Forgotten, Guarded, HeldJob, OpenJob, PushProgress,
    Shard, ShardFault, ShardState, SnapshotFile, answer_calls, channel,
};
use syncline_scheduler::ids::{EngineEpoch, Incarnation, JobId, RunId};
use tarpc::{context::Context, server::Channel};
use tokio::{
    net::TcpStream,
    sync::Notify,
    task::{self, JoinHandle},
    time,
};

use super::{Shared, checkpoints, forgotten_checkpoints, open, role_change, snapshot};
use crate::{PsError, client::digest_from_hex, shard::StandbyOp};

/// Longest time that `closed` waits, whatever was asked.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// How long news of a closed barrier waits for that of others while the shard has orders for more.
const GATHER: Duration = Duration::from_millis(50);

/// Serves one control connection to its end.
pub(super) async fn serve(shared: Arc<Shared>, stream: TcpStream) {
    let hang_up = Arc::new(Notify::new());
    let control = Control { shared, hang_up: hang_up.clone() };
    tokio::select! {
        () = answer_calls(channel(stream).execute(Guarded(control.serve()))) => {}
        () = hang_up.notified() => {}
    }
}

#[derive(Clone)]
struct Control {
    shared: Arc<Shared>,
    /// Ends the connection.
    hang_up: Arc<Notify>,
}

impl Control {
    /// Goes on only where this process serves the shard. The caller is hung up on otherwise, and asks the one that does.
    async fn while_serving(&self) {
        if !self.shared.role.serves() {
            self.hang_up.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// Carries out an order about jobs where it may block.
    async fn order<T: Send + 'static>(
        self,
        work: impl FnOnce(&Arc<Shared>) -> Result<T, ShardFault> + Send + 'static,
    ) -> Result<T, ShardFault> {
        self.while_serving().await;
        let done = self.clone().blocking(work).await;
        if done.is_err() {
            // The job may be over here only because another process serves it by now.
            self.while_serving().await;
        }
        done
    }

    /// Runs `work` where it may block.
    async fn blocking<T: Send + 'static>(
        self,
        work: impl FnOnce(&Arc<Shared>) -> Result<T, ShardFault> + Send + 'static,
    ) -> Result<T, ShardFault> {
        answer_of(task::spawn_blocking(move || work(&self.shared))).await
    }
}

/// What a finished order answers. One that was cancelled, as the shard stops, answers nothing: it was never begun, the
/// connection ends with the runtime, and the caller asks whoever serves next.
async fn answer_of<T>(order: JoinHandle<Result<T, ShardFault>>) -> Result<T, ShardFault> {
    match order.await {
        Ok(answer) => answer,
        Err(e) if e.is_cancelled() => std::future::pending().await,
        Err(e) => Err(ShardFault::Invalid { what: format!("the shard has a bug: {e}") }),
    }
}

impl Shard for Control {
    async fn promote(self, _: Context, epoch: EngineEpoch, term: u64) -> Result<u64, ShardFault> {
        self.blocking(move |s| role_change::promote(s, epoch, term)).await
    }

    async fn attach(
        self,
        _: Context,
        epoch: EngineEpoch,
        job: JobId,
    ) -> Result<Option<ShardState>, ShardFault> {
        self.order(move |s| {
            let state = s.jobs.attach(epoch, &job)?;
            if state.is_some() {
                s.jobs.current(&job)?.confirmed()?;
            }
            Ok(state)
        })
        .await
    }

    async fn open(self, _: Context, epoch: EngineEpoch, job: OpenJob) -> Result<ShardState, ShardFault> {
        self.order(move |s| open::open(s, epoch, &job)).await
    }

    async fn barrier(
        self,
        _: Context,
        epoch: EngineEpoch,
        run: RunId,
        order: BarrierOrder,
    ) -> Result<(), ShardFault> {
        self.order(move |s| {
            s.jobs.fence().check(epoch)?;
            let shard = s.jobs.find(&run)?;
            shard.add_barrier(epoch, order)?;
            shard.confirmed()
        })
        .await
    }

    async fn clocks(
        self,
        _: Context,
        epoch: EngineEpoch,
        run: RunId,
        roster: ClockRoster,
    ) -> Result<(), ShardFault> {
        self.order(move |s| {
            s.jobs.fence().check(epoch)?;
            let shard = s.jobs.find(&run)?;
            shard.set_clock_roster(epoch, roster)?;
            shard.confirmed()
        })
        .await
    }

    async fn seal(
        self,
        _: Context,
        epoch: EngineEpoch,
        run: RunId,
        worker: Incarnation,
    ) -> Result<PushProgress, ShardFault> {
        self.order(move |s| {
            s.jobs.fence().check(epoch)?;
            let shard = s.jobs.find(&run)?;
            let progress = shard.seal(epoch, worker)?;
            shard.confirmed().map(|()| progress)
        })
        .await
    }

    async fn closed(
        self,
        _: Context,
        epoch: EngineEpoch,
        run: RunId,
        seen: u64,
        wait_ms: u64,
    ) -> Result<Vec<ClosedBarrier>, ShardFault> {
        let until = time::Instant::now() + Duration::from_millis(wait_ms).min(MAX_WAIT);
        self.while_serving().await;
        self.shared.jobs.fence().check(epoch)?;
        let shard = self.shared.jobs.find(&run)?;
        let mut moved = shard.watch();
        let mut has_gathered = false;
        loop {
            let look = shard.clone();
            let looked = self.clone().blocking(move |_| {
                let looked = look.closed_since(epoch, seen)?;
                // What the standby has not closed, the engine must not hear of.
                look.confirmed().map(|()| looked)
            });
            let (closed, has_orders) = looked.await?;
            if !closed.is_empty() && has_orders && !has_gathered {
                // The next rounds need nothing of the engine, which can hear of several at once.
                has_gathered = true;
                time::sleep_until(until.min(time::Instant::now() + GATHER)).await;
                continue;
            }
            if !closed.is_empty() {
                return Ok(closed);
            }
            match time::timeout_at(until, moved.changed()).await {
                Ok(Ok(())) => {}
                // Time is up, or the shard is gone.
                Ok(Err(_)) | Err(_) => return Ok(closed),
            }
        }
    }

    async fn snapshot(
        self,
        _: Context,
        epoch: EngineEpoch,
        run: RunId,
        version: Option<u64>,
        name: String,
    ) -> Result<SnapshotFile, ShardFault> {
        self.order(move |s| {
            s.jobs.fence().check(epoch)?;
            snapshot::write(s, &run, version, &name)
        })
        .await
    }

    async fn pin_checkpoint(
        self,
        _: Context,
        epoch: EngineEpoch,
        run: RunId,
        number: u64,
    ) -> Result<(), ShardFault> {
        self.order(move |s| {
            s.jobs.fence().check(epoch)?;
            let shard = s.jobs.find(&run)?;
            shard.pin_checkpoint(epoch, number)?;
            shard.confirmed()
        })
        .await
    }

    async fn write_checkpoint(
        self,
        _: Context,
        epoch: EngineEpoch,
        run: RunId,
        number: u64,
    ) -> Result<u64, ShardFault> {
        self.order(move |s| {
            s.jobs.fence().check(epoch)?;
            let bytes = checkpoints::write(s, epoch, &run, number)?;
            s.jobs.find(&run)?.confirmed().map(|()| bytes)
        })
        .await
    }

    async fn share_checkpoint(self, _: Context, run: RunId, number: u64) -> Result<String, ShardFault> {
        self.blocking(move |s| checkpoints::share(s, &run, number)).await
    }

    async fn keep_checkpoints(
        self,
        _: Context,
        epoch: EngineEpoch,
        run: RunId,
        numbers: Vec<u64>,
        through: u64,
    ) -> Result<(), ShardFault> {
        self.blocking(move |s| {
            s.jobs.fence().check(epoch)?;
            checkpoints::keep(s, &run, &numbers, through)?;
            if let Ok(shard) = s.jobs.find(&run) {
                shard.record(StandbyOp::KeepCheckpoints { numbers, through });
            }
            Ok(())
        })
        .await
    }

    async fn moved(self, _: Context, epoch: EngineEpoch, shards: Vec<String>) -> Result<(), ShardFault> {
        self.while_serving().await;
        self.shared.jobs.set_addresses(epoch, &shards)
    }

    async fn held(self, _: Context, epoch: EngineEpoch) -> Result<Vec<HeldJob>, ShardFault> {
        self.while_serving().await;
        self.shared.jobs.held(epoch)
    }

    async fn close(self, _: Context, epoch: EngineEpoch, run: RunId) -> Result<(), ShardFault> {
        self.order(move |s| {
            let was_open = s.jobs.find(&run).is_ok();
            s.jobs.close(epoch, &run)?;
            // An engine that begins says so of every job that is over.
            if was_open {
                s.freed.note();
            }
            Ok(())
        })
        .await
    }

    async fn collect(
        self,
        _: Context,
        epoch: EngineEpoch,
        keep: Vec<String>,
        older_than_s: u64,
    ) -> Result<Collected, ShardFault> {
        self.blocking(move |s| {
            s.jobs.fence().check(epoch)?;
            let invalid = |e: PsError| ShardFault::Invalid { what: e.to_string() };
            let keep = keep.iter().map(|hex| digest_from_hex(hex).map_err(invalid));
            s.blobs.collect(&keep.collect::<Result<_, _>>()?, Duration::from_secs(older_than_s))
        })
        .await
    }

    async fn collect_checkpoints(
        self,
        _: Context,
        epoch: EngineEpoch,
        known: Vec<JobId>,
        older_than_s: u64,
        remove: bool,
    ) -> Result<Forgotten, ShardFault> {
        self.blocking(move |s| {
            s.jobs.fence().check(epoch)?;
            let known = known.into_iter().collect();
            forgotten_checkpoints::collect(s, &known, Duration::from_secs(older_than_s), remove)
        })
        .await
    }

    async fn release(self, _: Context, epoch: EngineEpoch, digests: Vec<String>) -> Result<(), ShardFault> {
        self.blocking(move |s| {
            s.jobs.fence().check(epoch)?;
            let known = digests.iter().filter_map(|hex| digest_from_hex(hex).ok());
            s.blobs.remove(known)
        })
        .await
    }

    async fn has_blobs(self, _: Context, digests: Vec<String>) -> Vec<bool> {
        let look = self.blocking(move |s| {
            let has = |hex: &String| {
                digest_from_hex(hex).is_ok_and(|d| matches!(s.blobs.stat_and_touch(&d), Ok(Some(_))))
            };
            Ok(digests.iter().map(has).collect())
        });
        look.await.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future as _, pin::pin, task::Waker};

    use tokio::runtime::Runtime;

    use super::*;

    #[test]
    fn an_order_that_a_stop_has_cancelled_answers_nothing_and_one_that_panics_is_a_fault() {
        let runtime = Runtime::new().unwrap();
        let panicked =
            runtime.block_on(async { answer_of::<()>(task::spawn_blocking(|| panic!("on purpose"))).await });
        assert_eq!(panicked.unwrap_err().code(), "E405");
        let handle = runtime.handle().clone();
        runtime.shutdown_background();
        let cancelled = handle.spawn_blocking(|| Ok(()));
        let answer = pin!(answer_of(cancelled)).poll(&mut std::task::Context::from_waker(Waker::noop()));
        assert!(answer.is_pending());
    }
}
