//! `syncline ps`: one shard as a process.
//!
//! Prints `listening ADDRESS` on stdout when it is ready. Ends with an error when the engine will never have
//! it. Stops on SIGTERM, Ctrl-C and the end of its terminal, and with `--exit-with-parent` also when its
//! parent says so or dies. A job that cannot be kept is tried again until it can, or until a second of these
//! signals.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use syncline_ps::{
    PsError,
    server::{self, Options},
};
use syncline_rpc::{EngineAddresses, ShardPosition, Token, folder, is_of_every_machine, threads};
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::timeout,
};
use tracing::{error, info};

use syncline_workers::{client::token_file, process::hangup_is_ignored};

use crate::cli::{
    Failure,
    connection::{ENGINE, STATE_DIR, TOKEN_FILE},
    log_as_service,
};

/// Pause before a job that could not be kept is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// A warning that stays the same is printed again after this long.
const REPEAT_WARNING_AFTER: Duration = Duration::from_secs(60);

/// Runs one shard of the parameter server.
#[derive(Debug, Clone, clap::Args)]
pub struct PsArgs {
    /// IP address and port to listen on, which the others must reach; port 0 picks a free one. Beyond
    /// loopback, --token-file is required.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDR")]
    pub listen: SocketAddr,
    /// Engine to announce to, HOST:PORT, or all engines, A,B: whoever leads is told. Without it no engine
    /// hears of this shard.
    #[arg(long, value_name = "ADDR,..", env = ENGINE)]
    pub engine: Option<EngineAddresses>,
    /// File with the cluster's token; made in the state directory if not named.
    #[arg(long, value_name = "FILE", env = TOKEN_FILE)]
    pub token_file: Option<PathBuf>,
    /// Directory for what must not be lost: blobs, snapshots, checkpoints, and jobs that a stop has kept;
    /// one for each process.
    #[arg(long, value_name = "DIR", env = STATE_DIR)]
    pub state_dir: PathBuf,
    /// Which shard this is, counted from 0, of how many: as many as the engine's --shards says.
    #[arg(long, default_value = "0/1", value_name = "INDEX/COUNT")]
    pub shard: ShardPosition,
    /// How many processes hold each shard: with 2 a second one, started elsewhere with the same --shard, has
    /// everything that is acknowledged, and takes over when the first dies
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    pub replicas: u32,
    /// Address under which others reach this shard, if not the one it listens on.
    #[arg(long, value_name = "ADDR")]
    pub advertise: Option<String>,
    /// Stop when a line comes on stdin or it closes; closing it after a line gives up what cannot be kept.
    #[arg(long)]
    pub exit_with_parent: bool,
}

/// Serves until it is told to stop.
pub(crate) fn run(args: &PsArgs) -> Result<(), Failure> {
    log_as_service();
    Ok(serve(args)?)
}

fn serve(args: &PsArgs) -> Result<(), PsError> {
    let io = |what: String| move |source| PsError::Io { what, source };
    let announced = args.advertise.clone().unwrap_or_else(|| args.listen.to_string());
    if args.engine.is_some() && is_of_every_machine(&announced) {
        return Err(PsError::NoAddress { shard: args.shard, address: announced });
    }
    let token = token(args)?;
    let waiting = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(io("cannot wait for signals".into()))?;
    // Before a start takes saved jobs off the disk: a process that a signal ends then would take them along.
    let listen = |kind| {
        let _waiting = waiting.enter();
        signal(kind).map_err(io("cannot wait for signals".into()))
    };
    let asked = StopRequest::GiveUpUnsaved;
    let mut signals =
        vec![(listen(SignalKind::terminate())?, asked), (listen(SignalKind::interrupt())?, asked)];
    if !hangup_is_ignored() {
        // A shell passes it on to jobs that have had it from the terminal already.
        signals.push((listen(SignalKind::hangup())?, StopRequest::SaveJobs));
    }
    let mut handle = server::start(Options {
        listen: args.listen,
        token,
        state_dir: args.state_dir.clone(),
        index: args.shard.index,
        count: args.shard.count,
        engine: args.engine.clone(),
        advertise: args.advertise.clone(),
        replicas: args.replicas,
    })?;
    let (ask, mut asked) = mpsc::unbounded_channel();
    let ended = waiting.block_on(async {
        for (mut signals, request) in signals {
            let ask = ask.clone();
            tokio::spawn(async move { while signals.recv().await.is_some() && ask.send(request).is_ok() {} });
        }
        if args.exit_with_parent {
            watch_parent(ask.clone()).map_err(io("cannot wait for the parent".into()))?;
        }
        tell_address(handle.address()).map_err(io("cannot write to stdout where it listens".into()))?;
        tokio::select! {
            _ = asked.recv() => Ok(()),
            refused = handle.refused() => Err(refused),
        }
    });
    // However it ended: the disk has no copy of these jobs while they run.
    let mut retry = SaveRetry { waiting, asked, tells_parent: args.exit_with_parent, last_warning: None };
    for job in handle.stop_and_save(|error| retry.wait_and_retry(error))? {
        info!(%job, "kept until the next start");
    }
    ended
}

