//! Which process serves each shard of the parameter server, and which follows it. No network here.
//!
//! | a process comes that | is |
//! |---|---|
//! | served under a later term than the one that serves | the primary |
//! | is of a shard that nobody serves, without having served it, and the engine has just begun | undecided, until another comes or some time has passed: that one may have the jobs |
//! | is of a shard that nobody serves, where one follows that has as much | the standby, once that one is promoted |
//! | the same with less than that one has, which is silent | undecided for a while: that one may only sleep |
//! | is of a shard whose primary is silent, and is not that one come back | undecided, until that one counts as lost: it may have more |
//! | followed when it was stopped, and nobody serves | a standby that waits for the primary, for a while |
//! | comes second, where shards have two processes | the standby |
//! | served before another took over that is away | left as it is, until that one comes or has been awaited for long |
//! | comes beyond these, and the standby is still there a moment later | refused |

mod judging;
mod reach;
mod replica_process;
mod slot;
mod stopping;
#[cfg(test)]
mod tests;
mod unanswered;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use syncline_rpc::{ReplicaRole, ShardHello, ShardPeer};
use syncline_scheduler::ids::{EngineEpoch, ShardIndex};

use crate::store::{RoleNote, RoleNotes};
use judging::RoleDecision;
pub(super) use reach::ReachNote;
pub(super) use replica_process::ReplicaProcess;
use slot::{Slot, Told};
use stopping::StoppingShards;
pub(super) use unanswered::{FailedAfter, NoAnswer, Unanswered, UnansweredOrders};

/// How long a primary may be silent where a standby has all of its jobs. It announces itself twice a second;
/// a failover too many costs a moment and loses nothing.
const FAILOVER_SILENCE: Duration = Duration::from_secs(2);
/// The same where the primary was never heard in this epoch: it may still wait for the engine that led
/// before, 3 s for its answer and 2 s before it asks the next one.
const UNHEARD_SILENCE: Duration = Duration::from_secs(6);
/// A standby that is silent for longer takes nobody's role.
const STANDBY_SILENCE: Duration = Duration::from_secs(1);
/// A standby that is silent for longer is let go: until then the primary waits for it with each blob that it
/// is given, or asked for. One that lives comes sooner, 3 s for an answer and 2 s before it asks again.
const STANDBY_GONE_AFTER: Duration = Duration::from_secs(6);
/// How long a new engine waits for the other process of a shard before the one that is there serves: it may
/// have less, or a new disk and nothing.
const PARTNER_SILENCE: Duration = Duration::from_secs(10);
/// How long a process that was overtaken waits for the one that took over. That one may be cut off and serve
/// others, or have died before it served; then this one has most, and jobs that have lost something go back
/// to their checkpoints.
const OVERTAKER_PATIENCE: Duration = Duration::from_secs(30);
/// How long a process waits for a silent standby that has jobs which it lacks: that one may only sleep, as
/// the one that served might.
const STANDBY_PATIENCE: Duration = Duration::from_secs(30);
/// One part in so many of the silence after which a shard counts as lost.
const LAST_MOMENT: u32 = 10;
/// Numbers of terms that one epoch has.
const TERMS_PER_EPOCH: u64 = 1 << 20;
/// Shards that are refused call once a second: after so long without a call they are started again, or gone.
const FOREIGN_PAUSE: Duration = Duration::from_secs(5);
/// No upgrade takes longer, and whoever calls as such a shard has proved nothing.
const FOREIGN_PATIENCE: Duration = Duration::from_secs(900);

/// A shard announces itself twice a second; a longer silence is shown.
const SILENCE_SHOWN_AFTER: Duration = Duration::from_secs(2);

/// What becomes of an announcement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// The process has this role. `new`: from now on.
    Role { role: ReplicaRole, peer: Option<ShardPeer>, new: bool },
    /// Whether the primary answers must be known first.
    AskPrimary,
    /// The primary has a standby of this term and is to go on without it. Redis must know that first, and
    /// that this engine leads: another one might let that standby serve.
    LetGo(u64),
    /// Another process has taken over from this one, or may have, and is waited for: nothing is decided.
    Overtaken,
    /// It was waited for in vain: this process takes over in its turn. Redis must know that first.
    TakeBack,
    /// The standby must serve first: it has what this process lacks.
    PromoteStandby,
    /// Another process, at this address, is what this one would be.
    Taken(String),
}

