//! `syncline model train-graph`: the training graph of a forward model as a file.

use std::path::PathBuf;

use serde_json::json;
use syncline_autodiff::{
    DeriveOptions, GRAD_SUFFIX, Io, LOSS, LOSS_WEIGHT, NEXT_SUFFIX, NOMINAL_AXIS, Precision, Saving,
    TrainingGraph,
};
use syncline_onnx::TensorType;
use syncline_workers::{
    isolation::{ModelChecks, NamedModel},
    submit::untouched,
};

use super::{loss::LossArgs, read, warn, write};
use crate::cli::{
    Exit, Failure, exported::ExportError::Exists, print, print_json, say, support::native::models,
};

#[derive(Debug, clap::Args)]
pub struct TrainGraphArgs {
    /// Forward model
    file: PathBuf,
    /// softmax-cross-entropy, bce-with-logits, mse, l1 or huber; or output, which the model has computed
    /// itself
    #[arg(long, value_name = "NAME")]
    loss: String,
    #[command(flatten)]
    how: LossArgs,
    /// f32, bf16 or fp16: the compute type of matrix products and convolutions (mixed precision); all inputs
    /// and outputs stay float32. tf32 is the graph of f32
    #[arg(long, value_name = "NAME", default_value = "f32")]
    precision: String,
    /// Recompute cheap activations in the backward pass (activation checkpointing): less memory, a little
    /// more time
    #[arg(long)]
    recompute: bool,
    /// Do not compare the gradients with a difference of the loss first
    #[arg(long)]
    no_check: bool,
    /// Where to write the training graph
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &TrainGraphArgs) -> Result<(), Failure> {
    let (loss, options) = args.how.options(&args.loss)?;
    let precision = args.precision.parse()?;
    if precision == Precision::Tf32 {
        say(
            "the graph is that of f32: tf32 is set where it runs, in a job by `precision`, in Python by `use_tf32`",
        );
    }
    let options = DeriveOptions { precision, recompute: args.recompute, ..options };
    if args.out.canonicalize().is_ok_and(|out| args.file.canonicalize().is_ok_and(|file| file == out)) {
        let text = format!("[E244] cannot write {}: it is the forward model itself", args.out.display());
        return Err(Failure::new(Exit::Usage, text, "name another file with --out"));
    }
    let is_device = args.out.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir());
    let replaces = args.force || is_device;
    if args.out.symlink_metadata().is_ok() && !replaces {
        return Err(Exists { path: args.out.clone() }.into());
    }
    let forward = read(&args.file)?;
    let mut warnings = warn(&forward, &options)?;
    let checks = ModelChecks { gradients: !args.no_check, batch_axis: false };
    let model = NamedModel { name: &args.file.display().to_string(), onnx: &forward };
    let derived = models()?.derive(model, loss, &options, checks);
    let derived = derived?;
    let graph = derived.graph;
    let fixed = derived.fixed_batch_reason.map(|reason| format!("{reason}; no job takes this graph"));
    let of_graph = [untouched(&graph.unreached), graph.doubtful_scores(), graph.doubtful_batches()];
    let doubts = [fixed, derived.doubt].into_iter().chain(of_graph);
    for warning in doubts.flatten() {
        say(&format!("warning: {warning}"));
        warnings.push(warning);
    }
    write(&args.out, &graph.with_first_values()?, replaces)?;
    if args.json { print_json(&report(&graph, &warnings)) } else { print(&text(&graph)) }
}

fn values(graph: &TrainingGraph) -> (Vec<&Io>, usize) {
    let inputs = graph.data_inputs.iter().chain(&graph.label).collect();
    (inputs, graph.params.iter().map(|param| param.initial.len()).sum())
}

/// Outputs that measure the model beside its loss, such as `correct`.
fn metrics(graph: &TrainingGraph) -> Vec<String> {
    let written =
        syncline_onnx::parse(&graph.train_onnx).ok().and_then(|model| model.graph).unwrap_or_default();
    let is_metric = |name: &String| {
        let is_gradient = [GRAD_SUFFIX, NEXT_SUFFIX].iter().any(|suffix| name.ends_with(suffix));
        let is_forward = graph.forward_outputs.iter().any(|output| output.name == *name);
        !is_gradient && !is_forward && ![LOSS, LOSS_WEIGHT].contains(&name.as_str())
    };
    written.output.into_iter().map(|output| output.name).filter(is_metric).collect()
}

fn describe(io: &Io) -> String {
    format!("{} {}", io.name, TensorType::new(io.element, io.dims.clone()))
}

fn report(graph: &TrainingGraph, warnings: &[String]) -> serde_json::Value {
    let (inputs, count) = values(graph);
    let describe = |ios: Vec<&Io>| ios.into_iter().map(describe).collect::<Vec<_>>();
    json!({
        "inputs": describe(inputs),
        "parameters": graph.params.iter().map(|param| &param.name).collect::<Vec<_>>(),
        "parameter_count": count,
        "running_statistics": graph.state.iter().map(|param| &param.name).collect::<Vec<_>>(),
        "metrics": metrics(graph),
        "forward_outputs": describe(graph.forward_outputs.iter().collect()),
        "classes": graph.classes,
        "recompute": graph.saving.map(|saving| json!({
            "open_axes": NOMINAL_AXIS,
            "peak_bytes_without": saving.without.peak_bytes,
            "peak_bytes": saving.with.peak_bytes,
            "flops_without": saving.without.flops,
            "flops": saving.with.flops,
        })),
        "loss_at": graph.loss_at,
        "warnings": warnings,
    })
}

fn saved(saving: &Saving) -> String {
    let Saving { without, with } = saving;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let more = 100.0 * (with.flops as f64 / without.flops.max(1) as f64 - 1.0);
    format!(
        "\nrecompute  {:.1} MiB of values at most instead of {:.1} (open axes counted as {NOMINAL_AXIS}), for {more:.1} % \
         more operations",
        mib(with.peak_bytes),
        mib(without.peak_bytes),
    )
}

fn text(graph: &TrainingGraph) -> String {
    let (inputs, count) = values(graph);
    let inputs: Vec<String> = inputs.into_iter().map(describe).collect();
    let named = [LOSS, LOSS_WEIGHT].map(str::to_owned).into_iter().chain(metrics(graph)).collect::<Vec<_>>();
    let outputs: Vec<String> = graph.forward_outputs.iter().map(describe).collect();
    let statistics = match graph.state.len() {
        0 => String::new(),
        n => format!(
            "\nstatistics {n} running ones are inputs; feed each from the output NAME{NEXT_SUFFIX} of the step before"
        ),
    };
    format!(
        "inputs     {}, and the parameters, with their first values\nloss       at {}\nparameters {} in {} tensors\noutputs    {}, \
         NAME.grad of each parameter, {}{statistics}{}",
        inputs.join(", "),
        graph.loss_at.as_deref().unwrap_or_default(),
        count,
        graph.params.len(),
        named.join(", "),
        outputs.join(", "),
        graph.saving.as_ref().map(saved).unwrap_or_default()
    )
}
