//! `syncline bench graph`: what a large graph takes while it waits, and how fast it runs then.

use std::{fs, io, time::Instant};

use serde::Serialize;
use syncline_onnx::SplitMix64;
use syncline_workers::functions::TaskGraph;

use super::{
    cluster::BenchCluster,
    functions::{GATE, JOIN},
    general_tasks::{expect, lasted_s, probe},
    median,
    redis_speed::RedisProbe,
};
use crate::cli::{CliError, Failure, block_on, print, print_json};

/// A task takes the values of some of so many before it.
const REACH: u64 = 1_000;
/// Questions of which the median counts.
const QUESTIONS: usize = 21;

#[derive(Debug, clap::Args)]
pub(super) struct GraphArgs {
    /// Number of tasks
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    count: u32,
    /// Number of earlier tasks whose values each takes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    inputs: u32,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct GraphMeasured {
    tasks: u32,
    edges: u64,
    load_tasks_per_s: f64,
    engine_bytes_per_task: f64,
    redis_bytes_per_task: f64,
    status_waiting_ms: f64,
    tasks_per_s: f64,
    status_running_ms: f64,
    engine_mib_at_most: f64,
}

/// All tasks wait for the first, which ends once waiting tasks have been measured.
pub(super) fn graph(args: &GraphArgs) -> Result<(), Failure> {
    let measured = block_on(measure(args.count, u64::from(args.inputs)))?;
    if args.json {
        return print_json(&measured);
    }
    let GraphMeasured { tasks, edges, load_tasks_per_s, engine_bytes_per_task, redis_bytes_per_task, .. } =
        measured;
    let GraphMeasured { status_waiting_ms, tasks_per_s, status_running_ms, engine_mib_at_most, .. } =
        measured;
    print(&format!(
        "{tasks} tasks with {edges} edges, loaded at {load_tasks_per_s:.0} tasks per second\n\
         while they wait: {engine_bytes_per_task:.0} bytes of the engine and {redis_bytes_per_task:.0} of Redis per task, status in {status_waiting_ms:.1} ms\n\
         while they run: {tasks_per_s:.0} per second, status in {status_running_ms:.1} ms, the engine takes at most {engine_mib_at_most:.0} MiB"
    ))
}

async fn measure(count: u32, inputs: u64) -> Result<GraphMeasured, Failure> {
    let cluster = BenchCluster::start().await?;
    let engine =
        cluster.processes().into_iter().find(|(role, _)| *role == "engine").map_or(0, |(_, pid)| pid);
    let open = tempfile::NamedTempFile::new().map_err(cannot_use)?;
    let gate_file = open.path().with_extension("gate").to_string_lossy().into_owned();
    let (graph, last, depth) = layered(count, inputs, &gate_file);

    let engine_before = resident_bytes(engine, "VmRSS").map_err(cannot_use)?;
    let redis_before = probe(&cluster, RedisProbe::used_memory)?;
    let since = Instant::now();
    let run = cluster.client.submit_tasks(&graph).await?;
    let load_s = since.elapsed().as_secs_f64();
    let tasks = f64::from(count);
    let grown = |now: u64, before: u64| now.saturating_sub(before) as f64 / tasks;
    let engine_bytes_per_task = grown(resident_bytes(engine, "VmRSS").map_err(cannot_use)?, engine_before);
    let redis_bytes_per_task = grown(probe(&cluster, RedisProbe::used_memory)?, redis_before);
    let status_ms = async || -> Result<f64, Failure> {
        let since = Instant::now();
        cluster.client.status(run.id()).await?;
        Ok(since.elapsed().as_secs_f64() * 1e3)
    };
    let mut waiting_ms = Vec::new();
    for _ in 0..QUESTIONS {
        waiting_ms.push(status_ms().await?);
    }

    fs::write(&gate_file, "").map_err(cannot_use)?;
    let since = Instant::now();
    let mut running_ms = Vec::new();
    let done = run.wait(|_| {});
    let mut done = std::pin::pin!(done);
    let done = loop {
        tokio::select! {
            done = &mut done => break done?.job,
            answered = status_ms() => running_ms.push(answered?),
        }
    };
    if running_ms.is_empty() {
        // It was done before anybody could ask.
        running_ms.push(status_ms().await?);
    }
    let run_s = since.elapsed().as_secs_f64().min(lasted_s(&done));
    let _ = fs::remove_file(&gate_file);
    expect(run.get(&last).await? == depth, "a graph gave a wrong value")?;
    Ok(GraphMeasured {
        tasks: count,
        edges: u64::from(count) * inputs,
        load_tasks_per_s: tasks / load_s,
        engine_bytes_per_task,
        redis_bytes_per_task,
        status_waiting_ms: median(waiting_ms.into_iter()),
        tasks_per_s: tasks / run_s,
        status_running_ms: median(running_ms.into_iter()),
        engine_mib_at_most: resident_bytes(engine, "VmHWM").map_err(cannot_use)? as f64 / f64::from(1 << 20),
    })
}

/// Each task gives one more than the largest value that it takes. The last one and what it gives come along.
fn layered(count: u32, inputs: u64, gate_file: &str) -> (TaskGraph, syncline::TaskHandle<u64>, u64) {
    let mut random = SplitMix64::new(1);
    let mut graph = TaskGraph::new("graph");
    let mut tasks = vec![(graph.call(GATE, (gate_file.to_owned(),)), 0u64)];
    for number in 1..=u64::from(count) {
        let earlier =
            (0..inputs).map(|_| tasks[(number - 1 - random.next_u64() % number.min(REACH)) as usize]);
        let (handles, values): (Vec<_>, Vec<_>) = earlier.unzip();
        tasks.push((graph.call(JOIN, (&handles,)), values.into_iter().max().unwrap_or(0) + 1));
    }
    let (last, depth) = tasks[count as usize];
    (graph, last, depth)
}

/// What a process has, or had at most, in memory.
fn resident_bytes(pid: u32, field: &str) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn cannot_use(source: io::Error) -> CliError {
    CliError::Path { path: std::env::temp_dir(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_has_the_size_that_was_asked_for_and_a_process_tells_its_memory() {
        let (graph, _, depth) = layered(500, 3, "gate");
        assert_eq!(graph.len(), 501);
        assert!(depth > 1 && depth <= 500, "{depth}");
        assert!(resident_bytes(std::process::id(), "VmRSS").unwrap() > 1 << 20);
        assert!(resident_bytes(std::process::id(), "VmNothing").is_err());
    }
}
