//! Which cluster a command talks to.

use std::{env, path::PathBuf};

use syncline_rpc::{EngineAddresses, status::EngineStatus};
use syncline_workers::client::{Client, Cluster, RunningCluster, is_hidden, state_dir};

use crate::cli::Failure;

/// Flags of every command that talks to an engine.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ConnectionArgs {
    /// Address of the engine, HOST:PORT, or of all engines, A,B: whoever leads is asked; without it the cluster of
    /// `syncline up` in the state directory
    #[arg(long, value_name = "ADDR,..", env = "SYNCLINE_ENGINE")]
    pub engine: Option<EngineAddresses>,
    /// File with the secret of the cluster
    #[arg(long, value_name = "FILE", env = "SYNCLINE_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// Folder of the cluster's state [default: $XDG_STATE_HOME/syncline or ~/.local/state/syncline]
    #[arg(long, value_name = "DIR", env = "SYNCLINE_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
}

impl ConnectionArgs {
    /// The cluster that the flags, the environment or the state directory name. Reads files, does not connect.
    pub(crate) fn find(&self) -> Result<Cluster, Failure> {
        Ok(Cluster::of(self.engine.clone(), self.token_file.as_deref(), self.state_dir.as_deref())?)
    }

    /// The flags that lead another command to the same cluster, with a space in front; those that the environment sets lead it there
    /// anyway.
    pub(crate) fn to_repeat(&self) -> String {
        let by_env = |name: &str, value: &str| env::var(name).is_ok_and(|set| set == value);
        let path = |path: &PathBuf| path.display().to_string();
        let flags = [
            ("--engine", "SYNCLINE_ENGINE", self.engine.as_ref().map(ToString::to_string)),
            ("--token-file", "SYNCLINE_TOKEN_FILE", self.token_file.as_ref().map(path)),
            ("--state-dir", "SYNCLINE_STATE_DIR", self.state_dir.as_ref().map(path)),
        ];
        let named = flags.into_iter().filter_map(|(flag, env, value)| {
            let value = value.filter(|value| !by_env(env, value))?;
            Some(format!(" {flag} {}", shell_word(&value)))
        });
        named.collect()
    }

    /// What `syncline up` wrote in the state directory, if it runs there.
    pub(crate) fn running(&self) -> Option<RunningCluster> {
        let dir = state_dir(self.state_dir.as_deref()).ok()?;
        RunningCluster::load(&dir).ok().flatten()
    }

    /// `redis-cli` for the Redis server that an engine says it uses, for a shell. `None`: nobody here knows its password.
    pub(crate) fn redis_cli(&self, redis: &str) -> Option<String> {
        match self.running().filter(|running| running.has_redis(redis)) {
            Some(running) => Some(redis_cli(&running)),
            None if is_hidden(redis) => None,
            None => Some(format!("redis-cli -u {redis}")),
        }
    }
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
