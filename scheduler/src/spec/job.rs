//! A job graph: named nodes and the edges between them, checked before anything else sees it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::TrainSpec;
use crate::{
    fault_code::FaultCode,
    ids::{JobId, NodeName},
};

/// Most nodes a user may write into one graph.
pub const MAX_NODES: usize = 10_000;

/// What a job is: a name and a graph of nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Name of the job: no other one in the cluster has it until this one is replaced or deleted.
    pub id: JobId,
    /// In any order. Exactly one trains, and the others come after it.
    pub nodes: Vec<Node>,
}

/// One node of a job graph. It starts when every node in `after` is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Unique in the graph.
    pub name: NodeName,
    /// Nodes of the same graph that must be done before it starts.
    #[serde(default)]
    pub after: Vec<NodeName>,
    /// Times a failed or abandoned attempt is repeated. Training itself is never repeated.
    #[serde(default = "default_retries")]
    pub retries: u32,
    /// What it does, with the settings for that.
    pub kind: NodeKind,
}

fn default_retries() -> u32 {
    2
}

/// What a node does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    /// Trains a model: a rolling graph of iterations and barriers.
    Train(Box<TrainSpec>),
    /// Runs the evaluation graph over the test set of the training data, on one worker.
    Evaluate,
    /// Writes the parameters as safetensors on the parameter server.
    Snapshot,
}

/// Why a job graph was refused. Nothing of it has been stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidJob {
    /// No node has parameters to give to the others.
    #[error("[E020] job {job} has no training node; a graph needs exactly one")]
    NoTraining {
        /// Job that was refused.
        job: JobId,
    },
    /// It is not clear whose parameters the other nodes would take.
    #[error("[E021] job {job} has {count} training nodes; a graph needs exactly one")]
    ManyTraining {
        /// Job that was refused.
        job: JobId,
        /// Training nodes that it has.
        count: usize,
    },
    /// More than [`MAX_NODES`]; checked before anything else.
    #[error("[E022] job {job} has {count} nodes, at most {MAX_NODES} are allowed")]
    TooManyNodes {
        /// Job that was refused.
        job: JobId,
        /// Nodes that it has.
        count: usize,
    },
    /// Two nodes have the same name.
    #[error("[E023] node {node} appears twice in job {job}")]
    DuplicateNode {
        /// Job that was refused.
        job: JobId,
        /// Name that both have.
        node: NodeName,
    },
    /// An edge begins at a node that is not there.
    #[error("[E024] node {node} comes after {missing}, which is not in the graph of job {job}")]
    UnknownEdge {
        /// Job that was refused.
        job: JobId,
        /// Node that the edge leads to.
        node: NodeName,
        /// Name in its `after` that no node has.
        missing: NodeName,
    },
    /// Nodes wait for each other, so none of them could ever start.
    #[error("[E025] the graph of job {job} has a cycle: {path}")]
    Cycle {
        /// Job that was refused.
        job: JobId,
        /// One of its cycles, as `a -> b -> a`.
        path: String,
    },
    /// A node could start before there are trained parameters.
    #[error("[E026] node {node} of job {job} needs the trained parameters, so it must come after {train}")]
    NotAfterTraining {
        /// Job that was refused.
        job: JobId,
        /// Node that comes after training neither directly nor through others.
        node: NodeName,
        /// The training node.
        train: NodeName,
    },
    /// A setting of the training node is out of its range, or contradicts another.
    #[error("[E027] job {job}: {what}")]
    Setting {
        /// Job that was refused.
        job: JobId,
        /// Which setting, and what was expected instead.
        what: String,
    },
    /// Not even one batch can be filled.
    #[error("[E028] job {job}: batch size {batch} is larger than the training set of {samples} samples")]
    BatchTooLarge {
        /// Job that was refused.
        job: JobId,
        /// Samples per iteration and worker that it asks for.
        batch: u32,
        /// Samples of the training set.
        samples: u64,
    },
    /// The checkpoint was taken under settings that this training does not share, or is no possible one.
    #[error("[E029] job {job} cannot go on from checkpoint {checkpoint} of job {from}: {what}")]
    CannotResume {
        /// Job that was refused.
        job: JobId,
        /// Job whose checkpoint it is.
        from: JobId,
        /// Number of the checkpoint there.
        checkpoint: u64,
        /// What does not fit, in words.
        what: String,
    },
}

