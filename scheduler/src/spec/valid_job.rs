//! A job spec that was checked: what it is made of can be relied on.

use std::ops::Deref;

use serde::Serialize;

use super::{InvalidJob, JobSpec, Node, NodeKind, StepGroup, TrainSpec};

/// Groups of parameters that are told one by one: every commit carries the text.
const MOST_GROUPS_SHOWN: usize = 100;

/// A job whose graph and settings are valid. It has a training node, and nothing of it changes any more.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct ValidJob {
    spec: JobSpec,
    /// Place of the training node.
    #[serde(skip)]
    trains: usize,
    /// Texts that every commit shows are made once: its settings.
    #[serde(skip)]
    settings: String,
    /// Its parameters with settings of their own.
    #[serde(skip)]
    groups: String,
    /// The tables of which rows travel.
    #[serde(skip)]
    row_tables: String,
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
        let mut trainings = self.nodes.iter().enumerate().filter_map(|(at, node)| match &node.kind {
            NodeKind::Train(train) => Some((at, train)),
            NodeKind::Evaluate | NodeKind::Snapshot => None,
        });
        let Some((trains, train)) = trainings.next() else {
            return Err(InvalidJob::NoTraining { job: self.id });
        };
        let layout = &train.model.layout;
        let settings = serde_json::to_string(&train.setting_list()).unwrap_or_default();
        let groups = describe_groups(&layout.groups(&train.optimizer));
        let row_tables = layout.row_tables().collect::<Vec<_>>().join(", ");
        Ok(ValidJob { trains, settings, groups, row_tables, spec: self })
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

    /// Parameters that train with another weight decay or learning rate than the rest, in words; empty if
    /// there are none. Of many groups the first.
    pub fn groups_in_words(&self) -> &str {
        &self.groups
    }

    /// Names of the tables of which only some rows travel; empty if there are none.
    pub fn row_tables_in_words(&self) -> &str {
        &self.row_tables
    }

    /// How it trains.
    pub fn train(&self) -> &TrainSpec {
        match &self.train_node().kind {
            NodeKind::Train(train) => train,
            NodeKind::Evaluate | NodeKind::Snapshot => unreachable!("it was found as the node that trains"),
        }
    }
}

/// The groups in words, the first of them where there are many.
fn describe_groups(groups: &[StepGroup]) -> String {
    let more = groups.len().saturating_sub(MOST_GROUPS_SHOWN);
    let mut parts: Vec<String> = groups.iter().take(MOST_GROUPS_SHOWN).map(ToString::to_string).collect();
    parts.extend((more > 0).then(|| format!("{more} more groups")));
    parts.join("; ")
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
    use crate::{
        sim::{training, training_job},
        spec::StepSettings,
    };

    #[test]
    fn a_job_that_was_checked_knows_its_training_wherever_it_stands_and_is_kept_as_the_spec_that_it_is() {
        let mut spec = training_job(training("bsp".parse().unwrap(), 64, 8));
        let train = spec.nodes[0].name.clone();
        let name = "measure".parse().unwrap();
        spec.nodes.insert(0, Node { name, after: vec![train.clone()], retries: 0, kind: NodeKind::Evaluate });
        let job = spec.clone().validated().unwrap();
        assert_eq!((&job.train_node().name, job.train().batch, job.nodes.len()), (&train, 8, 2));
        assert_eq!(serde_json::to_string(&job).unwrap(), serde_json::to_string(&spec).unwrap());
        assert_eq!((job.groups_in_words(), job.row_tables_in_words()), ("", ""));
        spec.nodes.truncate(1);
        assert!(spec.validated().is_err(), "nothing trains");
    }

    #[test]
    fn of_many_groups_the_first_are_named() {
        let group = |n: usize| StepGroup {
            settings: StepSettings { weight_decay: None, learning_rate_factor: n as f32 },
            parameters: 1,
            elements: 2,
        };
        let text = |count: usize| describe_groups(&(0..count).map(group).collect::<Vec<_>>());
        assert_eq!(text(0), "");
        assert_eq!(text(2), format!("{}; {}", group(0), group(1)));
        assert!(!text(MOST_GROUPS_SHOWN).contains("more"));
        assert!(
            text(MOST_GROUPS_SHOWN + 7)
                .ends_with(&format!("{}; 7 more groups", group(MOST_GROUPS_SHOWN - 1)))
        );
    }
}
