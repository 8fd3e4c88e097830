//! Functions of a model written out where they are called, so that later passes see operators of the standard
//! alone.

use std::collections::{HashMap, HashSet};

use prost::Message;

use crate::error::OnnxError;
use crate::parse::{MAX_MODEL_BYTES, check_graph};
use crate::proto::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto};

/// Most nodes that the calls of a model may become. Functions that call each other twice grow as the powers
/// of two.
const MAX_NODES: usize = 1 << 20;
/// Most calls inside of each other; a function that calls itself never ends.
const MAX_DEPTH: usize = 100;

/// Writes out every call of a function whose operator sets are the model's, and checks the graph again.
///
/// Values inside get the number of the call in front, nodes its name, and a number behind where another node
/// has that name: ONNX Runtime refuses two of one name, and names of nodes are optional. A function for
/// another version of an operator set keeps its calls: whether the versions agree is for the runtime to say.
pub fn inline_functions(model: &mut ModelProto) -> Result<(), OnnxError> {
    let Some(graph) = model.graph.as_mut().filter(|_| !model.functions.is_empty()) else { return Ok(()) };
    let functions = model.functions.iter().filter(|function| agrees(function, &model.opset_import));
    let functions: HashMap<Key<'_>, Callee<'_>> =
        functions.map(|function| (key_of(function), Callee::of(function))).collect();
    let mut inliner = Inliner { functions, nodes: 0, bytes: 0, calls: 0, names: names_of_nodes(graph) };
    inliner.graph(graph, 0)?;
    for import in model.functions.iter().flat_map(|function| &function.opset_import) {
        if version(&model.opset_import, &import.domain).is_none() {
            model.opset_import.push(import.clone());
        }
    }
    let left = still_called(&model.functions, &inliner.functions);
    let mut left = left.into_iter();
    model.functions.retain(|_| left.next().unwrap_or_default());
    check_graph(graph, None).map(drop)
}

/// Names of the nodes of a graph, and of those inside, with 1 for each.
fn names_of_nodes(graph: &GraphProto) -> HashMap<String, usize> {
    let (mut names, mut open) = (HashMap::new(), vec![graph]);
    while let Some(graph) = open.pop() {
        names.extend(graph.node.iter().map(|node| (node.name.clone(), 1)));
        open.extend(graph.node.iter().flat_map(NodeProto::subgraphs));
    }
    names
}

/// Most bytes of what is put in front of a name inside, and behind it.
const MADE_NAME_BYTES: usize = 32;

/// A function that is written out.
#[derive(Clone, Copy)]
struct Callee<'m> {
    function: &'m FunctionProto,
    bytes: usize,
    /// Attributes that take their value from the call.
    references: usize,
}

impl<'m> Callee<'m> {
    fn of(function: &'m FunctionProto) -> Self {
        Self { function, bytes: function.encoded_len(), references: references(&function.node) }
    }
}

/// How many attributes of these nodes, and of graphs inside, take their value from the call.
fn references(nodes: &[NodeProto]) -> usize {
    let of_attribute = |attribute: &AttributeProto| -> usize {
        let inside: usize = attribute.subgraphs().map(|graph| references(&graph.node)).sum();
        inside + usize::from(!attribute.ref_attr_name.is_empty())
    };
    nodes.iter().flat_map(|node| &node.attribute).map(of_attribute).sum()
}

/// Domain, name and overload: what a node says of the function that it calls.
type Key<'m> = (&'m str, &'m str, &'m str);

fn key_of(function: &FunctionProto) -> Key<'_> {
    (plain(&function.domain), &function.name, &function.overload)
}

/// The function that a node calls, if its operator is one.
fn key_of_call(node: &NodeProto) -> Key<'_> {
    (plain(&node.domain), &node.op_type, &node.overload)
}

/// The standard's own domain has two names.
fn plain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

