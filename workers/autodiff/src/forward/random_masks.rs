//! Dropout that exporters write as random numbers: of channels, of rows, of whole branches.
//!
//! `nn.Dropout2d`, `StochasticDepth` and `DropPath` have no operator of their own. In a file they are a mask
//! that is true with the probability p, `uniform < p`, as a number, most often divided by p, times what is
//! dropped. [`keep_all`] makes such a mask true everywhere, and the division one by 1: that is what these
//! modules do where they evaluate.

use std::collections::{HashMap, HashSet};

use syncline_onnx::ElementType;
use syncline_onnx::captured;
use syncline_onnx::proto::{ATTRIBUTE_TENSOR, AttributeProto, GraphProto, NodeProto, TensorProto};

/// How far the factor of a mask may be from one over its probability: it may have been rounded.
const ROUNDED: f32 = 1e-3;
/// How often a mask without a factor is true at least.
const LEAST_KEPT: f32 = 0.5;

/// Lets every random mask of the graph keep everything; returns whether there was one.
pub(super) fn keep_all(graph: &mut GraphProto) -> bool {
    let masks: Vec<Mask> = Readers::of(graph).masks();
    let mut removed = HashSet::new();
    let mut added = Vec::new();
    for mask in &masks {
        let node = &mut graph.node[mask.compared];
        let shape = format!("{}/shape", node.output[0]);
        let drawn = &graph.node[mask.drawn];
        match drawn.input.first() {
            Some(like) => added.push((mask.drawn, NodeProto::named(&shape, "Shape", &[like], &[]))),
            None => {
                let sizes = drawn.ints("shape").unwrap_or_default().to_vec();
                graph.initializer.push(TensorProto::from_i64(&shape, &[sizes.len()], &sizes));
            }
        }
        let value = AttributeProto {
            name: "value".to_owned(),
            kind: ATTRIBUTE_TENSOR,
            t: Some(TensorProto { dims: vec![1], ..TensorProto::from_bool("", true) }),
            ..AttributeProto::default()
        };
        let node = &mut graph.node[mask.compared];
        *node = NodeProto {
            attribute: vec![value],
            input: vec![shape],
            op_type: "ConstantOfShape".to_owned(),
            ..node.clone()
        };
        for &scaled in &mask.scaled {
            let node = &mut graph.node[scaled.node];
            let kept = node.input[scaled.position].clone();
            *node = NodeProto {
                attribute: Vec::new(),
                input: vec![kept],
                op_type: "Identity".to_owned(),
                ..node.clone()
            };
        }
        removed.extend(mask.idle.iter().copied().chain([mask.drawn]));
    }
    let mut nodes = Vec::with_capacity(graph.node.len());
    let mut added = added.into_iter().collect::<HashMap<_, _>>();
    for (at, node) in std::mem::take(&mut graph.node).into_iter().enumerate() {
        nodes.extend(added.remove(&at));
        if !removed.contains(&at) {
            nodes.push(node);
        }
    }
    graph.node = nodes;
    !masks.is_empty()
}

/// The nodes of a graph, inner graphs included, that draw random numbers and are no Dropout.
pub(crate) fn random_nodes(graph: &GraphProto) -> Vec<&NodeProto> {
    let mut found = Vec::new();
    for node in &graph.node {
        found.extend((node.draws() && node.op_type != "Dropout").then_some(node));
        node.subgraphs().for_each(|inner| found.extend(random_nodes(inner)));
    }
    found
}

/// Whether the graph has random masks.
pub(super) fn has_masks(graph: &GraphProto) -> bool {
    !Readers::of(graph).masks().is_empty()
}

/// An operand of a node.
#[derive(Clone, Copy)]
struct Operand {
    node: usize,
    position: usize,
}

/// Nodes of one mask, by their places in the graph.
struct Mask {
    drawn: usize,
    compared: usize,
    /// Where the mask is multiplied by one over its probability.
    scaled: Vec<Operand>,
    /// What only takes the type of the random numbers, and is read by the comparison alone.
    idle: Vec<usize>,
}

