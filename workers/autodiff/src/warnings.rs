//! What a file does not say about a model, in sentences for people: who trains it should know before it is
//! trained.

use std::collections::{BTreeMap, HashSet};

use syncline_onnx::ModelProto;
use syncline_onnx::proto::{GraphProto, metadata};

use crate::error::AutodiffError;
use crate::forward::{
    EvalParts, Exported, Exporter, Selected, Shared, TRAINABLE, evaluation_form, norms_besides, random_nodes,
    select, shared, trained_padding,
};
use crate::options::{DeriveOptions, EvalMode};

/// Most constants that are named one by one.
const MOST_NAMED: usize = 8;

/// Most weights that are named one by one where several are one.
const MOST_SHARED: usize = 2;

/// Says what is doubtful about the selection of parameters and about the form of an exported model, and the
/// lines that settle it. Nothing where nothing is doubtful. `model` is what
/// [`parse_forward`](super::parse_forward) reads.
pub fn warnings(model: &ModelProto, options: &DeriveOptions) -> Result<Vec<String>, AutodiffError> {
    let mut said = Vec::new();
    let exported = Exported::of(model);
    if let Some(exported) = exported.as_ref().filter(|_| !options.eval_mode.is_whole()) {
        said.extend(of_form(exported));
        let patterns = if let EvalMode::Parts(patterns) = &options.eval_mode { &patterns[..] } else { &[] };
        said.extend(model.graph.as_ref().and_then(|graph| of_mixed_form(graph, exported, patterns)));
    }
    if let (EvalMode::Parts(patterns), Some(graph)) = (&options.eval_mode, &model.graph) {
        said.extend(of_parts(&EvalParts::choose(graph, patterns)?));
    }
    said.extend(model.graph.iter().flat_map(unread_inputs).take(MOST_NAMED).map(|input| {
        format!("input `{input}` is read by nothing, or for its shape alone: the model ignores what stands there; see what was passed when it was exported")
    }));
    said.extend(model.graph.as_ref().and_then(of_random));
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
    said.extend(of_other_floats(model, &selected));
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
            "the file does not say whether PyTorch froze some layers (requires_grad): all of them are trained"
                .to_owned(),
        );
    }
    if frozen || !doubtful.is_empty() {
        said.push(format!("what settles it: {SETTLES}"));
    }
    Ok(said)
}

/// Weights that stay as they are because of their type, a sentence for each type.
fn of_other_floats(model: &ModelProto, selected: &[Selected]) -> Vec<String> {
    let tensors = model.graph.iter().flat_map(|graph| &graph.initializer);
    let mut by_type: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (tensor, _) in tensors.zip(selected).filter(|(_, one)| one.lacks_float32()) {
        by_type.entry(tensor.element().to_string()).or_default().push(&tensor.name);
    }
    let sentence = |(element, names): (String, Vec<&str>)| {
        let first: Vec<String> = names.iter().take(MOST_NAMED).map(|name| format!("`{name}`")).collect();
        let more = match names.len() - first.len() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        let are = if names.len() == 1 { "is" } else { "are" };
        format!(
            "{}{more} {are} not trained, being {element}: only float32 is; export model.float()",
            first.join(", ")
        )
    };
    by_type.into_iter().map(sentence).collect()
}

/// Dropouts of which nobody knows whether `eval_mode` means them.
fn of_parts(parts: &EvalParts) -> Option<String> {
    let first = parts.unplaced.first()?;
    let more = match parts.unplaced.len() {
        1 => String::new(),
        count => format!(", nor for {} more", count - 1),
    };
    Some(format!(
        "the file does not say of which module the Dropout `{first}` is{more}: it drops, unless a pattern of eval_mode means the name of \
         its node"
    ))
}

/// What draws random numbers even where the model evaluates.
fn of_random(graph: &GraphProto) -> Option<String> {
    if random_nodes(graph).is_empty() {
        // Most models, of which a copy would cost as much memory as their weights.
        return None;
    }
    let evaluated = evaluation_form(graph);
    let random = random_nodes(&evaluated);
    let first = random.first()?;
    let more = match random.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    Some(format!(
        "`{}` ({}){more} draws random numbers even when the model evaluates and predicts: what it computes differs from one time to \
         the next, as in the file; if it is Dropout of another kind, export model.eval()",
        first.label(),
        first.op_type
    ))
}

