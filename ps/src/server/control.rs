//! The engine's orders, over tarpc. Everything that may block runs on the blocking pool.

mod unconfirmed;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use syncline_rpc::{
    BarrierOrder, ClockRoster, ClosedBarrier, Collected, DigestRange, FolderGc, Forgotten, Guarded, HeldJob,
    JobFolders, KnownJobs, OpenJob, PushProgress, Retention, Shard, ShardFault, ShardState, SnapshotFile,
    answer_calls, channel,
};
use syncline_scheduler::ids::{ContentDigest, EngineEpoch, Incarnation, RunId};
use tarpc::{context::Context, server::Channel};
use tokio::{
    net::TcpStream,
    sync::Notify,
    task::{self, JoinHandle},
    time,
};

use self::unconfirmed::{Unconfirmed, not_yet_confirmed};
use super::{
    Shared, checkpoints, forgotten_folders, norms, open, replication, role_change, saves, snapshot,
    standby_aside,
};
use crate::shard::{AsideJob, JobShard, StandbyOp};

/// Longest time that `closed` waits, whatever was asked.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// How long a job that was written down waits in memory for its standby, which may be given it just now: an
/// engine that has just begun may have it copied anew. Below what the engine waits for the answer.
const COPY_PATIENCE: Duration = Duration::from_secs(300);
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
    /// Goes on only where this process serves the shard. The caller is hung up on otherwise, and asks the one
    /// that does.
    async fn while_serving(&self) {
        if !self.shared.role.serves() {
            self.hang_up.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// Carries out an engine's order about jobs where it may block.
    async fn order<T: Send + 'static>(
        self,
        epoch: EngineEpoch,
        work: impl FnOnce(&Arc<Shared>) -> Result<T, ShardFault> + Send + 'static,
    ) -> Result<T, ShardFault> {
        self.while_serving().await;
        let done = self.clone().fenced(epoch, work).await;
        if done.is_err() {
            // The job may be over here only because another process serves it by now, or since the engine that
            // leads by now does not know it: whoever led before must not end it for that.
            self.while_serving().await;
            self.shared.jobs.fence().check(epoch)?;
        }
        done
    }

    /// The same for an order that is answered only when the standby has what it changed, of the job that
    /// `work` gives as well.
    async fn order_with_standby<T: Send + 'static>(
        self,
        epoch: EngineEpoch,
        work: impl FnOnce(&Arc<Shared>) -> Result<(T, Option<Arc<JobShard>>), ShardFault> + Send + 'static,
    ) -> Result<T, ShardFault> {
        let control = self.clone();
        let ordered = self.order(epoch, move |shared| {
            let (answer, job) = work(shared)?;
            Ok((answer, not_yet_confirmed(job.map(Unconfirmed::new))?))
        });
        let (answer, mut waiting) = ordered.await?;
        while waiting.is_some() {
            time::sleep(unconfirmed::PAUSE).await;
            waiting = control.clone().order(epoch, move |_| not_yet_confirmed(waiting)).await?;
        }
        Ok(answer)
    }

    /// The same for an order about one job.
    async fn order_job<T: Send + 'static>(
        self,
        epoch: EngineEpoch,
        run: RunId,
        work: impl FnOnce(&Shared, &JobShard) -> Result<T, ShardFault> + Send + 'static,
    ) -> Result<T, ShardFault> {
        self.order_with_standby(epoch, move |s| {
            let shard = s.jobs.find(&run)?;
            Ok((work(s, &shard)?, Some(shard)))
        })
        .await
    }

    /// Runs `work` where it may block, unless an engine has led since the one that ordered it.
    async fn fenced<T: Send + 'static>(
        self,
        epoch: EngineEpoch,
        work: impl FnOnce(&Arc<Shared>) -> Result<T, ShardFault> + Send + 'static,
    ) -> Result<T, ShardFault> {
        self.blocking(move |shared| {
            shared.jobs.fence().check(epoch)?;
            work(shared)
        })
        .await
    }

    /// Runs `work` where it may block.
    async fn blocking<T: Send + 'static>(
        self,
        work: impl FnOnce(&Arc<Shared>) -> Result<T, ShardFault> + Send + 'static,
    ) -> Result<T, ShardFault> {
        answer_of(task::spawn_blocking(move || work(&self.shared))).await
    }
}

/// An engine asks for a job. One that could not be set aside goes on; one that was set aside has no standby
/// that follows it, but maybe one that keeps it as it was, and may have been read just now, so that nobody
/// asks the other shards for its norms yet.
fn claim(shared: &Arc<Shared>, run: &RunId) -> Result<(), ShardFault> {
    let job = loop {
        let job = shared.jobs.find(run)?;
        // One that was set aside just now is on disk.
        if job.thaw() || !job.may_go_on() {
            break job;
        }
    };
    norms::follow_peers(shared, &job)?;
    if shared.unclaimed.claim(&shared.saves, run)?
        && let Some(standby) = shared.role.await_standby(&job)
    {
        replication::start(shared, &job, &standby);
    }
    Ok(())
}

