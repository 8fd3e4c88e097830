//! Reading a model and checking that it is one.

use std::collections::HashSet;

use prost::Message;

use crate::error::OnnxError;
use crate::graph::sort;
use crate::proto::{AttributeProto, GraphProto, ModelProto, NodeProto};
use crate::scan::check_parts;

/// Largest model file that is read, in bytes. Protobuf itself ends at 2 GiB.
pub const MAX_MODEL_BYTES: usize = 1 << 30;
/// Most elements of one constant tensor.
pub const MAX_ELEMENTS: u64 = 1 << 31;

/// Reads a model from the bytes of a `.onnx` file and checks it.
///
/// Afterwards every value has one producer, every read value exists, constant tensors hold as many numbers as
/// their shapes say, and the nodes are in topological order (kept as they were if they already are).
/// Subgraphs are checked as well. Never panics; allocates at most a small multiple of the file's size.
pub fn parse(bytes: &[u8]) -> Result<ModelProto, OnnxError> {
    if bytes.len() > MAX_MODEL_BYTES {
        return Err(OnnxError::TooLarge { bytes: bytes.len(), limit: MAX_MODEL_BYTES });
    }
    check_parts(bytes)?;
    let mut model =
        ModelProto::decode(bytes).map_err(|source| OnnxError::Malformed { reason: source.to_string() })?;
    model.ir_version = model.ir_version.min(NEWEST_IR_VERSION);
    for function in &mut model.functions {
        clear_aliases(&mut function.node);
        let of_nodes = function.node.iter().flat_map(|node| &node.attribute);
        of_nodes.chain(&function.attribute_proto).try_for_each(check_constants)?;
    }
    let graph = model.graph.as_mut().ok_or(OnnxError::NoGraph)?;
    check_graph(graph, None)?;
    Ok(model)
}

/// The newest form of the file that is passed on: what later ones add, such as notes for several devices, is
/// not read here, and an ONNX Runtime refuses any that it does not know. Every one since 1.18 knows this one.
const NEWEST_IR_VERSION: i64 = 10;

/// Names that a subgraph may read from the graphs around it.
pub(crate) struct Scope<'a> {
    names: HashSet<String>,
    outer: Option<&'a Scope<'a>>,
}

impl Scope<'_> {
    fn contains(&self, name: &str) -> bool {
        self.names.contains(name) || self.outer.is_some_and(|outer| outer.contains(name))
    }
}

/// Checks and sorts one graph; returns the names it reads from the graphs around it.
pub(crate) fn check_graph(
    graph: &mut GraphProto,
    outer: Option<&Scope<'_>>,
) -> Result<HashSet<String>, OnnxError> {
    for tensor in &graph.initializer {
        tensor.check()?;
    }
    let scope = Scope { names: defined_names(graph)?, outer };
    let mut reads = Vec::with_capacity(graph.node.len());
    for node in &mut graph.node {
        clear_alias(node);
        // Optional inputs at the end mean the same when they are not written; some kernels die of them.
        while node.input.last().is_some_and(String::is_empty) {
            node.input.pop();
        }
        let mut names: HashSet<String> = node.input.iter().filter(|name| !name.is_empty()).cloned().collect();
        for attribute in &mut node.attribute {
            check_tensors(attribute)?;
            for subgraph in attribute.subgraphs_mut() {
                names.extend(check_graph(subgraph, Some(&scope))?);
            }
        }
        if let Some(value) = names.iter().find(|name| !scope.contains(name)) {
            return Err(OnnxError::UndefinedValue { value: value.clone(), user: describe(node) });
        }
        reads.push(names);
    }
    let outputs = graph.output.iter().map(|output| &output.name);
    if let Some(value) = outputs.clone().find(|name| !scope.contains(name)) {
        return Err(OnnxError::UndefinedValue { value: value.clone(), user: "the output list".to_owned() });
    }
    let captured =
        reads.iter().flatten().chain(outputs).filter(|name| !scope.names.contains(*name)).cloned().collect();
    sort(&mut graph.node, &reads)?;
    Ok(captured)
}

/// The domain of the standard's operators has two names, of which everybody behind this knows the empty one.
fn clear_alias(node: &mut NodeProto) {
    if node.domain == "ai.onnx" {
        node.domain.clear();
    }
}

