//! The cluster that a person means who names none: that of the environment, or of `syncline up` on this
//! machine.

use std::{
    collections::BTreeMap,
    env, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use syncline_rpc::{
    EngineAddresses, InvalidAddress, Token,
    folder::{self, NotOurs},
    status::EngineStatus,
};

use super::{Client, ClientError, Patience};

/// What stands in an address in place of user name and password, as the engine shows it.
const HIDDEN: &str = "***";
const HIDDEN_USER: &str = "***@";

/// Why no cluster was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// `up.json` is there and cannot be read.
    #[error("[E502] cannot use {path}")]
    Path {
        /// The file `up.json` in the state directory.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The file cannot be read or made, or holds no token.
    #[error("[E505] the token in {path} cannot be read")]
    TokenFile {
        /// File that was named, or that belongs to the state directory.
        path: PathBuf,
        /// What the system says, or that the text is no token.
        #[source]
        source: io::Error,
    },
    /// No engine is named, and no `syncline up` runs on the state directory.
    #[error("[E511] no cluster is known: {path} does not exist, or names none")]
    NoCluster {
        /// Where its `up.json` would lie.
        path: PathBuf,
    },
    /// No state directory is named, and the environment has no place for one.
    #[error(
        "[E512] there is no place for the state: neither SYNCLINE_STATE_DIR nor HOME is set, nor XDG_STATE_HOME to an absolute path"
    )]
    NoStateDir,
    /// `SYNCLINE_ENGINE` names no engine.
    #[error(transparent)]
    Address(#[from] InvalidAddress),
}

impl FindError {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Path { .. } => "E502",
            Self::TokenFile { .. } => "E505",
            Self::NoCluster { .. } => "E511",
            Self::NoStateDir => "E512",
            Self::Address(source) => source.code(),
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Path { source, .. } if NotOurs::is_behind(source) => NotOurs::HINT,
            Self::Path { .. } => {
                "see whether it exists, it and its folder belong to you alone, and the disk has room; --state-dir names another folder"
            }
            Self::TokenFile { .. } => {
                "name the file that `syncline up` printed, with --token-file or SYNCLINE_TOKEN_FILE; it holds 64 hexadecimal digits, and belongs to you or \
                 root alone (`chmod 600`). Where it was emptied, copy it from a machine that has it, or remove it: the next start makes another one, which all \
                 machines need"
            }
            Self::NoCluster { .. } => {
                "start one with `syncline up`, or name one: with --engine and --token-file, or with --state-dir, or with SYNCLINE_ENGINE, \
                 SYNCLINE_TOKEN_FILE or SYNCLINE_STATE_DIR"
            }
            Self::NoStateDir => "name a folder with --state-dir",
            Self::Address(_) => "SYNCLINE_ENGINE takes HOST:PORT, several with commas between",
        };
        Some(hint.to_owned())
    }
}

/// What `syncline up` writes about the running cluster, as `up.json` in the state directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningCluster {
    /// Process id of `syncline up` itself.
    pub pid: u32,
    /// Address of the first engine, or of the only one.
    pub engine: SocketAddr,
    /// Of the two, either may lead.
    #[serde(default)]
    pub second_engine: Option<SocketAddr>,
    /// Where the secret of the cluster lies, as an absolute path.
    pub token_file: PathBuf,
    /// Without user name and password.
    pub redis: String,
    /// Where the password of our own Redis server lies; none of a server that was named.
    #[serde(default)]
    pub redis_password_file: Option<PathBuf>,
    /// Where all of it keeps its state, as an absolute path.
    pub state_dir: PathBuf,
    /// Shards of the parameter server.
    pub shards: u32,
    /// Processes that hold each shard.
    #[serde(default = "one")]
    pub replicas: u32,
    /// Workers that `syncline up` starts, and starts again; others may have joined.
    pub workers: u32,
    /// Process ids by name.
    pub processes: BTreeMap<String, u32>,
}

