use syncline_autodiff::{DeriveOptions, Loss, LossOptions, TrainingGraph, derive};
use syncline_onnx::{ElementType, GraphBuilder, ModelProto, SplitMix64, mlp};
use syncline_scheduler::spec::{ElementRange, StepSettings};

use super::*;
use crate::onnxruntime::runtime;

pub(super) const FEATURES: usize = 3;
/// Draws of the first worker.
pub(super) const DRAWS: DrawStream = DrawStream { seed: 0, worker: 0, part: 0 };
/// The label of samples without weight.
pub(super) const IGNORED: i64 = -1;

/// What a step gave, copied.
pub(super) struct Got {
    pub loss: f32,
    pub weight: f32,
    pub pushed: Vec<Vec<f32>>,
}

/// A graph with its parameters at their first values.
pub(super) struct Rig {
    pub graph: TrainingGraph,
    pub params: Parameters,
}

impl Rig {
    pub(super) fn new(model: &ModelProto) -> Self {
        Self::of(model, LossOptions { ignore_index: Some(IGNORED), ..LossOptions::default() })
    }

    pub(super) fn of(model: &ModelProto, loss: LossOptions) -> Self {
        let options = DeriveOptions { loss, sparse: vec!["table".to_owned()], ..DeriveOptions::default() };
        let has_table = model.graph.iter().flat_map(|g| &g.initializer).any(|tensor| tensor.name == "table");
        let options = if has_table { options } else { DeriveOptions { sparse: Vec::new(), ..options } };
        let graph = derive(&runtime(), &model.to_bytes(), Loss::SoftmaxCrossEntropy, &options).unwrap();
        let trained = graph.params.len();
        let settings = vec![StepSettings::default(); trained];
        let mut params = Parameters { values: Vec::new(), tensors: Vec::new(), trained, settings };
        for param in graph.params.iter().chain(&graph.state) {
            let start = params.values.len() as u64;
            params.values.extend(&param.initial);
            let range = ElementRange { start, end: params.values.len() as u64 };
            let (name, shape) = (param.name.clone(), param.shape.clone());
            params.tensors.push(Tensor { name, shape, range });
        }
        Self { graph, params }
    }

    pub(super) fn replicas(&self, threads: usize, split: bool) -> Replicas {
        self.cutting(threads, BatchCut { split, at_once: None })
    }

    pub(super) fn cutting(&self, threads: usize, cut: BatchCut) -> Replicas {
        let exec = ExecOptions { intra_threads: threads, ..ExecOptions::default() };
        Replicas::new(&runtime(), &self.graph.train_onnx, &exec, cut, &self.params, DRAWS).unwrap()
    }

    pub(super) fn run(&self, replicas: &mut Replicas, x: &[f32], labels: &[i64]) -> Got {
        self.try_run(replicas, x, labels).unwrap()
    }

    pub(super) fn try_run(
        &self,
        replicas: &mut Replicas,
        x: &[f32],
        labels: &[i64],
    ) -> Result<Got, WorkerError> {
        let shapes = [vec![labels.len(), FEATURES], vec![labels.len()]];
        let samples = vec![
            ("x", TensorView::F32 { shape: &shapes[0], data: x }),
            ("label", TensorView::I64 { shape: &shapes[1], data: labels }),
        ];
        self.step(replicas, &samples)
    }

    pub(super) fn step(&self, replicas: &mut Replicas, samples: &Inputs<'_>) -> Result<Got, WorkerError> {
        let step = replicas.run(samples, &self.params.inputs().collect())?;
        let pushed = step.pushed().unwrap().into_iter().map(<[f32]>::to_vec).collect();
        Ok(Got { loss: step.loss, weight: step.weight, pushed })
    }
}

/// Batch normalization of the features before two classes.
pub(super) fn normalized() -> ModelProto {
    let mut graph = GraphBuilder::new("normalized");
    let x = graph.input("x", ElementType::F32, &["batch".into(), FEATURES.into()]);
    let inputs = [("scale", 1.0), ("bias", 0.5), ("mean", 0.0), ("variance", 1.0)]
        .map(|(name, first)| graph.weight(name, &[FEATURES], &[first; FEATURES]));
    let [scale, bias, mean, variance] = &inputs;
    let y = graph.op("BatchNormalization", &[&x, scale, bias, mean, variance], &[]);
    let w = graph.weight("w", &[FEATURES, 2], &[0.1, -0.1, 0.2, 0.3, -0.4, 0.7]);
    let y = graph.op("MatMul", &[&y, &w], &[]);
    graph.output(&y);
    graph.finish()
}

pub(super) fn features(rows: usize) -> Vec<f32> {
    let mut random = SplitMix64::new(7);
    (0..rows * FEATURES).map(|_| random.normal() as f32).collect()
}

