//! `syncline engine`: one engine process.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use syncline_engine::service::{BugWatch, EngineOptions, Limits};
use syncline_engine::store::{RedisAddress, StoreError};
use syncline_rpc::{hostname, threads};
use tokio::time::sleep;
use tracing::warn;

use super::redis_wait::while_redis_is_away;
use crate::cli::TimeUnit::{Milliseconds, Seconds};
use crate::cli::{
    CliError, Exit, Failure, TokenArgs, block_on_one_thread, check_open_bind, end_at_once, finish,
    listen_for_stop, log_as_service, print, time, time_from,
};

/// How long the thread that decides has to end the process once it is known to have a bug.
const END_GRACE: Duration = Duration::from_secs(2);

/// One that is well is not heard of for a second, and longer on a busy machine: an idle worker polls, and a
/// poll lasts a second.
pub(super) const SHORTEST_SILENCE: Duration = Duration::from_secs(3);
const SHORTEST_STALL: Duration = Duration::from_secs(1);

/// Where an engine listens unless told otherwise.
pub(crate) const DEFAULT_LISTEN: &str = "127.0.0.1:7461";

#[derive(Debug, clap::Args)]
pub struct EngineArgs {
    /// IP address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_LISTEN)]
    listen: SocketAddr,
    #[command(flatten)]
    token: TokenArgs,
    /// Address of the Redis server
    #[arg(long, value_name = "URL", env = "SYNCLINE_REDIS", hide_env_values = true)]
    redis: String,
    /// A file with the password of the Redis server, read again whenever the server refuses the one before
    #[arg(long, value_name = "FILE", env = "SYNCLINE_REDIS_PASSWORD_FILE")]
    redis_password_file: Option<PathBuf>,
    /// Stable name of this engine: after a crash it takes its own lead back at once, instead of a few
    /// seconds later; no two engines may share it [default: host, address and a random number]
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Number of shards of the parameter server: one `syncline ps --shard INDEX/N` for each has to be
    /// started
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    shards: u32,
    /// A worker that is not heard of for this long is dropped; a number alone is milliseconds
    #[arg(long, alias = "silence-ms", value_name = "TIME", default_value = "5s", value_parser = time_from(SHORTEST_SILENCE, Milliseconds))]
    silence: Duration,
    /// A parameter shard that is not heard of for this long counts as lost: running jobs that it holds wait
    /// for it, without workers; a number alone is milliseconds
    #[arg(long, alias = "shard-silence-ms", value_name = "TIME", default_value = "30s", value_parser = time_from(SHORTEST_SILENCE, Milliseconds))]
    shard_silence: Duration,
    /// A worker that is busy with one task for this long, and for 20 times its longest so far, is dropped; a
    /// number alone is milliseconds
    #[arg(long, alias = "stall-ms", value_name = "TIME", default_value = "5m", value_parser = time_from(SHORTEST_STALL, Milliseconds))]
    stall: Duration,
    /// How long a Redis server is waited for at the start that does not answer yet, as after a night without
    /// power; a number alone is seconds
    #[arg(long, alias = "redis-wait-s", value_name = "TIME", default_value = "1m", value_parser = time(Seconds))]
    redis_wait: Duration,
    /// End when the pipe at stdin closes
    #[arg(long, hide = true)]
    exit_with_parent: bool,
}

pub(crate) fn run(args: EngineArgs) -> Result<(), Failure> {
    log_as_service();
    check_open_bind(args.listen, args.token.token_file.as_deref())?;
    let token = args.token.load()?;
    block_on_one_thread(async move {
        let mut stop = listen_for_stop(args.exit_with_parent)?;
        let host = || hostname().unwrap_or_else(|| "host".into());
        let instance = match args.instance {
            Some(instance) => instance,
            // Two engines that may run at the same time must not share a name. Hosts in containers often do,
            // and addresses and process ids with them.
            None => format!("{}-{}-{:08x}", host(), args.listen, rand::random::<u32>()),
        };
        let options = EngineOptions {
            listen: args.listen,
            token,
            redis: RedisAddress::from(args.redis).with_password_file(args.redis_password_file),
            instance,
            shards: args.shards,
            limits: Limits {
                worker_silence: args.silence,
                shard_silence: args.shard_silence,
                stall: args.stall,
            },
        };
        // Whoever starts it together with a Redis server has seen that answer.
        let redis_wait = if args.exit_with_parent { Duration::ZERO } else { args.redis_wait };
        let attempt = async || syncline_engine::service::start(options.clone()).await;
        let tell = |error: &StoreError| {
            warn!(%error, wait_s = redis_wait.as_secs(), "Redis cannot be used yet and is waited for");
        };
        let mut engine = tokio::select! {
            engine = while_redis_is_away(redis_wait, attempt, tell) => engine?,
            () = stop.requested() => return Ok(()),
        };
        for risk in engine.redis_risks() {
            warn!(%risk, hint = risk.hint(), "jobs may get lost");
        }
        print(&format!("listening {}", engine.address()))?;
        end_if_hung(engine.bug_watch()).map_err(|source| CliError::Runtime { source })?;
        let mut lead = engine.lead_watch();
        loop {
            tokio::select! {
                () = stop.requested() => return Ok(()),
                // Its lease expires: a standby takes over, or this engine itself when its supervisor starts it again.
                reason = engine.panicked() => return Err(CliError::Bug { reason }.into()),
                // For `up`, which tells that the lead has moved. Whoever has heard enough may have closed the pipe: that is no
                // reason to end.
                () = lead.taken(), if args.exit_with_parent => drop(print("leading")),
            }
        }
    })
}

/// Ends the process from another thread if the one that decides is told of a bug and does not end it: it
/// hangs.
fn end_if_hung(mut bug: BugWatch) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    threads::spawn("bug", move || {
        let reason = runtime.block_on(async {
            let reason = bug.found().await;
            sleep(END_GRACE).await;
            reason
        });
        let _ = finish(Err(CliError::Bug { reason }.into()), false);
        end_at_once(Exit::Internal as i32)
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::services::ps::PsArgs;

    #[derive(Parser)]
    enum Part {
        Engine(EngineArgs),
        Ps(PsArgs),
    }

    fn parse(line: &str) -> Part {
        Part::try_parse_from(line.split_whitespace()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn engine(flags: &str) -> EngineArgs {
        match parse(&format!("syncline engine --redis redis://r {flags}")) {
            Part::Engine(args) => args,
            Part::Ps(_) => unreachable!("an engine was asked for"),
        }
    }

    #[test]
    fn an_engine_and_a_shard_that_are_told_no_number_go_together() {
        let Part::Ps(shard) = parse("syncline ps --state-dir d") else {
            unreachable!("a shard was asked for")
        };
        assert_eq!((engine("").shards, shard.shard.index), (shard.shard.count, 0));
    }

    #[test]
    fn limits_are_given_with_units_and_under_the_names_that_they_had() {
        let (new, old) =
            (engine("--silence 3s --stall 2m --redis-wait 0"), engine("--silence-ms 3000 --stall-ms 120000"));
        assert_eq!((new.silence, new.stall), (old.silence, old.stall));
        assert_eq!((new.redis_wait, old.redis_wait), (Duration::ZERO, Duration::from_secs(60)));
        assert_eq!((new.shard_silence, new.stall), (Duration::from_secs(30), Duration::from_secs(120)));
    }
}