/// The processes of all shards.
#[derive(Debug)]
pub(super) struct ShardSlots<C> {
    slots: BTreeMap<ShardIndex, Slot<C>>,
    /// What was noted before this epoch.
    notes: RoleNotes,
    next_term: u64,
    /// When the epoch began, and the shards that nobody has served in it so far.
    begun: Instant,
    unserved: BTreeSet<ShardIndex>,
    /// Since when shards that speak another version have called again and again, and when one did last.
    foreign: Option<(Instant, Instant)>,
    /// Processes that were told to stop.
    pub(super) stopping: StoppingShards,
}

impl<C: Clone> ShardSlots<C> {
    /// None is known, at the beginning of an epoch, but how many there are and what was noted of them before
    /// it.
    pub(super) fn new(epoch: EngineEpoch, notes: RoleNotes, count: u32, now: Instant) -> Self {
        let next_term = epoch.0.saturating_mul(TERMS_PER_EPOCH);
        let unserved = (0..count).map(ShardIndex).collect();
        Self {
            slots: BTreeMap::new(),
            notes,
            next_term,
            begun: now,
            unserved,
            foreign: None,
            stopping: StoppingShards::default(),
        }
    }

    /// Decides about an announcement, and takes note of it. `primary_answers`: what came of the question,
    /// once it was asked.
    pub(super) fn announce(
        &mut self,
        hello: &ShardHello,
        primary_answers: Option<bool>,
        now: Instant,
        client: impl FnOnce() -> C,
    ) -> Decision {
        let Self { slots, notes, next_term, unserved, .. } = self;
        let slot = slots.entry(hello.index).or_insert_with(|| Slot::vacant(hello.index, notes, now));
        if let Some(known) = slot.refresh(hello, now) {
            return known;
        }
        let mut new_term = || {
            *next_term += 1;
            *next_term
        };
        let enter = |term| ReplicaProcess {
            hello: hello.clone(),
            term,
            seen: now,
            unanswered: UnansweredOrders::default(),
            offered: None,
            client: client(),
        };
        match slot.judge(hello, primary_answers, now) {
            RoleDecision::Serve => {
                if let Some(first) = slot.before_it_serves(hello, now) {
                    return first;
                }
                slot.serves(enter(slot.serves_under(hello).unwrap_or_else(&mut new_term)));
                let of_another = slot.standby.iter_mut().filter(|s| Some(s.term) != hello.follower);
                of_another.for_each(|standby| standby.begin_anew(new_term()));
                slot.undecided.clear();
                unserved.remove(&hello.index);
                slot.role_of_primary(true)
            }
            RoleDecision::Follow => {
                let mut standby = enter(match hello.role {
                    Some(ReplicaRole::Standby { term }) if slot.may_follow_on(term) => term,
                    _ => new_term(),
                });
                standby.update(hello, now);
                slot.second_was = Some(hello.address.clone());
                slot.standby = Some(standby);
                slot.undecided.clear();
                slot.role_of_standby(true)
            }
            RoleDecision::Wait => {
                if slot.undecided_since(hello).is_none() {
                    slot.undecided.retain(|(known, _)| known.address != hello.address);
                    slot.undecided.push((hello.clone(), now));
                }
                Decision::Role { role: ReplicaRole::Undecided, peer: None, new: false }
            }
            RoleDecision::Other(decision) => decision,
        }
    }

    /// Redis knows this of a shard.
    pub(super) fn noted(&mut self, index: ShardIndex, note: RoleNote) {
        let Some(slot) = self.slots.get_mut(&index) else { return };
        match note {
            RoleNote::LetGo(term) => slot.let_go = slot.let_go.max(Some(term)),
            RoleNote::TakenOver(term) => slot.taken_over = slot.taken_over.max(Some(term)),
        }
    }