/// Each tensor's elements may differ by a share of the largest.
pub(super) fn assert_close(got: &Got, want: &Got, case: &str) {
    assert_eq!(got.weight, want.weight, "{case}");
    let pairs = got.pushed.iter().zip(&want.pushed).map(|(got, want)| (got.as_slice(), want.as_slice()));
    for (got, want) in pairs.chain([(&[got.loss][..], &[want.loss][..])]) {
        let most = want.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6 * most;
        assert!(
            got.len() == want.len() && got.iter().zip(want).all(close),
            "{case}: {got:?}, expected {want:?}"
        );
    }
    assert_eq!(got.pushed.len(), want.pushed.len(), "{case}");
}

#[test]
fn parts_give_what_the_whole_batch_gives() {
    let rig = Rig::new(&mlp(&[FEATURES, 5, 2], 1));
    let mut whole = rig.replicas(1, false);
    #[rustfmt::skip]
    let cases: &[(&str, &[i64])] = &[
        ("all count",              &[0, 1, 1, 0, 1, 0]),
        ("not divisible",          &[0, 1, 1, 0, 1, 0, 0]),
        ("weights differ",         &[0, IGNORED, IGNORED, 0, 1, 0, 1]),
        ("a part weighs nothing",  &[IGNORED, IGNORED, IGNORED, 0, 1, 0]),
        ("nothing weighs",         &[IGNORED; 5]),
        ("as many as parts",       &[0, 1, 1]),
        ("fewer samples than parts", &[1, 0]),
        ("one sample",             &[1]),
        ("no sample",              &[]),
    ];
    for threads in [2, 3] {
        let mut replicas = rig.replicas(threads, true);
        assert_eq!(replicas.replicas.len(), threads);
        for (case, labels) in cases {
            let x = features(labels.len());
            let (got, want) = (rig.run(&mut replicas, &x, labels), rig.run(&mut whole, &x, labels));
            assert_close(&got, &want, &format!("{case}, {threads} parts"));
        }
    }
}

#[test]
fn statistics_and_gradients_are_the_weighted_mean_of_the_parts_own() {
    let rig = Rig::new(&normalized());
    let (mut whole, mut replicas) = (rig.replicas(1, false), rig.replicas(2, true));
    let cases: &[(&str, &[i64])] = &[
        ("all count", &[0, 1, 1, 0, 1, 0, 1, 1]),
        ("weights differ", &[0, IGNORED, IGNORED, IGNORED, 1, 0, 1, IGNORED]),
        ("a part weighs nothing", &[1, 0, 1, 1, IGNORED, IGNORED, IGNORED, IGNORED]),
        ("nothing weighs", &[IGNORED; 7]),
    ];
    for (case, labels) in cases {
        let (x, half) = (features(labels.len()), labels.len() / 2);
        let (x1, x2) = x.split_at(half * FEATURES);
        let (l1, l2) = labels.split_at(half);
        let parts = [rig.run(&mut whole, x1, l1), rig.run(&mut whole, x2, l2)];
        let share = |i: usize| match parts[0].weight + parts[1].weight {
            0.0 => [l1, l2][i].len() as f32 / labels.len() as f32,
            all => parts[i].weight / all,
        };
        let mean = |a: &f32, b: &f32| a * share(0) + b * share(1);
        let pairs = parts[0].pushed.iter().zip(&parts[1].pushed);
        let want = Got {
            loss: mean(&parts[0].loss, &parts[1].loss),
            weight: parts[0].weight + parts[1].weight,
            pushed: pairs.map(|(a, b)| a.iter().zip(b).map(|(a, b)| mean(a, b)).collect()).collect(),
        };
        assert_eq!(want.pushed.len(), 5, "three gradients, mean and variance");
        assert_close(&rig.run(&mut replicas, &x, labels), &want, case);
    }
}

#[test]
fn a_batch_is_split_only_on_request_and_among_several_threads() {
    let rig = Rig::new(&mlp(&[FEATURES, 2], 1));
    let cases = [(1, false, 1), (1, true, 1), (2, false, 1), (2, true, 2), (4, true, 4)];
    for (threads, split, sessions) in cases {
        assert_eq!(rig.replicas(threads, split).replicas.len(), sessions, "{threads} threads, {split}");
    }
}

#[test]
fn a_graph_that_does_not_give_what_the_parameters_need_is_refused() {
    let mut rig = Rig::new(&mlp(&[FEATURES, 2], 1));
    let mut short = rig.replicas(2, true);
    short.pushed.all[0].elements -= 1;
    let shape = [2, FEATURES];
    let x = features(2);
    let samples = vec![
        ("x", TensorView::F32 { shape: &shape, data: &x }),
        ("label", TensorView::I64 { shape: &shape[..1], data: &[0, 1] }),
    ];
    let rest = rig.params.inputs().collect();
    assert_eq!(short.run(&samples, &rest).err().unwrap().code(), "E352");
    short.replicas.truncate(1);
    let step = short.run(&samples, &rest).unwrap();
    assert_eq!(step.pushed().unwrap_err().code(), "E352");
    rig.params.tensors[0].name = "unknown".to_owned();
    let exec = ExecOptions::default();
    let replicas =
        Replicas::new(&runtime(), &rig.graph.train_onnx, &exec, BatchCut::default(), &rig.params, DRAWS);
    assert_eq!(replicas.err().unwrap().code(), "E352");
}
