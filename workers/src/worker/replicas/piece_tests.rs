//! Batches in pieces against whole ones.

use std::collections::BTreeSet;

use syncline_autodiff::LossOptions;
use syncline_onnx::{ElementType, GraphBuilder, ModelProto, mlp, proto::TensorProto};
use syncline_ps::PsError;
use syncline_scheduler::spec::{ElementRange, StepSettings};

use super::{
    tests::{DRAWS, FEATURES, Got, IGNORED, Rig, assert_close, features, normalized},
    *,
};
use crate::onnxruntime::runtime;

/// Tokens of a sample.
const TOKENS: usize = 4;
/// Rows of the table of tokens.
const ROWS: usize = 6;

fn at_once(samples: usize, split: bool) -> BatchCut {
    BatchCut { split, at_once: Some(samples) }
}

/// A row of a table for each token, and two classes for each of them.
fn tokens() -> ModelProto {
    let mut graph = GraphBuilder::new("tokens");
    let ids = graph.input("ids", ElementType::I64, &["batch".into(), TOKENS.into()]);
    let table = graph.weight("table", &[ROWS, FEATURES], &features(ROWS));
    let w = graph.weight("w", &[FEATURES, 2], &features(2));
    let rows = graph.op("Gather", &[&table, &ids], &[]);
    let scores = graph.op("MatMul", &[&rows, &w], &[]);
    graph.output(&scores);
    graph.finish()
}

#[test]
fn pieces_of_samples_that_weigh_differently_give_what_the_whole_batch_gives() {
    let class_weights = vec![0.25, 3.0].into();
    let weighted = LossOptions { class_weights, ignore_index: Some(IGNORED), ..LossOptions::default() };
    let rig = Rig::of(&mlp(&[FEATURES, 5, 2], 1), weighted);
    let mut whole = rig.replicas(1, false);
    #[rustfmt::skip]
    let cases: &[(&str, &[i64])] = &[
        ("divisible",             &[0, 1, 1, 0, 1, 0, 0, 1]),
        ("odd",                   &[0, 1, 1, 0, 1, 0, 0]),
        ("one class in a piece",  &[0, 0, 0, 1, 1, 1]),
        ("the first piece weighs nothing", &[IGNORED, IGNORED, IGNORED, 0, 1, 0, 1]),
        ("the last piece weighs nothing",  &[0, 1, 1, IGNORED, IGNORED, IGNORED, IGNORED]),
        ("nothing weighs",        &[IGNORED; 5]),
        ("smaller than a piece",  &[1]),
        ("no sample",             &[]),
    ];
    for (threads, samples) in [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (2, 4), (3, 2), (3, 4)] {
        let mut pieces = rig.cutting(threads, at_once(samples, true));
        for (case, labels) in cases {
            let x = features(labels.len());
            let (got, want) = (rig.run(&mut pieces, &x, labels), rig.run(&mut whole, &x, labels));
            assert_close(&got, &want, &format!("{case}, {threads} parts, {samples} at once"));
        }
    }
}

#[test]
fn pieces_of_tokens_and_rows_of_a_table_give_what_the_whole_batch_gives() {
    let rig = Rig::new(&tokens());
    let mut whole = rig.replicas(1, false);
    // Each piece reads other rows, and has another number of tokens that count.
    let ids: Vec<i64> = (0..7 * TOKENS).map(|n| (n * n % ROWS) as i64).collect();
    let label = |n: usize| if n % 7 > n / 7 { IGNORED } else { (n % 2) as i64 };
    let labels: Vec<i64> = (0..7 * TOKENS).map(label).collect();
    for rows in [7, 5, 2] {
        let shape = [rows, TOKENS];
        let samples = vec![
            ("ids", TensorView::I64 { shape: &shape, data: &ids[..rows * TOKENS] }),
            ("label", TensorView::I64 { shape: &shape, data: &labels[..rows * TOKENS] }),
        ];
        let want = rig.step(&mut whole, &samples).unwrap();
        for (threads, most) in [(1, 1), (1, 3), (2, 2), (2, 4)] {
            let got = rig.step(&mut rig.cutting(threads, at_once(most, true)), &samples).unwrap();
            assert_close(&got, &want, &format!("{rows} samples, {threads} parts, {most} at once"));
        }
    }
}

