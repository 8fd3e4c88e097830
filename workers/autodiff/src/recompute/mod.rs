//! A training graph that needs less memory: cheap values are made again where the backward pass needs them, instead of
//! being kept from the forward pass.
//!
//! In: a finished training graph with the types of its values. Out: the same graph with copies of cheap forward nodes
//! just in front of their backward readers, and what both hold at most, see [`estimate`]. [`Plan`] decides what is made
//! again. ONNX Runtime would merge a copy with its original, or run it too early: so a copy reads what is kept through
//! [`Order::after`], behind the gradient that its reader waits for.
//!
//! The same is used to compute the gradient of each parameter before the backward pass goes on: ONNX Runtime may put
//! off what no other node reads until the very end, and keep everything that it needs till then.
//!
//! Numbers do not change: the copies are the same operators on the same values.

mod after;
mod keep;
mod min_cut;

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use syncline_onnx::proto::{GraphProto, ModelProto, NodeProto};
use syncline_onnx::{Compiler, Types, WeightGradient, captured, infer_types};

use crate::error::AutodiffError;
use crate::estimate::{Estimate, estimate};
use crate::sizes::sizes;
use after::Order;
use keep::{Plan, ancestors};

/// Size that open axes are taken to have where sizes are compared.
pub const NOMINAL_AXIS: usize = 32;

/// What a step costs without and with recomputation, open axes counted as [`NOMINAL_AXIS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saving {
    pub without: Estimate,
    pub with: Estimate,
}

/// Rewrites the model, unless that saves nothing. `seed`: the gradient that the backward pass begins with; `param`: an
/// input that is never empty. Costs three session loads.
pub(crate) fn recompute(
    compiler: &dyn Compiler,
    model: &mut ModelProto,
    seed: &str,
    param: &str,
) -> Result<Saving, AutodiffError> {
    let types = infer_types(compiler, &model.to_bytes())?;
    let mut sizes = sizes(compiler, model, NOMINAL_AXIS)?;
    let graph = model.graph.get_or_insert_default();
    let without = estimate(graph, &sizes);
    let mut rewrite = Rewrite::new(graph, &types, &sizes, seed, param);
    for index in 0..graph.node.len() {
        rewrite.node(index);
    }
    let (rewritten, copies) = rewrite.finish();
    for (copy, original) in copies {
        if let Some(size) = sizes.get(&original) {
            sizes.insert(copy, size.clone());
        }
    }
    let with = estimate(&rewritten, &sizes);
    if with.peak_bytes >= without.peak_bytes {
        return Ok(Saving { without, with: without });
    }
    *graph = rewritten;
    Ok(Saving { without, with })
}

struct Rewrite<'g> {
    graph: &'g GraphProto,
    types: &'g Types,
    seed: &'g str,
    plan: Plan<'g>,
    /// Nodes on the way to the deepest gradient.
    spine: Vec<bool>,
    order: Order,
    nodes: Vec<NodeProto>,
    /// New values, with the values that they are the same as.
    copies: HashMap<String, String>,
    /// Value -> what late nodes read in its place.
    again: HashMap<&'g str, String>,
    /// Value -> what the forward pass reads in its place.
    measured: HashMap<&'g str, String>,
    /// Ends of what branches off the spine, for which nothing has been made to wait yet.
    pending: Vec<String>,
}

impl<'g> Rewrite<'g> {
    fn new(graph: &'g GraphProto, types: &'g Types, sizes: &'g Types, seed: &'g str, param: &str) -> Self {
        let plan = Plan::of(graph, sizes, seed);
        let spine = spine(graph, &plan);
        Self {
            graph,
            types,
            seed,
            spine,
            plan,
            order: Order::new(graph, param),
            nodes: Vec::with_capacity(graph.node.len()),
            copies: HashMap::new(),
            again: HashMap::new(),
            measured: HashMap::new(),
            pending: Vec::new(),
        }
    }

