//! A cluster in a box: workers and shards as the core sees them, one random micro-step at a time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod actors;

use std::collections::{BTreeMap, BTreeSet};

use actors::{Started, Worker};
use syncline_scheduler::{
    core::{Commit, Core, Effect, Input, Job, StoredJob, Submission, WorkerInfo},
    graph::{TaskId, TaskState},
    ids::{Incarnation, ShardIndex},
    samples::{SampleRange, splitmix64},
    sim::{self, ParameterServerModel},
    spec::{JobSpec, Node, NodeKind, TrainSpec},
};

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub seed: u64,
    pub policy: &'static str,
    pub workers: u32,
    pub shards: u32,
    pub samples: u64,
    pub epochs: u32,
    pub batch: u32,
    pub drop_last: bool,
    pub deaths: u32,
    pub joins: u32,
    pub restarts: u32,
    pub ahead: Option<u32>,
}

impl Settings {
    pub fn quiet(policy: &'static str) -> Self {
        Self {
            seed: 1,
            policy,
            workers: 4,
            shards: 2,
            samples: 100,
            epochs: 2,
            batch: 5,
            drop_last: false,
            deaths: 0,
            joins: 0,
            restarts: 0,
            ahead: None,
        }
    }
}

pub struct Cluster {
    settings: Settings,
    random: u64,
    now_us: u64,
    core: Core,
    stored: StoredJob,
    summary: BTreeMap<String, String>,
    workers: BTreeMap<Incarnation, Worker>,
    server: ParameterServerModel,
    /// Answers on their way to the core, and effects on their way out; any of them may be next.
    inputs: Vec<Input>,
    effects: Vec<Effect>,
    next_worker: u64,
    max_lead: u64,
    /// Sample ranges that the core settled as done or torn, read from the task records as they pass.
    counted: BTreeMap<TaskId, SampleRange>,
}

pub fn spec(s: &Settings) -> JobSpec {
    let train = TrainSpec {
        epochs: s.epochs,
        drop_last: s.drop_last,
        min_workers: if s.deaths == 0 { s.workers } else { 1 },
        ahead: s.ahead,
        ..sim::training(s.policy.parse().unwrap(), s.samples, s.batch.min(s.samples as u32))
    };
    let name = |n: &str| n.parse().unwrap();
    let node = |n: &str, after: &[&str], kind| Node {
        name: name(n),
        after: after.iter().map(|a| name(a)).collect(),
        retries: 20,
        kind,
    };
    JobSpec {
        id: name("job"),
        nodes: vec![
            node("train", &[], NodeKind::Train(Box::new(train))),
            node("evaluate", &["train"], NodeKind::Evaluate),
            node("snapshot", &["train"], NodeKind::Snapshot),
        ],
    }
}

impl Cluster {
    pub fn new(settings: Settings) -> Self {
        let mut cluster = Self {
            settings,
            random: settings.seed,
            now_us: 1_000_000,
            core: Core::new(settings.shards),
            stored: StoredJob::default(),
            summary: BTreeMap::new(),
            workers: BTreeMap::new(),
            server: ParameterServerModel::new(settings.shards),
            inputs: vec![Input::Submit(Submission {
                spec: Box::new(spec(&settings)),
                nonce: 7,
                replace: false,
            })],
            effects: Vec::new(),
            next_worker: 0,
            max_lead: 0,
            counted: BTreeMap::new(),
        };
        for _ in 0..settings.workers {
            cluster.join();
        }
        cluster
    }

    pub fn summary(&self) -> &BTreeMap<String, String> {
        &self.summary
    }

    fn random(&mut self, below: usize) -> usize {
        (splitmix64(&mut self.random) % below.max(1) as u64) as usize
    }

    fn join(&mut self) {
        self.next_worker += 1;
        let worker = Incarnation(self.next_worker);
        let interval_us = 500 + self.random(3000) as u64;
        self.workers.insert(worker, Worker::new(worker, interval_us));
        self.inputs.push(Input::WorkerJoined { worker, about: WorkerInfo::default() });
    }

    /// Random micro-steps until the job is over. Panics when nothing can move, or never seems to end.
    pub fn run_to_end(&mut self) {
        for step in 0.. {
            assert!(step < 400_000, "no end in sight: {:?} {:?}", self.settings, self.summary);
            if self.summary.get("state").is_some_and(|s| s == "done" || s == "failed" || s == "canceled") {
                return;
            }
            self.now_us += self.random(400) as u64;
            match self.random(200) {
                // Somebody is late, and the engine looks at the clock.
                0 => self.now_us += 50_000,
                1..20 => self.inputs.push(Input::Tick),
                _ => {}
            }
            self.misfortune();
            if !self.step() {
                // Everybody has died: somebody new comes.
                assert!(
                    self.workers.is_empty() || !self.inputs.is_empty(),
                    "stuck: {:?} {:?}",
                    self.settings,
                    self.summary
                );
                self.join();
            }
        }
    }

