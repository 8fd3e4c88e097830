//! Calls of functions, written out.

use super::*;
use crate::attributes::{attr_float, attr_graph, attr_int};
use crate::proto::{ATTRIBUTE_TENSOR, ValueInfoProto};
use crate::{ElementType, GraphBuilder, parse};

const OPSET: i64 = 18;

fn function(name: &str, inputs: &[&str], outputs: &[&str], node: Vec<NodeProto>) -> FunctionProto {
    FunctionProto {
        name: name.to_owned(),
        domain: "own".to_owned(),
        input: inputs.iter().map(|name| (*name).to_owned()).collect(),
        output: outputs.iter().map(|name| (*name).to_owned()).collect(),
        node,
        opset_import: vec![import("", OPSET)],
        ..FunctionProto::default()
    }
}

fn import(domain: &str, version: i64) -> OperatorSetIdProto {
    OperatorSetIdProto { domain: domain.to_owned(), version }
}

fn call(name: &str, function: &str, inputs: &[&str]) -> NodeProto {
    NodeProto { domain: "own".to_owned(), ..NodeProto::named(name, function, inputs, &[]) }
}

fn referring(to: &str, name: &str) -> AttributeProto {
    AttributeProto { ref_attr_name: to.to_owned(), ..attr_float(name, 0.0) }
}

/// A model that reads `x` and gives `y`.
fn model(nodes: Vec<NodeProto>, functions: Vec<FunctionProto>) -> ModelProto {
    let mut graph = GraphBuilder::new("calls");
    graph.input("x", ElementType::F32, &[2.into()]);
    let mut model = graph.finish();
    let inner = model.graph.as_mut().unwrap();
    inner.node = nodes;
    inner.output = vec![ValueInfoProto::untyped("y".to_owned())];
    model.functions = functions;
    model.opset_import = vec![import("", OPSET), import("own", 1)];
    parse(&model.to_bytes()).unwrap()
}

fn inlined(nodes: Vec<NodeProto>, functions: Vec<FunctionProto>) -> GraphProto {
    let mut model = model(nodes, functions);
    inline_functions(&mut model).unwrap();
    assert!(model.functions.is_empty());
    model.graph.unwrap()
}

fn refused(nodes: Vec<NodeProto>, functions: Vec<FunctionProto>) -> String {
    inline_functions(&mut model(nodes, functions)).unwrap_err().to_string()
}

/// Each node as `op(inputs)->outputs`.
fn written(nodes: &[NodeProto]) -> Vec<String> {
    let line =
        |node: &NodeProto| format!("{}({})->{}", node.op_type, node.input.join(","), node.output.join(","));
    nodes.iter().map(line).collect()
}

#[test]
fn a_function_that_is_called_twice_becomes_nodes_with_values_of_their_own() {
    let square = function(
        "Square",
        &["a"],
        &["c"],
        vec![NodeProto::named("b", "Neg", &["a"], &[]), NodeProto::named("c", "Mul", &["a", "b"], &[])],
    );
    let graph = inlined(vec![call("h", "Square", &["x"]), call("y", "Square", &["h"])], vec![square]);
    let want = [
        "Neg(x)->syncline/call1/b",
        "Mul(x,syncline/call1/b)->h",
        "Neg(h)->syncline/call2/b",
        "Mul(h,syncline/call2/b)->y",
    ];
    assert_eq!(written(&graph.node), want);
    assert_eq!(graph.node[2].name, "y/b");
}

#[test]
fn functions_within_functions_and_within_branches_are_written_out() {
    let inner = function("Inner", &["a"], &["b"], vec![NodeProto::named("b", "Neg", &["a"], &[])]);
    let outer =
        function("Outer", &["a"], &["b"], vec![call("m", "Inner", &["a"]), call("b", "Inner", &["m"])]);
    let branch = GraphProto {
        node: vec![call("t", "Outer", &["x"])],
        output: vec![ValueInfoProto::untyped("t".to_owned())],
        ..GraphProto::default()
    };
    let choose = NodeProto::named("y", "If", &["x"], &[attr_graph("then_branch", branch)]);
    let graph = inlined(vec![choose], vec![outer, inner]);
    let branch = graph.node[0].attribute[0].g.as_ref().unwrap();
    assert_eq!(written(&branch.node), ["Neg(x)->syncline/call1/m", "Neg(syncline/call1/m)->t"]);
}