impl InvalidJob {
    /// The stable code, see docs/errors.md.
    pub fn code(&self) -> FaultCode {
        FaultCode::new(match self {
            Self::NoTraining { .. } => "E020",
            Self::ManyTraining { .. } => "E021",
            Self::TooManyNodes { .. } => "E022",
            Self::DuplicateNode { .. } => "E023",
            Self::UnknownEdge { .. } => "E024",
            Self::Cycle { .. } => "E025",
            Self::NotAfterTraining { .. } => "E026",
            Self::Setting { .. } => "E027",
            Self::BatchTooLarge { .. } => "E028",
            Self::CannotResume { .. } => "E029",
        })
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::ManyTraining { .. } => {
                "make a job of each, or of all of them a graph in Rust, where trainings are tasks (docs/tasks.md); nothing was stored"
            }
            Self::BatchTooLarge { samples: 0, .. } => {
                "leave samples to train with: `split` and `validation_percent` take all of them (`test_every = 1` is every one); nothing was stored"
            }
            _ => "correct the job and submit it again; nothing was stored",
        };
        Some(hint.to_owned())
    }
}

impl JobSpec {
    /// The training node.
    pub fn train(&self) -> Option<(&Node, &TrainSpec)> {
        self.nodes.iter().find_map(|node| match &node.kind {
            NodeKind::Train(train) => Some((node, &**train)),
            _ => None,
        })
    }

