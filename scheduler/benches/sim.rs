//! Speed of the simulator: `cargo bench -p syncline-scheduler --bench sim`. Iterations a second are in the
//! output as elements.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use syncline_scheduler::sim::{Scenario, WorkerModel, simulate};

fn benchmark(c: &mut Criterion) {
    let mut group = c.benchmark_group("simulate");
    for workers in [4u64, 1000, 10_000] {
        for policy in ["asp", "bsp", "ssp:3", "elastic-bsp:15+predictor=ema:0.2", "elastic-lb:15"] {
            let Ok(policy) = policy.parse() else { return };
            let model = |i| WorkerModel { jitter: 0.05, ..WorkerModel::steady(100_000 + i * 7919 % 100_000) };
            let duration_us = 40_000_000_000 / workers;
            let scenario = Scenario {
                policy,
                workers: (0..workers).map(model).collect(),
                batch: 32,
                duration_us,
                seed: 1,
            };
            let Ok(once) = simulate(&scenario, 0) else { return };
            group.throughput(Throughput::Elements(once.pushes));
            group.bench_function(format!("{workers} workers/{}", scenario.policy), |b| {
                b.iter(|| simulate(&scenario, 0));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, benchmark);
criterion_main!(benches);
