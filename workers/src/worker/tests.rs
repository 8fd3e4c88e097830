//! The executor against real shards and ONNX Runtime: what it pushes, and when it reports.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use syncline_autodiff::Loss;
use syncline_onnx::{ElementType, GraphBuilder};
use syncline_ps::{
    client::{BlobClient, CancelToken, ClientOptions, ReadCondition, ShardSet},
    server::{Handle, Options, Server},
    transport::TransportChoice,
    wire::SessionKey,
};
use syncline_rpc::{
    BarrierOrder, JobSetup, OpenJob, ShardClient, ShardRequest, ShardResponse, ShardState, Token, connect,
    hello::Role,
};
use syncline_runtime::{Device, ExecOptions, Runtime};
use syncline_scheduler::{
    core::{Assignment, GradientUse, Outcome, TaskKey, Work},
    fault_code::FaultCode,
    graph::TaskId,
    ids::{EngineEpoch, Generation, Incarnation, JobId, RunId, ShardIndex, Superstep},
    samples::{SampleRange, permutation},
    spec::{DataSpec, Optimizer, Source, TrainSpec},
    sync::RoundRule,
};

use super::{
    Throttle,
    executor::{End, execute},
    job::WorkerContext,
    local_steps::UnfitJobs,
    report::Finished,
    shared_pages::SharedPages,
    task_tracker::TaskTracker,
};
use crate::submit::{JobGraph, Model, Training, prepare};
use tarpc::{client, context};
use tokio::sync::mpsc as async_mpsc;

const EPOCH: EngineEpoch = EngineEpoch(1);
const ROWS: usize = 64;
const RATE: f32 = 0.05;
const MOMENTUM: f32 = 0.5;
const CLIP: f32 = 2.0;

/// Row `i` of the data: two features and what they should give.
fn row(i: usize) -> [f32; 3] {
    let (a, b) = ((i % 7) as f32 / 4.0 - 0.75, (i % 5) as f32 / 2.0 - 1.0);
    [a, b, 3.0 * a - 2.0 * b + 0.5]
}

/// Two shards with one open job: y = x W + b, trained with momentum and clipping.
struct Rig {
    run: RunId,
    train: TrainSpec,
    token: Token,
    onnx: Runtime,
    /// Of a worker; more than one have a part of the batch each.
    threads: usize,
    /// Of a worker: as on a device, in ordinary memory.
    resident_rounds: bool,
    shards: Vec<Handle>,
    runtime: tokio::runtime::Runtime,
    controls: Vec<ShardClient>,
    _dir: tempfile::TempDir,
}

