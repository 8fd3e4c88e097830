//! `syncline ps`: one shard as a process.
//!
//! Prints `listening ADDRESS` on stdout when it is ready. Ends with an error when the engine will never have it. Stops
//! on SIGTERM and Ctrl-C, and with
//! `--exit-with-parent` also when its stdin closes, which the system does when the parent dies in whatever way.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    path::PathBuf,
    str::FromStr,
    thread,
};

use syncline_engine::{
    folder,
    rpc::{EngineAddresses, Token},
};
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

use tracing::info;

use crate::{
    PsError,
    server::{Options, Server},
};

/// Runs one shard of the parameter server.
#[derive(Debug, Clone, clap::Args)]
pub struct PsArgs {
    /// Address to listen on; port 0 picks a free one. Beyond loopback, --token-file is required.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDR")]
    pub listen: SocketAddr,
    /// Engine to announce to, HOST:PORT, or all engines, A,B: whoever leads is told.
    #[arg(long, value_name = "ADDR,..")]
    pub engine: Option<EngineAddresses>,
    /// File with the cluster's token; made in the state directory if not named.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Directory for blobs and snapshots.
    #[arg(long, value_name = "DIR")]
    pub state_dir: PathBuf,
    /// Which shard this is, of how many.
    #[arg(long, default_value = "0/1", value_name = "INDEX/COUNT")]
    pub shard: ShardPlace,
    /// Address under which others reach this shard, if not the one it listens on.
    #[arg(long, value_name = "ADDR")]
    pub advertise: Option<String>,
    /// Stop when stdin closes.
    #[arg(long)]
    pub exit_with_parent: bool,
}

/// `INDEX/COUNT`, with the index from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardPlace {
    pub index: u32,
    pub count: u32,
}

impl FromStr for ShardPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parsed {
            Some((index, count)) if index < count => Ok(Self { index, count }),
            _ => Err(format!("`{text}` is not INDEX/COUNT with an index from 0, such as 0/2")),
        }
    }
}

/// Serves until it is told to stop.
pub fn run(args: &PsArgs) -> Result<(), PsError> {
    let io = |what: String| move |source| PsError::Io { what, source };
    let token = token(args)?;
    let mut handle = Server::start(Options {
        listen: args.listen,
        token,
        state_dir: args.state_dir.clone(),
        index: args.shard.index,
        count: args.shard.count,
        engine: args.engine.clone(),
        advertise: args.advertise.clone(),
    })?;
    let waiting = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(io("cannot wait for signals".into()))?;
    let refused = waiting
        .block_on(async {
            // Before the line that says we are ready: whoever reads it may stop us at once.
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            let orphaned = orphaned(args.exit_with_parent)?;
            let mut out = io::stdout().lock();
            writeln!(out, "listening {}", handle.address())?;
            out.flush()?;
            drop(out);
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = orphaned => {}
                refused = handle.refused() => return Ok(Some(refused)),
            }
            Ok(None)
        })
        .map_err(io("cannot wait for signals".into()))?;
    for job in handle.stop_and_save()? {
        info!(%job, "kept until the next start");
    }
    refused.map_or(Ok(()), Err)
}

/// The token: named, or kept in the state directory where only this machine is served.
fn token(args: &PsArgs) -> Result<Token, PsError> {
    let (path, loaded) = match &args.token_file {
        Some(path) => (path.clone(), Token::load(path)),
        None if !args.listen.ip().is_loopback() => return Err(PsError::OpenBind { listen: args.listen }),
        None => {
            let path = args.state_dir.join("token");
            let made = folder::make(&args.state_dir).and_then(|()| Token::load_or_create(&path));
            (path, made)
        }
    };
    loaded.map_err(|source| PsError::Io {
        what: format!("cannot read the token file {}", path.display()),
        source,
    })
}

/// Ends when stdin does; never, if nobody asked for that.
fn orphaned(watch: bool) -> io::Result<impl Future<Output = ()>> {
    let (parent, gone) = oneshot::channel::<()>();
    let mut unwatched = Some(parent);
    if watch {
        let parent = unwatched.take();
        thread::Builder::new().name("ps-parent".into()).spawn(move || {
            let mut drain = [0; 64];
            while matches!(io::stdin().read(&mut drain), Ok(1..)) {}
            drop(parent);
        })?;
    }
    Ok(async move {
        let _ = gone.await;
        // Held until here, so that nothing is heard unless the thread above drops its end.
        drop(unwatched);
    })
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
        assert_eq!(args.shard, ShardPlace { index: 1, count: 2 });
        for bad in ["2/2", "0/0", "1", "a/b", "-1/2"] {
            assert!(parse(&format!("ps --state-dir d --shard={bad}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn beyond_loopback_a_token_must_be_named() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().display();
        let open = parse(&format!("ps --state-dir {state} --listen 0.0.0.0:0")).unwrap();
        assert_eq!(run(&open).unwrap_err().code(), "E418");
        let missing =
            parse(&format!("ps --state-dir {state} --listen 0.0.0.0:0 --token-file {state}/no")).unwrap();
        assert_eq!(run(&missing).unwrap_err().code(), "E416");
        let local = parse(&format!("ps --state-dir {state}")).unwrap();
        let made = token(&local).unwrap();
        assert!(made.matches(&token(&local).unwrap()));
    }
}
