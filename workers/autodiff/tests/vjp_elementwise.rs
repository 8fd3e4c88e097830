//! Gradient rules of operators that work element by element, and of reductions, against finite differences.

use syncline_onnx::proto::TensorProto;
use syncline_onnx::{attr_float, attr_int, attr_ints, attr_string};

use crate::broadcasts::BROADCASTS;
use crate::one_operator::Case;

#[test]
fn elementary_functions() {
    let anywhere =
        ["Neg", "Abs", "Exp", "Reciprocal", "Erf", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Asinh"];
    for op in anywhere {
        Case::new(op).param(&[3, 4]).check(op);
        Case::new(op).open(&[2, 3]).check(op);
    }
    for op in ["Log", "Sqrt"] {
        Case::new(op).positive(&[3, 4]).check(op);
    }
    for op in ["Asin", "Acos", "Atanh"] {
        Case::new(op).param_between(&[3, 4], 0.1, 0.8, true).check(op);
    }
    Case::new("Acosh").param_between(&[3, 4], 1.5, 3.0, false).check("acosh");
}

#[test]
fn activations() {
    let alpha = |value: f32| attr_float("alpha", value);
    for size in [1.0, 4.0] {
        let case = |op: &str| Case::new(op).param_between(&[4, 5], 0.1, size, true);
        for op in [
            "LeakyRelu",
            "Elu",
            "Selu",
            "Celu",
            "ThresholdedRelu",
            "HardSigmoid",
            "Softplus",
            "Softsign",
            "HardSwish",
        ] {
            case(op).check(op);
            Case::new(op).open(&[2, 3]).check(op);
        }
        case("LeakyRelu").attr(alpha(0.3)).check("leaky relu 0.3");
        case("Elu").attr(alpha(1.7)).check("elu 1.7");
        case("Selu").attr(alpha(1.2)).attr(attr_float("gamma", 0.8)).check("selu 1.2 0.8");
        case("Celu").attr(alpha(0.6)).check("celu 0.6");
        case("ThresholdedRelu").attr(alpha(0.5)).check("thresholded relu 0.5");
        case("HardSigmoid").attr(alpha(0.5)).attr(attr_float("beta", 0.3)).check("hard sigmoid 0.5 0.3");
        case("Swish").opset(24).check("swish");
        case("Swish").opset(24).attr(alpha(1.7)).check("swish 1.7");
        case("Mish").opset(18).check("mish");
        for approximate in ["none", "tanh"] {
            case("Gelu").opset(20).attr(attr_string("approximate", approximate)).check(approximate);
        }
        case("Gelu").opset(20).check("gelu");
    }
}

#[test]
fn prelu() {
    for slope in [&[4][..], &[3, 1], &[1], &[2, 3, 4], &[3, 4]] {
        Case::new("PRelu").param(&[2, 3, 4]).param(slope).check(&format!("prelu {slope:?}"));
    }
    Case::new("PRelu").open(&[3, 4]).param(&[3, 1]).check("prelu, open batch");
}

#[test]
fn quotients_and_powers() {
    for (a, b) in BROADCASTS {
        Case::new("Div").param(a).param(b).check(&format!("div {a:?} {b:?}"));
        Case::new("Pow").positive(a).param(b).check(&format!("pow {a:?} {b:?}"));
    }
    Case::new("Div").open(&[3]).param(&[3]).check("div, open batch");
    for exponent in [2.0, 3.0, 4.0, 1.0, 0.0, -1.0] {
        Case::new("Pow").param(&[2, 3]).float(exponent).check(&format!("power {exponent}"));
        Case::new("Pow").open(&[3]).float(exponent).check(&format!("power {exponent}, open batch"));
    }
    for exponent in [0.5, 1.5, -0.5] {
        Case::new("Pow").positive(&[2, 3]).float(exponent).check(&format!("root {exponent}"));
    }
    Case::new("Pow").param(&[2, 3]).ints(&[3, 2, 4]).check("integer exponents");
    Case::new("Pow").param(&[2, 3]).ints_of(&[], &[2]).check("one integer exponent");
}

#[test]
fn a_power_has_no_slope_where_it_is_not_defined() {
    // The difference at 0 is a kink and not compared; the others must not be spoiled by it.
    Case::new("Pow").param_of(&[4], &[0.0, 0.5, 0.0, 2.0]).float(2.5).check("2.5th power at zero");
    Case::new("Pow").param_of(&[3], &[0.0, 0.5, -1.0]).ints(&[0, 1, 2]).check("exponent 0 at zero");
}

#[test]
fn sums_and_means_of_several() {
    for op in ["Sum", "Mean", "Max", "Min"] {
        Case::new(op).param(&[2, 3]).check(op);
        for (a, b) in BROADCASTS {
            Case::new(op).param(a).param(b).check(&format!("{op} {a:?} {b:?}"));
        }
        Case::new(op).param(&[2, 3]).param(&[3]).param(&[2, 1]).param(&[]).check(op);
        Case::new(op).open(&[3]).param(&[3]).open(&[3]).check(op);
    }
}

#[test]
fn equal_operands_share_the_gradient_of_an_extreme() {
    // Both operands are the same parameter: the halves add up to the whole.
    for op in ["Max", "Min"] {
        Case::new(op).param(&[2, 3]).value(|_, inputs| inputs[0].clone()).check(op);
    }
}

#[test]
fn clip() {
    let case = || Case::new("Clip").param(&[4, 5]);
    case().check("no bounds");
    case().float(-0.42).float(0.57).check("both");
    case().float(-0.42).check("low");
    case().without().float(0.57).check("high");
    case().param_of(&[], &[-0.42]).param_of(&[], &[0.57]).check("trained bounds");
    case().param_of(&[], &[0.6]).param_of(&[], &[-0.1]).check("crossed bounds");
    Case::new("Clip").open(&[3]).float(-0.3).param_of(&[], &[0.2]).check("open batch");
}

#[test]
fn selection() {
    let cases: [(&[usize], &[usize], &[usize]); 5] = [
        (&[2, 3], &[2, 3], &[2, 3]),
        (&[2, 3], &[3], &[]),
        (&[3], &[2, 1], &[1]),
        (&[2, 1], &[1, 3], &[4, 1, 1]),
        (&[1], &[3], &[2, 3]),
    ];
    for (condition, a, b) in cases {
        let choices: Vec<i64> = (0..condition.iter().product::<usize>() as i64).map(|at| at % 2).collect();
        Case::new("Where")
            .value(|graph, _| {
                let tensor = TensorProto::from_i64("choice", condition, &choices);
                let choice = graph.constant(tensor);
                graph.op("Cast", &[&choice], &[attr_int("to", 9)])
            })
            .param(a)
            .param(b)
            .check(&format!("where {condition:?} {a:?} {b:?}"));
    }
    Case::new("Where")
        .value(|graph, _| {
            let zero = graph.constant(TensorProto::from_f32("zero", &[1], &[0.0]));
            graph.op("Less", &["p0", &zero], &[])
        })
        .open(&[3])
        .param(&[3])
        .check("where, open batch and a condition on a parameter");
}

#[test]
fn softmax_and_its_logarithm() {
    for op in ["Softmax", "LogSoftmax"] {
        for axis in [-3, -1, 0, 1, 2] {
            Case::new(op).param(&[2, 3, 4]).attr(attr_int("axis", axis)).check(&format!("{op} {axis}"));
        }
        Case::new(op).param(&[2, 3]).check(op);
        Case::new(op).open(&[3, 2]).attr(attr_int("axis", 1)).check(op);
        Case::new(op).open(&[3]).attr(attr_int("axis", 0)).check(op);
    }
}

const REDUCTIONS: [&str; 10] = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceProd",
];

