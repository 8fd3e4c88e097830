//! Bare loops of ONNX Runtime: one thread for each worker, the step and the optimizer in place, nobody else.

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use syncline_runtime::Runtime;
use syncline_workers::submit::PreparedJob;

use super::super::training_step::Step;
use crate::cli::{CliError, Failure};

const WARM_STEPS: usize = 8;

/// Samples per second of all loops together while all of them run, each as many times slower as its worker.
pub(super) fn samples_per_s(
    runtime: &Runtime,
    job: &PreparedJob,
    slowdowns: &[f64],
    seconds: u32,
) -> Result<f64, Failure> {
    let batch = job.spec.train().map_or(1, |(_, train)| train.batch) as usize;
    let begin = Barrier::new(slowdowns.len());
    let lasts = Duration::from_secs(u64::from(seconds));
    let one = |slowdown: f64| {
        let step = Step::new(runtime, job, batch);
        let warm = step.and_then(|mut step| (0..WARM_STEPS).try_for_each(|_| step.bare()).map(|()| step));
        // Also after a failure, or the others would wait forever.
        begin.wait();
        let (mut step, mut steps, since) = (warm?, 0, Instant::now());
        while since.elapsed() < lasts {
            let began = Instant::now();
            step.bare()?;
            thread::sleep(began.elapsed().mul_f64(slowdown - 1.0));
            steps += 1;
        }
        Ok::<f64, Box<dyn std::error::Error + Send + Sync>>(
            (steps * batch) as f64 / since.elapsed().as_secs_f64(),
        )
    };
    let one = &one;
    let all = thread::scope(|scope| {
        let loops: Vec<_> = slowdowns.iter().map(|slowdown| scope.spawn(move || one(*slowdown))).collect();
        loops.into_iter().map(|one| one.join().unwrap_or_else(|_| Err("a loop panicked".into()))).sum()
    });
    let all: Result<f64, Box<dyn std::error::Error + Send + Sync>> = all;
    all.map_err(|error| CliError::Setting { what: format!("the bare loop cannot run: {error}") }.into())
}
