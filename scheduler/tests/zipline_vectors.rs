//! Every search against answers computed elsewhere by brute force: 40 cases always, and all of them with
//! `--ignored`, if `SYNCLINE_VECTORS` names the folder that holds the full `zipline.json`.

use serde::Deserialize;
use std::path::{Path, PathBuf};
use syncline_scheduler::sync::search::{Algorithm, Points, Row, Ticks, search};

#[derive(Deserialize)]
struct Vectors {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    family: String,
    /// One row per worker; whole numbers, except in the family `float`.
    points: Vec<Vec<f64>>,
    expect: Expect,
}

#[derive(Deserialize)]
struct Expect {
    min_span: f64,
    sync_time: f64,
    index: Vec<u32>,
    index_lowest_allowed: Vec<u32>,
}

/// How many cases were checked, and what of them.
#[derive(Debug, Default, PartialEq)]
struct Checked {
    cases: usize,
    /// Cases that also ran as progressions.
    progressions: usize,
    /// Cases in which the inexact searches found the narrowest window.
    grid_scan: usize,
    full_grid_scan: usize,
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

impl Checked {
    /// Checks every search on one case.
    fn check<P: Points>(&mut self, case: &Case, ticks: Ticks, rows: &[P]) {
        let Case { id, family, expect, .. } = case;
        for algorithm in Algorithm::ALL {
            let name = format!("{algorithm} on {id} ({family})");
            let found = search(algorithm, rows).expect(&name);
            let span = ticks.length(found.span_us).get();
            match algorithm {
                Algorithm::GridScan => self.grid_scan += usize::from(span == expect.min_span),
                Algorithm::FullGridScan => self.full_grid_scan += usize::from(span == expect.min_span),
                _ => {
                    assert_eq!(span, expect.min_span, "span: {name}");
                    assert_eq!(ticks.time(found.sync_at_us).get(), expect.sync_time, "sync time: {name}");
                    let allowed = expect.index_lowest_allowed.iter().zip(&expect.index);
                    let inside = |(i, (low, high)): (&u32, (&u32, &u32))| (low..=high).contains(&i);
                    assert!(found.index.iter().zip(allowed).all(inside), "index: {name}: {:?}", found.index);
                }
            }
            assert!(span >= expect.min_span, "narrower than the narrowest: {name}");
            if algorithm == Algorithm::default() {
                assert_eq!(found.index, expect.index, "index: {name}");
            }
        }
    }
}

/// Checks every case of the file.
fn check(path: &Path) -> Checked {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let vectors: Vectors = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut checked = Checked::default();
    for case in &vectors.cases {
        let ticks = Ticks::fitting(case.points.iter().flatten().copied()).expect(&case.id);
        let points: Vec<Vec<u64>> =
            case.points.iter().map(|row| row.iter().map(|&t| ticks.of(t)).collect()).collect();
        checked.check(case, ticks, &points);
        checked.cases += 1;
        if let Some(rows) = points.iter().map(|row| progression(row)).collect::<Option<Vec<_>>>() {
            Checked::default().check(case, ticks, &rows);
            checked.progressions += 1;
        }
    }
    checked
}

/// One of the full vectors, which are too large to commit.
fn full_vectors(file: &str) -> PathBuf {
    let folder =
        std::env::var_os("SYNCLINE_VECTORS").expect("SYNCLINE_VECTORS names the folder of the vectors");
    PathBuf::from(folder).join(file)
}

#[test]
fn committed_vectors_hold() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/zipline.json");
    let checked = check(&path);
    assert_eq!(checked.cases, 40);
    assert!(checked.progressions >= 10, "{checked:?}");
    assert!(checked.grid_scan < 40, "GridScan is not exact, but missed nothing: {checked:?}");
}

#[test]
#[ignore = "needs SYNCLINE_VECTORS"]
fn full_vectors_hold() {
    let checked = check(&full_vectors("zipline.json"));
    assert_eq!(checked.cases, 300);
    assert!(checked.grid_scan < checked.full_grid_scan && checked.full_grid_scan < 300, "{checked:?}");
    eprintln!("{checked:?}");
}

/// The ElasticBSP authors recorded a span of 1403 ms for their 1000 workers with R = 15 (i = 0..14).
#[test]
#[ignore = "needs SYNCLINE_VECTORS"]
fn the_authors_recorded_span_is_found() {
    let path = full_vectors("authors_w1000_R20.txt");
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
    for algorithm in Algorithm::ALL.into_iter().filter(|a| a.is_exact()) {
        assert_eq!(search(algorithm, &rows).map(|w| w.span_us), Some(1403), "{algorithm}");
    }
}
