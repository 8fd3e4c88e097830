//! What is there while a cluster starts, what is still missing, and how long it is waited for.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::{Duration, Instant, SystemTime},
};

use tokio::{sync::mpsc, time::sleep};

use syncline_rpc::status::EngineStatus;
use syncline_workers::client::Cluster;

use super::{
    args::Plan,
    child::{Event, HowEnded},
    child_log::last_line,
    process::{FIRST_ENGINE, Process},
    programs::SAVE_TIMEOUT,
    state_dir::StateDir,
};
use crate::cli::{CliError, ask_each, say};

pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Everything must be there within this time, beside what [`SAVE_TIMEOUT`] is for.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Whoever waits longer is told for what.
const SILENCE: Duration = Duration::from_secs(10);
/// A child that ends so often before everything is ready will not come up.
const MAX_ENDS_BEFORE_READY: u32 = 3;
/// In the log of a shard whose folder another process still has. The text of its log is all that a process
/// which has ended leaves of its error.
const STATE_DIR_IN_USE: &str = "[E421]";

type Events = mpsc::UnboundedReceiver<Event>;

/// What the children have reported so far.
pub(super) struct Progress {
    pub pids: BTreeMap<Process, u32>,
    pub addresses: BTreeMap<Process, SocketAddr>,
    ends: BTreeMap<Process, u32>,
    pub patience: Patience,
}

/// How long the start may take.
pub(super) struct Patience {
    began: Instant,
    deadline: Instant,
    /// Shard processes that read saved jobs before they listen, or whose predecessor still saves them.
    busy: BTreeSet<Process>,
    /// How far engines and Redis have come at most that read what there is.
    loaded: Loaded,
}

/// How far the engines of a cluster and its Redis are that read what there is, each in its own unit: at most,
/// of all that were asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Loaded {
    /// Of an engine, as [`EngineStatus::load_steps`].
    steps: u64,
    redis_bytes: u64,
}

impl Loaded {
    fn max(self, other: Self) -> Self {
        Self { steps: self.steps.max(other.steps), redis_bytes: self.redis_bytes.max(other.redis_bytes) }
    }
}

impl Patience {
    fn new(now: Instant) -> Self {
        Self { began: now, deadline: now + READY_TIMEOUT, busy: BTreeSet::new(), loaded: Loaded::default() }
    }

    /// This process reads or waits for saved jobs.
    pub(super) fn note_busy(&mut self, process: Process) {
        self.busy.insert(process);
        self.deadline = self.began + SAVE_TIMEOUT;
    }

    /// This process listens. When all do that had jobs to read, the others have the usual time from now on.
    fn listens(&mut self, process: Process, now: Instant) {
        if self.busy.remove(&process) && self.busy.is_empty() {
            self.deadline = now + READY_TIMEOUT;
        }
    }

    /// Who reads jobs has the usual time from each moment at which it has come further than ever. One that
    /// stands still is given up, and so is one that begins over and over.
    fn note_loaded(&mut self, loaded: Loaded, now: Instant) {
        let furthest = self.loaded.max(loaded);
        if furthest != self.loaded {
            self.loaded = furthest;
            self.deadline = self.deadline.max(now + READY_TIMEOUT);
        }
    }

    /// What else there is to say of what is missing.
    fn note(&self) -> String {
        let busy: Vec<String> = self.busy.iter().map(ToString::to_string).collect();
        match busy.is_empty() {
            true => String::new(),
            false => format!(" (jobs of the last stop are not read yet: {})", busy.join(", ")),
        }
    }
}

/// What is not there yet.
#[derive(Debug, PartialEq, Eq)]
struct Missing {
    what: String,
    /// The process whose log says why.
    process: Process,
    /// Where what is missing is an engine that leads.
    loaded: Loaded,
}

impl Missing {
    fn new(process: Process, what: impl Into<String>) -> Self {
        Self { what: what.into(), process, loaded: Loaded::default() }
    }

    /// In words, with the last that its process has logged since then.
    fn describe(&self, state_dir: &StateDir, since: SystemTime) -> String {
        let Self { what, process, .. } = self;
        match last_line(&state_dir.log_file(*process), since) {
            Some(line) => format!("{what}; the log of {process} ends with: {line}"),
            None => what.clone(),
        }
    }
}

impl Progress {
    pub(super) fn new(now: Instant) -> Self {
        let (pids, addresses, ends) = Default::default();
        Self { pids, addresses, ends, patience: Patience::new(now) }
    }

    /// The address of the engine of this name, as soon as it listens.
    pub(super) async fn wait_for_engine(
        &mut self,
        engine: Process,
        events: &mut Events,
    ) -> Result<SocketAddr, CliError> {
        loop {
            if let Some(address) = self.addresses.get(&engine) {
                return Ok(*address);
            }
            self.next(events, || format!("{engine} does not listen")).await?;
        }
    }