impl Rig {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data.csv");
        let line = |i| row(i).map(|x| x.to_string()).join(",");
        std::fs::write(&data, (0..ROWS).map(line).collect::<Vec<_>>().join("\n")).unwrap();
        let mut graph = GraphBuilder::new("line");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
        let w = graph.weight("w", &[2, 1], &[0.5, 0.25]);
        let b = graph.weight("b", &[1], &[0.0]);
        let y = graph.op("MatMul", &[&x, &w], &[]);
        let y = graph.op("Add", &[&y, &b], &[]);
        graph.output(&y);
        let model = Model::forward(graph.finish().to_bytes(), Loss::MeanSquaredError);
        let path = data.display().to_string();
        let data = DataSpec::new(Source::csv(path));
        let training = Training::new(model, data).with(|s| {
            s.optimizer = Optimizer::Momentum { momentum: MOMENTUM, nesterov: false, weight_decay: 0.0 };
            s.clip_norm = Some(CLIP);
            s.batch = 4;
        });
        let onnx =
            Runtime::load(&syncline_kit::onnxruntime(&|line| eprintln!("{line}")).unwrap().path).unwrap();
        let prepared = prepare(&onnx, &{
            let mut job = JobGraph::new("line");
            job.train("train", training);
            job
        })
        .unwrap();
        let (token, runtime) = (Token::generate(), tokio::runtime::Runtime::new().unwrap());
        let start = |index: u32| {
            let options = Options {
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                token: token.clone(),
                state_dir: dir.path().join(index.to_string()),
                index,
                count: 2,
                engine: None,
                advertise: None,
                replicas: 1,
            };
            Server::start(options).unwrap()
        };
        let shards: Vec<Handle> = (0..2).map(start).collect();
        for bytes in prepared.blobs.values() {
            BlobClient::new(token.clone()).put(&shards[0].address().to_string(), bytes).unwrap();
        }
        let control = |shard: &Handle| {
            runtime.block_on(async {
                let address = shard.address().to_string();
                let transport =
                    connect::<ShardRequest, ShardResponse>(&address, Role::Control, &token).await.unwrap();
                ShardClient::new(client::Config::default(), transport).spawn()
            })
        };
        let controls = shards.iter().map(control).collect();
        let (_, train) = prepared.spec.train().unwrap();
        let (job, train) = (prepared.spec.id.clone(), train.clone());
        let run = RunId { job, generation: Generation(1) };
        let rig = Self {
            run,
            train,
            token,
            onnx,
            threads: 1,
            resident_rounds: false,
            shards,
            runtime,
            controls,
            _dir: dir,
        };
        for (shard, control) in (0..).zip(&rig.controls) {
            let order = OpenJob {
                run: rig.run.clone(),
                shard: ShardIndex(shard),
                shards: rig.addresses(),
                layout: rig.train.model.layout.clone(),
                optimizer: rig.train.optimizer,
                clip_norm: rig.train.shard_clip_norm(),
                initial: rig.train.model.initial.clone(),
                resumed: None,
                checkpoint: None,
            };
            rig.runtime.block_on(control.open(context::current(), EPOCH, order)).unwrap().unwrap();
        }
        rig
    }

    /// Rigs whose workers take local steps in their own memory, and by the bindings of a device.
    fn both() -> [Self; 2] {
        let policy = "local-sgd:4".parse().unwrap();
        let [memory, mut device] = [Self::start(), Self::start()];
        (device.resident_rounds, device.train.policy) = (true, policy);
        [memory, device]
    }

    fn addresses(&self) -> Vec<String> {
        self.shards.iter().map(|shard| shard.address().to_string()).collect()
    }

    /// PollReply a barrier that averages what comes.
    fn barrier(&self, superstep: u64, roster: &[(u64, u64)]) {
        let roster: BTreeMap<_, _> = roster.iter().map(|&(w, last)| (Incarnation(w), last)).collect();
        for control in &self.controls {
            let order = BarrierOrder {
                superstep: Superstep(superstep),
                revision: 0,
                roster: roster.clone(),
                rule: RoundRule::Average,
                learning_rate: 0.0,
                pin: false,
            };
            let call = control.barrier(context::current(), EPOCH, self.run.clone(), order);
            self.runtime.block_on(call).unwrap().unwrap();
        }
    }

    fn state(&self, shard: usize) -> ShardState {
        let call = self.controls[shard].attach(context::current(), EPOCH, self.run.job.clone());
        self.runtime.block_on(call).unwrap().unwrap().unwrap()
    }

    /// The parameters of version `closed` as an onlooker sees them.
    fn parameters(&self, closed: u64) -> Vec<f32> {
        let elements = self.train.model.layout.elements().unwrap();
        let (addresses, token, run) = (self.addresses(), self.token.clone(), self.run.clone());
        let mut values = vec![0.0; elements as usize];
        let mut onlooker = ShardSet::connect(&addresses, token, run, Incarnation(99), elements).unwrap();
        onlooker.pull(ReadCondition::version(closed), &mut values).unwrap();
        values
    }

    fn key(&self, worker: u64, seq: u64) -> TaskKey {
        let task = TaskId::Iteration { worker: Incarnation(worker), seq };
        TaskKey { run: self.run.clone(), task, attempt: 1 }
    }

    fn iteration(&self, worker: u64, it: It) -> Assignment {
        let It { superstep, seq, range, gradient } = it;
        let work = Work::Iterate {
            superstep: Superstep(superstep),
            seq,
            range,
            learning_rate: RATE,
            min_clock: 0,
            gradient,
        };
        Assignment { key: self.key(worker, seq), worker_number: 0, work }
    }

    /// Executes `its` as `worker`; `revoked`: numbers that must not be started. Returns what was reported.
    fn execute(&self, worker: u64, its: &[It], revoked: &[u64]) -> Vec<Finished> {
        let revoked: Vec<_> = revoked.iter().map(|&seq| self.key(worker, seq)).collect();
        self.execute_all(worker, its.iter().map(|it| self.iteration(worker, *it)).collect(), &revoked)
    }

    fn execute_all(&self, worker: u64, given: Vec<Assignment>, revoked: &[TaskKey]) -> Vec<Finished> {
        let (context, tracker) = (self.context(worker), Arc::new(TaskTracker::default()));
        let (give, tasks) = mpsc::channel();
        let (finish, mut finished) = async_mpsc::unbounded_channel();
        given.iter().for_each(|assignment| tracker.queue(&assignment.key));
        tracker.revoke(revoked);
        given.into_iter().for_each(|assignment| give.send(assignment).unwrap());
        drop(give);
        let setup =
            |_: &JobId| Ok(JobSetup { epoch: EPOCH, train: self.train.clone(), shards: self.addresses() });
        assert_eq!(execute(&context, &tasks, &finish, &tracker, setup), End::Stopped);
        drop(finish);
        std::iter::from_fn(|| finished.blocking_recv()).collect()
    }

    fn context(&self, worker: u64) -> WorkerContext {
        WorkerContext {
            incarnation: Incarnation(worker),
            token: self.token.clone(),
            runtime: self.onnx.clone(),
            exec: ExecOptions { intra_threads: self.threads, ..ExecOptions::default() },
            split_batch: self.threads > 1,
            throttle: Throttle::default(),
            transport: TransportChoice::Auto,
            max_batch: None,
            resident_rounds: self.resident_rounds,
            unfit: UnfitJobs::default(),
        }
    }

    /// Mean squared error's gradient for `values` = (w, w, b), clipped as the job says.
    fn gradient(&self, values: &[f32], range: SampleRange) -> Vec<f32> {
        let gradient = self.whole_gradient(values, range);
        let norm = gradient.iter().map(|g| g * g).sum::<f32>().sqrt();
        let scale = if norm > CLIP { CLIP / norm } else { 1.0 };
        gradient.iter().map(|g| g * scale).collect()
    }

    /// The same as it is.
    fn whole_gradient(&self, values: &[f32], range: SampleRange) -> [f32; 3] {
        let order = permutation(self.train.seed, range.epoch, ROWS as u32);
        let rows = &order[range.start as usize..(range.start + u64::from(range.len)) as usize];
        let mut gradient = [0.0f32; 3];
        for &i in rows {
            let [a, b, y] = row(i as usize);
            let error = values[0] * a + values[1] * b + values[2] - y;
            for (sum, x) in gradient.iter_mut().zip([a, b, 1.0]) {
                *sum += 2.0 * error * x / range.len as f32;
            }
        }
        gradient
    }
}