struct Readers<'g> {
    graph: &'g GraphProto,
    producers: HashMap<&'g str, usize>,
    readers: HashMap<&'g str, Vec<Operand>>,
    /// What leaves the graph, or is read inside of a node.
    elsewhere: HashSet<&'g str>,
}

impl<'g> Readers<'g> {
    fn of(graph: &'g GraphProto) -> Self {
        let mut readers: HashMap<&str, Vec<Operand>> = HashMap::new();
        let mut elsewhere: HashSet<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
        let mut producers = HashMap::new();
        for (at, node) in graph.node.iter().enumerate() {
            for (position, name) in node.input.iter().enumerate() {
                readers.entry(name).or_default().push(Operand { node: at, position });
            }
            producers.extend(node.output.iter().map(|output| (output.as_str(), at)));
            elsewhere.extend(captured(node));
        }
        Self { graph, producers, readers, elsewhere }
    }

    fn masks(&self) -> Vec<Mask> {
        let draws = |node: &NodeProto| {
            let uniform = ["RandomUniform", "RandomUniformLike"].contains(&node.op_type.as_str());
            uniform && node.float("low", 0.0) == 0.0 && node.float("high", 1.0) == 1.0
        };
        let nodes = self.graph.node.iter().enumerate();
        nodes.filter(|(_, node)| draws(node)).filter_map(|(at, _)| self.mask(at)).collect()
    }

    /// The mask that is made of random numbers, if nothing else is.
    fn mask(&self, drawn: usize) -> Option<Mask> {
        let mut found = None;
        let mut idle = Vec::new();
        for operand in self.readers_of(drawn)? {
            let node = &self.graph.node[operand.node];
            match (node.op_type.as_str(), operand.position) {
                ("CastLike", 1) => idle.push(operand.node),
                ("Less" | "LessOrEqual", 0) | ("Greater" | "GreaterOrEqual", 1) if found.is_none() => {
                    found = Some(*operand);
                }
                _ => return None,
            }
        }
        let compared = found?;
        let only_here = |at: &usize| {
            self.readers_of(*at)
                .is_some_and(|readers| readers.iter().all(|reader| reader.node == compared.node))
        };
        if !idle.iter().all(only_here) {
            return None;
        }
        let kept = self.number(self.graph.node[compared.node].input.get(1 - compared.position)?)?;
        let mut scaled = Vec::new();
        for cast in self.readers_of(compared.node)? {
            let number = ["Cast", "CastLike"].contains(&self.graph.node[cast.node].op_type.as_str());
            if !(number && cast.position == 0) {
                return None;
            }
            for operand in self.readers_of(cast.node)? {
                match self.factor(*operand) {
                    Some(factor) if (factor * kept - 1.0).abs() < ROUNDED => {
                        self.multiplies(operand.node)?;
                        scaled.push(*operand);
                    }
                    Some(_) => return None,
                    None if self.drops(*operand, kept) => {}
                    None => return None,
                }
            }
        }
        Some(Mask { drawn, compared: compared.node, scaled, idle })
    }

    /// Whether a node multiplies something with a mask that is scaled nowhere. One that is scaled before or
    /// behind would keep its factor; and a mask that is seldom true is no Dropout, but noise.
    fn drops(&self, mask: Operand, kept: f32) -> bool {
        let node = &self.graph.node[mask.node];
        if node.op_type != "Mul" || kept < LEAST_KEPT {
            return false;
        }
        let scales = |operand: Operand| {
            self.factor(operand).is_some_and(|factor| (factor * kept - 1.0).abs() < ROUNDED)
        };
        let other =
            node.input.get(1 - mask.position.min(1)).and_then(|name| self.producers.get(name.as_str()));
        let made_scaled = other.is_some_and(|&other| {
            (0..self.graph.node[other].input.len()).any(|position| scales(Operand { node: other, position }))
        });
        let readers = node.output.first().and_then(|output| self.readers.get(output.as_str()));
        !made_scaled && !readers.is_some_and(|readers| readers.iter().any(|reader| scales(*reader)))
    }

