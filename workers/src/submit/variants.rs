//! Jobs of which many differ in nothing but settings on which neither the training graph nor the data depend,
//! as the trials of a sweep do: model and data are read, derived and checked once.

use std::sync::Arc;

use super::{
    JobGraph, PreparedJob, Settings, SubmitError, Training,
    forward::prepare_model,
    prepare::{DescribedTraining, assemble_of, check_monitor, describe, doubts, train_spec},
};
use crate::isolation::ModelHost;

/// Prepares one job after the other, as [`prepare`](super::prepare) does.
///
/// A job whose model, data, `seed` and settings of the training graph are those of one before, as in two
/// variants of a job file that differ in `learning_rate` or `epochs`, takes what was derived and checked for
/// that: files are not looked at again. What was prepared stays in memory, what is equal once, until this is
/// dropped; the jobs share it.
///
/// ```
/// # use syncline_workers::{
/// #     isolation::ModelHost,
/// #     submit::{JobGraph, JobVariants, PreparedJob, SubmitError},
/// # };
/// fn prepare_all(graphs: &[JobGraph]) -> Result<Vec<PreparedJob>, SubmitError> {
///     let mut variants = JobVariants::new(ModelHost::find()?);
///     graphs.iter().map(|graph| variants.prepare(graph)).collect()
/// }
/// ```
#[derive(Debug)]
pub struct JobVariants {
    models: ModelHost,
    /// Each with what it was made from, in words that differ where that differs.
    described: Vec<(String, DescribedTraining)>,
}

impl JobVariants {
    /// `models`: where models are loaded.
    pub fn new(models: impl Into<ModelHost>) -> Self {
        Self { models: models.into(), described: Vec::new() }
    }

    /// The same job as [`prepare`](super::prepare) makes of this graph.
    ///
    /// # Errors
    /// As [`prepare`](super::prepare).
    pub fn prepare(&mut self, graph: &JobGraph) -> Result<PreparedJob, SubmitError> {
        let Self { models, described } = self;
        assemble_of(graph, |node, training| {
            let fresh = || {
                describe(node, training, |training, data, said| prepare_model(models, training, data, said))
            };
            let origin = origin(training);
            let known = described.iter().find(|(known, _)| Some(known) == origin.as_ref());
            let mut own = match (known, origin) {
                (Some((_, known)), _) => known.clone(),
                (None, Some(origin)) => {
                    let mut fresh = fresh()?;
                    share_equal(&mut fresh, described);
                    described.push((origin, fresh.clone()));
                    fresh
                }
                (None, None) => fresh()?,
            };
            check_monitor(node, training, own.measured)?;
            own.warnings.extend(doubts(training));
            if training.settings.resume.is_none() {
                own.spec = train_spec(own.spec.model, own.spec.data, training);
            }
            Ok(own)
        })
    }
}

/// Takes what is equal, as the model of variants that differ in `seed`, from those before.
fn share_equal(fresh: &mut DescribedTraining, described: &[(String, DescribedTraining)]) {
    for (digest, bytes) in Arc::make_mut(&mut fresh.blobs) {
        if let Some(known) = described.iter().find_map(|(_, known)| known.blobs.get(digest)) {
            bytes.clone_from(known);
        }
    }
}

/// All on which the training graph, its first values, its layout and the data depend, in words; `None` where
/// a checkpoint has to be held against all settings.
fn origin(training: &Training) -> Option<String> {
    let Training { model, data, settings } = training;
    // Without `..`: of a setting that is added somebody says here whether the graph depends on it.
    let Settings {
        optimizer,
        params,
        train,
        freeze,
        sparse,
        groups,
        eval_mode,
        recompute,
        check,
        precision,
        seed,
        resume,
        learning_rate: _,
        warmup: _,
        decay: _,
        min_learning_rate: _,
        policy: _,
        batch: _,
        micro_batch: _,
        epochs: _,
        drop_last: _,
        shuffle: _,
        on_nan: _,
        clip_norm: _,
        min_workers: _,
        max_workers: _,
        ahead: _,
        queue_limit_s: _,
        checkpoint: _,
        evaluate: _,
        compression: _,
        pull_compression: _,
    } = settings;
    // Of a group that changes nothing with this optimizer is warned.
    let optimizer = (!groups.is_empty()).then_some(optimizer);
    let graph =
        (params, train, freeze, sparse, (groups, optimizer), eval_mode, recompute, check, precision, seed);
    resume.is_none().then(|| format!("{model:?} {data:?} {graph:?}"))
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::spec::{DataSpec, Optimizer, Source};

    use super::*;
    use crate::submit::{Model, ParameterGroup};

    fn of(change: impl FnOnce(&mut Training)) -> Option<String> {
        let data = DataSpec::new(Source::csv("rows.csv"));
        let mut training = Training::new(Model::ready("train.onnx"), data);
        change(&mut training);
        origin(&training)
    }

    fn with(change: impl FnOnce(&mut Settings)) -> Option<String> {
        of(|training| change(&mut training.settings))
    }

    #[test]
    fn what_the_graph_and_the_data_do_not_depend_on_is_no_other_origin_table() {
        let same = of(|_| ());
        assert!(same.is_some());
        let adam = || Optimizer::Adam {
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-8,
            weight_decay: 0.0,
            decoupled: false,
        };
        assert_eq!(with(|s| (s.learning_rate, s.batch, s.epochs) = (Some(0.5), 7, 9)), same);
        assert_eq!(with(|s| s.optimizer = adam()), same);
        for (name, other) in [
            ("model", of(|t| t.model = Model::ready("other.onnx"))),
            ("data", of(|t| t.data.scale = 0.5)),
            ("seed", with(|s| s.seed = 1)),
            ("recompute", with(|s| s.recompute = true)),
            ("resume", with(|s| s.resume = Some("checkpoint".into()))),
        ] {
            assert_ne!(other, same, "{name}");
        }
        let groups = || vec![ParameterGroup::of(["*.bias"]).weight_decay(0.0)];
        let grouped = with(|s| s.groups = groups());
        assert_ne!(grouped, same);
        assert_ne!(with(|s| (s.groups, s.optimizer) = (groups(), adam())), grouped, "it may change nothing");
    }
}
