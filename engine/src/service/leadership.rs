//! Takes the leadership lease whenever it is free, renews it, and runs the decision loop while this engine
//! holds it.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use syncline_rpc::{InactiveReason, OutageLogger, is_of_every_machine};
use syncline_scheduler::ids::EngineEpoch;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};
use tracing::{error, info, warn};

use super::{
    blob_gc::collect_periodically,
    clock::Clock,
    decision_loop::{DecisionLoop, LoopEnd},
    lead::Lead,
    lease_renewal::{Lease, LeaseRenewal},
    load_progress::LoadProgress,
    name_watch::NameWatch,
    options::EngineOptions,
    queue::decision_queue,
    sessions::Sessions,
    shards::ShardDirectory,
    watched_lease::WatchedLease,
};
use crate::store::{AofRewrites, Beyond, RedisLoad, RedisStore, SeenLease, StoreError, keys};

/// Length of the leadership lease.
pub(super) const LEASE_DURATION: Duration = Duration::from_secs(3);
/// How long the loop that decides may be busy without a sign of life: each try of a commit is one, and the
/// largest takes less.
const STALL_LIMIT: Duration = Duration::from_secs(300);
/// Pause between two tries to take the lease.
const RETRY_PAUSE: Duration = Duration::from_millis(300);
const REDIS_HINT: &str = "this engine cannot lead until Redis lets it: `syncline doctor` checks it";
/// An engine that takes the lease and cannot load the jobs for so long gives the lease up for a while.
const LOADING_PATIENCE: Duration = Duration::from_secs(30);
/// Pause after this engine has given up its lease for another one that may do better, as where jobs of a
/// later release were found: longer than a lease, so that such an engine gets it.
const LEFT_TO_OTHERS: Duration = Duration::from_secs(5);

/// What one engine needs to lead.
pub(super) struct Leadership {
    lease: Lease,
    store: RedisStore,
    shards: ShardDirectory,
    activate: watch::Sender<Result<Lead, InactiveReason>>,
    /// Says that this engine has a bug, and which.
    bug: watch::Sender<Option<String>>,
    clock: Clock,
}

impl Leadership {
    pub(super) fn new(
        options: EngineOptions,
        store: RedisStore,
        shards: ShardDirectory,
        activate: watch::Sender<Result<Lead, InactiveReason>>,
        bug: watch::Sender<Option<String>>,
        address: SocketAddr,
    ) -> Self {
        let EngineOptions { redis, instance, token, shards: count, .. } = options;
        let (address, duration, stall) = (address.to_string(), LEASE_DURATION, STALL_LIMIT);
        let cluster = format!("{}/{count}", token.fingerprint());
        let aof_rewrites = AofRewrites::default();
        let lease = Lease { redis, instance, address, cluster, duration, stall, aof_rewrites };
        Self { lease, store, shards, activate, bug, clock: Clock::start() }
    }

    /// Waits for the lease and leads until deposed, again and again; returns when the process stops.
    pub(super) async fn run(self) {
        let (mut outage, mut loading) = (OutageLogger::default(), OutageLogger::default());
        let (mut watched, mut unloaded) = (WatchedLease::default(), FailedLoads::default());
        let mut progress = LoadProgress::new(self.activate.clone());
        loop {
            let tried_at = Instant::now();
            let Some((epoch, until)) = self.acquire(&mut outage, &mut watched).await else {
                // Another one leads, or Redis is away as a whole.
                unloaded = FailedLoads::default();
                sleep(RETRY_PAUSE).await;
                continue;
            };
            watched.name = NameWatch::default();
            // Until the jobs are loaded nobody is sent back to who led before. What stands in the way of
            // loading stays said.
            self.activate.send_if_modified(|active| {
                let names_another = matches!(active, Err(InactiveReason::Standby { .. }));
                if names_another {
                    *active = Err(InactiveReason::Changing);
                }
                names_another
            });
            match self.lead(epoch, until, &mut progress).await {
                Ok(LoopEnd::Stopped) => return,
                Ok(LoopEnd::Deposed) => {
                    unloaded = FailedLoads::default();
                    loading.resolve("jobs were loaded");
                    watched.name.was_deposed(epoch);
                }
                Ok(LoopEnd::Unwritten) => self.leave_to_others(epoch).await,
                Err(error) => {
                    progress.failed();
                    // It is tried again several times a second.
                    loading.report(&format!("cannot load the jobs: {error}"), REDIS_HINT);
                    if matches!(error, StoreError::Fenced { .. }) {
                        watched.name.was_deposed(epoch);
                    }
                    let is_newer = matches!(error, StoreError::Newer { .. });
                    self.set_inactive(self.why_not(error).await);
                    match is_newer || unloaded.failed(tried_at, Instant::now()) {
                        true => self.leave_to_others(epoch).await,
                        false => sleep(RETRY_PAUSE).await,
                    }
                }
            }
        }
    }

