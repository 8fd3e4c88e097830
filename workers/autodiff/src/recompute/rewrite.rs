//! Writing a training graph anew, node by node, as its plan says.

use std::collections::{HashMap, HashSet};

use syncline_onnx::proto::{GraphProto, NodeProto};
use syncline_onnx::{Graph, NodeId, Types, ValueId, WeightGradient};

use super::control_dependency::ControlDependencies;
use super::plan::{Plan, ancestors};

/// A graph on its way from one form to the other. A value that is in both has one id.
pub(super) struct Rewrite<'g> {
    source: &'g Graph,
    types: &'g Types,
    cotangent: ValueId,
    plan: Plan,
    /// Nodes on the way to the deepest gradient.
    spine: Vec<bool>,
    written: Graph,
    control: ControlDependencies,
    /// New values, with the values that they are the same as.
    copies: HashMap<ValueId, ValueId>,
    /// Value -> what the backward pass reads in its place.
    again: HashMap<ValueId, ValueId>,
    /// Value -> what the forward pass reads in its place.
    measured: HashMap<ValueId, ValueId>,
    /// Ends of what branches off the spine, for which nothing has been made to wait yet.
    pending: Vec<ValueId>,
}

impl<'g> Rewrite<'g> {
    pub(super) fn new(
        source: &'g Graph,
        types: &'g Types,
        sizes: &Types,
        cotangent: ValueId,
        param: ValueId,
    ) -> Self {
        let plan = Plan::of(source, sizes, cotangent);
        let mut written = source.clone();
        written.take_nodes();
        let control = ControlDependencies::new(&mut written, param);
        Self {
            source,
            types,
            cotangent,
            spine: spine(source, &plan),
            plan,
            written,
            control,
            copies: HashMap::new(),
            again: HashMap::new(),
            measured: HashMap::new(),
            pending: Vec::new(),
        }
    }

    /// Takes over a node, with what it needs in front of it.
    pub(super) fn node(&mut self, id: NodeId) {
        let original = self.source.inputs(id);
        let readers = original.first().and_then(|value| self.plan.measured.get(value));
        if readers.is_some_and(|readers| readers.contains(&id)) {
            return;
        }
        let mut inputs = original.to_vec();
        let mut node = self.source.node(id).clone();
        if self.plan.backward[id.index()] {
            self.backward(&mut node, &mut inputs, id);
        } else if self.plan.forward[id.index()] {
            for input in &mut inputs {
                *input = self.measured.get(input).copied().unwrap_or(*input);
            }
        }
        self.push(node, &inputs);
        self.source.outputs(id).iter().for_each(|value| self.measure(*value));
    }

    /// Adds a node that reads these values.
    fn push(&mut self, mut node: NodeProto, inputs: &[ValueId]) -> NodeId {
        for (name, input) in node.input.iter_mut().zip(inputs) {
            self.written.name(*input).clone_into(name);
        }
        self.written.push(node)
    }

    /// Lets a node of the backward pass wait for gradients, and read what is made again.
    fn backward(&mut self, node: &mut NodeProto, inputs: &mut [ValueId], id: NodeId) {
        let is_spine = self.spine[id.index()];
        if !self.pending.is_empty() && is_spine {
            self.wait_for_pending(inputs, id);
        }
        if let Some(trigger) = self.trigger(inputs, id) {
            for (input, value) in inputs.iter_mut().zip(self.source.inputs(id)) {
                if self.plan.recomputed.contains(value) {
                    *input = self.make_again(*value, trigger);
                }
            }
        }
        self.point_annotation(node);
        if !is_spine {
            self.pending.retain(|value| !inputs.contains(value));
            let made = self.source.outputs(id).iter().find(|value| **value != ValueId::OMITTED);
            self.pending.extend(made);
        }
    }

    /// Lets the annotation of a node name what is made again: its reader would keep the original.
    fn point_annotation(&self, node: &mut NodeProto) {
        let Some(mut gradient) = WeightGradient::of(node) else { return };
        for name in [&mut gradient.image, &mut gradient.signal] {
            let value = self.source.value(name);
            if let Some(other) = value.and_then(|value| self.again.get(&value)) {
                self.written.name(*other).clone_into(name);
            }
        }
        node.metadata_props = gradient.metadata();
    }

    /// Asks for the shape of a value as soon as it is there, before the forward pass goes on: a node that
    /// does so when the gradient comes by would keep the whole value until then.
    fn measure(&mut self, value: ValueId) {
        let Some(readers) = self.plan.measured.get(&value) else { return };
        let mut shapes = Vec::with_capacity(readers.len());
        for &reader in readers {
            self.written.push(self.source.node(reader).clone());
            shapes.extend(self.source.outputs(reader));
        }
        let later = self.pass_on(value, &shapes);
        self.measured.insert(value, later);
    }

