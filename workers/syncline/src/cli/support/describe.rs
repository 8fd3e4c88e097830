//! A job and its workers in words, from the fields that Redis shows.

use std::time::{SystemTime, UNIX_EPOCH};

use syncline_engine::{
    rpc::{JobFields, JobView},
    store::keys::JobKeys,
};
use syncline_scheduler::core::{Member, Membership};

use crate::cli::table;

/// After this long without a new sample the speed lately is none.
const STALE_AFTER_MS: f64 = 10_000.0;

/// What is shown where a damaged job does not say.
const UNKNOWN: &str = "-";

/// One field of a job, empty if it is not there.
pub(crate) fn field<'a>(job: &'a JobFields, name: &str) -> &'a str {
    job.get(name).map_or("", String::as_str)
}

pub(crate) fn number(job: &JobFields, name: &str) -> f64 {
    field(job, name).parse().unwrap_or(0.0)
}

/// Whether nothing follows unless somebody mends it.
pub(crate) fn is_over(job: &JobFields) -> bool {
    matches!(field(job, "state"), "done" | "failed" | "canceled" | "damaged")
}

/// Samples per second over the last seconds; nothing unless it trains.
pub(crate) fn samples_per_s_lately(job: &JobFields) -> Option<String> {
    let lately = Some(field(job, "samples_per_s_lately")).filter(|figure| !figure.is_empty())?;
    // The engine writes a job when something happens to it: the figure of one that stands still is old.
    let still = since_ms(number(job, "progress_ms")) > STALE_AFTER_MS;
    Some(if still { "0.0".to_owned() } else { lately.to_owned() })
}

/// The speed as a whole line: lately and on average.
fn speed(job: &JobFields) -> String {
    let average = field(job, "samples_per_s");
    match samples_per_s_lately(job) {
        Some(lately) => format!("{lately}/s, on average {average}/s"),
        None => format!("{average}/s"),
    }
}

/// What the job waits for, and what is wrong with the cluster, in words.
fn obstacles(view: &JobView) -> Vec<(&'static str, String)> {
    if is_over(&view.job) {
        return Vec::new();
    }
    let waits = Some(field(&view.job, "waiting_for")).filter(|text| !text.is_empty());
    let waits = waits.map(|text| ("waits for", text.to_owned()));
    waits.into_iter().chain(view.notes.iter().map(|note| ("trouble", note.clone()))).collect()
}

/// The same in one cell of a table.
pub(crate) fn waits_for(job: &JobFields) -> String {
    let told = [field(job, "waiting_for"), field(job, "trouble")];
    let told: Vec<&str> = told.into_iter().filter(|text| !text.is_empty() && !is_over(job)).collect();
    told.join("; ")
}

/// `3/20`, the epoch that runs of all.
pub(crate) fn epoch(job: &JobFields) -> String {
    if field(job, "epochs").is_empty() {
        return UNKNOWN.to_owned();
    }
    let (done, all) = (number(job, "epoch"), number(job, "epochs"));
    format!("{}/{}", (done + 1.0).min(all), all)
}

/// Time since the job was submitted.
pub(crate) fn age(job: &JobFields) -> String {
    if field(job, "submitted_ms").is_empty() {
        return UNKNOWN.to_owned();
    }
    span(since_ms(number(job, "submitted_ms")) / 1e3)
}

/// Time since a moment in epoch milliseconds, in words; of a job that is over, until its end.
fn time_since(ms: f64, job: &JobFields) -> String {
    let ended = Some(number(job, "ended_ms")).filter(|&ended| ended > 0.0);
    span(ended.map_or_else(|| since_ms(ms), |ended| (ended - ms).max(0.0)) / 1e3)
}

fn since_ms(ms: f64) -> f64 {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64() * 1e3);
    (now_ms - ms).max(0.0)
}