    /// Who reads the one result of a node; `None` if it is read elsewhere, or by nobody.
    fn readers_of(&self, node: usize) -> Option<&[Operand]> {
        let [output] = self.graph.node[node].output.as_slice() else { return None };
        let here = !self.elsewhere.contains(output.as_str());
        self.readers.get(output.as_str()).filter(|_| here).map(Vec::as_slice)
    }

    /// The constant by which a node multiplies this operand.
    fn factor(&self, operand: Operand) -> Option<f32> {
        let node = &self.graph.node[operand.node];
        let other = || self.number(node.input.get(1 - operand.position.min(1))?);
        match (node.op_type.as_str(), operand.position) {
            ("Div", 0) => other().map(f32::recip),
            ("Mul", _) => other(),
            _ => None,
        }
    }

    /// Whether the result of a node is multiplied with something, wherever it is read.
    fn multiplies(&self, node: usize) -> Option<()> {
        self.readers_of(node)?
            .iter()
            .all(|reader| self.graph.node[reader.node].op_type == "Mul")
            .then_some(())
    }

    /// The one number of a constant.
    fn number(&self, name: &str) -> Option<f32> {
        const SAME_NUMBER: [&str; 6] = ["Identity", "Cast", "CastLike", "Reshape", "Squeeze", "Unsqueeze"];
        let mut name = name;
        let tensor = loop {
            match self.producers.get(name).map(|&at| &self.graph.node[at]) {
                Some(node) if SAME_NUMBER.contains(&node.op_type.as_str()) => name = node.input.first()?,
                Some(node) if node.op_type == "Constant" => {
                    let attribute = node.attribute.first()?;
                    match attribute.name.as_str() {
                        "value" => break attribute.t.as_ref()?,
                        "value_float" => return attribute.f,
                        "value_floats" => {
                            return attribute.floats.first().copied().filter(|_| attribute.floats.len() == 1);
                        }
                        _ => return None,
                    }
                }
                Some(_) => return None,
                None => break self.graph.initializer.iter().find(|tensor| tensor.name == name)?,
            }
        };
        let number = match (tensor.element(), &tensor.raw_data) {
            (ElementType::F64, Some(raw)) => *raw.as_chunks::<8>().0.first()?,
            (ElementType::F64, None) => tensor.double_data.first()?.to_le_bytes(),
            _ => return tensor.to_f32().ok().filter(|numbers| numbers.len() == 1)?.first().copied(),
        };
        (tensor.shape().iter().product::<usize>() == 1).then(|| f64::from_le_bytes(number) as f32)
    }
}

#[cfg(test)]
mod tests {
    use syncline_onnx::{GraphBuilder, attr_float, attr_int};

    use super::*;

    /// y = x * (mask / kept) as `then` writes it, mask = uniform < 0.75 as numbers.
    fn graph(then: impl FnOnce(&mut GraphBuilder, &str, &str) -> String) -> GraphProto {
        let mut graph = GraphBuilder::new("masks");
        let x = graph.input("x", ElementType::F32, &[2.into(), 3.into()]);
        let drawn = graph.named("drawn", "RandomUniformLike", &[&x], &[attr_int("dtype", 1)]);
        let p = graph.constant(TensorProto::from_f64("p", &[], &[0.75]));
        let p = graph.named("p_like", "CastLike", &[&p, &drawn], &[]);
        let kept = graph.named("kept", "Less", &[&drawn, &p], &[]);
        let mask = graph.named("mask", "Cast", &[&kept], &[attr_int("to", 1)]);
        let y = then(&mut graph, &x, &mask);
        graph.output(&y);
        graph.finish().graph.unwrap()
    }

    fn written(graph: &GraphProto) -> Vec<String> {
        let line = |node: &NodeProto| format!("{}({})", node.op_type, node.input.join(","));
        graph.node.iter().map(line).collect()
    }