/// The same for all nodes of a function.
fn clear_aliases(nodes: &mut [NodeProto]) {
    for node in nodes {
        clear_alias(node);
        let subgraphs = node.attribute.iter_mut().flat_map(|attribute| attribute.subgraphs_mut());
        subgraphs.for_each(|graph| clear_aliases(&mut graph.node));
    }
}

/// Every name the graph itself defines. An initialiser may share its name with an input: a default value.
fn defined_names(graph: &GraphProto) -> Result<HashSet<String>, OnnxError> {
    let duplicate = |value: &str, by: String| OnnxError::DuplicateValue { value: value.to_owned(), by };
    let mut names = HashSet::new();
    for input in &graph.input {
        if input.name.is_empty() || !names.insert(input.name.clone()) {
            return Err(duplicate(&input.name, "a graph input".to_owned()));
        }
    }
    let mut constants = HashSet::new();
    for tensor in &graph.initializer {
        if tensor.name.is_empty() || !constants.insert(&tensor.name) {
            return Err(duplicate(&tensor.name, "an initialiser".to_owned()));
        }
        names.insert(tensor.name.clone());
    }
    for node in &graph.node {
        for output in node.output.iter().filter(|output| !output.is_empty()) {
            if !names.insert(output.clone()) {
                return Err(duplicate(output, describe(node)));
            }
        }
    }
    // ONNX Runtime is given names as C strings, and would take the part before the zero.
    if let Some(name) = names.iter().find(|name| name.contains('\0')) {
        return Err(OnnxError::Malformed { reason: format!("the name {name:?} holds a zero byte") });
    }
    Ok(names)
}

fn check_tensors(attribute: &AttributeProto) -> Result<(), OnnxError> {
    attribute.t.iter().chain(&attribute.tensors).try_for_each(|tensor| tensor.check())
}

/// Checks the constants of a function's attribute, those of its subgraphs included. As deep as messages may
/// be nested.
fn check_constants(attribute: &AttributeProto) -> Result<(), OnnxError> {
    check_tensors(attribute)?;
    for graph in attribute.subgraphs() {
        graph.initializer.iter().try_for_each(|tensor| tensor.check())?;
        graph.node.iter().flat_map(|node| &node.attribute).try_for_each(check_constants)?;
    }
    Ok(())
}

