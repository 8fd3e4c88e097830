//! Every loss with every option against a plain reference in float64, and its gradient against central
//! differences.
//!
//! The model is `y = p`, so that `p.grad` is the gradient of the loss for the model's output.

use syncline_autodiff::{
    AutodiffError, ClassWeights, DeriveOptions, Loss, LossOptions, TrainingGraph, derive,
};
use syncline_onnx::{Dim, ElementType, GraphBuilder, SplitMix64};
use syncline_runtime::{ExecOptions, Executable, TensorView};

use crate::onnxruntime;

const STEP: f64 = 1e-5;

enum Label {
    Classes(Vec<i64>),
    Values(Vec<f32>),
}

struct Case {
    loss: Loss,
    options: LossOptions,
    shape: Vec<usize>,
    y: Vec<f32>,
    label: Label,
}

struct Expected {
    loss: f64,
    weight: f64,
}

impl Case {
    fn random(loss: Loss, shape: &[usize], options: LossOptions, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let count: usize = shape.iter().product();
        let y = (0..count).map(|_| (random.normal() * 2.0) as f32).collect();
        let mut case = Self { loss, options, shape: shape.to_vec(), y, label: Label::Values(Vec::new()) };
        case.label = match loss {
            Loss::SoftmaxCrossEntropy => {
                let classes = shape[case.axis()];
                let draw = |random: &mut SplitMix64| {
                    let class = (random.next_u64() % classes as u64) as i64;
                    // Every third label is ignored, where one can be.
                    if random.next_u64().is_multiple_of(3) {
                        case.options.ignore_index.unwrap_or(class)
                    } else {
                        class
                    }
                };
                Label::Classes((0..count / classes).map(|_| draw(&mut random)).collect())
            }
            Loss::BinaryCrossEntropy => Label::Values((0..count).map(|_| random.uniform() as f32).collect()),
            _ => Label::Values((0..count).map(|_| random.normal() as f32).collect()),
        };
        case
    }

    fn axis(&self) -> usize {
        let rank = self.shape.len() as i64;
        let axis = self.options.class_axis.unwrap_or(if rank < 4 { -1 } else { 1 });
        (if axis < 0 { axis + rank } else { axis }) as usize
    }

    fn label_shape(&self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        if matches!(self.label, Label::Classes(_)) {
            shape.remove(self.axis());
        }
        shape
    }

    fn derive(&self, dims: Vec<Dim>) -> Result<TrainingGraph, AutodiffError> {
        let mut graph = GraphBuilder::new("loss");
        let x = graph.input("x", ElementType::F32, &dims);
        let p = graph.weight("p", &self.shape, &self.y);
        let y = graph.named("y", "Add", &[&x, &p], &[]);
        graph.output(&y);
        let (loss, train) = (self.options.clone(), Some(vec!["p".to_owned()]));
        let options = DeriveOptions { loss, train, ..DeriveOptions::default() };
        derive(&onnxruntime::runtime(), &graph.finish().to_bytes(), self.loss, &options)
    }

    /// All float outputs of one run.
    fn run(&self) -> Vec<(String, Vec<f32>)> {
        let graph = self.derive(self.shape.iter().map(|&size| Dim::from(size)).collect()).unwrap();
        let runtime = onnxruntime::runtime();
        let mut session = Executable::new(&runtime, &graph.train_onnx, &ExecOptions::default()).unwrap();
        let zeros = vec![0.0; self.y.len()];
        let (shape, label_shape) = (self.shape.as_slice(), self.label_shape());
        let label = match &self.label {
            Label::Classes(data) => TensorView::I64 { shape: &label_shape, data },
            Label::Values(data) => TensorView::F32 { shape, data },
        };
        let names = session.output_names().to_vec();
        let (x, p) = (TensorView::F32 { shape, data: &zeros }, TensorView::F32 { shape, data: &self.y });
        let outputs = session.run(&[("x", x), ("p", p), ("label", label)]).unwrap();
        names.iter().map(|name| (name.clone(), outputs.f32(name).unwrap().to_vec())).collect()
    }