fn version(imports: &[OperatorSetIdProto], domain: &str) -> Option<i64> {
    imports.iter().find(|import| plain(&import.domain) == plain(domain)).map(|import| import.version)
}

fn agrees(function: &FunctionProto, imports: &[OperatorSetIdProto]) -> bool {
    let same = |import: &OperatorSetIdProto| {
        version(imports, &import.domain).is_none_or(|version| version == import.version)
    };
    function.opset_import.iter().all(same)
}

/// Which functions cannot be written out, or are called by one of those.
fn still_called(functions: &[FunctionProto], written: &HashMap<Key<'_>, Callee<'_>>) -> Vec<bool> {
    let known: HashMap<Key<'_>, &FunctionProto> =
        functions.iter().map(|function| (key_of(function), function)).collect();
    let mut called = HashSet::new();
    let mut open: Vec<&FunctionProto> =
        functions.iter().filter(|function| !written.contains_key(&key_of(function))).collect();
    while let Some(function) = open.pop() {
        if !called.insert(key_of(function)) {
            continue;
        }
        let mut nodes: Vec<&NodeProto> = function.node.iter().collect();
        while let Some(node) = nodes.pop() {
            open.extend(known.get(&key_of_call(node)));
            nodes.extend(node.subgraphs().flat_map(|graph| &graph.node));
        }
    }
    functions.iter().map(|function| called.contains(&key_of(function))).collect()
}

struct Inliner<'m> {
    functions: HashMap<Key<'m>, Callee<'m>>,
    nodes: usize,
    bytes: usize,
    calls: usize,
    /// Names of nodes, and the last number that was put behind each.
    names: HashMap<String, usize>,
}

/// What nodes of a call are named after.
fn called<'a>(call: &'a NodeProto, function: &'a FunctionProto) -> &'a str {
    if call.name.is_empty() { &function.name } else { &call.name }
}

