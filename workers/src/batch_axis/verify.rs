//! Whether an opened model makes of each sample what the original makes of it, and takes one sample more.

use std::collections::HashSet;

use syncline_onnx::{ElementType, ModelProto, SplitMix64, TensorType};
use syncline_runtime::{BackendError, ExecOptions, Executable, Runtime, TensorView};

use crate::{check::AXES, functions::Tensor};

/// Most numbers that one input is tried with.
const MOST_NUMBERS: usize = 1 << 26;
/// Allowed difference, relative to the largest number of an output.
const TOLERANCE: f32 = 1e-3;

/// Both models predict: nothing drops, and statistics are remembered ones. `Err` says what differs. One
/// number for the whole batch proves nothing and is left out where the other outputs do, unless it is
/// `trained`, what the loss looks at.
pub(super) fn verify(
    runtime: &Runtime,
    original: &ModelProto,
    opened: &ModelProto,
    size: usize,
    trained: Option<&str>,
) -> Result<(), String> {
    let (inputs, before) = tried(&mut load(runtime, original)?, opened, size)?;
    let after = run(&mut load(runtime, opened)?, &inputs, size + 1)
        .map_err(|error| format!("{} samples do not pass through it: {error}", size + 1))?;
    let mut outputs: Vec<_> = before.iter().zip(&after).collect();
    let trained = trained.or(before.first().map(|output| output.name.as_str()));
    let of_batch =
        |(before, after): &(&Output, &Output)| before.shape == after.shape && after.numbers.len() == 1;
    let none_proves = outputs.iter().all(of_batch);
    let is_needed = |output: &Output| none_proves || trained == Some(output.name.as_str());
    if let Some((output, _)) = outputs.iter().find(|pair| of_batch(pair) && is_needed(pair.0)) {
        return Err(format!(
            "output `{}` is one number for the whole batch, of which nothing can be proved: export the model with an open batch",
            output.name
        ));
    }
    outputs.retain(|pair| !of_batch(pair));
    for (before, after) in outputs {
        let name = &before.name;
        let rows = |output: &Output| output.shape.first().copied();
        if (rows(before), rows(after)) != (Some(size), Some(size + 1))
            || before.shape[1..] != after.shape[1..]
        {
            let (found, was) = (&after.shape, &before.shape);
            return Err(format!(
                "output `{name}` of {} samples would be {found:?}, of {size} it is {was:?}",
                size + 1
            ));
        }
        if !are_same(&before.numbers, &after.numbers) {
            return Err(format!("output `{name}` of a sample would depend on the size of its batch"));
        }
    }
    Ok(())
}

/// Whether numbers are the same up to rounding, and in the same places infinite or none.
fn are_same(before: &[f32], after: &[f32]) -> bool {
    let finite = before.iter().filter(|number| number.is_finite());
    let largest = finite.fold(f32::MIN_POSITIVE, |largest, number| largest.max(number.abs()));
    before.iter().zip(after).all(|(a, b)| match a.is_finite() && b.is_finite() {
        true => (a - b).abs() <= TOLERANCE * largest,
        false => a == b || (a.is_nan() && b.is_nan()),
    })
}

/// What an input is fed with, for one sample more than the original takes.
struct Input {
    name: String,
    tensor: Tensor,
}

/// What came out.
struct Output {
    name: String,
    shape: Vec<usize>,
    numbers: Vec<f32>,
}

fn load(runtime: &Runtime, model: &ModelProto) -> Result<Executable, String> {
    Executable::new(runtime, &model.to_bytes(), &ExecOptions::default()).map_err(|error| error.to_string())
}

