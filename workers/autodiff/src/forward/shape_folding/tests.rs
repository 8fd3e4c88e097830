//! Which sizes become constants, and which stay.

use super::*;
use syncline_onnx::{ElementType, GraphBuilder, TensorType, attr_int};

/// x `[batch, 6, time, 8]` with what `then` makes of it; the types of x and of `like`, which has the same
/// shape.
fn graph(then: impl FnOnce(&mut GraphBuilder, &str) -> String) -> (GraphProto, Types) {
    let mut graph = GraphBuilder::new("shapes").with_opset(18);
    let dims = ["batch".into(), 6.into(), "time".into(), 8.into()];
    let ty = TensorType::new(ElementType::F32, dims.to_vec());
    let x = graph.input("x", ElementType::F32, &dims);
    let y = then(&mut graph, &x);
    graph.output(&y);
    (graph.finish().graph.unwrap(), Types::from([(x, ty)]))
}

/// The constant that the last node reads at this position after the rewriting.
fn constant(graph: &GraphProto, position: usize) -> Option<&TensorProto> {
    let name = graph.node.last()?.input.get(position)?;
    graph.initializer.iter().find(|tensor| tensor.name == *name)
}

#[test]
fn targets_of_reshapes() {
    #[rustfmt::skip]
    let cases: [(&str, fn(&mut GraphBuilder, &str) -> String, Option<&[i64]>); 8] = [
        ("the whole shape", |g, x| g.op("Shape", &[x], &[]), Some(&[0, 6, 0, 8])),
        ("a part of it", |g, x| g.op("Shape", &[x], &[attr_int("start", -3), attr_int("end", 3)]),
            Some(&[6, -1])),
        ("gathered and put together", |g, x| {
            let shape = g.op("Shape", &[x], &[]);
            let (first, rest, zero) = (g.ints("first", &[0]), g.ints("rest", &[-1]), g.ints("zero", &[0]));
            let batch = g.op("Gather", &[&shape, &first], &[]);
            let batch = g.op("Squeeze", &[&batch, &zero], &[]);
            let batch = g.op("Unsqueeze", &[&batch, &zero], &[]);
            g.op("Concat", &[&batch, &rest], &[attr_int("axis", 0)])
        }, Some(&[0, -1])),
        ("sliced", |g, x| {
            let shape = g.op("Shape", &[x], &[]);
            let (start, end) = (g.ints("start", &[1]), g.ints("end", &[i64::MAX]));
            g.op("Slice", &[&shape, &start, &end], &[])
        }, Some(&[6, -1, 8])),
        ("two open sizes that moved", |g, x| {
            let shape = g.op("Shape", &[x], &[]);
            let indices = g.ints("indices", &[2, 0, 1]);
            g.op("Gather", &[&shape, &indices], &[])
        }, None),
        ("computed otherwise", |g, x| {
            let shape = g.op("Shape", &[x], &[]);
            g.op("Add", &[&shape, &shape], &[])
        }, None),
        ("half of the channels", |g, x| {
            let shape = g.op("Shape", &[x], &[]);
            let factors = g.ints("factors", &[1, 4, 1, 1]);
            let (add, more) = (g.ints("add", &[0]), g.ints("more", &[0, -2, 0, 1]));
            let divisors = g.ints("divisors", &[1, 7, 1, 2]);
            let sizes = g.op("Mul", &[&shape, &factors], &[]);
            let sizes = g.op("Add", &[&sizes, &add], &[]);
            let sizes = g.op("Sub", &[&sizes, &more], &[]);
            g.op("Div", &[&sizes, &divisors], &[])
        }, Some(&[0, 3, 0, 3])),
        ("by nothing", |g, x| {
            let shape = g.op("Shape", &[x], &[]);
            let zero = g.ints("zero", &[0]);
            g.op("Div", &[&shape, &zero], &[])
        }, None),
    ];
    for (name, sizes, want) in cases {
        let (mut graph, types) = graph(|graph, x| {
            let sizes = sizes(graph, x);
            graph.op("Reshape", &[x, &sizes], &[])
        });
        let named = name == "two open sizes that moved";
        assert_eq!(fold_shapes(&mut graph, &types), want.is_some() || named, "{name}");
        let found = constant(&graph, 1).and_then(TensorProto::to_i64);
        assert_eq!(found.as_deref(), want, "{name}");
        assert!(!fold_shapes(&mut graph, &types), "{name}: a second time finds nothing");
    }
}

