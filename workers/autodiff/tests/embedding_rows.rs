//! Which tables the ids of an input index, and how many rows these have.

use syncline_autodiff::{DeriveOptions, Loss, derive, rows_of_tables};
use syncline_onnx::{Dim, ElementType, GraphBuilder, attr_int, proto::TensorProto};

use crate::onnxruntime;

/// Tables of five and three rows that `choose` reads by the ids, each sample of this shape; the scores of two
/// classes are the sums over what it chooses.
fn rows_of(
    sample: &[Dim],
    choose: impl Fn(&mut GraphBuilder, [&str; 2], &str) -> Vec<String>,
) -> Vec<Option<usize>> {
    let mut graph = GraphBuilder::new("tagger");
    let dims: Vec<Dim> = [Dim::from("batch")].into_iter().chain(sample.iter().cloned()).collect();
    let ids = graph.input("ids", ElementType::I64, &dims);
    let five = graph.weight("five", &[5, 2], &[0.5; 10]);
    let three = graph.weight("three", &[3, 2], &[0.5; 6]);
    let zeros = graph.weight("bias", &[2], &[0.0; 2]);
    let chosen = choose(&mut graph, [&five, &three], &ids);
    let scores = chosen.iter().fold(zeros, |sum, more| {
        let shape = graph.ints(&format!("{more}/shape"), &[0, -1, 2]);
        let more = graph.op("Reshape", &[more, &shape], &[]);
        let one = graph.ints(&format!("{more}/axis"), &[1]);
        let more = graph.op("ReduceSum", &[&more, &one], &[attr_int("keepdims", 0)]);
        graph.op("Add", &[&sum, &more], &[])
    });
    graph.output(&scores);
    let mut model = graph.finish();
    let graph = model.graph.get_or_insert_default();
    // Each constant once, however often it is named, and both parts of a Split.
    graph.initializer.sort_by(|one, other| one.name.cmp(&other.name));
    graph.initializer.dedup_by(|one, other| one.name == other.name);
    for node in graph.node.iter_mut().filter(|node| node.op_type == "Split") {
        node.output = parts(&node.name).to_vec();
    }
    let model = model.to_bytes();
    let runtime = onnxruntime::runtime();
    let (loss, options) = (Loss::SoftmaxCrossEntropy, DeriveOptions::default());
    let training = derive(&runtime, &model, loss, &options).unwrap();
    let graph = syncline_onnx::parse(&training.train_onnx).unwrap().graph.unwrap();
    let input = &training.data_inputs[0];
    rows_of_tables(&graph, training.parameter_shapes(), &input.name, &input.dims)
}

/// What a table has for these ids.
fn look_up(g: &mut GraphBuilder, table: &str, ids: &str) -> String {
    g.op("Gather", &[table, ids], &[])
}

/// A column of ids.
fn column(g: &mut GraphBuilder, ids: &str, at: i64) -> String {
    let at = g.constant(TensorProto::from_i64(&format!("column_{at}"), &[], &[at]));
    g.op("Gather", &[ids, &at], &[attr_int("axis", -1)])
}

#[test]
fn ids_that_index_a_parameter_as_they_are_have_to_be_its_rows() {
    let pairs = [Dim::Fixed(2)];
    assert_eq!(rows_of(&pairs, |g, [five, _], ids| vec![look_up(g, five, ids)]), [Some(5)]);
    let by_name_of_axis = |g: &mut GraphBuilder, [five, _]: [&str; 2], ids: &str| {
        vec![g.op("Gather", &[five, ids], &[attr_int("axis", -2)])]
    };
    assert_eq!(rows_of(&pairs, by_name_of_axis), [Some(5)]);
    let open = [Dim::from("length")];
    assert_eq!(rows_of(&open, |g, [five, _], ids| vec![look_up(g, five, ids)]), [Some(5)]);
}

#[test]
fn the_smallest_of_several_tables_counts() {
    let two = |g: &mut GraphBuilder, [five, three]: [&str; 2], ids: &str| {
        vec![look_up(g, five, ids), look_up(g, three, ids)]
    };
    assert_eq!(rows_of(&[Dim::Fixed(2)], two), [Some(3)]);
}

