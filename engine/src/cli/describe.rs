//! A job and its workers in words, from the fields that Redis shows.

use std::time::{SystemTime, UNIX_EPOCH};

use syncline_scheduler::core::{Member, Standing};

use super::output::table;
use crate::{
    rpc::{JobFields, JobView},
    store::keys::JobKeys,
};

/// One field of a job, empty if it is not there.
pub(super) fn field<'a>(job: &'a JobFields, name: &str) -> &'a str {
    job.get(name).map_or("", String::as_str)
}

pub(super) fn number(job: &JobFields, name: &str) -> f64 {
    field(job, name).parse().unwrap_or(0.0)
}

/// Whether nothing can follow.
pub(super) fn is_over(job: &JobFields) -> bool {
    matches!(field(job, "state"), "done" | "failed" | "canceled")
}

/// `3/20`, the epoch that runs of all.
pub(super) fn epoch(job: &JobFields) -> String {
    let (done, all) = (number(job, "epoch"), number(job, "epochs"));
    format!("{}/{}", (done + 1.0).min(all), all)
}

/// Time since the job was submitted.
pub(super) fn age(job: &JobFields) -> String {
    time_since(number(job, "submitted_ms"))
}

/// Time since a moment in epoch milliseconds.
fn time_since(ms: f64) -> String {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64() * 1e3);
    span((now_ms - ms).max(0.0) / 1e3)
}

fn span(s: f64) -> String {
    match s {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3_600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}

/// The line of progress that `watch` shows: epoch, samples/s, loss, next barrier.
pub(super) fn progress(job: &JobFields) -> String {
    let mut parts = vec![
        field(job, "state").to_owned(),
        format!("epoch {}", epoch(job)),
        format!("{} samples/s", field(job, "samples_per_s")),
    ];
    for (name, value) in [("loss", field(job, "loss")), ("next barrier", field(job, "next_barrier"))] {
        if !value.is_empty() && !is_over(job) || name == "loss" && !value.is_empty() {
            parts.push(format!("{name} {value}"));
        }
    }
    parts.join("  ")
}

/// The job in a few lines, and a table of its workers.
pub(super) fn job(view: &JobView) -> String {
    let job = &view.job;
    let f = |name| field(job, name);
    let mut lines = vec![
        ("job", format!("{} ({})", f("id"), f("state"))),
        ("policy", f("policy").to_owned()),
        ("epoch", epoch(job)),
        ("samples", format!("{} of {}, {}/s", f("samples_applied"), f("samples_total"), f("samples_per_s"))),
        (
            "iterations",
            format!(
                "{} done, {} lost, {} torn, {} skipped",
                f("iterations_done"),
                f("iterations_lost"),
                f("iterations_torn"),
                f("iterations_skipped")
            ),
        ),
        (
            "barriers",
            format!(
                "{}, waited {} ms (predicted {} ms), {} planned again",
                f("barriers"),
                f("actual_wait_ms"),
                f("predicted_wait_ms"),
                f("replanned")
            ),
        ),
        ("largest lead", format!("{} iterations", f("max_lead"))),
    ];
    let mut optional = |name: &'static str, text: String, when: bool| {
        if when {
            lines.push((name, text));
        }
    };
    optional("next barrier", f("next_barrier").to_owned(), !f("next_barrier").is_empty() && !is_over(job));
    optional("loss", f("loss").to_owned(), !f("loss").is_empty());
    let share = |name: &str, field: &'static str| {
        let share: Option<f64> = f(field).parse().ok();
        share.map_or(String::new(), |share| format!(", {name} {:.2} %", share * 100.0))
    };
    let accuracy = share("accuracy", "test_accuracy") + &share("top-k accuracy", "test_top_k_accuracy");
    let perplexity: Option<f64> = f("test_perplexity").parse().ok();
    let perplexity = perplexity.map_or(String::new(), |value| format!(", perplexity {value:.2}"));
    let test = format!("loss {}{accuracy}{perplexity}", f("test_loss"));
    optional("test", test, !f("test_loss").is_empty());
    optional("snapshot", f("snapshot").to_owned(), !f("snapshot").is_empty());
    optional("reason", f("reason").to_owned(), !f("reason").is_empty());
    optional("age", age(job), true);
    let lines: Vec<String> = lines.iter().map(|(name, value)| format!("{name:<13} {value}")).collect();
    let workers = workers(view);
    if workers.is_empty() { lines.join("\n") } else { format!("{}\n\n{workers}", lines.join("\n")) }
}

