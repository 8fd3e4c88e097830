//! `syncline model check`: are the gradients of this model right, and what does a step cost?

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
};

use serde::Serialize;
use syncline_autodiff::{Support, support};
use syncline_onnx::{self as onnx, Dim, ModelProto, TensorType};
use syncline_scheduler::{core::significant, fault_code::FaultCode};
use syncline_workers::{
    check::{CheckOptions, Checked, NO_GRADIENTS, scatters},
    isolation::{ModelError, NamedModel},
};

use super::{loss::LossArgs, progress::Progress, read, warn};
use crate::cli::{Exit, Failure, print, print_json, support::native::models, table};

#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// Forward model, or a training graph with --ready
    file: PathBuf,
    /// softmax-cross-entropy, bce-with-logits, mse, l1 or huber; or output, which the model has computed
    /// itself
    #[arg(long, value_name = "NAME", required_unless_present = "ready")]
    loss: Option<String>,
    /// FILE is a training graph: its own gradients are checked, and settings of the loss mean nothing
    #[arg(long, conflicts_with = "loss")]
    ready: bool,
    /// First values for a training graph that holds none, as a safetensors file
    #[arg(long, value_name = "FILE", requires = "ready")]
    weights: Option<PathBuf>,
    #[command(flatten)]
    settings: LossArgs,
    /// Samples in the random batch
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=4096))]
    batch: u32,
    /// Size of an open axis; 4 if not given. May be given several times
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = dim)]
    dims: Vec<(String, usize)>,
    /// Seed of the random batch, of Dropout and of the directions
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

fn dim(text: &str) -> Result<(String, usize), String> {
    let (name, size) = text.rsplit_once('=').ok_or("write NAME=SIZE")?;
    Ok((name.to_owned(), size.parse().map_err(|_| format!("`{size}` is no size"))?))
}

/// What a check found.
#[derive(Debug, Serialize)]
struct Report {
    passed: bool,
    /// Kinds of operators in the file.
    operators: usize,
    /// Those without a gradient: none has to flow through them here.
    without_gradient: Vec<String>,
    loss: f64,
    /// The value that the loss looks at; `None` with `--ready`.
    loss_at: Option<String>,
    /// Element type of the differences: in float32 they are good to a few per cent only.
    differences: String,
    tolerance: f64,
    /// Parameters whose gradient is zero throughout: the loss does not depend on them, or not on this batch.
    zero_gradients: Vec<String>,
    parameters: Vec<Row>,
    /// Of a step: forward and backward.
    flops_per_sample: u64,
    /// Largest sum of values alive at once in a step, parameters and inputs not counted.
    bytes_per_sample: u64,
    /// The same with `--recompute`.
    bytes_per_sample_recomputed: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    gradient_norm: f64,
    error: f64,
    /// How far float32 is from float64; 0 without float64.
    rounding: f64,
    /// Parameters that were looked at together; the error is that of all of them.
    together: usize,
    passed: bool,
    /// Whether it passed although float32 has another one.
    is_rounded: bool,
}

impl Row {
    fn is_zero(&self) -> bool {
        self.gradient_norm == 0.0
    }
}

pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let bytes = read(&args.file)?;
    let how = CheckOptions {
        batch: args.batch as usize,
        dims: args.dims.iter().cloned().collect::<HashMap<_, _>>(),
        seed: args.seed,
    };
    let loss = args.loss.as_ref().map(|loss| args.settings.options(loss)).transpose()?;
    if let Some((_, options)) = &loss {
        warn(&bytes, options)?;
    }
    let loss = loss.as_ref().map(|(loss, options)| (*loss, options));
    let weights = args.weights.as_deref().map(read).transpose()?;
    let (name, progress) = (args.file.display().to_string(), Progress::new());
    let shown = |stage: &str| progress.show(stage);
    let model = NamedModel { name: &name, onnx: &bytes };
    let checked = models()?.check(model, loss, weights.as_deref(), &how, &shown);
    progress.clear();
    let model = onnx::parse(&bytes)?;
    let checked = checked.map_err(|error| refused(error, &model, &how.dims))?;
    let report = Report::of(&checked, &model);
    if args.json {
        print_json(&report)?;
    } else {
        print(&report.text())?;
    }
    let wrong: Vec<&str> =
        report.parameters.iter().filter(|row| !row.passed).map(|row| row.name.as_str()).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let text = format!("[E245] gradients differ from differences of the loss: {}", wrong.join(", "));
    let hint = match (report.parameters.iter().any(|row| !row.gradient_norm.is_finite()), scatters(&model)) {
        (true, _) => NO_GRADIENTS,
        (false, true) => {
            "compare with another --seed; if it stays, export the model with PyTorch's other exporter, which may have lost a \
             sum (index_add), or report it with the model"
        }
        (false, false) => "compare with another --seed; if it stays, report it with the model",
    };
    Err(Failure::new(Exit::JobFailed, text, hint))
}