    fn want(&self, y: &[f64]) -> Expected {
        match &self.label {
            Label::Classes(labels) => self.cross_entropy(y, labels),
            Label::Values(labels) => {
                let one = |(at, x): (usize, f64), z: f64| {
                    let d = x - z;
                    let delta = f64::from(self.options.delta.unwrap_or(1.0));
                    match self.loss {
                        Loss::BinaryCrossEntropy => {
                            let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
                            self.positive_weight(at) * z * softplus(-x) + (1.0 - z) * softplus(x)
                        }
                        Loss::MeanAbsoluteError => d.abs(),
                        Loss::Huber if d.abs() > delta => delta * (d.abs() - 0.5 * delta),
                        Loss::Huber => 0.5 * d * d,
                        _ => d * d,
                    }
                };
                let total: f64 =
                    y.iter().enumerate().zip(labels).map(|((at, &x), &z)| one((at, x), f64::from(z))).sum();
                Expected { loss: total / y.len() as f64, weight: self.shape[0] as f64 }
            }
        }
    }

    /// What a label 1 weighs at this element.
    fn positive_weight(&self, element: usize) -> f64 {
        let weights = self.options.pos_weight.each();
        if weights.len() < 2 {
            return weights.first().map_or(1.0, |&weight| weight.into());
        }
        let inner: usize = self.shape[self.axis() + 1..].iter().product();
        weights[element / inner % weights.len()].into()
    }

    /// The scores of sample `sample`, and where they lie.
    fn scores<'y>(&self, y: &'y [f64], sample: usize) -> impl Iterator<Item = &'y f64> {
        let axis = self.axis();
        let (classes, inner) = (self.shape[axis], self.shape[axis + 1..].iter().product::<usize>());
        let start = sample / inner * classes * inner + sample % inner;
        (0..classes).map(move |class| &y[start + class * inner])
    }

    fn cross_entropy(&self, y: &[f64], labels: &[i64]) -> Expected {
        let smoothing = f64::from(self.options.label_smoothing);
        let weight_of =
            |class: usize| self.options.class_weights.each().get(class).map_or(1.0, |&w| f64::from(w));
        let (mut total, mut weights) = (0.0, 0.0);
        for (sample, &label) in labels.iter().enumerate() {
            if self.options.ignore_index == Some(label) {
                continue;
            }
            let scores: Vec<f64> = self.scores(y, sample).copied().collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let log_sum = most + scores.iter().map(|x| (x - most).exp()).sum::<f64>().ln();
            let label = label as usize;
            total += (1.0 - smoothing) * weight_of(label) * (log_sum - scores[label]);
            for (class, score) in scores.iter().enumerate() {
                total += smoothing / scores.len() as f64 * weight_of(class) * (log_sum - score);
            }
            weights += weight_of(label);
        }
        Expected { loss: if weights > 0.0 { total / weights } else { 0.0 }, weight: weights }
    }

    fn check(&self) {
        let name = format!("{} {:?} {:?}", self.loss, self.shape, self.options);
        let got = self.run();
        let find = |wanted: &str| &got.iter().find(|(name, _)| name == wanted).unwrap().1;
        let mut y: Vec<f64> = self.y.iter().map(|&y| f64::from(y)).collect();
        let want = self.want(&y);
        let close = |what: &str, got: f32, want: f64, scale: f64| {
            assert!(
                (f64::from(got) - want).abs() <= 2e-6 * scale,
                "{name}: {what} is {got}, expected {want}"
            );
        };
        close("loss", find("loss")[0], want.loss, 1.0 + want.loss.abs());
        close("loss_weight", find("loss_weight")[0], want.weight, 1.0 + want.weight);
        let mut slopes = Vec::new();
        for element in 0..y.len() {
            let start = y[element];
            let mut at = |x: f64| {
                y[element] = x;
                self.want(&y).loss
            };
            slopes.push((at(start + STEP) - at(start - STEP)) / (2.0 * STEP));
            y[element] = start;
        }
        let largest = slopes.iter().fold(1e-3f64, |most, slope| most.max(slope.abs()));
        for (element, (&got, &want)) in find("p.grad").iter().zip(&slopes).enumerate() {
            close(&format!("grad[{element}]"), got, want, largest);
        }
    }
}

