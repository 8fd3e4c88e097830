//! A step of a training graph as a worker runs it, on random data.

use std::thread;

use syncline_autodiff::{Io, TrainingGraph};
use syncline_onnx::{ElementType, SplitMix64};
use syncline_runtime::{ExecOptions, Executable, Runtime, TensorView};

use crate::Outcome;

/// Largest class and largest index into a table of words are below this in every model.
const SMALLEST_TABLE: u64 = 10;

pub struct Step {
    session: Executable,
    inputs: Vec<(String, Vec<usize>, Data)>,
}

enum Data {
    F32(Vec<f32>),
    I64(Vec<i64>),
}

impl Step {
    pub fn new(runtime: &Runtime, graph: &TrainingGraph, batch: usize, threads: usize) -> Outcome<Self> {
        let options = ExecOptions { intra_threads: threads, ..ExecOptions::default() };
        let session = Executable::new(runtime, &graph.train_onnx, &options)?;
        let mut random = SplitMix64::new(1);
        let data = graph.data_inputs.iter().chain(&graph.label).map(|io| filled(io, batch, &mut random));
        let weights = graph.params.iter().chain(&graph.state);
        let weights =
            weights.map(|param| (param.name.clone(), param.shape.clone(), Data::F32(param.initial.clone())));
        let inputs = data.chain(weights).collect();
        Ok(Self { session, inputs })
    }

    pub fn run(&mut self) -> Outcome<()> {
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            let (name, shape, data) = input;
            let view = match data {
                Data::F32(data) => TensorView::F32 { shape, data },
                Data::I64(data) => TensorView::I64 { shape, data },
            };
            inputs.push((name.as_str(), view));
        }
        self.session.run(&inputs)?;
        Ok(())
    }
}

fn filled(io: &Io, batch: usize, random: &mut SplitMix64) -> (String, Vec<usize>, Data) {
    let shape: Vec<usize> = io.dims.iter().map(|dim| dim.fixed().unwrap_or(batch)).collect();
    let mut numbers = (0..shape.iter().product()).map(|_| random.next_u64());
    let data = match io.element {
        ElementType::I64 => Data::I64(numbers.by_ref().map(|n| (n % SMALLEST_TABLE) as i64).collect()),
        _ => Data::F32(numbers.by_ref().map(|n| (n >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect()),
    };
    (io.name.clone(), shape, data)
}

/// Two executions of one thread each, on half of the batch.
pub struct Halves([Step; 2]);

impl Halves {
    pub fn new(runtime: &Runtime, graph: &TrainingGraph, batch: usize) -> Outcome<Self> {
        let half = || Step::new(runtime, graph, batch / 2, 1);
        Ok(Self([half()?, half()?]))
    }

    pub fn run(&mut self) -> Outcome<()> {
        let [one, two] = &mut self.0;
        thread::scope(|scope| {
            let other = scope.spawn(|| two.run().map_err(|error| error.to_string()));
            one.run()?;
            other.join().map_err(|_| "a half has panicked")??;
            Ok(())
        })
    }
}
