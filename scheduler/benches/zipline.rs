//! Planning time of one superstep, by every search: `cargo bench -p syncline-scheduler --bench zipline`.
//!
//! The sizes of the papers' tables (n = 10, 100, 1000 and R = 15, 150) and n = 10,000. `papers` draws workers
//! as the ElasticBSP authors' generator does (1.0 to 1.5 s per iteration). `alike` is the default search's
//! hardest case: with speeds within 1 %, no worker is so fast that it may be left out. `-- papers/default`
//! runs one search, `-- --quick` all of them within a minute.
//!
//! Left out, because one run takes longer than about a second: ZipLine and ZipLineOpt with 10,000 workers and
//! R = 150, and FullGridScan with 1,000 and R = 150 or with 10,000.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;
use syncline_scheduler::samples::splitmix64;
use syncline_scheduler::sync::search::{Algorithm, Row, papers_rows, search};

const SEED: u64 = 0x5EED;
const SIZES: [(u32, u32); 8] =
    [(10, 15), (10, 150), (100, 15), (100, 150), (1000, 15), (1000, 150), (10_000, 15), (10_000, 150)];

/// Steps that take about a second.
const TOO_MANY_STEPS: u64 = 5_000_000_000;

/// In µs: starts within one iteration, speeds within 1 %.
fn alike(workers: u32, count: u32) -> Vec<Row> {
    let mut state = SEED;
    let mut below = |limit: u64| splitmix64(&mut state) % limit;
    let mut row = |_| {
        let interval_us = 1_000_000 + below(10_000);
        Row { first_us: 1_000_000_000 + below(1_000_000) + interval_us, interval_us, count }
    };
    (0..workers).map(&mut row).collect()
}

/// About how many steps one search takes.
fn steps(algorithm: Algorithm, workers: u32, lookahead: u32) -> u64 {
    let (n, r) = (u64::from(workers), u64::from(lookahead));
    match algorithm {
        Algorithm::ZipLine | Algorithm::ZipLineOpt => r * n * n,
        // Moves points in memory, does not compare them.
        Algorithm::ZipLineOptBs => r * n * n / 4,
        Algorithm::FullGridScan => r * r * n * n,
        Algorithm::GridScan => r * r * n,
        _ => r * n,
    }
}

fn measure(c: &mut Criterion, style: &str, algorithm: Algorithm, rows: impl Fn(u32, u32) -> Vec<Row>) {
    let mut group = c.benchmark_group(format!("{style}/{algorithm}"));
    group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    for (workers, lookahead) in SIZES {
        if steps(algorithm, workers, lookahead) > TOO_MANY_STEPS {
            eprintln!(
                "{style}/{algorithm}/n={workers}/R={lookahead}: left out, it takes longer than a second"
            );
            continue;
        }
        let rows = rows(workers, lookahead);
        let id = BenchmarkId::new(format!("n={workers}"), format!("R={lookahead}"));
        group.bench_with_input(id, &rows, |b, rows| b.iter(|| search(algorithm, black_box(rows))));
    }
    group.finish();
}

fn plan(c: &mut Criterion) {
    for algorithm in Algorithm::ALL {
        measure(c, "papers", algorithm, |workers, lookahead| papers_rows(workers, lookahead, SEED));
    }
    measure(c, "alike", Algorithm::default(), alike);
}

criterion_group!(benches, plan);
criterion_main!(benches);
