//! The secret of a cluster that a service belongs to.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use syncline_rpc::{Token, folder};
use syncline_workers::client::{FindError, load_token, state_dir, token_file};

use crate::cli::{CliError, Failure};

/// Flags of a service that needs the cluster's secret.
#[derive(Debug, Clone, clap::Args)]
pub struct TokenArgs {
    /// File with the secret of the cluster; without it the one in the state directory
    #[arg(long, value_name = "FILE", env = "SYNCLINE_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// Folder of the cluster's state [default: $XDG_STATE_HOME/syncline or ~/.local/state/syncline]
    #[arg(long, value_name = "DIR", env = "SYNCLINE_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
}

impl TokenArgs {
    /// The token in the named file, which has to exist, or in the state directory, where it is made if need
    /// be.
    pub fn load(&self) -> Result<Token, Failure> {
        if let Some(path) = &self.token_file {
            return Ok(load_token(path)?);
        }
        let dir = state_dir(self.state_dir.as_deref())?;
        folder::make_ours(&dir).map_err(|source| CliError::Path { path: dir.clone(), source })?;
        let path = token_file(&dir);
        Ok(Token::load_or_create(&path).map_err(|source| FindError::TokenFile { path, source })?)
    }
}

/// Refuses an address that other machines reach, unless a token file was named on purpose.
pub fn check_open_bind(address: SocketAddr, token_file: Option<&Path>) -> Result<(), CliError> {
    if address.ip().is_loopback() || token_file.is_some() {
        Ok(())
    } else {
        Err(CliError::OpenBind { address })
    }
}