/// Numbers for the opened model, and what the original makes of them, at the first size of other open axes
/// with which it runs.
fn tried(
    original: &mut Executable,
    opened: &ModelProto,
    size: usize,
) -> Result<(Vec<Input>, Vec<Output>), String> {
    let (mut drawn, mut refused) = (Vec::<Input>::new(), String::new());
    for axis in AXES {
        let inputs = draw(opened, size + 1, axis)?;
        let is_like = |(one, other): (&Input, &Input)| one.tensor.shape() == other.tensor.shape();
        if !drawn.is_empty() && drawn.iter().zip(&inputs).all(is_like) {
            break;
        }
        match run(original, &inputs, size) {
            Ok(outputs) => return Ok((inputs, outputs)),
            Err(error) => (drawn, refused) = (inputs, error.to_string()),
        }
    }
    Err(refused)
}

/// `axis`: size of each open axis behind the first.
fn draw(model: &ModelProto, rows: usize, axis: usize) -> Result<Vec<Input>, String> {
    let mut random = SplitMix64::new(0);
    let graph = model.graph.as_ref().ok_or("it has no graph")?;
    let constants: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let data = graph.input.iter().filter(|input| !constants.contains(input.name.as_str()));
    data.map(|input| {
        let name = input.name.clone();
        let unknown = || format!("input `{name}` is of unknown shape");
        let ty = TensorType::from_value_info(input).ok_or_else(unknown)?;
        let rest = ty.dims.iter().skip(1).map(|dim| dim.fixed().unwrap_or(axis));
        let shape: Vec<usize> = [rows].into_iter().chain(rest).collect();
        let count = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
        let count = count
            .filter(|&count| count <= MOST_NUMBERS)
            .ok_or_else(|| format!("input `{name}` is too large to try"))?;
        // Every table has two rows, and every set of classes two.
        let mut whole = || random.next_u64() & 1;
        let tensor = match ty.element {
            ElementType::I32 => Tensor::new(shape, (0..count).map(|_| whole() as i32).collect()),
            ElementType::I64 => Tensor::new(shape, (0..count).map(|_| whole() as i64).collect()),
            ElementType::Bool => Tensor::new(shape, (0..count).map(|_| whole() == 1).collect()),
            ElementType::F32 => Tensor::new(shape, (0..count).map(|_| random.normal() as f32).collect()),
            other => return Err(format!("input `{name}` takes {other}")),
        };
        Ok(Input { tensor: tensor.map_err(|error| error.to_string())?, name })
    })
    .collect()
}

/// The float outputs for the first `rows` samples.
fn run(session: &mut Executable, inputs: &[Input], rows: usize) -> Result<Vec<Output>, BackendError> {
    let types = session.types();
    let float = |name: &&String| types.get(*name).is_some_and(|ty| ty.element == ElementType::F32);
    let names: Vec<String> = session.output_names().iter().filter(float).cloned().collect();
    let shapes: Vec<Vec<usize>> =
        inputs.iter().map(|input| [&[rows], &input.tensor.shape()[1..]].concat()).collect();
    let views: Vec<(&str, TensorView<'_>)> = inputs
        .iter()
        .zip(&shapes)
        .map(|(input, shape)| (input.name.as_str(), input.tensor.view().rows(0, shape)))
        .collect();
    let outputs = session.run(&views)?;
    let output = |name: String| {
        let (shape, numbers) = (outputs.shape(&name)?, outputs.f32(&name)?.to_vec());
        Ok(Output { name, shape, numbers })
    };
    names.into_iter().map(output).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_infinite_number_excuses_no_other() {
        const INF: f32 = f32::INFINITY;
        #[rustfmt::skip]
        let cases: [(&[f32], &[f32], bool); 6] = [
            (&[1.0, 1000.0],      &[1.5, 1000.0],      true),
            (&[1.0, 100.0],       &[1.5, 100.0],       false),
            (&[-INF, 1.0],        &[-INF, 1.0],        true),
            (&[-INF, 1.0],        &[-INF, 2.0],        false),
            (&[INF, f32::NAN],    &[-INF, f32::NAN],   false),
            (&[f32::NAN, 1.0],    &[f32::NAN, INF],    false),
        ];
        for (before, after, same) in cases {
            assert_eq!(are_same(before, after), same, "{before:?} {after:?}");
        }
    }
}
