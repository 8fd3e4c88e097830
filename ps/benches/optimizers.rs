//! What a shard and a worker compute on 100 MB: optimizer steps and the norm of a gradient, in memory alone.
//! How fast gradients get there: `syncline bench push`.

use std::{hint::black_box, time::Duration};

use criterion::{Criterion, Throughput};
use syncline_ps::optim::{self, OptimizerState, gradient_norm};
use syncline_scheduler::spec::Optimizer;

const ELEMENTS: usize = 25_000_000;
const BYTES: u64 = ELEMENTS as u64 * 4;

fn main() {
    if !std::env::args().any(|arg| arg == "--bench") {
        // `cargo test --all-targets` only wants to know that this compiles.
        return;
    }
    let (gradient, mut values) = (vec![1e-3f32; ELEMENTS], vec![0.0f32; ELEMENTS]);
    let mut criterion =
        Criterion::default().sample_size(20).measurement_time(Duration::from_secs(3)).configure_from_args();
    let mut group = criterion.benchmark_group("100 MB");
    group.throughput(Throughput::Bytes(BYTES));
    group.bench_function("gradient norm", |b| b.iter(|| gradient_norm(black_box(&[&gradient]))));
    let rules = [
        ("step sgd", Optimizer::Sgd { weight_decay: 0.0 }),
        ("step momentum", Optimizer::Momentum { momentum: 0.9, nesterov: false, weight_decay: 0.0 }),
        (
            "step adam",
            Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0, decoupled: false },
        ),
    ];
    for (name, rule) in rules {
        let mut state = OptimizerState::new(&rule, ELEMENTS);
        group.bench_function(name, |b| {
            b.iter(|| optim::step(&rule, &mut values, &mut state, &gradient, 1e-3, 1.0))
        });
    }
    group.finish();
}
