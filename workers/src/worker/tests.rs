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
    client::{BlobClient, CancelToken, ClientOptions, ShardSet},
    server::{self, Handle, Options},
    shard::ReadCondition,
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
    device_watch::DeviceWatch,
    executor::{End, execute},
    job::WorkerContext,
    local_steps::UnfitJobs,
    report::Finished,
    shared_pages::SharedPages,
    task_tracker::TaskTracker,
};
use crate::{
    submit::{JobGraph, Model, Training, prepare},
    waiting::until,
};
use tarpc::{client, context};
use tokio::sync::mpsc as async_mpsc;

mod local_rounds;
mod lost_device;
mod preparing;
mod pushes;
mod stopping;

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
            server::start(options).unwrap()
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
                initial: rig.train.model.initial,
                resumed: None,
                checkpoint: None,
                known_through: None,
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
            let call = control.order_barrier(context::current(), EPOCH, self.run.clone(), order);
            self.runtime.block_on(call).unwrap().unwrap();
        }
    }

    fn state(&self, shard: usize) -> ShardState {
        let call = self.controls[shard].attach(context::current(), EPOCH, self.run.clone());
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
        let setup = |_: &JobId| {
            Ok(JobSetup { epoch: EPOCH, nonce: 0, train: self.train.clone(), shards: self.addresses() })
        };
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
            device: DeviceWatch::new(&self.onnx, Device::Cpu),
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
