//! ZipLine against answers computed elsewhere by brute force: 40 cases always, and all of them when
//! `SYNCLINE_VECTORS` names the folder that holds the full `zipline.json`.

use serde::Deserialize;
use std::path::{Path, PathBuf};
use syncline_scheduler::sync::zipline::{Row, narrowest_window};

#[derive(Deserialize)]
struct Vectors {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    family: String,
    /// One row per worker; whole µs, except in the family `float`, which holds multiples of 1/8.
    points: Vec<Vec<f64>>,
    expect: Expect,
}

#[derive(Deserialize)]
struct Expect {
    min_span: f64,
    sync_time: f64,
    index: Vec<u32>,
}

/// Whole numbers for every family; exact, because no vector has a finer fraction or comes near 2^53.
fn eighths(time: f64) -> u64 {
    let scaled = time * 8.0;
    assert!(scaled.fract() == 0.0 && (0.0..2f64.powi(53)).contains(&scaled), "{time} is no multiple of 1/8");
    scaled as u64
}

/// The same points as an arithmetic progression, if they are one.
fn progression(points: &[u64]) -> Option<Row> {
    let interval_us = points.get(1).map_or(0, |second| second - points[0]);
    points.windows(2).all(|pair| pair[1] - pair[0] == interval_us).then_some(Row {
        first_us: points[0],
        interval_us,
        count: points.len() as u32,
    })
}

/// Checks every case of the file; returns the number of cases and of those that also ran as progressions.
fn check(path: &Path) -> (usize, usize) {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let vectors: Vectors = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut progressions = 0;
    for Case { id, family, points, expect } in &vectors.cases {
        let points: Vec<Vec<u64>> =
            points.iter().map(|row| row.iter().map(|&t| eighths(t)).collect()).collect();
        let check = |found: Option<_>| {
            let syncline_scheduler::sync::zipline::Window { span_us, sync_at_us, index } = found.expect(id);
            assert_eq!(span_us, eighths(expect.min_span), "span of {id} ({family})");
            assert_eq!(sync_at_us, eighths(expect.sync_time), "sync time of {id} ({family})");
            assert_eq!(index, expect.index, "index of {id} ({family})");
        };
        check(narrowest_window(&points));
        if let Some(rows) = points.iter().map(|row| progression(row)).collect::<Option<Vec<_>>>() {
            check(narrowest_window(&rows));
            progressions += 1;
        }
    }
    (vectors.cases.len(), progressions)
}

/// The folder of the full vectors, which are too large to commit.
fn full_vectors(file: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("SYNCLINE_VECTORS");
    if folder.is_none() {
        eprintln!("SKIPPED: {file} is checked only if SYNCLINE_VECTORS names the folder that holds it");
    }
    Some(PathBuf::from(folder?).join(file))
}

#[test]
fn committed_vectors_hold() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/zipline.json");
    let (cases, progressions) = check(&path);
    assert_eq!(cases, 40);
    assert!(progressions >= 10, "only {progressions} cases are progressions");
}

#[test]
fn full_vectors_hold() {
    let Some(path) = full_vectors("zipline.json") else { return };
    let (cases, progressions) = check(&path);
    assert_eq!(cases, 300);
    eprintln!("{cases} cases hold, {progressions} of them also as progressions");
}

/// The ElasticBSP authors recorded a span of 1403 ms for their 1000 workers with R = 15 (i = 0..14).
#[test]
fn the_authors_recorded_span_is_found() {
    let Some(path) = full_vectors("authors_w1000_R20.txt") else { return };
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let pushes = |line: &str| -> Vec<u64> {
        let (_, times) = line.split_once(':').expect("a line is worker:time,time,");
        times.split(',').filter_map(|t| t.trim().parse().ok()).collect()
    };
    let rows: Vec<Row> = text
        .lines()
        .map(|line| match pushes(line)[..] {
            [.., before, last] => Row { first_us: last, interval_us: last - before, count: 15 },
            _ => panic!("fewer than two pushes in {line:?}"),
        })
        .collect();
    assert_eq!(rows.len(), 1000);
    assert_eq!(narrowest_window(&rows).map(|w| w.span_us), Some(1403));
}