/// Prints where it listens, for whoever has started it.
fn tell_address(address: SocketAddr) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "listening {address}")?;
    out.flush()
}

/// The token: named, or kept in the state directory where only this machine is served.
fn token(args: &PsArgs) -> Result<Token, PsError> {
    let (path, loaded) = match &args.token_file {
        Some(path) => (path.clone(), Token::load(path)),
        None if !args.listen.ip().is_loopback() => {
            return Err(PsError::BindWithoutToken { listen: args.listen });
        }
        None => {
            let path = token_file(&args.state_dir);
            let made = folder::make_ours(&args.state_dir).and_then(|()| Token::load_or_create(&path));
            (path, made)
        }
    };
    loaded.map_err(|source| PsError::Io {
        what: format!("cannot read the token file {}", path.display()),
        source,
    })
}

/// What a signal or the parent asks for.
#[derive(Clone, Copy)]
enum StopRequest {
    /// To stop, and to keep every job.
    SaveJobs,
    /// The same; the second time, not to wait any longer for what cannot be kept.
    GiveUpUnsaved,
}

/// Reads stdin: a line asks to stop, and so does the end of stdin, which comes in whatever way the parent
/// dies. The end after a line means that nobody waits any more.
fn watch_parent(ask: mpsc::UnboundedSender<StopRequest>) -> io::Result<()> {
    let watch = move || {
        let (mut line, mut asked) = ([0; 64], false);
        while matches!(io::stdin().read(&mut line), Ok(1..)) {
            let _ = ask.send(StopRequest::SaveJobs);
            asked = true;
        }
        let _ = ask.send(if asked { StopRequest::GiveUpUnsaved } else { StopRequest::SaveJobs });
    };
    threads::spawn("ps-parent", watch)?;
    Ok(())
}

/// Waits for a disk that does not take a job, until somebody asks a second time to stop.
struct SaveRetry {
    waiting: runtime::Runtime,
    asked: mpsc::UnboundedReceiver<StopRequest>,
    /// Whether the parent keeps our log in a file and prints what we write to stdout.
    tells_parent: bool,
    /// The last warning, and when it was printed.
    last_warning: Option<(String, Instant)>,
}

impl SaveRetry {
    /// Whether to try again, a moment later.
    fn wait_and_retry(&mut self, error: &PsError) -> bool {
        let (text, hint) = (error.to_string(), error.hint().unwrap_or_default());
        let is_old = |(said, at): &(String, Instant)| *said == text && at.elapsed() < REPEAT_WARNING_AFTER;
        if !self.last_warning.as_ref().is_some_and(is_old) {
            error!(error = %text, hint, "job not kept yet");
            if self.tells_parent {
                // A parent that has ended reads nothing.
                let _ = writeln!(io::stdout(), "problem {text}; {hint}");
            }
            self.last_warning = Some((text, Instant::now()));
        }
        let asked = &mut self.asked;
        let given_up =
            async { while !matches!(asked.recv().await, Some(StopRequest::GiveUpUnsaved) | None) {} };
        self.waiting.block_on(async { timeout(RETRY_INTERVAL, given_up).await.is_err() })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        ps: PsArgs,
    }

    fn parse(line: &str) -> Result<PsArgs, clap::Error> {
        Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.ps)
    }

    #[test]
    fn a_shard_place_is_an_index_below_a_count() {
        let args = parse("ps --state-dir d --shard 1/2").unwrap();
        assert_eq!(args.shard, ShardPosition { index: 1, count: 2 });
        for bad in ["2/2", "0/0", "1", "a/b", "-1/2"] {
            assert!(parse(&format!("ps --state-dir d --shard={bad}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn beyond_loopback_a_token_must_be_named() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().display();
        let open = parse(&format!("ps --state-dir {state} --listen 0.0.0.0:0")).unwrap();
        assert_eq!(serve(&open).unwrap_err().code(), "E418");
        let missing =
            parse(&format!("ps --state-dir {state} --listen 0.0.0.0:0 --token-file {state}/no")).unwrap();
        assert_eq!(serve(&missing).unwrap_err().code(), "E416");
        let local = parse(&format!("ps --state-dir {state}")).unwrap();
        let made = token(&local).unwrap();
        assert!(made.matches(&token(&local).unwrap()));
    }
}
