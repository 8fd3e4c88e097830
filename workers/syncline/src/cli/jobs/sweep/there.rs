//! The trials of a sweep that the cluster knows, without its command line: `sweep --show`.

use std::collections::BTreeMap;

use syncline_rpc::status::{JobList, JobStatus};
use syncline_scheduler::spec::Metric;
use syncline_workers::client::{Client, ClientError};

use super::{measure::newest_training_loss, outcome::Outcome, values::decimal};
use crate::cli::{Failure, say};

/// Those whose ids are `prefix` and a number, with what they have measured.
pub(super) async fn load(client: &Client, prefix: &str, metric: Metric) -> Result<Vec<Outcome>, Failure> {
    let JobList { jobs, left_out, .. } = client.list_jobs(None).await?;
    if left_out > 0 {
        say(&format!("{left_out} older jobs are not looked at; trials among them are missing here"));
    }
    let numbered = |job: JobStatus| Some((number(job.id.as_str(), prefix)?, job));
    let mut jobs: Vec<(u64, JobStatus)> = jobs.into_iter().filter_map(numbered).collect();
    jobs.sort_by_key(|(number, _)| *number);
    let jobs: Vec<JobStatus> = jobs.into_iter().map(|(_, job)| job).collect();
    let mut outcomes = Vec::with_capacity(jobs.len());
    for (job, values) in jobs.iter().zip(differing(&jobs)) {
        let epoch_samples = job.samples_total / u64::from(job.epochs.max(1));
        let curve = match client.metrics(&job.id, None).await {
            Ok(entries) => entries.into_iter().map(|entry| entry.value).collect(),
            // What is gone or damaged hides none of the others.
            Err(ClientError::Refused(_)) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let loss = newest_training_loss(job, &curve, epoch_samples);
        outcomes.push(Outcome::of(job.id.clone(), values, Some(job.clone()), loss, metric));
    }
    Ok(outcomes)
}

/// The number behind the prefix, as in `digits-sweep-3`.
fn number(id: &str, prefix: &str) -> Option<u64> {
    let digits = id.strip_prefix(prefix)?.strip_prefix('-')?;
    let number = digits.parse().ok()?;
    // `+3` and `03` are numbers, and no names that a sweep gives.
    (digits == format!("{number}")).then_some(number)
}

/// The settings of each job that some of the others have otherwise; what is the default is in no list.
fn differing(jobs: &[JobStatus]) -> Vec<BTreeMap<String, String>> {
    let known: Vec<&JobStatus> = jobs.iter().filter(|job| !job.settings.is_empty()).collect();
    let differs = |name: &str, value: &str| known.iter().any(|other| other.settings.get(name) != Some(value));
    let own = |job: &JobStatus| -> BTreeMap<String, String> {
        let own = job.settings.iter().filter(|own| differs(&own.name, &own.value));
        let mut own: BTreeMap<String, String> =
            own.map(|own| (own.name.clone(), as_drawn(&own.value))).collect();
        // Of other files everybody expects that they hold something else.
        if own.keys().any(|name| name.starts_with("data.source.")) {
            own.remove("data.digest");
        }
        own
    };
    jobs.iter().map(own).collect()
}

/// A number as a sweep draws it, and as it stands in the table of one that runs: jobs write `8e-4`, sweeps
/// `0.0008`.
fn as_drawn(value: &str) -> String {
    let number = value.parse().ok().filter(|_| value.contains('e'));
    number.map_or_else(|| value.to_owned(), decimal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::support::describe::tests::job;

    #[test]
    fn a_trial_is_known_by_its_name_table() {
        #[rustfmt::skip]
        let cases = [
            ("digits-sweep-1",   Some(1)),
            ("digits-sweep-12",  Some(12)),
            ("digits-sweep-",    None),
            ("digits-sweep-01",  None),
            ("digits-sweep-x",   None),
            ("digits-sweep-2-1", None),
            ("digits-sweep",     None),
            ("digits",           None),
        ];
        for (id, want) in cases {
            assert_eq!(number(id, "digits-sweep"), want, "{id}");
        }
    }

    #[test]
    fn a_number_is_spelled_as_it_was_drawn_table() {
        for (stored, told) in [
            ("8.106e-4", "0.0008106"),
            ("1e-8", "1e-8"),
            ("0.01", "0.01"),
            ("64", "64"),
            ("'bsp'", "'bsp'"),
            ("one", "one"),
        ] {
            assert_eq!(as_drawn(stored), told);
        }
    }

    #[test]
    fn what_some_jobs_have_otherwise_differs() {
        let with = |settings: &str| job(&[("settings", settings)]);
        let jobs = [
            with(r#"{"settings.batch":"8","settings.policy":"bsp","data.digest":"a"}"#),
            with(
                r#"{"settings.batch":"8","settings.policy":"asp","settings.warmup":"0.1","data.digest":"a"}"#,
            ),
            job(&[]),
        ];
        let own = differing(&jobs);
        let names: Vec<Vec<&str>> = own.iter().map(|own| own.keys().map(String::as_str).collect()).collect();
        assert_eq!(names, [vec!["settings.policy"], vec!["settings.policy", "settings.warmup"], vec![]]);
    }
}
