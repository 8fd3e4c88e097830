//! Following a job with a standby, as the threads of the server see it.

use std::time::{Duration, Instant};

use syncline_rpc::ShardFault;

use super::{
    JobShard,
    standby_op::StandbyOp,
    standby_record::{Batch, StandbyMark, Term},
};

impl JobShard {
    /// Whether the caller is to tell the standby of this term about the job: nobody else does.
    #[must_use]
    pub fn claim_standby(&self, term: Term) -> bool {
        self.standby_log.claim(term)
    }

    /// Who claimed the standby of this term tells it no more.
    pub fn release_standby(&self, term: Term) {
        self.standby_log.release(term);
    }

    /// The standby of this term has its copy. False: it has to get some of what was changed meanwhile before
    /// it is asked again.
    pub fn set_standby_in_step(&self, term: Term) -> bool {
        self.standby_log.set_in_step(term)
    }

    /// Whether somebody was promised that the standby of this term has what changes.
    pub fn has_standby_in_step(&self, term: Term) -> bool {
        self.standby_log.is_in_step(term)
    }

    /// What the standby of this term is to be told next; waits so long for it.
    pub fn next_for_standby(&self, term: Term, wait: Duration) -> Batch {
        self.standby_log.next_batch(term, wait)
    }

    /// The standby of this term has everything up to entry `number`.
    pub fn acknowledge_standby(&self, term: Term, number: u64) {
        self.standby_log.acknowledge(term, number);
    }

    /// The standby of this term is lost. Whether the engine must know before anybody is told of anything.
    pub fn lose_standby(&self, term: Term) -> bool {
        self.standby_log.lose(term)
    }

    /// The job goes on, and the standby of this term may have kept what it was before: nobody is told of any
    /// change until that one has heard of it, or the engine knows that it is lost.
    pub fn await_standby(&self, term: Term) {
        self.standby_log.await_standby(term);
    }

    /// Whether nobody is told of any change until the standby of this term follows, or the engine knows that it
    /// is lost.
    pub fn awaits_standby(&self, term: Term) -> bool {
        self.standby_log.is_awaited(term)
    }

    /// The engine knows that the standby of this term is lost.
    pub fn go_on_without_standby(&self, term: Term) {
        self.standby_log.go_on_alone(term);
    }

    /// Records something that concerns files, for the standby to do as well.
    pub fn record(&self, op: StandbyOp) {
        let _changing = self.standby_log.enter();
        self.standby_log.record(|| op.entry());
    }

    /// Waits until a standby has everything that has changed so far, as long as the caller is `present`, who
    /// is asked twice a second. False: nobody may be told of it.
    #[must_use]
    pub fn confirm(&self, present: impl FnMut() -> bool) -> bool {
        self.standby_log.confirm(present)
    }

    /// The same, for barriers that are closed.
    #[must_use]
    pub fn confirm_close(&self, present: impl FnMut() -> bool) -> bool {
        self.standby_log.confirm_close(present)
    }

    /// Everything that has changed so far.
    pub fn standby_mark(&self) -> StandbyMark {
        self.standby_log.mark()
    }

    /// As [`JobShard::confirm`], for what had changed at `mark`, and for a caller who waits about so long and
    /// asks again. False: the standby does not have it yet. The fault is that the job is over here.
    pub fn confirmed_within(&self, mark: StandbyMark, limit: Duration) -> Result<bool, ShardFault> {
        let begun = Instant::now();
        let mut is_late = false;
        let confirmed = self.standby_log.confirm_mark(mark, || {
            is_late = begun.elapsed() >= limit;
            !is_late
        });
        if confirmed || is_late { Ok(confirmed) } else { Err(ShardFault::Closed { job: self.job().clone() }) }
    }

    /// The process stops: nobody is told of anything any more, and those who wait for a standby wait no
    /// longer.
    pub fn stop_standby(&self) {
        self.standby_log.end();
    }
}