    /// A process that waited in vain for the one that took over from it serves from now on under this term,
    /// as Redis knows.
    pub(super) fn taken_back(&mut self, hello: &ShardHello, term: u64) {
        let Some(slot) = self.slots.get_mut(&hello.index) else { return };
        slot.taken_back = Some((hello.boot, term));
        slot.primary.iter_mut().filter(|primary| primary.is(hello)).for_each(|primary| primary.term = term);
    }

    /// A term that is later than all before.
    pub(super) fn next_term(&mut self) -> u64 {
        self.next_term += 1;
        self.next_term
    }

    /// What Redis has to know of all shards.
    pub(super) fn notes(&self) -> RoleNotes {
        let mut notes = self.notes.clone();
        for (index, slot) in &self.slots {
            notes.let_go.extend(slot.let_go.map(|term| (*index, term)));
            notes.taken_over.extend(slot.taken_over.map(|term| (*index, term)));
        }
        notes
    }

    /// Takes note that a process lives, and of what it says of its disk, and decides nothing.
    pub(super) fn note_alive(&mut self, hello: &ShardHello, now: Instant) {
        let Some(slot) = self.slots.get_mut(&hello.index) else { return };
        let holders = slot.primary.iter_mut().chain(&mut slot.standby);
        for holder in holders.filter(|holder| holder.is(hello)) {
            holder.seen = now;
            holder.hello.disk = hello.disk.clone();
        }
    }

    /// The orders of the process that serves a shard, if it is still this one.
    pub(super) fn unanswered_mut(&mut self, index: ShardIndex, boot: u64) -> Option<&mut UnansweredOrders> {
        let primary = self.slots.get_mut(&index)?.primary.as_mut()?;
        (primary.hello.boot == boot).then_some(&mut primary.unanswered)
    }

    /// Whether this very process has a role.
    pub(super) fn knows(&self, hello: &ShardHello) -> bool {
        let is = |holder: &&ReplicaProcess<C>| holder.is(hello);
        self.primary(hello.index).filter(is).or(self.standby(hello.index).filter(is)).is_some()
    }

    /// A shard that speaks another version calls.
    pub(super) fn note_foreign(&mut self, now: Instant) {
        let since = self.foreign.filter(|(_, seen)| now.duration_since(*seen) <= FOREIGN_PAUSE);
        self.foreign = Some((since.map_or(now, |(since, _)| since), now));
    }

    /// Whether a shard that speaks another version may be about to be started in this one.
    fn is_foreign_there(&self, now: Instant) -> bool {
        self.foreign.is_some_and(|(since, seen)| {
            now.duration_since(seen) <= FOREIGN_PAUSE && now.duration_since(since) <= FOREIGN_PATIENCE
        })
    }

    /// The shards whose standby is to serve instead of a primary that is silent, was never there, or
    /// announces itself and answers nobody.
    pub(super) fn failovers_due(&self, now: Instant, silence: Duration) -> Vec<ShardIndex> {
        let is_foreign_there = self.is_foreign_there(now);
        let due = |slot: &Slot<C>| {
            let Some(standby) = &slot.standby else { return false };
            // In the middle of an upgrade it could copy nothing from the process that has everything.
            if standby.hello.jobs == 0 && is_foreign_there {
                return false;
            }
            let vacant = slot.primary.as_ref().map_or(slot.vacant_since, |primary| primary.seen);
            let jobs = slot.primary.as_ref().map_or(0, |primary| primary.hello.jobs);
            let patience = match standby.is_ready() {
                true if slot.told == Told::Nothing => UNHEARD_SILENCE,
                true if standby.hello.jobs >= jobs => FAILOVER_SILENCE,
                // What it lacks ends then. The primary may only sleep: it has until a moment before the shard
                // counts as lost, with all jobs.
                true => silence - silence / LAST_MOMENT,
                false => silence,
            };
            let unanswered = slot.primary.as_ref().and_then(|primary| primary.unanswered.note());
            let is_deaf = unanswered.is_some_and(|order| {
                standby.is_ready()
                    && standby.hello.jobs >= jobs
                    && now.duration_since(order.since) > silence / 2
            });
            (is_deaf || now.duration_since(vacant) > patience)
                && now.duration_since(standby.seen) <= STANDBY_SILENCE
        };
        self.slots.iter().filter(|(_, slot)| due(slot)).map(|(index, _)| *index).collect()
    }

