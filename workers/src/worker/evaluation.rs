//! What a version of the parameters is worth on test or validation samples.

use std::collections::HashSet;

use syncline_autodiff::PREDICTED;
use syncline_ps::{PsError, client::BlobClient, shard::ReadCondition};
use syncline_runtime::Executable;
use syncline_scheduler::core::{EvaluationPart, Outcome};

use super::{
    class_counts::ClassCounts,
    error::WorkerError,
    job::{JobRun, SHARD_TIMEOUT, samples_of},
    metrics::RunningMetrics,
    parameters::Parameters,
};

impl JobRun {
    /// Loss and metrics of a pinned version over a part of the test or validation samples. A round that is
    /// open goes on behind it. `is_revoked` is asked between batches.
    pub(super) fn evaluate(
        &mut self,
        version: u64,
        part: EvaluationPart,
        is_revoked: impl Fn() -> bool,
    ) -> Result<Outcome, WorkerError> {
        let own = self.local.is_open().then(|| self.params.values.clone());
        let evaluated = self.evaluate_pinned(version, part, is_revoked);
        if let Some(values) = own {
            self.params.values = values;
        }
        evaluated
    }

    fn evaluate_pinned(
        &mut self,
        version: u64,
        part: EvaluationPart,
        is_revoked: impl Fn() -> bool,
    ) -> Result<Outcome, WorkerError> {
        let mut session = match self.evaluation.take() {
            Some(session) => session,
            None => self.open_evaluation()?,
        };
        // All rows of tables, once: samples that are evaluated choose among them as they like.
        let mut whole = self.rows.is_some().then(|| Parameters::new(&self.train.model.layout, None));
        let params = whole.as_mut().unwrap_or(&mut self.params);
        self.timer.waiting(|| self.shards.pull(ReadCondition::Pinned(version), &mut params.values))?;
        let params = &*params;
        let own: HashSet<&str> = params.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        let mut metrics = RunningMetrics::of(session.output_names());
        let mut classes = ClassCounts::of(&self.train.model, session.output_names());
        for n in 0.. {
            if is_revoked() || self.shards.cancel_token().is_canceled() {
                return Err(PsError::Canceled.into());
            }
            let samples = self.data.as_mut().map_or(Ok(0), |loader| loader.load_evaluation_batch(part, n))?;
            // A model without data is evaluated once.
            if samples == 0 && (self.data.is_some() || n > 0 || part.index > 0) {
                break;
            }
            // The parameters stay where they are: only the samples are others.
            let changed = |name: &str| n == 0 || !own.contains(name);
            let mut inputs = samples_of(self.data.as_ref(), &self.train);
            inputs.extend(params.inputs());
            let outputs = session.run_changed(&inputs, changed)?;
            metrics.add(samples, |name| outputs.scalar(name))?;
            let label = inputs.iter().find(|(name, _)| Some(*name) == self.train.model.label.as_deref());
            if let Some((classes, (_, label))) = classes.as_mut().zip(label) {
                classes.add(*label, outputs.i64(PREDICTED)?);
            }
            self.timer.progressed();
        }
        // The next one may come in a moment, or never.
        self.evaluation = self.train.evaluate.map(|_| session);
        let sums = metrics.finish();
        Ok(Outcome::Evaluated(match classes {
            Some(classes) => classes.finish(sums),
            None => sums,
        }))
    }

    fn open_evaluation(&self) -> Result<Executable, WorkerError> {
        let blobs = BlobClient::new(self.context.token.clone()).under(self.shards.cancel_token());
        let graph = self.train.model.evaluation_graph;
        let graph = self.timer.waiting(|| blobs.get_within(&self.addresses, graph, SHARD_TIMEOUT))?;
        let session = Executable::new(&self.context.runtime, &graph, &self.context.exec)?;
        self.timer.progressed();
        Ok(session)
    }
}
