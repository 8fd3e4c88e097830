//! What a run of the cluster depends on, and its job.

use syncline_scheduler::{
    core::{GraphSubmission, IfTaken, Input, Submission, WorkerInfo},
    ids::{Incarnation, JobId, ProcessId},
    sim,
    spec::{
        CheckpointSpec, DataSpec, EarlyStopping, EvaluateSpec, JobSpec, Node, NodeKind, Split, TrainSpec,
    },
    tasks::{
        Arg, Backoff, ClassIndex, GraphDigest, GraphSpec, NewTask, PreparedTraining, Rules, TaskClass,
        TaskIndex, TaskRef, Work,
    },
};

use crate::calls::{self, Kind};

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub seed: u64,
    pub policy: &'static str,
    pub workers: u32,
    /// Of so many workers each, the ones that follow each other, one process consists.
    pub training_slots: u32,
    pub shards: u32,
    pub samples: u64,
    pub epochs: u32,
    pub batch: u32,
    pub drop_last: bool,
    pub deaths: u32,
    pub joins: u32,
    pub restarts: u32,
    /// How often somebody pauses the job, and resumes it at the latest when nothing moves any more.
    pub pauses: u32,
    /// Shards that are killed and come back without what they held. The job then keeps checkpoints.
    pub crashes: u32,
    /// How often the engine dies and the store has lost the last that it had acknowledged. The job then
    /// keeps checkpoints.
    pub losses: u32,
    /// Whether it is evaluated after each epoch.
    pub evaluations: bool,
    /// Whether it hands on the parameters of the best of these.
    pub keep_best: bool,
    /// After how many of these without a better one it stops; 0: after none.
    pub patience: u32,
    /// Whether these are on samples of their own.
    pub validates: bool,
    pub ahead: Option<u32>,
    /// Instead of the job itself a graph is submitted that trains it so often, every second time after the
    /// time before. In front of each training is a call that fails a few times, behind each one that
    /// adds others, and behind these the last one, which takes what they give.
    pub trainings: u32,
}

impl Settings {
    /// What a worker says of itself.
    pub fn about(&self, worker: Incarnation) -> WorkerInfo {
        let slots = u64::from(self.training_slots);
        let (process, slot) = ((worker.0 - 1) / slots, (worker.0 - 1) % slots);
        let process = if slots > 1 { process + 1 } else { 0 };
        let capacity = if self.trainings > 0 { calls::capacity(2) } else { WorkerInfo::default().capacity };
        WorkerInfo {
            name: format!("worker-{worker}"),
            process: ProcessId::new(process),
            training_slot: slot as u32 + 1,
            capacity,
            ..WorkerInfo::default()
        }
    }

    pub fn quiet(policy: &'static str) -> Self {
        Self {
            seed: 1,
            policy,
            workers: 4,
            training_slots: 1,
            shards: 2,
            samples: 100,
            epochs: 2,
            batch: 5,
            drop_last: false,
            deaths: 0,
            joins: 0,
            restarts: 0,
            pauses: 0,
            crashes: 0,
            losses: 0,
            evaluations: false,
            keep_best: false,
            patience: 0,
            validates: false,
            ahead: None,
            trainings: 0,
        }
    }
}

/// What is submitted.
pub fn submission(s: &Settings) -> Input {
    if s.trainings == 0 {
        return Input::Submit(Submission { spec: Box::new(spec(s)), nonce: 7, if_taken: IfTaken::Refuse });
    }
    let work = Work::Train(PreparedTraining::new(&spec(s)).unwrap());
    let rules = Rules { backoff: Backoff { first_ms: 1, longest_ms: 5 }, ..Rules::default() };
    let call = |kind: Kind, args: Vec<Arg>, after| NewTask {
        class: ClassIndex(1),
        args: [vec![Arg::Value(kind.bytes())], args].concat(),
        after,
        name: None,
    };
    let n = s.trainings;
    let train = |at: u32| {
        let before = if at % 2 == 1 { vec![TaskRef::New(n + at - 1)] } else { Vec::new() };
        let flaky = TaskRef::New(at);
        NewTask { class: ClassIndex(0), args: Vec::new(), after: [before, vec![flaky]].concat(), name: None }
    };
    let flaky = (0..n).map(|at| call(Kind::Flaky((at % 3) as u8), vec![], vec![]));
    let behind = (0..n).map(|at| call(Kind::Spawn(SPAWNED), vec![], vec![TaskRef::New(n + at)]));
    let all = (0..n).map(|at| TaskRef::New(2 * n + at)).collect();
    let last = call(Kind::Sum, vec![Arg::Outputs(all)], vec![]);
    let spec = GraphSpec {
        id: "graph".parse().unwrap(),
        digest: GraphDigest::default(),
        classes: vec![TaskClass { work, rules }, calls::class()],
        tasks: flaky.chain((0..n).map(train)).chain(behind).chain([last]).collect(),
        complete: true,
    };
    Input::SubmitGraph(GraphSubmission { spec: Box::new(spec), nonce: 7, if_taken: IfTaken::Refuse })
}

/// Tasks that each call behind a training adds.
const SPAWNED: u8 = 2;

/// The last task of a graph that trains, and what it gives.
pub fn last_call(s: &Settings) -> (TaskIndex, u64) {
    let each = Kind::Spawn(SPAWNED).value(0).unwrap();
    (TaskIndex(3 * s.trainings), u64::from(s.trainings) * each + 1)
}

/// The jobs that train.
pub fn jobs(s: &Settings) -> Vec<JobId> {
    let graph: JobId = "graph".parse().unwrap();
    match s.trainings {
        0 => vec!["job".parse().unwrap()],
        n => (n..2 * n).map(|task| graph.of_training(task, 1)).collect(),
    }
}

/// The job that these settings mean: training, then an evaluation and a snapshot.
pub fn spec(s: &Settings) -> JobSpec {
    let stops = EvaluateSpec::every_epochs(1).early_stopping(EarlyStopping::patience(s.patience.max(1)));
    let early_stopping = stops.early_stopping.filter(|_| s.patience > 0);
    let evaluate = EvaluateSpec { keep_best: s.keep_best, early_stopping, ..stops };
    let train = sim::training(s.policy.parse().unwrap(), s.samples, s.batch.min(s.samples as u32));
    // What is kept of the best is enough to go back to.
    let checkpoints = s.crashes + s.losses > 0 && !(s.keep_best && s.seed.is_multiple_of(2));
    let train = TrainSpec {
        epochs: s.epochs,
        drop_last: s.drop_last,
        min_workers: if s.deaths == 0 { s.workers.div_ceil(s.training_slots) } else { 1 },
        ahead: s.ahead,
        checkpoint: checkpoints
            .then_some(CheckpointSpec { every_s: Some(1), ..CheckpointSpec::every_epochs(1) }),
        evaluate: s.evaluations.then_some(evaluate),
        data: DataSpec {
            validation_percent: (s.evaluations && s.validates).then_some(10),
            split: Split::TestEvery(5),
            ..train.data.clone()
        },
        ..train
    };
    let name = |n: &str| n.parse().unwrap();
    let node = |n: &str, after: &[&str], kind| Node {
        name: name(n),
        after: after.iter().map(|a| name(a)).collect(),
        retries: 20,
        kind,
    };
    JobSpec {
        id: "job".parse().unwrap(),
        nodes: vec![
            node("train", &[], NodeKind::Train(Box::new(train))),
            node("evaluate", &["train"], NodeKind::Evaluate),
            node("snapshot", &["train"], NodeKind::Snapshot),
        ],
    }
}
