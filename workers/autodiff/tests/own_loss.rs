//! A loss that the model computes itself, in every form that it may have, against the same loss written by
//! us.

use syncline_autodiff::{AutodiffError, DeriveOptions, Loss, LossOptions, TrainingGraph, derive};
use syncline_onnx::proto::{GraphProto, NodeProto, TensorProto};
use syncline_onnx::{Dim, ElementType, GraphBuilder, TensorType, attr_graph, attr_int, attr_string};
use syncline_runtime::{ExecOptions, Executable, TensorView};

use crate::onnxruntime;

const BATCH: usize = 5;
const X: [f32; BATCH * 3] =
    [0.5, -1.0, 2.0, 0.25, 0.0, -0.5, 1.5, 1.0, -2.0, 0.75, -0.25, 0.1, -1.25, 0.3, 0.9];
const TARGET: [f32; BATCH * 2] = [1.0, 0.0, -0.5, 0.25, 2.0, -1.0, 0.0, 0.5, 0.75, -0.75];
const W: [f32; 6] = [0.1, -0.2, 0.3, 0.4, -0.5, 0.6];

/// What a model gives.
#[derive(Debug, Clone, Copy)]
enum Gives {
    Prediction,
    /// The squared difference of each element.
    Elements,
    /// The mean over each sample.
    Samples,
    /// The mean over all of it.
    Batch,
    /// The same with both axes kept, of one element each.
    BatchKept,
    /// The same without the input that would say how many samples there are.
    Constant,
}

fn model(gives: Gives) -> Vec<u8> {
    let batch = |width: usize| [Dim::from("batch"), width.into()];
    let mut graph = GraphBuilder::new("own");
    let w = graph.weight("w", &[3, 2], &W);
    let x = match gives {
        Gives::Constant => graph.constant(TensorProto::from_f32("x", &[1, 3], &[1.0, 2.0, 3.0])),
        _ => graph.input("x", ElementType::F32, &batch(3)),
    };
    let mut y = graph.op("MatMul", &[&x, &w], &[]);
    if !matches!(gives, Gives::Prediction | Gives::Constant) {
        // Not a label: an input as any other, even where it is called so.
        let target = graph.input("label", ElementType::F32, &batch(2));
        y = graph.op("Sub", &[&y, &target], &[]);
    }
    if !matches!(gives, Gives::Prediction) {
        y = graph.op("Mul", &[&y, &y], &[]);
    }
    let keepdims = attr_int("keepdims", i64::from(matches!(gives, Gives::BatchKept)));
    let y = match gives {
        Gives::Prediction | Gives::Elements => y,
        Gives::Samples => {
            let axes = graph.ints("axes", &[1]);
            graph.op("ReduceMean", &[&y, &axes], &[keepdims])
        }
        Gives::Batch | Gives::BatchKept | Gives::Constant => {
            let axes = graph.ints("axes", &[0, 1]);
            graph.op("ReduceMean", &[&y, &axes], &[keepdims])
        }
    };
    // As exporters call it.
    let name = if matches!(gives, Gives::Prediction) { "prediction" } else { "loss" };
    let y = graph.named(name, "Identity", &[&y], &[]);
    graph.output(&y);
    graph.with_opset(18).finish().to_bytes()
}

fn derived(gives: Gives, loss: Loss, options: LossOptions) -> Result<TrainingGraph, AutodiffError> {
    let options = DeriveOptions { loss: options, ..DeriveOptions::default() };
    derive(&onnxruntime::runtime(), &model(gives), loss, &options)
}

/// Loss, weight and gradient of training, and the loss of evaluation.
fn run(graph: &TrainingGraph) -> (f32, f32, Vec<f32>, f32) {
    let runtime = onnxruntime::runtime();
    let fed = [
        ("x", TensorView::F32 { shape: &[BATCH, 3], data: &X }),
        ("label", TensorView::F32 { shape: &[BATCH, 2], data: &TARGET }),
        ("w", TensorView::F32 { shape: &[3, 2], data: &W }),
    ];
    let mut training = Executable::new(&runtime, &graph.train_onnx, &ExecOptions::default()).unwrap();
    let outputs = training.run(&fed).unwrap();
    let one = |name: &str| outputs.f32(name).unwrap()[0];
    let (loss, weight) = (one("loss"), one("loss_weight"));
    let grad = outputs.f32("w.grad").unwrap().to_vec();
    let mut evaluation = Executable::new(&runtime, &graph.eval_onnx, &ExecOptions::default()).unwrap();
    let evaluated = evaluation.run(&fed).unwrap().f32("loss").unwrap()[0];
    (loss, weight, grad, evaluated)
}

