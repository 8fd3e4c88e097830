//! Renews the lease of the engine that leads, on a thread of its own, and looks between two renewals how full
//! Redis is.
//!
//! The thread that decides also talks to Redis and to workers, so that a step of a task needs no change of
//! threads. It may decide about millions of tasks for longer than a lease lasts. One that hangs for minutes
//! loses the lease.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use syncline_rpc::{describe, threads};
use syncline_scheduler::ids::EngineEpoch;
use tokio::{
    runtime,
    sync::{oneshot, watch},
    time::{sleep, timeout},
};
use tracing::error;

use super::{clock::Clock, lead::Lead, loop_pulse::StallCounter, message::Message};
use crate::store::{AofRewrites, LeaderAt, RedisAddress, RedisMemory, RedisStore, StoreError};

/// Before a renewal that failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Whose lease is renewed, and where.
#[derive(Clone)]
pub(super) struct Lease {
    /// Address of the Redis server.
    pub redis: RedisAddress,
    /// Stable name of the engine.
    pub instance: String,
    /// Where it listens.
    pub address: String,
    /// Text that all engines of its cluster have in common.
    pub cluster: String,
    /// Length; renewed three times in it.
    pub duration: Duration,
    /// Not renewed any more once the loop that decides has hung for so long.
    pub stall: Duration,
    /// What is known of a server that refuses to renew it, as its append-only file failed.
    pub aof_rewrites: AofRewrites,
}

impl Lease {
    /// Where and what this engine is.
    pub(super) fn at(&self) -> LeaderAt<'_> {
        LeaderAt { address: &self.address, cluster: &self.cluster }
    }
}

/// Ends the renewal when it is dropped: the lease of an engine that decides nothing must expire.
pub(super) struct LeaseRenewal {
    _end: oneshot::Sender<()>,
}

impl LeaseRenewal {
    /// Renews from now on, and tells the loop when another engine has the lease. Says in `bug` that the loop
    /// hangs.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(super) fn start(
        lease: Lease,
        epoch: EngineEpoch,
        lead: Lead,
        bug: watch::Sender<Option<String>>,
    ) -> io::Result<Self> {
        let (end, ended) = oneshot::channel();
        let mut runtime = runtime::Builder::new_current_thread();
        let runtime = threads::runtime_with_blocking_thread(&mut runtime, 0)?;
        let tell = bug.clone();
        let renew = async move {
            tokio::select! {
                () = keep_renewing(&lease, epoch, &lead, &bug) => {}
                _ = ended => {}
            }
        };
        threads::spawn("lease", move || report_panic(&tell, || runtime.block_on(renew)))?;
        Ok(Self { _end: end })
    }
}

/// Says in `bug` that the renewal panicked: an engine without a lease that never knows of it would refuse
/// everything for good.
fn report_panic(bug: &watch::Sender<Option<String>>, renewal: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(renewal)) {
        let reason = format!("the lease is not renewed any more: {}", describe(panic.as_ref()));
        error!(reason, "the engine has a bug");
        bug.send_replace(Some(reason));
    }
}

async fn keep_renewing(lease: &Lease, epoch: EngineEpoch, lead: &Lead, bug: &watch::Sender<Option<String>>) {
    // A connection of its own: one belongs to the thread that made it.
    let mut connected = None;
    let third = lease.duration / 3;
    let mut pause = third;
    let (mut stall, mut looked) = (StallCounter::default(), Instant::now());
    loop {
        // Bounded by the pause: a look takes nothing from the time of a renewal.
        let rests_since = tokio::time::Instant::now();
        let ((), seen) = tokio::join!(sleep(pause), timeout(pause, look(connected.as_ref())));
        lead.standstill.note_rest(rests_since, pause);
        lead.store_outage.set_memory(seen.ok().flatten());
        // What takes longer is a time in which this process was not awake.
        let awake = looked.elapsed().min(3 * lease.duration);
        looked = Instant::now();
        let still = stall.look(&lead.pulse, awake);
        if still > lease.stall {
            let reason = format!("the loop that decides has hung for {} s", still.as_secs());
            error!(%epoch, reason, "the engine has a bug and gives up its lease");
            bug.send_replace(Some(reason));
            return;
        }
        let asked = Instant::now();
        // An engine that ends before it has written what the time without one means leaves that time to the
        // next.
        let clock = lead.pulse.has_turned().then_some(lead.clock);
        let renewed = renew(lease, epoch, clock, &mut connected).await;
        pause = if renewed.is_ok() { third } else { RETRY_PAUSE };
        if let Some(store) = &connected {
            lease.aof_rewrites.note_write(store, &renewed).await;
        }
        match renewed {
            Ok(Some(_)) => {
                lead.store_outage.set_lead_until(asked + lease.duration);
                lead.store_outage.set_lease_failure(None);
            }
            Ok(None) => {
                lead.queue.send(Message::Deposed);
                return;
            }
            // While Redis is away nobody can commit, and the loop waits. It may be away from here alone: then
            // another takes the lease, and whoever asks here is told that this may be so.
            Err(error) => lead.store_outage.set_lease_failure(Some(error.to_string())),
        }
    }
}

