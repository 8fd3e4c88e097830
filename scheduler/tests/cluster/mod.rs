//! A cluster in a box: workers and shards as the core sees them, one random micro-step at a time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod actors;
mod settings;
mod store;

use std::collections::{BTreeMap, BTreeSet};

use actors::{Started, Worker};
pub use settings::Settings;
use store::Store;
use syncline_scheduler::{
    core::{Core, Effect, Input, Job, StoredJob, Submission, WorkerInfo},
    ids::{Incarnation, ShardIndex},
    samples::splitmix64,
    sim::ParameterServerModel,
};

pub struct Cluster {
    settings: Settings,
    random: u64,
    now_us: u64,
    core: Core,
    store: Store,
    workers: BTreeMap<Incarnation, Worker>,
    server: ParameterServerModel,
    /// Answers on their way to the core, and effects on their way out; any of them may be next.
    inputs: Vec<Input>,
    effects: Vec<Effect>,
    next_worker: u64,
    max_lead: u64,
}

impl Cluster {
    pub fn new(settings: Settings) -> Self {
        let mut cluster = Self {
            settings,
            random: settings.seed,
            now_us: 1_000_000,
            core: Core::new(settings.shards),
            store: Store::default(),
            workers: BTreeMap::new(),
            server: ParameterServerModel::new(settings.shards),
            inputs: vec![Input::Submit(Submission {
                spec: Box::new(settings::spec(&settings)),
                nonce: 7,
                replace: false,
            })],
            effects: Vec::new(),
            next_worker: 0,
            max_lead: 0,
        };
        for _ in 0..settings.workers {
            cluster.join();
        }
        cluster
    }

    /// A field of the job's summary.
    pub fn summary(&self, field: &str) -> &str {
        &self.store.summary[field]
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
            assert!(step < 400_000, "no end in sight: {:?} {:?}", self.settings, self.store.summary);
            let state = self.store.summary.get("state").map(String::as_str);
            if matches!(state, Some("done" | "failed" | "canceled")) {
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
                    self.store.summary
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
            2 if self.settings.restarts > 0 && !self.store.job.spec.is_empty() => {
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
        let job = Job::load(&self.store.job).unwrap();
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
        if let Some(record) = self.store.job.supersteps.get(&superstep.to_string()) {
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
        &self.store.job
    }

    fn handle(&mut self, input: Input) {
        let twice = (self.random(10) == 0 && !matches!(input, Input::Submit(_))).then(|| input.clone());
        for input in [Some(input), twice].into_iter().flatten() {
            let effects = self.core.handle(self.now_us, input).unwrap();
            if let Some(commit) = self.core.take_commits(self.now_us).remove(&"job".parse().unwrap()) {
                self.store.commit(commit);
                let loaded = Job::load(&self.store.job).unwrap();
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
        assert_eq!(self.summary("state"), "done");
        let samples = if s.drop_last { s.samples - s.samples % u64::from(s.batch) } else { s.samples };
        let mut seen = vec![0u32; (samples * u64::from(s.epochs)) as usize];
        for range in self.store.counted.values() {
            for i in range.start..range.start + u64::from(range.len) {
                seen[(u64::from(range.epoch) * samples + i) as usize] += 1;
            }
        }
        assert!(seen.iter().all(|&n| n == 1), "some sample is not counted once: {s:?}");
        let number = |field: &str| self.store.number(field);
        assert_eq!(number("iterations_done") + number("iterations_torn"), self.store.counted.len() as u64);
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