    fn misfortune(&mut self) {
        if self.random(60) > 0 {
            return;
        }
        match self.random(3) {
            0 if self.settings.deaths > 0 && !self.workers.is_empty() => {
                self.settings.deaths -= 1;
                let at = self.random(self.workers.len());
                let victim = *self.workers.keys().nth(at).unwrap();
                self.workers.remove(&victim);
                // Its registration cannot arrive after its end.
                self.inputs.retain(|i| !matches!(i, Input::WorkerJoined { worker, .. } if *worker == victim));
                self.inputs.push(Input::WorkerGone { worker: victim, reason: "killed".into() });
            }
            1 if self.settings.joins > 0 => {
                self.settings.joins -= 1;
                self.join();
            }
            2 if self.settings.restarts > 0 && !self.stored.spec.is_empty() => {
                self.settings.restarts -= 1;
                self.restart();
            }
            _ => {}
        }
    }

    /// The engine dies with everything that was on its way, and comes back from what was committed.
    fn restart(&mut self) {
        let gone: Vec<Input> =
            self.inputs.drain(..).filter(|i| matches!(i, Input::WorkerGone { .. })).collect();
        self.effects.clear();
        let job = Job::load(&self.stored).unwrap();
        self.core = Core::new(self.settings.shards);
        self.effects = self.core.restore(job);
        // Silence is noticed again, idle workers register again, shards tell again what they have closed.
        self.inputs = gone;
        let known: BTreeSet<_> = self.core.workers().map(|(worker, _)| worker).collect();
        let mut inputs = Vec::new();
        for worker in &known {
            if !self.workers.contains_key(worker) {
                inputs.push(Input::WorkerGone { worker: *worker, reason: "silent".into() });
            }
        }
        for (worker, w) in &mut self.workers {
            if known.contains(worker) {
                w.resend_reports();
            } else {
                inputs.push(Input::WorkerJoined { worker: *worker, about: WorkerInfo::default() });
            }
        }
        self.inputs.extend(inputs);
        // And each is asked what it holds, and how far it is: none has gone back.
        self.inputs.extend(self.server.meet_new_engine(self.now_us));
    }

    /// One random micro-step; `false` if nothing can move.
    fn step(&mut self) -> bool {
        let mut choices: Vec<usize> = Vec::new();
        choices.extend((!self.inputs.is_empty()).then_some(0));
        choices.extend((!self.effects.is_empty()).then_some(1));
        let movable: Vec<Incarnation> =
            self.workers.iter().filter(|(_, w)| w.can_move(&self.server.shards)).map(|(i, _)| *i).collect();
        choices.extend((!movable.is_empty()).then_some(2));
        let telling: Vec<usize> =
            (0..self.server.shards.len()).filter(|&i| self.server.shards[i].has_news()).collect();
        choices.extend((!telling.is_empty()).then_some(3));
        if choices.is_empty() {
            return false;
        }
        match choices[self.random(choices.len())] {
            0 => {
                // Reports of one worker keep their order; everything else may overtake.
                let at = self.random(self.inputs.len());
                let at = match &self.inputs[at] {
                    Input::Report { worker, .. } => {
                        let same = |i: &Input| matches!(i, Input::Report { worker: w, .. } if w == worker);
                        self.inputs.iter().position(same).unwrap()
                    }
                    _ => at,
                };
                let input = self.inputs.remove(at);
                self.handle(input);
            }
            1 => {
                let effect = self.effects.remove(0);
                self.carry_out(effect);
            }
            2 => {
                let worker = movable[self.random(movable.len())];
                self.check_start(worker);
                let now = self.now_us;
                let Self { workers, server, inputs, .. } = self;
                inputs.extend(workers.get_mut(&worker).unwrap().step(now, &mut server.shards));
            }
            _ => {
                let at = telling[self.random(telling.len())];
                self.inputs.extend(self.server.report_closed(ShardIndex(at as u32)));
            }
        }
        true
    }

