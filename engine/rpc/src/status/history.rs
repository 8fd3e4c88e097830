//! What a job has gone through: its events and its loss curve, as streams that can be read on from where one
//! was.

use serde::{Deserialize, Serialize};
use syncline_scheduler::{
    core::{EvaluationSet, EventKind},
    ids::{Incarnation, JobId, as_text},
    spec::Metric,
};

use super::{
    Figures, JobStatus, figures,
    text::{self, UnknownFields, parsed_option, printed_option},
};
use crate::{StreamCursor, StreamEntry};

/// One entry of a stream, with the position from which the next ones are read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry<T> {
    /// Give it back to read what came later.
    #[serde(serialize_with = "as_text::serialize")]
    pub cursor: StreamCursor,
    /// What the entry says; in JSON its fields stand beside `cursor`.
    #[serde(flatten)]
    pub value: T,
}

/// One point of the loss curve. Of a long job each stands for many iterations: 200 to 400 cover all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MetricsPoint {
    /// When it was written, since the epoch of Unix.
    pub at_ms: u64,
    /// Samples of all iterations so far.
    pub samples: u64,
    /// Iterations that this point alone stands for: its means are over them.
    #[serde(rename(deserialize = "iterations"), alias = "averaged_iterations")]
    pub averaged_iterations: u64,
    /// Mean over the samples of those that counted, each by what it weighs in the loss.
    pub loss: f64,
    /// Samples that the loss is the mean of.
    #[serde(default)]
    pub loss_samples: u64,
    /// What these weigh together: with it means of several points are exact. Unknown of an earlier release,
    /// whose points are means over iterations by their samples.
    #[serde(default)]
    pub loss_weight: Option<f64>,
    /// Mean time of an iteration, waiting left out.
    pub step_us: u64,
    /// The part of that in which the gradient was computed.
    pub compute_us: u64,
    /// Mean time that an iteration waited for its version at the parameter server.
    pub wait_us: u64,
    /// Pushes of others between an iteration's pull and its push, on average.
    pub staleness_mean: f64,
    /// The most of them that one iteration had.
    pub staleness_max: u64,
    /// Learning rate behind these samples: of the schedule, with the factor of the policy; unknown of an
    /// earlier release.
    #[serde(default)]
    pub learning_rate: Option<f64>,
    /// Which generation of the parameters it belongs to, from 1: a new one begins where the training goes
    /// back to a checkpoint; unknown of an earlier release.
    #[serde(default)]
    pub generation: Option<u64>,
    /// Of points of earlier generations those beyond so many samples are undone.
    #[serde(default)]
    pub undone_beyond: Option<u64>,
}

/// What the model was worth at a moment of its training, on the validation samples or on the test samples:
/// the figures of the others are `None`, and so is a metric that its loss does not compute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EvaluationPoint {
    /// When it was known, since the epoch of Unix.
    pub at_ms: u64,
    /// Samples that the model had been trained on.
    pub samples: u64,
    /// What was measured on validation samples.
    #[serde(flatten, with = "figures::validation")]
    pub validation: Figures,
    /// Validation samples on which it was measured.
    #[serde(default)]
    pub validation_samples: Option<u64>,
    /// What was measured on test samples.
    #[serde(flatten, with = "figures::test")]
    pub test: Figures,
    /// Test samples on which it was measured.
    #[serde(default)]
    pub test_samples: Option<u64>,
    /// Whether it was the best so far when one asked for it.
    #[serde(default)]
    pub best: bool,
    /// Which generation of the parameters it belongs to, from 1: a new one begins where the training goes
    /// back to a checkpoint; unknown of an earlier release.
    #[serde(default)]
    pub generation: Option<u64>,
    /// Of points of earlier generations those beyond so many samples are undone.
    #[serde(default)]
    pub undone_beyond: Option<u64>,
}

