//! Small damages to models: bytes that flip and end early, and, in models that can be read, names, sizes,
//! attributes, operators and constants that change places. The same seed makes the same damage.

#![allow(dead_code, reason = "each of those who share it needs a part")]

use syncline_autodiff::{NONE_NEEDED, REFUSED, supported_operators};
use syncline_onnx::proto::{
    AttributeProto, DimensionProto, DimensionValue, GraphProto, NodeProto, TensorProto, TensorShapeProto,
    TensorTypeProto, TypeProto, ValueInfoProto,
};
use syncline_onnx::{ModelProto, SplitMix64, parse};

/// Numbers at which arithmetic on sizes goes wrong.
const NUMBERS: [i64; 24] = [
    0,
    1,
    -1,
    2,
    3,
    4,
    5,
    7,
    -2,
    -3,
    8,
    16,
    63,
    255,
    1024,
    65_536,
    1 << 20,
    1 << 31,
    -(1 << 31),
    1 << 40,
    1 << 62,
    i64::MAX,
    i64::MIN,
    i64::MIN + 1,
];
const FLOATS: [f32; 10] = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-30, 1e30, f32::INFINITY, f32::NAN];
const WORDS: [&str; 27] = [
    "",
    "NOTSET",
    "VALID",
    "SAME_UPPER",
    "SAME_LOWER",
    "nearest",
    "linear",
    "cubic",
    "constant",
    "reflect",
    "edge",
    "wrap",
    "half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
    "floor",
    "ceil",
    "none",
    "add",
    "mul",
    "max",
    "tanh",
    "DCR",
    "CRD",
    "ij,jk->ik",
    "...i,...i->...",
];
/// Operators beside those with a rule.
const OTHERS: [&str; 16] = [
    "Range",
    "ConstantOfShape",
    "OneHot",
    "SplitToSequence",
    "SequenceAt",
    "ConcatFromSequence",
    "Unique",
    "Det",
    "Bernoulli",
    "MaxUnpool",
    "Upsample",
    "SoftmaxCrossEntropyLoss",
    "RoiAlign",
    "DynamicQuantizeLinear",
    "Multinomial",
    "MatMulInteger",
];

/// A damaged copy of a file.
pub fn damaged(bytes: &[u8], random: &mut SplitMix64) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    for _ in 0..=below(random, 3) {
        damaged = match parse(&damaged) {
            Ok(mut model) if below(random, 8) > 0 => {
                rearrange(&mut model, random);
                model.to_bytes()
            }
            _ => flipped(damaged, random),
        };
    }
    damaged
}

/// What libFuzzer asks of a mutator; returns the new size. Its own mutation is taken now and then.
pub fn in_place(
    data: &mut [u8],
    size: usize,
    max_size: usize,
    seed: u32,
    own: fn(&mut [u8], usize, usize) -> usize,
) -> usize {
    let mut random = SplitMix64::new(seed.into());
    if below(&mut random, 16) == 0 {
        return own(data, size, max_size);
    }
    let made = damaged(&data[..size], &mut random);
    let kept = made.len().min(max_size);
    data[..kept].copy_from_slice(&made[..kept]);
    kept
}

fn below(random: &mut SplitMix64, bound: usize) -> usize {
    (random.next_u64() % bound.max(1) as u64) as usize
}

fn one<'a, T>(random: &mut SplitMix64, from: &'a [T]) -> Option<&'a T> {
    from.get(below(random, from.len()))
}

fn one_mut<'a, T>(random: &mut SplitMix64, from: &'a mut [T]) -> Option<&'a mut T> {
    let at = below(random, from.len());
    from.get_mut(at)
}

fn number(random: &mut SplitMix64) -> i64 {
    NUMBERS[below(random, NUMBERS.len())]
}

fn flipped(mut bytes: Vec<u8>, random: &mut SplitMix64) -> Vec<u8> {
    let at = below(random, bytes.len());
    match below(random, 4) {
        0 => bytes.truncate(at),
        1 if !bytes.is_empty() => bytes[at] ^= 1 << below(random, 8),
        2 if !bytes.is_empty() => bytes[at] = random.next_u64() as u8,
        _ => bytes.insert(at, random.next_u64() as u8),
    }
    bytes
}