fn smoothing(label_smoothing: f32) -> LossOptions {
    LossOptions { label_smoothing, ..LossOptions::default() }
}

#[test]
fn softmax_cross_entropy_with_every_option_in_every_form() {
    let shapes: [(&[usize], Option<i64>); 6] = [
        (&[5, 4], None),
        (&[1, 4], Some(1)),
        (&[2, 3, 4], None),
        (&[2, 4, 3], Some(1)),
        (&[2, 4, 3, 2], None),
        (&[2, 3, 2, 4], Some(-1)),
    ];
    for (shape, class_axis) in shapes {
        for label_smoothing in [0.0, 0.1] {
            for class_weights in [vec![], vec![0.5, 2.0, 0.0, 1.25]] {
                for ignore_index in [None, Some(-100), Some(1)] {
                    let class_weights = class_weights.clone().into();
                    let options = LossOptions {
                        label_smoothing,
                        class_weights,
                        ignore_index,
                        class_axis,
                        ..LossOptions::default()
                    };
                    Case::random(Loss::SoftmaxCrossEntropy, shape, options, 3).check();
                }
            }
        }
    }
}

#[test]
fn losses_of_values_in_every_form() {
    for shape in [&[7][..], &[4, 1], &[3, 5], &[2, 3, 2]] {
        for loss in [Loss::BinaryCrossEntropy, Loss::MeanSquaredError, Loss::MeanAbsoluteError, Loss::Huber] {
            Case::random(loss, shape, LossOptions::default(), 8).check();
        }
        for delta in [0.1, 3.0] {
            let options = LossOptions { delta: Some(delta), ..LossOptions::default() };
            Case::random(Loss::Huber, shape, options, 9).check();
        }
    }
}

#[test]
fn labels_of_one_may_weigh_more() {
    #[rustfmt::skip]
    let cases: [(&[usize], &[f32]); 5] = [
        (&[7],          &[3.0]),
        (&[3, 5],       &[0.25]),
        (&[3, 2],       &[0.5, 4.0]),
        (&[2, 3, 2],    &[0.5, 4.0]),
        (&[2, 3, 2, 2], &[0.5, 1.0, 4.0]),
    ];
    for (shape, weights) in cases {
        let options = LossOptions { pos_weight: weights.to_vec().into(), ..LossOptions::default() };
        Case::random(Loss::BinaryCrossEntropy, shape, options, 8).check();
    }
    // torch.nn.functional.binary_cross_entropy_with_logits of the same numbers
    let y = [0.5, -1.0, 2.0, -0.25, 0.75, -3.0];
    let label = Label::Values(vec![1.0, 0.0, 0.25, 0.0, 1.0, 1.0]);
    let options = LossOptions { pos_weight: vec![3.0, 0.5, 2.0].into(), ..LossOptions::default() };
    let outputs = run(Loss::BinaryCrossEntropy, &[2, 3], &y, label, options);
    assert!((one(&outputs, "loss") - 1.710_117).abs() < 1e-6);
    let grad = &outputs.iter().find(|(name, _)| name == "p.grad").unwrap().1;
    let torch = [-0.188_770_34, 0.044_823_572, 0.100_166_045, 0.072_970_584, -0.026_735_106, -0.317_524_7];
    assert!(grad.iter().zip(torch).all(|(got, want)| (got - want).abs() < 1e-6), "{grad:?}");
}

/// The outputs of a case with these scores and labels.
fn run(
    loss: Loss,
    shape: &[usize],
    y: &[f32],
    label: Label,
    options: LossOptions,
) -> Vec<(String, Vec<f32>)> {
    Case { loss, options, shape: shape.to_vec(), y: y.to_vec(), label }.run()
}

fn one(outputs: &[(String, Vec<f32>)], wanted: &str) -> f32 {
    outputs.iter().find(|(name, _)| name == wanted).unwrap_or_else(|| panic!("no {wanted}")).1[0]
}