/// What ONNX Runtime refuses may be a size that nobody gave.
fn refused(error: ModelError, model: &ModelProto, given: &HashMap<String, usize>) -> Failure {
    let by_onnx_runtime = [COMPILE, RUN].contains(&error.code());
    let open = open_axes(model, given);
    let failure = Failure::from(error);
    if !by_onnx_runtime || open.is_empty() {
        return failure;
    }
    let dims: Vec<String> = open.iter().map(|name| format!("--dim {name}=SIZE")).collect();
    failure.with_hint(format!(
        "the model leaves sizes open, which nobody gave and few may suit: give those of the data, {}",
        dims.join(" ")
    ))
}

/// ONNX Runtime does not accept a graph, or fails to run it.
const COMPILE: FaultCode = FaultCode::new("E323");
const RUN: FaultCode = FaultCode::new("E327");

/// Names of the axes that a sample of the data gives their size, without those that are given; in ascending
/// order.
fn open_axes(model: &ModelProto, given: &HashMap<String, usize>) -> BTreeSet<String> {
    let graph = model.graph.iter();
    let inputs = graph.flat_map(|graph| &graph.input).filter_map(TensorType::from_value_info);
    let names = inputs.flat_map(|ty| ty.dims.into_iter().skip(1)).filter_map(|dim| match dim {
        Dim::Symbol(name) => Some(name),
        Dim::Fixed(_) | Dim::Unknown => None,
    });
    names.filter(|name| !given.contains_key(name)).collect()
}

impl Report {
    fn of(checked: &Checked, model: &ModelProto) -> Self {
        let nodes = model.graph.iter().flat_map(|graph| &graph.node);
        let operators: BTreeSet<&str> = nodes.map(|node| node.op_type.as_str()).collect();
        let has_none = |op: &&&str| matches!(support(op), Support::Refused(_) | Support::Unknown);
        let tolerance = checked.tolerance();
        let rows = checked.params.iter().map(|param| Row {
            name: param.name.clone(),
            gradient_norm: param.norm,
            error: param.error,
            rounding: param.rounding,
            together: param.together,
            passed: checked.passes(param),
            is_rounded: checked.is_rounded(param),
        });
        let parameters: Vec<Row> = rows.collect();
        let zero = parameters.iter().filter(|row| row.is_zero()).map(|row| row.name.clone());
        let samples = checked.batch.max(1) as u64;
        Self {
            passed: parameters.iter().all(|row| row.passed),
            operators: operators.len(),
            without_gradient: operators.iter().filter(has_none).map(|op| (*op).to_owned()).collect(),
            loss: checked.loss,
            loss_at: checked.loss_at.clone(),
            differences: checked.differences.to_string(),
            tolerance,
            zero_gradients: zero.collect(),
            parameters,
            flops_per_sample: checked.cost.flops / samples,
            bytes_per_sample: checked.cost.peak_bytes / samples,
            bytes_per_sample_recomputed: checked.recomputed.map(|cost| cost.peak_bytes / samples),
        }
    }

