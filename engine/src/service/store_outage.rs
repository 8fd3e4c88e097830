//! Why Redis cannot be written to right now, or has no room for another job, so that callers are told at once
//! instead of waiting.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use syncline_rpc::{EngineFault, threads::lock};

use crate::store::{MemoryLimit, RedisMemory};

/// The present causes; clones share them.
#[derive(Clone, Default)]
pub(super) struct StoreOutage(Arc<Mutex<Causes>>);

/// Each cause is set and cleared by one place alone.
#[derive(Default)]
struct Causes {
    /// Set by the decision loop, while a commit fails that it repeats.
    commit: Option<String>,
    /// Set by the decision loop, while Redis is at its memory limit and a commit that may grow waits.
    full: Option<String>,
    /// Set by the renewal of the lease, which writes every second whether jobs run or not.
    lead: Option<String>,
    /// Until when nobody else can have the lease, as far as this process knows.
    lead_until: Option<Instant>,
    /// When the last cause was cleared, or a lease that had run out was renewed: callers are not sent away
    /// since.
    ended: Option<Instant>,
    /// How full Redis was at the last look; `None`: nobody knows, or a cause has come since.
    memory: Option<RedisMemory>,
    /// Held once more by each [`RoomMaker`].
    makes_room: Arc<()>,
}

/// A request at work that frees memory of Redis: until it is done, commits are written beyond the memory
/// limit.
pub(super) struct RoomMaker(#[expect(dead_code, reason = "it is counted")] Arc<()>);

impl Causes {
    fn is_there(&self) -> bool {
        self.full.is_some() || self.takes_nothing()
    }

    /// Whether Redis takes not even what needs no memory.
    fn takes_nothing(&self) -> bool {
        self.commit.is_some() || self.lead.is_some()
    }

    fn cause(&self) -> Option<String> {
        self.commit.clone().or_else(|| self.full.clone()).or_else(|| self.lead.clone())
    }

    /// Notes the end of the last cause, if `change` clears it.
    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let was_there = self.is_there();
        change(self);
        if self.is_there() {
            self.memory = None;
        }
        if was_there && !self.is_there() {
            self.ended = Some(Instant::now());
        }
    }
}

impl StoreOutage {
    pub(super) fn set_commit_failure(&self, cause: Option<String>) {
        lock(&self.0).change(|causes| causes.commit = cause);
    }

    pub(super) fn set_full(&self, cause: Option<String>) {
        lock(&self.0).change(|causes| causes.full = cause);
    }

    /// Lets a request through that frees memory, even where Redis is full. What has been decided before it,
    /// and follows from it, is written beyond the limit while the answer lives.
    pub(super) fn make_room(&self) -> Result<RoomMaker, EngineFault> {
        let causes = lock(&self.0);
        match causes.cause() {
            Some(cause) if causes.takes_nothing() => Err(EngineFault::Store { cause }),
            _ => Ok(RoomMaker(Arc::clone(&causes.makes_room))),
        }
    }

    /// What becomes of commits while Redis is at its memory limit.
    pub(super) fn memory_limit(&self) -> MemoryLimit {
        match Arc::strong_count(&lock(&self.0).makes_room) {
            1 => MemoryLimit::Within,
            _ => MemoryLimit::Beyond,
        }
    }

    /// Whether Redis takes not even what needs no memory.
    pub(super) fn takes_nothing(&self) -> bool {
        lock(&self.0).takes_nothing()
    }

    pub(super) fn set_lease_failure(&self, cause: Option<String>) {
        lock(&self.0).change(|causes| causes.lead = cause);
    }

    /// Set by the renewal of the lease, which looks between two of them.
    pub(super) fn set_memory(&self, memory: Option<RedisMemory>) {
        lock(&self.0).change(|causes| causes.memory = memory);
    }

    /// The lease was renewed: nobody else has it until then.
    pub(super) fn set_lead_until(&self, until: Instant) {
        let mut causes = lock(&self.0);
        // Whoever asked meanwhile was sent away.
        if causes.lead_until.is_some_and(|before| before < Instant::now()) {
            causes.ended = Some(Instant::now());
        }
        causes.lead_until = Some(until);
    }

    /// Whether another engine may have the lease by now.
    pub(super) fn lead_expired(&self) -> bool {
        lock(&self.0).lead_until.is_some_and(|until| until < Instant::now())
    }

    /// Whether renewals of the lease get through to Redis.
    pub(super) fn renews_lead(&self) -> bool {
        let causes = lock(&self.0);
        causes.lead.is_none() && causes.lead_until.is_some_and(|until| until >= Instant::now())
    }

    /// Whether callers may be away, because they were told within this time that Redis cannot be written to,
    /// or that another engine may lead: they ask the others then.
    pub(super) fn may_have_sent_away(&self, within: Duration) -> bool {
        let causes = lock(&self.0);
        causes.is_there() || causes.ended.is_some_and(|ended| ended.elapsed() < within)
    }

