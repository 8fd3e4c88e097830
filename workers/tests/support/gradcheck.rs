//! Checks derived gradients against central finite differences.
//!
//! The training graph computes in float32, the reference in float64: the forward model is rewritten to float64 and run
//! by ONNX Runtime, the loss is computed here. With a step of 1e-5 the differences are good to about 1e-9, so that the
//! tolerance is that of float32 alone.

use syncline_workers::autodiff::{DeriveOptions, Loss, TrainingGraph, derive};
use syncline_workers::backend::{ExecOptions, Executable, Optimize, Runtime, TensorView};
use syncline_workers::onnx::proto::{TensorProto, ValueInfoProto};
use syncline_workers::onnx::{ElementType, ModelProto, SplitMix64};

/// Allowed difference, relative to the largest element of a gradient.
const TOLERANCE: f64 = 1e-4;
const STEP: f64 = 1e-5;

/// A model with numbers to run it on.
pub struct Check<'a> {
    pub runtime: &'a Runtime,
    pub model: &'a ModelProto,
    pub loss: Loss,
    pub options: DeriveOptions,
    pub seed: u64,
}

/// A fed tensor in both precisions.
pub struct Fed {
    pub name: String,
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

impl Fed {
    pub fn random(random: &mut SplitMix64, name: &str, shape: &[usize]) -> Self {
        let data =
            (0..shape.iter().product()).map(|_| f64::from((random.uniform() * 2.0 - 1.0) as f32)).collect();
        Self { name: name.to_owned(), shape: shape.to_vec(), data }
    }
}

impl Check<'_> {
    /// Derives, then checks at each given set of shapes of the data inputs.
    pub fn at(&self, batches: &[&[(&str, &[usize])]]) -> Result<TrainingGraph, String> {
        let bytes = self.model.to_bytes();
        let graph =
            derive(self.runtime, &bytes, self.loss, &self.options).map_err(|error| error.to_string())?;
        let train = load(self.runtime, &graph.train_onnx, Optimize::All)?;
        let eval = load(self.runtime, &graph.eval_onnx, Optimize::All)?;
        let names: Vec<String> = graph.params.iter().map(|param| param.name.clone()).collect();
        let reference = load(self.runtime, &to_f64(self.model, &names).to_bytes(), Optimize::Off)?;
        let mut sessions = Sessions { train, eval, reference };
        for shapes in batches {
            let mut random = SplitMix64::new(self.seed);
            let inputs: Vec<Fed> =
                shapes.iter().map(|(name, shape)| Fed::random(&mut random, name, shape)).collect();
            self.compare(&graph, &mut sessions, &inputs, &mut random)
                .map_err(|why| format!("at {shapes:?}: {why}"))?;
        }
        Ok(graph)
    }

