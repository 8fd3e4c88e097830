//! Which cluster a command talks to.

use std::{env, net::SocketAddr, path::PathBuf};

use clap::{ArgMatches, FromArgMatches, parser::ValueSource};
use syncline_rpc::{EngineAddresses, status::EngineStatus};
use syncline_workers::client::{Client, Cluster, FindError, RunningCluster, is_hidden, state_dir};

use crate::cli::Failure;

/// Flags of every command that talks to an engine.
#[derive(Debug, Clone, Default, clap::Args)]
struct ConnectionFlags {
    /// Address of the engine, HOST:PORT, or of all engines, A,B: whoever leads is asked; without it the
    /// cluster of `syncline up` in the state directory
    #[arg(long, value_name = "ADDR,..", env = ENGINE)]
    engine: Option<EngineAddresses>,
    /// File with the secret of the cluster
    #[arg(long, value_name = "FILE", env = TOKEN_FILE)]
    token_file: Option<PathBuf>,
    /// Folder of the cluster's state; typed without --engine it names the cluster, whatever SYNCLINE_ENGINE
    /// and SYNCLINE_TOKEN_FILE say [default: $XDG_STATE_HOME/syncline or ~/.local/state/syncline]
    #[arg(long, value_name = "DIR", env = STATE_DIR)]
    state_dir: Option<PathBuf>,
}

pub(crate) const ENGINE: &str = "SYNCLINE_ENGINE";
pub(crate) const TOKEN_FILE: &str = "SYNCLINE_TOKEN_FILE";
pub(crate) const STATE_DIR: &str = "SYNCLINE_STATE_DIR";

/// Whether the environment names a cluster, which commands without flags then talk to.
pub(crate) fn environment_names_a_cluster() -> bool {
    [ENGINE, TOKEN_FILE].into_iter().any(|name| env::var_os(name).is_some())
}

/// What names a cluster: what was typed, and of the environment what does not contradict it.
#[derive(Debug, Clone, Default)]
pub struct ConnectionArgs {
    pub engine: Option<EngineAddresses>,
    pub token_file: Option<PathBuf>,
    pub state_dir: Option<PathBuf>,
}

impl FromArgMatches for ConnectionArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let ConnectionFlags { engine, token_file, state_dir } = ConnectionFlags::from_arg_matches(matches)?;
        let is_typed = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let folder_names_it = is_typed("state_dir") && !is_typed("engine");
        let counts = |id: &str| !folder_names_it || is_typed(id);
        Ok(Self {
            engine: engine.filter(|_| counts("engine")),
            token_file: token_file.filter(|_| counts("token_file")),
            state_dir,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for ConnectionArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        ConnectionFlags::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        ConnectionFlags::augment_args_for_update(command)
    }
}

impl ConnectionArgs {
    /// The cluster that the flags, the environment or the state directory name. Reads files, does not
    /// connect.
    pub(crate) fn find(&self) -> Result<Cluster, Failure> {
        Ok(Cluster::load(self.engine.clone(), self.token_file.as_deref(), self.state_dir.as_deref())?)
    }