/// As exporters write attention: all axes but two in one, and apart again.
#[test]
fn an_open_size_keeps_its_name_where_a_reshape_moves_it() {
    let (mut graph, types) = graph(|graph, x| {
        let shape = graph.op("Shape", &[x], &[]);
        let apart = graph.ints("apart", &[2, 0]);
        let sizes = graph.op("Gather", &[&shape, &apart], &[]);
        let rest = graph.ints("rest", &[48]);
        let sizes = graph.op("Concat", &[&sizes, &rest], &[attr_int("axis", 0)]);
        graph.op("Reshape", &[x, &sizes], &[])
    });
    let y = graph.node.last().unwrap().output[0].clone();
    assert!(fold_shapes(&mut graph, &types), "types are inferred anew with the sizes that were declared");
    assert!(!fold_shapes(&mut graph, &types), "a second time declares nothing else");
    let declared: Vec<_> = graph.value_info.iter().filter(|value| value.name == y).collect();
    let [value] = declared.as_slice() else { panic!("{declared:?}") };
    let dims = TensorType::from_value_info(value).unwrap().dims;
    assert_eq!(dims, [Dim::from("time"), Dim::from("batch"), Dim::from(48)]);
}

/// As exporters write `chunk`.
#[test]
fn a_slice_at_half_of_an_axis_has_constant_ends() {
    let (mut graph, types) = graph(|graph, x| {
        let shape = graph.op("Shape", &[x], &[]);
        let axis = graph.ints("axis", &[1]);
        let channels = graph.op("Gather", &[&shape, &axis], &[]);
        let two = graph.ints("two", &[2]);
        let half = graph.op("Div", &[&channels, &two], &[]);
        graph.op("Slice", &[x, &half, &channels, &axis], &[])
    });
    assert!(fold_shapes(&mut graph, &types));
    let found = [1, 2].map(|position| constant(&graph, position).and_then(TensorProto::to_i64));
    assert_eq!(found.map(Option::unwrap), [vec![3], vec![6]]);
    assert!(!fold_shapes(&mut graph, &types), "a second time finds nothing");
}

#[test]
fn sizes_of_a_resize_become_scales() {
    let resize = |time: usize, width: i64| {
        let (mut graph, types) = graph(|graph, x| {
            let shape = graph.op("Shape", &[x], &[]);
            let indices = graph.ints("indices", &[0, 1, time as i64]);
            let kept = graph.op("Gather", &[&shape, &indices], &[]);
            let width = graph.ints("width", &[width]);
            let sizes = graph.op("Concat", &[&kept, &width], &[attr_int("axis", 0)]);
            graph.op("Resize", &[x, "", "", &sizes], &[])
        });
        fold_shapes(&mut graph, &types);
        constant(&graph, 2).and_then(|tensor| tensor.to_f32().ok())
    };
    assert_eq!(resize(2, 20), Some(vec![1.0, 1.0, 1.0, 2.5]));
    assert_eq!(resize(0, 20), None, "the open axis would get another size");
    assert_eq!(resize(2, 0), None);
}

/// 7 / 6 as a float falls short of 7 / 6: ONNX Runtime would infer six channels, and make seven.
#[test]
fn a_resize_whose_scales_would_be_inexact_keeps_its_sizes_which_are_declared() {
    let (mut graph, types) = graph(|graph, x| {
        let shape = graph.op("Shape", &[x], &[]);
        let (kept, channels) = (graph.ints("kept", &[0]), graph.ints("channels", &[7]));
        let rest = graph.ints("rest", &[2, 3]);
        let first = graph.op("Gather", &[&shape, &kept], &[]);
        let last = graph.op("Gather", &[&shape, &rest], &[]);
        let sizes = graph.op("Concat", &[&first, &channels, &last], &[attr_int("axis", 0)]);
        graph.op("Resize", &[x, "", "", &sizes], &[])
    });
    assert!(fold_shapes(&mut graph, &types));
    assert!(graph.node.last().unwrap().input[3].starts_with("concat"), "the sizes stay");
    let y = graph.node.last().unwrap().output[0].clone();
    let declared = graph.value_info.iter().find(|value| value.name == y).unwrap();
    let dims = TensorType::from_value_info(declared).unwrap().dims;
    assert_eq!(dims, ["batch".into(), 7.into(), "time".into(), Dim::from(8)]);
    assert!(!fold_shapes(&mut graph, &types), "a second time finds nothing");
}

#[test]
fn rows_of_a_table_are_no_entries_of_a_list() {
    let (mut graph, types) = graph(|graph, x| {
        let table = graph.constant(TensorProto::from_i64("table", &[2, 2], &[6, -1, 8, -1]));
        let row = graph.constant(TensorProto::from_i64("row", &[], &[1]));
        let sizes = graph.op("Gather", &[&table, &row], &[]);
        graph.op("Reshape", &[x, &sizes], &[])
    });
    assert!(!fold_shapes(&mut graph, &types));
}

#[test]
fn hostile_positions_are_left_alone() {
    for index in [i64::MIN, i64::MAX, 4, -5] {
        let (mut graph, types) = graph(|graph, x| {
            let shape = graph.op("Shape", &[x], &[]);
            let indices = graph.ints("indices", &[index]);
            let sizes = graph.op("Gather", &[&shape, &indices], &[]);
            graph.op("Reshape", &[x, &sizes], &[])
        });
        assert!(!fold_shapes(&mut graph, &types), "{index}");
    }
}
