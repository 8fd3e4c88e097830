//! `syncline bench tasks`, `chain` and `fan`: how fast general tasks go through a cluster.

use std::time::Instant;

use serde::Serialize;
use syncline_rpc::status::JobStatus;
use syncline_workers::{
    client::GraphRun,
    functions::{CallOptions, TaskGraph},
};

use super::{
    cluster::{BenchCluster, LANES},
    functions::{NEXT, NOTHING, SUM},
    median,
    redis_speed::RedisProbe,
};
use crate::cli::{CliError, Exit, Failure, block_on, print, print_json};

/// Calls before those that are measured.
const WARM_UP: usize = 2_000;
/// Single calls of which the median is taken.
const ROUND_TRIPS: usize = 51;

#[derive(Debug, clap::Args)]
pub(super) struct TasksArgs {
    /// Number of tasks
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    count: u32,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ChainArgs {
    /// Number of tasks, each of which needs the one before
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    length: u32,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct FanArgs {
    /// Number of tasks between the first and the last
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    width: u32,
    /// Measured runs, after one that is not measured
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct TasksMeasured {
    tasks: u32,
    tasks_per_s: f64,
    load_tasks_per_s: f64,
    end_to_end_per_s: f64,
    round_trip_us: f64,
    redis_transitions_per_s: f64,
}

#[derive(Debug, Serialize)]
struct ChainMeasured {
    length: u32,
    hop_us: f64,
    hop_leased_ahead_us: f64,
    redis_round_trip_us: f64,
}

#[derive(Debug, Serialize)]
struct FanMeasured {
    width: u32,
    fan_ms: f64,
    min_ms: f64,
    max_ms: f64,
    runs: u32,
    redis_round_trip_us: f64,
}

/// Calls that do nothing and depend on nothing.
pub(super) fn tasks(args: &TasksArgs) -> Result<(), Failure> {
    let measured = block_on(async {
        let cluster = BenchCluster::start().await?;
        finish(&cluster, &nothings("warm-up", WARM_UP)).await?;
        let graph = nothings("tasks", args.count as usize);
        let since = Instant::now();
        let run = cluster.client.submit_tasks(&graph).await?;
        let load_s = since.elapsed().as_secs_f64();
        let done = run.wait(|_| {}).await?.job;
        let end_to_end_s = since.elapsed().as_secs_f64();
        let ended_well = done.tasks.unwrap_or_default().done;
        expect(ended_well == u64::from(args.count), "a job is done and some of its tasks are not")?;
        let count = f64::from(args.count);
        Ok(TasksMeasured {
            tasks: args.count,
            tasks_per_s: count / lasted_s(&done),
            load_tasks_per_s: count / load_s,
            end_to_end_per_s: count / end_to_end_s,
            round_trip_us: round_trip_us(&cluster).await?,
            redis_transitions_per_s: probe(&cluster, RedisProbe::transitions_per_s)?,
        })
    })?;
    if args.json {
        return print_json(&measured);
    }
    let TasksMeasured { tasks, tasks_per_s, load_tasks_per_s, end_to_end_per_s, round_trip_us, .. } =
        measured;
    let redis_transitions_per_s = measured.redis_transitions_per_s;
    print(&format!(
        "{tasks} tasks: {tasks_per_s:.0} per second, loaded at {load_tasks_per_s:.0} per second, {end_to_end_per_s:.0} per second with both\n\
         one task alone: {round_trip_us:.0} µs from its submission until its value is here\n\
         the limit: this Redis server alone takes {redis_transitions_per_s:.0} changes of one task's state per second"
    ))
}

/// Calls of which each needs the one before: bound to the two workers in turn, so that the engine decides
/// every one, and free, so that a worker may have many ahead.
pub(super) fn chain(args: &ChainArgs) -> Result<(), Failure> {
    let measured = block_on(async {
        let cluster = BenchCluster::start().await?;
        let bound = LANES.map(|lane| CallOptions::new().label("lane", lane));
        let free = [CallOptions::new()];
        chain_hop_us(&cluster, "warm-up", args.length.min(100), &bound).await?;
        Ok(ChainMeasured {
            length: args.length,
            hop_us: chain_hop_us(&cluster, "bound", args.length, &bound).await?,
            hop_leased_ahead_us: chain_hop_us(&cluster, "free", args.length, &free).await?,
            redis_round_trip_us: probe(&cluster, RedisProbe::round_trip_us)?,
        })
    })?;
    if args.json {
        return print_json(&measured);
    }
    let ChainMeasured { length, hop_us, hop_leased_ahead_us, redis_round_trip_us } = measured;
    print(&format!(
        "chain of {length}: {hop_us:.0} µs per hop that the engine decides, {hop_leased_ahead_us:.1} µs per hop leased ahead\n\
         the limit: one change of a task's state in this Redis server and back takes {redis_round_trip_us:.0} µs"
    ))
}

/// One call, many that take its value, and one that takes all of theirs.
pub(super) fn fan(args: &FanArgs) -> Result<(), Failure> {
    let measured = block_on(async {
        let cluster = BenchCluster::start().await?;
        let mut times_ms = Vec::new();
        for number in 0..=args.runs {
            let mut graph = TaskGraph::new(format!("fan-{number}"));
            let first = graph.call(NEXT, (0,));
            let many = graph.map(NEXT, (0..args.width).map(|_| (first,)));
            let last = graph.call(SUM, (&many,));
            let since = Instant::now();
            let run = cluster.client.submit_tasks(&graph).await?;
            let sum = run.get(&last).await?;
            let took_ms = since.elapsed().as_secs_f64() * 1e3;
            expect(sum == 2 * u64::from(args.width), "a fan gave a wrong sum")?;
            if number > 0 {
                times_ms.push(took_ms);
            }
        }
        times_ms.sort_unstable_by(f64::total_cmp);
        Ok(FanMeasured {
            width: args.width,
            fan_ms: median(times_ms.iter().copied()),
            min_ms: times_ms[0],
            max_ms: times_ms[times_ms.len() - 1],
            runs: args.runs,
            redis_round_trip_us: probe(&cluster, RedisProbe::round_trip_us)?,
        })
    })?;
    if args.json {
        return print_json(&measured);
    }
    let FanMeasured { width, fan_ms, min_ms, max_ms, runs, redis_round_trip_us } = measured;
    print(&format!(
        "fan of {width}: median {fan_ms:.1} ms from submission to value (from {min_ms:.1} to {max_ms:.1}, {runs} runs)\n\
         the limit: one change of a task's state in this Redis server and back takes {redis_round_trip_us:.0} µs"
    ))
}

fn nothings(id: &str, count: usize) -> TaskGraph {
    let mut graph = TaskGraph::new(id);
    graph.map(NOTHING, (0..count).map(|_| ()));
    graph
}

/// Runs a graph to its end.
pub(super) async fn finish(
    cluster: &BenchCluster,
    graph: &TaskGraph,
) -> Result<(GraphRun, JobStatus), Failure> {
    let run = cluster.client.submit_tasks(graph).await?;
    let done = run.wait(|_| {}).await?.job;
    Ok((run, done))
}

/// Median time of a job of one call, from its submission until its value is here.
async fn round_trip_us(cluster: &BenchCluster) -> Result<f64, Failure> {
    let mut times_us = Vec::with_capacity(ROUND_TRIPS);
    for number in 0..ROUND_TRIPS {
        let mut graph = TaskGraph::new(format!("one-{number}"));
        let one = graph.call(NEXT, (0,));
        let since = Instant::now();
        let value = cluster.client.submit_tasks(&graph).await?.get(&one).await?;
        times_us.push(since.elapsed().as_secs_f64() * 1e6);
        expect(value == 1, "a call gave a wrong value")?;
    }
    Ok(median(times_us.into_iter()))
}

/// Time from one task to the next, in a chain whose tasks have these options in turn.
async fn chain_hop_us(
    cluster: &BenchCluster,
    id: &str,
    length: u32,
    options: &[CallOptions],
) -> Result<f64, Failure> {
    let mut graph = TaskGraph::new(id);
    let mut last = graph.call(NEXT, (0,));
    for options in options.iter().cycle().take(length as usize - 1) {
        last = graph.call_with(options, NEXT, (last,));
    }
    let (run, done) = finish(cluster, &graph).await?;
    let value = run.get(&last).await?;
    expect(value == u64::from(length), "a chain gave a wrong value")?;
    Ok(lasted_s(&done) * 1e6 / f64::from(length))
}

/// From the job's begin until its end, as the engine saw it.
pub(super) fn lasted_s(done: &JobStatus) -> f64 {
    let lasted_ms = done.ended_ms.zip(done.started_ms).map_or(0, |(end, begin)| end.saturating_sub(begin));
    lasted_ms.max(1) as f64 / 1e3
}

pub(super) fn probe<T>(
    cluster: &BenchCluster,
    measure: impl FnOnce(&mut RedisProbe) -> std::io::Result<T>,
) -> Result<T, Failure> {
    let probe = RedisProbe::connect(&cluster.redis).and_then(|mut probe| measure(&mut probe));
    probe.map_err(|error| {
        let text = format!("[E517] cannot measure the Redis server of this run: {error}");
        Failure::new(Exit::Redis, text, "see whether the disk has room")
    })
}

pub(super) fn expect(holds: bool, what: &str) -> Result<(), Failure> {
    match holds {
        true => Ok(()),
        false => Err(CliError::Bug { reason: what.to_owned() }.into()),
    }
}
