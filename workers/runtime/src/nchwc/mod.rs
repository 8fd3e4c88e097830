//! Convolutions on ONNX Runtime's nchwc_op kernels, even where the weights change from run to run.
//!
//! ONNX Runtime's CPU provider has a second set of convolutions that keep 8 or 16 channels of a position side
//! by side, as wide as the processor's registers: a third faster than the first set, and split among threads
//! in every case. When it loads a model it moves convolutions there, but only those with constant weights,
//! which a training graph has not. Here the same is done with ordinary nodes that bring the weights into the
//! nchwc_op order at each run: they are small.
//!
//! [`arrange`] takes and returns a model. What it writes is for one kind of processor (see [`lanes`]) and for
//! ONNX Runtime's CPU provider alone, so that it is done when a model is loaded, and never stored.
//!
//! | node | becomes |
//! |---|---|
//! | `Conv` with weights from outside, channels in whole blocks | the nchwc_op operator between two changes of order |
//! | the last node of a gradient of weights, marked by [`WeightGradient`] | a nchwc_op convolution of image and signal |
//!
//! Everything else stays. A kernel of one element is a product of matrices, and faster as such.
//! Source of the orders of weights: onnxruntime/core/optimizer/nchwc_transformer.cc.

mod probe;
mod weight_gradient;
mod weights;

pub(super) use probe::lanes;

use syncline_onnx::proto::{AttributeProto, GraphProto, NodeProto, OperatorSetIdProto, TensorProto};
use syncline_onnx::{ElementType, Graph, ModelProto, TensorType, ValueId, WeightGradient, attr_int};

use weights::Weights;

/// Oldest operator set that the written nodes understand (`Shape` of some axes).
const LEAST_OPSET: i64 = 15;
/// Domain of the nchwc_op operators.
const DOMAIN: &str = "com.microsoft.nchwc";

/// The model with every convolution on nchwc_op kernels that can be there; `None` if there is none.
///
/// `lanes`: channels in a block. A model whose nodes hold graphs of their own stays as it is.
pub(super) fn arrange(model: &ModelProto, lanes: i64) -> Option<ModelProto> {
    let graph = model.graph.as_ref()?;
    let arranged = graph.node.iter().any(|node| node.domain == DOMAIN);
    if arranged || model.opset() < LEAST_OPSET || has_other_floats(graph) {
        return None;
    }
    let mut graph = Graph::from(graph.clone());
    if graph.has_subgraphs() {
        return None;
    }
    let mut weights = Weights::of(&graph);
    let mut moved = false;
    for node in graph.take_nodes() {
        weights.follow(&graph, &node);
        let done = convolution(&mut graph, &node, &weights, lanes).or_else(|| {
            WeightGradient::of(&node)
                .and_then(|gradient| weight_gradient::write(&gradient, &mut graph, &node, lanes))
        });
        moved |= done.is_some();
        if done.is_none() {
            graph.push(node);
        }
    }
    if !moved {
        return None;
    }
    let mut model = ModelProto { graph: Some(graph.remove_dead()), ..model.clone() };
    // A model that ONNX Runtime has written imports every domain that it knows.
    if !model.opset_import.iter().any(|set| set.domain == DOMAIN) {
        model.opset_import.push(OperatorSetIdProto { domain: DOMAIN.to_owned(), version: 1 });
    }
    Some(model)
}

/// Whether some values have 16 bits, or what is fed has 64: there are no nchwc_op kernels for these.
fn has_other_floats(graph: &GraphProto) -> bool {
    let half = [ElementType::F16, ElementType::Bf16];
    let casts = graph.node.iter().filter(|node| node.op_type == "Cast");
    let cast =
        casts.map(|node| node.int("to", 0)).any(|to| half.iter().any(|half| i64::from(half.code()) == to));
    let mut held = graph.initializer.iter().map(TensorProto::element);
    let mut fed = graph.input.iter().filter_map(TensorType::from_value_info).map(|ty| ty.element);
    cast || held.any(|element| half.contains(&element))
        || fed.any(|element| element == ElementType::F64 || half.contains(&element))
}

