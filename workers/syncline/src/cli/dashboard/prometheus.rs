//! A cluster as metrics, in the text format of Prometheus, version 0.0.4.

use std::fmt::Write;

use syncline_rpc::status::{JobStatus, LiveWorker};
use syncline_scheduler::spec::Metric;

use super::overview::{Known, Overview};
use crate::cli::describe::samples_per_s_lately;

/// The type of the text.
pub(super) const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Name behind `syncline_job_`, what it is, and its value for a job at a time on the engine's clock, where it
/// has one.
type JobMetric = (&'static str, &'static str, fn(&JobStatus, u64) -> Option<f64>);

#[rustfmt::skip]
const OF_JOBS: [JobMetric; 20] = [
    ("workers",                  "Workers that take part",                      |job, _| Some(job.workers.into())),
    ("epochs_complete",          "Passes over the training set that are over",  |job, _| training(job, job.epochs_complete.into())),
    ("samples_total",            "Samples of all epochs",                       |job, _| training(job, job.samples_total as f64)),
    ("samples_applied",          "Samples that are in the parameters",          |job, _| training(job, job.samples_applied as f64)),
    ("samples_per_second",       "Samples per second, of the last seconds",     |job, now_ms| samples_per_s_lately(job, now_ms)),
    ("iterations_done",          "Iterations that were applied",                |job, _| training(job, job.iterations_done as f64)),
    ("iterations_lost",          "Iterations given out again as their worker was lost", |job, _| training(job, job.iterations_lost as f64)),
    ("iterations_skipped",       "Iterations without weight, as they were not finite", |job, _| training(job, job.iterations_skipped as f64)),
    ("barriers",                 "Barriers that closed",                        |job, _| training(job, job.barriers as f64)),
    ("wait_seconds",             "Time that workers waited for others, together", |job, _| training(job, job.waited_ms as f64 / 1e3)),
    ("wait_seconds_predicted",   "The same as it was predicted",                |job, _| training(job, job.predicted_wait_ms as f64 / 1e3)),
    ("lead_iterations",          "Iterations between the fastest worker and the slowest", |job, _| training(job, job.lead as f64)),
    ("loss",                     "Mean loss of the newest iterations",          |job, _| job.loss),
    ("validation_loss",          "Loss of the newest evaluation on validation samples, while it trains or by a node", |job, _| job.validation[Metric::Loss]),
    ("validation_accuracy",      "Share of right answers in the newest evaluation on validation samples", |job, _| job.validation[Metric::Accuracy]),
    ("test_loss",                "Loss of the newest evaluation on test samples, while it trains or by a node", |job, _| job.test[Metric::Loss]),
    ("test_accuracy",            "Share of right answers in the newest evaluation on test samples", |job, _| job.test[Metric::Accuracy]),
    ("checkpoint_timestamp_seconds", "Moment that the newest checkpoint holds",   |job, _| job.checkpoint_ms.map(|ms| ms as f64 / 1e3)),
    ("tasks_total",              "General tasks that the graph has by now",     |job, _| job.tasks.as_ref().map(|tasks| tasks.total as f64)),
    ("tasks_ended",              "General tasks that ended",                    |job, _| job.tasks.as_ref().map(|tasks| tasks.ended() as f64)),
];

/// Name behind `syncline_worker_`, what it is, and its value for a worker.
type WorkerMetric = (&'static str, &'static str, fn(&LiveWorker) -> f64);

#[rustfmt::skip]
const OF_WORKERS: [WorkerMetric; 3] = [
    ("tasks_held",     "Tasks that it has been leased",                   |worker| worker.holding.into()),
    ("trains",         "1 while it trains for a job",                     |worker| f64::from(u8::from(worker.training_job.is_some()))),
    ("silent_seconds", "Time since it was heard last",                    |worker| worker.silent_ms as f64 / 1e3),
];

/// A figure that only a training has.
fn training(job: &JobStatus, value: f64) -> Option<f64> {
    job.tasks.is_none().then_some(value)
}

/// All metrics, as far as anything is known.
pub(super) fn text(overview: Option<&Overview>) -> String {
    let mut out = String::new();
    let alone = |value: u32| [(String::new(), f64::from(value))];
    let leads = overview.is_some_and(|overview| overview.idle().is_none());
    family(&mut out, "syncline_up", "1 while an engine leads and answers", alone(leads.into()));
    let Some(Overview { engine, known }) = overview else { return out };
    family(&mut out, "syncline_shards", "Shards that the cluster wants", alone(engine.shards));
    if leads {
        family(&mut out, "syncline_shards_present", "Shards that are served", alone(engine.shards_present));
    }
    let mut problem = |name: &str, help: &str, problem: &Option<String>| {
        family(&mut out, name, help, alone(problem.is_some().into()));
    };
    problem("syncline_store_problem", "1 while Redis has a problem", &engine.store_problem);
    if leads {
        problem(
            "syncline_shard_problem",
            "1 while a shard is missing, silent or not reached",
            &engine.shard_problem,
        );
        problem(
            "syncline_standby_problem",
            "1 while a shard lacks the standby that it should have",
            &engine.standby_problem,
        );
        problem(
            "syncline_disk_problem",
            "1 while the disk of a shard is nearly full or takes no file",
            &engine.disk_problem,
        );
    }
    if let Ok(Known { jobs, workers }) = known {
        known_metrics(&mut out, engine.now_ms.unwrap_or_default(), &jobs.jobs, workers);
    }
    out
}

