//! Which process serves each shard of the parameter server, and which follows it. No network here.
//!
//! | a process comes that | is |
//! |---|---|
//! | served under a later term than the one that serves | the primary |
//! | is of a shard that nobody serves, without having served it, and the engine has just begun | undecided, until another comes or some time has passed: that one may have the jobs |
//! | is of a shard that nobody serves, where one follows that has as much | the standby, once that one is promoted |
//! | is of a shard whose primary is silent, and is not that one come back | undecided, until that one counts as lost: it may have more |
//! | followed when it was stopped, and nobody serves | a standby that waits for the primary, for a while |
//! | comes second, where shards have two processes | the standby |
//! | comes beyond these, and the standby is still there a moment later | refused |

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use syncline_rpc::{ReplicaRole, ShardHello, ShardPeer};
use syncline_scheduler::ids::{EngineEpoch, ShardIndex};

/// How long a primary may be silent where a standby has all of its jobs. It announces itself twice a second; a failover too many
/// costs a moment and loses nothing.
const FAILOVER_SILENCE: Duration = Duration::from_secs(2);
/// The same where the primary was never heard in this epoch: it may still wait for the engine that led before, 3 s for its answer
/// and 2 s before it asks the next one.
const UNHEARD_SILENCE: Duration = Duration::from_secs(6);
/// A standby that is silent for longer takes nobody's role.
const STANDBY_SILENCE: Duration = Duration::from_secs(1);
/// A standby that is silent for longer is let go: until then the primary waits for it with each blob that it is given, or asked for. One
/// that lives comes sooner, 3 s for an answer and 2 s before it asks again.
const STANDBY_GONE_AFTER: Duration = Duration::from_secs(6);
/// How long a new engine waits for the other process of a shard before the one that is there serves: it may have less, or a new
/// disk and nothing.
const PARTNER_SILENCE: Duration = Duration::from_secs(10);
/// One part in so many of the silence after which a shard counts as lost.
const LAST_MOMENT: u32 = 10;
/// Numbers of terms that one epoch has.
const TERMS_PER_EPOCH: u64 = 1 << 20;

/// A shard announces itself twice a second; a longer silence is shown.
const SILENCE_SHOWN_AFTER: Duration = Duration::from_secs(2);

/// Why orders are repeated.
#[derive(Debug, Clone)]
pub(super) struct Unanswered {
    pub since: Instant,
    /// What came of the last one, in words.
    pub cause: String,
    /// Whether something answers there, and turns the engine away.
    pub is_refusal: bool,
}

/// One process. `C` is how it is reached.
#[derive(Debug, Clone)]
pub(super) struct ReplicaProcess<C> {
    pub hello: ShardHello,
    pub term: u64,
    pub seen: Instant,
    /// That it has answered no order, though it announces itself.
    pub unanswered: Option<Unanswered>,
    pub client: C,
}

impl<C> ReplicaProcess<C> {
    fn is(&self, hello: &ShardHello) -> bool {
        (self.hello.boot, &self.hello.address) == (hello.boot, &hello.address)
    }

    /// Takes note of what this standby says. What it held before it was told to follow under this term, it drops: until it says
    /// that it does, it has nothing of what the primary has.
    fn update(&mut self, hello: &ShardHello, now: Instant) {
        let follows = hello.role == Some(ReplicaRole::Standby { term: self.term });
        let (jobs, mirrored) = if follows { (hello.jobs, hello.mirrored) } else { (0, false) };
        (self.hello, self.seen) = (ShardHello { jobs, mirrored, ..hello.clone() }, now);
    }

    /// Another process serves, of which this standby has nothing: it is told to drop what it has.
    fn begin_anew(&mut self, term: u64) {
        self.term = term;
        (self.hello.jobs, self.hello.mirrored) = (0, false);
    }

    /// Whether it has said nothing for so long that people are told.
    pub(super) fn is_silent(&self) -> bool {
        self.seen.elapsed() > SILENCE_SHOWN_AFTER
    }

    /// That it has answered no order for so long that people are told.
    pub(super) fn unanswered_shown(&self) -> Option<&Unanswered> {
        self.unanswered.as_ref().filter(|order| order.since.elapsed() > SILENCE_SHOWN_AFTER)
    }

    /// Whether a primary is to go on without this standby.
    fn is_gone(&self, now: Instant) -> bool {
        now.duration_since(self.seen) > STANDBY_GONE_AFTER
    }

    /// Whether it could serve.
    fn is_ready(&self) -> bool {
        self.hello.jobs > 0 || self.hello.mirrored
    }