/// Something that happened to a job. Which fields there are depends on what it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobEvent {
    /// What happened; the fields that belong to it are known, others `None`.
    pub what: EventKind,
    /// When, since the epoch of Unix.
    pub at_ms: u64,
    /// The worker that it is about.
    #[serde(default, deserialize_with = "parsed_option", serialize_with = "printed_option")]
    pub worker: Option<Incarnation>,
    /// Name of that worker.
    #[serde(default)]
    pub name: Option<String>,
    /// Machine of that worker, where it was excluded.
    #[serde(default)]
    pub host: Option<String>,
    /// The task or node.
    #[serde(default)]
    pub task: Option<String>,
    /// Which attempt at a general task it was, from 1.
    #[serde(default)]
    pub attempt: Option<u64>,
    /// The job that trains for it.
    #[serde(default, deserialize_with = "parsed_option", serialize_with = "printed_option")]
    pub training: Option<JobId>,
    /// How many general tasks there were at the start, or a worker had that was lost.
    #[serde(default)]
    pub tasks: Option<u64>,
    /// How many nodes the graph of a training has.
    #[serde(default)]
    pub nodes: Option<u64>,
    /// How many workers a training began with.
    #[serde(default)]
    pub workers: Option<u64>,
    /// How many pushes of a worker that left count.
    #[serde(default)]
    pub applied: Option<u64>,
    /// How many barriers had closed when all samples were trained.
    #[serde(default)]
    pub barriers: Option<u64>,
    /// State of a job that ended.
    #[serde(default)]
    pub state: Option<String>,
    /// Of what went wrong.
    #[serde(default)]
    pub code: Option<String>,
    /// What went wrong, in words; also why a job was canceled, went back, or stopped early.
    #[serde(default)]
    pub reason: Option<String>,
    /// How many times as long a slow worker takes per sample.
    #[serde(default)]
    pub factor: Option<f64>,
    /// How long an iteration of that worker takes, by the same prediction, without waiting.
    #[serde(default)]
    pub interval_us: Option<u64>,
    /// How long the median worker takes for as many samples.
    #[serde(default)]
    pub median_interval_us: Option<u64>,
    /// The file that holds the weights.
    #[serde(default)]
    pub path: Option<String>,
    /// How long a worker that was excluded is not offered the job.
    #[serde(default)]
    pub again_in_ms: Option<u64>,
    /// When what runs of a job that is being canceled is given up.
    #[serde(default)]
    pub until_ms: Option<u64>,
    /// The barrier that was planned again.
    #[serde(default)]
    pub barrier: Option<u64>,
    /// Which workers end earlier by the new plan, in words: `slow (w2) ends at 31, ...`.
    #[serde(default)]
    pub shortened: Option<String>,
    /// Number of a checkpoint.
    #[serde(default)]
    pub checkpoint: Option<u64>,
    /// Samples in it, or those that were undone by going back to it; those that a model had seen that was
    /// evaluated, or had become no better.
    #[serde(default)]
    pub samples: Option<u64>,
    /// Iterations that were undone by that.
    #[serde(default)]
    pub iterations: Option<u64>,
    /// Its size on all shards.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// How long each worker stood still for it, on average.
    #[serde(default)]
    pub rest_ms: Option<u64>,
    /// What was measured on validation samples.
    #[serde(flatten, with = "figures::validation")]
    pub validation: Figures,
    /// Validation samples on which it was measured.
    #[serde(default)]
    pub validation_samples: Option<u64>,
    /// What was measured on test samples.
    #[serde(flatten, with = "figures::test")]
    pub test: Figures,
    /// Test samples on which it was measured.
    #[serde(default)]
    pub test_samples: Option<u64>,
    /// What the learning rate is since an evaluation has reduced it, behind the warmup.
    #[serde(default)]
    pub learning_rate: Option<f64>,
    /// The shard that another process serves now.
    #[serde(default)]
    pub shard: Option<String>,
    /// Where that process is.
    #[serde(default)]
    pub address: Option<String>,
}

impl EvaluationPoint {
    /// What was measured on these samples.
    pub fn figures(&self, on: EvaluationSet) -> &Figures {
        match on {
            EvaluationSet::Validation => &self.validation,
            EvaluationSet::Test => &self.test,
        }
    }

    /// On validation samples, where there are any; else on test samples.
    pub fn loss(&self) -> f64 {
        self.figures(self.set())[Metric::Loss].unwrap_or(f64::NAN)
    }

    /// On which samples it was measured.
    pub fn is_validation(&self) -> bool {
        self.validation[Metric::Loss].is_some()
    }

    /// The set on which it was measured.
    pub fn set(&self) -> EvaluationSet {
        if self.is_validation() { EvaluationSet::Validation } else { EvaluationSet::Test }
    }
}

/// Marks the best evaluation of a job among the others. Where all are given, it is put among them if their
/// series has become too rare for it.
pub fn mark_best(points: &mut Vec<Entry<EvaluationPoint>>, job: &JobStatus, are_all: bool) {
    let (Some(samples), Some(set)) = (job.best_samples, job.monitored_set()) else { return };
    let validates = set == EvaluationSet::Validation;
    let is_best = |point: &EvaluationPoint| point.samples == samples && point.is_validation() == validates;
    // A training that went back came to as many samples twice: the later one counts.
    if let Some(best) = points.iter_mut().rev().find(|point| is_best(&point.value)) {
        best.value.best = true;
        return;
    }
    let Some(at_ms) = job.best_ms.filter(|_| are_all) else { return };
    let value = EvaluationPoint {
        at_ms,
        samples,
        validation: if validates { job.best } else { Figures::default() },
        validation_samples: job.validation_samples.filter(|_| validates),
        test: if validates { Figures::default() } else { job.best },
        test_samples: job.test_samples.filter(|_| !validates),
        best: true,
        generation: None,
        undone_beyond: None,
    };
    let place = points.iter().position(|point| point.value.at_ms > at_ms).unwrap_or(points.len());
    points.insert(place, Entry { cursor: StreamCursor { at_ms, number: 0 }, value });
}