/// Data inputs that no node reads, in a subgraph or outside, and no output hands on.
fn unread_inputs(graph: &GraphProto) -> Vec<&str> {
    // Up to IR version 3 every initializer is listed as an input as well.
    let mut read: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let mut graphs = vec![graph];
    while let Some(graph) = graphs.pop() {
        read.extend(graph.output.iter().map(|output| output.name.as_str()));
        for node in &graph.node {
            let takes_numbers = !matches!(node.op_type.as_str(), "Shape" | "Size");
            read.extend(node.input.iter().filter(|_| takes_numbers).map(String::as_str));
            graphs.extend(node.subgraphs());
        }
    }
    graph.input.iter().map(|input| input.name.as_str()).filter(|input| !read.contains(input)).collect()
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
    if exported.evaluates && exported.trains {
        // A part of it does, and somebody meant it so.
    } else if !exported.drops && exported.evaluates {
        said.push(format!(
            "the model was exported as it evaluates: if it has Dropout, that is not in the file, and nothing drops in \
             training; export again with {line}"
        ));
    } else if !exported.drops && exported.source_drops && !exported.trains {
        said.push(format!(
            "the module has Dropout, and the file has none, so that nothing drops in training: unless its rate is 0, the model was \
             exported as it evaluates; export again with {line}"
        ));
    }
    said
}

