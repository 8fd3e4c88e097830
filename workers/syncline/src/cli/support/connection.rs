//! Which cluster a command talks to.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use syncline_engine::{
    client::Client,
    rpc::{EngineAddresses, Token},
};
use syncline_kit::redis_cli;

use crate::cli::{
    CliError, Failure,
    support::state_files::{load_token, state_dir, token_file},
};

/// Flags of every command that talks to an engine.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Connection {
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

/// What stands in an address in the place of user name and password.
const HIDDEN: &str = "***@";

/// What `syncline up` writes about the running cluster, as `up.json` in the state directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunningCluster {
    pub pid: u32,
    pub engine: SocketAddr,
    pub token_file: PathBuf,
    /// Without user name and password.
    pub redis: String,
    /// Where the password of our own Redis server lies; none of a server that was named.
    #[serde(default)]
    pub redis_password_file: Option<PathBuf>,
    pub state_dir: PathBuf,
    pub shards: u32,
    pub workers: u32,
    /// Process ids by name.
    pub processes: std::collections::BTreeMap<String, u32>,
}

impl RunningCluster {
    /// The address of Redis for programs, with its password. `None`: it is not written down anywhere.
    pub(crate) fn redis_url(&self) -> Option<String> {
        match &self.redis_password_file {
            Some(file) => {
                let password = fs::read_to_string(file).ok()?;
                Some(self.redis.replacen("://", &format!("://:{}@", password.trim()), 1))
            }
            None => (!self.redis.contains(HIDDEN)).then(|| self.redis.clone()),
        }
    }

    /// `redis-cli` for this cluster, for a shell.
    pub(crate) fn redis_cli(&self) -> String {
        let port = self.redis.trim_end_matches('/').rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        match (&self.redis_password_file, port) {
            (Some(file), Some(port)) => redis_cli(file, port),
            _ => format!("redis-cli -u {}", self.redis),
        }
    }

    pub(crate) fn path(state_dir: &Path) -> PathBuf {
        state_dir.join("up.json")
    }

    /// `None` if nothing runs on this directory, or what is written there makes no sense.
    pub(crate) fn load(state_dir: &Path) -> io::Result<Option<Self>> {
        match fs::read(Self::path(state_dir)) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// Addresses and secret of a cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub engines: EngineAddresses,
    pub token: Token,
}

impl Connection {
    /// The cluster that the flags, the environment or the state directory name. Reads files, does not connect.
    pub fn find(&self) -> Result<Cluster, Failure> {
        let dir = || state_dir(self.state_dir.as_deref());
        let running = || -> Result<RunningCluster, CliError> {
            let dir = dir()?;
            let path = RunningCluster::path(&dir);
            let known =
                RunningCluster::load(&dir).map_err(|source| CliError::Path { path: path.clone(), source })?;
            known.ok_or(CliError::NoCluster { path })
        };
        let (engines, token_path) = match (&self.engine, &self.token_file) {
            (Some(engines), Some(path)) => (engines.clone(), path.clone()),
            (Some(engines), None) => (engines.clone(), token_file(&dir()?)),
            (None, path) => {
                let running = running()?;
                (running.engine.into(), path.clone().unwrap_or(running.token_file))
            }
        };
        Ok(Cluster { engines, token: load_token(&token_path)? })
    }

    /// `redis-cli` for the Redis server that an engine says it uses, for a shell.
    pub(crate) fn redis_cli(&self, redis: &str) -> String {
        let running =
            state_dir(self.state_dir.as_deref()).ok().and_then(|dir| RunningCluster::load(&dir).ok()?);
        let same = |running: &RunningCluster| running.redis.replace(HIDDEN, "") == redis.replace(HIDDEN, "");
        match running.filter(same) {
            Some(running) => running.redis_cli(),
            None => format!("redis-cli -u {redis}"),
        }
    }
}

impl Cluster {
    /// A client whose engine has answered once. Later calls are retried, but an engine that cannot be reached at all is
    /// an error at once.
    pub async fn connect(&self) -> Result<(Client, EngineInfo), Failure> {
        let client = Client::new(self.engines.clone(), self.token.clone());
        let about = EngineInfo(client.ping().await?);
        Ok((client, about))
    }
}

/// What an engine reports about itself.
#[derive(Debug, Clone)]
pub struct EngineInfo(std::collections::BTreeMap<String, String>);

impl EngineInfo {
    /// One field, empty if this engine does not say it.
    pub fn get(&self, field: &str) -> &str {
        self.0.get(field).map_or("", String::as_str)
    }

    pub(crate) fn number(&self, field: &str) -> u32 {
        self.get(field).parse().unwrap_or(0)
    }
}
