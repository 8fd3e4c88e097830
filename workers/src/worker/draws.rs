//! Random numbers of a training graph, such as the masks of Dropout: each worker draws its own, and so does
//! each part of a batch.
//!
//! ONNX Runtime gives a node that draws a generator that begins with the node's seed and goes on run by run.
//! Sessions of one graph would all draw the same. So each session is loaded with seeds of its own, which
//! follow from those of the graph, or from the job's where a node has none, from the worker's number in the
//! job and from the part: the same again in the next run of the job. Nodes of one seed, as recomputation
//! makes them, keep one seed.

use syncline_onnx::{
    self as onnx, OnnxError, attr_float, attr_int,
    proto::{AttributeProto, GraphProto, NodeProto},
};
use syncline_scheduler::samples::splitmix64;

/// Whose random numbers they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DrawStream {
    /// That of the job.
    pub seed: u64,
    /// The worker's number in the job.
    pub worker: u32,
    /// Which part of a batch, from 0.
    pub part: u32,
}

impl DrawStream {
    /// The graph with the seeds of this stream; `None` if it draws nothing.
    pub(super) fn graph(self, train_onnx: &[u8]) -> Result<Option<Vec<u8>>, OnnxError> {
        let mut model = onnx::parse(train_onnx)?;
        let mut found = 0;
        self.reseed(model.graph.get_or_insert_default(), &mut found);
        Ok((found > 0).then(|| model.to_bytes()))
    }

    /// Also in branches and loops. `found`: nodes before that draw.
    fn reseed(self, graph: &mut GraphProto, found: &mut u64) {
        for node in &mut graph.node {
            node.subgraphs_mut().for_each(|inner| self.reseed(inner, found));
            if node.draws() {
                *found += 1;
                let seed = self.seed_of(node, *found);
                node.attribute.retain(|attribute| attribute.name != "seed");
                node.attribute.push(seed);
            }
        }
    }

    fn seed_of(self, node: &NodeProto, nth: u64) -> AttributeProto {
        let stated = node.attribute("seed");
        let of_float = || stated?.f.map(|seed| u64::from(seed.to_bits()));
        let own = stated.and_then(|seed| seed.i.map(|seed| seed as u64)).or_else(of_float);
        let mixed = [own.unwrap_or(self.seed), own.map_or(nth, |_| 0), self.worker.into(), self.part.into()]
            .into_iter()
            .fold(0, |mut mixed, number| {
                mixed ^= number;
                splitmix64(&mut mixed)
            });
        match node.op_type.as_str() {
            // An integer, of which the kernel takes 32 bits, and counts up from there.
            "Dropout" => attr_int("seed", (mixed >> 33) as i64),
            // A float. Whole numbers up to here are exact.
            _ => attr_float("seed", (mixed >> 40) as f32),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use syncline_onnx::{ModelProto, proto::TensorProto};

    use super::*;

    const FIRST: DrawStream = DrawStream { seed: 7, worker: 0, part: 0 };

    /// The nodes read `x`, and each has a value of its own.
    fn model(mut nodes: Vec<NodeProto>) -> Vec<u8> {
        for (n, node) in nodes.iter_mut().enumerate() {
            node.output = vec![format!("y{n}")];
        }
        let initializer = vec![TensorProto::from_f32("x", &[1], &[1.0])];
        let graph = GraphProto { node: nodes, initializer, ..GraphProto::default() };
        ModelProto { graph: Some(graph), ..ModelProto::default() }.to_bytes()
    }

    fn node(op: &str, seed: Option<AttributeProto>) -> NodeProto {
        NodeProto::named("y", op, &["x"], &seed.into_iter().collect::<Vec<_>>())
    }

    fn seeds(stream: DrawStream, model: &[u8]) -> Vec<(Option<i64>, Option<f32>)> {
        let graph = onnx::parse(&stream.graph(model).unwrap().unwrap()).unwrap().graph.unwrap();
        graph.node.iter().map(|node| node.attribute("seed").map_or((None, None), |a| (a.i, a.f))).collect()
    }

    #[test]
    fn every_worker_and_every_part_draws_its_own_and_the_same_again() {
        let model = model(vec![node("Dropout", Some(attr_int("seed", 3)))]);
        let mut all = BTreeSet::new();
        for worker in 0..20 {
            for part in 0..4 {
                let stream = DrawStream { worker, part, ..FIRST };
                assert_eq!(seeds(stream, &model), seeds(stream, &model));
                all.insert(seeds(stream, &model)[0].0.unwrap());
            }
        }
        assert_eq!(all.len(), 80);
        assert!(all.iter().all(|seed| (0..1 << 31).contains(seed)), "{all:?}");
    }

    #[test]
    fn nodes_of_one_seed_keep_one_and_others_stay_others() {
        let dropout = |seed| node("Dropout", Some(attr_int("seed", seed)));
        let got = seeds(FIRST, &model(vec![dropout(3), dropout(4), dropout(3), node("Relu", None)]));
        assert_eq!(got[0], got[2]);
        assert_ne!(got[0], got[1]);
        assert_eq!(got[3], (None, None));
    }

    #[test]
    fn a_node_without_a_seed_gets_one_that_follows_from_the_jobs() {
        let noise = || node("RandomNormalLike", None);
        let model = model(vec![noise(), noise(), node("RandomUniform", Some(attr_float("seed", 1.0)))]);
        let got = seeds(FIRST, &model);
        assert_eq!(got.iter().map(|(_, seed)| seed.unwrap().to_bits()).collect::<BTreeSet<_>>().len(), 3);
        assert_ne!(got[..2], seeds(DrawStream { seed: 8, ..FIRST }, &model)[..2]);
    }

    #[test]
    fn a_branch_draws_its_own_as_well_and_a_graph_that_draws_nothing_stays_as_it_is() {
        let inner =
            GraphProto { node: vec![node("Dropout", Some(attr_int("seed", 3)))], ..GraphProto::default() };
        let branch = AttributeProto {
            name: "then_branch".into(),
            g: Some(inner),
            kind: 5,
            ..AttributeProto::default()
        };
        let whole = model(vec![node("If", Some(branch))]);
        let seed = |worker| {
            let stream = DrawStream { worker, ..FIRST };
            let graph = onnx::parse(&stream.graph(&whole).unwrap().unwrap()).unwrap().graph.unwrap();
            graph.node[0].attribute[0].g.as_ref().unwrap().node[0].int("seed", 0)
        };
        assert_ne!(seed(0), seed(1));
        assert_eq!(FIRST.graph(&model(vec![node("Relu", None)])).unwrap(), None);
    }
}
