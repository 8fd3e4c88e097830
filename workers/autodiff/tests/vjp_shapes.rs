//! Gradient rules of operators that move elements about, against finite differences.

use syncline_autodiff::{DeriveOptions, Loss, derive};
use syncline_onnx::{ElementType, GraphBuilder, attr_int, attr_ints, attr_string};
use syncline_runtime::{ExecOptions, Executable, TensorView};

use crate::one_operator::Case;
use crate::onnxruntime;

const FAR: i64 = i64::MAX;

/// The size of the first axis of a value, as a list of one: a constant to the eye, not to the derivation.
fn rows(graph: &mut GraphBuilder, value: &str) -> String {
    let first = graph.ints("first", &[0]);
    let shape = graph.op("Shape", &[value], &[]);
    graph.op("Gather", &[&shape, &first], &[])
}

#[test]
fn transpose() {
    for perm in [&[0, 1, 2][..], &[2, 0, 1], &[1, 2, 0], &[0, 2, 1]] {
        Case::new("Transpose").param(&[2, 3, 4]).attr(attr_ints("perm", perm)).check(&format!("{perm:?}"));
        Case::new("Transpose").open(&[3, 4]).attr(attr_ints("perm", perm)).check(&format!("{perm:?}, open"));
    }
    Case::new("Transpose").param(&[2, 3, 4]).check("no perm");
}

#[test]
fn squeeze_and_unsqueeze() {
    for axes in [&[0][..], &[-1], &[0, 3], &[1, -1]] {
        Case::new("Unsqueeze").param(&[2, 3]).ints(axes).check(&format!("unsqueeze {axes:?}"));
        Case::new("Unsqueeze").open(&[3]).ints(axes).check(&format!("unsqueeze {axes:?}, open"));
    }
    for axes in [&[1][..], &[-2], &[1, 3], &[-4, -2]] {
        Case::new("Squeeze").param(&[2, 1, 3, 1, 2]).ints(&axes[..1]).check(&format!("squeeze {axes:?}"));
        Case::new("Squeeze").open(&[1, 3, 1, 2]).ints(&axes[..1]).check(&format!("squeeze {axes:?}, open"));
    }
    Case::new("Squeeze").param(&[2, 1, 3, 1]).check("squeeze all");
}

#[test]
fn expand() {
    let cases: [(&[usize], &[i64]); 6] = [
        (&[3], &[2, 3]),
        (&[1, 3], &[2, 1]),
        (&[2, 1], &[4, 1, 3]),
        (&[2, 3], &[1]),
        (&[1], &[2, 2]),
        (&[2, 3], &[2, 3]),
    ];
    for (shape, to) in cases {
        Case::new("Expand").param(shape).ints(to).check(&format!("{shape:?} to {to:?}"));
    }
    Case::new("Expand").open(&[1, 2]).ints(&[1, 3, 1]).check("open batch");
    // A parameter repeated once per sample.
    Case::new("Expand")
        .param(&[1, 3])
        .value(|graph, _| {
            let x = graph.input("x0", ElementType::F32, &["batch".into(), 1.into()]);
            let (rows, one) = (rows(graph, &x), graph.ints("one", &[1]));
            graph.op("Concat", &[&rows, &one], &[attr_int("axis", 0)])
        })
        .fed("x0", &[1])
        .check("to the size of the batch");
}

#[test]
fn concat() {
    for axis in [0, 1, -1, -2] {
        let case = Case::new("Concat").param(&[2, 3]).param(&[2, 3]).param(&[2, 3]);
        case.attr(attr_int("axis", axis)).check(&format!("{axis}"));
    }
    let case = Case::new("Concat").param(&[2, 1]).param(&[2, 3]).value(|_, inputs| inputs[0].clone());
    case.attr(attr_int("axis", 1)).check("one input twice");
    Case::new("Concat").open(&[3]).open(&[2]).attr(attr_int("axis", 1)).check("open, axis 1");
    Case::new("Concat").open(&[3]).param(&[2, 3]).open(&[3]).attr(attr_int("axis", 0)).check("open, axis 0");
    Case::new("Concat").param(&[2, 3]).attr(attr_int("axis", 0)).check("one input");
}