    /// Refuses at once what cannot be committed now, with the reason.
    pub(super) fn check(&self) -> Result<(), EngineFault> {
        self.cause().map_or(Ok(()), |cause| Err(EngineFault::Store { cause }))
    }

    /// Refuses another job while Redis is nearly full: once it is full, all jobs wait, and whoever submits
    /// one.
    pub(super) fn check_room(&self) -> Result<(), EngineFault> {
        match lock(&self.0).memory {
            Some(memory) if memory.is_full() => {
                Err(EngineFault::Store { cause: "Redis was at its memory limit a moment ago".to_owned() })
            }
            Some(memory) if memory.is_nearly_full() => {
                let RedisMemory { used_bytes, limit_bytes } = memory;
                Err(EngineFault::StoreNearlyFull { used_bytes, limit_bytes })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn cause(&self) -> Option<String> {
        lock(&self.0).cause()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_lasts_until_the_place_that_set_it_clears_it() {
        let outage = StoreOutage::default();
        assert_eq!(outage.cause(), None);
        outage.set_lease_failure(Some("no answer to the lease".into()));
        outage.set_commit_failure(Some("no answer to the commit".into()));
        assert_eq!(outage.clone().cause().as_deref(), Some("no answer to the commit"));
        outage.set_commit_failure(None);
        assert_eq!(outage.cause().as_deref(), Some("no answer to the lease"));
        outage.set_lease_failure(None);
        assert_eq!(outage.cause(), None);
    }

    #[test]
    fn who_was_sent_away_has_some_time_to_come_back() {
        let (outage, minute) = (StoreOutage::default(), Duration::from_secs(60));
        outage.set_lease_failure(None);
        assert!(!outage.may_have_sent_away(minute), "there was none");
        outage.set_lease_failure(Some("no answer to the lease".into()));
        outage.set_commit_failure(Some("no answer to the commit".into()));
        outage.set_commit_failure(None);
        assert!(outage.may_have_sent_away(Duration::ZERO), "one cause is still there");
        outage.set_lease_failure(None);
        assert!(outage.may_have_sent_away(minute) && !outage.may_have_sent_away(Duration::ZERO));
    }

    #[test]
    fn who_was_told_that_the_lease_had_run_out_has_time_to_come_back_once_it_is_renewed() {
        let (outage, minute) = (StoreOutage::default(), Duration::from_secs(60));
        outage.set_lead_until(Instant::now() + minute);
        outage.set_lead_until(Instant::now());
        assert!(!outage.may_have_sent_away(minute), "it was renewed in time");
        outage.set_lead_until(Instant::now() + minute);
        assert!(!outage.lead_expired() && outage.may_have_sent_away(minute));
    }

    #[test]
    fn nothing_is_taken_in_while_redis_takes_no_writes() {
        let outage = StoreOutage::default();
        assert_eq!(outage.check(), Ok(()));
        outage.set_commit_failure(Some("disk full".into()));
        assert_eq!(outage.check(), Err(EngineFault::Store { cause: "disk full".into() }));
    }

    #[test]
    fn what_frees_memory_is_let_through_to_a_redis_that_is_full_and_to_no_other_that_takes_no_writes() {
        let outage = StoreOutage::default();
        outage.set_full(Some("no memory".into()));
        assert!(outage.check().is_err() && !outage.takes_nothing());
        assert_eq!(outage.memory_limit(), MemoryLimit::Within);
        let at_work = [outage.make_room().unwrap(), outage.make_room().unwrap()];
        assert_eq!(outage.memory_limit(), MemoryLimit::Beyond);
        drop(at_work);
        assert_eq!(outage.memory_limit(), MemoryLimit::Within);
        outage.set_lease_failure(Some("no answer".into()));
        assert!(outage.make_room().is_err() && outage.takes_nothing());
        outage.set_lease_failure(None);
        outage.set_full(None);
        assert_eq!((outage.check(), outage.make_room().is_ok()), (Ok(()), true));
    }

    #[test]
    fn another_job_is_refused_while_redis_is_nearly_full_and_what_was_seen_before_an_outage_counts_no_more() {
        let outage = StoreOutage::default();
        let memory = |used_bytes| Some(RedisMemory { used_bytes, limit_bytes: 1_000 });
        let refused = Err(EngineFault::StoreNearlyFull { used_bytes: 950, limit_bytes: 1_000 });
        assert_eq!(outage.check_room(), Ok(()));
        outage.set_memory(memory(950));
        assert_eq!((outage.check_room(), outage.check()), (refused, Ok(())));
        outage.set_memory(memory(1_001));
        assert!(matches!(outage.check_room(), Err(EngineFault::Store { .. })), "who submits waits");
        outage.set_memory(memory(800));
        assert_eq!(outage.check_room(), Ok(()));
        outage.set_memory(memory(950));
        outage.set_commit_failure(Some("no room".into()));
        outage.set_memory(memory(950));
        outage.set_commit_failure(None);
        assert_eq!(outage.check_room(), Ok(()), "until the next look");
    }
}
