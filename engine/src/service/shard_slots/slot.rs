//! The processes of one shard, and what one of them that has a role says of it.

use std::time::Instant;

use syncline_rpc::{ReplicaRole, ShardHello, ShardPeer};
use syncline_scheduler::ids::ShardIndex;

use super::{Decision, OVERTAKER_PATIENCE, ReplicaProcess};
use crate::store::RoleNotes;

/// What a primary was told of its standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// By this engine nothing so far.
    Nothing,
    NoStandby,
    Standby {
        term: u64,
    },
}

/// The processes of one shard.
#[derive(Debug)]
pub(super) struct Slot<C> {
    pub(super) primary: Option<ReplicaProcess<C>>,
    pub(super) standby: Option<ReplicaProcess<C>>,
    /// Where the other process was, of which nothing is heard any more.
    pub(super) second_was: Option<String>,
    /// Term of the last standby that a primary went on without, as Redis knows: what that one has, or one
    /// before it, is old.
    pub(super) let_go: Option<u64>,
    /// The last term under which a process took over, or is about to, as Redis knows: what served before has
    /// an older state, or cannot know that it has not.
    pub(super) taken_over: Option<u64>,
    /// Until when the process that served before waits for the one that took over.
    pub(super) overtaker_awaited_until: Option<Instant>,
    /// The old primary, by its start, that serves again under this term because the process that took over
    /// never returned.
    pub(super) taken_back: Option<(u64, u64)>,
    /// What the primary was told last of its standby.
    pub(super) told: Told,
    /// Term of the last standby of which Redis was to know that a primary goes on without it: that is not
    /// taken back, even if it wakes.
    pub(super) letting_go: Option<u64>,
    /// When a worker last showed that it reaches whoever serves.
    pub(super) reached: Option<Instant>,
    /// Where the process was, or is, that no worker reached, unless one has reached another since.
    pub(super) left_at: Option<String>,
    /// Since when nobody serves.
    pub(super) vacant_since: Instant,
    /// Processes without a role, in the order in which they came, and since when: others may have more, or
    /// be gone.
    pub(super) undecided: Vec<(ShardHello, Instant)>,
}

impl<C> Slot<C> {
    /// Of a shard of which no process has come, and what was noted of earlier ones.
    pub(super) fn vacant(shard: ShardIndex, notes: &RoleNotes, now: Instant) -> Self {
        Self {
            primary: None,
            standby: None,
            second_was: None,
            let_go: notes.let_go.get(&shard).copied(),
            taken_over: notes.taken_over.get(&shard).copied(),
            overtaker_awaited_until: None,
            taken_back: None,
            told: Told::Nothing,
            letting_go: None,
            reached: None,
            left_at: None,
            vacant_since: now,
            undecided: Vec::new(),
        }
    }

    /// This process serves from now on.
    pub(super) fn serves(&mut self, primary: ReplicaProcess<C>) {
        let address = primary.hello.address.clone();
        let before = self.primary.replace(primary).map(|before| before.hello.address);
        self.overtaker_awaited_until = None;
        self.second_was = before.filter(|before| *before != address).or(self.second_was.take());
    }

    /// Takes note of a process that has a role; `None` if it has none.
    pub(super) fn refresh(&mut self, hello: &ShardHello, now: Instant) -> Option<Decision> {
        let same = |holder: &&mut ReplicaProcess<C>| holder.is(hello);
        if let Some(primary) = self.primary.as_mut().filter(same) {
            (primary.hello, primary.seen) = (hello.clone(), now);
            if let Some(first) = self.before_it_serves(hello, now) {
                return Some(first);
            }
            let is_let_go = |term| hello.lost == Some(term) || self.let_go >= Some(term);
            self.standby.take_if(|standby| is_let_go(standby.term) || standby.is_gone(now));
            return Some(self.role_of_primary(false));
        }
        if let Some(ReplicaRole::Primary { term }) = hello.role
            && let Some(standby) = self.standby.as_mut().filter(same)
        {
            if term <= standby.term {
                // It was said before the process was told to follow, and has come late: a network that was
                // cut delivers it when it is whole again.
                standby.seen = now;
                return Some(self.role_of_standby(false));
            }
            // A promotion whose answer was lost: it serves.
            self.standby = None;
        }
        if let Some(standby) = self.standby.as_mut().filter(same) {
            standby.update(hello, now);
            return Some(self.role_of_standby(false));
        }
        None
    }

