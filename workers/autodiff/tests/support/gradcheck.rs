//! Checks derived gradients against central finite differences.
//!
//! The training graph computes in float32, the reference in float64: the forward model is rewritten to
//! float64 and run by ONNX Runtime, the loss is computed here. With a step of 1e-5 the differences are good
//! to about 1e-9, so that the tolerance is that of float32 alone. Where ONNX Runtime has no float64 kernel
//! for an operator of the model, the reference runs in float32 with wide steps and four points, good to about
//! 1e-5.

use syncline_autodiff::{DeriveOptions, Loss, PREDICTED, TrainingGraph, derive};
use syncline_onnx::proto::{TensorProto, ValueInfoProto};
use syncline_onnx::{ElementType, ModelProto, SplitMix64};
use syncline_runtime::{ExecOptions, Executable, Optimize, Runtime, TensorView};

/// Allowed difference of losses, and of gradients relative to their largest element.
const TOLERANCE: f64 = 1e-4;

/// How differences are taken, by the element type that the reference computes in.
struct Method {
    element: ElementType,
    step: f64,
    /// The slopes to the left and to the right differ by more, relatively, only at a kink.
    kink: f64,
    /// Allowed difference, relative to the largest element of a gradient.
    tolerance: f64,
    /// Gradients smaller than this are compared as if they were this large.
    least: f64,
}

const IN_F64: Method =
    Method { element: ElementType::F64, step: 1e-5, kink: 1e-6, tolerance: TOLERANCE, least: 1e-2 };
const IN_F32: Method =
    Method { element: ElementType::F32, step: 1e-2, kink: 1e-3, tolerance: 1e-3, least: 1e-1 };

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
        let reference = |method: Method| {
            let model = with_inputs(self.model, &names, method.element);
            Ok::<_, String>((load(self.runtime, &model.to_bytes(), Optimize::Off)?, method))
        };
        let (reference, method) = reference(IN_F64).or_else(|_| reference(IN_F32))?;
        let mut sessions = Sessions { train, eval, reference, method };
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
        let (y, shape) = forward(sessions, inputs, &params, &output)?;
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
        let Method { step, kink, tolerance, least, .. } = sessions.method;
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
                let start = params[index].data[element];
                let mut at = |steps: f64| -> Result<f64, String> {
                    params[index].data[element] = start + steps * step;
                    let (y, shape) = forward(sessions, inputs, &params, &output)?;
                    Ok(label.loss(&y, &shape))
                };
                let (below2, below, here, above, above2) =
                    (at(-2.0)?, at(-1.0)?, expected, at(1.0)?, at(2.0)?);
                params[index].data[element] = start;
                let slope = (8.0 * (above - below) - (above2 - below2)) / (12.0 * step);
                let right = (4.0 * above - above2 - 3.0 * here) / (2.0 * step);
                let left = (3.0 * here - 4.0 * below + below2) / (2.0 * step);
                // A kink of a Relu within the steps: there is no slope to compare with.
                let smooth = (right - left).abs() <= kink * (1.0 + slope.abs());
                differences.push(smooth.then_some(slope));
            }
            if differences.iter().all(Option::is_none) && !differences.is_empty() {
                return Err(format!("{name} cannot be compared anywhere: every element stands at a kink"));
            }
            let largest = differences.iter().flatten().fold(0.0f64, |most, x| most.max(x.abs()));
            for (element, (&got, want)) in grad.iter().zip(&differences).enumerate() {
                if let Some(want) = want {
                    let scale = largest.max(least) * tolerance / TOLERANCE;
                    close(&format!("{name}[{element}]"), f64::from(got), *want, scale)?;
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
    method: Method,
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
    // The other outputs are float32.
    let names: Vec<String> =
        session.output_names().iter().filter(|name| *name != PREDICTED).cloned().collect();
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
    sessions: &mut Sessions,
    inputs: &[Fed],
    params: &[Fed],
    output: &str,
) -> Result<(Vec<f64>, Vec<usize>), String> {
    let feeds = || inputs.iter().chain(params);
    let double = sessions.method.element == ElementType::F64;
    let single: Vec<Vec<f32>> = feeds().map(|fed| fed.data.iter().map(|&x| x as f32).collect()).collect();
    let views: Vec<(&str, TensorView<'_>)> = feeds()
        .zip(&single)
        .map(|(fed, single)| match double {
            true => (fed.name.as_str(), TensorView::F64 { shape: &fed.shape, data: &fed.data }),
            false => (fed.name.as_str(), TensorView::F32 { shape: &fed.shape, data: single }),
        })
        .collect();
    let outputs = sessions.reference.run(&views).map_err(|error| error.to_string())?;
    let data = match double {
        true => outputs.f64(output).map_err(|error| error.to_string())?.to_vec(),
        false => {
            let data = outputs.f32(output).map_err(|error| error.to_string())?;
            data.iter().map(|&x| f64::from(x)).collect()
        }
    };
    Ok((data, outputs.shape(output).map_err(|error| error.to_string())?))
}

/// The same model with its parameters as inputs, all float32 tensors in the given type.
fn with_inputs(model: &ModelProto, params: &[String], element: ElementType) -> ModelProto {
    let mut model = model.clone();
    let graph = model.graph.as_mut().expect("a model has a graph");
    for input in &mut graph.input {
        retype(input, element);
    }
    let casts = graph.node.iter_mut().filter(|node| node.op_type == "Cast");
    let single = i64::from(ElementType::F32.code());
    for to in casts.flat_map(|node| &mut node.attribute).filter(|to| to.name == "to" && to.i == Some(single))
    {
        to.i = Some(i64::from(element.code()));
    }
    let tensors = std::mem::take(&mut graph.initializer);
    for tensor in tensors {
        if params.contains(&tensor.name) {
            let dims = tensor.shape().into_iter().map(Into::into).collect();
            let ty = syncline_onnx::TensorType::new(element, dims);
            graph.input.push(ty.to_value_info(&tensor.name));
        } else if tensor.element() == ElementType::F32 && element == ElementType::F64 {
            let data: Vec<f64> = tensor.to_f32().expect("float32").into_iter().map(f64::from).collect();
            graph.initializer.push(TensorProto::from_f64(&tensor.name, &tensor.shape(), &data));
        } else {
            graph.initializer.push(tensor);
        }
    }
    model
}

fn retype(input: &mut ValueInfoProto, element: ElementType) {
    let tensor = input.r#type.as_mut().and_then(|ty| ty.tensor_type.as_mut());
    if let Some(tensor) = tensor.filter(|tensor| tensor.elem_type == ElementType::F32.code()) {
        tensor.elem_type = element.code();
    }
}