fn one() -> u32 {
    1
}

impl RunningCluster {
    /// Where engines are, of which one leads.
    pub fn engines(&self) -> EngineAddresses {
        let first = EngineAddresses::from(self.engine);
        self.second_engine.into_iter().fold(first, EngineAddresses::and)
    }

    /// The address of Redis for programs, with its password. `None`: it is not written down anywhere.
    pub fn redis_url(&self) -> Option<String> {
        match &self.redis_password_file {
            Some(file) => {
                let password = fs::read_to_string(file).ok()?;
                Some(self.redis.replacen("://", &format!("://:{}@", password.trim()), 1))
            }
            None => (!is_hidden(&self.redis)).then(|| self.redis.clone()),
        }
    }

    /// Whether an address without user name and password is that of this cluster's Redis server.
    pub fn has_redis(&self, address: &str) -> bool {
        self.redis.replace(HIDDEN_USER, "") == address.replace(HIDDEN_USER, "")
    }

    /// The file in a state directory.
    pub fn path(state_dir: &Path) -> PathBuf {
        state_dir.join("up.json")
    }

    /// `None` if nothing runs on this directory, or what is written there makes no sense.
    ///
    /// # Errors
    /// If the file is there and cannot be read; E129 as the cause if somebody else may have put it there, who
    /// would have made us part of a cluster of theirs.
    pub fn load(state_dir: &Path) -> io::Result<Option<Self>> {
        let path = Self::path(state_dir);
        let read = folder::check_ours(state_dir)
            .and_then(|()| folder::check_ours(&path))
            .and_then(|()| fs::read(&path));
        match read {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// Whether an address of Redis, as an engine shows it, stands for one with a password.
pub fn is_hidden(redis: &str) -> bool {
    redis.contains(HIDDEN)
}

/// The state directory that was named, else the user's own: `$XDG_STATE_HOME/syncline` or
/// `~/.local/state/syncline`.
///
/// # Errors
/// E512 if none is named and the environment has no place for one.
pub fn state_dir(named: Option<&Path>) -> Result<PathBuf, FindError> {
    let from = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let named = named.filter(|p| !p.as_os_str().is_empty()).map(Path::to_owned);
    // The XDG standard: a relative path in this variable is to be ignored.
    let xdg = || from("XDG_STATE_HOME").filter(|p| p.is_absolute()).map(|p| p.join("syncline"));
    let home = || Some(from("HOME")?.join(".local/state/syncline"));
    named.or_else(xdg).or_else(home).ok_or(FindError::NoStateDir)
}

/// The token file in a state directory.
pub fn token_file(state_dir: &Path) -> PathBuf {
    state_dir.join("token")
}

/// Addresses and secret of a cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// The only engine, or all of them: whoever leads is asked.
    pub engines: EngineAddresses,
    /// Secret with which everybody greets engines and shards.
    pub token: Token,
}

impl Cluster {
    /// The cluster that SYNCLINE_ENGINE, SYNCLINE_TOKEN_FILE and SYNCLINE_STATE_DIR name, as for the command
    /// line; without them that of `syncline up` on this machine. Reads files, does not connect.
    ///
    /// # Errors
    /// E511 if none is named and none runs here, E502 and E505 if its files cannot be read, E512 if there is
    /// no state directory, E127 if SYNCLINE_ENGINE names no engine.
    pub fn find() -> Result<Self, FindError> {
        let var = |name| env::var_os(name).filter(|value| !value.is_empty());
        let engines = var("SYNCLINE_ENGINE").map(|text| text.to_string_lossy().parse()).transpose()?;
        let token = var("SYNCLINE_TOKEN_FILE").map(PathBuf::from);
        let state = var("SYNCLINE_STATE_DIR").map(PathBuf::from);
        Self::load(engines, token.as_deref(), state.as_deref())
    }

    /// The cluster with these engines and this token file; what is not named stands in the state directory.
    ///
    /// # Errors
    /// E511 if no engine is named and none runs here, E502 and E505 if the files cannot be read, E512 if
    /// there is no state directory.
    pub fn load(
        engines: Option<EngineAddresses>,
        token_path: Option<&Path>,
        state: Option<&Path>,
    ) -> Result<Self, FindError> {
        let (engines, token_path) = match (engines, token_path) {
            (Some(engines), Some(path)) => (engines, path.to_owned()),
            (Some(engines), None) => (engines, token_file(&state_dir(state)?)),
            (None, path) => {
                let dir = state_dir(state)?;
                let file = RunningCluster::path(&dir);
                let running = RunningCluster::load(&dir)
                    .map_err(|source| FindError::Path { path: file.clone(), source })?
                    .ok_or(FindError::NoCluster { path: file })?;
                (running.engines(), path.map_or(running.token_file, Path::to_owned))
            }
        };
        Ok(Self { engines, token: load_token(&token_path)? })
    }
}

/// The token in a file.
///
/// # Errors
/// E505 if the file cannot be read, or holds no token.
pub fn load_token(path: &Path) -> Result<Token, FindError> {
    Token::load(path).map_err(|source| FindError::TokenFile { path: path.to_owned(), source })
}

impl Client {
    /// A client of the cluster that is found, see [`Cluster::find`]. Does not connect yet.
    ///
    /// # Errors
    /// As [`Cluster::find`]: E511 if there is no cluster, E502, E505, E512 and E127.
    pub fn find() -> Result<Self, FindError> {
        let Cluster { engines, token } = Cluster::find()?;
        Ok(Self::new(engines, token))
    }

    /// A client for somebody who looks on ([`Patience::INTERACTIVE`]), whose engine has answered once, and
    /// what it said. An engine that cannot be reached at all is an error at once.
    ///
    /// # Errors
    /// E300 if no engine is reached, with E123 as its cause where the token is another one, and E122 where
    /// the release is.
    pub async fn connect(cluster: &Cluster) -> Result<(Self, EngineStatus), ClientError> {
        let client = Self::new(cluster.engines.clone(), cluster.token.clone());
        let client = client.with_patience(Patience::INTERACTIVE);
        let engine = client.engine().await?;
        Ok((client, engine))
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error, fs::Permissions, os::unix::fs::PermissionsExt};

    use super::*;

    /// The code of the error, and its cause.
    fn refusal(dir: &Path, engines: Option<&str>) -> (&'static str, String) {
        let engines = engines.map(|address| address.parse().unwrap());
        let error = Cluster::load(engines, None, Some(dir)).unwrap_err();
        (error.code(), error.source().unwrap().to_string())
    }

    #[test]
    fn a_cluster_that_somebody_else_may_have_put_there_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let running = RunningCluster {
            pid: 1,
            engine: ([127, 0, 0, 1], 1).into(),
            second_engine: None,
            token_file: token_file(dir.path()),
            redis: String::new(),
            redis_password_file: None,
            state_dir: dir.path().to_owned(),
            shards: 1,
            replicas: 1,
            workers: 0,
            processes: BTreeMap::new(),
        };
        let up = RunningCluster::path(dir.path());
        fs::write(&up, serde_json::to_vec(&running).unwrap()).unwrap();
        Token::load_or_create(&running.token_file).unwrap();
        Cluster::load(None, None, Some(dir.path())).unwrap();
        for (open, engines, code) in [
            (dir.path(), None, "E502"),
            (&up, None, "E502"),
            (&running.token_file, None, "E505"),
            (&running.token_file, Some("127.0.0.1:1"), "E505"),
        ] {
            let before = fs::metadata(open).unwrap().permissions();
            fs::set_permissions(open, Permissions::from_mode(0o777)).unwrap();
            let (found, cause) = refusal(dir.path(), engines);
            assert!(found == code && cause.starts_with("[E129]"), "{}: {found}: {cause}", open.display());
            fs::set_permissions(open, before).unwrap();
        }
    }
}