fn span(s: f64) -> String {
    match s {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3_600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}

/// The line of progress that `watch` shows: epoch, samples/s, loss, next barrier, and what stands in the way.
pub(crate) fn progress(view: &JobView) -> String {
    let job = &view.job;
    let speed = samples_per_s_lately(job).unwrap_or_else(|| field(job, "samples_per_s").to_owned());
    let mut parts =
        vec![field(job, "state").to_owned(), format!("epoch {}", epoch(job)), format!("{speed} samples/s")];
    for (name, value) in [("loss", field(job, "loss")), ("next barrier", field(job, "next_barrier"))] {
        if !value.is_empty() && !is_over(job) || name == "loss" && !value.is_empty() {
            parts.push(format!("{name} {value}"));
        }
    }
    parts.extend(obstacles(view).into_iter().map(|(what, text)| format!("{what}: {text}")));
    parts.join("  ")
}

/// The job in a few lines, and a table of its workers.
pub(crate) fn job(view: &JobView) -> String {
    let job = &view.job;
    let f = |name| field(job, name);
    let name = ("job", format!("{} ({})", f("id"), f("state")));
    if f("state") == "damaged" {
        let delete = format!("`syncline delete {}` forgets it", f("id"));
        return align(&[name, ("code", f("code").into()), ("reason", f("reason").into()), ("next", delete)]);
    }
    let mut lines = vec![name];
    lines.extend(progress_lines(job));
    lines.extend(obstacles(view));
    lines.extend(result_lines(job));
    lines.push(("age", age(job)));
    let lines = align(&lines);
    let workers = workers(view);
    if workers.is_empty() { lines } else { format!("{lines}\n\n{workers}") }
}

type Line = (&'static str, String);

/// Policy and counters of a job.
fn progress_lines(job: &JobFields) -> Vec<Line> {
    let f = |name| field(job, name);
    let iterations = format!(
        "{} done, {} lost, {} torn, {} skipped",
        f("iterations_done"),
        f("iterations_lost"),
        f("iterations_torn"),
        f("iterations_skipped")
    );
    let barriers = format!(
        "{}, waited {} ms (predicted {} ms), {} planned again",
        f("barriers"),
        f("actual_wait_ms"),
        f("predicted_wait_ms"),
        f("replanned")
    );
    vec![
        ("policy", f("policy").to_owned()),
        ("epoch", epoch(job)),
        ("samples", format!("{} of {}, {}", f("samples_applied"), f("samples_total"), speed(job))),
        ("iterations", iterations),
        ("barriers", barriers),
        // Of the fastest worker over the slowest.
        match (is_over(job), f("lead")) {
            (false, now) if !now.is_empty() => {
                ("lead", format!("{now} iterations, largest {}", f("max_lead")))
            }
            _ => ("largest lead", format!("{} iterations", f("max_lead"))),
        },
    ]
}

/// What a job has reached; fields that it does not have yet are left out.
fn result_lines(job: &JobFields) -> Vec<Line> {
    let f = |name| field(job, name);
    let share = |name: &str, field: &'static str| {
        let share: Option<f64> = f(field).parse().ok();
        share.map_or(String::new(), |share| format!(", {name} {:.2} %", share * 100.0))
    };
    let accuracy = share("accuracy", "test_accuracy") + &share("top-k accuracy", "test_top_k_accuracy");
    let perplexity: Option<f64> = f("test_perplexity").parse().ok();
    let perplexity = perplexity.map_or(String::new(), |value| format!(", perplexity {value:.2}"));
    let test = match f("test_loss") {
        "" => String::new(),
        loss => format!("loss {loss}{accuracy}{perplexity}"),
    };
    let while_running = |name| if is_over(job) { String::new() } else { f(name).to_owned() };
    let lines = [
        ("next barrier", while_running("next_barrier")),
        ("loss", f("loss").to_owned()),
        ("test", test),
        ("snapshot", f("snapshot").to_owned()),
        ("reason", f("reason").to_owned()),
        ("excluded", while_running("excluded")),
    ];
    lines.into_iter().filter(|(_, text)| !text.is_empty()).collect()
}

fn align(pairs: &[(&str, String)]) -> String {
    pairs.iter().map(|(name, value)| format!("{name:<13} {value}")).collect::<Vec<_>>().join("\n")
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
        let standing = match m.membership {
            // It has stayed to the end.
            Membership::Active if is_over(&view.job) => "done",
            Membership::Active => "active",
            Membership::Sealing { .. } => "sealing",
            Membership::Gone => "gone",
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
            ms(s.throttle_us),
            ms(s.pull_us),
            ms(s.push_us),
            ms(s.wait_us),
        ]
    };
    let mut text = table(WORKER_COLUMNS, &members.iter().map(row).collect::<Vec<_>>());
    let slow = members.iter().filter(|(_, m)| m.membership == Membership::Active && !is_over(&view.job));
    for (id, m, slow) in slow.filter_map(|(id, m)| Some((id, m, m.straggler?))) {
        let called = display_name(&m.about.name, id);
        text += &format!("\n{}", slow_worker(&called, slow.factor, slow.since_us as f64 / 1e3, &view.job));
    }
    text
}