    fn compare(
        &self,
        graph: &TrainingGraph,
        sessions: &mut Sessions,
        inputs: &[Fed],
        random: &mut SplitMix64,
    ) -> Result<(), String> {
        let mut params: Vec<Fed> = graph
            .params
            .iter()
            .map(|param| Fed {
                name: param.name.clone(),
                shape: param.shape.clone(),
                data: param.initial.iter().map(|&x| f64::from(x)).collect(),
            })
            .collect();
        let output = self.options.output.clone().unwrap_or_else(|| graph.forward_outputs[0].name.clone());
        let (y, shape) = forward(&mut sessions.reference, inputs, &params, &output)?;
        let label = Label::random(self.loss, &shape, random);
        let expected = label.loss(&y, &shape);

        let got = run_f32(&mut sessions.train, inputs, &params, &label)?;
        let evaluated = run_f32(&mut sessions.eval, inputs, &params, &label)?;
        close("loss", got.one("loss"), expected, 1.0 + expected.abs())?;
        close("loss of the eval graph", evaluated.one("loss"), expected, 1.0 + expected.abs())?;
        // Axes of open size count as the batch does.
        let dims = graph.forward_outputs.iter().find(|io| io.name == output).map(|io| io.dims.as_slice());
        let open = |axis: &usize| dims.is_some_and(|dims| dims[*axis].fixed().is_none());
        let counted: usize =
            (0..shape.len()).filter(|axis| *axis == 0 || open(axis)).map(|axis| shape[axis]).product();
        close("loss_weight", got.one("loss_weight"), counted as f64, 1.0)?;
        if let Some(correct) = label.correct(&y, &shape) {
            close("correct", got.one("correct"), correct, 1.0)?;
        }
        for index in 0..params.len() {
            let name = format!("{}.grad", params[index].name);
            let (grad_shape, grad) = got.find(&name);
            if *grad_shape != params[index].shape {
                return Err(format!(
                    "{name} has shape {grad_shape:?}, the parameter {:?}",
                    params[index].shape
                ));
            }
            let mut differences = Vec::with_capacity(grad.len());
            for element in 0..grad.len() {
                let mut slope = |step: f64| -> Result<f64, String> {
                    let start = params[index].data[element];
                    let mut at = |x: f64| -> Result<f64, String> {
                        params[index].data[element] = x;
                        let (y, shape) = forward(&mut sessions.reference, inputs, &params, &output)?;
                        Ok(label.loss(&y, &shape))
                    };
                    let (above, below) = (at(start + step)?, at(start - step)?);
                    params[index].data[element] = start;
                    Ok((above - below) / (2.0 * step))
                };
                let (coarse, fine) = (slope(STEP)?, slope(STEP / 4.0)?);
                // A kink of a Relu inside the step: there is no slope to compare with.
                let smooth = (coarse - fine).abs() <= 1e-6 * (1.0 + coarse.abs());
                differences.push(smooth.then_some(coarse));
            }
            let largest = differences.iter().flatten().fold(0.0f64, |most, x| most.max(x.abs()));
            for (element, (&got, want)) in grad.iter().zip(&differences).enumerate() {
                if let Some(want) = want {
                    close(&format!("{name}[{element}]"), f64::from(got), *want, largest.max(1e-2))?;
                }
            }
        }
        Ok(())
    }
}

struct Sessions {
    train: Executable,
    eval: Executable,
    reference: Executable,
}

fn load(runtime: &Runtime, bytes: &[u8], optimize: Optimize) -> Result<Executable, String> {
    let options = ExecOptions { optimize, ..ExecOptions::default() };
    Executable::new(runtime, bytes, &options).map_err(|error| error.to_string())
}

fn close(what: &str, got: f64, want: f64, scale: f64) -> Result<(), String> {
    if (got - want).abs() <= TOLERANCE * scale {
        return Ok(());
    }
    Err(format!("{what} is {got}, finite differences say {want}"))
}

/// What the model should answer.
enum Label {
    Classes(Vec<i64>),
    Values(Vec<f64>, Vec<usize>),
}

impl Label {
    fn random(loss: Loss, shape: &[usize], random: &mut SplitMix64) -> Self {
        match loss {
            Loss::SoftmaxCrossEntropy => {
                Self::Classes((0..shape[0]).map(|_| (random.next_u64() % shape[1] as u64) as i64).collect())
            }
            // The other losses have a file of tests of their own.
            _ => Self::Values(Fed::random(random, "", shape).data, shape.to_vec()),
        }
    }

    fn loss(&self, y: &[f64], shape: &[usize]) -> f64 {
        match self {
            Self::Classes(classes) => {
                let rows = y.chunks(shape[1]).zip(classes);
                let total: f64 = rows
                    .map(|(row, &class)| row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[class as usize])
                    .sum();
                total / shape[0] as f64
            }
            Self::Values(values, _) => {
                let total: f64 = y.iter().zip(values).map(|(y, value)| (y - value).powi(2)).sum();
                total / y.len() as f64
            }
        }
    }

    fn correct(&self, y: &[f64], shape: &[usize]) -> Option<f64> {
        let Self::Classes(classes) = self else {
            return None;
        };
        let best = |row: &[f64]| (0..row.len()).rev().max_by(|&a, &b| row[a].total_cmp(&row[b]));
        let right =
            y.chunks(shape[1]).zip(classes).filter(|(row, class)| best(row) == Some(**class as usize));
        Some(right.count() as f64)
    }
}

