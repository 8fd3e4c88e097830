//! Following a job with a backup, as the threads of the server see it.

use std::time::Duration;

use syncline_rpc::ShardFault;

use super::{
    JobShard,
    replica_log::{Batch, Term},
    replica_op::ReplicaOp,
};

impl JobShard {
    /// Whether the caller is to tell the backup of this term about the job: nobody else does.
    #[must_use]
    pub fn claim_replica(&self, term: Term) -> bool {
        self.replicas.claim(term)
    }

    /// Who claimed the backup of this term tells it no more.
    pub fn release_replica(&self, term: Term) {
        self.replicas.release(term);
    }

    /// The backup of this term has its copy. False: it has to get some of what was changed meanwhile before it is asked again.
    pub fn set_replica_in_step(&self, term: Term) -> bool {
        self.replicas.set_in_step(term)
    }

    /// Whether somebody was promised that the backup of this term has what changes.
    pub fn has_replica_in_step(&self, term: Term) -> bool {
        self.replicas.is_in_step(term)
    }

    /// What the backup of this term is to be told next; waits so long for it.
    pub fn next_for_replica(&self, term: Term, wait: Duration) -> Batch {
        self.replicas.next_batch(term, wait)
    }

    /// The backup of this term has everything up to entry `number`.
    pub fn acknowledge_replica(&self, term: Term, number: u64) {
        self.replicas.acknowledge(term, number);
    }

    /// The backup of this term is lost. Whether the engine must know before anybody is told of anything.
    pub fn lose_replica(&self, term: Term) -> bool {
        self.replicas.lose(term)
    }

    /// The engine knows that the backup of this term is lost.
    pub fn go_on_without_replica(&self, term: Term) {
        self.replicas.go_on_alone(term);
    }

    /// Records something that concerns files, for the backup to do as well.
    pub fn record(&self, op: ReplicaOp) {
        let _changing = self.replicas.enter();
        self.replicas.record(|| op.entry());
    }

    /// Waits until a backup has everything that has changed so far, as long as the caller is `present`, who is asked twice a
    /// second. False: nobody may be told of it.
    #[must_use]
    pub fn confirm(&self, present: impl FnMut() -> bool) -> bool {
        self.replicas.confirm(present)
    }

    /// The same, for barriers that are closed.
    #[must_use]
    pub fn confirm_close(&self, present: impl FnMut() -> bool) -> bool {
        self.replicas.confirm_close(present)
    }

    /// As [`JobShard::confirm`], for a caller who always waits. The fault is that the job is over here.
    pub fn confirmed(&self) -> Result<(), ShardFault> {
        if self.confirm(|| true) { Ok(()) } else { Err(ShardFault::Closed { job: self.job().clone() }) }
    }

    /// The process stops: nobody is told of anything any more, and those who wait for a backup wait no longer.
    pub fn stop_replica(&self) {
        self.replicas.end();
    }
}