/// With its axes as an attribute or an input, as the operator set asks.
fn reduction(case: Case, op: &str, opset: i64, axes: &[i64]) -> Case {
    let case = case.opset(opset);
    if opset >= 18 || op == "ReduceSum" { case.ints(axes) } else { case.attr(attr_ints("axes", axes)) }
}

#[test]
fn reductions() {
    for op in REDUCTIONS {
        for opset in [13, 18, 21] {
            for axes in [&[0][..], &[1], &[-1], &[0, 2], &[-2, -1], &[2, 0]] {
                for keep in [0, 1] {
                    let case = Case::new(op).positive(&[2, 3, 2]).attr(attr_int("keepdims", keep));
                    reduction(case, op, opset, axes).check(&format!("{op}-{opset} {axes:?} {keep}"));
                }
            }
            Case::new(op).opset(opset).positive(&[2, 3]).check(&format!("{op}-{opset}, keep all"));
            let all = Case::new(op).opset(opset).positive(&[2, 3]).attr(attr_int("keepdims", 0));
            all.check_scalar(&format!("{op}-{opset}, all"));
        }
    }
}

#[test]
fn reductions_of_open_batches() {
    for op in REDUCTIONS.into_iter().filter(|op| *op != "ReduceLogSum") {
        for opset in [13, 18] {
            for (axes, keep) in [(&[0][..], 1), (&[0], 0), (&[1], 1), (&[-1], 0), (&[0, 1], 0)] {
                let case = Case::new(op).open(&[3, 2]).attr(attr_int("keepdims", keep));
                reduction(case, op, opset, axes).check(&format!("{op}-{opset} {axes:?} {keep}"));
            }
        }
    }
}