    /// Returns when all shards and workers are registered and every event has been recorded: the address of
    /// who leads.
    pub(super) async fn wait_until_ready(
        &mut self,
        cluster: &Cluster,
        plan: &Plan,
        shards: u32,
        state_dir: &StateDir,
        events: &mut Events,
    ) -> Result<String, CliError> {
        let mut said_at = Instant::now();
        let since = SystemTime::now() - self.patience.began.elapsed();
        let leader = loop {
            let missing = match leader_when_ready(cluster, plan, shards, self).await {
                Ok(leader) => break leader,
                Err(missing) => missing,
            };
            self.patience.note_loaded(missing.loaded, Instant::now());
            if said_at.elapsed() > SILENCE {
                said_at = Instant::now();
                say(&format!(
                    "still waiting: {}{}",
                    missing.describe(state_dir, since),
                    self.patience.note()
                ));
            }
            tokio::select! {
                () = sleep(POLL_INTERVAL) => {}
                event = self.next(events, || missing.describe(state_dir, since)) => event?,
            }
        };
        while let Ok(event) = events.try_recv() {
            self.record(event)?;
        }
        Ok(leader)
    }

    /// Waits for something to happen.
    async fn next(&mut self, events: &mut Events, missing: impl Fn() -> String) -> Result<(), CliError> {
        let left = self.patience.deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, events.recv()).await {
            Ok(Some(event)) => self.record(event),
            _ => {
                let after_s = self.patience.began.elapsed().as_secs();
                Err(CliError::NotReady { after_s, missing: missing() })
            }
        }
    }

    fn record(&mut self, event: Event) -> Result<(), CliError> {
        match event {
            Event::Started { process, pid } => {
                self.pids.insert(process, pid);
            }
            Event::Listening { process, address } => {
                self.patience.listens(process, Instant::now());
                self.addresses.insert(process, address);
            }
            Event::Leading { .. } => {}
            // Its predecessor, whose `up` was killed, still saves its jobs: it will be started again.
            Event::Ended { process, how, .. } if how.tail.contains(STATE_DIR_IN_USE) => {
                self.patience.note_busy(process)
            }
            Event::Ended { process, how: HowEnded { status, exit, log, tail }, .. } => {
                let ends = self.ends.entry(process).or_default();
                *ends += 1;
                if *ends >= MAX_ENDS_BEFORE_READY {
                    return Err(CliError::ChildEnded { name: process.to_string(), status, log, tail, exit });
                }
            }
        }
        Ok(())
    }
}

/// The address of the engine that leads, when everything is there; else what is still missing.
async fn leader_when_ready(
    cluster: &Cluster,
    plan: &Plan,
    shards: u32,
    progress: &Progress,
) -> Result<String, Missing> {
    let about = who_leads(cluster).await?;
    let present = about.shards_present;
    if present < shards {
        return Err(Missing::new(FIRST_ENGINE, format!("{present} of {shards} shards are there")));
    }
    let slots_of = |pid: u32| about.worker_pids.iter().filter(|registered| **registered == pid).count();
    let ours = progress.pids.iter().filter(|(process, _)| matches!(process, Process::Worker(_)));
    let (there, not_there): (Vec<_>, Vec<_>) =
        ours.partition(|(_, pid)| slots_of(**pid) >= plan.given.trainings as usize);
    if there.len() == plan.slowdowns.len() {
        return Ok(about.address);
    }
    let process = not_there.first().map_or(Process::Worker(0), |(process, _)| **process);
    let what = format!("{} of {} workers are registered", there.len(), plan.slowdowns.len());
    Err(Missing::new(process, what))
}

/// What the engine says of itself that leads: either may, as before the start the other one did.
async fn who_leads(cluster: &Cluster) -> Result<EngineStatus, Missing> {
    let (mut missing, mut loaded) = (None, Loaded::default());
    for answer in ask_each(cluster).await {
        let what = match answer {
            Ok((_, EngineStatus { idle: Some(idle), leader, load_steps, redis_loaded_bytes, .. })) => {
                let (steps, redis_bytes) =
                    (load_steps.unwrap_or_default(), redis_loaded_bytes.unwrap_or_default());
                loaded = loaded.max(Loaded { steps, redis_bytes });
                format!("the engine is not active: {idle}{}", foreign(leader.as_deref(), cluster))
            }
            Ok((_, about)) => return Ok(about),
            Err(_) => "the engine does not answer".to_owned(),
        };
        missing.get_or_insert(what);
    }
    Err(Missing { loaded, ..Missing::new(FIRST_ENGINE, missing.unwrap_or_default()) })
}

/// What to do where an engine leads that is none of this cluster; empty if it is one.
fn foreign(leader: Option<&str>, cluster: &Cluster) -> &'static str {
    let is_ours = |leader: &str| cluster.engines.each().any(|engine| engine.to_string() == leader);
    match leader.is_none_or(is_ours) {
        true => "",
        false => {
            "; that is another cluster on the same Redis database: give this one a database of its own, as in redis://HOST:6379/1"
        }
    }
}