const WORKER_COLUMNS: &[&str] = &[
    "worker",
    "id",
    "state",
    ">iterations",
    ">samples",
    ">batch",
    ">predicted ms",
    ">rmse ms",
    ">compute ms",
    ">pace ms",
    ">pull ms",
    ">push ms",
    ">wait ms",
];

/// Where each worker's time went, how long its next iteration is predicted to take and how wrong such predictions were,
/// and who is slow; empty without workers.
fn workers(view: &JobView) -> String {
    let mut members: Vec<(&String, Member)> =
        view.workers.iter().filter_map(|(id, json)| Some((id, serde_json::from_str(json).ok()?))).collect();
    if members.is_empty() {
        return String::new();
    }
    // `w10` comes after `w9`.
    members.sort_by_key(|(id, _)| (id.len(), (*id).clone()));
    let ms = |us: u64| format!("{:.1}", us as f64 / 1e3);
    let row = |(id, m): &(&String, Member)| {
        let standing = match m.standing {
            Standing::Active => "active",
            Standing::Sealing { .. } => "sealing",
            Standing::Gone => "gone",
        };
        let s = &m.spent;
        vec![
            m.about.name.clone(),
            (*id).clone(),
            standing.to_owned(),
            s.iterations.to_string(),
            s.samples.to_string(),
            m.batch.to_string(),
            m.speed.interval_us(m.batch).map_or_else(|| "-".into(), ms),
            ms(m.speed.errors().rmse_us as u64),
            ms(s.compute_us),
            ms(s.pace_us),
            ms(s.pull_us),
            ms(s.push_us),
            ms(s.wait_us),
        ]
    };
    let mut text = table(WORKER_COLUMNS, &members.iter().map(row).collect::<Vec<_>>());
    let slow = members.iter().filter(|(_, m)| m.standing == Standing::Active);
    for (id, m, slow) in slow.filter_map(|(id, m)| Some((id, m, m.slow?))) {
        let called = called(&m.about.name, id);
        text += &format!("\n{}", slow_worker(&called, slow.factor, slow.since_us as f64 / 1e3));
    }
    text
}

/// A worker as people know it, and in brackets the incarnation under which it takes part.
pub(super) fn called(name: &str, id: &str) -> String {
    if name.is_empty() { id.to_owned() } else { format!("{name} ({id})") }
}

/// Who is slow, how much, and since when.
pub(super) fn slow_worker(called: &str, factor: f64, since_ms: f64) -> String {
    let since = time_since(since_ms);
    format!("{called} has been {factor:.1} times as slow per sample as most for {since}")
}

/// How to look at the same job without Syncline.
pub(super) fn redis_commands(job: &JobFields, redis_cli: &str) -> Option<String> {
    let keys = JobKeys::new(&field(job, "id").parse().ok()?);
    Some(format!("{redis_cli} HGETALL '{}'\n{redis_cli} XREVRANGE '{}' + - COUNT 5", keys.job, keys.metrics))
}

/// The same as JSON, with the workers' records unpacked.
pub(super) fn json(view: &JobView) -> serde_json::Value {
    let worker =
        |text: &String| serde_json::from_str(text).unwrap_or(serde_json::Value::String(text.clone()));
    let workers: serde_json::Map<_, _> =
        view.workers.iter().map(|(id, text)| (id.clone(), worker(text))).collect();
    serde_json::json!({ "job": view.job, "workers": workers })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> JobFields {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn spans_table() {
        for (s, want) in [(5.0, "5 s"), (180.0, "3 min"), (7_200.0, "2 h"), (864_000.0, "10 d")] {
            assert_eq!(span(s), want);
        }
    }

    #[test]
    fn progress_names_what_is_known() {
        let mut job =
            fields(&[("state", "running"), ("epoch", "0"), ("epochs", "3"), ("samples_per_s", "9.5")]);
        assert_eq!(progress(&job), "running  epoch 1/3  9.5 samples/s");
        job.extend(fields(&[("loss", "0.5"), ("next_barrier", "2: planning")]));
        assert_eq!(progress(&job), "running  epoch 1/3  9.5 samples/s  loss 0.5  next barrier 2: planning");
        job.extend(fields(&[("state", "done"), ("epoch", "3")]));
        assert_eq!(progress(&job), "done  epoch 3/3  9.5 samples/s  loss 0.5");
    }
}
