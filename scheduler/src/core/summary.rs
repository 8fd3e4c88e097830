//! The summary of a job in the store: plain numbers and words, for people.

use super::{
    best_parameters::HandedOn,
    checkpoints::Checkpoint,
    evaluation::{Evaluation, EvaluationSet},
    job::Job,
    records::Phase,
    significant::significant,
};
use crate::spec::ResumeSpec;

/// Fields of a hash, by name.
type Fields = Vec<(&'static str, String)>;

impl Job {
    /// The job as people see it; the fields are those of docs/redis-schema.md.
    pub(super) fn summary(&self, now_us: u64) -> Fields {
        let progress = [self.progress(now_us), self.checkpoint(), self.waits(now_us)].concat();
        [self.setting(), progress, self.moments(now_us), self.best(), self.results()].concat()
    }

    /// Which checkpoints it keeps, what a lost shard would bring it back to, why that becomes no newer, and
    /// what keeps its last weights from being written; empty where there is nothing.
    fn checkpoint(&self) -> Fields {
        let newest = self.state.checkpoints.newest();
        let weights_problem = self.state.weights_problem.clone().unwrap_or_default();
        let (delayed_by, lost_by) = match self.state.keeping {
            true => (weights_problem, String::new()),
            false => (String::new(), weights_problem),
        };
        let text = |field: fn(&Checkpoint) -> u64| newest.map(|c| field(c).to_string()).unwrap_or_default();
        vec![
            ("checkpoints", self.train().checkpoints_in_words()),
            ("checkpoint", text(|newest| newest.number)),
            ("checkpoint_ms", text(|newest| newest.at_us / 1000)),
            ("checkpoint_samples", text(Checkpoint::samples)),
            ("checkpoint_bytes", text(|newest| newest.bytes)),
            ("weights_pending", self.state.keeping.to_string()),
            ("weights_problem", delayed_by),
            ("weights_lost", lost_by),
            ("checkpoint_problem", self.checkpoint_problem().unwrap_or_default()),
        ]
    }

    /// What it is, how it stands, and who works on it.
    fn setting(&self) -> Fields {
        let (state, train) = (&self.state, self.train());
        let (code, reason) = state.phase.why_ended(&state.cancel_reason);
        let active = if state.phase.is_over() { 0 } else { self.active().count() };
        vec![
            ("state", self.shown().to_string()),
            ("code", code.map(|code| code.to_string()).unwrap_or_default()),
            ("reason", reason.to_owned()),
            ("waiting_for", state.waiting_for.clone().unwrap_or_default()),
            ("excluded", self.exclusions()),
            ("trains_for", state.trains_for.as_ref().map(ToString::to_string).unwrap_or_default()),
            ("policy", train.policy.to_string()),
            ("optimizer", train.optimizer.to_string()),
            ("learning_rate", train.learning_rate.base.to_string()),
            ("schedule", train.learning_rate.schedule().unwrap_or_default()),
            ("batch", train.batch.to_string()),
            ("micro_batch", train.micro_batch.map(|most| most.to_string()).unwrap_or_default()),
            ("seed", train.seed.to_string()),
            ("clip_norm", train.clip_norm.map(|norm| norm.to_string()).unwrap_or_default()),
            ("precision", train.precision.clone()),
            ("settings", self.spec.settings_json().to_owned()),
            ("resumed_from", self.resumed_from().unwrap_or_default()),
            ("compression", train.compression.to_string()),
            ("pull_compression", train.pull_compression.to_string()),
            ("row_tables", self.spec.row_tables_in_words().to_owned()),
            ("groups", self.spec.groups_in_words().to_owned()),
            ("model_digest", train.model.forward.to_string()),
            ("nonce", state.generation.nonce().to_string()),
            ("generation", state.generation.number().to_string()),
            ("workers", active.to_string()),
            ("shards", state.shards.to_string()),
        ]
    }

    /// How far it is, and how fast.
    fn progress(&self, now_us: u64) -> Fields {
        let (state, train, counted) = (&self.state, self.train(), self.counted());
        let epoch = (counted / train.epoch_samples().max(1)).min(u64::from(train.epochs));
        let trained_s = self.training_us(now_us).unwrap_or(0) as f64 / 1e6;
        // A clock that went back, as another engine's may, says nothing.
        let per_s = |samples: u64| if trained_s > 0.0 { samples as f64 / trained_s } else { 0.0 };
        // What another job did before this one goes on with it is no speed of this one.
        let own = counted.saturating_sub(train.resume.as_ref().map_or(0, ResumeSpec::samples));
        let trains = state.phase == Phase::Running && state.trained_us.is_none();
        let lately = if state.paused { 0.0 } else { state.recent_rate.samples_per_s(now_us, counted) };
        let recent = trains.then(|| format!("{lately:.1}"));
        vec![
            ("epoch", epoch.to_string()),
            ("epochs_complete", state.epochs_complete.to_string()),
            ("epochs", train.epochs.to_string()),
            ("samples_applied", counted.to_string()),
            ("samples_total", train.total_samples().to_string()),
            ("samples_per_s", format!("{:.1}", per_s(own))),
            ("samples_per_s_lately", recent.unwrap_or_default()),
            ("progress_ms", (state.recent_rate.progress_us() / 1000).to_string()),
            ("iterations_done", state.counters.done.to_string()),
            ("iterations_lost", state.counters.lost.to_string()),
            ("iterations_torn", state.counters.torn.to_string()),
            ("iterations_skipped", state.counters.skipped.to_string()),
            ("iterations_rolled_back", state.counters.rolled_back.to_string()),
            ("samples_rolled_back", state.counters.samples_rolled_back.to_string()),
            ("epoch_loss", state.epoch_losses.newest().map(significant).unwrap_or_default()),
            ("loss", self.loss().map(|loss| significant(f64::from(loss))).unwrap_or_default()),
        ]
    }

    /// Barriers, and who is ahead of whom.
    fn waits(&self, now_us: u64) -> Fields {
        let counters = &self.state.counters;
        let lead = self.clocks.fastest().unwrap_or(0) - self.clocks.lowest().unwrap_or(0);
        vec![
            ("barriers", counters.barriers.to_string()),
            ("next_barrier", self.next_barrier(now_us)),
            ("predicted_wait_ms", (counters.predicted_wait_us / 1000).to_string()),
            ("actual_wait_ms", (counters.actual_wait_us / 1000).to_string()),
            ("waited_ms", (counters.waited_us / 1000).to_string()),
            ("replanned", counters.replanned.to_string()),
            ("lead", lead.to_string()),
            ("max_lead", counters.max_lead.max(lead).to_string()),
        ]
    }

    /// When it came to where it is, and for how long it has trained; empty where it has not.
    fn moments(&self, now_us: u64) -> Fields {
        let state = &self.state;
        let ms = |us: Option<u64>| us.map(|us| (us / 1000).to_string()).unwrap_or_default();
        let seconds = |us: Option<u64>| us.map(|us| format!("{:.3}", us as f64 / 1e6)).unwrap_or_default();
        vec![
            ("submitted_ms", ms(Some(state.submitted_us))),
            ("started_ms", ms(state.started_us)),
            ("trained_ms", ms(state.trained_us)),
            ("ended_ms", ms(state.ended_us)),
            ("training_seconds", seconds(self.training_us(now_us))),
        ]
    }

    /// What its evaluations decide; empty where they decided nothing yet, and nothing at all where there are
    /// none. What those of a training before have left of the learning rate is there without any.
    fn best(&self) -> Fields {
        let base = self.train().learning_rate.base;
        let reduced = Some(self.reduced(base)).filter(|reduced| *reduced < base);
        let reduced = reduced.map(|rate| ("reduced_learning_rate", rate.to_string()));
        let Some(spec) = self.train().evaluate else { return reduced.into_iter().collect() };
        let best = self.state.evaluations.shown_best();
        let handed_on = match self.state.evaluations.handed_on {
            HandedOn::Undecided => "",
            HandedOn::Last => "last",
            HandedOn::Best(_) => "best",
        };
        let is_stopped = self.state.cursor.is_stopped();
        let kept = self.best_checkpoint().map(|kept| kept.number.to_string());
        let at_ms = best.map(|best| best.at_ms).filter(|&at_ms| at_ms > 0);
        let figure = |of: fn(&Evaluation) -> Option<f64>| {
            best.and_then(|best| of(&best.evaluation)).map(significant).unwrap_or_default()
        };
        vec![
            ("monitor", format!("{} {}", self.monitored_set().name(), spec.monitor.name())),
            ("best_samples", best.map(|best| best.samples.to_string()).unwrap_or_default()),
            ("best_loss", figure(|best| Some(best.loss))),
            ("best_accuracy", figure(|best| best.accuracy)),
            ("best_top_k_accuracy", figure(|best| best.top_k_accuracy)),
            ("best_perplexity", figure(|best| best.perplexity)),
            ("best_macro_f1", figure(|best| best.macro_f1)),
            ("best_macro_precision", figure(|best| best.macro_precision)),
            ("best_macro_recall", figure(|best| best.macro_recall)),
            ("best_positive_f1", figure(|best| best.positive_f1)),
            ("best_positive_precision", figure(|best| best.positive_precision)),
            ("best_positive_recall", figure(|best| best.positive_recall)),
            ("best_ms", at_ms.map(|at_ms| at_ms.to_string()).unwrap_or_default()),
            ("best_checkpoint", kept.unwrap_or_default()),
            ("best_lost", self.why_best_is_lost()),
            reduced.unwrap_or(("reduced_learning_rate", String::new())),
            ("stopped_early", if is_stopped { self.why_stopped() } else { String::new() }),
            ("handed_on", handed_on.to_owned()),
        ]
    }

    /// What its nodes and evaluations brought. It is empty where that was undone: the store keeps a field
    /// that is not written again.
    fn results(&self) -> Fields {
        let mut fields = Vec::new();
        if self.train().data.has_validation() {
            fields.extend(EvaluationSet::Validation.fields(self.state.validation.as_ref()));
        }
        if self.train().evaluate.is_some() || self.is_evaluated_by_node() {
            fields.extend(EvaluationSet::Test.fields(self.state.evaluation.as_ref()));
        }
        let (path, digest) = match self.state.snapshot.clone() {
            Some(file) => (file.path, file.digest.to_string()),
            None => <(String, String)>::default(),
        };
        fields.extend([("snapshot", path), ("snapshot_digest", digest)]);
        fields
    }
}