#[test]
fn reductions_whose_axes_only_the_run_knows() {
    // The number of axes of the result is not known either, until it is given a shape.
    for op in REDUCTIONS {
        for keep in [0, 1] {
            let case = Case::new(op).opset(18).positive(&[2, 3, 2]).value(|graph, inputs| {
                let shape = graph.op("Shape", &[&inputs[0]], &[]);
                let (one, first) = (graph.ints("one", &[1]), graph.ints("first", &[0]));
                let rows = graph.op("Gather", &[&shape, &first], &[]);
                graph.op("Sub", &[&rows, &one], &[])
            });
            case.attr(attr_int("keepdims", keep)).check_with(&format!("{op} {keep}"), |graph, y| {
                let target = graph.ints("target", &[2, -1]);
                graph.op("Reshape", &[&y, &target], &[])
            });
        }
    }
}

#[test]
fn a_reduction_over_no_axes_may_do_nothing() {
    for op in REDUCTIONS {
        for noop in [0, 1] {
            let case = Case::new(op).opset(18).positive(&[2, 3]).attr(attr_int("noop_with_empty_axes", noop));
            case.check(&format!("{op} {noop}"));
            let case = Case::new(op).opset(18).positive(&[2, 3]).ints(&[]);
            case.attr(attr_int("noop_with_empty_axes", noop)).check(&format!("{op} {noop}, empty list"));
        }
    }
}

#[test]
fn ties_and_zeros_in_reductions() {
    for zeros in 0..4 {
        let mut data = [0.5, -0.7, 0.3, 0.9, -0.2, 0.8];
        data[..zeros].fill(0.0);
        for axes in [&[0][..], &[1], &[0, 1]] {
            let case = Case::new("ReduceProd").param_of(&[2, 3], &data).attr(attr_ints("axes", axes));
            case.check(&format!("product with {zeros} zeros {axes:?}"));
        }
    }
    // Kinks are not compared; the row without a tie is.
    for op in ["ReduceMax", "ReduceMin"] {
        let case =
            Case::new(op).param_of(&[2, 3], &[0.5, 0.5, 0.5, 0.3, 0.2, 0.9]).attr(attr_ints("axes", &[1]));
        case.check(op);
    }
    let case = Case::new("ReduceL2").param_of(&[2, 2], &[0.0, 0.0, 0.3, -0.4]).attr(attr_ints("axes", &[1]));
    case.check("a row of zeros");
}

#[test]
fn flat_operators_pass_no_gradient() {
    for op in ["Floor", "Ceil", "Round", "Sign", "Hardmax", "EyeLike"] {
        Case::new(op).param(&[2, 3]).check(op);
        Case::new(op).param(&[2, 3]).check_with(op, |graph, y| graph.op("Mul", &[&y, "p0"], &[]));
    }
    // Noise of the shape of a mean that is trained; it is taken times zero, so that differences can be
    // compared.
    for op in ["RandomNormalLike", "RandomUniformLike"] {
        Case::new(op).param(&[2, 3]).check_with(op, |graph, y| {
            let zero = graph.constant(TensorProto::from_f32("zero", &[], &[0.0]));
            let scaled = graph.op("Mul", &[&y, &zero], &[]);
            graph.op("Add", &[&scaled, "p0"], &[])
        });
    }
}

#[test]
fn one_parameter_on_both_sides() {
    for op in ["Div", "Pow", "Max", "Min", "Sum", "Mean"] {
        Case::new(op).positive(&[2, 3]).value(|_, inputs| inputs[0].clone()).check(op);
    }
}
