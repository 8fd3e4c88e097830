//! A step of the training graph: one execution, or several of one thread each on parts of the batch.
//!
//! ONNX Runtime divides many operators badly among threads. Executions that share nothing use them better, and loss and
//! gradient are weighted means, so that those of the parts make those of the batch, see `batch_mean`. That is exact up to
//! rounding unless samples meet inside the model: BatchNormalization sees the statistics of a part. Dropout draws from
//! the same seed in every part.
//!
//! Cost of N parts: N - 1 threads that start and end, and one pass over N sets of gradients. One execution lends what
//! ONNX Runtime has written: nothing is copied.

use std::{ops::Range, panic::resume_unwind, thread};

use syncline_autodiff::{GRAD_SUFFIX, LOSS, LOSS_WEIGHT, NEXT_SUFFIX};
use syncline_runtime::{Device, ExecOptions, Executable, Outputs, Runtime, TensorView};
use syncline_scheduler::spec::ElementRange;

use super::{
    batch_mean::{Part, batch_mean},
    error::WorkerError,
    parameters::Parameters,
};

/// Inputs of the graph, by name.
pub(super) type Inputs<'a> = Vec<(&'a str, TensorView<'a>)>;

/// The sessions of one training graph, one for each part of a batch.
pub(super) struct Replicas {
    sessions: Vec<Executable>,
    pushed: Vec<Pushed>,
    /// What is pushed, one after the other, of a batch in parts.
    merged: Vec<f32>,
}

/// An output that is pushed.
struct Pushed {
    parameter: String,
    /// Position among the session's outputs.
    output: usize,
    elements: usize,
}

/// What a step gave.
pub(super) struct Step<'s> {
    pub loss: f32,
    pub weight: f32,
    values: Values<'s>,
    pushed: &'s [Pushed],
}

enum Values<'s> {
    Lent(Outputs<'s>),
    Merged(&'s [f32]),
}

impl Replicas {
    /// Loads the graph: once, or once per thread of a CPU if batches are to be split.
    pub(super) fn new(
        runtime: &Runtime,
        graph: &[u8],
        exec: &ExecOptions,
        split_batch: bool,
        params: &Parameters,
    ) -> Result<Self, WorkerError> {
        let (mut exec, mut count) = (exec.clone(), 1);
        if split_batch && exec.device == Device::Cpu {
            (count, exec.intra_threads) = (exec.intra_threads, 1);
        }
        let first = Executable::new(runtime, graph, &exec)?;
        let pushed = pushed(first.output_names(), params)?;
        let mut sessions = vec![first];
        for _ in 1..count {
            sessions.push(Executable::new(runtime, graph, &exec)?);
        }
        Ok(Self { sessions, pushed, merged: Vec::new() })
    }

    /// Computes on `samples`, inputs with a row for each sample, and `rest`, which every part needs. A batch with fewer
    /// samples than parts stays whole.
    pub(super) fn run(&mut self, samples: &Inputs<'_>, rest: &Inputs<'_>) -> Result<Step<'_>, WorkerError> {
        let Self { sessions, pushed, merged } = self;
        let rows = samples.first().and_then(|(_, view)| view.shape().first()).copied().unwrap_or(0);
        let parts = if rows < sessions.len() { 1 } else { sessions.len() };
        if parts == 1 {
            let inputs: Inputs<'_> = samples.iter().chain(rest).copied().collect();
            let outputs = sessions[0].run(&inputs)?;
            let (loss, weight) = (outputs.scalar(LOSS)?, outputs.scalar(LOSS_WEIGHT)?);
            return Ok(Step { loss, weight, values: Values::Lent(outputs), pushed });
        }
        let ranges = (0..parts).map(|part| part * rows / parts..(part + 1) * rows / parts);
        let outputs = thread::scope(|scope| {
            let mut replicas = sessions.iter_mut().zip(ranges.clone());
            let first = replicas.next();
            let others: Vec<_> = replicas
                .map(|(session, rows)| scope.spawn(move || run_part(session, samples, rest, rows)))
                .collect();
            let first = first.map(|(session, rows)| run_part(session, samples, rest, rows));
            let others =
                others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            first.into_iter().chain(others).collect::<Result<Vec<_>, _>>()
        })?;
        let done = outputs.iter().zip(ranges).map(|(outputs, rows)| part(outputs, rows.len(), pushed));
        let done = done.collect::<Result<Vec<_>, _>>()?;
        let (loss, weight) = batch_mean(&done, merged);
        Ok(Step { loss, weight, values: Values::Merged(merged), pushed })
    }
}