    /// What every policy promises about an iteration that starts: it is within the worker's quota, and no further
    /// ahead of any other worker than allowed.
    fn check_start(&mut self, worker: Incarnation) {
        let Some(Started { superstep, seq }) = self.workers[&worker].starting() else { return };
        if let Some(record) = self.stored.supersteps.get(&superstep.to_string()) {
            let record: serde_json::Value = serde_json::from_str(record).unwrap();
            let last = record["roster"][worker.0.to_string()]["last"].as_u64();
            assert!(last.is_none_or(|last| seq <= last), "{worker} starts {seq} beyond its quota {last:?}");
        }
        for shard in self.server.shards.iter().filter(|shard| shard.clocks().get(worker).is_some()) {
            self.max_lead = self.max_lead.max(shard.clocks().lead(worker));
        }
    }

    /// The highest lead over the slowest worker with which an iteration was started.
    pub fn max_lead(&self) -> u64 {
        self.max_lead
    }

    /// Everything that was committed, to compare two runs.
    pub fn stored(&self) -> &StoredJob {
        &self.stored
    }

    fn handle(&mut self, input: Input) {
        let twice = (self.random(10) == 0 && !matches!(input, Input::Submit(_))).then(|| input.clone());
        for input in [Some(input), twice].into_iter().flatten() {
            let effects = self.core.handle(self.now_us, input).unwrap();
            if let Some(commit) = self.core.take_commits(self.now_us).remove(&"job".parse().unwrap()) {
                self.commit(commit);
                let loaded = Job::load(&self.stored).unwrap();
                // Printing two whole jobs would bury the seed.
                assert!(
                    Some(&loaded) == self.core.job(loaded.name()),
                    "loaded job differs from the live one: {:?}",
                    self.settings
                );
            }
            self.effects.extend(effects);
        }
    }

    fn commit(&mut self, commit: Commit) {
        let put = |map: &mut BTreeMap<String, String>, fields: Vec<(String, Option<String>)>| {
            for (field, value) in fields {
                match value {
                    Some(value) => map.insert(field, value),
                    None => map.remove(&field),
                };
            }
        };
        self.stored.spec = commit.spec.unwrap_or(std::mem::take(&mut self.stored.spec));
        self.stored.job_state = commit.job_state.unwrap_or(std::mem::take(&mut self.stored.job_state));
        put(&mut self.stored.tasks, commit.tasks);
        put(&mut self.stored.workers, commit.workers);
        put(&mut self.stored.supersteps, commit.supersteps);
        self.summary.extend(commit.summary.into_iter().map(|(k, v)| (k.to_owned(), v)));
        for (id, text) in &self.stored.tasks {
            let Ok(TaskId::Iteration { worker, seq }) = id.parse() else { continue };
            let task: serde_json::Value = serde_json::from_str(text).unwrap();
            let state: TaskState = serde_json::from_value(task["state"].clone()).unwrap();
            if matches!(state, TaskState::Done | TaskState::Torn) {
                let range = serde_json::from_value(task["range"].clone()).unwrap();
                self.counted.insert(TaskId::Iteration { worker, seq }, range);
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Assign { worker, assignment } => {
                if let Some(w) = self.workers.get_mut(&worker) {
                    w.receive(assignment);
                }
            }
            Effect::AckReport { worker, key } | Effect::Revoke { worker, key } => {
                if let Some(w) = self.workers.get_mut(&worker) {
                    w.settle(&key);
                }
            }
            effect => self.inputs.extend(self.server.carry_out(effect)),
        }
    }

    /// Done and torn iterations cover every sample of every epoch once, and agree with the counters and the shards.
    pub fn check_everything_counted_once(&self) {
        let s = &self.settings;
        assert_eq!(self.summary["state"], "done");
        let samples = if s.drop_last { s.samples - s.samples % u64::from(s.batch) } else { s.samples };
        let mut seen = vec![0u32; (samples * u64::from(s.epochs)) as usize];
        for range in self.counted.values() {
            for i in range.start..range.start + u64::from(range.len) {
                seen[(u64::from(range.epoch) * samples + i) as usize] += 1;
            }
        }
        assert!(seen.iter().all(|&n| n == 1), "some sample is not counted once: {s:?}");
        let number = |field: &str| self.summary[field].parse::<u64>().unwrap();
        assert_eq!(number("iterations_done") + number("iterations_torn"), self.counted.len() as u64);
        assert_eq!(number("samples_applied"), samples * u64::from(s.epochs));
        assert_eq!(number("epochs_complete"), u64::from(s.epochs));
        for shard in &self.server.shards {
            let torn = number("iterations_torn");
            let done = number("iterations_done");
            assert!(
                (done..=done + torn).contains(&shard.pushes()),
                "{} pushes, {done} done, {torn} torn",
                shard.pushes()
            );
        }
    }
}
