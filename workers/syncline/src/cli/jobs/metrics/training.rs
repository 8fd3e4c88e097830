//! A training with all that it has told of itself.

use syncline_rpc::status::{Entry, EvaluationPoint, JobStatus, MetricsPoint};
use syncline_scheduler::ids::JobId;

use crate::cli::{CliError, Failure, jobs::source::Source};

/// A training with its loss curve and its evaluations, as of one moment.
#[derive(Debug, Clone)]
pub(crate) struct Training {
    /// What it is called: its id, and the file that tells of it where the job is shown more than once.
    pub(crate) name: String,
    pub(crate) job: JobStatus,
    /// Oldest first.
    pub(crate) points: Vec<Entry<MetricsPoint>>,
    /// Oldest first, the best one marked.
    pub(crate) evaluations: Vec<Entry<EvaluationPoint>>,
}

impl Training {
    /// Asks for all of it. Of a job that trains nothing there is nothing to tell.
    pub(super) async fn load(source: &Source, id: &JobId, name: String) -> Result<Self, Failure> {
        let job = source.status(id).await?.job;
        if job.tasks.is_some() {
            return Err(CliError::NoTraining { job: id.clone() }.into());
        }
        let points = source.metrics(id).await?;
        let evaluations = source.evaluations(id).await?;
        Ok(Self { name, job, points, evaluations })
    }

    /// When its first point was written, from which its times count.
    fn begin_ms(&self) -> u64 {
        let first = self.points.first().map(|point| point.value.at_ms);
        first.or_else(|| self.evaluations.first().map(|point| point.value.at_ms)).unwrap_or_default()
    }

    /// How long after its first point a moment was, in seconds.
    pub(crate) fn elapsed_s(&self, at_ms: u64) -> f64 {
        at_ms.saturating_sub(self.begin_ms()) as f64 / 1e3
    }
}

/// The points of a training without those that were undone: it went back to a checkpoint, from where it came
/// past them again.
pub(crate) fn that_count<T>(points: impl Iterator<Item = T>, samples: impl Fn(&T) -> u64) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for point in points {
        while kept.last().is_some_and(|last| samples(last) > samples(&point)) {
            kept.pop();
        }
        kept.push(point);
    }
    kept
}

#[cfg(test)]
pub(crate) mod tests {
    use syncline_rpc::{StreamCursor, StreamEntry};

    use super::*;

    /// An entry with these fields, after so many samples and as many seconds.
    pub(crate) fn entry<T: serde::de::DeserializeOwned>(samples: u64, fields: &[(&str, &str)]) -> Entry<T> {
        let at_ms = 1_764_093_600_000 + samples * 1_000;
        let known = [("at_ms", at_ms.to_string()), ("samples", samples.to_string())];
        let zeros = ["iterations", "step_us", "compute_us", "wait_us", "staleness_mean", "staleness_max"];
        let known = known.map(|(name, value)| (name.to_owned(), value)).into_iter();
        let zeros = zeros.into_iter().map(|name| (name.to_owned(), "0".to_owned()));
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let at = StreamCursor { at_ms, number: 0 };
        Entry::read(&StreamEntry { at, fields: known.chain(zeros).chain(fields).collect() }).unwrap()
    }

    /// A training with these fields of its job, and these losses.
    pub(crate) fn training(job: &[(&str, &str)], losses: &[(u64, &str)]) -> Training {
        let known = [("id", "digits"), ("state", "running"), ("policy", "bsp")].iter().chain(job);
        let fields = known.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let points = losses.iter().map(|(samples, loss)| entry(*samples, &[("loss", loss)])).collect();
        let job = JobStatus::read(&fields).unwrap();
        Training { name: job.id.to_string(), job, points, evaluations: Vec::new() }
    }

    #[test]
    fn times_count_from_the_first_point() {
        let mut all = training(&[], &[(10, "2"), (14, "1")]);
        assert_eq!(all.elapsed_s(all.points[1].value.at_ms), 4.0);
        all.evaluations = vec![entry(12, &[("test_loss", "1")])];
        assert_eq!(all.elapsed_s(all.evaluations[0].value.at_ms), 2.0);
        all.points.clear();
        assert_eq!(all.elapsed_s(all.evaluations[0].value.at_ms), 0.0);
    }
}