#[test]
fn split() {
    let mul = |graph: &mut GraphBuilder, _| {
        let sum = graph.op("Mul", &["y", "y1"], &[]);
        graph.op("Sub", &[&sum, "y2"], &[])
    };
    for opset in [13, 18] {
        for axis in [1, -1] {
            let mut equal = Case::new("Split").opset(opset).attr(attr_int("axis", axis));
            if opset == 18 {
                equal = equal.attr(attr_int("num_outputs", 3));
            }
            equal.param(&[2, 6]).check_outputs(&format!("{opset} {axis}"), 3, mul);
        }
        let given = || Case::new("Split").opset(opset).attr(attr_int("axis", 1)).open(&[6]).ints(&[1, 2, 3]);
        given().check_outputs("first part only", 3, |_, y| y);
        given().check_outputs("second part only", 3, |_, _| "y1".to_owned());
        given().check_outputs("last part only", 3, |_, _| "y2".to_owned());
        given().check_outputs("first and last part", 3, |graph, y| graph.op("Mul", &[&y, "y2"], &[]));
        given().check_outputs("each part", 3, |graph, y| {
            let other = graph.op("Concat", &["y1", &y], &[attr_int("axis", 1)]);
            graph.op("Mul", &[&other, "y2"], &[])
        });
    }
    let uneven = Case::new("Split").opset(18).param(&[5, 2]).attr(attr_int("num_outputs", 2));
    uneven.check_outputs("5 into 2", 2, |_, _| "y1".to_owned());
    let whole = Case::new("Split").param(&[5, 2]);
    whole.check_outputs("into 1", 1, |_, y| y);
    Case::new("Split")
        .open(&[2])
        .value(|graph, inputs| {
            let (rows, one) = (rows(graph, &inputs[0]), graph.ints("one", &[1]));
            let rest = graph.op("Sub", &[&rows, &one], &[]);
            graph.op("Concat", &[&one, &rest], &[attr_int("axis", 0)])
        })
        .check_outputs("of an open batch", 2, |graph, y| graph.op("Mul", &[&y, "y1"], &[]));
}

#[test]
fn slice() {
    let whole: [i64; 0] = [];
    #[rustfmt::skip]
    let cases: &[[&[i64]; 4]] = &[
        [&[1],     &[3],        &[0],     &[1]],
        [&[0],     &[FAR],      &[1],     &[1]],
        [&[-2],    &[FAR],      &[1],     &[1]],
        [&[-9],    &[-1],       &[1],     &[1]],
        [&[1, -2], &[-1, 9],    &[-1, 0], &[1, 1]],
        [&[0],     &[FAR],      &[1],     &[2]],
        [&[-1],    &[-FAR - 1], &[1],     &[-1]],
        [&[3, 0],  &[0, FAR],   &[1, 0],  &[-2, 1]],
        [&whole,   &whole,      &whole,   &whole],
    ];
    for [starts, ends, axes, steps] in cases {
        let name = format!("{starts:?} {ends:?} {axes:?} {steps:?}");
        let case = |case: Case| case.ints(starts).ints(ends).ints(axes).ints(steps);
        case(Case::new("Slice").param(&[4, 5])).check(&name);
        case(Case::new("Slice").param(&[4, 2, 5])).check(&name);
        if !axes.contains(&0) {
            case(Case::new("Slice").open(&[5])).check(&format!("{name}, open"));
        }
    }
    Case::new("Slice").param(&[4, 5]).ints(&[1, 2]).ints(&[3, 4]).check("no axes");
    Case::new("Slice").open(&[2]).ints(&[1]).ints(&[FAR]).ints(&[0]).check("all samples but the first");
    Case::new("Slice").open(&[2]).ints(&[-1]).ints(&[FAR]).ints(&[0]).check("the last sample");
    Case::new("Slice")
        .open(&[2])
        .ints(&[-3])
        .ints(&[FAR])
        .ints(&[0])
        .check("the last samples, if there are as many");
    Case::new("Slice").open(&[2]).ints(&[0]).ints(&[-1]).ints(&[0]).check("all samples but the last");
    Case::new("Slice").open(&[2]).ints(&[-1]).ints(&[-FAR]).ints(&[0]).ints(&[-1]).check("samples backwards");
}

