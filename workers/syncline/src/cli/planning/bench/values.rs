//! `syncline bench values`: how fast large values go from one general task to the next.

use serde::Serialize;
use syncline_scheduler::tasks::Bytes;
use syncline_workers::functions::{CallOptions, TaskGraph};

use super::{
    cluster::{BenchCluster, LANES},
    functions::{LENGTH, MAKE, SUM},
    general_tasks::{expect, finish, lasted_s},
};
use crate::cli::{Failure, block_on, print, print_json};

#[derive(Debug, clap::Args)]
pub(super) struct ValuesArgs {
    /// Number of values, each made by one task and taken by another
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// Size of each
    #[arg(long, value_name = "KIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    kib: u32,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct ValuesMeasured {
    values: u32,
    kib: u32,
    same_worker_per_s: f64,
    same_worker_gb_per_s: f64,
    other_worker_per_s: f64,
    other_worker_gb_per_s: f64,
}

/// Values that the worker takes which made them, and values that go to the other worker.
pub(super) fn values(args: &ValuesArgs) -> Result<(), Failure> {
    let bytes = u64::from(args.kib) << 10;
    let measured = block_on(async {
        let cluster = BenchCluster::start_with_shard().await?;
        let [near, far] = LANES.map(|lane| CallOptions::new().label("lane", lane));
        pass(&cluster, "warm-up", args.count.min(20), bytes, [&near, &far]).await?;
        let same_worker_per_s = pass(&cluster, "near", args.count, bytes, [&near, &near]).await?;
        let other_worker_per_s = pass(&cluster, "far", args.count, bytes, [&near, &far]).await?;
        let gb_per_s = |values_per_s: f64| values_per_s * bytes as f64 / 1e9;
        Ok(ValuesMeasured {
            values: args.count,
            kib: args.kib,
            same_worker_per_s,
            same_worker_gb_per_s: gb_per_s(same_worker_per_s),
            other_worker_per_s,
            other_worker_gb_per_s: gb_per_s(other_worker_per_s),
        })
    })?;
    if args.json {
        return print_json(&measured);
    }
    let line = |who: &str, per_s: f64, gb_per_s: f64| {
        format!("to {who} worker: {per_s:.0} values per second, {gb_per_s:.2} GB/s")
    };
    print(&format!(
        "{} values of {} KiB\n{}\n{}",
        measured.values,
        measured.kib,
        line("the same", measured.same_worker_per_s, measured.same_worker_gb_per_s),
        line("the other", measured.other_worker_per_s, measured.other_worker_gb_per_s),
    ))
}

/// Values per second, each made with the first options and taken with the second.
async fn pass(
    cluster: &BenchCluster,
    id: &str,
    count: u32,
    bytes: u64,
    [make, take]: [&CallOptions; 2],
) -> Result<f64, Failure> {
    let mut graph = TaskGraph::new(id);
    let mut lengths = Vec::with_capacity(count as usize);
    for n in 0..count {
        let value = graph.call_with(make, MAKE, (bytes, u64::from(n)));
        lengths.push(graph.call_with(take, LENGTH, (value,)));
    }
    let sum = graph.call(SUM, (&lengths,));
    let (run, done) = finish(cluster, &graph).await?;
    let sum = run.get(&sum).await?;
    expect(sum == u64::from(count) * bytes, "values of a wrong length")?;
    Ok(f64::from(count) / lasted_s(&done))
}

/// What [`MAKE`] does: bytes that differ from value to value.
pub(super) fn make(bytes: u64, seed: u64) -> Bytes {
    vec![seed as u8; bytes as usize].into()
}