    /// Takes over a node, with what it needs in front of it.
    fn node(&mut self, index: usize) {
        let graph = self.graph;
        let original = &graph.node[index];
        if let Some(measured) =
            original.input.first().and_then(|value| self.plan.measured.get(value.as_str()))
            && measured.contains(&index)
        {
            return;
        }
        let mut node = original.clone();
        if self.plan.late[index] {
            self.backward(&mut node, index);
        } else if self.plan.forward.get(index) == Some(&true) {
            for input in &mut node.input {
                if let Some(other) = self.measured.get(input.as_str()) {
                    input.clone_from(other);
                }
            }
        }
        self.nodes.push(node);
        original.output.iter().for_each(|value| self.measure(value));
    }

    /// Lets a node of the backward pass wait for gradients, and read what is made again.
    fn backward(&mut self, node: &mut NodeProto, index: usize) {
        let original = &self.graph.node[index];
        if !self.pending.is_empty() && self.spine.get(index) == Some(&true) {
            self.wait_for_pending(node, index);
        }
        if let Some(trigger) = self.trigger(node, index) {
            for (input, value) in node.input.iter_mut().zip(&original.input) {
                if self.plan.again.contains(value.as_str()) {
                    *input = self.make_again(value, &trigger);
                }
            }
        }
        self.point_remark(node);
        if self.spine.get(index) != Some(&true) {
            self.pending.retain(|value| !node.input.contains(value));
            self.pending.extend(node.output.iter().find(|value| !value.is_empty()).cloned());
        }
    }

    /// Lets the remark on a node name what is made again: its reader would keep the original.
    fn point_remark(&self, node: &mut NodeProto) {
        let Some(mut gradient) = WeightGradient::of(node) else { return };
        for value in [&mut gradient.image, &mut gradient.signal] {
            if let Some(other) = self.again.get(value.as_str()) {
                value.clone_from(other);
            }
        }
        node.metadata_props = gradient.remark();
    }

    /// Asks for the shape of a value as soon as it is there, before the forward pass goes on: a node that does so when the
    /// gradient comes by would keep the whole value until then.
    fn measure(&mut self, value: &'g str) {
        let Some(readers) = self.plan.measured.get(value) else { return };
        let readers = readers.iter().map(|&reader| self.graph.node[reader].clone());
        let before = self.nodes.len();
        self.nodes.extend(readers);
        let shapes: Vec<String> = self.nodes[before..].iter().flat_map(|node| node.output.clone()).collect();
        let later = self.pass_on(value, &shapes);
        self.measured.insert(value, later);
    }

    /// Lets the node run only once all pending gradients are there.
    fn wait_for_pending(&mut self, node: &mut NodeProto, index: usize) {
        let Some(operand) = self.late_operands(index).next().map(str::to_owned) else { return };
        let events = std::mem::take(&mut self.pending);
        let later = self.pass_on(&operand, &events);
        node.input.iter_mut().filter(|input| **input == operand).for_each(|input| input.clone_from(&later));
    }

    /// The value of the backward pass that the node waits for longest, under the name by which the node reads it.
    fn trigger(&self, node: &NodeProto, index: usize) -> Option<String> {
        let when = |value: &&str| self.plan.producer.get(value).copied();
        let operand = self.late_operands(index).max_by_key(when)?;
        let position = self.graph.node[index].input.iter().position(|input| input == operand)?;
        node.input.get(position).cloned()
    }