#[test]
fn a_loss_of_the_model_trains_as_the_same_loss_of_ours() {
    let ours = derived(Gives::Prediction, Loss::MeanSquaredError, LossOptions::default()).unwrap();
    let (loss, weight, grad, _) = run(&ours);
    assert_eq!(weight, BATCH as f32);
    for gives in [Gives::Elements, Gives::Samples, Gives::Batch, Gives::BatchKept] {
        let graph = derived(gives, Loss::Output, LossOptions::default()).unwrap();
        let inputs: Vec<&str> = graph.data_inputs.iter().map(|input| input.name.as_str()).collect();
        assert_eq!((inputs, graph.label.is_none(), graph.classes), (vec!["x", "label"], true, None));
        let got = run(&graph);
        assert!((got.0 - loss).abs() < 1e-6 && (got.3 - loss).abs() < 1e-6, "{gives:?}: {got:?}, {loss}");
        assert_eq!(got.1, weight, "{gives:?}");
        let apart = got.2.iter().zip(&grad).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-6, "{gives:?}: {:?}, {grad:?}", got.2);
    }
}

#[test]
fn a_loss_that_compares_the_samples_of_a_batch_is_known() {
    let mut graph = GraphBuilder::new("contrastive");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into()]);
    let w = graph.weight("w", &[3, 2], &W);
    let embedded = graph.op("MatMul", &[&x, &w], &[]);
    let others = graph.transpose(&embedded, &[1, 0]);
    let scores = graph.op("MatMul", &[&embedded, &others], &[]);
    let axes = graph.ints("axes", &[0, 1]);
    let loss = graph.op("ReduceMean", &[&scores, &axes], &[attr_int("keepdims", 0)]);
    graph.output(&loss);
    let options = DeriveOptions { simplify: false, ..DeriveOptions::default() };
    let model = graph.with_opset(18).finish().to_bytes();
    let contrastive = derive(&onnxruntime::runtime(), &model, Loss::Output, &options).unwrap();
    assert_eq!(contrastive.mixed_samples, Some(scores));
    let told = contrastive.doubtful_batches().unwrap();
    assert!(told.contains("`micro_batch`") && told.contains("several workers"), "{told}");
    for gives in [Gives::Elements, Gives::Samples, Gives::Batch] {
        let graph = derived(gives, Loss::Output, LossOptions::default()).unwrap();
        assert_eq!(graph.doubtful_batches(), None, "{gives:?}");
    }
}

#[test]
fn what_is_no_loss_is_refused() {
    let options = LossOptions { label_smoothing: 0.1, ..LossOptions::default() };
    let refused = derived(Gives::Samples, Loss::Output, options).unwrap_err().to_string();
    assert!(refused.contains("loss output has no such option"), "{refused}");
    let refused = derived(Gives::Constant, Loss::Output, LossOptions::default()).unwrap_err().to_string();
    assert!(refused.starts_with("[E314]") && refused.contains("no inputs"), "{refused}");
}

const CLASSES: usize = 3;
const LABELS: [i64; BATCH * 2] = [0, 2, -1, 1, 2, 2, 0, -1, 1, 0];

/// How a model computes its cross-entropy of two labels a sample.
struct Entropy {
    op: &'static str,
    reduction: &'static str,
    class_weights: Vec<f32>,
    ignores: bool,
}