#[test]
fn without_weight_loss_and_gradient_are_zero() {
    let y = [3.0, -80.0, 1e4, 0.5, -0.5, 7.0];
    let all_ignored = LossOptions { ignore_index: Some(-1), perplexity: true, ..smoothing(0.2) };
    let no_weight = LossOptions { class_weights: vec![0.0, 1.0, 1.0].into(), ..smoothing(0.0) };
    for (labels, options) in [(vec![-1, -1], all_ignored), (vec![0, 0], no_weight)] {
        let outputs = run(Loss::SoftmaxCrossEntropy, &[2, 3], &y, Label::Classes(labels), options);
        for name in ["loss", "loss_weight"] {
            assert_eq!(one(&outputs, name), 0.0, "{name}");
        }
        let grad = &outputs.iter().find(|(name, _)| name == "p.grad").unwrap().1;
        assert!(grad.iter().all(|&g| g == 0.0), "{grad:?}");
    }
}

#[test]
fn an_ignored_label_of_a_class_that_is_ruled_out_costs_nothing() {
    // The class of the padding is masked in the model, and its label is the one that is ignored.
    let never = f32::NEG_INFINITY;
    let y = [never, 0.5, -1.0, never, 2.0, 0.25, never, -0.75, 1.0];
    let options = LossOptions { ignore_index: Some(0), perplexity: true, ..LossOptions::default() };
    let outputs = run(Loss::SoftmaxCrossEntropy, &[3, 3], &y, Label::Classes(vec![1, 0, 2]), options);
    // torch.nn.functional.cross_entropy of the same numbers
    let torch = ((1.0 + (-1.5f32).exp()).ln() + (1.0 + (-1.75f32).exp()).ln()) / 2.0;
    assert!((one(&outputs, "loss") - torch).abs() < 1e-6, "{}", one(&outputs, "loss"));
    assert!((one(&outputs, "perplexity") - torch.exp()).abs() < 1e-5);
    let grad = &outputs.iter().find(|(name, _)| name == "p.grad").unwrap().1;
    assert!(grad.iter().all(|g| g.is_finite()) && grad[3..6] == [0.0; 3], "{grad:?}");

    // A sample without scores costs nothing either where it is ignored, with smoothing and weights as well.
    let (mut y, nan) = ([0.5, -1.0, 2.0, 0.0, 0.0, 0.0], [f32::NAN, f32::INFINITY, 1.0]);
    for class_weights in [vec![], vec![0.5, 2.0, 1.25]] {
        let options =
            LossOptions { ignore_index: Some(-100), class_weights: class_weights.into(), ..smoothing(0.1) };
        let loss = |y: &[f32], labels: Vec<i64>, options: &LossOptions| {
            let shape = [labels.len(), 3];
            one(&run(Loss::SoftmaxCrossEntropy, &shape, y, Label::Classes(labels), options.clone()), "loss")
        };
        let alone = loss(&y[..3], vec![1], &options);
        y[3..].copy_from_slice(&nan);
        assert!((loss(&y, vec![1, -100], &options) - alone).abs() < 1e-6);
    }
}

#[test]
fn an_empty_batch_weighs_nothing() {
    for loss in Loss::ALL {
        let mut graph = GraphBuilder::new("empty");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
        let w = graph.weight("w", &[2, 3], &[0.1; 6]);
        let y = graph.op("MatMul", &[&x, &w], &[]);
        graph.output(&y);
        let runtime = onnxruntime::runtime();
        let graph = derive(&runtime, &graph.finish().to_bytes(), loss, &DeriveOptions::default()).unwrap();
        let mut session = Executable::new(&runtime, &graph.train_onnx, &ExecOptions::default()).unwrap();
        let label = match loss {
            Loss::SoftmaxCrossEntropy => TensorView::I64 { shape: &[0], data: &[] },
            _ => TensorView::F32 { shape: &[0, 3], data: &[] },
        };
        let x = TensorView::F32 { shape: &[0, 2], data: &[] };
        let w = TensorView::F32 { shape: &[2, 3], data: &[0.1; 6] };
        let label = graph.label.iter().map(|_| ("label", label));
        let fed: Vec<_> = [("x", x), ("w", w)].into_iter().chain(label).collect();
        let outputs = session.run(&fed).unwrap();
        assert_eq!(
            (outputs.scalar("loss").unwrap(), outputs.scalar("loss_weight").unwrap()),
            (0.0, 0.0),
            "{loss}"
        );
        assert!(outputs.f32("w.grad").unwrap().iter().all(|&g| g == 0.0), "{loss}");
    }
}

