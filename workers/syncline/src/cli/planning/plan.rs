//! `syncline plan`: where workers would meet, from a file or stdin, without a cluster.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use syncline_scheduler::sync::search::{Algorithm, Points, Row, Slack, Ticks, Time, earliest_within, search};

use crate::cli::{Exit, Failure, log_as_command, print, print_json, table};

/// Points of all workers together; the searches that write them all down need some 400 MB for so many.
pub(crate) const MAX_POINTS: u64 = 10_000_000;
const MAX_INPUT_MIB: u64 = 64;

#[derive(Debug, clap::Args)]
#[command(after_help = "Input is one JSON object, all times in one unit of your choice:
  {\"points\": [[10, 20, 30], [29, 58]]}              ends of each worker's next iterations
  {\"history\": [[0, 10], [0, 29]], \"lookahead\": 15}  each worker's last two pushes
Other fields are ignored; of both forms, `points` counts. Workers are numbered from 0.")]
pub struct PlanArgs {
    /// File with the input; `-` or nothing: stdin
    file: Option<PathBuf>,
    /// How to search: default, zipline, zipline-opt, zipline-opt-bs, heap, grid-scan, full-grid-scan
    #[arg(long, value_name = "NAME", default_value_t)]
    algorithm: Algorithm,
    /// Iterations to look ahead per worker, whatever the input says
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..))]
    lookahead: Option<u32>,
    /// Take the earliest window at most (1 + EPS) times as wide as the narrowest; only with the default
    /// search
    #[arg(long, value_name = "EPS")]
    early: Option<Slack>,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// What is wrong with the input. Codes are stable, see docs/errors.md.
