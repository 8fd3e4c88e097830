//! Carries out what the core decided, once it is committed.

use std::sync::Arc;

use syncline_rpc::threads;
use syncline_scheduler::{
    core::{Effect, Input},
    sync::{self, PlanRequest},
};

use super::lead::Lead;

/// Rows times lookahead up to which a plan is computed in place: well under a millisecond.
const INLINE_POINTS: u64 = 4_096;
/// Of a thread that computes a plan: as much as the standard library gives.
const PLAN_STACK_BYTES: usize = 2 << 20;

impl Lead {
    /// Carries out one effect; what takes time goes on in the background.
    pub(super) fn dispatch(&self, effect: Effect) {
        match effect {
            Effect::Assign { worker, assignment } => self.sessions.assign(worker, assignment),
            Effect::AckReport { worker, key } => self.sessions.settle(worker, &key),
            Effect::Revoke { worker, key } => self.sessions.revoke(worker, &key),
            Effect::DismissWorker { worker, reason } => self.sessions.drop_worker(worker, &reason),
            Effect::OpenShards { run, with, known_through } => {
                self.control.open_shards(run, with, known_through);
            }
            Effect::PinCheckpoint { run, number } => {
                self.control.pin_checkpoint(&run, number);
            }
            Effect::WriteCheckpoint { run, number } => {
                self.control.write_checkpoint(&run, number);
            }
            Effect::RetainCheckpoints { run, retention } => {
                self.control.retain_checkpoints(&run, &retention);
            }
            Effect::Attach { run, shard, floor } => self.control.recheck_shard(run, shard, floor),
            Effect::OrderBarrier { run, order } => self.control.order_barrier(&run, order),
            Effect::Clocks { run, roster } => self.control.send_clock_roster(&run, roster),
            Effect::Seal { run, worker } => self.control.seal_worker(&run, worker),
            Effect::Snapshot { key, version } => self.control.write_snapshot(key, version),
            Effect::CloseShards { run, weights } => self.control.close_shards(&run, weights),
            Effect::Plan(request) => self.plan(request),
            Effect::Orders { worker, orders } => self.sessions.order(worker, orders),
            Effect::ReleaseBlobs { digests } => self.control.release_blobs(digests),
        }
    }

    fn plan(&self, request: PlanRequest) {
        let queue = self.queue.clone();
        let points: u64 = request.rows.iter().map(|r| u64::from(r.points.count)).sum();
        let request = Arc::new(request);
        let compute = move || {
            let plan = sync::plan(&request.rows, request.search_options);
            let PlanRequest { run, superstep, revision, .. } = &*request;
            let (superstep, revision) = (*superstep, *revision);
            queue.tell(Input::Planned { run: run.clone(), superstep, revision, plan });
        };
        if points <= INLINE_POINTS {
            compute();
        } else {
            run_beside(PLAN_STACK_BYTES, compute);
        }
    }
}

/// Runs `work` on a thread of its own, or here where the system gives none: what waits for a moment goes on.
fn run_beside(stack_bytes: usize, work: impl Fn() + Clone + Send + 'static) {
    if threads::spawn_with_stack("plan", stack_bytes, work.clone()).is_err() {
        work();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::channel,
        thread::{self, ThreadId},
    };

    use super::*;

    #[test]
    fn a_plan_for_which_there_is_no_thread_is_computed_in_place() {
        let thread_with_stack = |stack_bytes: usize| -> ThreadId {
            let (tell, told) = channel();
            run_beside(stack_bytes, move || tell.send(thread::current().id()).unwrap());
            told.recv().unwrap()
        };
        let here = thread::current().id();
        assert_ne!(thread_with_stack(PLAN_STACK_BYTES), here);
        // No system has room for such a stack, and says what it says at the limit on processes.
        assert_eq!(thread_with_stack(1 << 60), here);
    }
}
