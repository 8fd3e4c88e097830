//! Replays recorded cases through the planner and the DSSP policy, and prints what they answer:
//! `cargo run --release -p syncline-scheduler --example replay -- FILE`.
//!
//! FILE is a JSON object with `cases`; each has an `id` and one of
//!
//! * `points`: per worker the ascending end times of its next iterations, or `history`: per worker the last
//!   push but one and the last, with `R`. Answer: `algorithms`, by name the `span`, the `sync_time` and each
//!   worker's `index`. Of both, `points` counts.
//! * `kind: controller` with `A`, `t`, `p`, `s_L`, `r_max`: the DSSP controller for worker p. Answer:
//!   `r_star` as printed in the paper and `capped`.
//! * `kind: trace` with `durations`, `s_L`, `r_max`, `max_pushes`. Answer: `events` in both readings, see
//!   [`dssp`].
//!
//! One JSON object per case and line. Times may have fractions: they are put on a grid that holds them
//! exactly (see `Ticks`), and come out as they went in, whole ones as integers. Fields with expected answers
//! are not read.

mod dssp;

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    io::{self, Write},
};

use serde::{Deserialize, Serialize};
use syncline_scheduler::{
    spec::DsspReading,
    sync::search::{Algorithm, Ticks, Time, search},
};

#[derive(Deserialize)]
struct Cases {
    cases: Vec<Case>,
}

/// The inputs of any case.
#[derive(Deserialize)]
struct Case {
    id: String,
    kind: Option<String>,
    points: Option<Vec<Vec<f64>>>,
    history: Option<Vec<[f64; 2]>>,
    #[serde(rename = "R")]
    lookahead: Option<u32>,
    #[serde(rename = "A")]
    pushes: Option<Vec<[Option<u64>; 2]>>,
    t: Option<Vec<u64>>,
    p: Option<usize>,
    #[serde(rename = "s_L")]
    lower: Option<u32>,
    r_max: Option<u32>,
    durations: Option<Vec<Vec<u64>>>,
    max_pushes: Option<usize>,
}

#[derive(Serialize)]
struct Found {
    span: Time,
    sync_time: Time,
    index: Vec<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Algorithms(BTreeMap<&'static str, Option<Found>>),
    RStar { paper: u64, capped: u64 },
    Events { strict: Vec<dssp::Event>, literal: Vec<dssp::Event> },
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: replay FILE")?;
    let Cases { cases } = serde_json::from_slice(&fs::read(path)?)?;
    let mut stdout = io::stdout().lock();
    for case in cases {
        let id = case.id.clone();
        let answer = answer(case).ok_or_else(|| format!("case {id}: a field is missing or out of range"))?;
        let mut line = serde_json::to_value(answer)?;
        line["id"] = id.into();
        writeln!(stdout, "{line}")?;
    }
    Ok(())
}

/// `None` if the case lacks an input.
fn answer(case: Case) -> Option<Answer> {
    match case.kind.as_deref() {
        Some("controller") => {
            let asked = dssp::Asked {
                worker: case.p?,
                clocks: case.t?.into_iter().zip(case.pushes?).collect(),
                lower: case.lower?,
                range: case.r_max?,
            };
            let [paper, capped] = [DsspReading::Literal, DsspReading::Strict].map(|r| asked.controller(r));
            Some(Answer::RStar { paper, capped })
        }
        Some("trace") => {
            let trace = dssp::Trace {
                durations: case.durations?,
                lower: case.lower?,
                range: case.r_max?,
                max_pushes: case.max_pushes?,
            };
            let [strict, literal] = [DsspReading::Strict, DsspReading::Literal].map(|r| trace.events(r));
            Some(Answer::Events { strict, literal })
        }
        Some(_) => None,
        None => windows(&match (case.points, case.history) {
            (Some(points), _) => points,
            (None, history) => extrapolated(&history?, case.lookahead?),
        }),
    }
}

/// The next iterations of each worker, all as long as its last one.
fn extrapolated(history: &[[f64; 2]], lookahead: u32) -> Vec<Vec<f64>> {
    let row = |[previous, last]: &[f64; 2]| {
        (1..=lookahead).map(|i| last + f64::from(i) * (last - previous)).collect()
    };
    history.iter().map(row).collect()
}

/// The answer of every search.
fn windows(points: &[Vec<f64>]) -> Option<Answer> {
    let ticks = Ticks::fitting(points.iter().flatten().copied())?;
    let rows: Vec<Vec<u64>> = points.iter().map(|row| row.iter().map(|&t| ticks.of(t)).collect()).collect();
    let found = |algorithm| {
        let window = search(algorithm, &rows)?;
        Some(Found {
            span: ticks.length(window.span_us),
            sync_time: ticks.time(window.sync_at_us),
            index: window.index,
        })
    };
    Some(Answer::Algorithms(
        Algorithm::ALL
            .into_iter()
            .filter(|a| *a != Algorithm::HeapMerge)
            .map(|a| (a.name(), found(a)))
            .collect(),
    ))
}
