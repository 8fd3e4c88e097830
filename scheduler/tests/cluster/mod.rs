//! A cluster without processes: workers and shards as the core sees them, one random micro-step at a time.

mod actors;
mod settings;
mod slots;
mod store;
pub mod stored;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
};

use actors::{Started, Worker, loss_after};
pub use settings::Settings;
use store::Store;
use syncline_scheduler::{
    core::{Core, Effect, HeldJob, Input, Job, Refused, StoredJob, TaskJob, significant},
    ids::{Incarnation, JobId, ShardIndex},
    samples::splitmix64,
    sim::ParameterServerModel,
    tasks::Value,
};

use crate::calls::CallWorker;

/// The engine's clock goes on where nothing else does: what waits for a time, or is looked at now and then,
/// moves.
const TICKS_WITHOUT_A_STEP: u32 = 100;
/// As far back as a store may go: about so many times twenty inputs.
const MOMENTS_BEFORE: usize = 5;

pub struct Cluster {
    settings: Settings,
    random: u64,
    now_us: u64,
    core: Core,
    /// What was committed of each job.
    stores: BTreeMap<JobId, Store>,
    /// The same at some moments before, the newest last: what the store may have lost came after one of
    /// them.
    before: VecDeque<BTreeMap<JobId, Store>>,
    has_lost: bool,
    workers: BTreeMap<Incarnation, Worker>,
    /// What each of them has of general tasks.
    callers: BTreeMap<Incarnation, CallWorker>,
    /// The parameters of each job that trains.
    servers: BTreeMap<JobId, ParameterServerModel>,
    /// Answers on their way to the core, and effects on their way out; any of them may be next.
    inputs: Vec<Input>,
    effects: Vec<Effect>,
    next_worker: u64,
    max_lead: u64,
    most_jobs: usize,
    pauses_left: u32,
    /// Whether workers are let go: of a job that is paused, or that waits for a shard.
    dismisses: bool,
    ticks_without_a_step: u32,
}

impl Cluster {
    pub fn new(settings: Settings) -> Self {
        let mut cluster = Self {
            settings,
            random: settings.seed,
            now_us: 1_000_000,
            core: Core::new(settings.shards),
            stores: BTreeMap::new(),
            before: VecDeque::new(),
            has_lost: false,
            workers: BTreeMap::new(),
            callers: BTreeMap::new(),
            servers: settings::jobs(&settings)
                .into_iter()
                .map(|job| (job, ParameterServerModel::new(settings.shards)))
                .collect(),
            inputs: vec![settings::submission(&settings)],
            effects: Vec::new(),
            next_worker: 0,
            max_lead: 0,
            most_jobs: 0,
            pauses_left: settings.pauses,
            dismisses: settings.pauses + settings.crashes + settings.losses > 0,
            ticks_without_a_step: 0,
        };
        for _ in 0..settings.workers {
            cluster.join();
        }
        cluster
    }

    /// A field of the summary of what was submitted.
    pub fn summary(&self, field: &str) -> &str {
        &self.submitted().summary[field]
    }

    /// What was committed of what was submitted.
    fn submitted(&self) -> &Store {
        &self.stores[&submitted_as(&self.settings)]
    }

    fn is_over(&self) -> bool {
        let store = self.stores.get(&submitted_as(&self.settings));
        let state = store.and_then(|store| store.summary.get("state")).map(String::as_str);
        matches!(state, Some("done" | "failed" | "canceled"))
    }

    fn random(&mut self, below: usize) -> usize {
        (splitmix64(&mut self.random) % below.max(1) as u64) as usize
    }

    fn join(&mut self) {
        self.next_worker += 1;
        let worker = Incarnation(self.next_worker);
        let interval_us = 500 + self.random(3000) as u64;
        self.workers.insert(worker, Worker::new(worker, interval_us));
        self.callers.insert(worker, CallWorker::default());
        self.inputs.push(Input::WorkerJoined { worker, about: self.settings.about(worker) });
    }