#[test]
fn running_statistics_go_from_piece_to_piece_and_gradients_are_weighted() {
    let mut rig = Rig::new(&normalized());
    let labels = [0, 1, IGNORED, 1, 0, 1, 1];
    let x = features(labels.len());
    let got = rig.run(&mut rig.cutting(1, at_once(3, false)), &x, &labels);
    // By hand: pieces of two, two and three samples, each of which begins where the one before it ended.
    let mut whole = rig.replicas(1, false);
    let (weights, trained) = ([2.0, 1.0, 3.0], rig.params.trained);
    let mut want = Got { loss: 0.0, weight: 6.0, pushed: Vec::new() };
    for (rows, weight) in [0..2, 2..4, 4..7].into_iter().zip(weights) {
        let piece = rig.run(&mut whole, &x[rows.start * FEATURES..rows.end * FEATURES], &labels[rows]);
        assert_eq!(piece.weight, weight);
        want.loss += piece.loss * weight / 6.0;
        if want.pushed.is_empty() {
            want.pushed = piece.pushed.iter().map(|values| vec![0.0; values.len()]).collect();
        }
        for (n, (sum, values)) in want.pushed.iter_mut().zip(&piece.pushed).enumerate() {
            let (keep, share) = if n < trained { (1.0, weight / 6.0) } else { (0.0, 1.0) };
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum = *sum * keep + value * share);
        }
        for (Tensor { range, .. }, values) in rig.params.tensors.iter().zip(&piece.pushed).skip(trained) {
            rig.params.values[range.start as usize..range.end as usize].copy_from_slice(values);
        }
    }
    assert_eq!((want.pushed.len(), trained), (5, 3), "three gradients, mean and variance");
    assert_close(&got, &want, "three pieces");
}

#[test]
fn parts_that_take_pieces_end_with_the_weighted_mean_of_their_statistics() {
    let rig = Rig::new(&normalized());
    let labels = [0, 1, IGNORED, 1, 0, 1, 1, 0];
    let x = features(labels.len());
    let got = rig.run(&mut rig.cutting(2, at_once(4, true)), &x, &labels);
    let half = |rows: std::ops::Range<usize>| {
        let x = &x[rows.start * FEATURES..rows.end * FEATURES];
        rig.run(&mut rig.cutting(1, at_once(2, false)), x, &labels[rows])
    };
    let (first, second) = (half(0..4), half(4..8));
    let mean = |a: f32, b: f32| (a * 3.0 + b * 4.0) / 7.0;
    let pairs = first.pushed.iter().zip(&second.pushed);
    let want = Got {
        loss: mean(first.loss, second.loss),
        weight: 7.0,
        pushed: pairs.map(|(a, b)| a.iter().zip(b).map(|(a, b)| mean(*a, *b)).collect()).collect(),
    };
    assert_close(&got, &want, "two parts of two pieces");
}

#[test]
fn pieces_drop_different_values_and_the_same_again_when_it_is_run_again() {
    let mut graph = GraphBuilder::new("dropped");
    let x = graph.input("x", ElementType::F32, &["batch".into(), FEATURES.into()]);
    let w = graph.weight("w", &[FEATURES, 64], &[0.5; FEATURES * 64]);
    let y = graph.op("MatMul", &[&x, &w], &[]);
    let y = graph.op("Dropout", &[&y], &[]);
    graph.output(&y);
    let rig = Rig::new(&graph.finish());
    let steps = || -> Vec<Vec<Vec<f32>>> {
        let mut pieces = rig.cutting(1, at_once(1, false));
        (0..3).map(|_| rig.run(&mut pieces, &[1.0; 2 * FEATURES], &[5, 5]).pushed).collect()
    };
    let first = steps();
    // Of two equal samples, beside the class of their label: a value of which they dropped and kept the same
    // would be none or whole.
    let of_others = first[0][0][..64].iter().enumerate().filter(|(class, _)| *class != 5);
    let kinds: BTreeSet<u32> = of_others.map(|(_, grad)| grad.abs().to_bits()).collect();
    assert!(kinds.len() >= 3, "by none, by one of the two, and by both: {kinds:?}");
    assert_ne!(first[0], first[1], "the next batch draws anew");
    assert_eq!(steps(), first);
}