/// Writes a `Conv` in nchwc_op form, if it has one.
fn convolution(graph: &mut Graph, node: &NodeProto, weights: &Weights, lanes: i64) -> Option<()> {
    let standard = node.domain.is_empty();
    if node.op_type != "Conv" || !standard {
        return None;
    }
    let values: Option<Vec<ValueId>> = node.input.iter().map(|name| graph.value(name)).collect();
    let values = values?;
    let (&[x, w] | &[x, w, _]) = values.as_slice() else { return None };
    let (shape, group) = (weights.shape(w)?, node.int("group", 1));
    let [channels, per_group, height, width] = shape;
    let whole = |count: i64| count > 0 && count % lanes == 0;
    // Kernels that read the image as it is, and those that read blocks.
    let plain = group == 1 && per_group < lanes;
    let dense = group > 0 && whole(per_group) && whole(channels / group);
    let depthwise = per_group == 1 && group == channels;
    let product = height * width == 1 && !depthwise;
    if !whole(channels) || product || !(plain || dense || depthwise) {
        return None;
    }
    let order: (&[i64], &[i64]) = match dense {
        // [blocks out, blocks in, kernel, lanes in, lanes out]
        true => (&[channels / lanes, lanes, per_group / lanes, lanes, height * width], &[0, 2, 4, 3, 1]),
        // [blocks out, in, kernel, lanes out]
        false => (&[channels / lanes, lanes, per_group, height * width], &[0, 2, 3, 1]),
    };
    let blocks = graph.reshape(w, order.0);
    let blocks = graph.transpose(blocks, order.1);
    let blocks = graph.reshape(blocks, &shape);
    let x = if plain { x } else { in_blocks(graph, x) };
    let output = graph.value(node.output.first()?)?;
    let inputs: Vec<ValueId> = [x, blocks].into_iter().chain(values.get(2).copied()).collect();
    let y = nchwc_op(graph, "Conv", &inputs, &node.attribute);
    // An image of so many channels, in the ordinary order.
    graph.op_as(output, DOMAIN, "ReorderOutput", &[y], &[attr_int("channels", channels)]);
    Some(())
}

/// Applies a nchwc_op operator.
fn nchwc_op(graph: &mut Graph, op: &str, inputs: &[ValueId], attributes: &[AttributeProto]) -> ValueId {
    graph.op_of(DOMAIN, op, inputs, attributes)
}