/// An engine does not know a job that is open: it is frozen and written down. `None` if an engine has asked
/// for it meanwhile.
fn write_aside(shared: &Shared, epoch: EngineEpoch, open: &JobShard) -> Result<Option<AsideJob>, ShardFault> {
    let written = shared.unclaimed.set_aside(&shared.saves, epoch, open)?;
    Ok(written.map(|path| saves::aside_job(open.run().clone(), epoch, &path, SystemTime::now())))
}

/// A job that is written down waits on disk for an engine that knows it. Until then it is held, here, where a
/// stop saves it, and by the standby, which keeps it on its own disk from now on.
fn let_go(shared: &Shared, epoch: EngineEpoch, aside: AsideJob) -> Result<(), ShardFault> {
    shared.jobs.set_aside(epoch, aside)?;
    shared.freed.note();
    Ok(())
}

/// Another job of the name, which was given by an engine that did not know this one, is set aside.
fn make_way(shared: &Shared, epoch: EngineEpoch, run: &RunId) -> Result<(), ShardFault> {
    let Some(other) = shared.jobs.find_other_open(run) else { return Ok(()) };
    write_aside(shared, epoch, &other)?.map_or(Ok(()), |aside| let_go(shared, epoch, aside))
}

/// What a finished order answers. One that was cancelled, as the shard stops, answers nothing: it was never
/// begun, the connection ends with the runtime, and the caller asks whoever serves next.
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
        run: RunId,
    ) -> Result<Option<ShardState>, ShardFault> {
        self.order_with_standby(epoch, move |s| {
            make_way(s, epoch, &run)?;
            let Some(state) = s.jobs.attach(epoch, &run)? else { return Ok((None, None)) };
            let run = RunId { generation: state.generation, ..run };
            claim(s, &run)?;
            let shard = s.jobs.find(&run)?;
            Ok((Some(state), Some(shard)))
        })
        .await
    }

    async fn check_checkpoints(
        self,
        _: Context,
        epoch: EngineEpoch,
        run: RunId,
        known_through: u64,
    ) -> Result<(), ShardFault> {
        self.order(epoch, move |s| checkpoints::check_none_beyond(s, &run, known_through)).await
    }

    async fn open(self, _: Context, epoch: EngineEpoch, job: OpenJob) -> Result<ShardState, ShardFault> {
        self.order_with_standby(epoch, move |s| {
            make_way(s, epoch, &job.run)?;
            let opened = open::open(s, epoch, &job)?;
            claim(s, &job.run)?;
            Ok(opened)
        })
        .await
    }

    async fn order_barrier(
        self,
        _: Context,
        epoch: EngineEpoch,
        run: RunId,
        order: BarrierOrder,
    ) -> Result<(), ShardFault> {
        self.order_job(epoch, run, move |_, shard| shard.add_barrier(epoch, order)).await
    }

    async fn set_clock_roster(
        self,
        _: Context,
        epoch: EngineEpoch,
        run: RunId,
        roster: ClockRoster,
    ) -> Result<(), ShardFault> {
        self.order_job(epoch, run, move |_, shard| shard.set_clock_roster(epoch, roster)).await
    }

    async fn seal(
        self,
        _: Context,
        epoch: EngineEpoch,
        run: RunId,
        worker: Incarnation,
    ) -> Result<PushProgress, ShardFault> {
        self.order_job(epoch, run, move |_, shard| shard.seal(epoch, worker)).await
    }

    async fn await_closed(
        self,
        _: Context,
        epoch: EngineEpoch,
        run: RunId,
        seen: u64,
        wait_ms: u64,
    ) -> Result<Vec<ClosedBarrier>, ShardFault> {
        let until = time::Instant::now() + Duration::from_millis(wait_ms).min(MAX_WAIT);
        let shard = self.clone().order(epoch, move |s| s.jobs.find(&run)).await?;
        let mut moved = shard.watch();
        let mut has_gathered = false;
        loop {
            let look = shard.clone();
            let looked = self.clone().order(epoch, move |_| {
                let looked = look.closed_since(epoch, seen)?;
                // What the standby has not closed, the engine must not hear of.
                Ok((looked, not_yet_confirmed(Some(Unconfirmed::new(look)))?))
            });
            let ((closed, has_orders), mut waiting) = looked.await?;
            while waiting.is_some() {
                if time::Instant::now() >= until {
                    return Ok(Vec::new());
                }
                time::sleep(unconfirmed::PAUSE).await;
                waiting = self.clone().order(epoch, move |_| not_yet_confirmed(waiting)).await?;
            }
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
        self.order(epoch, move |s| snapshot::write(s, &run, version, &name)).await
    }

    async fn pin_checkpoint(
        self,
        _: Context,
        epoch: EngineEpoch,
        run: RunId,
        number: u64,
    ) -> Result<(), ShardFault> {
        self.order_job(epoch, run, move |_, shard| shard.pin_checkpoint(epoch, number)).await
    }

    async fn write_checkpoint(
        self,
        _: Context,
        epoch: EngineEpoch,
        run: RunId,
        number: u64,
    ) -> Result<u64, ShardFault> {
        self.order_job(epoch, run, move |s, shard| checkpoints::write(s, shard, number)).await
    }

    async fn share_checkpoint(
        self,
        _: Context,
        run: RunId,
        number: u64,
    ) -> Result<ContentDigest, ShardFault> {
        self.blocking(move |s| checkpoints::share(s, &run, number)).await
    }

    async fn retain_checkpoints(
        self,
        _: Context,
        epoch: EngineEpoch,
        run: RunId,
        retention: Retention,
    ) -> Result<(), ShardFault> {
        self.fenced(epoch, move |s| {
            checkpoints::retain(s, &run, &retention)?;
            // One that was set aside has no standby to tell.
            if let Some(shard) = s.jobs.find_open(&run) {
                shard.record(StandbyOp::RetainCheckpoints(retention));
            }
            Ok(())
        })
        .await
    }

    async fn set_addresses(
        self,
        _: Context,
        epoch: EngineEpoch,
        revision: u64,
        shards: Vec<String>,
    ) -> Result<(), ShardFault> {
        self.while_serving().await;
        self.shared.jobs.set_addresses(epoch, revision, &shards)
    }

    async fn list_jobs(self, _: Context, epoch: EngineEpoch) -> Result<Vec<HeldJob>, ShardFault> {
        self.while_serving().await;
        self.shared.jobs.held(epoch)
    }

    async fn close(self, _: Context, epoch: EngineEpoch, run: RunId) -> Result<(), ShardFault> {
        self.order(epoch, move |s| {
            let open = s.jobs.find_open(&run);
            if let Some(shard) = open.as_ref().filter(|_| s.unclaimed.has(&run)) {
                write_aside(s, epoch, shard)?;
            }
            s.jobs.close(epoch, &run)?;
            // An engine that begins says so of every job that is over.
            if open.is_some() {
                s.freed.note();
            }
            Ok(())
        })
        .await
    }

    async fn set_aside(self, _: Context, epoch: EngineEpoch, run: RunId) -> Result<(), ShardFault> {
        let write = self.clone().order(epoch, move |s| {
            let Some(open) = s.jobs.find_open(&run) else { return Ok(None) };
            Ok(write_aside(s, epoch, &open)?.map(|aside| (open, aside)))
        });
        let Some((open, aside)) = write.await? else { return Ok(()) };
        // It would have one copy, on this machine.
        let until = time::Instant::now() + COPY_PATIENCE;
        while time::Instant::now() < until {
            let frozen = open.clone();
            if !self.clone().blocking(move |s| Ok(replication::is_still_copied(s, &frozen))).await? {
                break;
            }
            time::sleep(unconfirmed::PAUSE).await;
        }
        self.order(epoch, move |s| let_go(s, epoch, aside)).await
    }

    async fn discard(self, _: Context, epoch: EngineEpoch, run: RunId) -> Result<(), ShardFault> {
        // Whether it serves or follows.
        self.fenced(epoch, move |s| {
            standby_aside::give_up(s, &run)?;
            s.jobs.close(epoch, &run)?;
            s.freed.note();
            Ok(())
        })
        .await
    }

    async fn collect(
        self,
        _: Context,
        epoch: EngineEpoch,
        range: DigestRange,
        keep: Vec<ContentDigest>,
        older_than_s: u64,
    ) -> Result<Collected, ShardFault> {
        self.fenced(epoch, move |s| {
            s.blobs.collect(&range, &keep.into_iter().collect(), Duration::from_secs(older_than_s))
        })
        .await
    }

    async fn collect_folders(
        self,
        _: Context,
        epoch: EngineEpoch,
        what: JobFolders,
        known: KnownJobs,
        older_than_s: u64,
        gc: FolderGc,
    ) -> Result<Forgotten, ShardFault> {
        self.fenced(epoch, move |s| {
            forgotten_folders::collect(s, what, &known, Duration::from_secs(older_than_s), gc)
        })
        .await
    }

    async fn release(
        self,
        _: Context,
        epoch: EngineEpoch,
        digests: Vec<ContentDigest>,
    ) -> Result<(), ShardFault> {
        self.fenced(epoch, move |s| s.blobs.remove(digests.into_iter())).await
    }

    async fn has_blobs(self, _: Context, digests: Vec<ContentDigest>) -> Vec<bool> {
        let look = self.blocking(move |s| {
            let has = |digest| matches!(s.blobs.stat_and_touch(digest), Ok(Some(_)));
            Ok(digests.iter().map(has).collect())
        });
        look.await.unwrap_or_default()
    }
}

#[cfg(test)]
mod other_jobs_tests;
#[cfg(test)]
mod tests;