    /// Ends the lease of this engine before its time, for one that may do better, and waits until that can have
    /// it.
    async fn leave_to_others(&self, epoch: EngineEpoch) {
        // Where that fails, it expires.
        let _ =
            self.store.renew_lead(&self.lease.instance, Duration::ZERO, self.lease.at(), epoch, None).await;
        sleep(LEFT_TO_OTHERS).await;
    }

    /// Tries to take the lease; until when this engine has it at least. `None` if another engine holds it or
    /// Redis fails; the reason is published.
    async fn acquire(
        &self,
        outage: &mut OutageLogger,
        watched: &mut WatchedLease,
    ) -> Option<(EngineEpoch, Instant)> {
        let Lease { instance, duration, .. } = &self.lease;
        let at = self.lease.at();
        if watched.is_left_to_another() || watched.cluster.is_of_others() {
            match self.store.hash("read the lead", keys::ENGINE).await {
                Ok(leader) => {
                    self.set_inactive(leader_of(leader, &self.lease, watched));
                    return None;
                }
                Err(error) if error.is_passing() => {
                    outage.report(&error, REDIS_HINT);
                    self.set_inactive(self.why_not(error).await);
                    return None;
                }
                // Whoever takes the lead mends what is no record of one.
                Err(_) => {}
            }
        }
        let beyond = Beyond {
            // An epoch that shards would refuse would be over before it has begun.
            epoch: self.shards.highest_epoch(),
            seen: watched.that_counts(),
            own: watched.name.takes(*duration, Instant::now()),
        };
        let until = Instant::now() + *duration;
        let taken = self.store.take_lead(instance, *duration, at, beyond).await;
        self.lease.aof_rewrites.note_write(&self.store, &taken).await;
        match taken {
            Ok(Some(epoch)) => {
                outage.resolve("Redis answers");
                Some((epoch, until))
            }
            Ok(None) => {
                outage.resolve("Redis answers");
                self.set_inactive(current_leader(&self.store, &self.lease, watched).await);
                None
            }
            Err(error) => {
                watched.cannot_look();
                outage.report(&error, REDIS_HINT);
                self.set_inactive(self.why_not(error).await);
                None
            }
        }
    }

    /// Loads the jobs and runs the decision loop to its end.
    async fn lead(
        &self,
        epoch: EngineEpoch,
        until: Instant,
        progress: &mut LoadProgress,
    ) -> Result<LoopEnd, StoreError> {
        // The shards talk to the engine that led before, and announce themselves again once they find this
        // one.
        let notes = self.store.role_notes(self.shards.indices()).await?;
        self.shards.forget_all(epoch, notes);
        let (queue, inbox) = decision_queue();
        let (store, shards) = (self.store.clone(), self.shards.clone());
        let last_ms = store.last_clock_ms().await?;
        let clock = self.clock.going_on_from(last_ms);
        let lead = Lead::new(epoch, Sessions::default(), shards, queue, clock);
        lead.store_outage.set_lead_until(until.into_std());
        // Dropped with this scope, in whatever way it ends. Loading may take longer than a lease.
        let _renewal = LeaseRenewal::start(self.lease.clone(), epoch, lead.clone(), self.bug.clone())
            .map_err(|e| StoreError::Unavailable { op: "renew the lease", cause: e.to_string() })?;
        let mut background = JoinSet::new();
        let (Lease { instance, duration, .. }, at) = (&self.lease, self.lease.at());
        let leads =
            || async { matches!(store.renew_lead(instance, *duration, at, epoch, None).await, Ok(Some(_))) };
        let loading = DecisionLoop::load(store.clone(), epoch, lead.clone(), clock, leads, progress).await;
        let mut decision_loop = loading.inspect_err(|_| lead.stop())?;
        progress.succeeded();
        decision_loop.discount_downtime(last_ms);
        info!(%epoch, "this engine is active");
        drop(self.activate.send_replace(Ok(lead.clone())));
        for shard in self.shards.all() {
            lead.control.query_held_jobs(shard.hello.index);
        }
        lead.control.broadcast_addresses();
        background.spawn(collect_periodically(store, lead));
        let ended = decision_loop.run(inbox).await;
        drop(background);
        self.set_inactive(InactiveReason::Changing);
        warn!(instance = self.lease.instance, %epoch, ?ended, "this engine is no longer active");
        Ok(ended)
    }