#[cfg(test)]
mod tests {
    use syncline_rpc::Token;

    use super::{super::process::ShardProcess, *};

    fn shard(index: u32) -> Process {
        Process::Shard(ShardProcess { index, second: false })
    }

    #[test]
    fn who_reads_saved_jobs_has_longer_and_what_follows_the_usual_time() {
        let began = Instant::now();
        let mut patience = Patience::new(began);
        assert_eq!((patience.deadline, patience.note()), (began + READY_TIMEOUT, String::new()));
        patience.listens(shard(0), began);
        patience.note_busy(shard(0));
        patience.note_busy(shard(1));
        assert_eq!(patience.deadline, began + SAVE_TIMEOUT);
        assert_eq!(patience.note(), " (jobs of the last stop are not read yet: ps-0, ps-1)");
        let later = began + Duration::from_secs(400);
        patience.listens(shard(1), later);
        assert_eq!(patience.deadline, began + SAVE_TIMEOUT);
        patience.listens(shard(0), later);
        assert_eq!(patience.deadline, later + READY_TIMEOUT);
    }

    #[test]
    fn who_reads_jobs_has_the_usual_time_after_each_step_and_no_longer_table() {
        let begun = Instant::now();
        let mut patience = Patience::new(begun);
        #[rustfmt::skip]
        let cases = [
            // at s, engine's steps, bytes of Redis, given up at s
            (  1,   0,     0,  60, "nothing is read yet"),
            ( 20,   0,   100,  80, "Redis reads its file"),
            ( 50,   0, 5_000, 110, "it has read more"),
            ( 70,   0, 5_000, 110, "it stands still"),
            (100, 128,     0, 160, "an engine claims jobs"),
            (150, 136,     0, 210, "it reads one of them"),
            (200, 136,     0, 210, "it stands still"),
            (205,   0,     0, 210, "it begins anew"),
            (207, 128,     0, 210, "it was as far before"),
            (209, 137,     0, 269, "it comes further"),
        ];
        let at = |s: u64| begun + Duration::from_secs(s);
        for (at_s, steps, redis_bytes, until_s, what) in cases {
            patience.note_loaded(Loaded { steps, redis_bytes }, at(at_s));
            assert_eq!(patience.deadline, at(until_s), "{what}");
        }
        let mut saving = Patience::new(begun);
        saving.note_busy(shard(0));
        saving.note_loaded(Loaded { steps: 1, redis_bytes: 0 }, at(1));
        assert_eq!(saving.deadline, begun + SAVE_TIMEOUT, "a shard may read for longer");
    }

    #[test]
    fn a_shard_whose_predecessor_still_saves_may_end_as_often_as_it_takes() {
        let mut progress = Progress::new(Instant::now());
        let mut end = |tail: &str| {
            let how = HowEnded {
                status: "exit status: 2".into(),
                exit: crate::cli::Exit::Usage,
                log: "log".into(),
                tail: tail.into(),
            };
            progress.record(Event::Ended { process: shard(0), how, again_in: Duration::ZERO })
        };
        for _ in 0..10 {
            end("error: [E421] the state directory shard-0 is in use by another process").unwrap();
        }
        end("error: [E419] another").unwrap();
        end("error: [E419] another").unwrap();
        assert!(end("error: [E419] another").unwrap_err().to_string().contains("[E504]"));
    }

    #[test]
    fn a_process_that_wrote_nothing_is_not_quoted() {
        let ended = |tail: &str| CliError::ChildEnded {
            name: "worker-0".into(),
            status: "signal: 9 (SIGKILL)".into(),
            log: "logs/worker-0.log".into(),
            tail: tail.into(),
            exit: crate::cli::Exit::Internal,
        };
        let wrote_nothing = "[E504] worker-0 ended with signal: 9 (SIGKILL) before the cluster was ready; \
                             it wrote nothing to its log logs/worker-0.log";
        assert_eq!(ended("").to_string(), wrote_nothing);
        assert!(ended("").hint().contains("SYNCLINE_LOG=debug"), "{}", ended("").hint());
        assert!(ended("why").to_string().ends_with("its log logs/worker-0.log ends with:\nwhy"));
    }

    #[test]
    fn an_engine_of_another_cluster_that_leads_is_told_with_what_to_do() {
        let cluster =
            Cluster { engines: "127.0.0.1:1,127.0.0.1:2".parse().unwrap(), token: Token::generate() };
        for (leader, is_told) in [(None, false), (Some("127.0.0.1:2"), false), (Some("127.0.0.1:3"), true)] {
            assert_eq!(foreign(leader, &cluster).contains("a database of its own"), is_told, "{leader:?}");
        }
    }
}
