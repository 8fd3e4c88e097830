//! Attention that is written out, with a query whose keys are all masked by minus infinity: its row of the
//! softmax is NaN, and the model puts zeros in its place.

use syncline_onnx::proto::TensorProto;
use syncline_onnx::{ElementType, GraphBuilder, SplitMix64, attr_int, attr_ints};

use crate::slopes::{SMOOTH, numbers};

/// Writes zeros in the place of the rows of `p` that are NaN, the softmax of `scores`.
type Rescue = fn(&mut GraphBuilder, scores: &str, p: &str) -> String;

/// As PyTorch's exporters write `scaled_dot_product_attention` with a mask of truth values.
fn where_nan(g: &mut GraphBuilder, _: &str, p: &str) -> String {
    let nan = g.op("IsNaN", &[p], &[]);
    g.op("Where", &[&nan, "zero", p], &[])
}

fn unless_nan(g: &mut GraphBuilder, _: &str, p: &str) -> String {
    let nan = g.op("IsNaN", &[p], &[]);
    let number = g.op("Not", &[&nan], &[]);
    g.op("Where", &[&number, p, "zero"], &[])
}

/// PyTorch's `_safe_softmax`, taken apart.
fn where_no_key_is_left(g: &mut GraphBuilder, scores: &str, p: &str) -> String {
    let to = |element: ElementType| attr_int("to", i64::from(element.code()));
    let masked = g.op("Equal", &[scores, "never"], &[]);
    let masked = g.op("Cast", &[&masked], &[to(ElementType::I32)]);
    let last = g.ints("last", &[-1]);
    let all = g.op("ReduceMin", &[&masked, &last], &[]);
    let all = g.op("Cast", &[&all], &[to(ElementType::Bool)]);
    g.op("Where", &[&all, "zero", p], &[])
}

#[test]
fn a_query_without_keys_has_no_gradients_where_zeros_take_the_place_of_its_softmax() {
    let rescues: [(&str, Rescue); 3] = [
        ("where it is NaN", where_nan),
        ("unless it is NaN", unless_nan),
        ("where no key is left", where_no_key_is_left),
    ];
    for (name, rescue) in rescues {
        let mut graph = GraphBuilder::new("masked").with_opset(18);
        let mut random = SplitMix64::new(4);
        let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into(), 4.into()]);
        let [q, k, v] = ["q", "k", "v"].map(|part| {
            let w = graph.weight(part, &[4, 4], &numbers(&mut random, &[4, 4]));
            graph.op("MatMul", &[&x, &w], &[])
        });
        graph.constant(TensorProto::from_f32("zero", &[], &[0.0]));
        graph.constant(TensorProto::from_f32("never", &[], &[f32::NEG_INFINITY]));
        let counts = graph.constant(TensorProto::from_i64("counts", &[3, 3], &[0, 0, 0, 0, 1, 1, 1, 1, 0]));
        let counts = graph.op("Cast", &[&counts], &[attr_int("to", i64::from(ElementType::Bool.code()))]);
        let bias = graph.weight("bias", &[3, 3], &numbers(&mut random, &[3, 3]));
        let mask = graph.op("Where", &[&counts, &bias, "never"], &[]);
        let k = graph.op("Transpose", &[&k], &[attr_ints("perm", &[0, 2, 1])]);
        let scores = graph.op("MatMul", &[&q, &k], &[]);
        let scores = graph.op("Add", &[&scores, &mask], &[]);
        let p = graph.op("Softmax", &[&scores], &[attr_int("axis", -1)]);
        let p = rescue(&mut graph, &scores, &p);
        let y = graph.named("y", "MatMul", &[&p, &v], &[]);
        graph.output(&y);
        SMOOTH.check(name, &graph.finish(), &["q", "k", "v", "bias"], &[&[("x", &[2, 3, 4])]]);
    }
}