#[test]
fn what_a_session_keeps_between_pieces_stays_where_it_is_from_batch_to_batch() {
    let rig = Rig::new(&mlp(&[FEATURES, 2], 1));
    let mut pieces = rig.cutting(1, at_once(2, false));
    let labels = [0, 1, 1, 0, 1];
    let x = features(labels.len());
    let first = rig.run(&mut pieces, &x, &labels);
    let kept = pieces.replicas[0].kept().as_ptr();
    let again = rig.run(&mut pieces, &x, &labels);
    assert_eq!((first.loss, first.pushed), (again.loss, again.pushed));
    assert_eq!(pieces.replicas[0].kept().as_ptr(), kept);
    let mut whole = rig.cutting(1, at_once(8, false));
    rig.run(&mut whole, &x, &labels);
    assert_eq!(whole.replicas[0].kept().len(), 0, "nothing for a batch that is no larger than a piece");
}

#[test]
fn a_gradient_that_is_an_input_is_not_written_there() {
    let mut graph = GraphBuilder::new("echo");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 1.into()]);
    let w = graph.input("w", ElementType::F32, &[2.into()]);
    let one = graph.constant(TensorProto::from_f32("one", &[], &[1.0]));
    graph.named("loss", "ReduceMean", &[&x], &[]);
    graph.named("loss_weight", "Identity", &[&one], &[]);
    graph.named("w.grad", "Identity", &[&w], &[]);
    ["loss", "loss_weight", "w.grad"].into_iter().for_each(|name| graph.output(name));
    let range = ElementRange { start: 0, end: 2 };
    let params = Parameters {
        values: vec![0.1, 0.7],
        tensors: vec![Tensor { name: "w".to_owned(), shape: vec![2], range }],
        trained: 1,
        settings: vec![StepSettings::default()],
    };
    let (onnx, exec) = (graph.finish().to_bytes(), ExecOptions::default());
    let mut pieces = Replicas::new(&runtime(), &onnx, &exec, at_once(1, false), &params, DRAWS).unwrap();
    let shape = [7, 1];
    let samples = vec![("x", TensorView::F32 { shape: &shape, data: &[1.0; 7] })];
    let step = pieces.run(&samples, &params.inputs().collect()).unwrap();
    let gradient = step.pushed().unwrap()[0].to_vec();
    assert!(gradient.iter().zip(&params.values).all(|(got, want)| (got - want).abs() < 1e-6), "{gradient:?}");
    assert_eq!(params.values, [0.1, 0.7]);
}

#[test]
fn a_batch_that_is_not_wanted_any_more_ends_behind_a_piece() {
    let rig = Rig::new(&mlp(&[FEATURES, 2], 1));
    let x = features(3);
    for (most, is_over) in [(1, true), (2, true), (3, false)] {
        let watch = PieceWatch::default();
        watch.cancel_token.cancel();
        let mut pieces = rig.cutting(1, at_once(most, false)).watched_by(watch);
        let step = rig.try_run(&mut pieces, &x, &[0, 1, 1]);
        let canceled = matches!(step, Err(WorkerError::Ps(PsError::Canceled)));
        assert_eq!(canceled, is_over, "{most} at once");
    }
}

#[test]
fn a_gradient_of_another_size_is_refused_in_every_piece() {
    let rig = Rig::new(&mlp(&[FEATURES, 2], 1));
    let x = features(3);
    for threads in [1, 2] {
        let mut short = rig.cutting(threads, at_once(1, true));
        short.pushed.all[0].elements -= 1;
        let refused = rig.try_run(&mut short, &x, &[0, 1, 1]).err().unwrap();
        assert_eq!(refused.code(), "E352");
    }
}