impl Entropy {
    /// A model that gives scores `[batch, classes, 2]`, or the loss of them.
    fn model(&self, gives_loss: bool) -> Vec<u8> {
        let mut graph = GraphBuilder::new("entropy");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into(), 2.into()]);
        let p = graph.weight("p", &[CLASSES, 2], &W);
        let mut y = graph.op("Add", &[&x, &p], &[]);
        if gives_loss {
            let label = graph.input("label", ElementType::I64, &["batch".into(), 2.into()]);
            if self.op == "NegativeLogLikelihoodLoss" {
                y = graph.op("LogSoftmax", &[&y], &[attr_int("axis", 1)]);
            }
            let mut inputs = vec![y.clone(), label];
            if !self.class_weights.is_empty() {
                let weights = TensorProto::from_f32("class_weights", &[CLASSES], &self.class_weights);
                inputs.push(graph.constant(weights));
            }
            let mut attributes = vec![attr_string("reduction", self.reduction)];
            attributes.extend(self.ignores.then(|| attr_int("ignore_index", -1)));
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            y = graph.op(self.op, &inputs, &attributes);
        }
        graph.output(&y);
        graph.finish().to_bytes()
    }

    fn derived(&self, loss: Loss) -> TrainingGraph {
        let train = Some(vec!["p".to_owned()]);
        let mut options = DeriveOptions { train, ..DeriveOptions::default() };
        if loss == Loss::SoftmaxCrossEntropy {
            options.loss.class_weights = self.class_weights.clone().into();
            options.loss.ignore_index = self.ignores.then_some(-1);
            options.loss.class_axis = Some(1);
        }
        derive(&onnxruntime::runtime(), &self.model(loss == Loss::Output), loss, &options).unwrap()
    }

    /// Loss and gradient.
    fn run(&self, loss: Loss) -> (f32, Vec<f32>) {
        let graph = self.derived(loss);
        let labels = LABELS.map(|label| if self.ignores { label } else { label.max(0) });
        let mut x = X.to_vec();
        x.extend(X.iter().map(|number| 1.5 * number - 0.2));
        let fed = [
            ("x", TensorView::F32 { shape: &[BATCH, CLASSES, 2], data: &x }),
            ("label", TensorView::I64 { shape: &[BATCH, 2], data: &labels }),
            ("p", TensorView::F32 { shape: &[CLASSES, 2], data: &W }),
        ];
        let runtime = onnxruntime::runtime();
        let mut session = Executable::new(&runtime, &graph.train_onnx, &ExecOptions::default()).unwrap();
        let outputs = session.run(&fed).unwrap();
        (outputs.f32("loss").unwrap()[0], outputs.f32("p.grad").unwrap().to_vec())
    }
}

#[test]
fn the_loss_operators_of_onnx_are_the_cross_entropy_that_we_write() {
    for op in ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"] {
        for (reduction, weighted, ignores) in [
            ("mean", false, false),
            ("mean", true, false),
            ("mean", false, true),
            ("mean", true, true),
            ("none", false, false),
            ("sum", false, false),
        ] {
            let class_weights = if weighted { vec![0.5, 2.0, 1.25] } else { Vec::new() };
            let entropy = Entropy { op, reduction, class_weights, ignores };
            let (own, ours) = (entropy.run(Loss::Output), entropy.run(Loss::SoftmaxCrossEntropy));
            let factor = if reduction == "sum" { (BATCH * 2) as f32 } else { 1.0 };
            let case = format!("{op} {reduction} {weighted} {ignores}: {own:?}, {ours:?}");
            assert!((own.0 - ours.0 * factor).abs() < 1e-5 * factor, "{case}");
            let apart = own.1.iter().zip(&ours.1).map(|(a, b)| (a - b * factor).abs()).fold(0.0, f32::max);
            assert!(apart < 1e-6 * factor, "{case}");
        }
    }
}

#[test]
fn a_loss_that_a_branch_reads_gives_its_name_away_there_too() {
    let mut graph = GraphBuilder::new("read");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into()]);
    let w = graph.weight("w", &[3], &W[..3]);
    let y = graph.op("Mul", &[&x, &w], &[]);
    let loss = graph.named("loss", "ReduceMean", &[&y], &[attr_int("keepdims", 0)]);
    let zero = graph.constant(TensorProto::from_f32("zero", &[], &[0.0]));
    let positive = graph.op("Greater", &[&loss, &zero], &[]);
    let branch = |op: &str| GraphProto {
        name: op.to_owned(),
        node: vec![NodeProto::named("inside", op, &["loss"], &[])],
        output: vec![TensorType::new(ElementType::F32, Vec::new()).to_value_info("inside")],
        ..GraphProto::default()
    };
    let branches = [attr_graph("then_branch", branch("Identity")), attr_graph("else_branch", branch("Neg"))];
    let size = graph.named("size", "If", &[&positive], &branches);
    graph.output(&loss);
    graph.output(&size);
    let options = DeriveOptions { output: Some("loss".to_owned()), ..DeriveOptions::default() };
    let model = graph.finish().to_bytes();
    let derived = derive(&onnxruntime::runtime(), &model, Loss::Output, &options).unwrap();
    let mut session =
        Executable::new(&onnxruntime::runtime(), &derived.eval_onnx, &ExecOptions::default()).unwrap();
    let fed = [
        ("x", TensorView::F32 { shape: &[2, 3], data: &[-1.0; 6] }),
        ("w", TensorView::F32 { shape: &[3], data: &[1.0; 3] }),
    ];
    let outputs = session.run(&fed).unwrap();
    let names: Vec<&str> = derived.forward_outputs.iter().map(|output| output.name.as_str()).collect();
    assert_eq!((names.len(), outputs.f32("size").unwrap()), (2, [1.0].as_slice()), "{names:?}");
}