#[test]
fn large_scores_neither_overflow_nor_vanish() {
    let y = [1e4, -1e4, 0.0, -3e38, 3e38, 1.0];
    let outputs =
        run(Loss::SoftmaxCrossEntropy, &[2, 3], &y, Label::Classes(vec![1, 1]), LossOptions::default());
    assert_eq!(one(&outputs, "loss"), 1e4);
    let y = [100.0, -100.0, 1e30, -1e30];
    let right = run(
        Loss::BinaryCrossEntropy,
        &[4],
        &y,
        Label::Values(vec![1.0, 0.0, 1.0, 0.0]),
        LossOptions::default(),
    );
    assert_eq!((one(&right, "loss"), one(&right, "correct")), (0.0, 4.0));
    let wrong =
        run(Loss::BinaryCrossEntropy, &[2], &y[..2], Label::Values(vec![0.0, 1.0]), LossOptions::default());
    assert_eq!((one(&wrong, "loss"), one(&wrong, "correct")), (100.0, 0.0));
}

#[test]
fn metrics_count_what_is_not_ignored() {
    #[rustfmt::skip]
    let y = [
        0.1, 0.9, 0.5, 0.2,
        0.9, 0.8, 0.7, 0.6,
        0.0, 0.1, 0.2, 0.3,
        0.4, 0.3, 0.2, 0.1,
    ];
    // The label is the best, the third, the best but ignored, the last.
    let labels = vec![1, 2, 3, 3];
    let options = LossOptions { ignore_index: Some(3), top_k: Some(3), perplexity: true, ..smoothing(0.3) };
    let outputs = run(Loss::SoftmaxCrossEntropy, &[4, 4], &y, Label::Classes(labels.clone()), options);
    assert_eq!(one(&outputs, "correct"), 1.0);
    assert_eq!(one(&outputs, "correct_top3"), 2.0);
    assert_eq!(one(&outputs, "predictions"), 2.0);

    let options = LossOptions { top_k: Some(3), ..LossOptions::default() };
    let outputs = run(Loss::SoftmaxCrossEntropy, &[4, 4], &y, Label::Classes(labels), options);
    assert_eq!((one(&outputs, "correct"), one(&outputs, "correct_top3")), (2.0, 3.0));
    assert!(outputs.iter().all(|(name, _)| name != "predictions"), "one a sample needs no output");

    let options = LossOptions { perplexity: true, ..LossOptions::default() };
    let outputs = run(Loss::SoftmaxCrossEntropy, &[2, 4], &[0.0; 8], Label::Classes(vec![0, 3]), options);
    assert!((one(&outputs, "perplexity") - 4.0).abs() < 1e-6);
}

#[test]
fn the_logarithm_of_a_perplexity_that_float32_cannot_hold_is_known() {
    for share in [0.0, 0.5] {
        let options = LossOptions { perplexity: true, ..smoothing(share) };
        let outputs =
            run(Loss::SoftmaxCrossEntropy, &[1, 2], &[100.0, 0.0], Label::Classes(vec![1]), options);
        assert_eq!(one(&outputs, "perplexity"), f32::INFINITY);
        assert_eq!(one(&outputs, "log_perplexity"), 100.0, "of the label alone, smoothed by {share}");
    }
}

