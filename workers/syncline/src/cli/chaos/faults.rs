//! What is done to the processes of a chaos run.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use syncline_engine::store::RedisStore;
use syncline_scheduler::samples::splitmix64;
use tokio::{task::JoinSet, time::sleep};

use super::cluster::{ChaosCluster, signal};
use crate::cli::say;

/// Pause between two accidents, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 50..2_500;
/// How long a process stands still, in milliseconds. The longest are longer than the silence after which a worker, and the
/// lease after which an engine, counts as lost.
const STANDSTILL_MS: std::ops::Range<u64> = 20..7_000;

/// One accident.
#[derive(Debug, Clone)]
enum Fault {
    /// As by a crash.
    Kill(String),
    /// Stands still for so long, and goes on.
    Stop(String, Duration),
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
            other => other.to_string(),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
    }
}

impl fmt::Display for FaultCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let each: Vec<String> = counts.iter().map(|(what, times)| format!("{what} {times}")).collect();
        f.write_str(&each.join(", "))
    }
}

/// `worker` of `worker-1`.
fn kind(name: &str) -> &str {
    name.split('-').next().unwrap_or(name)
}

fn draw_fault(names: &[String], draw: &mut impl FnMut(u64) -> u64) -> Option<Fault> {
    let name = names.get(draw(names.len().max(1) as u64) as usize)?.clone();
    Some(match draw(20) {
        0 => Fault::FlushScripts,
        1 => Fault::KillConnections,
        2..11 => Fault::Kill(name),
        // Most are short.
        _ => {
            let longest = STANDSTILL_MS.start + draw(STANDSTILL_MS.end - STANDSTILL_MS.start);
            Fault::Stop(name, Duration::from_millis(STANDSTILL_MS.start + draw(longest)))
        }
    })
}

/// Does one accident after the other until `end`, and returns when everything runs again. An error says that there is no cluster
/// any more.
pub(super) async fn cause_faults(
    cluster: &ChaosCluster,
    mut seed: u64,
    begin: Instant,
    end: Instant,
    counts: FaultCounts,
) -> Result<(), String> {
    let mut draw = |below: u64| splitmix64(&mut seed) % below;
    let mut stopped = JoinSet::new();
    while Instant::now() < end {
        sleep(Duration::from_millis(PAUSE_MS.start + draw(PAUSE_MS.end - PAUSE_MS.start))).await;
        if cluster.has_ended() {
            return Err("`syncline up` has ended, which no accident here asks for".into());
        }
        cluster.restart_workers();
        let processes = cluster.processes();
        let names: Vec<String> = processes.keys().cloned().collect();
        let Some(fault) = draw_fault(&names, &mut draw) else { continue };
        let happened = match &fault {
            Fault::Kill(name) => signal(processes[name], "KILL"),
            Fault::Stop(name, time) => {
                let (pid, time) = (processes[name], *time);
                let is_stopped = signal(pid, "STOP");
                stopped.spawn(async move {
                    sleep(time).await;
                    signal(pid, "CONT");
                });
                is_stopped
            }
            Fault::FlushScripts => ask_redis(cluster, &["SCRIPT", "FLUSH"]).await,
            Fault::KillConnections => ask_redis(cluster, &["CLIENT", "KILL", "TYPE", "normal"]).await,
        };
        if happened {
            say(&format!("{:8.1} s  {fault}", begin.elapsed().as_secs_f64()));
            counts.add(&fault);
        }
    }
    while stopped.join_next().await.is_some() {}
    cluster.restart_workers();
    Ok(())
}

/// Whether Redis has done it. It closes our own connection as well, or is away.
async fn ask_redis(cluster: &ChaosCluster, words: &[&str]) -> bool {
    let Some(url) = cluster.redis_url() else { return false };
    let Ok(store) = RedisStore::connect(&url).await else { return false };
    store.query::<String>("accident", words).await.is_ok() || words[0] == "CLIENT"
}
