//! A loop over the steps of sequences, written as the operator `Scan`.
//!
//! The body is a graph of its own. It may read values of the graph around it by their names; no types are
//! stated in it, so that it follows when the graph changes to another precision.

use syncline_onnx::proto::{AttributeProto, GraphProto, NodeProto, ValueInfoProto};
use syncline_onnx::{attr_graph, attr_int, attr_ints};

use crate::emitter::Emitter;

/// What names inside a body begin with; unlike those of any graph around it.
const PREFIX: &str = "syncline/step/";

/// A body that grows. Names that its methods return are those of values inside.
#[derive(Debug, Default)]
pub(super) struct Steps {
    nodes: Vec<NodeProto>,
    /// What each step hands to the next.
    states: Vec<State>,
    /// Outside and inside names of what is read step by step.
    sequences: Vec<(String, String)>,
    /// Inside names of what is collected step by step.
    collected: Vec<String>,
    made_up: usize,
}

#[derive(Debug)]
struct State {
    /// Outside name of the first value.
    initial: String,
    inner: String,
    next: String,
}

impl Steps {
    fn fresh(&mut self) -> String {
        self.made_up += 1;
        format!("{PREFIX}{}", self.made_up)
    }

    /// A state that is `initial` in the first step; [`Steps::set_next`] says what it is in the next.
    pub(super) fn state(&mut self, initial: &str) -> String {
        let inner = self.fresh();
        self.states.push(State { initial: initial.to_owned(), inner: inner.clone(), next: inner.clone() });
        inner
    }

    /// The row of this step of a value outside, along its first axis.
    pub(super) fn read(&mut self, sequence: &str) -> String {
        let inner = self.fresh();
        self.sequences.push((sequence.to_owned(), inner.clone()));
        inner
    }

    /// Applies an operator in each step. Inputs are values inside, or constants and other values outside that
    /// are the same in each step.
    pub(super) fn op(&mut self, op: &str, inputs: &[&str], attributes: &[AttributeProto]) -> String {
        let name = self.fresh();
        self.nodes.push(NodeProto::named(&name, op, inputs, attributes));
        name
    }

    /// Applies an operator without attributes in each step.
    pub(super) fn call(&mut self, op: &str, inputs: &[&str]) -> String {
        self.op(op, inputs, &[])
    }

    /// Columns `from..to` of a value inside.
    pub(super) fn columns(&mut self, emitter: &mut Emitter, value: &str, from: i64, to: i64) -> String {
        let bounds = [from, to, 1].map(|number| emitter.ints(&[number]));
        self.call("Slice", &[value, &bounds[0], &bounds[1], &bounds[2]])
    }

    /// Says what a state is in the next step.
    pub(super) fn set_next(&mut self, state: &str, next: &str) {
        let found = self.states.iter_mut().find(|other| other.inner == state);
        found.into_iter().for_each(|state| next.clone_into(&mut state.next));
    }

    /// Makes a value of each step a row of a result.
    pub(super) fn collect(&mut self, value: &str) {
        self.collected.push(value.to_owned());
    }

    /// Writes the loop; returns the states after the last step, and the collected rows, each in the order in
    /// which they were named. `backwards`: from the last row to the first; rows are collected at their
    /// places in any case.
    pub(super) fn finish(mut self, emitter: &mut Emitter, backwards: bool) -> (Vec<String>, Vec<String>) {
        let nexts = self.states.iter().map(|state| state.next.clone());
        let results: Vec<String> = nexts.chain(self.collected.clone()).collect();
        // Every output of a body is a value of its own, made by one of its nodes.
        let outputs: Vec<String> = results.iter().map(|value| self.call("Identity", &[value])).collect();
        let untyped = |name: &String| ValueInfoProto::untyped(name.clone());
        let states = self.states.iter().map(|state| &state.inner);
        let body = GraphProto {
            name: "step".to_owned(),
            input: states.chain(self.sequences.iter().map(|(_, inner)| inner)).map(untyped).collect(),
            output: outputs.iter().map(untyped).collect(),
            node: self.nodes,
            ..GraphProto::default()
        };
        let (count, direction) = (self.sequences.len(), i64::from(backwards));
        let attributes = [
            attr_graph("body", body),
            attr_int("num_scan_inputs", count as i64),
            attr_ints("scan_input_directions", &vec![direction; count]),
            attr_ints("scan_output_directions", &vec![direction; self.collected.len()]),
        ];
        let states = self.states.iter().map(|state| state.initial.as_str());
        let inputs: Vec<&str> =
            states.chain(self.sequences.iter().map(|(sequence, _)| sequence.as_str())).collect();
        let mut outputs = emitter.op_with_outputs("Scan", &inputs, &attributes, results.len());
        let collected = outputs.split_off(self.states.len());
        (outputs, collected)
    }
}
