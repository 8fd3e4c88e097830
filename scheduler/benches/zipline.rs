//! Planning time of one superstep: `cargo bench -p syncline-scheduler --bench zipline`.
//!
//! `paper` draws intervals as the ElasticBSP authors' generator does (1.0 to 1.5 s, starts spread over n ms);
//! `alike` is the hardest case, where no worker is so fast that the planner may leave it out.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::ops::Range;
use syncline_scheduler::sync::zipline::{Row, narrowest_window};

/// The same rows at every run: xorshift64 with a fixed seed.
fn rows(workers: u64, count: u32, interval_us: Range<u64>) -> Vec<Row> {
    let mut seed = 0x5EED_u64;
    let mut below = |limit: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % limit
    };
    let mut row = |_| {
        let interval = interval_us.start + below(interval_us.end - interval_us.start);
        Row { first_us: 1_000_000_000 + below(workers * 1000) + interval, interval_us: interval, count }
    };
    (0..workers).map(&mut row).collect()
}

fn plan(c: &mut Criterion) {
    for (speeds, interval_us) in [("paper", 1_000_000..1_500_000), ("alike", 1_000_000..1_010_000)] {
        let mut group = c.benchmark_group(format!("zipline/{speeds}"));
        for workers in [10, 100, 1000] {
            for count in [15, 150] {
                let rows = rows(workers, count, interval_us.clone());
                group.bench_with_input(
                    BenchmarkId::new(format!("n={workers}"), format!("R={count}")),
                    &rows,
                    |b, rows| {
                        b.iter(|| narrowest_window(black_box(rows)));
                    },
                );
            }
        }
        group.finish();
    }
}

criterion_group!(benches, plan);
criterion_main!(benches);
