//! A sweep before it begins: its trials, prepared and checked, and how they are compared.

use syncline_scheduler::{
    core::EvaluationSet,
    ids::JobId,
    spec::{Metric, NodeKind},
};
use syncline_workers::{
    blocking,
    submit::{FieldChange, JobFile, JobGraph, JobVariants, PreparedJob},
};

use super::{
    command::SweepArgs,
    halving::Halving,
    trials::{Values, grid, sample},
    values::Axis,
};
use crate::cli::{CliError, Failure, said_while_slow, say, support::native::models};

/// One training of a sweep.
#[derive(Debug, Clone)]
pub(super) struct Trial {
    /// All that was set, as it was typed.
    pub values: Values,
    pub job: PreparedJob,
    pub yardstick: Yardstick,
}

impl Trial {
    pub(super) fn id(&self) -> &JobId {
        &self.job.spec.id
    }
}

/// How a trial is measured while it trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Yardstick {
    /// Samples on which it is evaluated as it trains; `None`: its loss of training counts.
    pub on: Option<EvaluationSet>,
    /// Whether something is evaluated at its end at least.
    is_evaluated: bool,
    pub epoch_samples: u64,
    pub epochs: u32,
    pub max_workers: u32,
}

/// All that is to be done.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub trials: Vec<Trial>,
    pub metric: Metric,
    pub halving: Option<Halving>,
}

impl Plan {
    /// The fields in which its trials differ, of one trial.
    pub(super) fn differing(&self, trial: &Trial) -> Values {
        let differs = |key: &String, value: &String| {
            self.trials.iter().any(|other| other.values.iter().any(|(name, own)| name == key && own != value))
        };
        trial.values.iter().filter(|(key, value)| differs(key, value)).cloned().collect()
    }
}

/// The values of all trials.
pub(super) fn values(args: &SweepArgs) -> Result<Vec<Values>, CliError> {
    let axes = args.set.iter().map(|text| text.parse()).collect::<Result<Vec<Axis>, _>>()?;
    for (number, axis) in (1..).zip(&axes) {
        let what = match axis.key.as_str() {
            "id" => "the id of each trial comes from --name: it cannot be set".to_owned(),
            key if axes.iter().take(number - 1).any(|before| before.key == key) => {
                format!("--set {key} is there twice: give all its values to one")
            }
            _ => continue,
        };
        return Err(CliError::Setting { what });
    }
    match args.samples {
        Some(count) => sample(&axes, count, args.seed),
        None => grid(&axes),
    }
}

/// What the ids of all trials begin with: id of the file, and name of the sweep.
pub(super) fn prefix(graph: &JobGraph, name: &str) -> String {
    format!("{}-{name}", graph.id)
}

/// The graph of each trial, with an id of its own: `digits-sweep-1`, `digits-sweep-2`.
pub(super) fn graphs(args: &SweepArgs, values: &[Values]) -> Result<Vec<JobGraph>, Failure> {
    let mut graphs = Vec::with_capacity(values.len());
    for (number, values) in (1..).zip(values) {
        let changes = values.iter().map(|(key, value)| format!("{key}={value}").parse());
        let changes: Vec<FieldChange> = changes.collect::<Result<_, _>>()?;
        let mut graph = JobFile::load_with(&args.file, &changes)?;
        graph.id = format!("{}-{number}", prefix(&graph, &args.name));
        graphs.push(graph);
    }
    Ok(graphs)
}

/// Reads model and data, derives and checks, for all trials before the first one begins.
pub(super) async fn prepare(
    args: &SweepArgs,
    values: Vec<Values>,
    graphs: Vec<JobGraph>,
) -> Result<Plan, Failure> {
    let preparing = blocking(move || {
        let mut variants = JobVariants::new(models()?);
        let prepared = graphs.iter().map(|graph| variants.prepare(graph).map_err(Failure::from));
        prepared.collect::<Result<Vec<_>, Failure>>()
    });
    let jobs = said_while_slow("reading the data and checking the models", preparing).await?;
    let mut warnings: Vec<&String> = Vec::new();
    for warning in jobs.iter().flat_map(|job| &job.warnings) {
        if !warnings.contains(&warning) {
            warnings.push(warning);
            say(&format!("warning: {warning}"));
        }
    }
    let trial = |(values, job): (Values, PreparedJob)| Trial { values, yardstick: yardstick(&job), job };
    let trials: Vec<Trial> = values.into_iter().zip(jobs).map(trial).collect();
    let yardsticks: Vec<Yardstick> = trials.iter().map(|trial| trial.yardstick).collect();
    let halving = args.rungs.as_ref().map(|rungs| Halving { rungs: rungs.clone(), keep: args.keep });
    check(args.by, halving.as_ref(), &yardsticks)?;
    trials.iter().try_for_each(|trial| check_measured(args.by, trial))?;
    Ok(Plan { trials, metric: args.by, halving })
}

