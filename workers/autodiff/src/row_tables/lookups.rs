//! Which tables a graph looks rows up in, and by which inputs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use syncline_onnx::proto::{GraphProto, NodeProto};
use syncline_onnx::{ElementType, Types, captured};

use crate::forward::looks_for_padding;

/// Operators behind which ids are the same ids.
const PASSING: [&str; 8] =
    ["Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand"];

/// Who reads what.
pub(super) struct Lookups<'g> {
    readers: HashMap<&'g str, Vec<(&'g NodeProto, usize)>>,
    /// Values that leave the graph, or that the body of a node reads.
    elsewhere: BTreeSet<&'g str>,
    makers: HashMap<&'g str, &'g NodeProto>,
    /// Data inputs of integers.
    ids: BTreeSet<&'g str>,
}

impl<'g> Lookups<'g> {
    pub(super) fn of(graph: &'g GraphProto, types: &Types, data_inputs: &'g [String]) -> Self {
        let mut readers: HashMap<&str, Vec<(&NodeProto, usize)>> = HashMap::new();
        let mut elsewhere: BTreeSet<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
        let mut makers = HashMap::new();
        for node in &graph.node {
            for (slot, input) in node.input.iter().enumerate() {
                readers.entry(input).or_default().push((node, slot));
            }
            makers.extend(node.output.iter().map(|output| (output.as_str(), node)));
        }
        let names: BTreeSet<&str> = makers.keys().copied().collect();
        let data = data_inputs.iter().map(String::as_str);
        let held: BTreeSet<&str> = graph.input.iter().map(|input| input.name.as_str()).collect();
        for name in graph.node.iter().flat_map(captured) {
            elsewhere.extend(names.get(name).or_else(|| held.get(name)));
        }
        let is_integer = |name: &&str| {
            types.get(*name).is_some_and(|ty| {
                !ty.dims.is_empty() && matches!(ty.element, ElementType::I32 | ElementType::I64)
            })
        };
        Self { readers, elsewhere, makers, ids: data.filter(is_integer).collect() }
    }

    fn readers(&self, value: &str) -> &[(&'g NodeProto, usize)] {
        self.readers.get(value).map_or(&[], Vec::as_slice)
    }

    /// Whether some node looks rows of this parameter up.
    pub(super) fn reads_rows(&self, table: &str) -> bool {
        self.readers(table).iter().any(|(node, slot)| (node.op_type.as_str(), *slot) == ("Gather", 0))
    }

    /// The inputs that choose rows of a table; why it cannot be trained by rows, if it cannot.
    pub(super) fn inputs_of(&self, table: &str, shape: &[usize]) -> Result<BTreeSet<&'g str>, String> {
        let rows = shape.first().and_then(|rows| u32::try_from(*rows).ok());
        if shape.contains(&0) || rows.is_none() {
            return Err(format!("its shape is {shape:?}"));
        }
        if self.elsewhere.contains(table) {
            return Err("more than a lookup reads it".to_owned());
        }
        let mut inputs = BTreeSet::new();
        for (node, slot) in self.readers(table) {
            let axis = node.int("axis", 0);
            let by_row = axis == 0 || axis == -(shape.len() as i64);
            if node.op_type != "Gather" || *slot != 0 || !by_row {
                return Err(format!(
                    "node `{}` ({}) reads it, which is no lookup of rows",
                    node.label(),
                    node.op_type
                ));
            }
            inputs.insert(
                self.origin(&node.input[1])
                    .ok_or_else(|| {
                        format!(
                            "the ids of node `{}` are no input of integers, but floats, computed, or a part of an input: give each \
                             kind of id an input of its own (a safetensors file has an array for each)",
                            node.label()
                        )
                    })?,
            );
        }
        if inputs.is_empty() {
            return Err("nothing looks its rows up".to_owned());
        }
        Ok(inputs)
    }

    /// The data input that ids come from.
    fn origin(&self, mut ids: &'g str) -> Option<&'g str> {
        loop {
            if let Some(input) = self.ids.get(ids) {
                return Some(input);
            }
            let maker = self.makers.get(ids).filter(|node| PASSING.contains(&node.op_type.as_str()))?;
            ids = maker.input.first()?;
        }
    }

    /// Drops tables until all that are left agree with each other: what drops one may drop others.
    pub(super) fn settle(
        &self,
        found: &mut Vec<(&str, BTreeSet<&'g str>)>,
        whole: &mut Vec<(String, String)>,
    ) {
        loop {
            let tables: BTreeMap<&str, &BTreeSet<&str>> =
                found.iter().map(|(table, inputs)| (*table, inputs)).collect();
            let fault = |inputs: &BTreeSet<&'g str>| {
                inputs.iter().find_map(|input| self.fault(input, inputs, &tables))
            };
            let dropped = found.iter().enumerate().find_map(|(at, (_, inputs))| Some((at, fault(inputs)?)));
            let Some((at, why)) = dropped else { return };
            whole.push((found.remove(at).0.to_owned(), why));
        }
    }

    /// What else is done with the ids of an input than to look rows up in `tables` that have the same
    /// `inputs`.
    fn fault(
        &self,
        input: &str,
        inputs: &BTreeSet<&str>,
        tables: &BTreeMap<&str, &BTreeSet<&str>>,
    ) -> Option<String> {
        let mut values = vec![input];
        while let Some(value) = values.pop() {
            if self.elsewhere.contains(value) {
                return Some(format!("more than lookups reads its ids, input `{input}`"));
            }
            for (node, slot) in self.readers(value) {
                match (node.op_type.as_str(), slot) {
                    ("Gather", 1) => match tables.get(node.input[0].as_str()) {
                        Some(others) if *others == inputs => {}
                        Some(_) => {
                            return Some(format!(
                                "`{}` has the ids of input `{input}` as well, but not the same inputs in all",
                                node.input[0]
                            ));
                        }
                        None => {
                            return Some(format!(
                                "`{}`, which is not by rows, has the ids of input `{input}` as well: `sparse` has to name both, or neither",
                                node.input[0]
                            ));
                        }
                    },
                    ("Shape" | "Size", _) => {}
                    (op, 0) if PASSING.contains(&op) => values.push(&node.output[0]),
                    _ if looks_for_padding(node) => {
                        return Some(format!(
                            "of input `{input}` one id is a table's padding_idx, whose row is held at zeros"
                        ));
                    }
                    (op, _) => {
                        return Some(format!(
                            "node `{}` ({op}) reads its ids, input `{input}`, as well",
                            node.label()
                        ));
                    }
                }
            }
        }
        None
    }
}
