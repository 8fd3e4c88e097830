//! Models that PyTorch exported as they evaluate have lost what only training needs, and that is said before they train.
//!
//! `tests/eval_form/make_eval_form.py` wrote the files, by both exporters.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{collections::BTreeMap, fs, path::Path};

use syncline_workers::autodiff::{DeriveOptions, parse_forward, select, unknown_dropout, warnings};
use syncline_workers::onnx::ModelProto;

fn model(name: &str) -> ModelProto {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/eval_form/{name}.onnx"));
    parse_forward(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn what_an_export_in_eval_form_has_lost_is_said_with_the_line_that_keeps_it() {
    #[rustfmt::skip]
    let cases = [
        // file,             norms folded, dropout lost, unknown
        ("folded.script",    true,         true,         false),
        ("kept.script",      false,        true,         false),
        ("training.script",  false,        false,        false),
        ("folded.dynamo",    true,         true,         false),
        ("kept.dynamo",      false,        true,         false),
        ("training.dynamo",  false,        false,        false),
        ("optimised.dynamo", true,         false,        false),
        ("plain.script",     false,        false,        true),
        ("plain.dynamo",     false,        false,        true),
    ];
    for (name, folded, dropped, unknown) in cases {
        let model = model(name);
        let said = warnings(&model, &DeriveOptions::default()).unwrap();
        let line = |part: &str| said.iter().find(|line| line.contains(part));
        assert_eq!(line("BatchNormalization is folded").is_some(), folded, "{name}: {said:?}");
        assert_eq!(line("nothing drops in training").is_some(), dropped, "{name}: {said:?}");
        let exporter = if name.ends_with("script") { "dynamo=False" } else { "dynamo=True" };
        for said in said.iter().filter(|line| line.contains("export again")) {
            assert!(
                said.contains("torch.onnx.export(model.train(), ") && said.contains(exporter),
                "{name}: {said}"
            );
        }
        assert_eq!(unknown_dropout(&model).is_some(), unknown, "{name}");
        let as_it_evaluates = DeriveOptions { eval_mode: true, ..DeriveOptions::default() };
        let said = warnings(&model, &as_it_evaluates).unwrap();
        assert!(
            !said.iter().any(|line| line.contains("export again")),
            "{name}: nothing is lost then: {said:?}"
        );
    }
}

#[test]
fn what_the_optimiser_makes_of_parameters_is_trained() {
    let selected = select(&model("optimised.dynamo"), &DeriveOptions::default()).unwrap();
    let reason = |name: &str| selected.iter().find(|one| one.name == name).unwrap().reason;
    for name in ["a.weight", "a.weight_bias", "b.weight", "b.weight_bias", "fc.weight"] {
        assert_eq!(reason(name), None, "{name}");
    }
}

#[test]
fn a_tied_weight_is_known_by_the_name_that_pytorch_prints() {
    let params: Vec<String> =
        ["first.weight", "first.bias", "second.bias"].map(str::to_owned).into_iter().collect();
    let options = DeriveOptions { params: Some(params), ..DeriveOptions::default() };
    for name in ["tied.script", "tied.dynamo"] {
        let selected = select(&model(name), &options).unwrap_or_else(|error| panic!("{name}: {error}"));
        let trained = selected.iter().filter(|one| one.reason.is_none()).count();
        assert_eq!(trained, 3, "{name}: {selected:?}");
    }
}

#[test]
fn scales_that_equal_running_variances_at_export_are_trained_each_for_itself() {
    for name in ["kept.script", "kept.dynamo", "training.script", "training.dynamo"] {
        let selected = select(&model(name), &DeriveOptions::default()).unwrap();
        let reasons: BTreeMap<String, Option<&str>> =
            selected.into_iter().map(|one| (one.name, one.reason)).collect();
        for norm in ["bn", "bn2"] {
            for part in ["weight", "bias"] {
                assert_eq!(reasons[&format!("{norm}.{part}")], None, "{name}: {norm}.{part}: {reasons:?}");
            }
            for part in ["running_mean", "running_var"] {
                let reason = reasons[&format!("{norm}.{part}")];
                assert_eq!(reason, Some("a running statistic"), "{name}: {norm}.{part}: {reasons:?}");
            }
        }
    }
}