    /// A worker goes on under another number.
    fn register_again(&mut self, worker: Incarnation) {
        let joins = |input: &Input| matches!(input, Input::WorkerJoined { worker: w, .. } if *w == worker);
        self.inputs.retain(|input| !joins(input));
        self.callers.remove(&worker);
        if self.workers.remove(&worker).is_some() {
            self.join();
        }
    }

    /// Random micro-steps until the job is over. Panics when nothing can move, or never seems to end.
    pub fn run_to_end(&mut self) {
        for step in 0.. {
            assert!(step < 400_000, "no end in sight: {:?} {}", self.settings, self.summaries());
            if self.is_over() {
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
            if self.step() {
                continue;
            }
            if self.waits_to_be_resumed() {
                self.pause(false);
            } else if self.ticks_without_a_step < TICKS_WITHOUT_A_STEP {
                self.inputs.push(Input::Tick);
            } else {
                // Everybody has died: somebody new comes.
                assert!(
                    self.workers.is_empty() || !self.inputs.is_empty(),
                    "stuck: {:?} {}",
                    self.settings,
                    self.summaries()
                );
                self.join();
            }
        }
    }

    fn summaries(&self) -> String {
        self.stores.iter().map(|(job, store)| format!("{job}: {:?} ", store.summary)).collect()
    }

    fn misfortune(&mut self) {
        if self.random(60) > 0 {
            return;
        }
        if self.settings.losses > 0 && self.random(4) == 0 {
            return self.lose_commits();
        }
        match self.random(if self.settings.pauses > 0 { 6 } else { 4 }) {
            0 if self.settings.deaths > 0 && !self.workers.is_empty() => {
                self.settings.deaths -= 1;
                let at = self.random(self.workers.len());
                let victim = *self.workers.keys().nth(at).unwrap();
                self.lose(victim);
                if self.random(2) == 0 {
                    // Its whole process has died.
                    let process = |worker: &Incarnation| self.settings.about(*worker).process;
                    let is_peer = |worker: &&Incarnation| {
                        process(worker).is_some() && process(worker) == process(&victim)
                    };
                    let peers: Vec<Incarnation> = self.workers.keys().filter(is_peer).copied().collect();
                    peers.into_iter().for_each(|peer| self.lose(peer));
                }
            }
            1 if self.settings.joins > 0 => {
                self.settings.joins -= 1;
                self.join();
            }
            2 if self.settings.restarts > 0 && !self.stores.is_empty() => {
                self.settings.restarts -= 1;
                self.restart();
            }
            3 if self.settings.crashes > 0 && !self.stores.is_empty() => self.crash(),
            4 if self.pauses_left > 0 && !self.stores.is_empty() => {
                self.pauses_left -= 1;
                self.pause(true);
            }
            5 if !self.stores.is_empty() => self.pause(false),
            _ => {}
        }
    }

    fn pause(&mut self, paused: bool) {
        self.inputs.push(Input::Pause { job: submitted_as(&self.settings), paused });
    }

    fn waits_to_be_resumed(&self) -> bool {
        self.stores.values().any(|store| store.summary["waiting_for"].contains("syncline resume"))
    }

    fn lose(&mut self, victim: Incarnation) {
        self.workers.remove(&victim);
        self.callers.remove(&victim);
        // Its registration cannot arrive after its end.
        self.inputs.retain(|i| !matches!(i, Input::WorkerJoined { worker, .. } if *worker == victim));
        self.inputs.push(Input::WorkerGone {
            worker: victim,
            reason: "killed".into(),
            never_told: Vec::new(),
        });
    }

    /// A shard is killed, and comes back with what is on its disk, as far as the job outlives that.
    fn crash(&mut self) {
        let at = self.random(self.settings.shards as usize);
        let is_over =
            |store: &Store| ["done", "failed", "canceled"].contains(&store.summary["state"].as_str());
        if self.stores.values().any(is_over) {
            return;
        }
        self.settings.crashes -= 1;
        let shard = ShardIndex(at as u32);
        // It may be away for so long that it counts as lost.
        if self.random(2) == 0 {
            self.handle(Input::ShardGone { shard, reason: "silent".into() });
        }
        self.servers.values_mut().for_each(|server| server.shards[at].crash());
        let (asked_us, held) = (self.now_us, Vec::new());
        self.inputs.push(Input::ShardHolds { shard, asked_us, held });
    }

    /// The engine dies, and the store goes back to what it had a while ago, as far as it had the job and it
    /// was not over since.
    fn lose_commits(&mut self) {
        let at = self.random(self.before.len());
        let Some(before) = self.before.get(at).filter(|_| !self.is_over()) else { return };
        self.stores.clone_from(before);
        self.before.clear();
        self.has_lost = true;
        self.settings.losses -= 1;
        // Nobody is as fast as to lose twice within a second.
        self.now_us += 2_000_000;
        // What was reported may have been acknowledged since. All reports of a local round are, or none.
        let acknowledged = self.settings.policy.starts_with("local-sgd") || self.random(2) == 0;
        if acknowledged {
            self.workers.values_mut().for_each(Worker::settle_all);
        }
        self.restart();
        // Each is told that what it holds and nobody knows is not wanted.
        for worker in self.workers.values_mut() {
            worker.forget_unknown(|key| {
                let is_run = self.core.job(&key.run.job).is_some_and(|job| job.run() == key.run);
                let task = self
                    .stores
                    .get(&key.run.job)
                    .and_then(|store| store.job.tasks.get(&key.task.to_string()));
                is_run && task.is_some_and(|task| task.contains("\"leased\""))
            });
        }
    }

    /// The engine dies with everything that was on its way, and comes back from what was committed.
    fn restart(&mut self) {
        let gone: Vec<Input> =
            self.inputs.drain(..).filter(|i| matches!(i, Input::WorkerGone { .. })).collect();
        self.effects.clear();
        self.core = Core::new(self.settings.shards);
        for store in self.stores.values() {
            self.effects.extend(match store.job.holds_tasks() {
                true => self.core.restore_tasks(TaskJob::load(&store.job).unwrap()),
                false => self.core.restore(Job::load(&store.job).unwrap()),
            });
        }
        // Silence is noticed again, idle workers register again, shards tell again what they have closed.
        self.inputs = gone;
        let known: BTreeSet<_> = self.core.workers().map(|(worker, _)| worker).collect();
        let mut inputs = Vec::new();
        for worker in &known {
            if !self.workers.contains_key(worker) {
                inputs.push(Input::WorkerGone {
                    worker: *worker,
                    reason: "silent".into(),
                    never_told: Vec::new(),
                });
            }
        }
        for (worker, w) in &mut self.workers {
            if known.contains(worker) {
                w.resend_reports();
            } else {
                inputs.push(Input::WorkerJoined { worker: *worker, about: self.settings.about(*worker) });
            }
        }
        self.inputs.extend(inputs);
        if self.dismisses {
            // One that was let go may not have heard of it.
            let unknown = self.workers.keys().filter(|worker| !known.contains(worker));
            unknown.copied().collect::<Vec<_>>().into_iter().for_each(|worker| self.register_again(worker));
        }
        // And each is asked what it holds, and how far it is.
        let mut held: BTreeMap<ShardIndex, Vec<HeldJob>> = BTreeMap::new();
        for input in self.servers.values_mut().flat_map(|server| server.meet_new_engine(self.now_us)) {
            let Input::ShardHolds { shard, held: some, .. } = input else { panic!("{input:?}") };
            held.entry(shard).or_default().extend(some);
        }
        let asked_us = self.now_us;
        let tell = |(shard, held)| Input::ShardHolds { shard, asked_us, held };
        self.inputs.extend(held.into_iter().map(tell));
    }

    /// One random micro-step; `false` if nothing can move.
    fn step(&mut self) -> bool {
        let mut choices: Vec<usize> = Vec::new();
        choices.extend((!self.inputs.is_empty()).then_some(0));
        choices.extend((!self.effects.is_empty()).then_some(1));
        let can_move = |w: &Worker| {
            let server = w.job().and_then(|job| self.servers.get(job));
            w.can_move(server.map_or(&[][..], |server| &server.shards))
        };
        let movable: Vec<Incarnation> =
            self.workers.iter().filter(|(_, w)| can_move(w)).map(|(i, _)| *i).collect();
        choices.extend((!movable.is_empty()).then_some(2));
        let news = |(job, server): (&JobId, &ParameterServerModel)| {
            let telling = (0..server.shards.len()).filter(|&i| server.shards[i].has_news());
            telling.map(|i| (job.clone(), ShardIndex(i as u32))).collect::<Vec<_>>()
        };
        let telling: Vec<(JobId, ShardIndex)> = self.servers.iter().flat_map(news).collect();
        choices.extend((!telling.is_empty()).then_some(3));
        let calling: Vec<Incarnation> =
            self.callers.iter().filter(|(_, caller)| caller.can_move()).map(|(id, _)| *id).collect();
        choices.extend((!calling.is_empty()).then_some(4));
        if choices.is_empty() {
            return false;
        }
        match choices[self.random(choices.len())] {
            0 => {
                // Reports of one worker keep their order; everything else may overtake.
                let at = self.random(self.inputs.len());
                let reporter = |input: &Input| match input {
                    Input::Report { worker, .. } | Input::TasksEnded { worker, .. } => {
                        Some((mem::discriminant(input), *worker))
                    }
                    _ => None,
                };
                let at = reporter(&self.inputs[at]).map_or(at, |who| {
                    self.inputs.iter().position(|input| reporter(input) == Some(who)).unwrap()
                });
                // How far the shards were comes before that they are open.
                let at = match &self.inputs[at] {
                    Input::ShardsOpened { run: opened } => {
                        let of_run =
                            |input: &Input| matches!(input, Input::Attached { run, .. } if run == opened);
                        self.inputs.iter().position(of_run).unwrap_or(at)
                    }
                    _ => at,
                };
                let input = self.inputs.remove(at);
                let before = self.ticks_without_a_step;
                self.ticks_without_a_step = if input == Input::Tick { before + 1 } else { 0 };
                self.handle(input);
            }
            1 => {
                self.ticks_without_a_step = 0;
                let effect = self.effects.remove(0);
                self.carry_out(effect);
            }
            2 => {
                self.ticks_without_a_step = 0;
                let worker = movable[self.random(movable.len())];
                self.check_start(worker);
                let now = self.now_us;
                let Self { workers, servers, inputs, .. } = self;
                let worker = workers.get_mut(&worker).unwrap();
                let server = worker.job().cloned().and_then(|job| servers.get_mut(&job));
                inputs.extend(worker.step(now, server.map_or(&mut [][..], |server| &mut server.shards)));
            }
            4 => {
                let id = calling[self.random(calling.len())];
                self.call(id);
            }
            _ => {
                let (job, shard) = telling[self.random(telling.len())].clone();
                self.inputs.extend(self.servers.get_mut(&job).unwrap().report_closed(shard));
            }
        }
        true
    }

    /// A worker runs a general task that it has, or reports all that have ended. It keeps the
    /// reports until they are handled.
    fn call(&mut self, id: Incarnation) {
        let mut random = self.random;
        let caller = self.callers.get_mut(&id).unwrap();
        caller.read_orders();
        let runnable = caller.runnable();
        let choice = splitmix64(&mut random) as usize;
        if !runnable.is_empty() && (choice.is_multiple_of(2) || caller.reports.is_empty()) {
            caller.run(&runnable[choice / 2 % runnable.len()]);
        } else if !caller.reports.is_empty() {
            let groups = caller.unacknowledged();
            self.inputs.push(Input::TasksEnded { worker: id, groups, under_another: false });
        }
        self.random = random;
    }

    /// What every policy promises about an iteration that starts: it is within the worker's quota, and no
    /// further ahead of any other worker than allowed.
    fn check_start(&mut self, worker: Incarnation) {
        let Some(job) = self.workers[&worker].job() else { return };
        let shards = &self.servers[job].shards;
        if self.has_lost {
            // What it was given may be what nobody knows any more.
            return;
        }
        let Some(Started { superstep, seq }) = self.workers[&worker].starting(shards) else { return };
        if let Some(record) = self.stores[job].job.supersteps.get(&superstep.to_string()) {
            let record: serde_json::Value = serde_json::from_str(record).unwrap();
            let last = record["roster"][worker.0.to_string()]["last"].as_u64();
            assert!(last.is_none_or(|last| seq <= last), "{worker} starts {seq} beyond its quota {last:?}");
        }
        for shard in self.servers[job].shards.iter().filter(|shard| shard.clocks().get(worker).is_some()) {
            self.max_lead = self.max_lead.max(shard.clocks().lead(worker));
        }
    }

    /// The highest lead over the slowest worker with which an iteration was started.
    pub fn max_lead(&self) -> u64 {
        self.max_lead
    }

    /// Everything that was committed, to compare two runs.
    pub fn stored(&self) -> &StoredJob {
        &self.submitted().job
    }

    fn handle(&mut self, input: Input) {
        if self.settings.losses > 0 && !self.stores.is_empty() && self.random(20) == 0 {
            self.before.push_back(self.stores.clone());
            if self.before.len() > MOMENTS_BEFORE {
                self.before.pop_front();
            }
        }
        let submits = matches!(input, Input::Submit(_) | Input::SubmitGraph(_));
        let twice = (self.random(10) == 0 && !submits).then(|| input.clone());
        let reported = match &input {
            Input::TasksEnded { worker, groups, .. } => Some((*worker, groups.clone())),
            _ => None,
        };
        for input in [Some(input), twice].into_iter().flatten() {
            let effects = match self.core.handle(self.now_us, input) {
                // The job was faster.
                Err(Refused::Over { .. }) => continue,
                handled => handled.unwrap(),
            };
            let commits = self.core.take_commits(self.now_us);
            let torn = self.settings.restarts > 0 && commits.len() > 1 && self.random(3) == 0;
            let ordered = self.core.order_commits(&commits).concat();
            let mut written = ordered.into_iter().peekable();
            while let Some((job, commit)) = written.next() {
                self.stores.entry(job.clone()).or_default().commit(commit.clone());
                if torn && written.peek().is_some() && self.random(2) == 0 {
                    // It dies before it has written the others.
                    self.settings.restarts -= 1;
                    return self.restart();
                }
                self.check_loaded(job);
            }
            self.check_slots();
            self.effects.extend(effects);
        }
        // What is written is acknowledged.
        if let Some((worker, groups)) = reported
            && let Some(caller) = self.callers.get_mut(&worker)
        {
            caller.acknowledge(&groups);
        }
    }

    /// A job that is loaded equals the live one.
    fn check_loaded(&self, id: &JobId) {
        let stored = &self.stores[id].job;
        // Printing two whole jobs would bury the seed.
        let equal = match stored.holds_tasks() {
            true => Some(&TaskJob::load(stored).unwrap()) == self.core.task_job(id),
            false => Some(&Job::load(stored).unwrap()) == self.core.job(id),
        };
        assert!(equal, "loaded job {id} differs from the live one: {:?}", self.settings);
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Assign { worker, assignment } => {
                if let Some(w) = self.workers.get_mut(&worker) {
                    w.receive(assignment);
                }
            }
            Effect::AckReport { worker, key } => {
                if let Some(w) = self.workers.get_mut(&worker) {
                    w.settle(&key);
                }
            }
            Effect::Revoke { worker, key } => {
                if let Some(w) = self.workers.get_mut(&worker) {
                    w.revoke(&key);
                }
            }
            Effect::DismissWorker { worker, .. } => self.register_again(worker),
            Effect::Orders { worker, orders } => {
                if let Some(caller) = self.callers.get_mut(&worker) {
                    caller.inbox.extend(orders);
                }
            }
            effect => {
                let server = job_of(&effect).and_then(|job| self.servers.get_mut(job));
                self.inputs.extend(server.map(|server| server.carry_out(effect)).unwrap_or_default());
            }
        }
    }