    /// The standby of a shard, and the term under which it would serve: the same one if it is asked again,
    /// which may serve by now.
    pub(super) fn candidate(&mut self, index: ShardIndex) -> Option<(ReplicaProcess<C>, u64)> {
        let Self { slots, next_term, .. } = self;
        let slot = slots.get_mut(&index)?;
        let standby = slot.standby.as_mut()?;
        let offered = standby.offered.filter(|term| slot.taken_over <= Some(*term));
        let term = offered.unwrap_or_else(|| {
            *next_term += 1;
            *next_term
        });
        standby.offered = Some(term);
        Some((standby.clone(), term))
    }

    /// A standby serves from now on.
    pub(super) fn promoted(&mut self, mut standby: ReplicaProcess<C>, term: u64) {
        let Some(slot) = self.slots.get_mut(&standby.hello.index) else { return };
        slot.standby.take_if(|known| known.is(&standby.hello));
        standby.term = term;
        standby.hello.role = Some(ReplicaRole::Primary { term });
        self.unserved.remove(&standby.hello.index);
        slot.serves(standby);
        slot.told = Told::NoStandby;
    }

    /// A standby that was to serve says that it follows nobody: it is forgotten.
    pub(super) fn follows_nobody(&mut self, standby: &ReplicaProcess<C>, now: Instant) {
        if let Some(slot) = self.slots.get_mut(&standby.hello.index) {
            slot.standby.take_if(|known| known.is(&standby.hello));
            slot.overtaker_awaited_until = Some(now);
        }
    }

    /// The shards that nobody has served since the epoch began, `silence` ago; each is named once.
    pub(super) fn take_never_served(&mut self, now: Instant, silence: Duration) -> BTreeSet<ShardIndex> {
        match now.duration_since(self.begun) > silence {
            true => std::mem::take(&mut self.unserved),
            false => BTreeSet::new(),
        }
    }

    /// For how long this engine has waited for a shard that has not come to it so far, and that does not count
    /// as missing yet.
    pub(super) fn awaited_for(&self, index: ShardIndex, now: Instant) -> Option<Duration> {
        self.unserved.contains(&index).then(|| now.duration_since(self.begun))
    }

    /// Forgets a primary that is silent.
    pub(super) fn forget(&mut self, index: ShardIndex, now: Instant) {
        if let Some(slot) = self.slots.get_mut(&index) {
            slot.primary = None;
            slot.vacant_since = now;
        }
    }

    pub(super) fn primary(&self, index: ShardIndex) -> Option<&ReplicaProcess<C>> {
        self.slots.get(&index)?.primary.as_ref()
    }

    pub(super) fn standby(&self, index: ShardIndex) -> Option<&ReplicaProcess<C>> {
        self.slots.get(&index)?.standby.as_ref()
    }

    /// Where the other process of a shard was last, whose standby is not there.
    pub(super) fn second_was(&self, index: ShardIndex) -> Option<&str> {
        let slot = self.slots.get(&index)?;
        let serves_at = slot.primary.as_ref().map(|primary| &primary.hello.address);
        slot.second_was.as_ref().filter(|was| Some(*was) != serves_at).map(String::as_str)
    }

    pub(super) fn primaries(&self) -> impl Iterator<Item = &ReplicaProcess<C>> {
        self.slots.values().filter_map(|slot| slot.primary.as_ref())
    }

    /// Does not count `late` as silence.
    pub(super) fn extend_deadlines(&mut self, late: Duration, now: Instant) {
        self.begun = (self.begun + late).min(now);
        for slot in self.slots.values_mut() {
            slot.vacant_since = (slot.vacant_since + late).min(now);
            slot.reached.iter_mut().for_each(|at| *at = (*at + late).min(now));
            for holder in slot.primary.iter_mut().chain(&mut slot.standby) {
                holder.seen = (holder.seen + late).min(now);
                holder.unanswered.extend_deadlines(late, now);
            }
        }
    }
}
