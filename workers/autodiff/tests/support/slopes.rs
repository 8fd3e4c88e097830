//! Checks derived gradients against differences of the training graph's own forward pass, in float32.
//!
//! ONNX Runtime has no float64 kernels for convolutions and most pools, and what batch statistics and Dropout
//! do exists in the training graph alone. The loss is computed in float64 from the float32 output; two
//! central differences, with a step and half of it, are extrapolated to step 0 (Richardson), which is exact
//! where the output is linear in one element and of fourth order elsewhere, so that steps may be large.

use syncline_autodiff::{DeriveOptions, Loss, TrainingGraph, derive};
use syncline_onnx::{Dim, ModelProto, SplitMix64};
use syncline_runtime::{ExecOptions, Executable, TensorView};

use crate::onnxruntime;
use crate::seeds::write_seed;

/// How to take differences.
#[derive(Clone, Copy)]
pub struct Slopes {
    pub step: f64,
    /// Allowed difference, relative to the largest element of a gradient.
    pub tolerance: f64,
    /// Loads the graph anew for each run, so that random numbers repeat.
    pub fresh: bool,
}

/// For operators that are linear in each element of each input.
pub const LINEAR: Slopes = Slopes { step: 0.5, tolerance: 2e-4, fresh: false };
/// For smooth operators.
pub const SMOOTH: Slopes = Slopes { step: 0.02, tolerance: 4e-3, fresh: false };

/// What float32 leaves uncertain in a loss.
const ROUNDING: f64 = 1e-6;

type Fed = (String, Vec<usize>, Vec<f32>);

impl Slopes {
    /// Derives with all of `train`, and checks at each given set of shapes of the data inputs.
    pub fn check(self, name: &str, model: &ModelProto, train: &[&str], batches: &[&[(&str, &[usize])]]) {
        for simplify in [false, true] {
            let train = Some(train.iter().map(|&name| name.to_owned()).collect());
            let options = DeriveOptions { train, simplify, ..DeriveOptions::default() };
            self.check_with(name, model, &options, batches);
        }
    }

    pub fn check_with(
        self,
        name: &str,
        model: &ModelProto,
        options: &DeriveOptions,
        batches: &[&[(&str, &[usize])]],
    ) -> TrainingGraph {
        write_seed(name, model);
        let runtime = onnxruntime::runtime();
        let graph = derive(&runtime, &model.to_bytes(), Loss::MeanSquaredError, options)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        for shapes in batches {
            let mut random = SplitMix64::new(7);
            let mut fed: Vec<Fed> = Vec::new();
            for param in graph.params.iter().chain(&graph.state) {
                fed.push((param.name.clone(), param.shape.clone(), param.initial.clone()));
            }
            for (input, shape) in *shapes {
                fed.push(((*input).to_owned(), shape.to_vec(), numbers(&mut random, shape)));
            }
            self.compare(name, &graph, fed, &mut random)
                .unwrap_or_else(|why| panic!("{name}, simplify {}, at {shapes:?}: {why}", options.simplify));
        }
        graph
    }