impl Step<'_> {
    /// What is pushed, in layout order: gradients, then the buffers' new values.
    pub(super) fn pushed(&self) -> Result<Vec<&[f32]>, WorkerError> {
        match self.values {
            Values::Lent(ref outputs) => self.pushed.iter().map(|pushed| pushed.of(outputs)).collect(),
            Values::Merged(mut rest) => {
                let next = |pushed: &Pushed| rest.split_off(..pushed.elements).unwrap_or_default();
                Ok(self.pushed.iter().map(next).collect())
            }
        }
    }
}

impl Pushed {
    /// The output's numbers; an error if they do not lie as the parameter does.
    fn of<'o>(&self, outputs: &'o Outputs<'_>) -> Result<&'o [f32], WorkerError> {
        let values = outputs.f32_at(self.output)?;
        if values.len() == self.elements {
            return Ok(values);
        }
        let (name, found, expected) = (&self.parameter, values.len(), self.elements);
        let what = format!("the output for `{name}` has {found} elements, expected {expected}");
        Err(WorkerError::Graph { what })
    }
}

/// Where the session's outputs have what is pushed.
fn pushed(outputs: &[String], params: &Parameters) -> Result<Vec<Pushed>, WorkerError> {
    let place = |(index, (name, _, range)): (usize, &(String, _, ElementRange))| {
        let suffix = if index < params.trained { GRAD_SUFFIX } else { NEXT_SUFFIX };
        let output = format!("{name}{suffix}");
        let found = outputs.iter().position(|known| *known == output);
        let at = found.ok_or_else(|| WorkerError::Graph { what: format!("it has no output `{output}`") })?;
        Ok(Pushed { parameter: name.clone(), output: at, elements: range.len() as usize })
    };
    params.tensors.iter().enumerate().map(place).collect()
}

/// Runs one part of the batch on the calling thread.
fn run_part<'s>(
    session: &'s mut Executable,
    samples: &Inputs<'_>,
    rest: &Inputs<'_>,
    rows: Range<usize>,
) -> Result<Outputs<'s>, WorkerError> {
    let shape = |view: &TensorView<'_>| -> Vec<usize> {
        [rows.len()].into_iter().chain(view.shape().iter().skip(1).copied()).collect()
    };
    let shapes: Vec<_> = samples.iter().map(|(_, view)| shape(view)).collect();
    let part = samples.iter().zip(&shapes).map(|((name, view), shape)| (*name, view.rows(rows.start, shape)));
    let inputs: Inputs<'_> = part.chain(rest.iter().copied()).collect();
    Ok(session.run(&inputs)?)
}

