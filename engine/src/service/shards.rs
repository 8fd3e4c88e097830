//! The parameter shards as the engine reaches them.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use syncline_rpc::{
    EngineFault, Reconnecting, ReplicaRole, ShardClient, ShardFault, ShardHello, ShardPeer, ShardPosition,
    StoppingShard, Token, connect_to_shard, threads::lock, within,
};
use syncline_scheduler::ids::{EngineEpoch, ShardIndex};
use tokio::{sync::watch, time::timeout};
use tracing::warn;

use super::{
    role_log::RoleLog,
    shard_slots::{Decision, ReplicaProcess, ShardSlots},
    worker_status::WorkerStatus,
};
use crate::store::{RoleNote, RoleNotes};

/// A shard that announced itself.
pub(super) type ShardEntry = ReplicaProcess<ShardConnections>;

/// Connections to one process of a shard. So many calls of each may be open.
#[derive(Clone)]
pub(super) struct ShardConnections {
    pub orders: Reconnecting<ShardClient>,
    /// Questions that stay open until there is news, one for each job: no order waits behind those of a
    /// thousand jobs.
    pub polls: Reconnecting<ShardClient>,
}

/// The outcome of an announcement.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Announcement {
    /// It has this role; `new`: from now on. `taken_over`: before that the standby began to serve, at this
    /// address.
    Accepted { role: ReplicaRole, peer: Option<ShardPeer>, new: bool, taken_over: Option<String> },
    /// Another process, at this address, serves the same index.
    Taken(String),
    /// All stays as it is: Redis has not said that this engine leads, or a process that has taken over is
    /// waited for.
    Unconfirmed,
}

/// All shards; clones share them.
#[derive(Clone)]
pub(super) struct ShardDirectory {
    count: u32,
    token: Token,
    known: Arc<Mutex<ShardSlots<ShardConnections>>>,
    /// Of each shard: one announcement at a time is decided that changes who serves it. A dead process is
    /// asked for seconds, for which the other shards do not wait.
    deciding: Arc<[tokio::sync::Mutex<()>]>,
    /// How often who serves has changed.
    pub(super) changed: watch::Sender<u64>,
    /// The highest epoch in whose name a shard has refused this engine.
    refused_by: Arc<AtomicU64>,
}

/// Epochs are counted exactly up to here in scripts of Redis. One above it is no epoch of an engine.
const MAX_EPOCH: u64 = (1 << 53) - 1;

/// How long a shard has to answer when another process announces the same index.
const PING_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a standby has to take over.
const PROMOTE_TIMEOUT: Duration = Duration::from_secs(2);

impl ShardDirectory {
    pub(super) fn new(count: u32, token: Token) -> Self {
        let slots = ShardSlots::new(EngineEpoch(0), RoleNotes::default(), count, Instant::now());
        let known = Arc::new(Mutex::new(slots));
        Self {
            count,
            token,
            known,
            deciding: (0..count).map(|_| tokio::sync::Mutex::default()).collect(),
            changed: watch::Sender::new(0),
            refused_by: Arc::default(),
        }
    }

    /// A shard that speaks another version has called.
    pub(super) fn note_foreign(&self) {
        self.lock().note_foreign(Instant::now());
    }

    /// A shard follows an engine of this epoch.
    pub(super) fn note_epoch(&self, highest: EngineEpoch) {
        if highest.0 < MAX_EPOCH {
            self.refused_by.fetch_max(highest.0, Ordering::Relaxed);
        }
    }