    fn compare(
        self,
        name: &str,
        graph: &TrainingGraph,
        mut fed: Vec<Fed>,
        random: &mut SplitMix64,
    ) -> Result<(), String> {
        let mut run = Run { graph, fresh: self.fresh, loaded: None };
        let shape = run.shape_of_output(&fed)?;
        let label = numbers(random, &shape);
        fed.push(("label".to_owned(), shape, label.clone()));
        let grads = run.outputs(&fed)?;
        for (index, param) in graph.params.iter().enumerate() {
            let grad = &grads.iter().find(|(name, _)| *name == format!("{}.grad", param.name)).expect("it").1;
            assert_eq!(grad.len(), fed[index].2.len(), "{name}: {}", param.name);
            let mut slopes = Vec::with_capacity(grad.len());
            for element in 0..grad.len() {
                let start = fed[index].2[element];
                let mut loss = |step: f64| -> Result<f64, String> {
                    fed[index].2[element] = start + step as f32;
                    let loss = run.loss(&fed, &label);
                    fed[index].2[element] = start;
                    loss
                };
                let mut slope =
                    |step: f64| -> Result<f64, String> { Ok((loss(step)? - loss(-step)?) / (2.0 * step)) };
                let (coarse, fine) = (slope(self.step)?, slope(self.step / 2.0)?);
                slopes.push(((4.0 * fine - coarse) / 3.0, coarse - fine));
            }
            let largest = slopes.iter().fold(1e-2f64, |most, (slope, _)| most.max(slope.abs()));
            // The rounding of float32 in a loss of about 1.
            let allowed = self.tolerance * largest + ROUNDING / self.step;
            for (element, (grad, (slope, bend))) in grad.iter().zip(&slopes).enumerate() {
                // A kink inside the step: there is no slope to compare with.
                let smooth = bend.abs() <= 0.1 * largest;
                let close = (f64::from(*grad) - slope).abs() <= allowed;
                if !grad.is_finite() || (smooth && !close) {
                    return Err(format!("{}[{element}] is {grad}, differences say {slope}", param.name));
                }
            }
        }
        Ok(())
    }
}

/// A training graph that is run again and again.
struct Run<'a> {
    graph: &'a TrainingGraph,
    fresh: bool,
    loaded: Option<Executable>,
}

impl Run<'_> {
    fn session(&mut self) -> Result<&mut Executable, String> {
        if self.fresh {
            self.loaded = None;
        }
        if self.loaded.is_none() {
            let options = ExecOptions::default();
            let session = Executable::new(&onnxruntime::runtime(), &self.graph.train_onnx, &options);
            self.loaded = Some(session.map_err(|error| error.to_string())?);
        }
        Ok(self.loaded.as_mut().expect("it has just been loaded"))
    }

    /// Where the graph leaves the output's shape open, it is the batch, or the shape of the last data input.
    fn shape_of_output(&self, fed: &[Fed]) -> Result<Vec<usize>, String> {
        let input = fed.last().map(|(_, shape, _)| shape.as_slice()).unwrap_or_default();
        let dims = self.graph.forward_outputs[0].dims.iter().enumerate();
        let open =
            |axis: usize, dim: &Dim| input.get(if dim.same(&"batch".into()) { 0 } else { axis }).copied();
        let shape = dims.map(|(axis, dim)| dim.fixed().or_else(|| open(axis, dim)));
        shape.collect::<Option<Vec<usize>>>().ok_or_else(|| "an output of open shape".to_owned())
    }

    fn outputs(&mut self, fed: &[Fed]) -> Result<Vec<(String, Vec<f32>)>, String> {
        let session = self.session()?;
        let names: Vec<String> = session.output_names().to_vec();
        let outputs = session.run(&views(fed)).map_err(|error| error.to_string())?;
        let read = |name: String| {
            let data = outputs.f32(&name).map_err(|error| error.to_string())?.to_vec();
            Ok((name, data))
        };
        names.into_iter().map(read).collect()
    }

    fn loss(&mut self, fed: &[Fed], label: &[f32]) -> Result<f64, String> {
        let output = self.graph.forward_outputs[0].name.clone();
        let outputs = self.session()?.run(&views(fed)).map_err(|error| error.to_string())?;
        let y = outputs.f32(&output).map_err(|error| error.to_string())?;
        let total: f64 =
            y.iter().zip(label).map(|(y, label)| (f64::from(*y) - f64::from(*label)).powi(2)).sum();
        Ok(total / y.len() as f64)
    }
}

fn views(fed: &[Fed]) -> Vec<(&str, TensorView<'_>)> {
    fed.iter().map(|(name, shape, data)| (name.as_str(), TensorView::F32 { shape, data })).collect()
}

/// Random numbers between -1 and 1.
pub fn numbers(random: &mut SplitMix64, shape: &[usize]) -> Vec<f32> {
    (0..shape.iter().product()).map(|_| (random.uniform() * 2.0 - 1.0) as f32).collect()
}