fn describe(node: &NodeProto) -> String {
    format!("node `{}` ({})", node.label(), node.op_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{FunctionProto, TensorProto};
    use crate::{ElementType, GraphBuilder, mlp};

    fn model() -> ModelProto {
        mlp(&[3, 4, 2], 1)
    }

    fn edited(edit: impl FnOnce(&mut GraphProto)) -> Result<ModelProto, OnnxError> {
        let mut model = model();
        edit(model.graph.as_mut().unwrap());
        parse(&model.to_bytes())
    }

    #[test]
    fn a_model_survives_the_round_trip() {
        assert_eq!(parse(&model().to_bytes()).unwrap(), model());
    }

    #[test]
    fn a_file_of_a_later_form_is_passed_on_in_one_that_every_runtime_knows() {
        for (written, read) in [(8, 8), (10, 10), (14, 10)] {
            let model = ModelProto { ir_version: written, ..model() };
            assert_eq!(parse(&model.to_bytes()).unwrap().ir_version, read);
        }
    }

    #[test]
    fn unsorted_nodes_are_sorted() {
        assert_eq!(edited(|graph| graph.node.reverse()).unwrap(), model());
    }

    #[test]
    fn optional_inputs_that_are_left_out_at_the_end_are_not_written() {
        let read = edited(|graph| graph.node[0].input.extend([String::new(), String::new()])).unwrap();
        assert_eq!(read, model());
    }

    #[test]
    fn the_other_name_of_the_domain_of_the_standard_is_read_as_the_empty_one_everywhere() {
        let named = |domain: &str| {
            let inner =
                NodeProto { domain: domain.to_owned(), ..NodeProto::named("c", "Identity", &["x"], &[]) };
            let branch = GraphProto { node: vec![inner.clone()], ..GraphProto::default() };
            let attribute = crate::attr_graph("then_branch", branch);
            let node = NodeProto { attribute: vec![attribute], ..inner };
            let mut read = model();
            read.graph.as_mut().unwrap().node.iter_mut().for_each(|node| node.domain = domain.to_owned());
            read.functions.push(FunctionProto { node: vec![node], ..FunctionProto::default() });
            parse(&read.to_bytes()).unwrap()
        };
        assert_eq!(named("ai.onnx"), named(""));
        assert_eq!(named("com.example").graph.unwrap().node[0].domain, "com.example");
    }

    #[test]
    fn a_cycle_names_a_node() {
        let refused = edited(|graph| {
            let last = graph.output[0].name.clone();
            graph.node[0].input[0] = last;
        });
        assert_eq!(refused.unwrap_err().to_string(), "[E306] node `fc1` (Gemm) is part of a cycle");
    }

    #[test]
    fn hostile_graphs_are_refused() {
        #[rustfmt::skip]
        let cases: [(&str, &str, fn(&mut GraphProto)); 9] = [
            ("missing value",      "E305", |g| g.node[0].input[0] = "nobody".into()),
            ("missing output",     "E305", |g| g.output[0].name = "nobody".into()),
            ("value twice",        "E304", |g| g.node[1].output[0] = g.node[0].output[0].clone()),
            ("constant twice",     "E304", |g| g.initializer.push(g.initializer[0].clone())),
            ("external data",      "E307", |g| g.initializer[0].data_location = 1),
            ("data too short",     "E308", |g| { g.initializer[0].raw_data.as_mut().unwrap().pop(); }),
            ("overflowing shape",  "E308", |g| g.initializer[0].dims = vec![i64::MAX, i64::MAX]),
            ("a zero in a name",   "E302", |g| g.input[0].name = "x\0y".into()),
            ("negative shape",     "E308", |g| g.initializer[0].dims = vec![-1, -12]),
        ];
        for (name, code, edit) in cases {
            assert_eq!(edited(edit).unwrap_err().code(), code, "{name}");
        }
    }

    #[test]
    fn constants_of_functions_lie_in_the_file_however_deep() {
        let outside = TensorProto { data_location: 1, ..Default::default() };
        let of_tensor =
            |tensor| AttributeProto { name: "value".into(), t: Some(tensor), ..Default::default() };
        let of_graph = |graph| AttributeProto { name: "body".into(), g: Some(graph), ..Default::default() };
        let node = |attribute| NodeProto { attribute: vec![attribute], ..Default::default() };
        let inner = GraphProto { node: vec![node(of_tensor(outside.clone()))], ..Default::default() };
        let initialized = GraphProto { initializer: vec![outside.clone()], ..Default::default() };
        let outer = GraphProto { node: vec![node(of_graph(inner))], ..Default::default() };
        for attribute in [of_tensor(outside), of_graph(initialized), of_graph(outer)] {
            let body = FunctionProto { node: vec![node(attribute.clone())], ..Default::default() };
            let default = FunctionProto { attribute_proto: vec![attribute], ..Default::default() };
            for function in [body, default] {
                let model = ModelProto { functions: vec![function], ..model() };
                assert_eq!(parse(&model.to_bytes()).unwrap_err().code(), "E307");
            }
        }
    }

    #[test]
    fn a_subgraph_may_read_outer_values_and_counts_as_a_reader() {
        let mut builder = GraphBuilder::new("outer");
        let x = builder.input("x", ElementType::F32, &[2.into()]);
        let y = builder.op("Relu", &[&x], &[]);
        let z = builder.op("If", &[&x], &[]);
        builder.output(&z);
        let mut model = builder.finish();
        let graph = model.graph.as_mut().unwrap();
        let inner = GraphProto {
            output: vec![crate::proto::ValueInfoProto::untyped(y.clone())],
            ..Default::default()
        };
        graph.node[1].attribute.push(AttributeProto {
            name: "then_branch".into(),
            g: Some(inner),
            ..Default::default()
        });
        let sorted = model.clone();
        model.graph.as_mut().unwrap().node.reverse();
        assert_eq!(parse(&model.to_bytes()).unwrap(), sorted);
    }

    #[test]
    fn a_file_of_empty_messages_is_refused_before_it_is_decoded() {
        let nodes = vec![[0x0a, 0x00]; 2 << 20].concat();
        let mut bytes = vec![0x3a];
        prost::encoding::encode_varint(nodes.len() as u64, &mut bytes);
        bytes.extend(nodes);
        assert_eq!(
            parse(&bytes).unwrap_err().to_string(),
            "[E302] bytes are not an ONNX model: it has too many parts"
        );
    }

    proptest::proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn damaged_models_never_panic(at in 0usize..400, byte in proptest::prelude::any::<u8>(), keep in 0usize..400) {
            let mut bytes = model().to_bytes();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = parse(&bytes);
            bytes.truncate(keep);
            let _ = parse(&bytes);
        }
    }
}
