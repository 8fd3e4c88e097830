//! A core, a shard, and workers that do what a test says.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
};

use syncline_scheduler::{
    core::{
        Assignment, Core, Effect, EvaluationSums, Happening, IfTaken, Input, Iterated, Job, Outcome, Phase,
        RelativeSpeed, Submission, TaskReport, Work, WorkerInfo,
    },
    ids::{Generation, Incarnation, JobId, RunId},
    sim::{ControlPlane, Shell},
    spec::JobSpec,
    tasks::Capacity,
};

/// The first run of the job that was submitted with `nonce`.
pub fn run(name: &str, nonce: u32) -> RunId {
    RunId { job: id(name), generation: Generation::first(nonce) }
}

pub fn id(name: &str) -> JobId {
    name.parse().unwrap()
}

/// Writes down what the core decides, and leaves snapshots and the state of a shard to the test.
#[derive(Default)]
pub struct Recorder {
    pub effects: Vec<Effect>,
    /// What the events of all jobs are about.
    pub events: Vec<String>,
    /// After how many samples the evaluations were that the series of all jobs have points of.
    pub evaluated_after: Vec<String>,
    /// Slow workers that events told of, with their speeds.
    pub slow: Vec<(Incarnation, RelativeSpeed)>,
    /// Who has to register again.
    pub dismissed: Vec<Incarnation>,
    /// Shards do not write what they copied until the test says that they have.
    pub holds_files: bool,
    /// No order reaches the shard: those that were given meanwhile.
    pub undelivered: Option<Vec<Effect>>,
    /// What people are told of each job.
    pub summaries: BTreeMap<JobId, BTreeMap<&'static str, String>>,
    /// Whether the keys of each may expire.
    pub expires: BTreeMap<JobId, bool>,
}

impl Shell for Recorder {
    fn handle(&mut self, core: &mut Core, now_us: u64, input: Input) -> Vec<Effect> {
        let mut effects = core.handle(now_us, input).unwrap();
        for (job, commit) in core.take_commits(now_us) {
            self.events.extend(commit.events.iter().map(|event| event.what.kind().to_string()));
            let points = commit.evaluations.points.into_iter().flatten();
            self.evaluated_after
                .extend(points.filter(|(name, _)| *name == "samples").map(|(_, samples)| samples));
            self.slow.extend(commit.events.iter().filter_map(|event| match &event.what {
                Happening::WorkerSlow { worker, speed } => Some((worker.id, *speed)),
                _ => None,
            }));
            self.expires.insert(job.clone(), commit.expires);
            self.summaries.entry(job).or_default().extend(commit.summary);
        }
        self.dismissed.extend(effects.iter().filter_map(|effect| match effect {
            Effect::DismissWorker { worker, .. } => Some(*worker),
            _ => None,
        }));
        self.effects.extend(effects.iter().cloned());
        effects.retain(|e| !matches!(e, Effect::Snapshot { .. } | Effect::Attach { .. }));
        effects.retain(|e| !self.holds_files || !matches!(e, Effect::WriteCheckpoint { .. }));
        if let Some(undelivered) = &mut self.undelivered {
            undelivered.extend(effects.extract_if(.., |e| !matches!(e, Effect::Assign { .. })));
        }
        effects
    }
}

/// Policies that differ in when workers come to rest.
pub const POLICIES: [&str; 8] = [
    "asp",
    "bsp",
    "ssp:1",
    "dssp:1:4",
    "elastic-bsp:4",
    "lb-bsp",
    "local-sgd:3",
    "elastic-bsp:4+update=barrier",
];

/// A core, a shard, and workers that do what the test says.
pub struct World {
    pub plane: ControlPlane<Recorder>,
    pub now_us: u64,
    /// What workers were given and have not reported.
    pub hands: BTreeMap<Incarnation, VecDeque<Assignment>>,
}

impl World {
    pub fn new() -> Self {
        let plane = ControlPlane::new(1, Recorder::default());
        Self { plane, now_us: 1_000_000, hands: BTreeMap::new() }
    }

    /// With a job and workers 1 to `workers`.
    pub fn of(spec: JobSpec, workers: u64) -> Self {
        let mut world = Self::new();
        for n in 1..=workers {
            world.join(n, &n.to_string());
        }
        world.submit(spec, 1);
        world
    }

    /// How many events of this kind there were.
    pub fn has_told(&self, what: &str) -> usize {
        self.plane.shell.events.iter().filter(|event| *event == what).count()
    }

    /// Handles an input and what follows from it; returns all that was decided.
    pub fn give(&mut self, input: Input) -> Vec<Effect> {
        for (worker, assignment) in self.plane.settle(self.now_us, [input]) {
            self.hands.entry(worker).or_default().push_back(assignment);
        }
        mem::take(&mut self.plane.shell.effects)
    }

    pub fn submit(&mut self, spec: JobSpec, nonce: u32) -> Vec<Effect> {
        self.give(Input::Submit(Submission { spec: Box::new(spec), nonce, if_taken: IfTaken::Refuse }))
    }

    pub fn join(&mut self, n: u64, name: &str) -> Incarnation {
        self.join_with(n, name, Capacity::default())
    }

    pub fn join_with(&mut self, n: u64, name: &str, capacity: Capacity) -> Incarnation {
        let about =
            WorkerInfo { name: name.into(), host: "host".into(), pid: 7, capacity, ..WorkerInfo::default() };
        self.give(Input::WorkerJoined { worker: Incarnation(n), about });
        Incarnation(n)
    }

    /// A worker ends its next task so; an iteration that succeeds was pushed.
    pub fn report(&mut self, worker: Incarnation, outcome: impl Fn(&Work) -> Outcome) -> Vec<Effect> {
        let Assignment { key, work, .. } = self.hands.get_mut(&worker).unwrap().pop_front().unwrap();
        let outcome = outcome(&work);
        if let (Work::Iterate { seq, .. }, Outcome::Iterated(_)) = (work, &outcome) {
            assert!(self.plane.server.shards[0].finish_push(worker, seq, 1));
        }
        self.give(Input::Report { worker, report: TaskReport { key, ended_ago_us: 0, outcome } })
    }

    pub fn job(&self, name: &str) -> &Job {
        self.plane.core.job(&id(name)).unwrap()
    }

    pub fn code(&self, name: &str) -> String {
        match self.job(name).phase() {
            Phase::Failed { code, .. } => code.to_string(),
            other => other.shown().to_string(),
        }
    }
}

pub fn done(work: &Work) -> Outcome {
    let range = match work {
        Work::Prepare { .. } => return Outcome::Prepared,
        Work::Iterate { range, .. } => range,
        Work::Evaluate { part, .. } => {
            let (samples, loss, weight) = (10, f64::from(part.index), 1.0);
            return Outcome::Evaluated(EvaluationSums { samples, loss, weight, ..EvaluationSums::default() });
        }
    };
    let (loss, loss_weight) = (1.0, range.len as f32);
    Outcome::Iterated(Iterated { range: *range, loss, loss_weight, compute_us: 1_000, ..Iterated::default() })
}
