//! Shards that come, come back, or were there before this engine: what they hold, how far they are, and where
//! they are now.

use std::time::Duration;

use syncline_rpc::{ShardClient, ShardFault, ShardState, threads::lock, within};
use syncline_scheduler::{
    core::{ClosedBarrier, Input, ProgressFloor, ShardDirs},
    ids::{RunId, ShardIndex, StateDirId, Superstep},
};
use tokio::time::sleep;
use tracing::warn;

use super::{
    shard_control::{CALL_TIMEOUT, LONG_CALL_TIMEOUT, ShardControl},
    shard_slots::ReplicaProcess,
};

/// Pause before a shard is asked again whose disk failed, or that lacks a job.
const ASK_AGAIN: Duration = Duration::from_secs(5);

impl ShardControl {
    /// After a takeover: asks every shard where a running job stands, and goes on watching it.
    pub(super) fn attach(&self, run: &RunId, floor: &ProgressFloor) {
        for shard in self.shards.indices() {
            let (control, run, floor) = (self.clone(), run.clone(), floor.clone());
            self.work.spawn(&run.clone(), async move {
                loop {
                    match control.state_of(&run, shard).await {
                        Ok(Some(state)) if state.generation == run.generation => {
                            control.report_attached(&run, shard, &state, floor);
                            if let Some(newest) = state.progress.closed.checked_sub(1) {
                                let superstep = Superstep(newest);
                                let barrier =
                                    ClosedBarrier { superstep, closed_ago_us: 0, pushes: state.pushes };
                                control.report_closed(&run, shard, barrier);
                            }
                            return control.watch_barriers(&run, shard, state.progress.closed);
                        }
                        Ok(Some(state)) => {
                            let (job, given) = (run.job.clone(), run.generation);
                            let fault = ShardFault::WrongGeneration { job, given, current: state.generation };
                            return control.report_failure(&run, &fault);
                        }
                        Ok(None) => {
                            control.report_failure(&run, &ShardFault::UnknownJob { job: run.job.clone() });
                        }
                        Err(fault) => return control.report_failure(&run, &fault),
                    }
                    // It may come back on the state directory in which it has the job.
                    sleep(ASK_AGAIN).await;
                }
            });
        }
    }

    /// Asks a shard that holds a running job how far it is: it may have gone back.
    pub(super) fn recheck_shard(&self, run: RunId, shard: ShardIndex, floor: ProgressFloor) {
        let control = self.clone();
        self.work.spawn(&run.clone(), async move {
            match control.state_of(&run, shard).await {
                Ok(Some(state)) if state.generation == run.generation => {
                    control.report_attached(&run, shard, &state, floor);
                }
                // It was closed meanwhile, or holds another generation by now: others find out about that.
                Ok(_) => {}
                Err(fault) => control.report_failure(&run, &fault),
            }
        });
    }

    /// Asked again while the shard's disk does not answer: the parameters are in its memory. So it is while
    /// another job of its name makes way.
    async fn state_of(&self, run: &RunId, shard: ShardIndex) -> Result<Option<ShardState>, ShardFault> {
        loop {
            let attach = |c: ShardClient| async move {
                c.attach(within(LONG_CALL_TIMEOUT), self.epoch, run.clone()).await
            };
            match self.shards.call(shard, attach).await {
                Err(fault) if matches!(fault, ShardFault::Io { .. }) || fault.is_of_other_job() => {
                    warn!(job = %run.job, %shard, %fault, "the shard does not give a job yet");
                    sleep(ASK_AGAIN).await;
                }
                answer => return answer,
            }
        }
    }

    pub(super) fn report_attached(
        &self,
        run: &RunId,
        shard: ShardIndex,
        state: &ShardState,
        floor: ProgressFloor,
    ) {
        let (run, progress) = (run.clone(), state.progress.clone());
        self.queue.tell(Input::Attached { run, shard, progress, floor });
    }

    /// A process serves this shard from now on: it is asked what it holds, and everybody is told where it is.
    pub(super) fn shard_came(&self, shard: ShardIndex) {
        self.query_held_jobs(shard);
        self.broadcast_addresses();
    }

    /// The standby of this shard serves it from now on.
    pub(super) fn shard_taken_over(&self, shard: ShardIndex, address: String) {
        self.queue.tell(Input::ShardTakenOver { shard, address });
        self.shard_came(shard);
    }

