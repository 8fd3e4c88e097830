//! Which constants of models that PyTorch exported are trained: parameters with `requires_grad`, and nothing
//! else.
//!
//! `autodiff/tests/selection/make_selection.py` wrote the files, by both exporters, and lists of what PyTorch
//! would train.

use std::{collections::BTreeSet, fs, path::Path};

use syncline_autodiff::{DeriveOptions, Loss, derive, names_of, parse_forward, select, warnings};
use syncline_onnx::ModelProto;

use crate::onnxruntime;

fn file(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("autodiff/tests/selection").join(name)).unwrap()
}

fn model(name: &str) -> ModelProto {
    parse_forward(&file(&format!("{name}.onnx"))).unwrap()
}

/// What PyTorch trains.
fn listed(name: &str) -> Vec<String> {
    names_of(&String::from_utf8(file(&format!("{name}.txt"))).unwrap())
}

fn trained(model: &ModelProto, options: &DeriveOptions) -> BTreeSet<String> {
    let selected = select(model, options).unwrap();
    selected.into_iter().filter(|one| one.reason.is_none()).map(|one| one.name).collect()
}

fn with_list(name: &str) -> DeriveOptions {
    DeriveOptions { params: Some(listed(name)), ..DeriveOptions::default() }
}

/// What is not trained, and why; `?` marks a guess.
fn left_alone(name: &str) -> Vec<String> {
    let selected = select(&model(name), &DeriveOptions::default()).unwrap();
    let left = selected.into_iter().filter_map(|one| {
        let reason = one.reason.filter(|reason| !["a running statistic", "not float32"].contains(reason))?;
        let mark = if one.doubtful { "?" } else { "" };
        Some(format!("{}: {reason}{mark}", one.name))
    });
    left.collect()
}

#[test]
fn buffers_are_not_trained_whoever_exported_them() {
    #[rustfmt::skip]
    let cases = [
        ("llama.dynamo",    "layers.0.rotary_emb.inv_freq: a buffer in PyTorch"),
        ("llama.script",    "layers.0.rotary_emb.inv_freq: has a buffer's name?"),
        ("sinusoid.dynamo", "pos_encoder.pe: a buffer in PyTorch"),
        ("sinusoid.script", "pos_encoder.pe: has a buffer's name?"),
        ("frozen.dynamo",   "channel_scale: a buffer in PyTorch"),
        ("frozen.script",   "channel_scale: does not have a parameter's name?"),
    ];
    for (name, want) in cases {
        assert_eq!(left_alone(name), [want], "{name}");
        let said = warnings(&model(name), &DeriveOptions::default()).unwrap();
        let doubtful = said.iter().any(|line| line.contains("is not trained: it "));
        assert_eq!(doubtful, want.ends_with('?'), "{name}: {said:?}");
        assert!(said.last().unwrap().starts_with("what settles it: in Python "), "{name}: {said:?}");
    }
}

#[test]
fn everything_that_pytorch_calls_a_parameter_is_trained_where_nothing_is_frozen() {
    for name in ["llama", "sinusoid"] {
        for exporter in ["dynamo", "script"] {
            let found = trained(&model(&format!("{name}.{exporter}")), &DeriveOptions::default());
            assert_eq!(found, listed(name).into_iter().collect(), "{name}.{exporter}");
        }
    }
}

#[test]
fn frozen_layers_are_only_known_from_a_list_and_that_is_said() {
    let (all, listed) = (DeriveOptions::default(), with_list("frozen"));
    for exporter in ["dynamo", "script"] {
        let model = model(&format!("frozen.{exporter}"));
        assert!(trained(&model, &all).contains("stem.0.weight"), "nothing in the file tells");
        assert!(
            warnings(&model, &all).unwrap().iter().any(|line| line.contains("requires_grad")),
            "{exporter}"
        );
        assert_eq!(trained(&model, &listed), listed.params.clone().unwrap().into_iter().collect());
        assert!(warnings(&model, &listed).unwrap().is_empty(), "{exporter}");
    }
}

#[test]
fn a_list_in_the_metadata_decides_alone_and_a_list_of_the_user_before_it() {
    for name in ["llama", "sinusoid", "frozen"] {
        let model = model(&format!("{name}.named"));
        assert_eq!(trained(&model, &DeriveOptions::default()), listed(name).into_iter().collect(), "{name}");
        let said = warnings(&model, &DeriveOptions::default()).unwrap();
        assert!(said.is_empty(), "{name}: {said:?}");
    }
    let head = DeriveOptions { params: Some(vec!["head.bias".to_owned()]), ..DeriveOptions::default() };
    assert_eq!(trained(&model("frozen.named"), &head), BTreeSet::from(["head.bias".to_owned()]));
}

#[test]
fn a_list_with_an_unknown_name_is_refused_with_the_near_ones() {
    let params = Some(vec!["model.head.weight".to_owned(), "heed.bias".to_owned()]);
    let error =
        select(&model("frozen.dynamo"), &DeriveOptions { params, ..DeriveOptions::default() }).unwrap_err();
    assert_eq!(error.code(), "E260");
    let text = error.to_string();
    assert!(text.contains("`model.head.weight` (near: `head.weight`"), "{text}");
    assert!(text.contains("`heed.bias` (near: `head.bias`"), "{text}");
}

#[test]
fn what_is_not_trained_is_a_constant_of_the_training_graph() {
    let runtime = onnxruntime::runtime();
    for name in ["llama.dynamo", "llama.script", "sinusoid.dynamo", "sinusoid.script", "frozen.named"] {
        let graph = derive(
            &runtime,
            &file(&format!("{name}.onnx")),
            Loss::SoftmaxCrossEntropy,
            &DeriveOptions::default(),
        );
        let names: Vec<String> = graph.unwrap().params.into_iter().map(|param| param.name).collect();
        let mut want = listed(name.split_once('.').unwrap().0);
        want.sort_unstable();
        let mut names = names;
        names.sort_unstable();
        assert_eq!(names, want, "{name}");
    }
}