    /// What the node reads of the backward pass.
    fn late_operands(&self, index: usize) -> impl Iterator<Item = &'g str> {
        self.graph.node[index].input.iter().map(String::as_str).filter(|value| self.is_late(value))
    }

    fn is_late(&self, value: &str) -> bool {
        value == self.seed || self.plan.producer.get(value).is_some_and(|&node| self.plan.late[node])
    }

    fn pass_on(&mut self, value: &str, events: &[String]) -> String {
        let later = self.order.after(&mut self.nodes, value, events);
        self.copies.insert(later.clone(), value.to_owned());
        later
    }

    /// Writes the nodes that make a value again once `trigger` is there; returns its name.
    fn make_again(&mut self, value: &'g str, trigger: &str) -> String {
        let graph = self.graph;
        let (mut open, mut makers) = (vec![value], HashSet::new());
        while let Some(value) = open.pop() {
            if self.again.contains_key(value) {
                continue;
            }
            if self.plan.again.contains(value) {
                let maker = self.plan.producer[value];
                if makers.insert(maker) {
                    open.extend(graph.node[maker].input.iter().map(String::as_str));
                }
            } else if self.plan.kept.contains(value) {
                let later = self.pass_on(value, &[trigger.to_owned()]);
                self.again.insert(value, later);
            }
        }
        let mut makers: Vec<usize> = makers.into_iter().collect();
        makers.sort_unstable();
        for maker in makers {
            self.copy(&graph.node[maker]);
        }
        self.again.get(value).cloned().unwrap_or_else(|| value.to_owned())
    }

    /// A second node of the same kind, if it reads anything that is new.
    fn copy(&mut self, original: &'g NodeProto) {
        let mut node = original.clone();
        let mut differs = false;
        for input in &mut node.input {
            if let Some(other) = self.again.get(input.as_str()) {
                input.clone_from(other);
                differs = true;
            }
        }
        if !differs {
            return;
        }
        for (name, old) in node.output.iter_mut().zip(&original.output).filter(|(name, _)| !name.is_empty()) {
            *name = self.order.fresh(&original.op_type);
            self.copies.insert(name.clone(), old.clone());
            self.again.insert(old, name.clone());
        }
        node.name = node.output.iter().find(|name| !name.is_empty()).cloned().unwrap_or_default();
        self.nodes.push(node);
    }

    /// The graph without what nothing reads any more, and its new values with those that they are the same as.
    fn finish(self) -> (GraphProto, HashMap<String, String>) {
        let Self { graph, types, order, nodes, copies, .. } = self;
        let mut graph = GraphProto { node: order.head, ..graph.clone() };
        graph.node.extend(nodes);
        graph.initializer.extend(order.constants);
        drop_unread(&mut graph);
        let declared = copies.iter().filter_map(|(copy, old)| Some(types.get(old)?.to_value_info(copy)));
        graph.value_info.extend(declared);
        graph.value_info.sort_by(|a, b| a.name.cmp(&b.name));
        (graph, copies)
    }
}

/// For each node whether it is on the way to the gradient that takes most steps from the seed.
fn spine(graph: &GraphProto, plan: &Plan<'_>) -> Vec<bool> {
    let outputs: HashSet<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
    let mut depths = vec![0usize; graph.node.len()];
    let mut deepest = (0, None);
    for (index, node) in graph.node.iter().enumerate().filter(|(index, _)| plan.late[*index]) {
        let makers = node.input.iter().filter_map(|input| plan.producer.get(input.as_str()));
        depths[index] = 1 + makers.map(|&maker| depths[maker]).max().unwrap_or(0);
        if depths[index] > deepest.0 && node.output.iter().any(|output| outputs.contains(output.as_str())) {
            deepest = (depths[index], Some(index));
        }
    }
    deepest.1.map_or_else(Vec::new, |last| ancestors(graph, &plan.producer, last))
}

/// Takes away nodes, constants and optional outputs that nothing reads.
fn drop_unread(graph: &mut GraphProto) {
    let mut read: HashSet<String> = graph.output.iter().map(|output| output.name.clone()).collect();
    let mut kept = Vec::with_capacity(graph.node.len());
    for mut node in std::mem::take(&mut graph.node).into_iter().rev() {
        if !node.output.iter().any(|output| read.contains(output)) {
            continue;
        }
        if matches!(node.op_type.as_str(), "Dropout" | "LayerNormalization") {
            let last = node.output.iter().rposition(|output| read.contains(output)).unwrap_or(0);
            node.output.truncate(last + 1);
        }
        read.extend(captured(&node).into_iter().map(str::to_owned));
        read.extend(node.input.iter().cloned());
        kept.push(node);
    }
    kept.reverse();
    graph.node = kept;
    graph.initializer.retain(|tensor| read.contains(&tensor.name));
}