    /// What keeps this engine from the lead, where Redis failed like this.
    async fn why_not(&self, error: StoreError) -> InactiveReason {
        let loads = match error {
            StoreError::Loading { .. } => self.store.own_load().await.unwrap_or_default(),
            _ => None,
        };
        match loads {
            Some(RedisLoad { loaded_bytes, total_bytes }) => {
                InactiveReason::StoreLoading { loaded_bytes, total_bytes }
            }
            None => InactiveReason::Store { cause: error.to_string() },
        }
    }

    fn set_inactive(&self, why: InactiveReason) {
        drop(self.activate.send_replace(Err(why)));
    }
}

/// Loads that failed one after the other although the lease was taken before each: large answers may be lost
/// on the way, or this machine has no thread left.
#[derive(Default)]
struct FailedLoads {
    since: Option<Instant>,
}

impl FailedLoads {
    /// One that was begun then has failed now. Whether another engine may do better; counted anew after that.
    fn failed(&mut self, begun: Instant, now: Instant) -> bool {
        let since = *self.since.get_or_insert(begun);
        let is_long = now.duration_since(since) > LOADING_PATIENCE;
        if is_long {
            self.since = None;
        }
        is_long
    }
}

/// Who leads instead of this engine.
async fn current_leader(store: &RedisStore, own: &Lease, watched: &mut WatchedLease) -> InactiveReason {
    match store.hash("read the lead", keys::ENGINE).await {
        Ok(leader) => leader_of(leader, own, watched),
        Err(error) => InactiveReason::Store { cause: error.to_string() },
    }
}

/// Who leads by this record of the lead.
fn leader_of(
    mut leader: BTreeMap<String, String>,
    own: &Lease,
    watched: &mut WatchedLease,
) -> InactiveReason {
    let lease = SeenLease::of(&leader);
    watched.look(lease);
    let mut field = |name| leader.remove(name).unwrap_or_default();
    let (instance, address, cluster) = (field("instance"), field("address"), field("cluster"));
    let was_known = watched.cluster.is_of_others();
    watched.cluster.look(lease, &cluster, &own.cluster);
    if watched.cluster.is_of_others() {
        let cause = format!(
            "[E587] this Redis database belongs to another cluster, whose engine {instance} at {address} has another token or another number \
             of shards: give this one a database of its own, as in redis://HOST:6379/1, or the same token and number"
        );
        if !was_known {
            error!("{cause}");
        }
        return InactiveReason::Store { cause };
    }
    let own_name_at = (instance == own.instance).then_some(address.as_str());
    watched.name.look(lease, own_name_at, &own.address, Instant::now());
    // Two that listen everywhere have one address; otherwise it was this one before it was started again.
    match address == own.address && !is_of_every_machine(&address) {
        true => InactiveReason::Changing,
        false => InactiveReason::Standby { instance, address },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_cannot_load_for_half_a_minute_gives_the_lease_up_and_then_tries_as_long_again() {
        let (begun, mut loads) = (Instant::now(), FailedLoads::default());
        let at = |seconds| begun + Duration::from_secs(seconds);
        #[rustfmt::skip]
        let cases = [
            // begun s, failed s, given up
            (0,   1, false),
            (2,  30, false),
            (31, 31, true),
            (36, 37, false),
            (38, 66, false),
            // One load alone that takes so long.
            (67, 90, true),
            (95, 126, true),
        ];
        for (tried_s, failed_s, given_up) in cases {
            assert_eq!(loads.failed(at(tried_s), at(failed_s)), given_up, "{tried_s} to {failed_s} s");
        }
    }
}