/// One iteration of a test.
#[derive(Clone, Copy)]
struct It {
    superstep: u64,
    seq: u64,
    range: SampleRange,
    gradient: GradientUse,
}

fn range(start: u64, len: u32) -> SampleRange {
    SampleRange { epoch: 0, start, len }
}

/// Local iterations `from..=to` of the round `first..=last`, `len` samples each.
fn local(superstep: u64, round: (u64, u64), seqs: std::ops::RangeInclusive<u64>, len: u32) -> Vec<It> {
    let (first, last) = round;
    let it = |seq| It {
        superstep,
        seq,
        range: range((seq - 1) * u64::from(len), len),
        gradient: GradientUse::LocalStep { first, last },
    };
    seqs.map(it).collect()
}

fn seqs(reports: &[Finished]) -> Vec<u64> {
    let seq = |report: &Finished| match report.key.task {
        TaskId::Iteration { seq, .. } => seq,
        _ => 0,
    };
    reports.iter().map(seq).collect()
}

fn assert_close(got: &[f32], want: &[f32]) {
    assert!(
        got.len() == want.len() && got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-5),
        "{got:?}, expected {want:?}"
    );
}

#[test]
fn two_workers_that_step_locally_meet_at_the_mean_of_where_they_got() {
    Rig::both().iter().for_each(step_locally_and_meet);
}

#[test]
fn local_steps_on_batches_in_pieces_are_those_on_whole_ones_also_where_a_device_would_take_them() {
    for mut rig in Rig::both() {
        rig.train.micro_batch = Some(3);
        step_locally_and_meet(&rig);
    }
}

