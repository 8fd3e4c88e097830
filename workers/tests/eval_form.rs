//! Models that PyTorch exported as they evaluate have lost what only training needs, and that is said before
//! they train. What its exporters have made one is apart again, or said.
//!
//! `tests/eval_form/make_eval_form.py` wrote the files, by both exporters.

use std::{collections::BTreeMap, fs, path::Path};

use syncline_autodiff::{
    DeriveOptions, EvalMode, Loss, TrainedNames, derive, inference_form, parse_forward, possible_row_tables,
    select, unknown_dropout, warnings,
};
use syncline_onnx::ModelProto;
use syncline_runtime::{ExecOptions, Executable, TensorView};
use syncline_workers::check::{Verdict, quick_check};

use crate::onnxruntime;

fn file(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/eval_form/{name}.onnx"))).unwrap()
}

fn model(name: &str) -> ModelProto {
    parse_forward(&file(name)).unwrap()
}

/// Why each constant is not trained; nothing for those that are.
fn reasons(name: &str) -> BTreeMap<String, Option<&'static str>> {
    let selected = select(&model(name), &DeriveOptions::default()).unwrap();
    selected.into_iter().map(|one| (one.name, one.reason)).collect()
}

/// The warning about weights that are one.
fn about_equals(name: &str) -> Option<String> {
    let said = warnings(&model(name), &DeriveOptions::default()).unwrap();
    said.into_iter().find(|line| line.contains("made equal weights one"))
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
        ("optimized.dynamo", true,         false,        false),
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
        let as_it_evaluates = DeriveOptions { eval_mode: EvalMode::Whole, ..DeriveOptions::default() };
        let said = warnings(&model, &as_it_evaluates).unwrap();
        assert!(
            !said.iter().any(|line| line.contains("export again")),
            "{name}: nothing is lost then: {said:?}"
        );
    }
}