/// What a run on one part gave.
fn part<'o>(outputs: &'o Outputs<'_>, samples: usize, pushed: &[Pushed]) -> Result<Part<'o>, WorkerError> {
    let (loss, weight) = (outputs.scalar(LOSS)?, outputs.scalar(LOSS_WEIGHT)?);
    let tensors = pushed.iter().map(|pushed| pushed.of(outputs)).collect::<Result<_, _>>()?;
    Ok(Part { samples, loss, weight, tensors })
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use syncline_autodiff::{DeriveOptions, Loss, LossOptions, TrainingGraph, derive};
    use syncline_onnx::{ElementType, GraphBuilder, ModelProto, SplitMix64, mlp};

    use super::*;

    const FEATURES: usize = 3;
    /// The label of samples without weight.
    const IGNORED: i64 = -1;

    fn runtime() -> Runtime {
        static LOADED: OnceLock<Runtime> = OnceLock::new();
        let load =
            || Runtime::load(&syncline_kit::onnxruntime(&|line| eprintln!("{line}")).unwrap().path).unwrap();
        LOADED.get_or_init(load).clone()
    }

    /// What a step gave, copied.
    struct Got {
        loss: f32,
        weight: f32,
        pushed: Vec<Vec<f32>>,
    }

    /// A graph with its parameters at their first values.
    struct Rig {
        graph: TrainingGraph,
        params: Parameters,
    }

    impl Rig {
        fn new(model: &ModelProto) -> Self {
            let loss = LossOptions { ignore_index: Some(IGNORED), ..LossOptions::default() };
            let options = DeriveOptions { loss, ..DeriveOptions::default() };
            let graph = derive(&runtime(), &model.to_bytes(), Loss::SoftmaxCrossEntropy, &options).unwrap();
            let mut params =
                Parameters { values: Vec::new(), tensors: Vec::new(), trained: graph.params.len() };
            for param in graph.params.iter().chain(&graph.state) {
                let start = params.values.len() as u64;
                params.values.extend(&param.initial);
                let range = ElementRange { start, end: params.values.len() as u64 };
                params.tensors.push((param.name.clone(), param.shape.clone(), range));
            }
            Self { graph, params }
        }

        fn replicas(&self, threads: usize, split_batch: bool) -> Replicas {
            let exec = ExecOptions { intra_threads: threads, ..ExecOptions::default() };
            Replicas::new(&runtime(), &self.graph.train_onnx, &exec, split_batch, &self.params).unwrap()
        }

        fn run(&self, replicas: &mut Replicas, x: &[f32], labels: &[i64]) -> Got {
            let shapes = [vec![labels.len(), FEATURES], vec![labels.len()]];
            let samples = vec![
                ("x", TensorView::F32 { shape: &shapes[0], data: x }),
                ("label", TensorView::I64 { shape: &shapes[1], data: labels }),
            ];
            let step = replicas.run(&samples, &self.params.inputs().collect()).unwrap();
            let pushed = step.pushed().unwrap().into_iter().map(<[f32]>::to_vec).collect();
            Got { loss: step.loss, weight: step.weight, pushed }
        }
    }

    /// Batch normalisation of the features before two classes.
    fn normalised() -> ModelProto {
        let mut graph = GraphBuilder::new("normalised");
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

    fn features(rows: usize) -> Vec<f32> {
        let mut random = SplitMix64::new(7);
        (0..rows * FEATURES).map(|_| random.normal() as f32).collect()
    }

    /// Each tensor's elements may differ by a share of the largest.
    fn assert_close(got: &Got, want: &Got, case: &str) {
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
            assert_eq!(replicas.sessions.len(), threads);
            for (case, labels) in cases {
                let x = features(labels.len());
                let (got, want) = (rig.run(&mut replicas, &x, labels), rig.run(&mut whole, &x, labels));
                assert_close(&got, &want, &format!("{case}, {threads} parts"));
            }
        }
    }

    #[test]
    fn statistics_and_gradients_are_the_weighted_mean_of_the_parts_own() {
        let rig = Rig::new(&normalised());
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
            assert_eq!(rig.replicas(threads, split).sessions.len(), sessions, "{threads} threads, {split}");
        }
    }

    #[test]
    fn a_graph_that_does_not_give_what_the_parameters_need_is_refused() {
        let mut rig = Rig::new(&mlp(&[FEATURES, 2], 1));
        let mut short = rig.replicas(2, true);
        short.pushed[0].elements -= 1;
        let shape = [2, FEATURES];
        let x = features(2);
        let samples = vec![
            ("x", TensorView::F32 { shape: &shape, data: &x }),
            ("label", TensorView::I64 { shape: &shape[..1], data: &[0, 1] }),
        ];
        let rest = rig.params.inputs().collect();
        assert_eq!(short.run(&samples, &rest).err().unwrap().code(), "E352");
        short.sessions.truncate(1);
        let step = short.run(&samples, &rest).unwrap();
        assert_eq!(step.pushed().unwrap_err().code(), "E352");
        rig.params.tensors[0].0 = "unknown".to_owned();
        let exec = ExecOptions::default();
        let replicas = Replicas::new(&runtime(), &rig.graph.train_onnx, &exec, false, &rig.params);
        assert_eq!(replicas.err().unwrap().code(), "E352");
    }
}