fn step_locally_and_meet(rig: &Rig) {
    const H: u64 = 4;
    let batches = [(1, 4u32), (2, 2)];
    let rounds = |len| [local(0, (1, H), 1..=H, len), local(1, (H + 1, 2 * H), H + 1..=2 * H, len)].concat();
    for round in 0..2 {
        rig.barrier(round, &batches.map(|(worker, _)| (worker, (round + 1) * H)));
    }
    // The second round can begin only when both have ended the first.
    let reports = thread::scope(|scope| {
        let run = |(worker, len): (u64, u32)| scope.spawn(move || rig.execute(worker, &rounds(len), &[]));
        batches.map(run).map(|worker| worker.join().unwrap())
    });

    let mut want = vec![0.5, 0.25, 0.0];
    let mut velocities = [vec![0.0f32; 3], vec![0.0f32; 3]];
    for round in 0..2 {
        let mut mean = vec![0.0f32; 3];
        let all: u32 = batches.iter().map(|(_, len)| len).sum();
        for ((_, len), velocity) in batches.iter().zip(&mut velocities) {
            let mut own = want.clone();
            for it in &rounds(*len)[round * H as usize..(round + 1) * H as usize] {
                let gradient = rig.gradient(&own, it.range);
                for ((x, v), g) in own.iter_mut().zip(velocity.iter_mut()).zip(gradient) {
                    *v = MOMENTUM * *v + g;
                    *x -= RATE * *v;
                }
            }
            for (mean, x) in mean.iter_mut().zip(own) {
                *mean += x * *len as f32 / all as f32;
            }
        }
        want = mean;
    }
    assert_close(&rig.parameters(2), &want);
    for reports in &reports {
        assert_eq!(seqs(reports), (1..=2 * H).collect::<Vec<_>>());
        assert!(reports.windows(2).all(|pair| pair[0].ended < pair[1].ended));
    }
    for shard in 0..2 {
        let state = rig.state(shard);
        assert_eq!((state.pushes, state.watermarks[&Incarnation(1)]), (4, 2 * H));
    }
}

#[test]
fn a_round_that_is_not_pushed_is_not_reported() {
    for rig in Rig::both() {
        assert_eq!(seqs(&rig.execute(1, &local(0, (1, 4), 1..=3, 4), &[])), [] as [u64; 0]);
        assert_eq!(rig.state(0).pushes, 0);
    }
}

#[test]
fn a_revoked_iteration_takes_its_round_with_it() {
    for rig in Rig::both() {
        // What follows begins where the shards stand.
        let its = [local(0, (1, 4), 1..=3, 4), local(0, (1, 2), 1..=2, 4)].concat();
        assert_eq!(seqs(&rig.execute(1, &its, &[3])), [1, 2]);
        assert_eq!(rig.state(1).watermarks[&Incarnation(1)], 2);
    }
}

#[test]
fn a_revocation_that_comes_when_its_task_is_about_to_end_leaves_the_next_one_alone() {
    let rig = Rig::start();
    let (mut context, tracker) = (rig.context(1), Arc::new(TaskTracker::default()));
    // Behind a step in the middle of a round nothing looks whether it is still wanted.
    context.throttle.step = Duration::from_millis(500);
    let (give, tasks) = mpsc::channel();
    let (finish, mut finished) = async_mpsc::unbounded_channel();
    let setup = |_: &JobId| Ok(JobSetup { epoch: EPOCH, train: rig.train.clone(), shards: rig.addresses() });
    thread::scope(|scope| {
        let (context, tracker) = (&context, &tracker);
        let executor = scope.spawn(move || execute(context, &tasks, &finish, tracker, setup));
        let give_steps = |round, seqs| {
            for it in local(0, round, seqs, 4) {
                let assignment = rig.iteration(1, it);
                tracker.queue(&assignment.key);
                give.send(assignment).unwrap();
            }
        };
        give_steps((1, 4), 1..=2);
        let second = |running: String| running.starts_with("it/w1/2 ");
        while !tracker.running().is_some_and(second) || tracker.timer.running_and_longest_ms().0 < 20 {
            thread::yield_now();
        }
        tracker.revoke(&[rig.key(1, 2)]);
        give_steps((1, 2), 1..=2);
        drop(give);
        assert_eq!(executor.join().unwrap(), End::Stopped);
    });
    let reports: Vec<_> = std::iter::from_fn(|| finished.blocking_recv()).collect();
    assert_eq!(seqs(&reports), [1, 2], "those of the round that was whole");
}