/// What is picked, the shape of a sample, the model, and the rows of each column.
type Case =
    (&'static str, Vec<Dim>, fn(&mut GraphBuilder, [&str; 2], &str) -> Vec<String>, &'static [Option<usize>]);

#[test]
fn ids_are_followed_through_what_only_picks_and_moves_them_table() {
    let pair = || vec![Dim::Fixed(2)];
    let pairs = || vec![Dim::from("length"), Dim::Fixed(2)];
    let cases: Vec<Case> = vec![
        (
            "columns by Gather",
            pair(),
            |g, [five, three], ids| {
                let ids = [column(g, ids, 0), column(g, ids, 1)];
                vec![look_up(g, five, &ids[0]), look_up(g, three, &ids[1])]
            },
            &[Some(5), Some(3)],
        ),
        (
            "both columns in one table",
            pair(),
            |g, [five, _], ids| {
                let ids = [column(g, ids, 0), column(g, ids, -1)];
                vec![look_up(g, five, &ids[0]), look_up(g, five, &ids[1])]
            },
            &[Some(5)],
        ),
        (
            "one column alone",
            pair(),
            |g, [_, three], ids| {
                let ids = column(g, ids, 1);
                vec![look_up(g, three, &ids)]
            },
            &[None, Some(3)],
        ),
        (
            "one column in two tables",
            pair(),
            |g, [five, three], ids| {
                let id = column(g, ids, 0);
                vec![look_up(g, five, &id), look_up(g, three, &id)]
            },
            &[Some(3), None],
        ),
        (
            "a list of columns by Gather",
            vec![Dim::Fixed(3)],
            |g, [five, _], ids| {
                let at = g.ints("at", &[2, -3]);
                let ids = g.op("Gather", &[ids, &at], &[attr_int("axis", 1)]);
                vec![look_up(g, five, &ids)]
            },
            &[Some(5), None, Some(5)],
        ),
        (
            "columns by Slice, converted",
            vec![Dim::Fixed(3)],
            |g, [five, three], ids| {
                let ids = [slice(g, ids, [0, 2, 1, 1]), slice(g, ids, [2, i64::MAX, -1, 1])];
                let short = g.op("Cast", &[&ids[0]], &[attr_int("to", 6)]);
                let same = g.op("Identity", &[&ids[1]], &[]);
                vec![look_up(g, five, &short), look_up(g, three, &same)]
            },
            &[Some(5), Some(5), Some(3)],
        ),
        (
            "columns by Slice, from the end",
            vec![Dim::Fixed(4)],
            |g, [five, _], ids| {
                let ids = slice(g, ids, [-1, i64::MIN, 1, -2]);
                vec![look_up(g, five, &ids)]
            },
            &[None, Some(5), None, Some(5)],
        ),
        (
            "columns by Slice of the whole batch",
            pair(),
            |g, [five, _], ids| {
                let all = slice(g, ids, [0, i64::MAX, 0, 1]);
                let ids = slice(g, &all, [0, 1, 1, 1]);
                vec![look_up(g, five, &ids)]
            },
            &[Some(5), None],
        ),
        (
            "columns by Split and Squeeze",
            pair(),
            |g, [five, three], ids| {
                let one = g.ints("one", &[1]);
                let [first, second] = split(g, ids, None);
                let ids = [first, second].map(|ids| g.op("Squeeze", &[&ids, &one], &[]));
                vec![look_up(g, five, &ids[0]), look_up(g, three, &ids[1])]
            },
            &[Some(5), Some(3)],
        ),
        (
            "columns by Split to sizes",
            vec![Dim::Fixed(3)],
            |g, [five, three], ids| {
                let [first, second] = split(g, ids, Some(&[1, 2]));
                vec![look_up(g, five, &first), look_up(g, three, &second)]
            },
            &[Some(5), Some(3), Some(3)],
        ),
        (
            "columns behind Reshape, Transpose, Flatten and Unsqueeze",
            vec![Dim::Fixed(4)],
            |g, [five, three], ids| {
                let (square, last) = (g.ints("square", &[0, 2, -1]), g.ints("last", &[-1]));
                let ids = g.op("Reshape", &[ids, &square], &[]);
                let ids = g.transpose(&ids, &[0, 2, 1]);
                let ids = g.op("Flatten", &[&ids], &[]);
                let ids = g.op("Unsqueeze", &[&ids, &last], &[]);
                let ids = g.op("Squeeze", &[&ids, &last], &[]);
                let ids = [slice(g, &ids, [0, 2, 1, 1]), slice(g, &ids, [2, 4, 1, 1])];
                vec![look_up(g, five, &ids[0]), look_up(g, three, &ids[1])]
            },
            &[Some(5), Some(3), Some(5), Some(3)],
        ),
        (
            "columns of each step",
            pairs(),
            |g, [five, three], ids| {
                let ids = [column(g, ids, 0), column(g, ids, 1)];
                vec![look_up(g, five, &ids[0]), look_up(g, three, &ids[1])]
            },
            &[Some(5), Some(3)],
        ),
        (
            "columns of steps put into one axis",
            pairs(),
            |g, [five, _], ids| {
                let (rows, batch) = (g.ints("rows", &[-1, 2]), g.ints("two", &[-1, 4, 2]));
                let rows = g.op("Reshape", &[ids, &rows], &[]);
                let ids = column(g, &rows, 1);
                let chosen = look_up(g, five, &ids);
                vec![g.op("Reshape", &[&chosen, &batch], &[])]
            },
            &[None, Some(5)],
        ),
        (
            "some steps of an open number",
            pairs(),
            |g, [five, _], ids| {
                let first = slice(g, ids, [0, 1, 1, 1]);
                vec![look_up(g, five, &first)]
            },
            &[],
        ),
        (
            "some steps of a known number",
            vec![Dim::Fixed(3), Dim::Fixed(2)],
            |g, [five, _], ids| {
                let first = slice(g, ids, [0, 1, 1, 1]);
                vec![look_up(g, five, &first)]
            },
            &[],
        ),
        (
            "steps in different tables",
            vec![Dim::Fixed(2), Dim::Fixed(2)],
            |g, [five, three], ids| {
                let ids = [slice(g, ids, [0, 1, 1, 1]), slice(g, ids, [1, 2, 1, 1])];
                vec![look_up(g, five, &ids[0]), look_up(g, three, &ids[1])]
            },
            &[Some(5)],
        ),
        (
            "a column that is clipped first",
            pair(),
            |g, [five, three], ids| {
                let ids = [column(g, ids, 0), column(g, ids, 1)];
                let least = g.constant(TensorProto::from_i64("least", &[], &[0]));
                let clipped = g.op("Max", &[&ids[0], &least], &[]);
                vec![look_up(g, five, &clipped), look_up(g, three, &ids[1])]
            },
            &[None, Some(3)],
        ),
        (
            "columns that are moved by constants into one table",
            pair(),
            |g, [five, _], ids| {
                let offsets = g.ints("offsets", &[0, 2]);
                let ids = g.op("Add", &[ids, &offsets], &[]);
                vec![look_up(g, five, &ids)]
            },
            &[],
        ),
    ];
    for (name, sample, choose, want) in cases {
        assert_eq!(rows_of(&sample, choose), want, "{name}");
    }
}

/// From, to, axis and step.
fn slice(g: &mut GraphBuilder, ids: &str, bounds: [i64; 4]) -> String {
    let [from, to, axis, step] = bounds.map(|bound| {
        let name = format!("bound_{bound}");
        g.ints(&name, &[bound])
    });
    g.op("Slice", &[ids, &from, &to, &axis, &step], &[])
}

/// Two parts of the columns.
fn split(g: &mut GraphBuilder, ids: &str, sizes: Option<&[i64]>) -> [String; 2] {
    let sizes = sizes.map(|sizes| g.ints("sizes", sizes));
    let inputs: Vec<&str> = [ids].into_iter().chain(sizes.as_deref()).collect();
    parts(&g.op("Split", &inputs, &[attr_int("axis", 1)]))
}

fn parts(split: &str) -> [String; 2] {
    [format!("{split}_first"), format!("{split}_second")]
}
