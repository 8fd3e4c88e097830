//! `syncline up`: a whole cluster on this machine, as a supervisor of processes.
//!
//! Redis, engine, parameter shards and workers are processes of their own; whichever dies is started again.
//! Each holds a pipe from us as its stdin and ends when it closes: so nothing outlives us, however we end.
//! Order of start: Redis, engine, shards, workers; order of stop: workers, engine, shards, Redis.

mod args;
mod child;
mod child_log;
mod children;
mod jobs_of_others;
mod native;
mod oom_kills;
mod process;
mod programs;
mod readiness;
mod saved_redis;
mod startup;
mod state_dir;
mod stopped;
mod taken_port;

use std::time::Duration;

use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval, timeout},
};

use args::Plan;
pub use args::UpArgs;
use child::{Event, HowEnded};
use child_log::reason;
use children::Children;
use native::Native;
use process::Process;
use saved_redis::SavedRedis;
use startup::Started;
use state_dir::StateDir;
use stopped::StoppedChildren;
use syncline_rpc::EngineAddresses;
use syncline_workers::{client::RunningCluster, process::INTERRUPTED};

use crate::cli::{
    CliError, Failure, StopSignal, block_on, count, log_as_command, print, print_json, say,
    support::{
        connection::{redis_cli, shell_word},
        processes::is_stopped,
    },
};

/// A stop that takes longer is told why it is one.
const QUICK_STOP: Duration = Duration::from_secs(2);
/// Between two tries to write `up.json`, on a disk that was full.
const PUBLISH_AGAIN: Duration = Duration::from_secs(2);
/// Between two checks whether children stand still.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Where a cluster listens unless told otherwise.
const DEFAULT_LISTEN: &str = super::engine::DEFAULT_LISTEN;

pub(crate) fn run(args: UpArgs) -> Result<(), Failure> {
    log_as_command();
    let plan = args.plan()?;
    let state_dir = StateDir::open(&plan.state_dir)?;
    let shards = state_dir.shard_count(plan.given.shards)?;
    state_dir.check_redis(&SavedRedis::of(plan.given.redis.as_deref()))?;
    block_on(async move {
        let (mut stop, mut second) = StopSignal::hearing_a_second(plan.given.exit_with_parent)
            .map_err(|source| CliError::Runtime { source })?;
        let (sender, mut events) = mpsc::unbounded_channel();
        let native = tokio::select! {
            native = Native::start(&plan, &state_dir, sender.clone()) => native?,
            () = stop.requested() => return Ok(()),
        };
        let mut children = Children::new(sender);
        let outcome = serve(&plan, shards, &state_dir, &native, &mut children, &mut events, &mut stop).await;
        state_dir.unpublish();
        if outcome.is_ok() {
            say("stopping");
        }
        let stopping = children.stop(second.requested());
        tokio::pin!(stopping);
        let is_clean = match timeout(QUICK_STOP, &mut stopping).await {
            Ok(is_clean) => is_clean,
            Err(_) => {
                // What ends this command is printed at its end, which may be minutes away.
                if let Err(failure) = &outcome {
                    say(&format!("stopping, since {failure}"));
                }
                stopping.await
            }
        };
        native.stop().await;
        if !is_clean {
            say("stopped at once: what could not be saved is lost");
            std::process::exit(INTERRUPTED);
        }
        outcome
    })
}