    fn text(&self) -> String {
        let row = |row: &Row| {
            let verdict = match (row.passed, row.together) {
                (true, _) if row.is_zero() => "no gradient".to_owned(),
                (true, _) if row.is_rounded => "ok, but rounded".to_owned(),
                (true, _) => "ok".to_owned(),
                (false, 1) => "WRONG".to_owned(),
                (false, together) => format!("WRONG, or another of {together}"),
            };
            vec![
                row.name.clone(),
                format!("{:.3e}", row.gradient_norm),
                format!("{:.1e}", row.error),
                format!("{:.1e}", row.rounding),
                verdict,
            ]
        };
        let rows: Vec<Vec<String>> = self.parameters.iter().map(row).collect();
        let none = match self.without_gradient.as_slice() {
            [] => String::new(),
            none => format!("; none has to flow through {}", none.join(", ")),
        };
        let zero = match self.zero_gradients.as_slice() {
            [] => String::new(),
            zero => format!(
                "no gradient reaches {} on this batch: nothing but weight decay moves what the loss does not depend on\n",
                zero.join(", ")
            ),
        };
        format!(
            "operators   {} kinds, with a gradient wherever one has to flow{none}\nloss        {}{}\ndifferences {}, up to {:.0e} is passed\nper sample  {} FLOP and {} bytes of values in a step{}\n{zero}\n{}",
            self.operators,
            significant(self.loss),
            self.loss_at.as_ref().map(|output| format!(", of `{output}`")).unwrap_or_default(),
            self.differences,
            self.tolerance,
            self.flops_per_sample,
            self.bytes_per_sample,
            self.bytes_per_sample_recomputed
                .map(|bytes| format!(", {bytes} bytes with --recompute"))
                .unwrap_or_default(),
            table(&["parameter", ">gradient norm", ">error", ">rounding", "verdict"], &rows)
        )
    }
}

#[cfg(test)]
mod tests {
    use syncline_autodiff::Estimate;
    use syncline_onnx::ElementType;
    use syncline_workers::check::CheckedParam;

    use super::*;

    #[test]
    fn what_no_gradient_reaches_is_named() {
        let param = |name: &str, norm| CheckedParam {
            name: name.into(),
            norm,
            error: 0.0,
            together: 1,
            rounding: 0.0,
        };
        let checked = Checked {
            loss: 1.0,
            exact_loss: 1.0,
            loss_at: Some("scores".to_owned()),
            params: vec![param("first.weight", 0.0), param("last.weight", 1.0)],
            differences: ElementType::F64,
            gradients: ElementType::F64,
            cost: Estimate::default(),
            recomputed: None,
            batch: 1,
        };
        let report = Report::of(&checked, &ModelProto::default());
        assert!(report.passed && report.zero_gradients == ["first.weight"]);
        let text = report.text();
        assert!(text.contains("\nloss        1.000000, of `scores`\n"), "{text}");
        assert!(text.contains("no gradient reaches first.weight on this batch"), "{text}");
        let verdict = |name| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(verdict("first.weight").ends_with("no gradient") && verdict("last.weight").ends_with("ok"));
    }

    #[test]
    fn what_float32_changes_is_wrong_only_where_it_changes_the_loss_or_nearly_everything() {
        let verdict = |exact_loss, rounding| {
            let name = "w".to_owned();
            let checked = Checked {
                loss: 1.0,
                exact_loss,
                loss_at: None,
                params: vec![CheckedParam { name, norm: 1.0, error: 0.0, together: 1, rounding }],
                differences: ElementType::F64,
                gradients: ElementType::F64,
                cost: Estimate::default(),
                recomputed: None,
                batch: 1,
            };
            Report::of(&checked, &ModelProto::default())
                .text()
                .trim_end()
                .rsplit("  ")
                .next()
                .unwrap()
                .to_owned()
        };
        assert_eq!(verdict(1.0, 0.01), "ok");
        assert_eq!(verdict(1.000_001, 0.2), "ok, but rounded");
        assert_eq!(verdict(1.001, 0.2), "WRONG", "an operator is computed otherwise");
        assert_eq!(verdict(1.0, 0.9), "WRONG");
    }
}
