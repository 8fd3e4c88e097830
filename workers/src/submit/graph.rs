//! A job graph as a user writes it in Rust.

use super::training::Training;
use crate::functions::GraphNumber;

/// Attempts after the first that a node without training gets.
pub(super) const NODE_RETRIES: u32 = 2;

/// A graph of named nodes, given to [`Client::submit`](crate::client::Client::submit). Most jobs are
/// [of one training](Self::of_training); others are built node by node:
///
/// ```
/// # use syncline_workers::submit::{JobGraph, Model, Training};
/// # use syncline_scheduler::spec::Source;
/// let data = Source::idx("train-images.gz", "train-labels.gz");
/// let model = Model::ready(b"the bytes of a training graph".to_vec());
/// let mut job = JobGraph::new("digits");
/// let train = job.train("train", Training::new(model, data).with(|s| s.epochs = 20));
/// let test = job.evaluate("test", &train);
/// job.snapshot("weights", &train);
/// job.node_mut(&test).retries = 5;
/// ```
#[derive(Debug, Clone)]
pub struct JobGraph {
    /// Id of the job; whether it is a name shows at submission.
    pub id: String,
    /// In the order in which they were added, which says nothing about when they run.
    pub nodes: Vec<GraphNode>,
    number: GraphNumber,
}

/// One node of a [`JobGraph`].
#[derive(Debug, Clone)]
pub struct GraphNode {
    /// Its own within the graph, which shows at submission.
    pub name: String,
    /// Nodes that come before this one.
    pub after: Vec<String>,
    /// Attempts after the first; a training node, whose iterations are repeated singly, has no use for them.
    pub retries: u32,
    /// What is done when all nodes of `after` are done.
    pub work: NodeWork,
}

/// What a node does.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum NodeWork {
    /// Trains a model; a graph needs exactly one such node.
    Train(Box<Training>),
    /// Measures loss and metrics on the test set of the data.
    Evaluate,
    /// Writes the parameters as safetensors.
    Snapshot,
}

/// A node of the graph that made it, or of a clone of that graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeHandle {
    graph: GraphNumber,
    node: usize,
}

impl JobGraph {
    /// An empty graph; `id` is the name of the job.
    pub fn new(id: impl Into<String>) -> Self {
        Self::of_nodes(id.into(), Vec::new())
    }

    /// Trains, and tests what came of it where the data has a test part: the nodes are `train` and `test`.
    /// What was learned is kept in any case, for [`Client::weights`](crate::client::Client::weights); a
    /// [snapshot](Self::snapshot) is a file of its own.
    pub fn of_training(id: impl Into<String>, training: Training) -> Self {
        let mut graph = Self::new(id);
        let has_test = training.data.has_test();
        let train = graph.train("train", training);
        if has_test {
            graph.evaluate("test", &train);
        }
        graph
    }

    pub(super) fn of_nodes(id: String, nodes: Vec<GraphNode>) -> Self {
        Self { id, nodes, number: GraphNumber::next() }
    }

    /// Adds the training node.
    pub fn train(&mut self, name: &str, training: Training) -> NodeHandle {
        self.add(name, None, NodeWork::Train(Box::new(training)))
    }

    /// Adds a node that measures loss and metrics on the test set of the data, when `after` is done.
    ///
    /// # Panics
    /// If `after` is of another graph.
    pub fn evaluate(&mut self, name: &str, after: &NodeHandle) -> NodeHandle {
        self.add(name, Some(after), NodeWork::Evaluate)
    }

    /// Adds a node that writes the parameters as safetensors, when `after` is done.
    ///
    /// # Panics
    /// If `after` is of another graph.
    pub fn snapshot(&mut self, name: &str, after: &NodeHandle) -> NodeHandle {
        self.add(name, Some(after), NodeWork::Snapshot)
    }

    fn add(&mut self, name: &str, after: Option<&NodeHandle>, work: NodeWork) -> NodeHandle {
        let after = after.map(|node| self.node_mut(node).name.clone()).into_iter().collect();
        self.nodes.push(GraphNode { name: name.to_owned(), after, retries: NODE_RETRIES, work });
        NodeHandle { graph: self.number, node: self.nodes.len() - 1 }
    }

    /// A node of this graph, to be changed.
    ///
    /// # Panics
    /// If the handle is of another graph.
    pub fn node_mut(&mut self, node: &NodeHandle) -> &mut GraphNode {
        assert!(node.graph == self.number, "a node of another graph was named in graph `{}`", self.id);
        &mut self.nodes[node.node]
    }

    /// The training nodes, to be changed.
    pub fn trainings_mut(&mut self) -> impl Iterator<Item = &mut Training> {
        self.nodes.iter_mut().filter_map(|node| match &mut node.work {
            NodeWork::Train(training) => Some(&mut **training),
            NodeWork::Evaluate | NodeWork::Snapshot => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::Model;
    use syncline_scheduler::spec::{DataSpec, Source, Split};

    fn graph(id: &str) -> (JobGraph, NodeHandle) {
        let data = DataSpec::new(Source::csv("rows.csv"));
        let mut job = JobGraph::new(id);
        let train = job.train("train", Training::new(Model::ready(Vec::new()), data));
        (job, train)
    }

    #[test]
    fn a_job_of_one_training_tests_where_there_is_something_to_test_on() {
        let nodes = |data: DataSpec| -> Vec<(String, Vec<String>)> {
            let job = JobGraph::of_training("one", Training::new(Model::ready(Vec::new()), data));
            job.nodes.into_iter().map(|node| (node.name, node.after)).collect()
        };
        let data = DataSpec::new(Source::csv("rows.csv"));
        let train = ("train".to_owned(), Vec::new());
        let test = ("test".to_owned(), vec!["train".to_owned()]);
        let with_test = data.clone().with(|d| d.split = Split::TestEvery(5));
        assert_eq!(nodes(with_test), [train.clone(), test]);
        assert_eq!(nodes(data), [train]);
    }

    #[test]
    fn a_handle_names_its_node_in_its_graph_and_in_clones_of_it() {
        let (job, train) = graph("one");
        let mut job = job.clone();
        job.evaluate("test", &train);
        assert_eq!(job.nodes[1].after, ["train"]);
    }

    #[test]
    #[should_panic(expected = "a node of another graph was named in graph `two`")]
    fn a_handle_of_another_graph_is_refused() {
        let (_, train) = graph("one");
        graph("two").0.evaluate("test", &train);
    }
}
