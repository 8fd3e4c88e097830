//! Training graphs that are derived here, from forward models, with ONNX Runtime.

use std::borrow::Cow;

use syncline_autodiff::{AutodiffError, DeriveOptions, Loss, LossOptions, names_of, parse_forward, warnings};
use syncline_rpc::input;
use syncline_scheduler::spec::DataSpec;

use super::{
    SubmitError,
    first_weights::put_in_weights,
    graph::JobGraph,
    model::{ByteSource, FirstValues, Model},
    name_list::list,
    open_sizes,
    prepare::{MissingKernel, PreparedJob, PreparedModel, assemble},
    read::read,
    ready,
    training::{ParamList, Settings, Training},
};
use crate::isolation::{DynamicBatch, ModelChecks, ModelHost, NamedModel};

/// Derives, checks and describes. Touches neither the engine nor the parameter server.
///
/// `models`: where the model is loaded; of a [`Runtime`](syncline_runtime::Runtime) what [`ModelHost::of`]
/// says.
///
/// # Errors
/// E001 for names, E020 to E029 for graph and settings, E301 to E319 and E247 to E265 for the model, E330 to
/// E339 and E480 to E489 for the data, E360 for a file that cannot be read, E364 to E368.
pub fn prepare(models: impl Into<ModelHost>, graph: &JobGraph) -> Result<PreparedJob, SubmitError> {
    let host = models.into();
    assemble(graph, |training, data, said| prepare_model(&host, training, data, said))
}

/// The training graph of a node, derived or as it was given. `data` names files and no patterns.
pub(super) fn prepare_model<'a>(
    host: &ModelHost,
    training: &'a Training,
    data: &DataSpec,
    said: &mut Vec<String>,
) -> Result<PreparedModel<'a>, SubmitError> {
    let settings = &training.settings;
    match &training.model {
        Model::Forward { onnx, loss, options, output, weights } => {
            let options = derive_options(settings, options, output)?;
            let model = (onnx, weights.as_ref());
            derive_graph(host, model, *loss, options, (settings.check, data), said)
        }
        Model::Ready { onnx, .. } => ready::take(&training.model, settings, |bytes, weights| {
            let model = NamedModel { name: &onnx.name(), onnx: bytes };
            Ok(host.accept_ready(model, weights, settings.check)?.graph)
        }),
    }
}

fn derive_options(
    settings: &Settings,
    loss: &LossOptions,
    output: &Option<String>,
) -> Result<DeriveOptions, SubmitError> {
    Ok(DeriveOptions {
        output: output.clone(),
        loss: loss.clone(),
        params: settings.params.as_ref().map(names).transpose()?,
        train: (!settings.train.is_empty()).then(|| settings.train.clone()),
        freeze: settings.freeze.clone(),
        sparse: settings.sparse.clone(),
        eval_mode: settings.eval_mode.clone(),
        precision: settings.precision,
        recompute: settings.recompute,
        seed: settings.seed as i64,
        ..DeriveOptions::default()
    })
}

fn derive_graph<'a>(
    host: &ModelHost,
    (model, weights): (&'a ByteSource, Option<&FirstValues>),
    loss: Loss,
    mut options: DeriveOptions,
    (check_gradients, data): (bool, &DataSpec),
    said: &mut Vec<String>,
) -> Result<PreparedModel<'a>, SubmitError> {
    let mut onnx = read(model)?;
    let parsed = parse_forward(&onnx).map_err(AutodiffError::from)?;
    said.extend(warnings(&parsed, &options)?);
    let mut first = None;
    if let Some(weights) = weights {
        let filled = put_in_weights(parsed, weights, options)?;
        said.extend(filled.warning);
        (onnx, options, first) = (Cow::Owned(filled.onnx), filled.options, Some(filled.from));
    }
    let checks = ModelChecks { gradients: check_gradients, batch_axis: true };
    let named = NamedModel { name: &model.name(), onnx: &onnx };
    let derived = open_sizes::derive(host, named, loss, &options, checks, data)?;
    if let Some(first) = first {
        first.check_complete(&derived.graph)?;
    }
    said.extend(derived.doubt);
    let precision = options.precision;
    let missing_kernel = derived.missing_cpu_kernel.map(|op| MissingKernel { op, precision });
    said.extend(derived.graph.row_tables.whole.iter().map(|(table, why)| {
        format!("all rows of `{table}` travel at every step, although `sparse` means it: {why}")
    }));
    said.extend(untouched(&derived.graph.unreached));
    said.extend(derived.graph.doubtful_scores());
    said.extend(derived.graph.doubtful_batches());
    said.extend(
        derived
            .graph
            .row_tables
            .idle
            .iter()
            .map(|(pattern, why)| format!("`{pattern}` of `sparse` trains no table by rows: {why}")),
    );
    said.extend(derived.graph.row_tables.untrained.iter().map(|(table, why)| {
        format!("`{table}`, which `sparse` means, is not trained ({why}): it does not travel at all")
    }));
    let onnx = match derived.dynamic_batch {
        Some(DynamicBatch { exported_size, onnx }) => {
            said.push(format!(
                "the model was exported for batches of {exported_size} samples; it takes any now"
            ));
            Cow::Owned(onnx)
        }
        None => onnx,
    };
    Ok(PreparedModel { onnx, graph: derived.graph, missing_kernel })
}

/// What becomes of parameters that no gradient reaches; `None` if it reaches all.
pub fn untouched(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| {
        format!(
            "no gradient reaches {}: the loss does not depend on that, or only through integers (a quantized model) \
             or a detach(), and nothing but weight decay moves it",
            list(names)
        )
    })
}

/// A list of names that somebody's program printed.
const MAX_LIST_BYTES: u64 = 64 << 20;

fn names(list: &ParamList) -> Result<Vec<String>, SubmitError> {
    match list {
        ParamList::Names(names) => Ok(names.clone()),
        ParamList::File(path) => match input::read_text(path, MAX_LIST_BYTES) {
            Ok(text) => Ok(names_of(&text)),
            Err(source) => Err(SubmitError::Read { path: path.clone(), source }),
        },
    }
}