#[test]
fn slice_of_positions_by_the_length_of_the_input() {
    let case = |start: Option<i64>| {
        let case = Case::new("Slice").param(&[7, 3]);
        let case = match start {
            Some(start) => case.ints(&[start]),
            None => case.value(|graph, _| {
                let one = graph.ints("one", &[1]);
                graph.op("Sub", &[&one, &one], &[])
            }),
        };
        case.value(|graph, _| {
            let x = graph.input("x0", ElementType::F32, &["batch".into(), 1.into()]);
            rows(graph, &x)
        })
        .fed("x0", &[1])
        .ints(&[0])
    };
    case(Some(0)).check("from the first on");
    case(Some(1)).check("from the second on");
    case(None).check("from where only the run knows");
}

#[test]
fn pad() {
    for pads in [&[0, 1, 2, 0][..], &[1, 1, 1, 1], &[0, 0, 0, 0], &[-1, 1, 0, -2], &[0, -1, -1, 0]] {
        Case::new("Pad").param(&[3, 4]).ints(pads).check(&format!("{pads:?}"));
        Case::new("Pad").param(&[3, 4]).ints(pads).float(0.5).check(&format!("{pads:?} with 0.5"));
        Case::new("Pad").open(&[4]).ints(&[0, pads[1], 0, pads[3]]).check(&format!("{pads:?}, open"));
    }
    Case::new("Pad").param(&[3, 4]).ints(&[0, 1, 2, -1]).param(&[]).check("a trained constant");
    Case::new("Pad").open(&[4]).ints(&[1, 0, 0, 3]).param(&[1]).check("a trained constant, open");
    for mode in ["reflect", "edge"] {
        for pads in [&[0, 1, 2, 0][..], &[2, 3, 1, 2]] {
            let mode = attr_string("mode", mode);
            Case::new("Pad")
                .param(&[3, 4])
                .ints(pads)
                .attr(mode.clone())
                .check(&format!("{mode:?} {pads:?}"));
            Case::new("Pad").open(&[4]).ints(&[0, pads[1], 0, pads[3]]).attr(mode).check("open");
        }
    }
    let wrap = Case::new("Pad").opset(19).param(&[3, 4]).ints(&[1, 2, 1, 3]);
    wrap.attr(attr_string("mode", "wrap")).check("wrap");
    Case::new("Pad").opset(18).param(&[3, 4]).ints(&[1, 2]).without().ints(&[-1]).check("axes");
    let some = Case::new("Pad").opset(18).param(&[3, 4]).ints(&[1, 2]).without().ints(&[1]);
    some.attr(attr_string("mode", "reflect")).check("axes, reflect");
    // What is around is a part of x, whatever the constant says.
    for mode in ["reflect", "edge"] {
        let some = Case::new("Pad").param(&[3, 4]).ints(&[1, 0, 1, 2]).float(0.0);
        some.attr(attr_string("mode", mode)).check("a constant that is not read");
    }
    let some = Case::new("Pad").opset(18).param(&[3, 4]).ints(&[1, 2]).float(0.0).ints(&[1]);
    some.attr(attr_string("mode", "reflect")).check("a constant that is not read, axes");
    Case::new("Pad")
        .open(&[2])
        .value(|graph, inputs| {
            let (rows, zero) = (rows(graph, &inputs[0]), graph.ints("zero", &[0]));
            graph.op("Concat", &[&zero, &zero, &rows, &zero], &[attr_int("axis", 0)])
        })
        .check("as much again as there are samples");
}

#[test]
fn tile() {
    for repeats in [[1, 1], [2, 1], [1, 3], [2, 3]] {
        Case::new("Tile").param(&[2, 3]).ints(&repeats).check(&format!("{repeats:?}"));
        Case::new("Tile").open(&[3]).ints(&repeats).check(&format!("{repeats:?}, open"));
    }
    Case::new("Tile")
        .param(&[3])
        .value(|graph, _| {
            let x = graph.input("x0", ElementType::F32, &["batch".into(), 1.into()]);
            rows(graph, &x)
        })
        .fed("x0", &[1])
        .check("as often as there are samples");
}