    /// A process follows this shard. Jobs may have waited for the directory that it has.
    pub(super) fn standby_follows(&self, shard: ShardIndex, identity: u64) {
        let told = lock(&self.served_from).get(&shard).copied();
        let is_new = told.is_some_and(|told| told.following != Some(StateDirId(identity)));
        // Where nobody serves, whoever does so next is asked.
        if is_new && self.shards.served(shard).is_some() {
            self.query_held_jobs(shard);
        }
    }

    /// Asks a shard that came, or came back, what it holds.
    pub(super) fn query_held_jobs(&self, shard: ShardIndex) {
        // Before anybody is told by the shard itself that it lacks something.
        if let Some(served) = self.shards.served(shard) {
            // One that has not said that it follows this process may have ended with the one before.
            let standby = self.shards.standby(shard).filter(ReplicaProcess::follows);
            let (serving, following) = (served.identity, standby.map(|standby| standby.hello.identity));
            let dirs = ShardDirs { serving: StateDirId(serving), following: following.map(StateDirId) };
            lock(&self.served_from).insert(shard, dirs);
            self.queue.tell(Input::ShardServed { shard, dirs });
        }
        let control = self.clone();
        tokio::spawn(async move {
            let asked_us = control.clock.now_us();
            let held = control
                .shards
                .call(shard, |c| async move { c.list_jobs(within(CALL_TIMEOUT), control.epoch).await })
                .await;
            match held {
                Ok(held) => control.queue.tell(Input::ShardHolds { shard, asked_us, held }),
                Err(ShardFault::Fenced { highest, .. }) => control.deposed_by(highest),
                Err(fault) => warn!(%shard, %fault, "the shard does not say what it holds"),
            }
        });
    }