/// A worker as people know it, and in brackets the incarnation under which it takes part.
pub(crate) fn display_name(name: &str, id: &str) -> String {
    if name.is_empty() { id.to_owned() } else { format!("{name} ({id})") }
}

/// Who is slow, how much, and since when; or who was until the job ended.
pub(crate) fn slow_worker(called: &str, factor: f64, since_ms: f64, job: &JobFields) -> String {
    let since = time_since(since_ms, job);
    let been = if is_over(job) { "was" } else { "has been" };
    format!("{called} {been} {factor:.1} times as slow per sample as most for {since}")
}

/// How to look at the same job without Syncline.
pub(crate) fn redis_commands(job: &JobFields, redis_cli: &str) -> Option<String> {
    let keys = JobKeys::new(&field(job, "id").parse().ok()?);
    Some(format!("{redis_cli} HGETALL '{}'\n{redis_cli} XREVRANGE '{}' + - COUNT 5", keys.job, keys.metrics))
}

/// The same as JSON, with the workers' records unpacked.
pub(crate) fn json(view: &JobView) -> serde_json::Value {
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
        let job = fields(&[("state", "running"), ("epoch", "0"), ("epochs", "3"), ("samples_per_s", "9.5")]);
        let mut view = JobView { job, ..JobView::default() };
        assert_eq!(progress(&view), "running  epoch 1/3  9.5 samples/s");
        view.job.extend(fields(&[("loss", "0.5"), ("next_barrier", "2: planning")]));
        assert_eq!(progress(&view), "running  epoch 1/3  9.5 samples/s  loss 0.5  next barrier 2: planning");
        view.job.extend(fields(&[("waiting_for", "room on the disk")]));
        view.notes.push("shard 1 is silent".into());
        assert!(progress(&view).ends_with("  waits for: room on the disk  trouble: shard 1 is silent"));
        view.job.extend(fields(&[("state", "done"), ("epoch", "3")]));
        assert_eq!(progress(&view), "done  epoch 3/3  9.5 samples/s  loss 0.5");
    }

    #[test]
    fn how_long_a_worker_was_slow_ends_with_its_job() {
        let now = since_ms(0.0);
        let running = fields(&[("state", "running"), ("ended_ms", "")]);
        let words = slow_worker("worker-3 (w3)", 2.5, now - 30_000.0, &running);
        assert_eq!(words, "worker-3 (w3) has been 2.5 times as slow per sample as most for 30 s");
        let done = fields(&[("state", "done"), ("ended_ms", "1700000005000")]);
        let words = slow_worker("worker-3 (w3)", 2.5, 1_700_000_000_000.0, &done);
        assert_eq!(words, "worker-3 (w3) was 2.5 times as slow per sample as most for 5 s");
    }

    #[test]
    fn a_table_says_what_a_job_waits_for_and_what_stops_every_job() {
        let mut job = fields(&[("state", "running"), ("waiting_for", ""), ("trouble", "")]);
        assert_eq!(waits_for(&job), "");
        job.extend(fields(&[("trouble", "Redis takes no writes")]));
        assert_eq!(waits_for(&job), "Redis takes no writes");
        job.extend(fields(&[("waiting_for", "room on the disk")]));
        assert_eq!(waits_for(&job), "room on the disk; Redis takes no writes");
        job.extend(fields(&[("state", "done")]));
        assert_eq!(waits_for(&job), "");
    }

    #[test]
    fn the_speed_of_a_job_that_stands_still_is_none() {
        let mut job = fields(&[("state", "running"), ("samples_per_s", "9.5")]);
        assert_eq!(speed(&job), "9.5/s");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        job.extend(fields(&[("samples_per_s_lately", "4.0"), ("progress_ms", &now.to_string())]));
        assert_eq!(speed(&job), "4.0/s, on average 9.5/s");
        job.extend(fields(&[("progress_ms", &(now - 20_000).to_string())]));
        assert_eq!(speed(&job), "0.0/s, on average 9.5/s");
    }
}