#[test]
fn what_the_optimizer_makes_of_parameters_is_trained() {
    let selected = select(&model("optimized.dynamo"), &DeriveOptions::default()).unwrap();
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
fn a_tied_weight_is_meant_by_each_name_that_pytorch_has_for_it() {
    let trained = vec!["second.bias", "second.weight", "first.bias"];
    let model = model("tied.dynamo");
    let names = TrainedNames::new(&model, trained);
    #[rustfmt::skip]
    let cases: [(&str, &[usize]); 6] = [
        ("first.weight",  &[1]),
        ("second.weight", &[1]),
        ("first.*",       &[1, 2]),
        ("*.weight",      &[1]),
        ("*",             &[0, 1, 2]),
        ("third.*",       &[]),
    ];
    for (pattern, want) in cases {
        assert_eq!(names.meant_by(pattern), want, "{pattern}");
    }
    assert_eq!(names.with_near("second.wieght"), "`second.wieght` (near: `second.weight`)");
}

#[test]
fn scales_that_equal_running_variances_at_export_are_trained_each_for_itself() {
    for name in ["kept.script", "kept.dynamo", "training.script", "training.dynamo"] {
        let reasons = reasons(name);
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

#[test]
fn scales_and_statistics_that_the_optimizer_made_one_tensor_are_apart_under_the_names_of_pytorch() {
    let reasons = reasons("merged.dynamo");
    for norm in ["an", "cn"] {
        for part in ["weight", "bias"] {
            assert_eq!(reasons[&format!("{norm}.{part}")], None, "{norm}.{part}: {reasons:?}");
        }
    }
    // A norm without parameters reads ones and zeros that nobody trains.
    for part in ["weight", "bias"] {
        assert_eq!(reasons[&format!("bn.{part}")], Some("a constant of the exporter"), "{reasons:?}");
    }
    let said = warnings(&model("merged.dynamo"), &DeriveOptions::default()).unwrap();
    assert!(!said.iter().any(|line| line.contains("folded")), "every norm is there: {said:?}");

    let how = DeriveOptions::default();
    let graph =
        derive(&onnxruntime::runtime(), &file("merged.dynamo"), Loss::SoftmaxCrossEntropy, &how).unwrap();
    let mut held: Vec<&str> = graph.state.iter().map(|statistic| statistic.name.as_str()).collect();
    held.sort_unstable();
    let want =
        ["an", "bn", "cn"].map(|norm| ["running_mean", "running_var"].map(|part| format!("{norm}.{part}")));
    assert_eq!(held, want.concat());
    for param in graph.params.iter().chain(&graph.state) {
        assert!(reasons.contains_key(&param.name), "a snapshot's {} goes back into the model", param.name);
    }
}

#[test]
fn a_model_whose_tensors_were_taken_apart_predicts_what_it_did() {
    let runtime = onnxruntime::runtime();
    let numbers: Vec<f32> = (0_u8..72).map(|number| (f32::from(number) * 0.7).sin()).collect();
    for name in ["merged.dynamo", "copied.dynamo", "copied.script", "twice.dynamo", "twice.script"] {
        let original = inference_form(syncline_onnx::parse(&file(name)).unwrap());
        let [before, after] = [original, inference_form(model(name))].map(|model| {
            let mut session = Executable::new(&runtime, &model.to_bytes(), &ExecOptions::default()).unwrap();
            let x = TensorView::F32 { shape: &[2, 1, 6, 6], data: &numbers };
            session.run(&[("x", x)]).unwrap().f32("y").unwrap().to_vec()
        });
        assert_eq!(before, after, "{name}");
    }
}

#[test]
fn copied_layers_share_only_their_random_weights_and_that_is_said_in_one_line() {
    let cases = [("copied.dynamo", "optimize=False"), ("copied.script", "TrainingMode.TRAINING")];
    for (name, way_out) in cases {
        let reasons = reasons(name);
        for norm in ["blocks.0.0", "blocks.1.0"] {
            assert_eq!(reasons[&format!("{norm}.weight")], None, "{name}: {reasons:?}");
            assert_eq!(reasons[&format!("{norm}.bias")], None, "{name}: {reasons:?}");
        }
        assert!(!reasons.contains_key("blocks.1.1.weight"), "{name}: {reasons:?}");
        let said = about_equals(name).unwrap_or_else(|| panic!("{name} is silent"));
        for part in ["weight", "bias"] {
            let pair = format!("`blocks.0.1.{part}` is `blocks.1.1.{part}` as well");
            assert!(said.contains(&pair) && said.contains(way_out), "{name}: {said}");
        }
    }
}

#[test]
fn a_weight_that_is_tied_on_purpose_or_called_twice_is_one_without_a_word() {
    for name in
        ["twice.dynamo", "twice.script", "tied.dynamo", "tied.script", "merged.dynamo", "plain.script"]
    {
        assert_eq!(about_equals(name), None, "{name}");
    }
    let slopes: Vec<String> =
        reasons("twice.script").into_keys().filter(|name| name.contains("PRelu")).collect();
    assert_eq!(slopes.len(), 1, "{slopes:?}");
}

#[test]
fn the_padding_of_an_embedding_gets_no_gradient_and_one_that_trains_all_the_same_is_said() {
    let (runtime, how) = (onnxruntime::runtime(), DeriveOptions::default());
    let ids = [0, 1, 2, 0, 3, 3];
    for (name, held) in [("padded.dynamo", true), ("pretrained.dynamo", false)] {
        let graph = derive(&runtime, &file(name), Loss::SoftmaxCrossEntropy, &how).unwrap();
        assert_eq!(quick_check(&runtime, &graph).unwrap(), Verdict::Right, "{name}");
        let mut session = Executable::new(&runtime, &graph.train_onnx, &ExecOptions::default()).unwrap();
        let data = TensorView::I64 { shape: &[2, 3], data: &ids };
        let label = TensorView::I64 { shape: &[2], data: &[1, 4] };
        let params = graph.params.iter().map(|param| {
            (param.name.as_str(), TensorView::F32 { shape: &param.shape, data: &param.initial })
        });
        let fed: Vec<_> = [(graph.data_inputs[0].name.as_str(), data), ("label", label)]
            .into_iter()
            .chain(params)
            .collect();
        let outputs = session.run(&fed).unwrap();
        let grad = outputs.f32("emb.weight.grad").unwrap();
        let moved = |row: usize| grad[4 * row..4 * row + 4].iter().any(|number| *number != 0.0);
        assert_eq!([moved(0), moved(1), moved(3), moved(5)], [!held, true, true, false], "{name}");
        let said = warnings(&model(name), &how).unwrap();
        let told = said.iter().any(|line| line.contains("row 0 of `emb.weight` is padding"));
        assert_eq!(told, !held, "{name}: {said:?}");
        // What is promised is what a job may name.
        let promised = possible_row_tables(&model(name), &how).unwrap();
        assert_eq!(promised.contains(&"emb.weight".to_owned()), !held, "{name}: {promised:?}");
        let by_rows = DeriveOptions { sparse: vec!["emb.weight".to_owned()], ..how.clone() };
        match derive(&runtime, &file(name), Loss::SoftmaxCrossEntropy, &by_rows) {
            Ok(graph) => assert!(!held && graph.row_tables.tables.len() == 1, "{name}"),
            Err(refused) => assert!(held && refused.to_string().contains("padding_idx"), "{name}: {refused}"),
        }
    }
}
