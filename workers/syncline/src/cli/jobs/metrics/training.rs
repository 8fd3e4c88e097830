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

/// A point of a series of a training.
pub(crate) trait SeriesPoint {
    /// How many samples the training had seen.
    fn samples(&self) -> u64;

    /// Which generation of the parameters it belongs to, and beyond how many samples points of those before
    /// are undone; `None` of an earlier release.
    fn generation(&self) -> Option<(u64, u64)>;
}

impl SeriesPoint for MetricsPoint {
    fn samples(&self) -> u64 {
        self.samples
    }

    fn generation(&self) -> Option<(u64, u64)> {
        self.generation.zip(self.undone_beyond)
    }
}

impl SeriesPoint for EvaluationPoint {
    fn samples(&self) -> u64 {
        self.samples
    }

    fn generation(&self) -> Option<(u64, u64)> {
        self.generation.zip(self.undone_beyond)
    }
}

/// The points of a training without those that were undone: it went back to a checkpoint, and came past them
/// again.
pub(crate) fn that_count<'a, P: SeriesPoint>(points: impl Iterator<Item = &'a P>) -> Vec<&'a P> {
    let mut kept: Vec<&P> = Vec::new();
    let mut newest = None;
    for point in points {
        let most = match (newest, point.generation()) {
            (Some(before), Some((generation, _))) if generation == before => u64::MAX,
            (Some(_), Some((_, undone_beyond))) => undone_beyond,
            // Where nothing says how far it went back, it went back to this one at least.
            (None, _) | (_, None) => point.samples(),
        };
        while kept.last().is_some_and(|last| last.samples() > most) {
            kept.pop();
        }
        newest = point.generation().map(|(generation, _)| generation).or(newest);
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
    fn what_lies_between_the_checkpoint_and_the_first_point_behind_it_is_undone_too_table() {
        type Point = (u64, Option<(u64, u64)>);
        #[rustfmt::skip]
        let cases: &[(&str, &[Point], &[u64])] = &[
            ("never back",              &[(10, Some((1, 0))), (20, Some((1, 0)))],                           &[10, 20]),
            ("beyond the checkpoint",   &[(10, Some((1, 0))), (11, Some((1, 0))), (12, Some((2, 10)))],      &[10, 12]),
            ("to the beginning",        &[(10, Some((1, 0))), (12, Some((2, 0))), (14, Some((2, 0)))],       &[12, 14]),
            ("twice",                   &[(10, Some((1, 0))), (12, Some((2, 10))), (14, Some((3, 11)))],     &[10, 14]),
            ("the best once more",      &[(10, Some((1, 0))), (20, Some((1, 0))), (10, Some((2, 20)))],      &[10, 20, 10]),
            ("an earlier release",      &[(10, None), (20, None), (15, None)],                               &[10, 15]),
            ("an update between",       &[(10, None), (20, None), (15, Some((2, 0))), (18, Some((2, 0)))],   &[10, 15, 18]),
            ("the best put among them", &[(10, Some((1, 0))), (11, Some((1, 0))), (12, None), (14, Some((2, 10)))], &[10, 14]),
        ];
        for (name, points, want) in cases {
            let points = points.iter().map(|(samples, generation)| {
                let fields =
                    generation.map(|(generation, undone)| [generation, undone].map(|n| n.to_string()));
                let fields = fields.iter().flat_map(|[generation, undone]| {
                    [("generation", generation.as_str()), ("undone_beyond", undone.as_str())]
                });
                let fields: Vec<(&str, &str)> = fields.collect();
                entry::<MetricsPoint>(*samples, &[&[("loss", "1")], &fields[..]].concat()).value
            });
            let points: Vec<MetricsPoint> = points.collect();
            let kept: Vec<u64> = that_count(points.iter()).iter().map(|point| point.samples).collect();
            assert_eq!(kept, *want, "{name}");
        }
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