    /// Whether this standby has at least what a process has that has just come.
    fn has_what(&self, fresh: &ShardHello) -> bool {
        self.is_ready() && self.hello.jobs >= fresh.jobs && (self.hello.jobs > 0 || fresh.set_aside == 0)
    }
}

/// The processes of one shard.
#[derive(Debug)]
struct Slot<C> {
    primary: Option<ReplicaProcess<C>>,
    standby: Option<ReplicaProcess<C>>,
    /// Where the other process was, of which nothing is heard any more.
    second_was: Option<String>,
    /// Term of the last standby that a primary went on without, as Redis knows: what that one has, or one before it, is old.
    let_go: Option<u64>,
    /// The standby, by its term, or none, of which the primary was told last; `None` if this engine has told nobody.
    told: Option<Option<u64>>,
    /// Term of the last standby of which Redis was to know that a primary goes on without it: that is not taken back, also if it wakes.
    letting_go: Option<u64>,
    /// Since when nobody serves.
    vacant_since: Instant,
    /// Processes without a role, in the order in which they came, and since when: others may have more, or be gone.
    undecided: Vec<(ShardHello, Instant)>,
}

/// What becomes of an announcement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// The process has this role. `new`: from now on.
    Role { role: ReplicaRole, peer: Option<ShardPeer>, new: bool },
    /// Whether the primary answers must be known first.
    AskPrimary,
    /// The primary has a standby of this term and is to go on without it. Redis must know that first, and that this engine
    /// leads: another one might let that standby serve.
    LetGo(u64),
    /// The standby must serve first: it has what this process lacks.
    PromoteStandby,
    /// Another process, at this address, is what this one would be.
    Taken(String),
}

/// The processes of all shards.
#[derive(Debug)]
pub(super) struct ShardSlots<C> {
    slots: BTreeMap<ShardIndex, Slot<C>>,
    /// Terms of standbys that were let go before this epoch.
    let_go: BTreeMap<ShardIndex, u64>,
    next_term: u64,
}

impl<C: Clone> ShardSlots<C> {
    /// None is known, at the beginning of an epoch, but which standbys were let go before it.
    pub(super) fn new(epoch: EngineEpoch, let_go: BTreeMap<ShardIndex, u64>) -> Self {
        Self { slots: BTreeMap::new(), let_go, next_term: epoch.0.saturating_mul(TERMS_PER_EPOCH) }
    }