/// An image in nchwc_op order; channels that are missing in the last block are zeros.
fn in_blocks(graph: &mut Graph, image: ValueId) -> ValueId {
    nchwc_op(graph, "ReorderInput", &[image], &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::{Extent, GraphBuilder, attr_ints};

    /// y = x convolved with w, which comes from outside.
    fn convolving(weights: [usize; 4], group: usize) -> ModelProto {
        let mut graph = GraphBuilder::new("convolving");
        let channels = weights[1] * group;
        let x = graph.input("x", ElementType::F32, &["batch".into(), channels.into(), 9.into(), 9.into()]);
        let w = graph.input("w", ElementType::F32, &weights.map(Into::into));
        graph.named("y", "Conv", &[&x, &w], &[attr_int("group", group as i64)]);
        graph.output("y");
        graph.finish()
    }

    fn ops(model: &ModelProto) -> Vec<&str> {
        let nodes = model.graph.iter().flat_map(|graph| &graph.node);
        nodes.map(|node| node.op_type.as_str()).collect()
    }

    #[test]
    fn convolutions_move_where_their_channels_fill_blocks() {
        #[rustfmt::skip]
        let cases: [(&str, [usize; 4], usize, Option<usize>); 9] = [
            ("dense",                        [32, 16, 3, 3],  1, Some(6)),
            ("from an image",                [32, 3, 3, 3],   1, Some(5)),
            ("grouped",                      [64, 16, 3, 3],  2, Some(6)),
            ("depthwise",                    [32, 1, 3, 3],  32, Some(6)),
            ("depthwise, one element",       [32, 1, 1, 1],  32, Some(6)),
            ("a product of matrices",        [32, 16, 1, 1],  1, None),
            ("half a block comes out",       [24, 16, 3, 3],  1, None),
            ("a block and a half goes in",   [32, 24, 3, 3],  1, None),
            ("groups are less than a block", [32, 8, 3, 3],   4, None),
        ];
        for (name, weights, group, nodes) in cases {
            let arranged = arrange(&convolving(weights, group), 16);
            assert_eq!(arranged.as_ref().map(|model| ops(model).len()), nodes, "{name}");
            if let Some(arranged) = arranged {
                assert_eq!(ops(&arranged).last(), Some(&"ReorderOutput"), "{name}");
                assert!(arrange(&arranged, 16).is_none(), "{name}: not twice");
            }
        }
    }

    #[test]
    fn constant_weights_are_left_to_onnx_runtime() {
        let mut model = convolving([32, 16, 3, 3], 1);
        let graph = model.graph.as_mut().unwrap();
        let weights = vec![0.0; 32 * 16 * 9];
        graph.initializer.push(TensorProto::from_f32("w", &[32, 16, 3, 3], &weights));
        assert!(arrange(&model, 16).is_none());
    }

    #[test]
    fn weights_are_followed_through_the_order_of_a_gradient() {
        for (starts, moves) in [(-1, true), (-2, false)] {
            let mut graph = GraphBuilder::new("turned");
            let dy = graph.input("dy", ElementType::F32, &["batch".into(), 32.into(), 9.into(), 9.into()]);
            let w = graph.input("w", ElementType::F32, &[32.into(), 16.into(), 3.into(), 3.into()]);
            let exchanged = graph.transpose(&w, &[1, 0, 2, 3]);
            let starts = graph.ints("starts", &[starts, starts]);
            let ends = graph.ints("ends", &[i64::MIN, i64::MIN]);
            let axes = graph.ints("axes", &[2, 3]);
            let steps = graph.ints("steps", &[-1, -1]);
            let turned = graph.op("Slice", &[&exchanged, &starts, &ends, &axes, &steps], &[]);
            let dx = graph.op("Conv", &[&dy, &turned], &[attr_ints("pads", &[2; 4])]);
            graph.output(&dx);
            assert_eq!(arrange(&graph.finish(), 16).is_some(), moves);
        }
    }

    #[test]
    fn a_marked_gradient_moves_and_what_it_was_made_of_goes() {
        let axis = Extent { begin: 1, end: 1, output: 9, stride: 1, dilation: 1 };
        let right = WeightGradient {
            image: "x".to_owned(),
            signal: "dy".to_owned(),
            weights: [32, 3, 3, 3],
            group: 1,
            axes: [axis; 2],
        };
        let marked_of = |element: ElementType, gradient: &WeightGradient| {
            let mut graph = GraphBuilder::new("marked");
            let x = graph.input("x", element, &["batch".into(), 3.into(), 9.into(), 9.into()]);
            graph.input("dy", element, &["batch".into(), 32.into(), 9.into(), 9.into()]);
            let long = graph.op("Exp", &[&x], &[]);
            let dw = graph.named("dw", "Neg", &[&long], &[]);
            graph.output(&dw);
            let mut model = graph.finish();
            model.graph.as_mut().unwrap().node[1].metadata_props = gradient.metadata();
            arrange(&model, 16)
        };
        let marked = |gradient: &WeightGradient| marked_of(ElementType::F32, gradient);
        assert!(marked_of(ElementType::F64, &right).is_none(), "no kernel for float64");
        let arranged = marked(&right).unwrap();
        assert!(!ops(&arranged).contains(&"Exp"));
        assert_eq!(arranged.graph.unwrap().node.last().unwrap().output, ["dw"]);
        let changed = |change: fn(&mut WeightGradient)| {
            let mut wrong = right.clone();
            change(&mut wrong);
            marked(&wrong).is_none()
        };
        assert!(changed(|w| w.signal = "gone".to_owned()));
        assert!(changed(|w| w.weights[0] = 24));
        assert!(changed(|w| w.group = 3), "groups of several channels");
        assert!(!changed(|w| (w.weights, w.group) = ([32, 1, 3, 3], 32)), "depthwise");
        assert!(changed(|w| w.weights[2..].copy_from_slice(&[1, 1])), "a product of matrices");
        assert!(changed(|w| w.axes[0].stride = i64::MAX), "absurd");
    }
}
