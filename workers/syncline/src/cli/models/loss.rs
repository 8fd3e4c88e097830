//! The loss and its settings, as flags.

use std::path::PathBuf;

use syncline_autodiff::{DeriveOptions, EvalMode, Loss, LossOptions, names_of};
use syncline_rpc::input;

use super::read;
use crate::cli::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct LossArgs {
    /// Name of the input that holds the wanted answers
    #[arg(long, value_name = "NAME", default_value = "label")]
    label: String,
    /// Output, or another value of the model, that the loss looks at, if not the first float output
    #[arg(long, value_name = "NAME")]
    output: Option<String>,
    /// Parameters that are not trained; `*` stands for any characters. May be given several times
    #[arg(long, value_name = "PATTERN")]
    freeze: Vec<String>,
    /// Parameters to train, all others are frozen; `*` stands for any characters. May be given several times
    #[arg(long, value_name = "PATTERN", conflicts_with = "params")]
    train: Vec<String>,
    #[command(flatten)]
    params: ParamsArg,
    /// Share of the probability that is spread over all classes, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    label_smoothing: f32,
    /// One weight per class
    #[arg(long, value_name = "W,W,...", value_delimiter = ',')]
    class_weights: Vec<f32>,
    /// How much a label 1 weighs against a label 0: one number, or one per class
    #[arg(long, value_name = "W,W,...", value_delimiter = ',')]
    pos_weight: Vec<f32>,
    /// Samples with this label count nothing
    #[arg(long, value_name = "LABEL", allow_negative_numbers = true)]
    ignore_index: Option<i64>,
    /// Axis of the classes; negative counts from the back
    #[arg(long, value_name = "AXIS", allow_negative_numbers = true)]
    class_axis: Option<i64>,
    /// Also count the labels among the K best scores
    #[arg(long, value_name = "K")]
    top_k: Option<u32>,
    /// Also report the perplexity
    #[arg(long)]
    perplexity: bool,
    /// Where `huber` turns from squared to absolute, if not at 1
    #[arg(long, value_name = "DELTA")]
    delta: Option<f32>,
    /// Train as the model evaluates: BatchNormalization with the statistics it remembers, no Dropout. With
    /// =PATTERN a part of it, by names of tensors and modules, as in --eval-mode=body.*; may be given
    /// several times
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, require_equals = true, default_missing_value = WHOLE)]
    eval_mode: Vec<String>,
    /// Seed of the Dropout nodes
    #[arg(long, value_name = "N", default_value_t = 0)]
    dropout_seed: i64,
}

/// Which parameters train, as a list.
#[derive(Debug, clap::Args)]
pub(crate) struct ParamsArg {
    /// File with the names of the parameters to train, one a line, as PyTorch prints those with
    /// requires_grad
    #[arg(long, value_name = "FILE")]
    params: Option<PathBuf>,
}

impl ParamsArg {
    pub(crate) fn names(&self) -> Result<Option<Vec<String>>, Failure> {
        let Some(path) = &self.params else { return Ok(None) };
        Ok(Some(names_of(&String::from_utf8_lossy(input::without_mark(&read(path)?)))))
    }
}

/// What `--eval-mode` without a pattern means, as a job file has it.
const WHOLE: &str = "true";

impl LossArgs {
    fn eval_mode(&self) -> EvalMode {
        match self.eval_mode.as_slice() {
            [] => EvalMode::Nothing,
            patterns if patterns.iter().any(|pattern| pattern == WHOLE) => EvalMode::Whole,
            patterns => EvalMode::Parts(patterns.to_vec()),
        }
    }

    /// The loss of that name, and how to derive with it.
    pub(crate) fn options(&self, loss: &str) -> Result<(Loss, DeriveOptions), Failure> {
        let loss = loss.parse()?;
        let options = DeriveOptions {
            output: self.output.clone(),
            label: self.label.clone(),
            loss: LossOptions {
                label_smoothing: self.label_smoothing,
                class_weights: self.class_weights.clone().into(),
                ignore_index: self.ignore_index,
                class_axis: self.class_axis,
                pos_weight: self.pos_weight.clone().into(),
                top_k: self.top_k,
                perplexity: self.perplexity,
                delta: self.delta,
            },
            params: self.params.names()?,
            train: (!self.train.is_empty()).then(|| self.train.clone()),
            freeze: self.freeze.clone(),
            eval_mode: self.eval_mode(),
            seed: self.dropout_seed,
            ..DeriveOptions::default()
        };
        Ok((loss, options))
    }
}