    /// Decides about an announcement, and takes note of it. `primary_answers`: what came of the question, once it was asked.
    pub(super) fn announce(
        &mut self,
        hello: &ShardHello,
        primary_answers: Option<bool>,
        now: Instant,
        client: impl FnOnce() -> C,
    ) -> Decision {
        let Self { slots, let_go, next_term } = self;
        let slot = slots.entry(hello.index).or_insert_with(|| Slot {
            primary: None,
            standby: None,
            second_was: None,
            let_go: let_go.get(&hello.index).copied(),
            told: None,
            letting_go: None,
            vacant_since: now,
            undecided: Vec::new(),
        });
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
            unanswered: None,
            client: client(),
        };
        match slot.judge(hello, primary_answers, now) {
            RoleDecision::Serve => {
                if let Some(follower) = slot.lets_go(hello, now) {
                    slot.letting_go = Some(follower);
                    return Decision::LetGo(follower);
                }
                slot.serves(enter(match hello.role {
                    Some(ReplicaRole::Primary { term }) => term,
                    _ => new_term(),
                }));
                let of_another = slot.standby.iter_mut().filter(|s| Some(s.term) != hello.follower);
                of_another.for_each(|standby| standby.begin_anew(new_term()));
                slot.undecided.clear();
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

    /// Redis knows that the primary of a shard goes on without the standby of this term.
    pub(super) fn let_go(&mut self, index: ShardIndex, term: u64) {
        if let Some(slot) = self.slots.get_mut(&index) {
            slot.let_go = slot.let_go.max(Some(term));
        }
    }

    /// Of each shard that has gone on without a standby, the term of the last one.
    pub(super) fn all_let_go(&self) -> BTreeMap<ShardIndex, u64> {
        let now = self.slots.iter().filter_map(|(index, slot)| Some((*index, slot.let_go?)));
        self.let_go.clone().into_iter().chain(now).collect()
    }

    /// Takes note that a process lives, and decides nothing.
    pub(super) fn note_alive(&mut self, hello: &ShardHello, now: Instant) {
        let Some(slot) = self.slots.get_mut(&hello.index) else { return };
        let holders = slot.primary.iter_mut().chain(&mut slot.standby);
        holders.filter(|holder| holder.is(hello)).for_each(|holder| holder.seen = now);
    }

    /// Takes note of whether the process that serves a shard, if it is still this one, has answered an order. Of orders that are not
    /// answered the first one says since when.
    pub(super) fn note_order(&mut self, index: ShardIndex, boot: u64, unanswered: Option<Unanswered>) {
        if let Some(known) = self.unanswered_mut(index, boot) {
            let since = known.take().map(|order| order.since);
            *known = unanswered.map(|order| Unanswered { since: since.unwrap_or(order.since), ..order });
        }
    }

    /// The same, of an order that is repeated: it counts no more where another one was answered since it was given first.
    pub(super) fn note_repeated_order(&mut self, index: ShardIndex, boot: u64, outcome: Unanswered) {
        if let Some(Some(known)) = self.unanswered_mut(index, boot) {
            *known = Unanswered { since: known.since, ..outcome };
        }
    }

    fn unanswered_mut(&mut self, index: ShardIndex, boot: u64) -> Option<&mut Option<Unanswered>> {
        let primary = self.slots.get_mut(&index)?.primary.as_mut()?;
        (primary.hello.boot == boot).then_some(&mut primary.unanswered)
    }

    /// Whether this very process has a role.
    pub(super) fn knows(&self, hello: &ShardHello) -> bool {
        let is = |holder: &&ReplicaProcess<C>| holder.is(hello);
        self.primary(hello.index).filter(is).or(self.standby(hello.index).filter(is)).is_some()
    }

    /// The shards whose standby is to serve instead of a primary that is silent, was never there, or announces itself and answers
    /// nobody.
    pub(super) fn failovers_due(&self, now: Instant, silence: Duration) -> Vec<ShardIndex> {
        let due = |slot: &Slot<C>| {
            let Some(standby) = &slot.standby else { return false };
            let vacant = slot.primary.as_ref().map_or(slot.vacant_since, |primary| primary.seen);
            let jobs = slot.primary.as_ref().map_or(0, |primary| primary.hello.jobs);
            let patience = match standby.is_ready() {
                true if slot.told.is_none() => UNHEARD_SILENCE,
                true if standby.hello.jobs >= jobs => FAILOVER_SILENCE,
                // What it lacks ends then. The primary may only sleep: it has until a moment before the shard counts as lost, with all jobs.
                true => silence - silence / LAST_MOMENT,
                false => silence,
            };
            let unanswered = slot.primary.as_ref().and_then(|primary| primary.unanswered.as_ref());
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

    /// The standby of a shard, and the term under which it would serve.
    pub(super) fn candidate(&mut self, index: ShardIndex) -> Option<(ReplicaProcess<C>, u64)> {
        let standby = self.slots.get(&index)?.standby.clone()?;
        self.next_term += 1;
        Some((standby, self.next_term))
    }

    /// A standby serves from now on.
    pub(super) fn promoted(&mut self, mut standby: ReplicaProcess<C>, term: u64) {
        let Some(slot) = self.slots.get_mut(&standby.hello.index) else { return };
        slot.standby.take_if(|known| known.is(&standby.hello));
        standby.term = term;
        standby.hello.role = Some(ReplicaRole::Primary { term });
        slot.serves(standby);
        slot.told = Some(None);
    }

    /// A standby could not be promoted. One that is silent, or says that it follows nobody, is forgotten; another is tried again.
    pub(super) fn not_promoted(&mut self, standby: &ReplicaProcess<C>, follows: bool, now: Instant) {
        let is_over = |known: &mut ReplicaProcess<C>| {
            known.is(&standby.hello) && (!follows || now.duration_since(known.seen) > FAILOVER_SILENCE)
        };
        if let Some(slot) = self.slots.get_mut(&standby.hello.index) {
            slot.standby.take_if(is_over);
        }
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
        for slot in self.slots.values_mut() {
            slot.vacant_since = (slot.vacant_since + late).min(now);
            for holder in slot.primary.iter_mut().chain(&mut slot.standby) {
                holder.seen = (holder.seen + late).min(now);
                holder.unanswered.iter_mut().for_each(|order| order.since = (order.since + late).min(now));
            }
        }
    }
}

enum RoleDecision {
    Serve,
    Follow,
    Wait,
    Other(Decision),
}

impl<C> Slot<C> {
    /// This process serves from now on.
    fn serves(&mut self, primary: ReplicaProcess<C>) {
        let address = primary.hello.address.clone();
        let before = self.primary.replace(primary).map(|before| before.hello.address);
        self.second_was = before.filter(|before| *before != address).or(self.second_was.take());
    }

    /// Takes note of a process that has a role; `None` if it has none.
    fn refresh(&mut self, hello: &ShardHello, now: Instant) -> Option<Decision> {
        let same = |holder: &&mut ReplicaProcess<C>| holder.is(hello);
        if let Some(primary) = self.primary.as_mut().filter(same) {
            (primary.hello, primary.seen) = (hello.clone(), now);
            if let Some(follower) = self.lets_go(hello, now) {
                self.letting_go = Some(follower);
                return Some(Decision::LetGo(follower));
            }
            let is_let_go = |term| hello.lost == Some(term) || self.let_go >= Some(term);
            self.standby.take_if(|standby| is_let_go(standby.term) || standby.is_gone(now));
            return Some(self.role_of_primary(false));
        }
        if let Some(ReplicaRole::Primary { term }) = hello.role
            && let Some(standby) = self.standby.as_mut().filter(same)
        {
            if term <= standby.term {
                // It was said before the process was told to follow, and has come late: a network that was cut delivers it when it is
                // whole again.
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

    /// Whether a standby that followed under this term has what the primary has. Not if that one was told of another standby, or
    /// of none: it goes on without this one.
    fn may_follow_on(&self, term: u64) -> bool {
        self.let_go < Some(term) && self.told.is_none_or(|told| told == Some(term))
    }

    /// The standby that this primary has, where it is told to go on without it and Redis does not know that yet.
    fn lets_go(&self, hello: &ShardHello, now: Instant) -> Option<u64> {
        let stays =
            |standby: &&ReplicaProcess<C>| !standby.is_gone(now) && self.letting_go != Some(standby.term);
        let present = self.standby.as_ref().filter(stays);
        let has = present.map(|standby| standby.term).filter(|term| hello.lost != Some(*term));
        hello
            .lost
            .or(hello.follower)
            .filter(|follower| has != Some(*follower) && self.let_go < Some(*follower))
    }

    fn undecided_since(&self, hello: &ShardHello) -> Option<Instant> {
        let (_, since) = self.undecided.iter().find(|(known, _)| known.boot == hello.boot)?;
        Some(*since)
    }

    /// What is to become of a process without a role.
    fn judge(&self, hello: &ShardHello, primary_answers: Option<bool>, now: Instant) -> RoleDecision {
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
        if self.standby.as_ref().is_some_and(|standby| standby.has_what(hello)) {
            return RoleDecision::Other(Decision::PromoteStandby);
        }
        if let Some(dead) = &self.primary {
            return self.judge_after(&dead.hello, hello, now);
        }
        match &self.standby {
            Some(_) => RoleDecision::Serve,
            None if follows || hello.followed_before && hello.jobs == 0 => RoleDecision::Follow,
            None if now.duration_since(self.vacant_since) > PARTNER_SILENCE => RoleDecision::Serve,
            None => self.judge_among_undecided(hello),
        }
    }

    /// The same, where the process that served has ended, after these last words of it.
    fn judge_after(&self, dead: &ShardHello, hello: &ShardHello, now: Instant) -> RoleDecision {
        let came_back = |hello: &ShardHello| dead.identity == hello.identity || dead.address == hello.address;
        if !came_back(hello) {
            // What another one has may be older than what that one has, who may come back: with nothing, if it was killed.
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

    /// Once two are there, one that has kept jobs serves before one that has none: whoever served and was killed has none, and the one
    /// that followed it may have kept its copies. Then the one that served last; of those that never did, the one with more jobs;
    /// of equals the one that came first.
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

    fn role_of_primary(&mut self, new: bool) -> Decision {
        self.told = Some(self.standby.as_ref().map(|standby| standby.term));
        let term = self.primary.as_ref().map_or(0, |primary| primary.term);
        Decision::Role { role: ReplicaRole::Primary { term }, peer: peer(&self.standby), new }
    }

    fn role_of_standby(&self, new: bool) -> Decision {
        let term = self.standby.as_ref().map_or(0, |standby| standby.term);
        Decision::Role { role: ReplicaRole::Standby { term }, peer: peer(&self.primary), new }
    }
}

fn peer<C>(holder: &Option<ReplicaProcess<C>>) -> Option<ShardPeer> {
    holder.as_ref().map(|h| ShardPeer { address: h.hello.address.clone(), term: h.term })
}
