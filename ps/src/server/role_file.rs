//! Which role a process had, in its state directory.
//!
//! Who followed must not serve after a start of the whole cluster because it came first, nor who served
//! before another one did alone.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use syncline_rpc::ShardFault;

use super::blobs::{PendingFile, UNFINISHED};
use crate::{PsError, shard::Term};

/// Its name in the state directory.
pub(super) const ROLE_FILE: &str = "role";
const STANDBY: &str = "standby";
const PRIMARY: &str = "primary";

/// What a process was, as its state directory says: `ROLE IDENTITY TERM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Role {
    pub follows: bool,
    /// Random number of the state directory.
    pub identity: u64,
    /// The last term under which it served.
    pub served_term: Term,
}

impl Role {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let follows = match words.next()? {
            STANDBY => true,
            PRIMARY => false,
            _ => return None,
        };
        Some(Self {
            follows,
            identity: words.next()?.parse().ok()?,
            served_term: words.next()?.parse().ok()?,
        })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { follows, identity, served_term } = self;
        writeln!(f, "{} {identity} {served_term}", if *follows { STANDBY } else { PRIMARY })
    }
}

/// The file of one state directory.
pub(super) struct RoleFile(PathBuf);

impl RoleFile {
    pub(super) fn in_dir(state_dir: &Path) -> Self {
        Self(state_dir.join(ROLE_FILE))
    }

    /// What it says; `None` if there is none yet. One that cannot be read is an error: without it a process
    /// that followed would count as one that never did.
    pub(super) fn read(&self) -> Result<Option<Role>, PsError> {
        let cause = match fs::read_to_string(&self.0) {
            Ok(text) => match Role::parse(&text) {
                Some(role) => return Ok(Some(role)),
                None => "it is damaged".to_owned(),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => error.to_string(),
        };
        Err(PsError::RoleUnreadable { path: self.0.display().to_string(), cause })
    }

    pub(super) fn write(&self, role: Role) -> Result<(), ShardFault> {
        let mut file = PendingFile::create(self.0.with_extension(UNFINISHED))?;
        file.write(role.to_string().as_bytes())?;
        file.finish(&self.0)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}
