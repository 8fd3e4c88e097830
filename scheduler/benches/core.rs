//! One report through the core with 1000 workers, under every policy: `cargo bench -p syncline-scheduler
//! --bench core`.
//!
//! Measured is `Core::handle` for the report, with everything that follows from it (grants, barriers, gates),
//! without planning, which leaves the core as an effect, and without the commit. `commit` is the JSON of one
//! turn of 256 reports, per report.

use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use syncline_scheduler::{
    core::{Core, Effect, Input},
    sim::{Scenario, Shell, Simulation, WorkerModel},
};

const WORKERS: u64 = 1000;
const POLICIES: [&str; 7] =
    ["asp", "bsp", "ssp:3", "dssp:3:15", "elastic-bsp:15", "lb-bsp", "elastic-lb:15+predictor=ema:0.2"];
/// Reports in one turn of the engine's loop.
const TURN: u64 = 256;

/// Measures what the core takes.
#[derive(Default)]
struct Stopwatch {
    reports: u64,
    handled: Duration,
    committed: Duration,
}

impl Shell for Stopwatch {
    fn handle(&mut self, core: &mut Core, now_us: u64, input: Input) -> Vec<Effect> {
        let is_report = matches!(input, Input::Report { .. });
        let began = Instant::now();
        let effects = core.handle(now_us, input).unwrap_or_default();
        if is_report {
            self.handled += began.elapsed();
            self.reports += 1;
            if self.reports.is_multiple_of(TURN) {
                let began = Instant::now();
                std::hint::black_box(core.take_commits(now_us));
                self.committed += began.elapsed();
            }
        }
        effects
    }
}

/// Goes on until so many further reports are handled.
fn run(simulation: &mut Simulation<'_, Stopwatch>, reports: u64) {
    let until = simulation.shell().reports + reports;
    while simulation.shell().reports < until && simulation.step() {}
}

fn benchmark(c: &mut Criterion) {
    for policy in POLICIES {
        let Ok(parsed) = policy.parse() else { return };
        // 1.0 to 1.5 s per iteration, as in the papers' generator, for longer than any measurement takes.
        let model = |n| WorkerModel::steady(1_000_000 + n * 7919 % 500_000);
        let workers = (1..=WORKERS).map(model).collect();
        let scenario =
            Scenario { policy: parsed, workers, batch: 32, duration_us: 1_000_000_000_000, seed: 0 };
        let Ok(mut simulation) = Simulation::new(&scenario, 0, Stopwatch::default()) else { return };
        run(&mut simulation, 5 * WORKERS);
        let mut measure = |name: &str, part: fn(&Stopwatch) -> Duration| {
            c.bench_function(&format!("{name}/{WORKERS} workers/{policy}"), |b| {
                b.iter_custom(|reports| {
                    let before = part(simulation.shell());
                    run(&mut simulation, reports);
                    part(simulation.shell()) - before
                });
            });
        };
        measure("report", |watch| watch.handled);
        measure("commit", |watch| watch.committed);
    }
}

criterion_group!(benches, benchmark);
criterion_main!(benches);
