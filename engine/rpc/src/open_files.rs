//! Processes at their limit on open files: a connection needs a descriptor, and whoever lacks one must not
//! blame the other end.

use std::{fmt, io};

use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};

/// The system gives no further descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("[E665] no descriptor for another file or connection is left: {0}")]
pub struct NoDescriptor(OpenFiles);

/// Who has used up what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenFiles {
    /// This process; so many it may have, where that is known.
    Process(Option<u64>),
    /// All processes together.
    Machine,
}

impl fmt::Display for OpenFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(Some(most)) => write!(f, "this process may have {most} open"),
            Self::Process(None) => write!(f, "this process has all open that it may have"),
            Self::Machine => {
                write!(f, "all processes of this machine together have as many open as it allows")
            }
        }
    }
}

impl NoDescriptor {
    /// The stable code, see docs/errors.md.
    pub const CODE: &str = "E665";

    /// What the user can do about it.
    pub const HINT: &str = "raise the limit on open files of this process and start it again (`ulimit -n 65536` before it, LimitNOFILE=65536 \
                            in its systemd unit, --ulimit nofile=65536 of a container); that of the machine is `sysctl fs.file-max`";

    /// What lies behind `error`, where it is that.
    pub fn behind(error: &io::Error) -> Option<Self> {
        if let Some(known) = error.get_ref().and_then(|inner| inner.downcast_ref::<Self>()) {
            return Some(*known);
        }
        match Errno::from_io_error(error)? {
            Errno::MFILE => Some(Self(OpenFiles::Process(getrlimit(Resource::Nofile).current))),
            Errno::NFILE => Some(Self(OpenFiles::Machine)),
            _ => None,
        }
    }

    /// The same error, in words that say how many there may be where it is that.
    pub fn explain(error: io::Error) -> io::Error {
        Self::behind(&error).map_or(error, Into::into)
    }

    /// The stable code, see docs/errors.md.
    pub fn code(&self) -> &'static str {
        Self::CODE
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        Some(Self::HINT.to_owned())
    }
}

impl From<NoDescriptor> for io::Error {
    fn from(error: NoDescriptor) -> Self {
        Self::other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_descriptor_left_is_told_how_many_it_may_have() {
        let of = |errno: Errno| NoDescriptor::explain(io::Error::from(errno));
        let most = getrlimit(Resource::Nofile).current;
        let told = of(Errno::MFILE);
        assert_eq!(NoDescriptor::behind(&told), Some(NoDescriptor(OpenFiles::Process(most))));
        let limit =
            most.map_or("has all open that it may have".to_owned(), |most| format!("may have {most} open"));
        assert!(told.to_string().ends_with(&format!("this process {limit}")), "{told}");
        assert!(of(Errno::NFILE).to_string().contains("this machine"));
        let other = of(Errno::CONNREFUSED);
        assert_eq!((other.kind(), NoDescriptor::behind(&other)), (io::ErrorKind::ConnectionRefused, None));
    }
}