/// The outputs of one float32 run.
struct Got(Vec<(String, Vec<usize>, Vec<f32>)>);

impl Got {
    fn find(&self, name: &str) -> (&Vec<usize>, &Vec<f32>) {
        let found = self.0.iter().find(|(other, _, _)| other == name);
        found.map(|(_, shape, data)| (shape, data)).unwrap_or_else(|| panic!("no output {name}"))
    }

    fn one(&self, name: &str) -> f64 {
        let (shape, data) = self.find(name);
        assert!(shape.is_empty(), "{name} is a scalar, not {shape:?}");
        f64::from(data[0])
    }
}

fn run_f32(session: &mut Executable, inputs: &[Fed], params: &[Fed], label: &Label) -> Result<Got, String> {
    let numbers: Vec<Vec<f32>> =
        inputs.iter().chain(params).map(|fed| fed.data.iter().map(|&x| x as f32).collect()).collect();
    let mut views: Vec<(&str, TensorView<'_>)> = Vec::new();
    for (fed, data) in inputs.iter().chain(params).zip(&numbers) {
        views.push((&fed.name, TensorView::F32 { shape: &fed.shape, data }));
    }
    let names: Vec<String> = session.output_names().to_vec();
    match label {
        Label::Classes(classes) => {
            let shape = [classes.len()];
            views.push(("label", TensorView::I64 { shape: &shape, data: classes }));
            collect(session, &names, &views)
        }
        Label::Values(values, shape) => {
            let values: Vec<f32> = values.iter().map(|&x| x as f32).collect();
            views.push(("label", TensorView::F32 { shape, data: &values }));
            collect(session, &names, &views)
        }
    }
}

fn collect(
    session: &mut Executable,
    names: &[String],
    views: &[(&str, TensorView<'_>)],
) -> Result<Got, String> {
    let outputs = session.run(views).map_err(|error| error.to_string())?;
    let read = |name: &String| {
        let shape = outputs.shape(name).map_err(|error| error.to_string())?;
        let data = outputs.f32(name).map_err(|error| error.to_string())?.to_vec();
        Ok((name.clone(), shape, data))
    };
    names.iter().map(read).collect::<Result<_, String>>().map(Got)
}

fn forward(
    session: &mut Executable,
    inputs: &[Fed],
    params: &[Fed],
    output: &str,
) -> Result<(Vec<f64>, Vec<usize>), String> {
    let views: Vec<(&str, TensorView<'_>)> = inputs
        .iter()
        .chain(params)
        .map(|fed| (fed.name.as_str(), TensorView::F64 { shape: &fed.shape, data: &fed.data }))
        .collect();
    let outputs = session.run(&views).map_err(|error| error.to_string())?;
    let data = outputs.f64(output).map_err(|error| error.to_string())?.to_vec();
    Ok((data, outputs.shape(output).map_err(|error| error.to_string())?))
}

/// The same model in float64, with its parameters as inputs.
fn to_f64(model: &ModelProto, params: &[String]) -> ModelProto {
    let mut model = model.clone();
    let graph = model.graph.as_mut().expect("a model has a graph");
    for input in &mut graph.input {
        retype(input);
    }
    let tensors = std::mem::take(&mut graph.initializer);
    for tensor in tensors {
        if params.contains(&tensor.name) {
            let dims = tensor.shape().into_iter().map(Into::into).collect();
            let ty = syncline_workers::onnx::TensorType::new(ElementType::F64, dims);
            graph.input.push(ty.to_value_info(&tensor.name));
        } else if tensor.element() == ElementType::F32 {
            let data: Vec<f64> = tensor.to_f32().expect("float32").into_iter().map(f64::from).collect();
            graph.initializer.push(TensorProto::from_f64(&tensor.name, &tensor.shape(), &data));
        } else {
            graph.initializer.push(tensor);
        }
    }
    model
}

fn retype(input: &mut ValueInfoProto) {
    let tensor = input.r#type.as_mut().and_then(|ty| ty.tensor_type.as_mut());
    if let Some(tensor) = tensor.filter(|tensor| tensor.elem_type == ElementType::F32.code()) {
        tensor.elem_type = ElementType::F64.code();
    }
}
