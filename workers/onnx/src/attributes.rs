//! Attributes of nodes: making them and reading them.

use crate::proto::{
    ATTRIBUTE_FLOAT, ATTRIBUTE_GRAPH, ATTRIBUTE_INT, ATTRIBUTE_INTS, ATTRIBUTE_STRING, AttributeProto,
    GraphProto, NodeProto,
};

/// An integer attribute.
pub fn attr_int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { name: name.to_owned(), i: Some(value), kind: ATTRIBUTE_INT, ..Default::default() }
}

/// A float attribute.
pub fn attr_float(name: &str, value: f32) -> AttributeProto {
    AttributeProto { name: name.to_owned(), f: Some(value), kind: ATTRIBUTE_FLOAT, ..Default::default() }
}

/// An attribute that is a list of integers.
pub fn attr_ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        ints: values.to_vec(),
        kind: ATTRIBUTE_INTS,
        ..Default::default()
    }
}

/// An attribute that is a graph: a branch, or the body of a loop.
pub fn attr_graph(name: &str, value: GraphProto) -> AttributeProto {
    AttributeProto { name: name.to_owned(), g: Some(value), kind: ATTRIBUTE_GRAPH, ..Default::default() }
}

/// A string attribute.
pub fn attr_string(name: &str, value: &str) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        s: Some(value.as_bytes().to_vec()),
        kind: ATTRIBUTE_STRING,
        ..Default::default()
    }
}

impl AttributeProto {
    /// The graphs that it holds: a branch, or the body of a loop.
    pub fn subgraphs(&self) -> impl Iterator<Item = &GraphProto> {
        self.g.iter().chain(&self.graphs)
    }

    /// The same, to be changed.
    pub fn subgraphs_mut(&mut self) -> impl Iterator<Item = &mut GraphProto> {
        self.g.iter_mut().chain(&mut self.graphs)
    }
}

/// Operators that draw random numbers each time they run.
const DRAWS: [&str; 7] = [
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
];

impl NodeProto {
    /// The graphs inside of it.
    pub fn subgraphs(&self) -> impl Iterator<Item = &GraphProto> {
        self.attribute.iter().flat_map(AttributeProto::subgraphs)
    }

    /// The same, to be changed.
    pub fn subgraphs_mut(&mut self) -> impl Iterator<Item = &mut GraphProto> {
        self.attribute.iter_mut().flat_map(AttributeProto::subgraphs_mut)
    }

    /// Whether it draws random numbers each time it runs; a `Dropout` may be told not to.
    pub fn draws(&self) -> bool {
        self.domain.is_empty() && DRAWS.contains(&self.op_type.as_str())
    }

    /// The integer attribute `name`, or `default` if the node does not state it. One that is stated without a
    /// value is 0, which writers of proto3 leave out.
    pub fn int(&self, name: &str, default: i64) -> i64 {
        let stated = self.attribute(name);
        stated.and_then(|it| it.i.or((it.kind == ATTRIBUTE_INT).then_some(0))).unwrap_or(default)
    }

    /// The float attribute `name`, or `default` if the node does not state it. One that is stated without a
    /// value is 0, as for integers.
    pub fn float(&self, name: &str, default: f32) -> f32 {
        let stated = self.attribute(name);
        stated.and_then(|it| it.f.or((it.kind == ATTRIBUTE_FLOAT).then_some(0.0))).unwrap_or(default)
    }

    /// The list of integers `name`, if the node states it.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|attribute| attribute.ints.as_slice())
    }

    /// The string attribute `name`, or `default` if the node does not state it or it is no text.
    pub fn string<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        let bytes = self.attribute(name).and_then(|attribute| attribute.s.as_deref());
        bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or(default)
    }

    /// The name to show to people: the node's own, else that of its first output.
    pub fn label(&self) -> &str {
        match (self.name.is_empty(), self.output.first()) {
            (true, Some(output)) => output,
            _ => &self.name,
        }
    }

    /// The attribute `name` as it stands; `None` if the node does not state it.
    pub fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.attribute.iter().find(|attribute| attribute.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stated_without_a_value_is_zero_and_what_is_not_stated_the_default() {
        let stated = |kind: i32| AttributeProto { name: "a".to_owned(), kind, ..Default::default() };
        #[rustfmt::skip]
        // attributes, as an integer, as a float
        let cases: [(&str, &[AttributeProto], i64, f32); 5] = [
            ("not stated",          &[],                        7, 7.0),
            ("an integer of proto3", &[stated(ATTRIBUTE_INT)],   0, 7.0),
            ("a float of proto3",   &[stated(ATTRIBUTE_FLOAT)], 7, 0.0),
            ("an integer",          &[attr_int("a", 3)],        3, 7.0),
            ("a float",             &[attr_float("a", 0.5)],    7, 0.5),
        ];
        for (name, attributes, int, float) in cases {
            let node = NodeProto::unnamed("Op", &[], attributes);
            assert_eq!((node.int("a", 7), node.float("a", 7.0)), (int, float), "{name}");
        }
    }
}