/// Everything that a node of the graph may read, and a name that nobody has.
fn names(graph: &GraphProto) -> Vec<String> {
    let inputs = graph.input.iter().map(|input| &input.name);
    let constants = graph.initializer.iter().map(|tensor| &tensor.name);
    let made = graph.node.iter().flat_map(|node| &node.output);
    inputs.chain(constants).chain(made).cloned().chain(["".to_owned(), "nobody".to_owned()]).collect()
}

fn rearrange(model: &mut ModelProto, random: &mut SplitMix64) {
    if below(random, 40) == 0 {
        if let Some(set) = one_mut(random, &mut model.opset_import) {
            set.version = 11 + below(random, 16) as i64;
        }
        return;
    }
    let Some(graph) = &mut model.graph else { return };
    let names = names(graph);
    let others = graph.node.clone();
    match below(random, 16) {
        0 => {
            let at = below(random, graph.node.len());
            if at < graph.node.len() {
                graph.node.remove(at);
            }
        }
        1 => insert_copy(graph, random),
        2 | 3 => {
            if let Some(tensor) = one_mut(random, &mut graph.initializer) {
                resize(tensor, random);
            }
        }
        4 | 5 => {
            if let Some(tensor) = one_mut(random, &mut graph.initializer) {
                renumber(tensor, random);
            }
        }
        6 => {
            if let Some(input) = one_mut(random, &mut graph.input) {
                retype(input, random);
            }
        }
        7 => {
            if let (Some(output), Some(name)) = (one_mut(random, &mut graph.output), one(random, &names)) {
                output.name.clone_from(name);
            }
        }
        8 => {
            let name = one(random, &names).cloned().unwrap_or_default();
            graph.output.push(ValueInfoProto::untyped(name));
        }
        _ => {
            if let Some(node) = one_mut(random, &mut graph.node) {
                change_node(node, &names, &others, random);
            }
        }
    }
}

/// A copy of a node behind it, which every later reader reads.
fn insert_copy(graph: &mut GraphProto, random: &mut SplitMix64) {
    let at = below(random, graph.node.len());
    let Some(mut copy) = graph.node.get(at).cloned() else { return };
    let Some(old) = copy.output.first().cloned() else { return };
    copy.output.truncate(1);
    copy.output[0].push('+');
    copy.name.push('+');
    for name in graph.node[at + 1..].iter_mut().flat_map(|node| &mut node.input).filter(|name| **name == old)
    {
        name.clone_from(&copy.output[0]);
    }
    if let Some(first) = copy.input.first_mut() {
        *first = old;
    }
    graph.node.insert(at + 1, copy);
}

fn change_node(node: &mut NodeProto, names: &[String], others: &[NodeProto], random: &mut SplitMix64) {
    match below(random, 12) {
        0 | 1 => node.op_type = operator(random),
        2 | 3 => {
            if let (Some(input), Some(name)) = (one_mut(random, &mut node.input), one(random, names)) {
                input.clone_from(name);
            }
        }
        4 => node.input.push(one(random, names).cloned().unwrap_or_default()),
        5 => {
            node.input.pop();
        }
        6 => {
            let at = below(random, node.input.len());
            if at + 1 < node.input.len() {
                node.input.swap(at, at + 1);
            }
        }
        7 => node.output.push(format!("out{}", below(random, 1000))),
        8 => {
            if let Some(donor) = one(random, others) {
                node.attribute.clone_from(&donor.attribute);
            }
        }
        _ if node.attribute.is_empty() => {
            let given = one(random, others).and_then(|donor| one(random, &donor.attribute));
            node.attribute.extend(given.cloned());
        }
        9 => {
            let at = below(random, node.attribute.len());
            node.attribute.remove(at);
        }
        _ => {
            if let Some(attribute) = one_mut(random, &mut node.attribute) {
                change_attribute(attribute, random);
            }
        }
    }
}