/// How full Redis is; `None` where that cannot be known.
async fn look(store: Option<&RedisStore>) -> Option<RedisMemory> {
    store?.memory().await.ok()?
}

async fn renew(
    lease: &Lease,
    epoch: EngineEpoch,
    clock: Option<Clock>,
    connected: &mut Option<RedisStore>,
) -> Result<Option<EngineEpoch>, StoreError> {
    let store = match connected {
        Some(store) => store,
        None => connected.insert(RedisStore::connect(lease.redis.clone()).await?),
    };
    let clock_ms = clock.map(|clock| clock.now_us() / 1000);
    let limit = lease.duration / 3;
    let call = store.renew_lead(&lease.instance, lease.duration, lease.at(), epoch, clock_ms);
    match timeout(limit, call).await {
        Ok(renewed) => renewed,
        Err(_) => {
            // One that hangs for longer would cost the lease: another connection may be better.
            *connected = None;
            let cause = format!("{}: no answer within {} ms", lease.redis, limit.as_millis());
            Err(StoreError::Unavailable { op: "renew the lease", cause })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use syncline_kit::{RedisOptions, RedisServer};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };

    use super::*;
    use crate::{
        service::{fake_shard::take_lead, queue::decision_queue, sessions::Sessions, shards::ShardDirectory},
        store::{Beyond, keys},
    };

    /// What Redis answers to a write then.
    const AOF_FAILED: &[u8] = b"-MISCONF Errors writing to the AOF file: Input/output error\r\n";

    /// Waits until the lease has been renewed so often, and blocks the thread.
    fn wait_for_renewals(url: String, renewals: usize) {
        let look = async move {
            let store = RedisStore::connect(&url).await.unwrap();
            let (mut until_ms, mut seen) = (String::new(), 0);
            while seen <= renewals {
                let now = store.hash("look", keys::ENGINE).await.unwrap().remove("until_ms").unwrap();
                seen += usize::from(now != until_ms);
                until_ms = now;
                sleep(Duration::from_millis(5)).await;
            }
        };
        let look = async { timeout(Duration::from_secs(60), look).await.unwrap() };
        let runtime = || runtime::Builder::new_current_thread().enable_all().build().unwrap();
        std::thread::spawn(move || runtime().block_on(look)).join().unwrap();
    }

    /// An engine that leads on a Redis server of its own.
    struct Led {
        server: RedisServer,
        store: RedisStore,
        lead: Lead,
        bug: watch::Receiver<Option<String>>,
        _renewal: LeaseRenewal,
    }

    async fn lead(dir: &tempfile::TempDir, stall: Duration) -> Led {
        let server = start_server(dir);
        let url = server.url();
        lead_by(server, &url, stall).await
    }

    fn start_server(dir: &tempfile::TempDir) -> RedisServer {
        let program = syncline_kit::redis_server(&|_| {}).unwrap().path;
        RedisServer::start(&program, RedisOptions::new(dir.path().join("redis"))).unwrap()
    }

    /// The same, whose lease is renewed at another address.
    async fn lead_by(server: RedisServer, url: &str, stall: Duration) -> Led {
        let store = RedisStore::connect(&server.url()).await.unwrap();
        let (redis, instance, address) = (url.into(), "a".to_owned(), "127.0.0.1:1".to_owned());
        let cluster = "ours".to_owned();
        let duration = Duration::from_millis(300);
        let lease = Lease {
            redis,
            instance,
            address,
            cluster,
            duration,
            stall,
            aof_rewrites: AofRewrites::after(Duration::ZERO),
        };
        let taken = store.take_lead(&lease.instance, lease.duration, lease.at(), Beyond::default()).await;
        let epoch = taken.unwrap().unwrap();
        let (queue, _inbox) = decision_queue();
        let shards = ShardDirectory::new(1, "0123456789abcdef".repeat(4).parse().unwrap());
        let lead = Lead::new(epoch, Sessions::default(), shards, queue, Clock::start());
        let (tell, bug) = watch::channel(None);
        let _renewal = LeaseRenewal::start(lease, epoch, lead.clone(), tell).unwrap();
        Led { server, store, lead, bug, _renewal }
    }

    #[tokio::test]
    async fn the_lease_is_renewed_while_the_thread_that_decides_is_busy() {
        let dir = tempfile::tempdir().unwrap();
        let led = lead(&dir, Duration::from_secs(300)).await;
        led.lead.pulse.beat();
        wait_for_renewals(led.server.url(), 3);
        let clock_ms = async || led.store.last_clock_ms().await.unwrap();
        assert_eq!(clock_ms().await, None, "what the time without an engine means is not written yet");
        led.lead.pulse.turned();
        wait_for_renewals(led.server.url(), 3);
        assert!(clock_ms().await.is_some(), "the next engine learns what this one's clock says");
    }

    /// The way to a server that does no script, as one whose append-only file failed, until the file is
    /// written anew. Gives its address.
    async fn failing(server: &RedisServer) -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (port, behind) = (listener.local_addr().unwrap().port(), server.port());
        let failed = Arc::new(AtomicBool::new(true));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let there = TcpStream::connect(("127.0.0.1", behind)).await.unwrap();
                tokio::spawn(forward(stream, there, Arc::clone(&failed)));
            }
        });
        server.url().replace(&format!("127.0.0.1:{behind}"), &format!("127.0.0.1:{port}"))
    }

    async fn forward(from: TcpStream, to: TcpStream, failed: Arc<AtomicBool>) -> io::Result<()> {
        let ((mut from, mut answers), (mut back, mut to)) = (from.into_split(), to.into_split());
        let (mut asked, mut answered) = ([0; 4096], [0; 4096]);
        loop {
            tokio::select! {
                bytes = from.read(&mut asked) => {
                    let call = &asked[..bytes?];
                    let calls = |name: &str| call.windows(name.len()).any(|part| part == name.as_bytes());
                    if calls("BGREWRITEAOF") {
                        failed.store(false, Ordering::SeqCst);
                    }
                    match calls("EVALSHA") && failed.load(Ordering::SeqCst) {
                        true => answers.write_all(AOF_FAILED).await?,
                        false => to.write_all(call).await?,
                    }
                    if call.is_empty() {
                        return Ok(());
                    }
                }
                bytes = back.read(&mut answered) => match bytes? {
                    0 => return Ok(()),
                    bytes => answers.write_all(&answered[..bytes]).await?,
                },
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_whose_append_only_file_failed_writes_it_anew_and_the_lease_is_renewed_again() {
        let dir = tempfile::tempdir().unwrap();
        let server = start_server(&dir);
        let url = failing(&server).await;
        let led = lead_by(server, &url, Duration::from_secs(300)).await;
        led.lead.pulse.beat();
        wait_for_renewals(led.server.url(), 3);
    }

    #[test]
    fn a_renewal_that_panics_is_told_of_as_a_bug() {
        let (tell, bug) = watch::channel(None);
        report_panic(&tell, || ());
        assert_eq!(*bug.borrow(), None);
        report_panic(&tell, || panic!("no thread"));
        assert_eq!(bug.borrow().as_deref(), Some("the lease is not renewed any more: no thread"));
    }

    #[tokio::test]
    async fn a_loop_that_hangs_loses_the_lease_and_is_told_of_as_a_bug() {
        let dir = tempfile::tempdir().unwrap();
        let mut led = lead(&dir, Duration::from_millis(200)).await;
        led.lead.pulse.beat();
        let told = led.bug.wait_for(Option::is_some);
        let told = timeout(Duration::from_secs(60), told).await.unwrap().unwrap().clone().unwrap();
        assert!(told.contains("hung for "), "{told}");
        let taken = async {
            while take_lead(&led.store).await.is_none() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(60), taken).await.unwrap();
    }
}