#[test]
fn equal_scores_are_ranked_by_the_number_of_their_class() {
    #[rustfmt::skip]
    // scores of a sample, label, how many classes stand before it; all of them where a score is NaN
    let cases: [([f32; 4], i64, u32); 9] = [
        ([0.0; 4],             0, 0),
        ([0.0; 4],             2, 2),
        ([0.0; 4],             3, 3),
        ([1.0, 2.0, 1.0, 1.0], 0, 1),
        ([1.0, 2.0, 1.0, 1.0], 3, 3),
        ([2.0, 1.0, 2.0, 3.0], 2, 2),
        ([f32::NAN; 4],        0, 4),
        ([f32::NAN; 4],        3, 4),
        ([0.0, f32::NAN, 0.0, 0.0], 0, 4),
    ];
    for k in 1..=4 {
        // The same along the last axis and along one in the middle.
        for (shape, class_axis) in [(&[1, 4][..], None), (&[1, 4, 1], Some(1))] {
            for (scores, label, before) in cases {
                let options = LossOptions { top_k: Some(k), class_axis, ..LossOptions::default() };
                let label = Label::Classes(vec![label]);
                let outputs = run(Loss::SoftmaxCrossEntropy, shape, &scores, label, options);
                let right = |k: u32| f32::from(u8::from(before < k));
                let name = format!("correct_top{k}");
                assert_eq!(one(&outputs, &name), right(k), "{scores:?}, {before} before, top {k}");
                if before < 4 {
                    assert_eq!(one(&outputs, "correct"), right(1), "{scores:?}, {before} before");
                }
            }
        }
    }
}

