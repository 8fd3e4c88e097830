//! What `syncline sweep --dry-run` shows: the trials as they would train.

use std::collections::BTreeMap;

use serde::Serialize;
use syncline_scheduler::ids::JobId;

use super::{
    plan::{Plan, Trial},
    report::MOST_COLUMNS,
};
use crate::cli::{
    describe_settings::{CELL_CHARS, shortened},
    table,
};

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct DryRun<'a> {
    pub name: &'a str,
    /// What the ids of its trials begin with: id of the job file, and name.
    pub prefix: &'a str,
    /// The metric by which they would be ranked.
    pub by: String,
    /// In the order in which they would begin.
    pub trials: Vec<PlannedTrial<'a>>,
}

/// A trial that nobody has submitted.
#[derive(Debug, Serialize)]
pub(super) struct PlannedTrial<'a> {
    pub id: &'a JobId,
    /// All that was set, as it was typed.
    pub values: BTreeMap<&'a str, &'a str>,
    pub epochs: u32,
    /// Samples of an epoch.
    pub epoch_samples: u64,
    /// Those of all epochs.
    pub samples_total: u64,
}

impl<'a> DryRun<'a> {
    pub(super) fn of(name: &'a str, prefix: &'a str, plan: &'a Plan) -> Self {
        let trials = plan.trials.iter().map(PlannedTrial::of).collect();
        Self { name, prefix, by: plan.metric.field(), trials }
    }

    /// A row for each.
    pub(super) fn in_words(&self) -> String {
        let keys: Vec<&str> = {
            let of_first = self.trials.first().map(|trial| trial.values.keys().copied());
            // The epochs have a column, whether they were set or not.
            of_first
                .into_iter()
                .flatten()
                .filter(|key| *key != "settings.epochs")
                .take(MOST_COLUMNS)
                .collect()
        };
        let row = |trial: &PlannedTrial<'_>| {
            let mut row = vec![trial.id.to_string()];
            row.extend(keys.iter().map(|key| shortened(trial.values.get(key).unwrap_or(&"-"), CELL_CHARS)));
            row.extend([
                trial.epochs.to_string(),
                trial.epoch_samples.to_string(),
                trial.samples_total.to_string(),
            ]);
            row
        };
        let mut columns = vec!["job"];
        columns.extend(keys.iter().map(|key| key.strip_prefix("settings.").unwrap_or(key)));
        columns.extend([">epochs", ">samples", ">in all"]);
        table(&columns, &self.trials.iter().map(row).collect::<Vec<_>>())
    }
}

impl<'a> PlannedTrial<'a> {
    fn of(trial: &'a Trial) -> Self {
        let (epochs, epoch_samples) = (trial.yardstick.epochs, trial.yardstick.epoch_samples);
        Self {
            id: trial.id(),
            values: trial.values.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect(),
            epochs,
            epoch_samples,
            samples_total: epoch_samples.saturating_mul(epochs.into()),
        }
    }
}