#[test]
fn a_step_out_of_its_round_fails_and_says_what_came_next() {
    let rig = Rig::start();
    let its = [local(0, (1, 4), 2..=2, 4), local(0, (1, 4), 1..=1, 4), local(0, (1, 4), 3..=3, 4)].concat();
    let reports = rig.execute(1, &its, &[]);
    let reasons: Vec<&str> = reports
        .iter()
        .map(|report| match &report.outcome {
            Outcome::Failed { code, reason, .. } if *code == FaultCode::new("E460") => reason.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(seqs(&reports), [2, 3]);
    assert!(reasons[0].contains("no round is open") && reasons[1].contains("iteration 2"), "{reasons:?}");
}

#[test]
fn a_push_of_its_own_is_a_step_scaled_by_its_share_in_parts_in_pieces_or_whole() {
    for (threads, micro_batch) in [(1, None), (2, None), (3, None), (1, Some(1)), (1, Some(3)), (2, Some(2))]
    {
        let mut rig = Rig::start();
        (rig.threads, rig.train.micro_batch) = (threads, micro_batch);
        let it = It {
            superstep: 0,
            seq: 1,
            range: range(8, 4),
            gradient: GradientUse::ApplyOnArrival { scale: 0.5 },
        };
        let start = rig.parameters(0);
        assert_eq!(seqs(&rig.execute(1, &[it], &[])), [1]);
        let gradient = rig.gradient(&start, it.range);
        let want: Vec<f32> = start.iter().zip(gradient).map(|(x, g)| x - RATE * 0.5 * g).collect();
        assert_close(&rig.parameters(0), &want);
    }
}

#[test]
fn supersteps_may_change_from_steps_to_rounds() {
    let rig = Rig::start();
    let step =
        It { superstep: 0, seq: 1, range: range(0, 4), gradient: GradientUse::ApplyOnArrival { scale: 1.0 } };
    let joined = It { superstep: 1, seq: 2, range: range(4, 4), gradient: GradientUse::JoinRound };
    rig.barrier(0, &[(1, 1)]);
    let start = rig.parameters(0);
    assert_eq!(seqs(&rig.execute(1, &[step, joined], &[])), [1, 2]);
    let before = rig.parameters(1);
    let first = rig.gradient(&start, step.range);
    assert_close(&before, &start.iter().zip(first).map(|(x, g)| x - RATE * g).collect::<Vec<_>>());
    // This barrier averages: it takes the gradient for a change, as it is. A round is clipped by the shards if at all.
    rig.barrier(1, &[(1, 2)]);
    let second = rig.whole_gradient(&before, joined.range);
    assert_close(&rig.parameters(2), &before.iter().zip(second).map(|(x, g)| x - g).collect::<Vec<_>>());
}

#[test]
fn what_a_worker_computes_to_prepare_itself_counts_nowhere() {
    let [memory, device] = Rig::both();
    for (rig, threads) in [(memory, 1), (Rig::start(), 2), (device, 1)] {
        let rig = Rig { threads, ..rig };
        let before = rig.parameters(0);
        let key = TaskKey { task: TaskId::Prepare(Incarnation(1)), ..rig.key(1, 1) };
        let prepare = Assignment { key, worker_number: 0, work: Work::Prepare { range: range(0, 4) } };
        let gradient = GradientUse::ApplyOnArrival { scale: 1.0 };
        let first = It { superstep: 0, seq: 1, range: range(4, 4), gradient };
        let reports = rig.execute_all(1, vec![prepare, rig.iteration(1, first)], &[]);
        assert_eq!(reports[0].outcome, Outcome::Prepared);
        assert!(matches!(reports[1].outcome, Outcome::Iterated(it) if it.range == range(4, 4)));
        let stepped = rig.gradient(&before, range(4, 4)).into_iter().zip(&before).map(|(g, w)| w - RATE * g);
        assert_close(&rig.parameters(0), &stepped.collect::<Vec<_>>());
    }
}

#[test]
fn a_gpu_that_cannot_share_memory_is_told_once_and_gets_copies() {
    let rig = Rig::start();
    let at = SessionKey { run: rig.run.clone(), incarnation: Incarnation(1) };
    let elements = rig.train.model.layout.elements().unwrap();
    let options = ClientOptions { in_place: true, ..ClientOptions::default() };
    let (addresses, token) = (rig.addresses()[..].into(), rig.token.clone());
    let mut shards =
        ShardSet::connect_with(&addresses, token, at, elements, options, CancelToken::default()).unwrap();
    shards.pull_in_place(ReadCondition::version(0), &mut vec![0.0; elements as usize], []).unwrap();
    assert!(shards.lent_memory().next().is_some());
    let area = shards.gradient_area().expect("shards on this machine share memory");
    // It was loaded for the CPU, so that nothing can be locked.
    let mut on_gpu = SharedPages::new(&rig.onnx, Device::Cuda(0));
    assert!(!on_gpu.take_gradients(&area));
    for _ in 0..2 {
        on_gpu.follow(&shards);
        assert_eq!(on_gpu.lent.len(), shards.lent_memory().count());
    }
    let mut on_cpu = SharedPages::new(&rig.onnx, Device::Cpu);
    assert!(on_cpu.take_gradients(&area));
    on_cpu.follow(&shards);
    assert!(on_cpu.lent.is_empty());
}
