//! What is done to the processes of a chaos run, and to the network between them.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use syncline_engine::store::RedisStore;
use syncline_rpc::threads::lock;
use syncline_scheduler::samples::splitmix64;
use tokio::{task::JoinSet, time::sleep};

use clap::ValueEnum;

use super::{cluster::ChaosCluster, resume::ResumeTimes};
use crate::cli::{say, support::processes::send_signal};

/// How long a process stands still, in milliseconds. The longest are longer than the silence after which a
/// worker, and the lease after which an engine, counts as lost.
const STANDSTILL_MS: std::ops::Range<u64> = 20..7_000;

/// One accident.
#[derive(Debug, Clone)]
enum Fault {
    /// As by a crash.
    Kill(String),
    /// Stands still for so long, and goes on.
    Stop(String, Duration),
    /// Hears nothing of the engines for so long, nor they of it; what was sent arrives then.
    Cut(String, Duration),
    /// Redis forgets the scripts of the engine.
    FlushScripts,
    /// Redis closes all connections.
    KillConnections,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(name) => write!(f, "kill {name}"),
            Self::Stop(name, time) => write!(f, "stop {name} for {} ms", time.as_millis()),
            Self::Cut(name, time) => write!(f, "cut {name} off for {} ms", time.as_millis()),
            Self::FlushScripts => write!(f, "flush the scripts of redis"),
            Self::KillConnections => write!(f, "kill the connections of redis"),
        }
    }
}

/// How often what has happened.
#[derive(Clone, Default)]
pub(super) struct FaultCounts(Arc<Mutex<BTreeMap<String, u32>>>);

impl FaultCounts {
    fn add(&self, fault: &Fault) {
        let what = match fault {
            Fault::Kill(name) => format!("kill {}", kind(name)),
            Fault::Stop(name, _) => format!("stop {}", kind(name)),
            Fault::Cut(name, _) => format!("cut {} off", kind(name)),
            other => other.to_string(),
        };
        *lock(&self.0).entry(what).or_default() += 1;
    }
}

impl fmt::Display for FaultCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = lock(&self.0);
        let each: Vec<String> = counts.iter().map(|(what, times)| format!("{what} {times}")).collect();
        f.write_str(&each.join(", "))
    }
}

/// `worker` of `worker-1`.
fn kind(name: &str) -> &str {
    name.split('-').next().unwrap_or(name)
}

/// Kinds of processes, by which they are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ProcessKind {
    Engine,
    /// A process of a shard.
    Ps,
    /// A worker that trains.
    Worker,
    /// A worker with functions.
    Functions,
    Redis,
}

impl ProcessKind {
    fn has(self, name: &str) -> bool {
        self.to_possible_value().is_some_and(|value| value.get_name() == kind(name))
    }
}

/// Which accidents happen, and how often.
#[derive(Debug, Clone)]
pub(super) struct FaultPlan {
    /// Nothing but kills of these; all accidents if empty.
    pub kill: Vec<ProcessKind>,
    /// Between two accidents on average; each pause is drawn between nothing and twice as much.
    pub every: Duration,
    pub time: Duration,
}

impl FaultPlan {
    /// Whether Redis has all that it has acknowledged: one that is killed may lose what it wrote last, as its
    /// `appendfsync everysec` says, and the engine writes it again.
    pub(super) fn spares_redis(&self) -> bool {
        !self.kill.is_empty() && !self.kill.contains(&ProcessKind::Redis)
    }

    fn draw_pause(&self, draw: &mut impl FnMut(u64) -> u64) -> Duration {
        let twice_us = u64::try_from(2 * self.every.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(draw(twice_us.max(1)))
    }

    fn draw_fault(&self, names: &[String], draw: &mut impl FnMut(u64) -> u64) -> Option<Fault> {
        let is_meant = |name: &&String| self.kill.is_empty() || self.kill.iter().any(|kind| kind.has(name));
        let names: Vec<&String> = names.iter().filter(is_meant).collect();
        let name = (*names.get(draw(names.len().max(1) as u64) as usize)?).clone();
        Some(if self.kill.is_empty() { any_fault(name, draw) } else { Fault::Kill(name) })
    }
}

/// One of all accidents; if it meets a process, then the one of this name.
fn any_fault(name: String, draw: &mut impl FnMut(u64) -> u64) -> Fault {
    match draw(20) {
        0 => Fault::FlushScripts,
        1 => Fault::KillConnections,
        2..11 => Fault::Kill(name),
        // Most are short.
        which => {
            let longest = STANDSTILL_MS.start + draw(STANDSTILL_MS.end - STANDSTILL_MS.start);
            let time = Duration::from_millis(STANDSTILL_MS.start + draw(longest));
            match which {
                11..16 if ProcessKind::Functions.has(&name) => Fault::Cut(name, time),
                _ => Fault::Stop(name, time),
            }
        }
    }
}

/// Does one accident after the other for as long as is planned, and returns when everything runs again. An
/// error says that there is no cluster any more.
pub(super) async fn cause_faults(
    cluster: &ChaosCluster,
    plan: &FaultPlan,
    mut seed: u64,
    counts: &FaultCounts,
    resume_times: &ResumeTimes,
) -> Result<(), String> {
    let begin = Instant::now();
    let mut draw = |below: u64| splitmix64(&mut seed) % below;
    let mut lasting = JoinSet::new();
    while begin.elapsed() < plan.time {
        sleep(plan.draw_pause(&mut draw)).await;
        if cluster.has_ended() {
            return Err("`syncline up` has ended, which no accident here asks for".into());
        }
        cluster.restart_workers();
        let processes = cluster.processes();
        let names: Vec<String> = processes.keys().cloned().collect();
        let Some(fault) = plan.draw_fault(&names, &mut draw) else { continue };
        let happened = match &fault {
            Fault::Kill(name) => send_signal(processes[name], Signal::KILL),
            Fault::Stop(name, time) => {
                let (pid, time) = (processes[name], *time);
                let is_stopped = send_signal(pid, Signal::STOP);
                lasting.spawn(async move {
                    sleep(time).await;
                    send_signal(pid, Signal::CONT);
                });
                is_stopped
            }
            Fault::Cut(name, time) => cluster.network_of(name).is_some_and(|network| {
                let (cut, time) = (network.cut(), *time);
                lasting.spawn(async move {
                    sleep(time).await;
                    drop(cut);
                });
                true
            }),
            Fault::FlushScripts => ask_redis(cluster, &["SCRIPT", "FLUSH"]).await,
            Fault::KillConnections => ask_redis(cluster, &["CLIENT", "KILL", "TYPE", "normal"]).await,
        };
        if happened {
            if matches!(&fault, Fault::Kill(name) if ProcessKind::Engine.has(name)) {
                resume_times.engine_killed();
            }
            say(&format!("{:8.1} s  {fault}", begin.elapsed().as_secs_f64()));
            counts.add(&fault);
        }
    }
    while lasting.join_next().await.is_some() {}
    cluster.restart_workers();
    Ok(())
}

/// Whether Redis has done it. It closes our own connection as well, or is away.
async fn ask_redis(cluster: &ChaosCluster, words: &[&str]) -> bool {
    let Some(url) = cluster.redis_url() else { return false };
    let Ok(store) = RedisStore::connect(&url).await else { return false };
    store.query::<String>("accident", words).await.is_ok() || words[0] == "CLIENT"
}
