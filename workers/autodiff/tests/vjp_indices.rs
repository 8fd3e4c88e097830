//! Gradient rules of operators that read and write by index, against finite differences.

use syncline_onnx::{GraphBuilder, attr_int, attr_string};

use crate::one_operator::Case;

#[test]
fn gather() {
    let case = |axis: i64| Case::new("Gather").attr(attr_int("axis", axis));
    for axis in [0, 1, 2, -1, -3] {
        for (shape, indices) in [
            (&[3][..], &[1, 1, -1][..]),
            (&[2, 2], &[0, -2, 1, 1]),
            (&[], &[1]),
            (&[], &[-1]),
            (&[1], &[0]),
            (&[1, 1], &[-1]),
            (&[4], &[1, 0, 1, 1]),
        ] {
            let name = format!("axis {axis}, {shape:?} {indices:?}");
            case(axis).param(&[2, 3, 2]).ints_of(shape, indices).check(&name);
            case(axis).open(&[3, 2]).ints_of(shape, indices).check(&format!("{name}, open"));
        }
    }
    case(0).param(&[3]).ints_of(&[], &[1]).check_scalar("one number");
    case(0).opset(13).param(&[5, 2]).ints(&[4, 4, 0]).check("old operator set");
    // The indices are of type int32, as the input of an embedding often is.
    case(0)
        .param(&[5, 2])
        .value(|graph, _| {
            let ids = graph.ints("ids", &[4, 1, 4, -5]);
            graph.op("Cast", &[&ids], &[attr_int("to", 6)])
        })
        .check("int32");
}

#[test]
fn gather_elements() {
    for (axis, shape, indices) in [
        (0, [2, 3], [0, 2, -1, 1, 1, 1]),
        (1, [3, 2], [0, 0, -1, 3, 2, 2]),
        (-1, [2, 3], [0, 0, 0, -4, 3, 1]),
    ] {
        let case = Case::new("GatherElements").param(&[3, 4]).ints_of(&shape, &indices);
        case.attr(attr_int("axis", axis)).check(&format!("{axis} {indices:?}"));
    }
}

#[test]
fn gather_nd() {
    let case = || Case::new("GatherND").param(&[2, 3, 2]);
    case().ints_of(&[2, 3], &[0, 1, 1, -1, 2, 0]).check("elements");
    case().ints_of(&[3, 2], &[0, 1, 1, -1, 0, 1]).check("rows, one twice");
    case().ints_of(&[2, 2, 1], &[0, 1, 1, -1]).check("planes");
    case().ints_of(&[2, 1, 1], &[2, -1]).attr(attr_int("batch_dims", 1)).check("batch axis");
    case().ints_of(&[2, 3, 1], &[1, 1, 0, 0, 1, 1]).attr(attr_int("batch_dims", 2)).check("two batch axes");
}

#[test]
fn scatter() {
    for (opset, reduction) in [(13, None), (16, Some("none")), (16, Some("add")), (18, Some("add"))] {
        let case = |op: &str| {
            let case = Case::new(op).opset(opset);
            reduction.into_iter().fold(case, |case, name| case.attr(attr_string("reduction", name)))
        };
        let name = format!("{opset} {reduction:?}");
        case("ScatterND").param(&[4, 2]).ints_of(&[3, 1], &[2, -4, 1]).param(&[3, 2]).check(&name);
        case("ScatterND").param(&[4, 2]).ints_of(&[2, 2], &[0, 1, -1, 0]).param(&[2]).check(&name);
        let elements = case("ScatterElements").param(&[3, 4]).ints_of(&[2, 3], &[0, 3, -2, 2, 1, 0]);
        elements.param(&[2, 3]).attr(attr_int("axis", 1)).check(&name);
        let elements = case("ScatterElements").param(&[3, 2]).ints_of(&[1, 2], &[2, -3]).param(&[1, 2]);
        elements.check(&name);
    }
    for reduction in ["mul", "min", "max"] {
        let case = |op: &str| Case::new(op).opset(18).attr(attr_string("reduction", reduction));
        let twice = case("ScatterND").param(&[4, 2]).ints_of(&[4, 1], &[2, 0, 2, -2]);
        twice.param(&[4, 2]).check(&format!("{reduction}, one place three times"));
        let elements = case("ScatterElements").param(&[3, 4]).ints_of(&[2, 3], &[0, 3, 0, 2, 1, 0]);
        elements.param(&[2, 3]).attr(attr_int("axis", -1)).check(reduction);
    }
    // One zero and two of them among the factors of a place; where there are two nothing moves.
    let zeros = Case::new("ScatterND").opset(18).attr(attr_string("reduction", "mul"));
    let zeros = zeros.param_of(&[4], &[0.0, 0.5, 0.0, 2.0]).ints_of(&[4, 1], &[0, 1, 2, 3]);
    zeros.param_of(&[4], &[3.0, 0.0, 0.0, -1.5]).check("zeros");
    for op in ["ScatterND", "ScatterElements"] {
        let indices: &[usize] = if op == "ScatterND" { &[3, 1] } else { &[3, 2] };
        let data = [1, 1, 0, 0, 1, 1];
        let case =
            Case::new(op).param(&[4, 2]).ints_of(indices, &data[..indices[0] * indices[1]]).param(&[3, 2]);
        case.attr(attr_string("reduction", "add")).check("indices that repeat");
    }
}

#[test]
fn compress_and_reverse() {
    let keep = |case: Case, choices: &'static [i64]| {
        case.value(|graph, _| {
            let choices = graph.ints("choices", choices);
            graph.op("Cast", &[&choices], &[attr_int("to", 9)])
        })
    };
    let ranked = |graph: &mut GraphBuilder, y: String| {
        let target = graph.ints("target", &[-1, 1]);
        graph.op("Reshape", &[&y, &target], &[])
    };
    keep(Case::new("Compress").param(&[3, 2]), &[1, 0, 1]).attr(attr_int("axis", 0)).check("axis 0");
    keep(Case::new("Compress").open(&[3]), &[0, 1, 1]).attr(attr_int("axis", -1)).check("axis -1");
    keep(Case::new("Compress").param(&[2, 2]), &[1, 0, 0, 1]).check_with("no axis", ranked);
    let reverse = |batch: i64, lengths: &[i64]| {
        let case = Case::new("ReverseSequence").param(&[3, 2, 2]).ints(lengths);
        case.attr(attr_int("batch_axis", batch)).attr(attr_int("time_axis", 1 - batch))
    };
    reverse(1, &[2, 3]).check("time first");
    reverse(0, &[1, 2, 2]).check("batch first");
}

#[test]
fn the_largest() {
    for (axis, largest) in [(0, 1), (1, 1), (-1, 0)] {
        let case = Case::new("TopK").param(&[3, 4]).ints(&[2]).attr(attr_int("axis", axis));
        case.attr(attr_int("largest", largest)).check_outputs(&format!("{axis} {largest}"), 2, |_, y| y);
    }
    Case::new("TopK").open(&[4]).ints(&[3]).check_outputs("open", 2, |_, y| y);
}