#[test]
fn names_inside_of_a_branch_of_a_function_follow_the_call() {
    let branch = GraphProto {
        node: vec![NodeProto::named("t", "Add", &["a", "b"], &[])],
        output: vec![ValueInfoProto::untyped("t".to_owned())],
        ..GraphProto::default()
    };
    let body = vec![
        NodeProto::named("b", "Neg", &["a"], &[]),
        NodeProto::named("c", "If", &["a"], &[attr_graph("then_branch", branch)]),
    ];
    let graph = inlined(vec![call("y", "F", &["x"])], vec![function("F", &["a"], &["c"], body)]);
    let branch = graph.node[1].attribute[0].g.as_ref().unwrap();
    assert_eq!(written(&branch.node), ["Add(x,syncline/call1/b)->syncline/call1/t"]);
    assert_eq!(branch.output[0].name, "syncline/call1/t");
}

#[test]
fn attributes_are_of_the_call_else_of_the_function_else_absent() {
    let mut body = NodeProto::named("b", "Selu", &["a"], &[]);
    body.attribute =
        vec![referring("slope", "alpha"), referring("gain", "gamma"), referring("none", "other")];
    let mut leaky = function("F", &["a"], &["b"], vec![body]);
    leaky.attribute_proto = vec![attr_float("gain", 2.0), attr_float("slope", 3.0)];
    let mut node = call("y", "F", &["x"]);
    node.attribute = vec![attr_float("slope", 0.5)];
    let graph = inlined(vec![node], vec![leaky]);
    let attributes: Vec<_> =
        graph.node[0].attribute.iter().map(|found| (found.name.as_str(), found.f)).collect();
    assert_eq!(attributes, [("alpha", Some(0.5)), ("gamma", Some(2.0))]);
}

#[test]
fn omitted_inputs_stay_omitted_and_what_comes_in_may_go_out() {
    let body = vec![NodeProto::named("b", "Clip", &["a", "low", "high"], &[])];
    let clip = function("F", &["a", "low", "high"], &["a", "b", "b"], body);
    let mut node = call("first", "F", &["x"]);
    node.output.extend(["second".to_owned(), "y".to_owned()]);
    let graph = inlined(vec![node], vec![clip]);
    assert_eq!(written(&graph.node), ["Clip(x)->second", "Identity(x)->first", "Identity(second)->y"]);
}

#[test]
fn a_function_for_another_version_of_the_operators_keeps_its_calls() {
    let mut other = function("F", &["a"], &["b"], vec![NodeProto::named("b", "Neg", &["a"], &[])]);
    other.opset_import = vec![import("ai.onnx", OPSET - 1)];
    let mut model = model(vec![call("y", "F", &["x"])], vec![other]);
    inline_functions(&mut model).unwrap();
    assert_eq!((model.functions.len(), written(&model.graph.unwrap().node)), (1, vec!["F(x)->y".to_owned()]));
}

#[test]
fn what_is_written_out_goes_although_another_function_stays() {
    let neg = |name: &str| function(name, &["a"], &["b"], vec![NodeProto::named("b", "Neg", &["a"], &[])]);
    let other = |name: &str, body: FunctionProto| FunctionProto {
        name: name.to_owned(),
        opset_import: vec![import("", OPSET - 1)],
        ..body
    };
    let branch = GraphProto { node: vec![call("t", "Inner", &["a"])], ..GraphProto::default() };
    let choose = NodeProto::named("b", "If", &["a"], &[attr_graph("then_branch", branch)]);
    let calls = FunctionProto { node: vec![choose], ..neg("Outer") };
    let functions = vec![neg("Gone"), other("Outer", calls), neg("Inner")];
    let mut model = model(vec![call("m", "Gone", &["x"]), call("y", "Outer", &["m"])], functions);
    inline_functions(&mut model).unwrap();
    let left: Vec<&str> = model.functions.iter().map(|function| function.name.as_str()).collect();
    assert_eq!(left, ["Outer", "Inner"], "what one that stays calls stays as well");
}