    #[test]
    fn a_mask_keeps_everything_and_is_not_scaled() {
        let mut divided = graph(|g, x, mask| {
            let c = g.constant(TensorProto::from_f32("c", &[], &[0.75]));
            let scaled = g.named("scaled", "Div", &[mask, &c], &[]);
            g.op("Mul", &[x, &scaled], &[])
        });
        assert!(has_masks(&divided) && keep_all(&mut divided) && !has_masks(&divided));
        let want =
            ["Shape(x)", "ConstantOfShape(kept/shape)", "Cast(kept)", "Identity(mask)", "Mul(x,scaled)"];
        assert_eq!(written(&divided), want);
        assert!(random_nodes(&divided).is_empty());

        let mut multiplied = graph(|g, x, mask| {
            let c = g.constant(TensorProto::from_f32("c", &[1], &[1.333_333]));
            let scaled = g.named("scaled", "Mul", &[&c, mask], &[]);
            g.op("Mul", &[&scaled, x], &[])
        });
        assert!(keep_all(&mut multiplied));
        assert!(written(&multiplied).contains(&"Identity(mask)".to_owned()));
        let mut plain = graph(|g, x, mask| g.op("Mul", &[x, mask], &[]));
        assert!(keep_all(&mut plain));
        // As PyTorch writes its numbers where nothing is folded.
        let constant =
            |name: &str| NodeProto::named(name, "Constant", &[], &[attr_float("value_float", 0.75)]);
        let mut unfolded = graph(|g, x, mask| {
            let scaled = g.named("scaled", "Div", &[mask, "kept_share"], &[]);
            g.op("Mul", &[x, &scaled], &[])
        });
        unfolded.initializer.retain(|tensor| tensor.name != "p");
        unfolded.node.splice(0..0, [constant("p"), constant("kept_share")]);
        assert!(has_masks(&unfolded) && keep_all(&mut unfolded));
        assert!(written(&unfolded).contains(&"Identity(mask)".to_owned()), "{:?}", written(&unfolded));
    }

    #[test]
    fn random_numbers_that_are_anything_else_stay() {
        let noise = |g: &mut GraphBuilder, x: &str, mask: &str| {
            let drawn = g.op("Add", &["drawn", mask], &[]);
            g.op("Mul", &[x, &drawn], &[])
        };
        let of_another_scale = |g: &mut GraphBuilder, x: &str, mask: &str| {
            let c = g.constant(TensorProto::from_f32("c", &[], &[0.5]));
            let scaled = g.op("Div", &[mask, &c], &[]);
            g.op("Mul", &[x, &scaled], &[])
        };
        let added = |g: &mut GraphBuilder, x: &str, mask: &str| g.op("Add", &[x, mask], &[]);
        let scaled_before = |g: &mut GraphBuilder, x: &str, mask: &str| {
            let c = g.constant(TensorProto::from_f32("c", &[], &[0.75]));
            let scaled = g.op("Div", &[x, &c], &[]);
            g.op("Mul", &[&scaled, mask], &[])
        };
        let scaled_behind = |g: &mut GraphBuilder, x: &str, mask: &str| {
            let c = g.constant(TensorProto::from_f32("c", &[], &[0.75]));
            let dropped = g.op("Mul", &[x, mask], &[]);
            g.op("Div", &[&dropped, &c], &[])
        };
        let left =
            [graph(noise), graph(of_another_scale), graph(added), graph(scaled_before), graph(scaled_behind)];
        for mut graph in left {
            let before = graph.clone();
            assert!(!keep_all(&mut graph));
            assert!(graph == before && random_nodes(&graph).len() == 1);
        }
        let mut from_one_half = graph(|g, x, mask| g.op("Mul", &[x, mask], &[]));
        from_one_half.node[0].attribute.push(attr_float("low", 0.5));
        assert!(!keep_all(&mut from_one_half));
    }
}