    /// An epoch that shards would refuse; those above it they take.
    pub(super) fn highest_epoch(&self) -> EngineEpoch {
        EngineEpoch(self.refused_by.load(Ordering::Relaxed))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ShardSlots<ShardConnections>> {
        lock(&self.known)
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn indices(&self) -> impl Iterator<Item = ShardIndex> + use<> {
        (0..self.count).map(ShardIndex)
    }

    /// Whether one of those that serve has set jobs aside that no engine knew.
    pub(super) fn keep_unknown_jobs(&self) -> bool {
        let known = self.lock();
        self.indices().filter_map(|index| known.primary(index)).any(|primary| primary.hello.set_aside > 0)
    }

    /// Records a sign of life of a process, and decides what it is to do. The process that serves an index
    /// stays as long as it answers.
    ///
    /// # Panics
    /// If there is no such shard: who announces one is refused before.
    pub(super) async fn announce(
        &self,
        hello: ShardHello,
        epoch: EngineEpoch,
        log: &impl RoleLog,
    ) -> Announcement {
        let index = hello.index;
        let decide = |answers| self.lock().announce(&hello, answers, Instant::now(), || self.reach(&hello));
        let known = { self.lock().knows(&hello) };
        let mut alone = if known { None } else { Some(self.deciding(index).lock().await) };
        let (mut primary_answers, mut taken_over) = (None, None);
        loop {
            match decide(primary_answers) {
                Decision::Role { role, peer, new } => {
                    if new && matches!(role, ReplicaRole::Primary { .. }) {
                        self.changed.send_modify(|n| *n += 1);
                    }
                    return Announcement::Accepted { role, peer, new, taken_over };
                }
                Decision::Taken(address) => return Announcement::Taken(address),
                Decision::AskPrimary => primary_answers = Some(self.primary_answers(index, epoch).await),
                // The standby may just be let serve.
                Decision::LetGo(_) | Decision::TakeBack if alone.is_none() => {
                    alone = Some(self.deciding(index).lock().await);
                }
                Decision::LetGo(term) => {
                    if !self.note(index, RoleNote::LetGo(term), log).await {
                        return Announcement::Unconfirmed;
                    }
                }
                Decision::Overtaken => return Announcement::Unconfirmed,
                Decision::TakeBack => {
                    let term = self.lock().next_term();
                    if !self.note(index, RoleNote::TakenOver(term), log).await {
                        return Announcement::Unconfirmed;
                    }
                    let address = &hello.address;
                    warn!(shard = %index, address, term, "the old primary serves again: the standby that took over did not return");
                    self.lock().taken_back(&hello, term);
                }
                Decision::PromoteStandby => {
                    match self.promote_alone(index, epoch, log).await {
                        Some(address) => taken_over = Some(address),
                        // It is asked once for each announcement: whoever announces itself waits for an
                        // answer.
                        None => {
                            let role = ReplicaRole::Undecided;
                            return Announcement::Accepted { role, peer: None, new: false, taken_over: None };
                        }
                    }
                    primary_answers = None;
                }
            }
        }
    }

    /// Takes note that a process lives, and decides nothing.
    pub(super) fn note_alive(&self, hello: &ShardHello) {
        self.lock().note_alive(hello, Instant::now());
    }

    /// A process that was told to stop has not ended yet. That is no sign of life: it serves nobody.
    pub(super) fn note_stopping(&self, shard: StoppingShard) {
        self.lock().stopping.note(shard, Instant::now());
    }

    /// What a process does that was told to stop, in words: the one at this address, or any of the shard.
    pub(super) fn describe_stopping(&self, index: ShardIndex, address: Option<&str>) -> Option<String> {
        self.lock().stopping.describe(index, address, Instant::now())
    }

    fn deciding(&self, index: ShardIndex) -> &tokio::sync::Mutex<()> {
        &self.deciding[index.0 as usize]
    }

    async fn primary_answers(&self, index: ShardIndex, epoch: EngineEpoch) -> bool {
        let Some(client) = self.lock().primary(index).map(|primary| primary.client.orders.clone()) else {
            return false;
        };
        let answers = client.call(|c| async move { c.list_jobs(within(PING_TIMEOUT), epoch).await });
        timeout(PING_TIMEOUT, answers).await.is_ok_and(|answer| answer.is_ok())
    }

    /// Lets the standby of a shard serve it, unless that is being decided just now. Its address, if it does.
    pub(super) async fn promote(
        &self,
        index: ShardIndex,
        epoch: EngineEpoch,
        log: &impl RoleLog,
    ) -> Option<String> {
        let _alone = self.deciding(index).try_lock().ok()?;
        self.promote_alone(index, epoch, log).await
    }

    /// Notes this in Redis, and then here; false: it is not known to be noted.
    async fn note(&self, index: ShardIndex, note: RoleNote, log: &impl RoleLog) -> bool {
        let done = log.note(index, note).await;
        if done {
            self.lock().noted(index, note);
        }
        done
    }

    async fn promote_alone(
        &self,
        index: ShardIndex,
        epoch: EngineEpoch,
        log: &impl RoleLog,
    ) -> Option<String> {
        let (standby, term) = self.lock().candidate(index)?;
        // First of all: an engine that leads by then may let the primary go on alone, unless it knows.
        if !self.note(index, RoleNote::TakenOver(term), log).await {
            return None;
        }
        let asked = standby
            .client
            .orders
            .call(|c| async move { c.promote(within(PROMOTE_TIMEOUT), epoch, term).await });
        let address = standby.hello.address.clone();
        match timeout(PROMOTE_TIMEOUT, asked).await {
            Ok(Ok(Ok(jobs))) => {
                warn!(shard = %index, address, jobs, "the standby of a shard serves it now");
                self.lock().promoted(standby, term);
                self.changed.send_modify(|n| *n += 1);
                Some(address)
            }
            failed => {
                warn!(shard = %index, address, ?failed, "the standby of a shard cannot serve it");
                if matches!(failed, Ok(Ok(Err(ShardFault::NotFollowing { .. })))) {
                    self.lock().follows_nobody(&standby, Instant::now());
                }
                None
            }
        }
    }

    /// The shards whose standby is to serve instead of a primary that is silent. One that has not all jobs
    /// waits until the primary has been silent for `silence`.
    pub(super) fn failovers_due(&self, silence: Duration) -> Vec<ShardIndex> {
        self.lock().failovers_due(Instant::now(), silence)
    }

    /// The shards whose standby is to serve because no worker reaches the other process, which the engine
    /// hears.
    pub(super) fn unreached_failovers_due(
        &self,
        workers: &[WorkerStatus],
        silence: Duration,
    ) -> Vec<ShardIndex> {
        self.lock().unreached_failovers_due(workers, Instant::now(), silence)
    }

    /// A worker has done something for which it needs all shards.
    pub(super) fn note_reached(&self) {
        self.lock().note_reached(Instant::now());
    }

    /// Calls the process that announced itself so. Where another shard has its address by now, calls fail.
    pub(super) fn reach(&self, hello: &ShardHello) -> ShardConnections {
        ShardConnections { orders: self.connection(hello), polls: self.connection(hello) }
    }

    fn connection(&self, hello: &ShardHello) -> Reconnecting<ShardClient> {
        let (address, token) = (hello.address.clone(), self.token.clone());
        let shard = ShardPosition { index: hello.index.0, count: hello.count };
        Reconnecting::new(move || {
            let (address, token) = (address.clone(), token.clone());
            async move {
                let transport = connect_to_shard(&address, shard, &token).await?;
                Ok(ShardClient::new(tarpc::client::Config::default(), transport).spawn())
            }
        })
    }

    /// Does not count `late` as silence: this process was not awake in that time.
    pub(super) fn extend_deadlines(&self, late: Duration) {
        self.lock().extend_deadlines(late, Instant::now());
    }

    /// The shards that nobody has served for `silence`, since the epoch began; each is named once.
    pub(super) fn take_never_served(&self, silence: Duration) -> BTreeSet<ShardIndex> {
        self.lock().take_never_served(Instant::now(), silence)
    }

    /// Forgets a shard that is silent.
    pub(super) fn forget(&self, index: ShardIndex) {
        self.lock().forget(index, Instant::now());
        self.changed.send_modify(|n| *n += 1);
    }

    /// What Redis has to know of who served.
    pub(super) fn role_notes(&self) -> RoleNotes {
        self.lock().notes()
    }

    /// Forgets all: they announced themselves in an earlier epoch, of which there are these notes.
    pub(super) fn forget_all(&self, epoch: EngineEpoch, notes: RoleNotes) {
        *self.lock() = ShardSlots::new(epoch, notes, self.count, Instant::now());
    }

    /// Those that serve.
    pub(super) fn all(&self) -> Vec<ShardEntry> {
        self.lock().primaries().cloned().collect()
    }

    /// What the process said of itself that serves a shard.
    pub(super) fn served(&self, index: ShardIndex) -> Option<ShardHello> {
        self.lock().primary(index).map(|shard| shard.hello.clone())
    }

    /// Where the other process of a shard was last, whose standby is not there.
    pub(super) fn second_was(&self, index: ShardIndex) -> Option<String> {
        self.lock().second_was(index).map(str::to_owned)
    }

    /// For how long a shard has been waited for that has not come to this engine so far.
    pub(super) fn awaited_for(&self, index: ShardIndex) -> Option<Duration> {
        self.lock().awaited_for(index, Instant::now())
    }

    /// The process that follows a shard, if one does.
    pub(super) fn standby(&self, index: ShardIndex) -> Option<ShardEntry> {
        self.lock().standby(index).cloned()
    }

    /// The fault for a call that needs all shards while some are missing.
    pub(super) fn missing_fault(&self) -> EngineFault {
        let present = u32::try_from(self.lock().primaries().count()).unwrap_or(u32::MAX);
        EngineFault::MissingShards { present, expected: self.count }
    }

    /// Addresses of all shards in order, if all are there.
    pub(super) fn addresses(&self) -> Option<Vec<String>> {
        self.addresses_in(&self.lock())
    }

    /// The same, and of which revision they are, or of a later one: calls of several revisions may overtake
    /// each other on their way.
    pub(super) fn revised_addresses(&self) -> (u64, Option<Vec<String>>) {
        // The count follows the change: whoever looks at it first knows of no less.
        let revision = *self.changed.borrow();
        (revision, self.addresses())
    }

    fn addresses_in(&self, known: &ShardSlots<ShardConnections>) -> Option<Vec<String>> {
        self.indices().map(|i| Some(known.primary(i)?.hello.address.clone())).collect()
    }

    /// Whether all are there and nobody is silent.
    pub(super) fn are_heard(&self) -> bool {
        let known = self.lock();
        self.indices().all(|i| known.primary(i).is_some_and(|shard| !shard.is_silent()))
    }

    /// The addresses of all shards, once all are there.
    pub(super) async fn all_addresses(&self) -> Vec<String> {
        self.until(|known| self.addresses_in(known)).await
    }

    /// Looks at who serves until there is what is looked for.
    pub(super) async fn until<T>(&self, look: impl Fn(&ShardSlots<ShardConnections>) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        loop {
            let found = look(&self.lock());
            if let Some(found) = found {
                return found;
            }
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::fake_shard::{EPOCH, Noted, start, token};
    use syncline_rpc::ShardResponse;

    /// Whether the process serves from now on, and did not before.
    async fn serves_anew(directory: &ShardDirectory, hello: ShardHello) -> bool {
        match directory.announce(hello, EPOCH, &Noted).await {
            Announcement::Accepted { role: ReplicaRole::Primary { .. }, peer: None, new, .. } => new,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_second_process_gets_a_place_only_once_the_first_does_not_answer() {
        let held = |_| ShardResponse::ListJobs(Ok(Vec::new()));
        let (first, second) = (start(0, held).await, start(0, held).await);
        let gone = ShardHello { address: "127.0.0.1:1".into(), ..first.clone() };
        let directory = ShardDirectory::new(1, token());
        assert!(serves_anew(&directory, gone).await);
        assert!(serves_anew(&directory, first.clone()).await, "nobody answers there");
        assert!(!serves_anew(&directory, first.clone()).await, "known");
        let taken = Announcement::Taken(first.address.clone());
        assert_eq!(directory.announce(second, EPOCH, &Noted).await, taken);
        let restarted = ShardHello { boot: 2, ..first };
        assert!(serves_anew(&directory, restarted).await, "at the same address");
    }

    #[tokio::test]
    async fn a_dead_process_of_one_shard_delays_nobody_of_another() {
        // One that takes the connection and never answers.
        let hung = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let of = |index, boot, address: String| ShardHello::alone(ShardIndex(index), 2, address, boot);
        let directory = ShardDirectory::new(2, token());
        assert!(serves_anew(&directory, of(0, 1, hung.local_addr().unwrap().to_string())).await);
        let mut asks = std::pin::pin!(serves_anew(&directory, of(0, 2, "a:2".into())));
        assert!(futures::poll!(asks.as_mut()).is_pending());
        let mut other = std::pin::pin!(serves_anew(&directory, of(1, 3, "a:3".into())));
        assert_eq!(futures::poll!(other.as_mut()), std::task::Poll::Ready(true));
    }

    #[tokio::test]
    async fn who_needs_all_shards_waits_until_the_last_one_is_there() {
        let directory = ShardDirectory::new(2, token());
        let hello = |index| ShardHello::alone(ShardIndex(index), 2, format!("a:{index}"), 1);
        assert!(serves_anew(&directory, hello(1)).await);
        assert_eq!(directory.addresses(), None);
        assert_eq!(directory.missing_fault(), EngineFault::MissingShards { present: 1, expected: 2 });
        let mut all = std::pin::pin!(directory.all_addresses());
        assert!(futures::poll!(all.as_mut()).is_pending());
        assert!(serves_anew(&directory, hello(0)).await);
        assert_eq!(all.await, ["a:0", "a:1"]);
        directory.forget(ShardIndex(0));
        assert_eq!(directory.addresses(), None);
        let absent = directory.call_if_present(ShardIndex(0), |c| async move {
            c.has_blobs(within(PING_TIMEOUT), vec![]).await
        });
        assert!(absent.await.is_none());
    }
}