impl Inliner<'_> {
    fn graph(&mut self, graph: &mut GraphProto, depth: usize) -> Result<(), OnnxError> {
        let nodes = std::mem::take(&mut graph.node);
        graph.node.reserve(nodes.len());
        for mut node in nodes {
            node.subgraphs_mut().try_for_each(|inner| self.graph(inner, depth))?;
            match self.functions.get(&key_of_call(&node)).copied() {
                Some(callee) => {
                    self.count(&node, callee, depth)?;
                    let nodes = self.body(&node, callee.function);
                    let mut body = GraphProto { node: nodes, ..GraphProto::default() };
                    self.graph(&mut body, depth + 1)?;
                    graph.node.append(&mut body.node);
                }
                None => graph.node.push(node),
            }
        }
        Ok(())
    }

    fn count(&mut self, call: &NodeProto, callee: Callee<'_>, depth: usize) -> Result<(), OnnxError> {
        let Callee { function, bytes, references } = callee;
        if depth >= MAX_DEPTH {
            let reason =
                format!("function `{}` calls itself, or functions call each other too deeply", function.name);
            return Err(OnnxError::Malformed { reason });
        }
        let what = match () {
            () if call.input.len() > function.input.len() => Some("inputs"),
            () if call.output.len() > function.output.len() => Some("outputs"),
            () => None,
        };
        if let Some(what) = what {
            let reason = format!(
                "node `{}` calls function `{}` with more {what} than it has",
                call.label(),
                function.name
            );
            return Err(OnnxError::Malformed { reason });
        }
        // What is put in counts as often as it may be: values of attributes, and names.
        let stated: usize = call.attribute.iter().map(Message::encoded_len).sum();
        let names = called(call, function).len()
            + call.input.iter().chain(&call.output).map(String::len).max().unwrap_or(0);
        let of_nodes = function.node.len().saturating_mul(names.saturating_add(MADE_NAME_BYTES));
        let put_in = references.saturating_mul(stated).saturating_add(of_nodes);
        self.nodes += function.node.len();
        self.bytes = self.bytes.saturating_add(bytes).saturating_add(put_in);
        if self.nodes > MAX_NODES {
            let reason = format!("its functions written out are more than {MAX_NODES} nodes");
            return Err(OnnxError::Malformed { reason });
        }
        match self.bytes > MAX_MODEL_BYTES {
            true => Err(OnnxError::TooLarge { bytes: self.bytes, limit: MAX_MODEL_BYTES }),
            false => Ok(()),
        }
    }

    /// The nodes of one call, with its values and attributes in the place of the function's names for them.
    fn body(&mut self, call: &NodeProto, function: &FunctionProto) -> Vec<NodeProto> {
        self.calls += 1;
        let scope = format!("syncline/call{}/", self.calls);
        let mut names: HashMap<&str, String> = HashMap::new();
        for (at, input) in function.input.iter().enumerate() {
            names.insert(input, call.input.get(at).cloned().unwrap_or_default());
        }
        let mut passed = Vec::new();
        let wanted = function.output.iter().zip(&call.output).filter(|(_, given)| !given.is_empty());
        for (inner, given) in wanted {
            match names.get(inner.as_str()) {
                // What comes in goes out as it is, or one value goes out twice.
                Some(known) => passed.push(NodeProto::named(given, "Identity", &[known], &[])),
                None => {
                    names.insert(inner, given.clone());
                }
            }
        }
        let called = called(call, function);
        let binding = Binding { names, scope, call, defaults: &function.attribute_proto };
        let mut nodes = function.node.clone();
        for node in &mut nodes {
            binding.node(node);
            let inner = if node.name.is_empty() { &node.op_type } else { &node.name };
            node.name = self.name_apart(format!("{called}/{inner}"));
        }
        nodes.extend(passed);
        nodes
    }

    /// The name, with a number behind it where another node has it already.
    fn name_apart(&mut self, wanted: String) -> String {
        let Some(&last) = self.names.get(&wanted) else {
            self.names.insert(wanted.clone(), 1);
            return wanted;
        };
        let mut number = last + 1;
        while self.names.contains_key(&format!("{wanted}_{number}")) {
            number += 1;
        }
        let name = format!("{wanted}_{number}");
        self.names.insert(wanted, number);
        self.names.insert(name.clone(), 1);
        name
    }
}

/// What the names inside a function mean for one call.
struct Binding<'c> {
    names: HashMap<&'c str, String>,
    scope: String,
    call: &'c NodeProto,
    defaults: &'c [AttributeProto],
}

impl Binding<'_> {
    fn node(&self, node: &mut NodeProto) {
        node.input.iter_mut().chain(&mut node.output).for_each(|name| self.rename(name));
        node.attribute.retain_mut(|attribute| self.attribute(attribute));
    }

    fn graph(&self, graph: &mut GraphProto) {
        let values = graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info);
        values.for_each(|value| self.rename(&mut value.name));
        graph.initializer.iter_mut().for_each(|tensor| self.rename(&mut tensor.name));
        graph.node.iter_mut().for_each(|node| self.node(node));
    }

    fn rename(&self, name: &mut String) {
        match self.names.get(name.as_str()) {
            Some(given) => given.clone_into(name),
            None if name.is_empty() => {}
            None => name.insert_str(0, &self.scope),
        }
    }

    /// Gives an attribute that refers to one of the call its value; `false` where neither call nor function
    /// has one.
    fn attribute(&self, attribute: &mut AttributeProto) -> bool {
        if attribute.ref_attr_name.is_empty() {
            attribute.subgraphs_mut().for_each(|graph| self.graph(graph));
            return true;
        }
        let mut stated = self.call.attribute.iter().chain(self.defaults);
        let Some(value) = stated.find(|known| known.name == attribute.ref_attr_name) else {
            return false;
        };
        let name = std::mem::take(&mut attribute.name);
        *attribute = AttributeProto { name, ..value.clone() };
        true
    }
}

#[cfg(test)]
mod tests;