#[test]
fn what_is_put_in_counts_as_often_as_it_is_written() {
    let mut constant = NodeProto::named("", "Constant", &[], &[]);
    constant.attribute = vec![referring("v", "value")];
    let body = (0..2_000).map(|n| NodeProto { output: vec![format!("c{n}")], ..constant.clone() });
    let mut node = call("y", "F", &["x"]);
    let tensor = crate::proto::TensorProto::from_f32("", &[1 << 18], &vec![0.0; 1 << 18]);
    node.attribute = vec![AttributeProto { t: Some(tensor), kind: ATTRIBUTE_TENSOR, ..attr_int("v", 0) }];
    let text = refused(vec![node], vec![function("F", &["a"], &["a"], body.collect())]);
    assert!(text.contains("E301"), "{text}");
}

#[test]
fn operator_sets_that_only_a_function_uses_become_the_models() {
    let mut other = function("F", &["a"], &["b"], vec![NodeProto::named("b", "Neg", &["a"], &[])]);
    other.opset_import.push(import("com.microsoft", 1));
    let mut model = model(vec![call("y", "F", &["x"])], vec![other]);
    inline_functions(&mut model).unwrap();
    assert_eq!(version(&model.opset_import, "com.microsoft"), Some(1));
}

#[test]
fn calls_without_an_end_or_with_too_many_nodes_or_values_are_refused() {
    let endless = function("F", &["a"], &["b"], vec![call("b", "F", &["a"])]);
    assert!(refused(vec![call("y", "F", &["x"])], vec![endless]).contains("`F` calls itself"));

    let twice = |name: usize| {
        let next = format!("F{}", name + 1);
        let body = vec![call("m", &next, &["a"]), call("b", &next, &["m"])];
        function(&format!("F{name}"), &["a"], &["b"], body)
    };
    let mut powers: Vec<FunctionProto> = (0..40).map(twice).collect();
    powers.push(function("F40", &["a"], &["b"], vec![NodeProto::named("b", "Neg", &["a"], &[])]));
    assert!(refused(vec![call("y", "F0", &["x"])], powers).contains("are more than 1048576 nodes"));

    let one = function("F", &["a"], &["b"], vec![NodeProto::named("b", "Neg", &["a"], &[])]);
    assert!(refused(vec![call("y", "F", &["x", "x"])], vec![one]).contains("with more inputs than it has"));
}

#[test]
fn a_body_that_reads_what_nothing_makes_is_refused() {
    let body = vec![NodeProto::named("b", "Add", &["a", "x"], &[attr_int("axis", 1)])];
    let text = refused(vec![call("y", "F", &["x"])], vec![function("F", &["a"], &["b"], body)]);
    assert!(text.contains("E305") && text.contains("syncline/call1/x"), "{text}");
}

#[test]
fn written_out_nodes_have_names_that_no_other_has() {
    let neg = |node: &str, from: &str, to: &str| NodeProto {
        name: node.to_owned(),
        output: vec![to.to_owned()],
        ..NodeProto::named("", "Neg", &[from], &[])
    };
    let calls = |name: &str| {
        let call = |from: &str, to: &str| NodeProto {
            domain: "own".to_owned(),
            op_type: "F".to_owned(),
            ..neg(name, from, to)
        };
        vec![neg("call/Neg_2", "x", "k"), call("k", "m"), call("m", "y")]
    };
    let names = |call: &str, node: &str| {
        let body = vec![neg(node, "a", "b"), neg(node, "b", "c")];
        let graph = inlined(calls(call), vec![function("F", &["a"], &["c"], body)]);
        graph.node.into_iter().skip(1).map(|node| node.name).collect::<Vec<_>>()
    };
    assert_eq!(names("call", ""), ["call/Neg", "call/Neg_3", "call/Neg_4", "call/Neg_5"]);
    assert_eq!(names("", "n"), ["F/n", "F/n_2", "F/n_3", "F/n_4"]);
}

#[test]
fn the_name_of_a_function_counts_as_often_as_it_is_written() {
    let name = "F".repeat(1 << 20);
    let body = (0..2_000).map(|n| NodeProto::named(&format!("v{n}"), "Neg", &["a"], &[])).collect();
    let text = refused(
        vec![NodeProto { name: String::new(), ..call("y", &name, &["x"]) }],
        vec![function(&name, &["a"], &["v0"], body)],
    );
    assert!(text.contains("E301"), "{text}");
}