fn known_metrics(out: &mut String, now_ms: u64, jobs: &[JobStatus], workers: &[LiveWorker]) {
    let states = jobs.iter().map(|job| {
        (labels(&[("job", job.id.as_str()), ("state", job.state.word()), ("policy", &job.policy)]), 1.0)
    });
    family(out, "syncline_job_state", "1 for the state that the job is in", states);
    for (name, help, value) in OF_JOBS {
        let values =
            jobs.iter().filter_map(|job| Some((labels(&[("job", job.id.as_str())]), value(job, now_ms)?)));
        family(out, &format!("syncline_job_{name}"), help, values);
    }
    for (name, help, value) in OF_WORKERS {
        let values = workers.iter().map(|worker| {
            let id = worker.id.to_string();
            let all = [
                ("worker", id.as_str()),
                ("name", &worker.name),
                ("host", &worker.host),
                ("device", &worker.device),
            ];
            (labels(&all), value(worker))
        });
        family(out, &format!("syncline_worker_{name}"), help, values);
    }
}

/// One metric with its values; nothing if it has none. All are gauges: what counts goes down where a job goes
/// back to a checkpoint.
fn family(out: &mut String, name: &str, help: &str, values: impl IntoIterator<Item = (String, f64)>) {
    let mut values = values.into_iter().peekable();
    if values.peek().is_none() {
        return;
    }
    // Writing to a text cannot fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
    for (labels, value) in values {
        let _ = writeln!(out, "{name}{labels} {value}");
    }
}

/// `{job="digits"}`.
fn labels(pairs: &[(&str, &str)]) -> String {
    let escaped = |value: &str| value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
    let pairs: Vec<String> =
        pairs.iter().map(|(name, value)| format!(r#"{name}="{}""#, escaped(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

#[cfg(test)]
mod tests {
    use syncline_rpc::{EngineFault, ListedJobs, status::JobList};
    use syncline_workers::client::ClientError;

    use super::*;
    use crate::cli::support::describe::tests::job;

    fn overview() -> Overview {
        let engine = serde_json::json!({
            "version": "0.1.0", "address": "a:1", "instance": "i", "redis": "redis://r", "shards": 2, "shards_present": 1,
            "worker_pids": "", "shard_problem": "s1 is not there",
        });
        let training = [
            ("id", "digits"),
            ("state", "running"),
            ("policy", "bsp"),
            ("workers", "2"),
            ("samples_applied", "640"),
            ("waited_ms", "1500"),
            ("loss", "0.25"),
        ];
        let tasks = [("id", "words"), ("state", "running"), ("tasks_total", "9"), ("tasks_done", "4")];
        let mut jobs = JobList::read(&ListedJobs::default()).unwrap();
        jobs.jobs = vec![job(&training), job(&tasks)];
        Overview {
            engine: serde_json::from_value(engine).unwrap(),
            known: Ok(Known { jobs, workers: Vec::new() }),
        }
    }

    #[test]
    fn while_redis_is_away_an_engine_that_leads_is_up_and_redis_has_a_problem() {
        let refused = EngineFault::Store { cause: "it hangs".to_owned() };
        let mut led = Overview { known: Err(ClientError::from(refused).into()), ..overview() };
        led.engine.store_problem = Some("it hangs".to_owned());
        let told = |overview: &Overview| {
            let text = text(Some(overview));
            let names = ["syncline_up", "syncline_shards_present", "syncline_store_problem"];
            names
                .map(|name| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok()))
        };
        assert_eq!(told(&led), [Some(1), Some(1), Some(1)]);
        led.engine.idle = Some("Redis does not let it lead".to_owned());
        assert_eq!(told(&led), [Some(0), None, Some(1)]);
    }

    #[test]
    fn each_metric_has_a_type_and_the_values_of_those_jobs_that_have_it() {
        let text = text(Some(&overview()));
        for line in [
            "# TYPE syncline_up gauge",
            "syncline_up 1",
            "syncline_shards 2",
            "syncline_shards_present 1",
            "syncline_store_problem 0",
            "syncline_shard_problem 1",
            "syncline_standby_problem 0",
            "syncline_disk_problem 0",
            r#"syncline_job_state{job="digits",state="running",policy="bsp"} 1"#,
            r#"syncline_job_samples_applied{job="digits"} 640"#,
            r#"syncline_job_wait_seconds{job="digits"} 1.5"#,
            r#"syncline_job_loss{job="digits"} 0.25"#,
            r#"syncline_job_tasks_ended{job="words"} 4"#,
            r#"syncline_job_workers{job="words"} 0"#,
        ] {
            assert!(text.lines().any(|told| told == line), "{line} is missing in\n{text}");
        }
        for none in [
            r#"samples_applied{job="words"}"#,
            r#"tasks_total{job="digits"}"#,
            "syncline_worker_",
            "test_loss",
        ] {
            assert!(!text.contains(none), "{none} in\n{text}");
        }
    }

    #[test]
    fn the_page_names_every_metric() {
        let page = include_str!("../../../../../docs/monitoring.md");
        let text = text(Some(&overview()));
        let told = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" gauge"));
        let all = OF_JOBS.iter().map(|(name, ..)| *name).chain(OF_WORKERS.iter().map(|(name, ..)| *name));
        for name in all.map(|name| format!("_{name}`")) {
            assert!(page.contains(&name), "{name}");
        }
        for name in told.filter(|name| !name.starts_with("syncline_job_")) {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn a_cluster_that_does_not_answer_is_down_and_nothing_else() {
        let text = text(None);
        assert!(text.ends_with("\nsyncline_up 0\n") && text.lines().count() == 3, "{text}");
    }

    #[test]
    fn a_name_cannot_end_its_label() {
        let made = labels(&[("name", "a\"} 1\nup\\"), ("host", "größe")]);
        assert_eq!(made, r#"{name="a\"} 1\nup\\",host="größe"}"#);
    }
}