    /// Whether a standby that followed under this term has what the primary has. Not if that one was told of
    /// another standby, or of none: it goes on without this one.
    pub(super) fn may_follow_on(&self, term: u64) -> bool {
        self.let_go < Some(term) && (self.told == Told::Nothing || self.told == Told::Standby { term })
    }

    /// What Redis must know, or who must be waited for, before this process serves on or begins to.
    pub(super) fn before_it_serves(&mut self, hello: &ShardHello, now: Instant) -> Option<Decision> {
        if self.is_overtaken(hello, now) {
            let until = *self.overtaker_awaited_until.get_or_insert(now + OVERTAKER_PATIENCE);
            return Some(if now < until { Decision::Overtaken } else { Decision::TakeBack });
        }
        let follower = self.lets_go(hello, now)?;
        self.letting_go = Some(follower);
        Some(Decision::LetGo(follower))
    }

    /// Whether another process has taken over from this primary, or may have: an engine that let it do so may
    /// not have heard that it did. As long as that one follows, it has not.
    fn is_overtaken(&self, hello: &ShardHello, now: Instant) -> bool {
        let is_followed = hello.follower.is_some() && self.follower(hello, now) == hello.follower;
        self.serves_under(hello).is_some_and(|term| self.taken_over > Some(term)) && !is_followed
    }

    /// The term under which this process serves, if it says that it does.
    pub(super) fn serves_under(&self, hello: &ShardHello) -> Option<u64> {
        let Some(ReplicaRole::Primary { term }) = hello.role else { return None };
        // It may not have heard yet that its term is a later one.
        let taken_back = self.taken_back.filter(|(boot, _)| *boot == hello.boot);
        Some(taken_back.map_or(term, |(_, later)| later.max(term)))
    }

    /// The term of the standby that follows this primary, and stays.
    fn follower(&self, hello: &ShardHello, now: Instant) -> Option<u64> {
        let stays =
            |standby: &&ReplicaProcess<C>| !standby.is_gone(now) && self.letting_go != Some(standby.term);
        let present = self.standby.as_ref().filter(stays);
        present.map(|standby| standby.term).filter(|term| hello.lost != Some(*term))
    }

    /// The standby that this primary has, where it is told to go on without it and Redis does not know that
    /// yet.
    fn lets_go(&self, hello: &ShardHello, now: Instant) -> Option<u64> {
        let has = self.follower(hello, now);
        hello
            .lost
            .or(hello.follower)
            .filter(|follower| has != Some(*follower) && self.let_go < Some(*follower))
    }

    pub(super) fn role_of_primary(&mut self, new: bool) -> Decision {
        self.told =
            self.standby.as_ref().map_or(Told::NoStandby, |standby| Told::Standby { term: standby.term });
        let term = self.primary.as_ref().map_or(0, |primary| primary.term);
        Decision::Role { role: ReplicaRole::Primary { term }, peer: peer(&self.standby), new }
    }

    pub(super) fn role_of_standby(&self, new: bool) -> Decision {
        let term = self.standby.as_ref().map_or(0, |standby| standby.term);
        Decision::Role { role: ReplicaRole::Standby { term }, peer: peer(&self.primary), new }
    }
}

fn peer<C>(holder: &Option<ReplicaProcess<C>>) -> Option<ShardPeer> {
    holder.as_ref().map(|h| ShardPeer { address: h.hello.address.clone(), term: h.term })
}