#[test]
fn a_multi_label_prediction_counts_by_the_share_of_its_elements() {
    let y = [1.0, -1.0, 1.0, -1.0, 1.0, 1.0];
    let label = Label::Values(vec![1.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
    let outputs = run(Loss::BinaryCrossEntropy, &[2, 3], &y, label, LossOptions::default());
    assert!((one(&outputs, "correct") - 5.0 / 3.0).abs() < 1e-6);
}

#[test]
fn axes_of_open_size_count_into_the_weight() {
    for loss in [Loss::MeanSquaredError, Loss::MeanAbsoluteError] {
        let mut graph = GraphBuilder::new("open");
        let x = graph.input("x", ElementType::F32, &["batch".into(), "time".into(), 2.into()]);
        let w = graph.weight("w", &[2, 3], &[0.1; 6]);
        let y = graph.op("MatMul", &[&x, &w], &[]);
        graph.output(&y);
        let runtime = onnxruntime::runtime();
        let graph = derive(&runtime, &graph.finish().to_bytes(), loss, &DeriveOptions::default()).unwrap();
        let mut session = Executable::new(&runtime, &graph.train_onnx, &ExecOptions::default()).unwrap();
        let (x, label, w) = (vec![0.5; 2 * 4 * 2], vec![0.0; 2 * 4 * 3], [0.1; 6]);
        let x = TensorView::F32 { shape: &[2, 4, 2], data: &x };
        let label = TensorView::F32 { shape: &[2, 4, 3], data: &label };
        let w = TensorView::F32 { shape: &[2, 3], data: &w };
        let outputs = session.run(&[("x", x), ("w", w), ("label", label)]).unwrap();
        assert_eq!(outputs.scalar("loss_weight").unwrap(), 8.0, "{loss}");
    }
}

#[test]
fn elements_along_axes_of_open_size_are_predictions() {
    for classes in [1, 3] {
        let mut graph = GraphBuilder::new("open");
        let x = graph.input("x", ElementType::F32, &["batch".into(), "time".into(), 2.into()]);
        let w = graph.weight("w", &[2, classes], &vec![0.1; 2 * classes]);
        let y = graph.op("MatMul", &[&x, &w], &[]);
        graph.output(&y);
        let (loss, options) = (Loss::BinaryCrossEntropy, DeriveOptions::default());
        let runtime = onnxruntime::runtime();
        let graph = derive(&runtime, &graph.finish().to_bytes(), loss, &options).unwrap();
        for onnx in [&graph.train_onnx, &graph.eval_onnx] {
            let mut session = Executable::new(&runtime, onnx, &ExecOptions::default()).unwrap();
            // Two samples of five steps; the scores of the first are above 0 as the labels are.
            let x: Vec<f32> = [[1.0; 10], [-1.0; 10]].concat();
            let (label, w) = (vec![1.0; 2 * 5 * classes], vec![0.1; 2 * classes]);
            let x = TensorView::F32 { shape: &[2, 5, 2], data: &x };
            let label = TensorView::F32 { shape: &[2, 5, classes], data: &label };
            let w = TensorView::F32 { shape: &[2, classes], data: &w };
            let outputs = session.run(&[("x", x), ("w", w), ("label", label)]).unwrap();
            let scalar = |name: &str| outputs.scalar(name).unwrap();
            assert_eq!((scalar("correct"), scalar("predictions")), (5.0, 10.0), "{classes} classes");
            if std::ptr::eq(onnx, &graph.eval_onnx) {
                let predicted = [vec![1; 5 * classes], vec![0; 5 * classes]].concat();
                assert_eq!(outputs.i64("label.predicted").unwrap(), predicted, "{classes} classes");
            }
        }
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let case = |loss: Loss, options: LossOptions| {
        let case = Case::random(loss, &[2, 3], LossOptions::default(), 1);
        let error = Case { options, ..case }.derive(vec![2.into(), 3.into()]).expect_err("a refusal");
        assert_eq!(error.code(), "E241", "{error}");
        error.to_string()
    };
    let text = case(Loss::MeanSquaredError, smoothing(0.1));
    assert_eq!(
        text,
        "[E241] loss option `label_smoothing`: loss mse has no such option, softmax-cross-entropy has"
    );
    let text = case(Loss::MeanSquaredError, LossOptions { delta: Some(1.0), ..LossOptions::default() });
    assert_eq!(text, "[E241] loss option `delta`: loss mse has no such option, huber has");
    for wrong in [1.0, -0.1, f32::NAN] {
        case(Loss::SoftmaxCrossEntropy, smoothing(wrong));
    }
    for class_weights in [vec![1.0], vec![1.0, 1.0, -1.0], vec![1.0, f32::INFINITY, 1.0]] {
        case(
            Loss::SoftmaxCrossEntropy,
            LossOptions { class_weights: class_weights.into(), ..LossOptions::default() },
        );
    }
    let balanced = || LossOptions { class_weights: ClassWeights::Balanced, ..LossOptions::default() };
    let text = case(Loss::SoftmaxCrossEntropy, balanced());
    assert!(text.contains("`balanced` is counted in a training set"), "{text}");
    let text = case(Loss::MeanSquaredError, balanced());
    assert_eq!(
        text,
        "[E241] loss option `class_weights`: loss mse has no such option, softmax-cross-entropy has"
    );
    let balanced = LossOptions { pos_weight: ClassWeights::Balanced, ..LossOptions::default() };
    let text = case(Loss::BinaryCrossEntropy, balanced);
    assert!(text.contains("option `pos_weight`: `balanced` is counted in a training set"), "{text}");
    for k in [0, 4] {
        case(Loss::SoftmaxCrossEntropy, LossOptions { top_k: Some(k), ..LossOptions::default() });
    }
    let positive =
        |pos_weight: &[f32]| LossOptions { pos_weight: pos_weight.to_vec().into(), ..LossOptions::default() };
    case(Loss::SoftmaxCrossEntropy, positive(&[2.0]));
    for weights in [&[0.0][..], &[-1.0], &[f32::INFINITY], &[1.0, 2.0]] {
        case(Loss::BinaryCrossEntropy, positive(weights));
    }
    for delta in [0.0, -1.0, f32::NAN] {
        case(Loss::Huber, LossOptions { delta: Some(delta), ..LossOptions::default() });
    }
}

#[test]
fn outputs_without_room_for_the_loss_are_refused() {
    let cases: [(Loss, Vec<Dim>, Option<i64>); 4] = [
        (Loss::SoftmaxCrossEntropy, vec![3.into()], None),
        (Loss::SoftmaxCrossEntropy, vec![2.into(), 3.into()], Some(0)),
        (Loss::SoftmaxCrossEntropy, vec![2.into(), 3.into()], Some(2)),
        (Loss::SoftmaxCrossEntropy, vec![2.into(), 3.into()], Some(i64::MIN)),
    ];
    for (loss, dims, class_axis) in cases {
        let shape: Vec<usize> = dims.iter().filter_map(Dim::fixed).collect();
        let options = LossOptions { class_axis, ..LossOptions::default() };
        let case =
            Case { loss, options, y: vec![0.0; shape.iter().product()], shape, label: Label::Values(vec![]) };
        assert_eq!(
            case.derive(dims.clone()).expect_err("a refusal").code(),
            "E314",
            "{dims:?} {class_axis:?}"
        );
    }
}