    /// Done and torn iterations cover every sample of every epoch once, and agree with the counters and the
    /// shards.
    pub fn check_everything_counted_once(&self) {
        assert_eq!(self.summary("state"), "done");
        settings::jobs(&self.settings).iter().for_each(|job| self.check_counted_once(job));
        if self.settings.trainings > 0 {
            let (last, gives) = settings::last_call(&self.settings);
            let given = self.core.task_value(&submitted_as(&self.settings), last).unwrap();
            assert_eq!(given, Some(Value::Inline(gives.to_le_bytes().to_vec().into())), "{last:?}");
        }
    }

    fn check_counted_once(&self, job: &JobId) {
        let (s, store) = (&self.settings, &self.stores[job]);
        assert_eq!(store.summary["state"], "done", "{job}");
        let samples = if s.drop_last { s.samples - s.samples % u64::from(s.batch) } else { s.samples };
        let mut seen = vec![0u32; (samples * u64::from(s.epochs)) as usize];
        for range in store.counted.values() {
            for i in range.start..range.start + u64::from(range.len) {
                seen[(u64::from(range.epoch) * samples + i) as usize] += 1;
            }
        }
        let number = |field: &str| store.number(field);
        let stopped = store.summary.get("stopped_early").is_some_and(|why| !why.is_empty());
        let epochs = if stopped { number("epochs_complete") } else { u64::from(s.epochs) };
        let (counted, rest) = seen.split_at((samples * epochs) as usize);
        assert!(counted.iter().all(|&n| n == 1), "some sample is not counted once: {s:?}");
        assert!(rest.iter().all(|&n| n == 0), "it has not stopped: {s:?}");
        assert_eq!(number("iterations_done") + number("iterations_torn"), store.counted.len() as u64);
        assert_eq!(number("iterations_rolled_back"), store.rolled_back);
        assert_eq!(number("samples_applied"), samples * epochs);
        assert_eq!(number("epochs_complete"), epochs);
        let run = self.core.job(job).unwrap().run();
        // One that crashed when everything was done has nothing left.
        let shards = || self.servers[job].shards.iter().filter(|shard| shard.holds(&run));
        if s.evaluations && s.keep_best && self.servers[job].shards[0].holds(&run) {
            let loss = loss_after(self.servers[job].shards[0].pushes());
            assert_eq!(significant(loss), store.summary["best_loss"], "others are handed on: {s:?}");
        }
        let handed_on = store.summary.get("handed_on").map(String::as_str);
        for shard in shards().filter(|_| handed_on != Some("best")) {
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

/// The name of what is submitted.
fn submitted_as(settings: &Settings) -> JobId {
    if settings.trainings == 0 { "job" } else { "graph" }.parse().unwrap()
}

/// The job that the shards are told of.
fn job_of(effect: &Effect) -> Option<&JobId> {
    match effect {
        Effect::OpenShards { run, .. }
        | Effect::OrderBarrier { run, .. }
        | Effect::Clocks { run, .. }
        | Effect::Seal { run, .. }
        | Effect::PinCheckpoint { run, .. }
        | Effect::WriteCheckpoint { run, .. }
        | Effect::RetainCheckpoints { run, .. }
        | Effect::Attach { run, .. } => Some(&run.job),
        Effect::Snapshot { key, .. } => Some(&key.run.job),
        Effect::Plan(request) => Some(&request.run.job),
        _ => None,
    }
}