    /// The same; `None` where nothing names a cluster, and none of `syncline up` runs here.
    pub(crate) fn find_if_any(&self) -> Result<Option<Cluster>, Failure> {
        match Cluster::load(self.engine.clone(), self.token_file.as_deref(), self.state_dir.as_deref()) {
            Ok(cluster) => Ok(Some(cluster)),
            Err(FindError::NoCluster { .. } | FindError::NoStateDir) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The flags that lead another command to the same cluster, with a space in front; those that the
    /// environment sets lead it there anyway.
    pub(crate) fn to_repeat(&self) -> String {
        let is_set = |name: &str| env::var_os(name).is_some();
        // Only a folder that is typed again sets aside what the environment says otherwise.
        let set_aside =
            self.engine.is_none() && (is_set(ENGINE) || (self.token_file.is_none() && is_set(TOKEN_FILE)));
        let by_env = |name: &str, value: &str| {
            env::var(name).is_ok_and(|set| set == value) && !(name == STATE_DIR && set_aside)
        };
        let path = |path: &PathBuf| path.display().to_string();
        let flags = [
            ("--engine", ENGINE, self.engine.as_ref().map(ToString::to_string)),
            ("--token-file", TOKEN_FILE, self.token_file.as_ref().map(path)),
            ("--state-dir", STATE_DIR, self.state_dir.as_ref().map(path)),
        ];
        let named = flags.into_iter().filter_map(|(flag, env, value)| {
            let value = value.filter(|value| !by_env(env, value))?;
            Some(format!(" {flag} {}", shell_word(&value)))
        });
        named.collect()
    }

    /// What `syncline up` wrote in the state directory, if it runs there and no engine of another cluster is
    /// named.
    pub(crate) fn running_here(&self) -> Option<RunningCluster> {
        self.running().filter(|running| self.is_of(running))
    }

    fn is_of(&self, running: &RunningCluster) -> bool {
        let ours = running.engines();
        self.engine
            .as_ref()
            .is_none_or(|named| named.iter().any(|named| ours.iter().any(|ours| is_same(named, ours))))
    }

    /// What `syncline up` wrote in the state directory, if it runs there.
    pub(crate) fn running(&self) -> Option<RunningCluster> {
        let dir = state_dir(self.state_dir.as_deref()).ok()?;
        RunningCluster::load(&dir).ok().flatten()
    }

    /// `redis-cli` for the Redis server that an engine says it uses, for a shell. `None`: nobody here knows
    /// its password.
    pub(crate) fn redis_cli(&self, redis: &str) -> Option<String> {
        match self.running().filter(|running| running.has_redis(redis)) {
            Some(running) => Some(redis_cli(&running)),
            None if is_hidden(redis) => None,
            None => Some(format!("redis-cli -u {redis}")),
        }
    }
}

/// Whether an address is another one, or the same under the name of this machine.
fn is_same(named: &str, address: &str) -> bool {
    let of_this_machine = || {
        let (port, address) = (named.strip_prefix("localhost:")?, address.parse::<SocketAddr>().ok()?);
        Some(address.ip().is_loopback() && port.parse() == Ok(address.port()))
    };
    named == address || of_this_machine() == Some(true)
}

/// Asks all engines side by side: one that hangs costs seconds.
pub(crate) async fn ask_each(cluster: &Cluster) -> Vec<Result<(Client, EngineStatus), Failure>> {
    let ask = |engines| {
        let one = Cluster { engines, token: cluster.token.clone() };
        tokio::spawn(async move { Client::connect(&one).await })
    };
    let asked: Vec<_> = cluster.engines.each().map(ask).collect();
    let mut answers = Vec::new();
    for answer in asked {
        // A panic of ours is one here, too.
        let answer = answer.await.unwrap_or_else(|ended| std::panic::resume_unwind(ended.into_panic()));
        answers.push(answer.map_err(Failure::from));
    }
    answers
}

/// A word as a person may paste it into a shell.
pub(crate) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-:,=@%+~".contains(c);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// `redis-cli` for a cluster of `syncline up`, for a shell.
pub(crate) fn redis_cli(running: &RunningCluster) -> String {
    let redis = &running.redis;
    let port = redis.trim_end_matches('/').rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    match (&running.redis_password_file, port) {
        (Some(file), Some(port)) => syncline_kit::redis_cli(file, port),
        _ => format!("redis-cli -u {redis}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_runs_here_is_not_that_of_an_engine_elsewhere() {
        let running: RunningCluster = serde_json::from_value(serde_json::json!({
            "pid": 1, "engine": "127.0.0.1:7461", "second_engine": "127.0.0.1:7462", "token_file": "t", "redis": "redis://r",
            "state_dir": "d", "shards": 1, "workers": 0, "processes": {},
        }))
        .unwrap();
        for (named, is_it) in [
            (None, true),
            (Some("127.0.0.1:7462"), true),
            (Some("a:1,127.0.0.1:7461"), true),
            (Some("localhost:7461"), true),
            (Some("localhost:7463"), false),
            (Some("a:1"), false),
        ] {
            let engine = named.map(|named| named.parse().unwrap());
            assert_eq!(ConnectionArgs { engine, ..Default::default() }.is_of(&running), is_it, "{named:?}");
        }
    }

    #[test]
    fn what_a_shell_would_take_apart_is_quoted() {
        let words = [
            ("/var/lib/syncline", "/var/lib/syncline"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("größe", "größe"),
        ];
        for (word, pasted) in words {
            assert_eq!(shell_word(word), pasted);
        }
    }
}