#[derive(Debug, thiserror::Error)]
enum PlanError {
    #[error("[E562] cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("[E563] the input is larger than {MAX_INPUT_MIB} MiB")]
    Size,
    #[error("[E564] the input is not what `plan` reads")]
    Json {
        #[source]
        source: serde_json::Error,
    },
    #[error("[E565] {what}")]
    Input { what: &'static str },
    #[error("[E566] worker {worker}: {what}")]
    Worker { worker: usize, what: &'static str },
    #[error("[E567] {workers} workers with {lookahead} points each are more than {MAX_POINTS} points")]
    Points { workers: usize, lookahead: u32 },
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        let hint = match &error {
            PlanError::Read { .. } => "without a file name, or with `-`, stdin is read",
            PlanError::Size => "give `history` and `lookahead` instead of `points`",
            PlanError::Points { .. } => "look less far ahead with --lookahead",
            _ => "`syncline plan --help` shows both forms of input",
        };
        Self::new(Exit::Usage, error, hint)
    }
}

#[derive(Debug, Deserialize)]
struct Input {
    points: Option<Vec<Vec<f64>>>,
    history: Option<Vec<[f64; 2]>>,
    lookahead: Option<u32>,
}

/// What `--json` prints; times in the input's unit.
#[derive(Debug, Serialize)]
struct Answer {
    algorithm: Algorithm,
    /// As asked for.
    early: Option<Slack>,
    /// The longest wait.
    span: Time,
    sync_time: Time,
    /// Per worker how many of its next iterations it does before it waits: its index and one.
    iterations: Vec<u64>,
    index: Vec<u32>,
    wait: Vec<Time>,
    total_wait: Time,
}

pub(crate) fn run(args: &PlanArgs) -> Result<(), Failure> {
    log_as_command();
    let text = match args.file.as_deref().filter(|path| *path != Path::new("-")) {
        Some(path) => {
            let failed = |source| PlanError::Read { path: path.to_owned(), source };
            read(File::open(path).map_err(failed)?).map_err(failed)?
        }
        None => read(io::stdin().lock())
            .map_err(|source| PlanError::Read { path: "standard input".into(), source })?,
    };
    let answer = answer(&text, args)?;
    if args.json { print_json(&answer) } else { print(&describe(&answer)) }
}

/// At most one byte more than is accepted.
fn read(from: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    from.take((MAX_INPUT_MIB << 20) + 1).read_to_end(&mut text)?;
    Ok(text)
}

fn answer(text: &[u8], args: &PlanArgs) -> Result<Answer, PlanError> {
    if args.early.is_some() && args.algorithm != Algorithm::default() {
        return Err(PlanError::Input { what: "only the default search can prefer early windows" });
    }
    if text.len() as u64 > MAX_INPUT_MIB << 20 {
        return Err(PlanError::Size);
    }
    let input: Input = serde_json::from_slice(text).map_err(|source| PlanError::Json { source })?;
    let lookahead = args.lookahead.or(input.lookahead);
    match (input.points, input.history) {
        (Some(points), _) => {
            let (ticks, rows) = spelled_out(points, lookahead)?;
            choose(args, ticks, &rows)
        }
        (None, Some(history)) => {
            let what = "`history` needs a `lookahead` of at least 1";
            let lookahead = lookahead.filter(|&r| r > 0).ok_or(PlanError::Input { what })?;
            let (ticks, rows) = extrapolated(&history, lookahead)?;
            choose(args, ticks, &rows)
        }
        (None, None) => Err(PlanError::Input { what: "neither `points` nor `history` is given" }),
    }
}

fn check_size(workers: usize, lookahead: u32) -> Result<(), PlanError> {
    match workers as u64 * u64::from(lookahead) > MAX_POINTS {
        true => Err(PlanError::Points { workers, lookahead }),
        false => Ok(()),
    }
}

const OUT_OF_RANGE: PlanError = PlanError::Input { what: "a time is not between -2^53 and 2^53" };

/// The first `lookahead` points of each worker, on a grid of whole numbers.
fn spelled_out(
    mut points: Vec<Vec<f64>>,
    lookahead: Option<u32>,
) -> Result<(Ticks, Vec<Vec<u64>>), PlanError> {
    if lookahead == Some(0) {
        return Err(PlanError::Input { what: "`lookahead` is 0" });
    }
    if let Some(lookahead) = lookahead {
        points.iter_mut().for_each(|row| row.truncate(lookahead as usize));
    }
    let longest = points.iter().map(Vec::len).max().unwrap_or(0);
    check_size(points.len(), u32::try_from(longest).unwrap_or(u32::MAX))?;
    for (worker, row) in points.iter().enumerate() {
        if row.is_empty() {
            return Err(PlanError::Worker { worker, what: "there is no point" });
        }
        if !row.is_sorted() {
            return Err(PlanError::Worker { worker, what: "its points are not in ascending order" });
        }
    }
    let ticks = Ticks::fitting(points.iter().flatten().copied()).ok_or(OUT_OF_RANGE)?;
    let rows = points.into_iter().map(|row| row.into_iter().map(|t| ticks.of(t)).collect()).collect();
    Ok((ticks, rows))
}

/// `lookahead` further iterations of each worker, all as long as its last one.
fn extrapolated(history: &[[f64; 2]], lookahead: u32) -> Result<(Ticks, Vec<Row>), PlanError> {
    check_size(history.len(), lookahead)?;
    if let Some(worker) = history.iter().position(|[previous, last]| last < previous) {
        return Err(PlanError::Worker { worker, what: "its last push is before the one before it" });
    }
    let end = |[previous, last]: &[f64; 2]| last + (last - previous) * (f64::from(lookahead) + 1.0);
    let reach = history.iter().map(end).fold(0.0, f64::max);
    let ticks = Ticks::reaching(history.iter().flatten().copied(), reach).ok_or(OUT_OF_RANGE)?;
    let row = |&[previous, last]: &[f64; 2]| {
        let interval_us = ticks.of(last) - ticks.of(previous);
        Row { first_us: ticks.of(last) + interval_us, interval_us, count: lookahead }
    };
    Ok((ticks, history.iter().map(row).collect()))
}

fn choose<P: Points>(args: &PlanArgs, ticks: Ticks, rows: &[P]) -> Result<Answer, PlanError> {
    let window = match args.early {
        Some(slack) => earliest_within(rows, slack),
        None => search(args.algorithm, rows),
    };
    let window = window.ok_or(PlanError::Input { what: "there is no worker" })?;
    let waits: Vec<u64> =
        rows.iter().zip(&window.index).map(|(row, &i)| window.sync_at_us - row.at(i)).collect();
    Ok(Answer {
        algorithm: args.algorithm,
        early: args.early,
        span: ticks.length(window.span_us),
        sync_time: ticks.time(window.sync_at_us),
        iterations: window.index.iter().map(|&i| u64::from(i) + 1).collect(),
        index: window.index,
        total_wait: ticks.length(waits.iter().map(|&w| u128::from(w)).sum::<u128>()),
        wait: waits.into_iter().map(|w| ticks.length(w)).collect(),
    })
}

fn describe(answer: &Answer) -> String {
    let Answer { algorithm, span, sync_time, total_wait, .. } = answer;
    let worker =
        |(w, (i, wait)): (usize, (&u64, &Time))| vec![w.to_string(), i.to_string(), wait.to_string()];
    let rows: Vec<_> = answer.iterations.iter().zip(&answer.wait).enumerate().map(worker).collect();
    format!(
        "all meet at {sync_time}\nlongest wait {span}\nall waits    {total_wait}\nsearch       {algorithm}\n\n{}",
        table(&["worker", ">iterations", ">wait"], &rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        plan: PlanArgs,
    }

    fn plan(options: &str, input: &str) -> Result<serde_json::Value, String> {
        let line = Line::parse_from(format!("plan {options}").split_whitespace());
        let answer = answer(input.as_bytes(), &line.plan).map_err(|e| e.to_string())?;
        Ok(serde_json::to_value(answer).unwrap())
    }

    #[test]
    fn both_forms_of_input_give_the_same_plan() {
        let from_history = plan("", r#"{"history": [[0, 10], [0, 29.5]], "lookahead": 3}"#).unwrap();
        let from_points =
            plan("--json", r#"{"points": [[20, 30, 40], [59.0, 88.5, 118]], "id": 7}"#).unwrap();
        assert_eq!(from_history, from_points);
        let want = serde_json::json!({
            "algorithm": "default", "early": null, "span": 19, "sync_time": 59, "iterations": [3, 1],
            "index": [2, 0], "wait": [19, 0], "total_wait": 19,
        });
        assert_eq!(from_history, want);
    }

    #[test]
    fn options_table() {
        let points = r#"{"points": [[10, 50], [12.5, 51]]}"#;
        #[rustfmt::skip]
        let cases = [
            ("narrowest",         "",                     51.0),
            ("soon enough",       "--early 1.5",          12.5),
            ("not that wide",     "--early 1.4",          51.0),
            ("one point each",    "--lookahead 1",        12.5),
            ("another search",    "--algorithm grid-scan", 51.0),
        ];
        for (name, options, sync_time) in cases {
            assert_eq!(plan(options, points).unwrap()["sync_time"].as_f64(), Some(sync_time), "{name}");
        }
    }

    #[test]
    fn bad_input_is_refused_with_its_code() {
        #[rustfmt::skip]
        let cases = [
            ("no JSON",           "",                     "points",                                        "E564"),
            ("text as time",      "",                     r#"{"points": [["a"]]}"#,                        "E564"),
            ("three pushes",      "",                     r#"{"history": [[1, 2, 3]], "lookahead": 1}"#,   "E564"),
            ("neither form",      "",                     "{}",                                            "E565"),
            ("no lookahead",      "",                     r#"{"history": [[1, 2]]}"#,                      "E565"),
            ("lookahead 0",       "",                     r#"{"history": [[1, 2]], "lookahead": 0}"#,      "E565"),
            ("no worker",         "",                     r#"{"points": []}"#,                             "E565"),
            ("far too late",      "",                     r#"{"points": [[1e300]]}"#,                      "E565"),
            ("ends too late",     "",                     r#"{"history": [[0, 1e15]], "lookahead": 99}"#,  "E565"),
            ("early by ZipLine",  "--algorithm zipline --early 1", r#"{"points": [[1]]}"#,                 "E565"),
            ("no point",          "",                     r#"{"points": [[1], []]}"#,                      "E566"),
            ("descending",        "",                     r#"{"points": [[2, 1]]}"#,                       "E566"),
            ("back in time",      "",                     r#"{"history": [[2, 1]], "lookahead": 1}"#,      "E566"),
            ("too many points",   "--lookahead 4000000000", r#"{"history": [[1, 2]]}"#,                    "E567"),
        ];
        for (name, options, input, code) in cases {
            let refused = plan(options, input).expect_err(name);
            assert!(refused.starts_with(&format!("[{code}]")), "{name}: {refused}");
        }
    }

    #[test]
    fn a_person_reads_a_table() {
        let line = Line::parse_from(["plan"]);
        let answer = answer(br#"{"points": [[10, 20.25], [12, 22]]}"#, &line.plan).unwrap();
        assert_eq!(
            describe(&answer),
            "all meet at 22\nlongest wait 1.75\nall waits    1.75\nsearch       default\n\n\
             worker  iterations  wait\n0                2  1.75\n1                2     0"
        );
    }
}