#[test]
fn cumulative_sum() {
    for exclusive in [0, 1] {
        for reverse in [0, 1] {
            for axis in [0, 1, -1] {
                let case = Case::new("CumSum").open(&[4]).ints_of(&[], &[axis]);
                let case = case.attr(attr_int("exclusive", exclusive)).attr(attr_int("reverse", reverse));
                case.check(&format!("{exclusive} {reverse} {axis}"));
            }
        }
    }
}

#[test]
fn triangles() {
    for upper in [0, 1] {
        Case::new("Trilu").param(&[3, 4]).attr(attr_int("upper", upper)).check("diagonal");
        for k in [-1, 0, 2] {
            let case = Case::new("Trilu").open(&[3, 3]).ints_of(&[], &[k]).attr(attr_int("upper", upper));
            case.check(&format!("{upper} {k}"));
        }
    }
}

#[test]
fn depth_and_space() {
    for mode in ["DCR", "CRD"] {
        let case = Case::new("DepthToSpace").open(&[8, 2, 3]).attr(attr_int("blocksize", 2));
        case.attr(attr_string("mode", mode)).check(mode);
    }
    Case::new("DepthToSpace").param(&[1, 9, 1, 2]).attr(attr_int("blocksize", 3)).check("no mode");
    Case::new("SpaceToDepth").open(&[3, 4, 2]).attr(attr_int("blocksize", 2)).check("space to depth");
}

#[test]
fn casts_between_float_types_pass_the_gradient() {
    let back = |graph: &mut GraphBuilder, y: String| graph.op("Cast", &[&y], &[attr_int("to", 1)]);
    Case::new("Cast").param(&[2, 3]).attr(attr_int("to", 11)).check_with("by float64", back);
    Case::new("Cast").param(&[2, 3]).attr(attr_int("to", 1)).check("to itself");
    let like = Case::new("CastLike").opset(15).param(&[2, 3]).param(&[1]);
    like.check_with("like a parameter", |graph, y| graph.op("Mul", &[&y, "p1"], &[]));
}

#[test]
fn casts_to_integers_stop_the_gradient() {
    // y = float(int(p)) * q, and p is reached another way as well.
    Case::new("Cast").param(&[2, 3]).attr(attr_int("to", 7)).check_with("by int64", |graph, y| {
        let floats = graph.op("Cast", &[&y], &[attr_int("to", 1)]);
        graph.op("Sub", &[&floats, "p0"], &[])
    });
}

#[test]
fn integer_and_boolean_paths_need_no_rule() {
    // Each reads a parameter, and what it says is used; only the product with the parameter has a gradient.
    for op in ["Shape", "Size", "NonZero", "ArgMax", "ArgMin", "IsNaN", "IsInf"] {
        Case::new(op).param(&[2, 3]).check_with(op, |graph, y| {
            let numbers = graph.op("Cast", &[&y], &[attr_int("to", 1)]);
            let all = graph.op("ReduceMax", &[&numbers], &[attr_int("keepdims", 0)]);
            graph.op("Mul", &[&all, "p0"], &[])
        });
    }
    for op in ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"] {
        Case::new(op).param(&[2, 3]).param(&[3]).check_with(op, |graph, y| {
            let not = graph.op("Not", &[&y], &[]);
            let both = graph.op("Or", &[&y, &not], &[]);
            let numbers = graph.op("Cast", &[&both], &[attr_int("to", 1)]);
            graph.op("Mul", &[&numbers, "p1"], &[])
        });
    }
    Case::new("Shape").param(&[2, 3]).check_with("shapes", |graph, y| {
        let ones = graph.op("ConstantOfShape", &[&y], &[]);
        graph.op("Sub", &[&ones, "p0"], &[])
    });
    Case::new("ArgMax").param(&[2, 3]).attr(attr_int("axis", 1)).attr(attr_int("keepdims", 0)).check_with(
        "one hot",
        |graph, y| {
            let depth = graph.ints("depth", &[3]);
            let values =
                graph.constant(syncline_onnx::proto::TensorProto::from_f32("off_on", &[2], &[0.0, 1.0]));
            let onehot = graph.op("OneHot", &[&y, &depth, &values], &[]);
            graph.op("Mul", &[&onehot, "p0"], &[])
        },
    );
}

