//! What a file does not say about a model, in sentences for people: who trains it should know before it is trained.

use std::collections::HashSet;

use syncline_onnx::ModelProto;
use syncline_onnx::proto::metadata;

use crate::error::AutodiffError;
use crate::forward::{Exported, Exporter, Shared, TRAINABLE, select, shared, trained_padding};
use crate::options::DeriveOptions;

/// Most constants that are named one by one.
const MOST_NAMED: usize = 8;

/// Most weights that are named one by one where several are one.
const MOST_SHARED: usize = 2;

/// Says what is doubtful about the selection of parameters and about the form of an exported model, and the lines that
/// settle it. Nothing where nothing is doubtful. `model` is what [`parse_forward`](super::parse_forward) reads.
pub fn warnings(model: &ModelProto, options: &DeriveOptions) -> Result<Vec<String>, AutodiffError> {
    let mut said = Vec::new();
    let exported = Exported::of(model);
    if let Some(exported) = exported.as_ref().filter(|_| !options.eval_mode) {
        said.extend(of_form(exported));
    }
    let selected = select(model, options)?;
    let trained = selected.iter().filter(|one| one.reason.is_none()).map(|one| one.name.as_str());
    let trained: HashSet<&str> = trained.collect();
    if let Some((graph, exported)) = model.graph.as_ref().zip(exported.as_ref()) {
        let of_trained: Vec<Shared> =
            shared(graph).into_iter().filter(|one| trained.contains(one.constant.as_str())).collect();
        said.extend(of_shared(&of_trained, exported.by));
        let padding = trained_padding(graph)
            .into_iter()
            .filter(|(table, _)| trained.contains(table.as_str()))
            .take(MOST_NAMED);
        said.extend(padding.map(|(table, row)| {
            format!(
                "row {row} of `{table}` is padding, which PyTorch keeps as it is, and is trained here: it is not zeros, or \
                 others read the table as well"
            )
        }));
    }
    let doubtful: Vec<_> = selected.iter().filter(|selected| selected.doubtful).collect();
    for selected in doubtful.iter().take(MOST_NAMED) {
        let (name, reason) = (&selected.name, selected.reason.unwrap_or_default());
        said.push(format!(
            "`{name}` is not trained: it {reason}, and the file does not say whether it is a parameter"
        ));
    }
    if doubtful.len() > MOST_NAMED {
        said.push(format!("nor are {} more; `syncline model show` lists them", doubtful.len() - MOST_NAMED));
    }
    let decided = options.params.is_some()
        || options.train.is_some()
        || metadata(&model.metadata_props, TRAINABLE).is_some();
    let frozen = exported.is_some() && !decided && options.freeze.is_empty();
    if frozen {
        said.push(
            "layers that PyTorch would freeze are trained: requires_grad is not in the file".to_owned(),
        );
    }
    if frozen || !doubtful.is_empty() {
        said.push(format!("what settles it: {SETTLES}"));
    }
    Ok(said)
}

const SETTLES: &str = "in Python open(\"names.txt\", \"w\").write(\"\\n\".join(n for n, p in model.named_parameters() \
                       if p.requires_grad)), then --params names.txt, or params = \"names.txt\" in the settings of a job";

fn of_form(exported: &Exported) -> Vec<String> {
    let line = export_line(exported.by);
    let mut said = Vec::new();
    if let Some(first) = exported.folded.first() {
        let more = match exported.folded.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        said.push(format!(
            "BatchNormalization is folded into the weights in front of it (`{first}`{more}), and will not normalize in \
             training; export again with {line}"
        ));
    }
    if !exported.drops && (exported.evaluates || exported.source_drops) {
        said.push(format!(
            "the model was exported as it evaluates: if it has Dropout, that is not in the file, and nothing drops in \
             training; export again with {line}"
        ));
    }
    said
}

/// Weights that are one in the file.
fn of_shared(shared: &[Shared], by: Exporter) -> Option<String> {
    let pair = |one: &Shared| format!("`{}` is `{}` as well", one.tensors[0], one.tensors[1]);
    let first: Vec<String> = shared.iter().take(MOST_SHARED).map(pair).collect();
    let more = match shared.len().saturating_sub(MOST_SHARED) {
        0 => String::new(),
        count => format!(", and {count} more are several"),
    };
    let how = match by {
        Exporter::Dynamo => "optimize=False",
        Exporter::Script => "model.train() and training=torch.onnx.TrainingMode.TRAINING",
    };
    (!first.is_empty()).then(|| {
        format!(
            "{}{more}: the exporter made equal weights one, which train as one; unless they are tied on purpose, export \
             again with {how}",
            first.join(", ")
        )
    })
}

/// What cannot be known of a model without Dropout; `None` where it is known or [`warnings`] warns.
pub fn unknown_dropout(model: &ModelProto) -> Option<String> {
    let exported = Exported::of(model)?;
    let unknown = !(exported.drops || exported.evaluates || exported.trains || exported.source_drops);
    unknown.then(|| {
        let line = export_line(exported.by);
        format!("none in the file; a model in eval() loses its own when it is exported, which the file does not tell; {line} keeps it")
    })
}

/// How to export for training.
pub(super) fn export_line(by: Exporter) -> &'static str {
    match by {
        Exporter::Dynamo => {
            "torch.onnx.export(model.train(), args, \"model.onnx\", dynamo=True, optimize=False, external_data=False, \
             dynamic_shapes=({0: torch.export.Dim(\"batch\")},))"
        }
        Exporter::Script => {
            "torch.onnx.export(model.train(), args, \"model.onnx\", dynamo=False, opset_version=17, \
             do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING, input_names=[\"x\"], \
             dynamic_axes={\"x\": {0: \"batch\"}})"
        }
    }
}