    /// Lets the node run only once all pending gradients are there.
    fn wait_for_pending(&mut self, inputs: &mut [ValueId], id: NodeId) {
        let Some(operand) = self.backward_operands(id).next() else { return };
        let events = std::mem::take(&mut self.pending);
        let later = self.pass_on(operand, &events);
        inputs.iter_mut().filter(|input| **input == operand).for_each(|input| *input = later);
    }

    /// The value of the backward pass that the node waits for longest, as the node reads it now.
    fn trigger(&self, inputs: &[ValueId], id: NodeId) -> Option<ValueId> {
        let operand = self.backward_operands(id).max_by_key(|value| self.source.producer(*value))?;
        let position = self.source.inputs(id).iter().position(|input| *input == operand)?;
        inputs.get(position).copied()
    }

    /// What the node reads of the backward pass.
    fn backward_operands(&self, id: NodeId) -> impl Iterator<Item = ValueId> {
        self.source.inputs(id).iter().copied().filter(|value| self.is_backward(*value))
    }

    fn is_backward(&self, value: ValueId) -> bool {
        let producer = self.source.producer(value);
        value == self.cotangent || producer.is_some_and(|node| self.plan.backward[node.index()])
    }

    fn pass_on(&mut self, value: ValueId, events: &[ValueId]) -> ValueId {
        let later = self.control.after(&mut self.written, value, events);
        self.copies.insert(later, value);
        later
    }

    /// Writes the nodes that make a value again once `trigger` is there; returns the copy.
    fn make_again(&mut self, value: ValueId, trigger: ValueId) -> ValueId {
        let (mut open, mut makers) = (vec![value], HashSet::new());
        while let Some(value) = open.pop() {
            if self.again.contains_key(&value) {
                continue;
            }
            if self.plan.recomputed.contains(&value) {
                let maker = self.source.producer(value);
                if let Some(maker) = maker.filter(|maker| makers.insert(*maker)) {
                    open.extend(self.source.inputs(maker));
                }
            } else if self.plan.kept.contains(&value) {
                let later = self.pass_on(value, &[trigger]);
                self.again.insert(value, later);
            }
        }
        let mut makers: Vec<NodeId> = makers.into_iter().collect();
        makers.sort_unstable();
        for maker in makers {
            self.copy(maker);
        }
        self.again.get(&value).copied().unwrap_or(value)
    }

    /// A second node of the same kind, if it reads anything that is new.
    fn copy(&mut self, id: NodeId) {
        let original = self.source.inputs(id);
        let inputs: Vec<ValueId> =
            original.iter().map(|input| self.again.get(input).copied().unwrap_or(*input)).collect();
        if inputs == original {
            return;
        }
        let mut node = self.source.node(id).clone();
        for (name, &old) in node.output.iter_mut().zip(self.source.outputs(id)) {
            if old != ValueId::OMITTED {
                let copy = self.written.fresh(&node.op_type);
                self.written.name(copy).clone_into(name);
                self.copies.insert(copy, old);
                self.again.insert(old, copy);
            }
        }
        node.name = node.output.iter().find(|name| !name.is_empty()).cloned().unwrap_or_default();
        self.push(node, &inputs);
    }

    /// The graph without what nothing reads any more, and the names of its new values with those that they
    /// are the same as.
    pub(super) fn finish(self) -> (GraphProto, HashMap<String, String>) {
        let Self { types, mut written, copies, .. } = self;
        let name = |value: &ValueId| written.name(*value).to_owned();
        let copies: HashMap<String, String> =
            copies.iter().map(|(copy, old)| (name(copy), name(old))).collect();
        for (copy, old) in &copies {
            if let Some(ty) = types.get(old) {
                written.push_value_info(ty.to_value_info(copy));
            }
        }
        let mut graph = written.remove_dead();
        graph.value_info.sort_by(|a, b| a.name.cmp(&b.name));
        (graph, copies)
    }
}

/// For each node whether it is on the way to the gradient that takes most steps from the cotangent.
fn spine(graph: &Graph, plan: &Plan) -> Vec<bool> {
    let outputs: HashSet<ValueId> = graph.graph_outputs().collect();
    let mut depths = vec![0usize; graph.nodes().len()];
    let mut deepest = (0, None);
    for (node, _) in graph.nodes().filter(|(node, _)| plan.backward[node.index()]) {
        let makers = graph.inputs(node).iter().filter_map(|input| graph.producer(*input));
        let depth = 1 + makers.map(|maker| depths[maker.index()]).max().unwrap_or(0);
        depths[node.index()] = depth;
        if depth > deepest.0 && graph.outputs(node).iter().any(|output| outputs.contains(output)) {
            deepest = (depth, Some(node));
        }
    }
    deepest.1.map_or_else(|| vec![false; depths.len()], |last| ancestors(graph, last))
}
