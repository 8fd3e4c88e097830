//! A job spec that was checked: what it is made of can be relied on.

use std::ops::Deref;

use serde::Serialize;

use super::{InvalidJob, JobSpec, Node, NodeKind, TrainSpec};

/// A job whose graph and settings are valid. It has a training node, and nothing of it changes any more.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct ValidJob {
    spec: JobSpec,
    /// Place of the training node.
    #[serde(skip)]
    trains: usize,
    /// Its settings as they are shown, made once: every commit shows them.
    #[serde(skip)]
    settings: String,
}

impl PartialEq for ValidJob {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl JobSpec {
    /// This job, checked.
    ///
    /// # Errors
    /// What [`JobSpec::validate`] finds.
    pub fn validated(self) -> Result<ValidJob, InvalidJob> {
        self.validate()?;
        let trains = self.nodes.iter().position(|node| matches!(node.kind, NodeKind::Train(_)));
        let trains = trains.ok_or_else(|| InvalidJob::NoTraining { job: self.id.clone() })?;
        let mut job = ValidJob { spec: self, trains, settings: String::new() };
        job.settings = serde_json::to_string(&job.train().setting_list()).unwrap_or_default();
        Ok(job)
    }
}

impl ValidJob {
    /// The training node.
    pub fn train_node(&self) -> &Node {
        &self.spec.nodes[self.trains]
    }

    /// What [`TrainSpec::setting_list`] lists, as JSON.
    pub fn settings_json(&self) -> &str {
        &self.settings
    }

    /// How it trains.
    pub fn train(&self) -> &TrainSpec {
        match &self.train_node().kind {
            NodeKind::Train(train) => train,
            NodeKind::Evaluate | NodeKind::Snapshot => unreachable!("it was found as the node that trains"),
        }
    }
}

impl Deref for ValidJob {
    type Target = JobSpec;

    fn deref(&self) -> &JobSpec {
        &self.spec
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{training, training_job};

    #[test]
    fn a_job_that_was_checked_knows_its_training_wherever_it_stands_and_is_kept_as_the_spec_that_it_is() {
        let mut spec = training_job(training("bsp".parse().unwrap(), 64, 8));
        let train = spec.nodes[0].name.clone();
        let name = "measure".parse().unwrap();
        spec.nodes.insert(0, Node { name, after: vec![train.clone()], retries: 0, kind: NodeKind::Evaluate });
        let job = spec.clone().validated().unwrap();
        assert_eq!((&job.train_node().name, job.train().batch, job.nodes.len()), (&train, 8, 2));
        assert_eq!(serde_json::to_string(&job).unwrap(), serde_json::to_string(&spec).unwrap());
        spec.nodes.truncate(1);
        assert!(spec.validated().is_err(), "nothing trains");
    }
}