/// Starts everything, prints where it is when it is ready, and supervises it until a stop is requested.
async fn serve(
    plan: &Plan,
    shards: u32,
    state_dir: &StateDir,
    native: &Native,
    children: &mut Children,
    events: &mut mpsc::UnboundedReceiver<Event>,
    stop: &mut StopSignal,
) -> Result<(), Failure> {
    let Started { mut running, leader, mut leading } = tokio::select! {
        started = startup::start(plan, shards, state_dir, native, children, events) => started?,
        () = stop.requested() => return Ok(()),
    };
    state_dir.publish(&running)?;
    announce(plan, &running, &leader)?;
    let mut unpublished = false;
    let mut publish_again = interval(PUBLISH_AGAIN);
    publish_again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut stopped, mut look) = (StoppedChildren::default(), interval(LOOK_INTERVAL));
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.requested() => return Ok(()),
            _ = publish_again.tick(), if unpublished => unpublished = state_dir.publish(&running).is_err(),
            _ = look.tick() => stopped.look(&running.processes, is_stopped).iter().for_each(|line| say(line)),
            Some(event) = events.recv() => match event {
                Event::Started { process, pid } => {
                    say(&format!("{process} runs again (process {pid})"));
                    running.processes.insert(process.to_string(), pid);
                    // A full disk is no reason to end what runs.
                    let published = state_dir.publish(&running);
                    unpublished = published.is_err();
                    if let Err(error) = published {
                        let failure = Failure::from(error);
                        say(&format!("warning: other commands see old process numbers until it can be written: {failure}"));
                    }
                }
                Event::Listening { .. } => {}
                Event::Leading { process } if process == leading => {}
                Event::Leading { process } => {
                    say(&format!("{process} leads now, in place of {leading}"));
                    leading = process;
                }
                Event::Ended { process, how, again_in } => {
                    say_ended(process, &how, running.replicas, again_in);
                }
            },
        }
    }
}

fn say_ended(process: Process, how: &HowEnded, replicas: u32, again_in: Duration) {
    let status = &how.status;
    let lost = match (matches!(process, Process::Shard(_)), replicas) {
        (false, _) => "",
        // It has saved them, unless its log says otherwise.
        (true, 1) if status.ends_with("status: 0") => "; running jobs go on where they were",
        (true, 1) => {
            "; running jobs go back to their last checkpoint, or to their beginning, and fail without any"
        }
        (true, _) => "; if it served its shard, the other process does so now",
    };
    let why = reason(&how.tail).map(|why| format!(", {why}")).unwrap_or_default();
    say(&format!(
        "{process} ended with {status}{why}{lost}; starting it again in {} ms",
        again_in.as_millis()
    ));
}

/// Where everything is, and what to type next.
fn announce(plan: &Plan, running: &RunningCluster, leader: &str) -> Result<(), Failure> {
    if plan.given.json {
        return print_json(running);
    }
    let dir = running.state_dir.display();
    let flag = match plan.state_dir_named {
        true => format!(" --state-dir {}", shell_word(&dir.to_string())),
        false => String::new(),
    };
    let lines = [
        engines(&running.engines(), leader),
        format!("token file  {}", running.token_file.display()),
        format!("redis       {}", running.redis),
        format!("redis-cli   {}", redis_cli(running)),
        format!("state       {dir}"),
        format!("logs        {dir}/logs"),
        format!(
            "running     {}, {}{}; Ctrl-C stops all",
            count(running.workers, "worker"),
            count(running.shards, "shard"),
            if running.replicas > 1 { " of two processes each" } else { "" }
        ),
        format!("next        syncline submit JOB.toml --watch{flag}"),
    ];
    print(&lines.join("\n"))
}

/// Where the engines are, as `--engine` takes it, and which of several leads.
fn engines(addresses: &EngineAddresses, leader: &str) -> String {
    let line = format!("engine      {addresses}");
    let others: Vec<&str> = addresses.iter().filter(|address| *address != leader).collect();
    match addresses.count() {
        1 => line,
        _ => format!("{line}\nleader      {leader} leads, {} stands by", others.join(" and ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_engines_it_is_said_which_leads() {
        let said = |addresses: &str, leader| engines(&addresses.parse().unwrap(), leader);
        assert_eq!(said("a:1", "a:1"), "engine      a:1");
        assert_eq!(said("a:1,b:2", "b:2"), "engine      a:1,b:2\nleader      b:2 leads, a:1 stands by");
    }
}