    /// Sends the addresses of all shards to each of them: they fetch from each other. Workers get them with
    /// their next orders. While a shard is missing nothing is sent; its announcement sends them to all.
    pub(super) fn broadcast_addresses(&self) {
        if self.shards.addresses().is_none() {
            return;
        }
        for shard in self.shards.indices() {
            let control = self.clone();
            tokio::spawn(async move {
                let told = control.shards.call(shard, |c| {
                    // As they are when this one is reached.
                    let (revision, addresses) = control.shards.revised_addresses();
                    let (epoch, within) = (control.epoch, within(CALL_TIMEOUT));
                    async move {
                        match addresses {
                            Some(addresses) => c.set_addresses(within, epoch, revision, addresses).await,
                            None => Ok(Ok(())),
                        }
                    }
                });
                if let Err(fault) = told.await {
                    warn!(%shard, %fault, "the shard does not take the addresses of the others");
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::{
        fault_code::FaultCode,
        ids::{EngineEpoch, Generation, Incarnation},
    };

    use super::*;
    use crate::service::{
        fake_shard::{EPOCH, Inbox, Noted, control_with, shard_control, start},
        message::Message,
    };
    use syncline_rpc::{HeldJob, ReplicaRole, ShardHello, ShardProgress, ShardRequest, ShardResponse};

    fn run() -> RunId {
        RunId { job: "digits".parse().unwrap(), generation: Generation(1) }
    }

    fn attach_as(
        state: Option<ShardState>,
    ) -> impl Fn(ShardRequest) -> ShardResponse + Clone + Send + 'static {
        move |request| match request {
            ShardRequest::Attach { .. } => ShardResponse::Attach(Ok(state.clone())),
            _ => ShardResponse::AwaitClosed(Err(ShardFault::Closed { job: run().job })),
        }
    }

    #[tokio::test]
    async fn a_takeover_learns_how_far_a_shard_is_and_goes_on_watching_it() {
        let watermarks = [(Incarnation(1), 7)].into();
        let progress = ShardProgress { closed: 4, watermarks, ..ShardProgress::default() };
        let state = ShardState { generation: run().generation, progress: progress.clone(), pushes: 9 };
        let (control, mut inbox) = control_with(0, attach_as(Some(state))).await;
        control.attach(&run(), &ProgressFloor::default());
        let attached = inbox.input().await;
        assert!(matches!(attached, Input::Attached { progress: told, .. } if told == progress));
        let closed = inbox.input().await;
        assert!(matches!(&closed, Input::BarrierClosed { .. }), "{closed:?}");
        let watched = inbox.input().await;
        assert!(matches!(&watched, Input::ShardFailed { code: FaultCode::CLOSED, .. }), "{watched:?}");
    }

    #[tokio::test]
    async fn a_running_job_that_a_shard_lost_or_holds_in_another_generation_fails_with_its_code() {
        let held =
            |generation| Some(ShardState { generation, progress: ShardProgress::default(), pushes: 0 });
        let cases = [
            (None, FaultCode::PARAMETERS_LOST),
            (held(Generation(0)), FaultCode::PARAMETERS_LOST),
            (held(Generation(2)), FaultCode::STORE_LOST),
        ];
        for (state, expected) in cases {
            let (control, mut inbox) = control_with(0, attach_as(state)).await;
            control.attach(&run(), &ProgressFloor::default());
            let failed = inbox.input().await;
            assert!(matches!(failed, Input::ShardFailed { code, .. } if code == expected), "{expected}");
        }
    }

    #[tokio::test]
    async fn a_shard_that_comes_back_says_what_it_holds_over_whatever_connection() {
        let held = vec![HeldJob { run: run(), closed: false }];
        // The first two connections are lost before the answer.
        let (control, mut inbox) = control_with(2, move |_| ShardResponse::ListJobs(Ok(held.clone()))).await;
        control.query_held_jobs(ShardIndex(0));
        // Before what it says itself.
        let served = inbox.input().await;
        assert!(matches!(served, Input::ShardServed { .. }), "{served:?}");
        let holds = inbox.input().await;
        assert!(
            matches!(&holds, Input::ShardHolds { held, .. } if *held == [HeldJob { run: run(), closed: false }]),
            "{holds:?}"
        );
    }

    #[tokio::test]
    async fn that_a_process_begins_to_follow_is_told_once_and_only_where_somebody_serves() {
        let (control, mut inbox) = shard_control();
        let of_two = async |n: u64, role| {
            let hello = start(0, |_| ShardResponse::ListJobs(Ok(Vec::new()))).await;
            ShardHello { replicas: 2, boot: n, identity: n, role: Some(role), ..hello }
        };
        let serves = of_two(1, ReplicaRole::Primary { term: 7 }).await;
        let follows = of_two(2, ReplicaRole::Standby { term: 8 }).await;
        control.standby_follows(ShardIndex(0), follows.identity);
        let told = async |inbox: &mut Inbox| {
            control.queue.tell(Input::Tick);
            let mut following = Vec::new();
            loop {
                match inbox.input().await {
                    Input::ShardServed { dirs, .. } => following.push(dirs.following),
                    Input::Tick => return following,
                    _ => {}
                }
            }
        };
        assert_eq!(told(&mut inbox).await, [], "nobody serves");
        control.shards.announce(serves, EPOCH, &Noted).await;
        control.query_held_jobs(ShardIndex(0));
        assert_eq!(told(&mut inbox).await, [None]);
        control.shards.announce(follows.clone(), EPOCH, &Noted).await;
        control.query_held_jobs(ShardIndex(0));
        assert_eq!(told(&mut inbox).await, [None], "it was told so, and may be gone");
        let term = control.shards.standby(ShardIndex(0)).unwrap().term;
        let role = Some(ReplicaRole::Standby { term });
        control.shards.announce(ShardHello { role, ..follows.clone() }, EPOCH, &Noted).await;
        for following in [vec![Some(StateDirId(2))], vec![]] {
            control.standby_follows(ShardIndex(0), follows.identity);
            assert_eq!(told(&mut inbox).await, following);
        }
    }

    #[tokio::test]
    async fn a_shard_that_knows_a_newer_engine_deposes_this_one() {
        let fenced = |_| {
            ShardResponse::ListJobs(Err(ShardFault::Fenced {
                given: EngineEpoch(3),
                highest: EngineEpoch(4),
            }))
        };
        let (control, mut inbox) = control_with(0, fenced).await;
        control.query_held_jobs(ShardIndex(0));
        assert!(matches!(inbox.input().await, Input::ShardServed { .. }));
        assert!(matches!(inbox.next().await, Message::Deposed));
        assert_eq!(control.shards.highest_epoch(), EngineEpoch(4), "the next one lies above it");
    }
}