/// Norms that were exported as they evaluate, beside others that train: here all of them would train.
fn of_mixed_form(graph: &GraphProto, exported: &Exported, patterns: &[String]) -> Option<String> {
    if !(exported.evaluates && exported.trains) {
        return None;
    }
    let norms = norms_besides(graph, patterns, |norm| exported.evaluates_at(norm));
    let first = norms.first()?;
    let named: Vec<String> = norms.iter().take(MOST_NAMED).map(|norm| format!("\"{norm}\"")).collect();
    let (more, dots) = match norms.len() - 1 {
        0 => (String::new(), ""),
        more if norms.len() > MOST_NAMED => (format!(" and {more} more norms"), ", ..."),
        more => (format!(" and {more} more norms"), ""),
    };
    Some(format!(
        "`{first}`{more} were in eval() when the model was exported, and others in train(): all of them normalize by the batch in training, \
         unless eval_mode means them: eval_mode = [{}{dots}], or a pattern such as \"body.*\"",
        named.join(", ")
    ))
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
fn export_line(by: Exporter) -> &'static str {
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

#[cfg(test)]
mod tests {
    use syncline_onnx::{
        ElementType, GraphBuilder, mlp,
        proto::{NodeProto, StringStringEntryProto, TensorProto, ValueInfoProto},
    };

    use super::*;

    /// A model of PyTorch whose Dropout has left nothing but a line of its source.
    fn without_its_dropout(norm: &str) -> ModelProto {
        let mut model = mlp(&[4, 3, 2], 1);
        model.producer_name = "pytorch".to_owned();
        let nodes = &mut model.graph.as_mut().unwrap().node;
        let entry =
            |key: &str, value: &str| StringStringEntryProto { key: key.to_owned(), value: value.to_owned() };
        nodes[0].name = norm.to_owned();
        nodes[1].metadata_props =
            vec![entry("pkg.torch.onnx.stack_trace", "return F.dropout(input, self.p)")];
        model
    }

    #[test]
    fn a_dropout_of_rate_0_is_no_sign_of_a_model_that_evaluates() {
        let about_form = |norm| {
            let all = warnings(&without_its_dropout(norm), &DeriveOptions::default()).unwrap();
            all.into_iter().filter(|text| text.contains("export again")).collect::<Vec<_>>()
        };
        assert_eq!(about_form("node__native_batch_norm_legit_functional__0"), [""; 0]);
        let evaluates = about_form("node__native_batch_norm_legit_no_training__0");
        assert!(evaluates[0].starts_with("the model was exported as it evaluates"), "{evaluates:?}");
        let unknown = about_form("node_linear");
        assert!(unknown.len() == 1 && unknown[0].contains("unless its rate is 0"), "{unknown:?}");
    }

    #[test]
    fn a_norm_in_eval_beside_one_in_train_is_named_until_eval_mode_means_it() {
        let mut graph = GraphBuilder::new("teacher");
        let mut value = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
        for part in ["teacher", "student"] {
            let inputs = ["weight", "bias", "running_mean", "running_var"].map(|last| {
                graph.constant(TensorProto::from_f32(&format!("{part}.1.{last}"), &[2], &[1.0, 2.0]))
            });
            let [scale, bias, mean, variance] = inputs.each_ref().map(String::as_str);
            value = graph.op("BatchNormalization", &[&value, scale, bias, mean, variance], &[]);
        }
        graph.output(&value);
        let mut model = graph.finish();
        model.producer_name = "pytorch".to_owned();
        let [teacher, student] = &mut model.graph.as_mut().unwrap().node[..] else { panic!("two norms") };
        teacher.name = "node__native_batch_norm_legit_no_training__0".to_owned();
        teacher.metadata_props = vec![StringStringEntryProto {
            key: "pkg.torch.onnx.stack_trace".to_owned(),
            value: "x = self.norm(x)".to_owned(),
        }];
        student.name = "node__native_batch_norm_legit_functional__0".to_owned();
        let about_form = |patterns: &[&str]| {
            let parts = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
            let options = DeriveOptions { eval_mode: EvalMode::Parts(parts), ..DeriveOptions::default() };
            let all = warnings(&model, &options).unwrap();
            all.into_iter()
                .filter(|text| text.contains("export") && !text.contains("froze"))
                .collect::<Vec<_>>()
        };
        let told = about_form(&["student.*"]);
        assert!(told.len() == 1 && told[0].ends_with("or a pattern such as \"body.*\""), "{told:?}");
        assert!(told[0].contains("eval_mode = [\"teacher.1.weight\"]"), "{told:?}");
        assert_eq!(about_form(&["teacher.*"]), [""; 0]);
    }

    #[test]
    fn a_model_of_pytorch_that_does_not_say_what_trains_is_not_said_to_have_frozen_layers() {
        let mut model = mlp(&[4, 3, 2], 1);
        model.producer_name = "pytorch".to_owned();
        let about_frozen = |options: &DeriveOptions| {
            let all = warnings(&model, options).unwrap();
            all.into_iter().filter(|text| text.contains("requires_grad)")).collect::<Vec<_>>()
        };
        let told = about_frozen(&DeriveOptions::default());
        assert!(told[0].starts_with("the file does not say whether PyTorch froze some layers"), "{told:?}");
        let chosen = DeriveOptions { freeze: vec!["fc1.*".to_owned()], ..DeriveOptions::default() };
        assert_eq!(about_frozen(&chosen), [""; 0]);
    }

    #[test]
    fn weights_that_only_their_type_keeps_from_training_are_named_unless_they_are_frozen() {
        let mut model = mlp(&[4, 3, 2], 1);
        let initializers = &mut model.graph.as_mut().unwrap().initializer;
        for (at, element) in [(0, ElementType::F16), (1, ElementType::F16), (3, ElementType::F64)] {
            let numbers = initializers[at].shape().iter().product::<usize>();
            let bytes = numbers * element.bits().unwrap() as usize / 8;
            initializers[at].data_type = element.code();
            initializers[at].raw_data = Some(vec![1; bytes]);
        }
        let said = |freeze: &[&str]| {
            let freeze = freeze.iter().map(|&pattern| pattern.to_owned()).collect();
            let options = DeriveOptions { freeze, ..DeriveOptions::default() };
            let all = warnings(&model, &options).unwrap();
            all.into_iter().filter(|text| text.contains("not trained, being")).collect::<Vec<_>>()
        };
        let of_16_bits =
            "`fc1.weight`, `fc1.bias` are not trained, being float16: only float32 is; export model.float()";
        let of_64_bits = "`fc2.bias` is not trained, being float64: only float32 is; export model.float()";
        assert_eq!(said(&[]), [of_16_bits, of_64_bits]);
        assert_eq!(said(&["fc2.*"]), [of_16_bits]);
    }

    #[test]
    fn an_input_that_nothing_reads_but_for_its_shape_is_named() {
        let mut model = mlp(&[4, 3, 2], 1);
        let about_inputs = |model: &ModelProto| {
            let all = warnings(model, &DeriveOptions::default()).unwrap();
            all.into_iter().filter(|text| text.starts_with("input `")).collect::<Vec<_>>()
        };
        assert_eq!(about_inputs(&model), [""; 0]);
        let graph = model.graph.as_mut().unwrap();
        graph.input.push(ValueInfoProto { name: "user".to_owned(), ..graph.input[0].clone() });
        let told = about_inputs(&model);
        assert!(told.len() == 1 && told[0].starts_with("input `user` is read by nothing"), "{told:?}");
        model.graph.as_mut().unwrap().node.push(NodeProto::named("sizes", "Shape", &["user"], &[]));
        assert_eq!(about_inputs(&model), told);
    }
}