    /// Checks the graph and every setting. Cost O(nodes + edges).
    ///
    /// # Errors
    /// E020 to E029.
    pub fn validate(&self) -> Result<(), InvalidJob> {
        let job = || self.id.clone();
        if self.nodes.len() > MAX_NODES {
            return Err(InvalidJob::TooManyNodes { job: job(), count: self.nodes.len() });
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = self.nodes.iter().find(|n| !names.insert(&n.name)) {
            return Err(InvalidJob::DuplicateNode { job: job(), node: twice.name.clone() });
        }
        for node in &self.nodes {
            if let Some(missing) = node.after.iter().find(|a| !names.contains(a)) {
                let (node, missing) = (node.name.clone(), missing.clone());
                return Err(InvalidJob::UnknownEdge { job: job(), node, missing });
            }
        }
        if let Some(path) = self.cycle() {
            return Err(InvalidJob::Cycle { job: job(), path });
        }
        let count = self.nodes.iter().filter(|n| matches!(n.kind, NodeKind::Train(_))).count();
        let Some((train_node, train)) = self.train() else {
            return Err(InvalidJob::NoTraining { job: job() });
        };
        if count > 1 {
            return Err(InvalidJob::ManyTraining { job: job(), count });
        }
        let trained = self.downstream(&train_node.name);
        if let Some(node) =
            self.nodes.iter().find(|n| n.name != train_node.name && !trained.contains(&n.name))
        {
            let (node, train) = (node.name.clone(), train_node.name.clone());
            return Err(InvalidJob::NotAfterTraining { job: job(), node, train });
        }
        self.check_settings(train)
    }

    fn check_settings(&self, train: &TrainSpec) -> Result<(), InvalidJob> {
        let fault = |what: String| InvalidJob::Setting { job: self.id.clone(), what };
        if let Some(what) = train.optimizer.fault() {
            return Err(fault(format!("optimizer: {what}")));
        }
        if let Some(what) = train.learning_rate.fault() {
            return Err(fault(what));
        }
        if let Some(norm) = train.clip_norm.filter(|norm| !(norm.is_finite() && *norm > 0.0)) {
            return Err(fault(format!("clip_norm {norm}, expected a positive number")));
        }
        for (name, value) in
            [("batch", train.batch), ("epochs", train.epochs), ("max_workers", train.max_workers)]
        {
            if value == 0 {
                return Err(fault(format!("{name} is 0, expected at least 1")));
            }
        }
        if train.micro_batch == Some(0) {
            let what = "micro_batch is 0, expected at least 1; left out, a batch is computed at once";
            return Err(fault(what.into()));
        }
        if train.min_workers > train.max_workers {
            return Err(fault(format!(
                "min_workers {} exceeds max_workers {}",
                train.min_workers, train.max_workers
            )));
        }
        if train.queue_limit_ms == Some(0) {
            return Err(fault("queue_limit_s is 0, expected at least 1; left out, it waits forever".into()));
        }
        if let Some(ahead) = train.ahead.filter(|ahead| !(1..=64).contains(ahead)) {
            return Err(fault(format!("ahead {ahead}, expected 1 to 64")));
        }
        if let Some(what) = train.checkpoint.and_then(|checkpoint| checkpoint.fault()) {
            return Err(fault(format!("checkpoint: {what}")));
        }
        if let Some(what) = train.evaluate.and_then(|evaluate| evaluate.fault()) {
            return Err(fault(format!("evaluate: {what}")));
        }
        if train.data.has_validation() && train.evaluate.is_none() {
            let what = "the data has a validation set, and nothing evaluates on it: set `evaluate`";
            return Err(fault(what.into()));
        }
        if let Some(what) = train.compression.fault() {
            return Err(fault(format!("compression: {what}")));
        }
        self.check_model(train)
    }

    /// Checks what depends on the model and its data.
    fn check_model(&self, train: &TrainSpec) -> Result<(), InvalidJob> {
        let fault = |what: String| InvalidJob::Setting { job: self.id.clone(), what };
        let layout = &train.model.layout;
        if layout.elements().is_none() || layout.trained_elements() == 0 {
            return Err(fault("the model has no parameters to train, or too many".into()));
        }
        if !layout.is_ordered() {
            return Err(fault("a buffer lies before a trained parameter".into()));
        }
        if let Some(what) = layout.settings_fault() {
            return Err(fault(format!("groups: {what}")));
        }
        if let Some(what) = train.tables_fault() {
            return Err(fault(format!("sparse: {what}")));
        }
        let samples = train.data.train_samples;
        if u64::from(train.batch) > samples {
            return Err(InvalidJob::BatchTooLarge { job: self.id.clone(), batch: train.batch, samples });
        }
        if let Some(resume) = &train.resume
            && let Some(what) = resume.fault(train)
        {
            return Err(InvalidJob::CannotResume {
                job: self.id.clone(),
                from: resume.job.clone(),
                checkpoint: resume.checkpoint,
                what,
            });
        }
        Ok(())
    }

    /// Nodes that can only start after `start`, directly or not.
    fn downstream(&self, start: &NodeName) -> BTreeSet<&NodeName> {
        let mut next: BTreeMap<&NodeName, Vec<&NodeName>> = BTreeMap::new();
        for node in &self.nodes {
            for before in &node.after {
                next.entry(before).or_default().push(&node.name);
            }
        }
        let mut found = BTreeSet::new();
        let mut queue = vec![start];
        while let Some(at) = queue.pop() {
            for &name in next.get(at).into_iter().flatten() {
                if found.insert(name) {
                    queue.push(name);
                }
            }
        }
        found
    }

    /// One cycle as `a -> b -> a`, if there is any: what remains after removing nodes without open inputs.
    fn cycle(&self) -> Option<String> {
        let mut open: BTreeMap<&NodeName, BTreeSet<&NodeName>> =
            self.nodes.iter().map(|n| (&n.name, n.after.iter().collect())).collect();
        let mut free: Vec<&NodeName> = open.iter().filter(|(_, a)| a.is_empty()).map(|(n, _)| *n).collect();
        let mut next: BTreeMap<&NodeName, Vec<&NodeName>> = BTreeMap::new();
        for node in &self.nodes {
            for before in &node.after {
                next.entry(before).or_default().push(&node.name);
            }
        }
        while let Some(done) = free.pop() {
            open.remove(done);
            for &name in next.get(done).into_iter().flatten() {
                if let Some(left) = open.get_mut(name)
                    && left.remove(done)
                    && left.is_empty()
                {
                    free.push(name);
                }
            }
        }
        // Every remaining node has a remaining input: walking backwards must meet itself.
        let mut at = *open.keys().next()?;
        let mut path = vec![at];
        loop {
            at = open.get(at)?.iter().find(|n| open.contains_key(*n))?;
            if let Some(from) = path.iter().position(|&n| n == at) {
                let ring = path[from..].iter().rev().chain([path.last()?]);
                return Some(ring.map(|n| n.as_str()).collect::<Vec<_>>().join(" -> "));
            }
            path.push(at);
        }
    }
}