impl<T: serde::de::DeserializeOwned> Entry<T> {
    /// From an entry in Redis.
    ///
    /// # Errors
    /// E143 if this release cannot read it.
    #[doc(hidden)]
    pub fn read(entry: &StreamEntry) -> Result<Self, UnknownFields> {
        let value = text::read(&format!("entry {}", entry.at), &entry.fields)?;
        Ok(Self { cursor: entry.at, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(fields: &[(&str, &str)]) -> JobStatus {
        let known = [("id", "a"), ("state", "running"), ("best_samples", "30"), ("best_loss", "0.25")];
        let known = known.iter().chain(fields).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        JobStatus::read(&known.collect()).unwrap()
    }

    /// When they were, after how many samples, and the field of their loss.
    fn points(all: &[(&str, &str, &str)]) -> Vec<Entry<EvaluationPoint>> {
        let entry = |&(at_ms, samples, loss): &(&str, &str, &str)| {
            let fields = [("at_ms", at_ms), ("samples", samples), (loss, "0.5")];
            let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            let at = StreamCursor { at_ms: at_ms.parse().unwrap(), number: 0 };
            Entry::read(&StreamEntry { at, fields }).unwrap()
        };
        all.iter().map(entry).collect()
    }

    #[test]
    fn the_best_evaluation_is_marked_on_the_samples_that_decide() {
        let all = [("1", "10", "validation_loss"), ("3", "30", "validation_loss"), ("4", "30", "test_loss")];
        for (monitor, marked) in [("validation loss", 1), ("test loss", 2)] {
            let mut points = points(&all);
            mark_best(&mut points, &job(&[("monitor", monitor), ("best_ms", "3")]), true);
            let best: Vec<usize> = (0..points.len()).filter(|&n| points[n].value.best).collect();
            assert_eq!((points.len(), best), (3, vec![marked]), "{monitor}");
        }
    }

    #[test]
    fn a_best_evaluation_that_became_too_rare_for_the_series_is_put_among_the_others() {
        let monitor = [("monitor", "validation accuracy"), ("best_ms", "3"), ("best_accuracy", "0.75")];
        let job = job(&[&monitor[..], &[("validation_samples", "8"), ("best_perplexity", "2")]].concat());
        let mut all = points(&[("2", "20", "validation_loss"), ("4", "40", "validation_loss")]);
        mark_best(&mut all, &job, true);
        let best = &all[1].value;
        assert_eq!((all.len(), best.samples, best.at_ms, best.best), (3, 30, 3, true));
        assert_eq!(
            (best.validation[Metric::Loss], best.validation[Metric::Accuracy]),
            (Some(0.25), Some(0.75))
        );
        assert_eq!((best.validation_samples, best.validation[Metric::Perplexity]), (Some(8), Some(2.0)));
        assert_eq!(best.test, Figures::default());
        let mut newest = points(&[("4", "40", "validation_loss")]);
        mark_best(&mut newest, &job, false);
        assert_eq!(newest.len(), 1, "behind a point of them it is told no second time");
    }

    /// Every word in the paragraph of docs/redis-schema.md that stands for an event.
    #[test]
    fn every_event_that_the_documents_name_can_be_read() {
        let page = include_str!("../../../../docs/redis-schema.md");
        let from = page.find("### `syncline:{JOB}:events`").unwrap();
        let paragraph = &page[from..from + page[from..].find("### `syncline:{JOB}:barriers`").unwrap()];
        let fields =
            ["what", "at_ms", "worker", "name", "factor", "barrier", "shortened", "host", "code", "reason"];
        let fields =
            [&fields[..], &["again_in_ms", "until_ms", "path", "task", "attempt", "training", "tasks"]]
                .concat();
        let of_speeds = ["interval_us", "median_interval_us"];
        let of_checkpoints = ["checkpoint", "samples", "iterations", "bytes", "rest_ms", "shard", "address"];
        let of_set = |set: &str| {
            Metric::ALL
                .map(|metric| format!("{set}_{}", metric.field()))
                .into_iter()
                .chain([format!("{set}_samples")])
        };
        let of_evaluations: Vec<String> = of_set("test").chain(of_set("validation")).collect();
        let of_jobs = ["nodes", "workers", "applied", "barriers", "state", "learning_rate"];
        let fields = [&fields[..], &of_speeds, &of_checkpoints, &of_jobs].concat();
        let is_field =
            |word: &&str| fields.contains(word) || of_evaluations.iter().any(|field| field == word);
        let is_event =
            |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '_') && !is_field(word);
        let events: Vec<&str> = paragraph.split('`').skip(1).step_by(2).filter(is_event).collect();
        assert!(events.len() >= 20, "{events:?}");
        for what in events {
            let entry = [("what", what), ("at_ms", "7")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
            let read = Entry::<JobEvent>::read(&StreamEntry {
                at: StreamCursor { at_ms: 7, number: 0 },
                fields: entry,
            });
            assert!(read.is_ok(), "{what}: {read:?}");
        }
    }
}