fn operator(random: &mut SplitMix64) -> String {
    let supported = supported_operators();
    let refused: Vec<&str> = REFUSED.iter().map(|(op, _)| *op).collect();
    let all: Vec<&str> = [supported.as_slice(), NONE_NEEDED, &refused, &OTHERS].concat();
    one(random, &all).copied().unwrap_or_default().to_owned()
}

fn change_attribute(attribute: &mut AttributeProto, random: &mut SplitMix64) {
    if let Some(i) = &mut attribute.i {
        *i = if below(random, 2) == 0 { number(random) } else { i.wrapping_add(number(random)) };
    }
    if let Some(f) = &mut attribute.f {
        *f = FLOATS[below(random, FLOATS.len())];
    }
    if attribute.s.is_some() {
        attribute.s = Some(WORDS[below(random, WORDS.len())].as_bytes().to_vec());
    }
    if let Some(tensor) = &mut attribute.t {
        renumber(tensor, random);
    }
    match below(random, 6) {
        0 => attribute.ints.push(number(random)),
        1 => {
            attribute.ints.pop();
        }
        _ => {
            if let Some(slot) = one_mut(random, &mut attribute.ints) {
                *slot = number(random);
            }
        }
    }
}

/// Another shape, most often with as many numbers as it needs.
fn resize(tensor: &mut TensorProto, random: &mut SplitMix64) {
    match below(random, 5) {
        0 => tensor.dims.push(1),
        1 => {
            tensor.dims.pop();
        }
        2 => {
            if let Some(dim) = one_mut(random, &mut tensor.dims) {
                *dim = number(random);
            }
        }
        _ => {
            if let Some(dim) = one_mut(random, &mut tensor.dims) {
                *dim = below(random, 9) as i64;
            }
        }
    }
    let elements =
        tensor.dims.iter().try_fold(1usize, |all, &dim| all.checked_mul(usize::try_from(dim).ok()?));
    let bytes = elements.and_then(|all| all.checked_mul(tensor.element().bits()? as usize / 8));
    if let (Some(bytes), Some(raw)) = (bytes.filter(|bytes| *bytes < 1 << 16), &mut tensor.raw_data) {
        raw.resize(bytes, 0);
    }
}

fn renumber(tensor: &mut TensorProto, random: &mut SplitMix64) {
    if below(random, 12) == 0 {
        tensor.data_type = below(random, 20) as i32;
        return;
    }
    let bytes = match tensor.data_type {
        7 => number(random).to_le_bytes().to_vec(),
        1 => FLOATS[below(random, FLOATS.len())].to_le_bytes().to_vec(),
        _ => return,
    };
    let Some(raw) = &mut tensor.raw_data else { return };
    let slots = raw.len() / bytes.len();
    if slots > 0 {
        let at = below(random, slots) * bytes.len();
        raw[at..at + bytes.len()].copy_from_slice(&bytes);
    }
}

fn retype(input: &mut ValueInfoProto, random: &mut SplitMix64) {
    let Some(TypeProto { tensor_type: Some(TensorTypeProto { elem_type, shape }), .. }) = &mut input.r#type
    else {
        input.r#type = None;
        return;
    };
    let dims = &mut shape.get_or_insert_with(|| TensorShapeProto { dim: Vec::new() }).dim;
    let value = match below(random, 4) {
        0 => None,
        1 => Some(DimensionValue::Param(["batch", "", "n"][below(random, 3)].to_owned())),
        2 => Some(DimensionValue::Value(number(random))),
        _ => Some(DimensionValue::Value(below(random, 9) as i64)),
    };
    match below(random, 6) {
        0 => *elem_type = below(random, 20) as i32,
        1 => dims.push(DimensionProto { value }),
        2 => {
            dims.pop();
        }
        3 if below(random, 3) == 0 => *shape = None,
        _ => {
            if let Some(dim) = one_mut(random, dims) {
                dim.value = value;
            }
        }
    }
}