fn yardstick(job: &PreparedJob) -> Yardstick {
    let train = job.spec.train().map(|(_, train)| train);
    let evaluates = train.is_some_and(|train| train.evaluate.is_some());
    let on = match train.is_some_and(|train| train.data.has_validation()) {
        true => EvaluationSet::Validation,
        false => EvaluationSet::Test,
    };
    let ends_evaluated = job.spec.nodes.iter().any(|node| matches!(node.kind, NodeKind::Evaluate));
    Yardstick {
        on: evaluates.then_some(on),
        is_evaluated: evaluates || ends_evaluated,
        epoch_samples: train.map_or(0, |train| train.epoch_samples()),
        epochs: train.map_or(0, |train| train.epochs),
        max_workers: train.map_or(u32::MAX, |train| train.max_workers),
    }
}

/// Refuses a comparison of what cannot be compared.
fn check(metric: Metric, halving: Option<&Halving>, trials: &[Yardstick]) -> Result<(), CliError> {
    let refused = |what: String| Err(CliError::Setting { what });
    let how = "`--set 'settings.evaluate={ every_epochs = 1 }'` has the trials evaluated as they train";
    let name = metric.name();
    if metric != Metric::Loss && !trials.iter().all(|trial| trial.is_evaluated) {
        return refused(format!("--by {name}: nothing measures it; {how}"));
    }
    let Some(Halving { rungs, .. }) = halving else { return Ok(()) };
    if metric != Metric::Loss && trials.iter().any(|trial| trial.on.is_none()) {
        return refused(format!("--by {name} with --rungs: nothing measures it before the end; {how}"));
    }
    if trials.iter().any(|trial| trial.on != trials[0].on) {
        let what = "--rungs compares trials, and they are not measured on the same: not all of them are evaluated as they train, \
                    or not all on validation samples";
        return refused(what.to_owned());
    }
    let most = trials.iter().map(|trial| trial.epochs).max().unwrap_or(0);
    match rungs.iter().find(|rung| **rung >= most) {
        Some(rung) => refused(format!(
            "--rungs {rung}: the trials have {most} epochs, and whoever has come to the last one cannot be stopped"
        )),
        None => Ok(()),
    }
}

/// Refuses a metric that the evaluations of a trial do not have.
fn check_measured(metric: Metric, trial: &Trial) -> Result<(), CliError> {
    match trial.job.lacks_for(metric) {
        Some(needs) => {
            let what =
                format!("--by {}: {} does not measure it, which needs {needs}", metric.name(), trial.id());
            Err(CliError::Setting { what })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_compared_is_refused_table() {
        let trial = |on, is_evaluated, epochs| Yardstick {
            on,
            is_evaluated,
            epoch_samples: 10,
            epochs,
            max_workers: 1,
        };
        let (validation, test) = (Some(EvaluationSet::Validation), Some(EvaluationSet::Test));
        let rungs = |rungs: &[u32]| Some(Halving { rungs: rungs.to_vec(), keep: "1/2".parse().unwrap() });
        let (loss, accuracy) = (Metric::Loss, Metric::Accuracy);
        #[rustfmt::skip]
        let cases = [
            (loss,     None,           vec![trial(None, false, 3)],                         None),
            (loss,     rungs(&[1, 2]), vec![trial(None, false, 3)],                         None),
            (accuracy, None,           vec![trial(None, true, 3)],                          None),
            (accuracy, rungs(&[1]),    vec![trial(test, true, 3), trial(test, true, 2)],    None),
            (accuracy, None,           vec![trial(None, false, 3)],                         Some("nothing measures it;")),
            (accuracy, rungs(&[1]),    vec![trial(None, true, 3)],                          Some("before the end")),
            (loss,     rungs(&[1]),    vec![trial(test, true, 3), trial(None, true, 3)],    Some("not measured on the same")),
            (loss,     rungs(&[1]),    vec![trial(test, true, 3), trial(validation, true, 3)], Some("not measured on the same")),
            (loss,     rungs(&[1, 3]), vec![trial(test, true, 3)],                          Some("--rungs 3: the trials have 3 epochs")),
        ];
        for (metric, halving, trials, want) in cases {
            let said = check(metric, halving.as_ref(), &trials).err().map(|error| error.to_string());
            let is_as_wanted = match (want, &said) {
                (Some(want), Some(said)) => said.contains(want),
                (want, said) => want.is_none() && said.is_none(),
            };
            assert!(is_as_wanted, "{want:?}: {said:?}");
        }
    }
}
