//! Weights that PyTorch has tied are one tensor of the file, and are meant by each of their names.

use std::fs;

use syncline_autodiff::{AutodiffError, DeriveOptions, Loss, parse_forward, select};
use syncline_onnx::{mlp, proto::StringStringEntryProto};
use syncline_scheduler::spec::{DataSpec, Source};
use syncline_workers::{
    export::fill,
    submit::{JobGraph, Model, PreparedJob, SubmitError, Training, prepare},
};

use crate::{
    onnxruntime,
    submission::{Tensors, first, saved},
};

/// Two layers, with `fc1.weight = fc2.weight` in PyTorch, whose exporter keeps the last name.
fn tied() -> Vec<u8> {
    let entry =
        |key: &str, value: &str| StringStringEntryProto { key: key.to_owned(), value: value.to_owned() };
    let mut model = mlp(&[2, 2, 2], 1);
    let graph = model.graph.as_mut().unwrap();
    let names: Vec<String> = graph.initializer.iter().map(|tensor| tensor.name.clone()).collect();
    let lines: Vec<String> = names.iter().map(|name| format!("p: PARAMETER target='{name}'")).collect();
    graph.metadata_props.push(entry("pkg.torch.export.ExportedProgram.graph_signature", &lines.join("\n")));
    graph.initializer.retain(|tensor| tensor.name != "fc1.weight");
    let reader = graph.node.iter_mut().find(|node| node.input.iter().any(|input| input == "fc1.weight"));
    let reader = reader.unwrap();
    reader.input[1] = "fc2.weight".to_owned();
    reader.metadata_props.push(entry("pkg.torch.onnx.name_scopes", "['', 'fc1', 'linear']"));
    model.to_bytes()
}

fn trained(options: &DeriveOptions) -> Result<Vec<String>, AutodiffError> {
    let selected = select(&parse_forward(&tied()).unwrap(), options)?;
    Ok(selected.into_iter().filter(|one| one.reason.is_none()).map(|one| one.name).collect())
}

#[test]
fn what_is_frozen_or_trained_may_have_each_name_of_a_tied_weight() {
    let list = |name: &str| vec![name.to_owned()];
    for name in ["fc1.weight", "fc2.weight", "*1.weight"] {
        let frozen = DeriveOptions { freeze: list(name), ..DeriveOptions::default() };
        assert_eq!(trained(&frozen).unwrap(), ["fc1.bias", "fc2.bias"], "{name}");
        let alone = DeriveOptions { train: Some(list(name)), ..DeriveOptions::default() };
        assert_eq!(trained(&alone).unwrap(), ["fc2.weight"], "{name}");
    }
    let layer = DeriveOptions { train: Some(list("fc1.*")), ..DeriveOptions::default() };
    assert_eq!(trained(&layer).unwrap(), ["fc1.bias", "fc2.weight"]);
    let unknown = DeriveOptions { freeze: list("fc1.wieght"), ..DeriveOptions::default() };
    let refused = trained(&unknown).unwrap_err().to_string();
    assert!(refused.starts_with("[E317]") && refused.contains("`fc1.weight`"), "{refused}");
}

/// The job of the tied model with first weights.
fn begun(with: impl FnOnce(Model) -> Model) -> Result<PreparedJob, SubmitError> {
    let folder = tempfile::tempdir().unwrap();
    let rows = folder.path().join("rows.csv");
    fs::write(&rows, "1,2,0\n3,4,1\n5,6,1\n7,8,0\n").unwrap();
    let data = DataSpec::new(Source::csv(rows.to_str().unwrap()));
    let model = with(Model::forward(tied(), Loss::SoftmaxCrossEntropy));
    let mut job = JobGraph::new("job");
    job.train("train", Training::new(model, data).with(|settings| settings.batch = 2));
    prepare(&onnxruntime::runtime(), &job)
}

const BIASES: Tensors<'static> = &[("fc1.bias", &[2], 1.0), ("fc2.bias", &[2], 2.0)];

/// A file of both biases, and of these numbers under these names of the weight.
fn saved_under(names: &[(&'static str, f32)]) -> Vec<u8> {
    let weights = names.iter().map(|(name, number)| (*name, &[2, 2][..], *number));
    saved(&BIASES.iter().copied().chain(weights).collect::<Vec<_>>())
}

#[test]
fn first_weights_may_have_each_name_of_a_tied_weight_and_all_of_them() {
    for names in
        [&[("fc1.weight", 3.0)][..], &[("fc2.weight", 3.0)], &[("fc1.weight", 3.0), ("fc2.weight", 3.0)]]
    {
        let job = begun(|model| model.with_weights(saved_under(names))).unwrap();
        assert_eq!(first(&job)["fc2.weight"], [3.0; 4], "{names:?}");
        assert!(!job.warnings.iter().any(|warning| warning.contains("no parameter")), "{:?}", job.warnings);
        assert_eq!(fill(&tied(), "s", &saved_under(names)).unwrap().parameters, 3, "{names:?}");
    }
    let part = saved(&[("fc1.weight", &[2, 2], 3.0)]);
    let job = begun(|model| model.with_partial_weights(part)).unwrap();
    assert_eq!(first(&job)["fc2.weight"], [3.0; 4]);
    let said = "keep the values of the ONNX file: `fc1.bias`, `fc2.bias`";
    assert!(job.warnings.iter().any(|warning| warning.ends_with(said)), "{:?}", job.warnings);
}

#[test]
fn a_file_with_two_tensors_for_a_weight_that_is_tied_is_refused() {
    let apart = saved_under(&[("fc1.weight", 3.0), ("fc2.weight", 4.0)]);
    let refused = begun(|model| model.with_weights(apart)).map(|_| ()).unwrap_err().to_string();
    let words = "`fc1.weight` is not equal to its `fc2.weight`, and the model has one tensor for both";
    assert!(refused.starts_with("[E247]") && refused.ends_with(words), "{refused}");
}
