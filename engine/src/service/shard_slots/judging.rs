//! What is to become of a process without a role.

use std::{iter, time::Instant};

use syncline_rpc::{ReplicaRole, ShardHello};

use super::{Decision, FAILOVER_SILENCE, PARTNER_SILENCE, ReplicaProcess, STANDBY_PATIENCE, slot::Slot};

pub(super) enum RoleDecision {
    Serve,
    Follow,
    Wait,
    Other(Decision),
}

impl<C> Slot<C> {
    pub(super) fn undecided_since(&self, hello: &ShardHello) -> Option<Instant> {
        let (_, since) = self.undecided.iter().find(|(known, _)| known.boot == hello.boot)?;
        Some(*since)
    }

    /// What is to become of a process without a role.
    pub(super) fn judge(
        &self,
        hello: &ShardHello,
        primary_answers: Option<bool>,
        now: Instant,
    ) -> RoleDecision {
        let Some(primary) = &self.primary else { return self.judge_for_vacancy(hello, now) };
        // Two processes cannot listen at one address: the old one has ended, and its successor would answer.
        if primary.hello.address == hello.address {
            return self.judge_for_vacancy(hello, now);
        }
        if let Some(ReplicaRole::Primary { term }) = hello.role
            && term > primary.term
        {
            return RoleDecision::Serve;
        }
        match primary_answers {
            None => RoleDecision::Other(Decision::AskPrimary),
            Some(false) => self.judge_for_vacancy(hello, now),
            Some(true) if hello.replicas < 2 || primary.hello.replicas < 2 => {
                RoleDecision::Other(Decision::Taken(primary.hello.address.clone()))
            }
            Some(true) => match &self.standby {
                Some(standby)
                    if standby.hello.address != hello.address
                        && now.duration_since(standby.seen) <= FAILOVER_SILENCE =>
                {
                    let waited = self.undecided_since(hello).map(|since| now.duration_since(since));
                    match waited.is_some_and(|waited| waited > FAILOVER_SILENCE) {
                        true => RoleDecision::Other(Decision::Taken(standby.hello.address.clone())),
                        // That one may just have died.
                        false => RoleDecision::Wait,
                    }
                }
                _ => RoleDecision::Follow,
            },
        }
    }

    /// The same, where nobody serves, or the one who did does not answer.
    fn judge_for_vacancy(&self, hello: &ShardHello, now: Instant) -> RoleDecision {
        let follows = matches!(hello.role, Some(ReplicaRole::Standby { .. }));
        let served = matches!(hello.role, Some(ReplicaRole::Primary { .. }));
        if hello.replicas < 2 || served && self.primary.is_none() {
            return RoleDecision::Serve;
        }
        let standby = self.standby_unless_replaced(hello);
        if let Some(standby) = standby.filter(|standby| standby.has_what(hello)) {
            let silent = now.duration_since(standby.seen);
            if silent <= FAILOVER_SILENCE {
                return RoleDecision::Other(Decision::PromoteStandby);
            }
            if standby.hello.jobs > hello.jobs && silent <= STANDBY_PATIENCE {
                return RoleDecision::Wait;
            }
        }
        if let Some(dead) = &self.primary {
            return self.judge_after(&dead.hello, hello, now);
        }
        let is_alone = self.undecided.iter().all(|(other, _)| other.boot == hello.boot);
        match standby {
            Some(_) if is_alone => RoleDecision::Serve,
            None if follows || hello.followed_before && hello.jobs == 0 => RoleDecision::Follow,
            _ if now.duration_since(self.vacant_since) > PARTNER_SILENCE => RoleDecision::Serve,
            _ => self.judge_among_undecided(hello),
        }
    }

    /// The standby, if no other process has come in its place: then it has ended.
    fn standby_unless_replaced(&self, hello: &ShardHello) -> Option<&ReplicaProcess<C>> {
        let mut come = iter::once(hello).chain(self.undecided.iter().map(|(known, _)| known));
        self.standby.as_ref().filter(|standby| !come.any(|other| is_successor(other, &standby.hello)))
    }

    /// The same, where the process that served has ended, after these last words of it.
    fn judge_after(&self, dead: &ShardHello, hello: &ShardHello, now: Instant) -> RoleDecision {
        let came_back = |hello: &ShardHello| is_successor(hello, dead);
        if !came_back(hello) {
            // What another one has may be older than what that one has, who may come back: with nothing, if
            // it was killed.
            let back = self.undecided.iter().map(|(known, _)| known).find(|known| came_back(known));
            return match back.is_some_and(|back| back.jobs == 0 && hello.jobs > 0) {
                true => RoleDecision::Serve,
                false => RoleDecision::Wait,
            };
        }
        if hello.jobs > 0 || dead.jobs == 0 {
            return RoleDecision::Serve;
        }
        // Whoever followed it may have kept its copies, and be started again as well.
        let other_has_some = self.undecided.iter().any(|(known, _)| !came_back(known) && known.jobs > 0);
        let waited =
            self.undecided_since(hello).is_some_and(|since| now.duration_since(since) > FAILOVER_SILENCE);
        if waited && !other_has_some { RoleDecision::Serve } else { RoleDecision::Wait }
    }

    /// Once two are there, one that has kept jobs serves before one that has none: whoever served and was
    /// killed has none, and the one that followed it may have kept its copies. Then the one that served
    /// last; of those that never did, the one with more jobs; of equals the one that came first.
    fn judge_among_undecided(&self, hello: &ShardHello) -> RoleDecision {
        let mut others =
            self.undecided.iter().map(|(other, _)| other).filter(|other| other.boot != hello.boot);
        let came_first = self.undecided.first().is_none_or(|(first, _)| first.boot == hello.boot);
        let rank = |hello: &ShardHello, first: bool| {
            (hello.jobs > 0, hello.set_aside > 0, hello.served_term, hello.jobs, first)
        };
        match others.next() {
            Some(other) if rank(hello, came_first) > rank(other, !came_first) => RoleDecision::Serve,
            _ => RoleDecision::Wait,
        }
    }
}

/// Whether a process was started in the place of the other one, in its folder or at its address.
fn is_successor(later: &ShardHello, ended: &ShardHello) -> bool {
    later.boot != ended.boot && (later.identity == ended.identity || later.address == ended.address)
}