#[test]
fn a_branch_reads_one_value_in_many_ways() {
    // softplus(x w) cut, turned, repeated and put together again, with w used once more at the end.
    Case::new("Softplus").open(&[4, 2]).check_with("branches", |graph, y| {
        let half = graph.ints("half", &[2]);
        let (zero, one, end) = (graph.ints("zero", &[0]), graph.ints("one", &[1]), graph.ints("end", &[FAR]));
        let front = graph.op("Slice", &[&y, &zero, &half, &one], &[]);
        let rear = graph.op("Slice", &[&y, &half, &end, &one], &[]);
        let ratio = graph.op("Div", &[&front, &rear], &[]);
        let joined = graph.op("Concat", &[&rear, &ratio], &[attr_int("axis", 1)]);
        let turned = graph.transpose(&joined, &[0, 2, 1]);
        let picks = graph.ints("picks", &[1, 0, 1]);
        let picked = graph.op("Gather", &[&turned, &picks], &[attr_int("axis", 1)]);
        let mean = graph.op("ReduceMean", &[&picked], &[attr_ints("axes", &[1])]);
        let back = graph.transpose(&mean, &[0, 2, 1]);
        let scaled = graph.op("Mul", &[&back, "p0"], &[]);
        graph.op("Sub", &[&scaled, &y], &[])
    });
}

#[test]
fn a_reduction_over_axes_of_unknown_rank_is_over_these_axes() {
    for keepdims in [0, 1] {
        let mut graph = GraphBuilder::new("axes").with_opset(18);
        let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into()]);
        // How many axes a list of open length asks for, only the run knows.
        let which = graph.input("which", ElementType::I64, &[1.into()]);
        let sizes = graph.input("sizes", ElementType::I64, &["rank".into()]);
        let w = graph.weight("w", &[3], &[0.5, -1.0, 2.0]);
        let scaled = graph.op("Mul", &[&x, &w], &[]);
        let axes = graph.op("Reshape", &[&which, &sizes], &[]);
        let mean = graph.op("ReduceMean", &[&scaled, &axes], &[attr_int("keepdims", keepdims)]);
        let shape = graph.ints("shape", &[-1, 1]);
        let y = graph.named("y", "Reshape", &[&mean, &shape], &[]);
        graph.output(&y);
        let options = DeriveOptions { simplify: false, ..DeriveOptions::default() };
        let graph =
            derive(&onnxruntime::runtime(), &graph.finish().to_bytes(), Loss::MeanSquaredError, &options);
        let graph = graph.unwrap();
        let mut session =
            Executable::new(&onnxruntime::runtime(), &graph.train_onnx, &ExecOptions::default()).unwrap();
        let x = [1.0, 2.0, 3.0, -1.0, 0.5, 4.0];
        let views = [
            ("x", TensorView::F32 { shape: &[2, 3], data: &x }),
            ("which", TensorView::I64 { shape: &[1], data: &[1] }),
            ("sizes", TensorView::I64 { shape: &[1], data: &[1] }),
            ("label", TensorView::F32 { shape: &[2, 1], data: &[0.0; 2] }),
            ("w", TensorView::F32 { shape: &[3], data: &graph.params[0].initial }),
        ];
        let outputs = session.run(&views).unwrap();
        // The loss is the mean of y^2 over two samples, with y = x . w / 3.
        let y = [x[..3].to_vec(), x[3..].to_vec()]
            .map(|row| row.iter().zip(&graph.params[0].initial).map(|(x, w)| x * w).sum::<f32>() / 3.0);
        let got = outputs.f32("w.grad").unwrap();
        for (at, got) in got.iter().enumerate() {
            let want = (y[0] * x[at] + y[1] * x[3 + at]) / 3.0;
            assert!((got - want).abs() < 1e-5, "keepdims {keepdims}, {at}: {got}, not {want}");
        }
    }
}
