//! Names of the transports, and which of them a worker may use.

use std::{fmt, str::FromStr};

/// How the bytes of a connection travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// Between any two machines.
    Tcp,
    /// A unix socket, on one machine.
    Unix,
    /// Shared memory.
    Shm,
}

/// Which transport a client takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// The fastest that works: shared memory with a shard on the same machine, else a unix socket, else TCP.
    #[default]
    Auto,
    /// This one, or an error.
    Only(Transport),
}

/// A name that stands for no transport.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[E437] `{given}` is no transport: auto, shm, unix or tcp")]
pub struct UnknownTransport {
    given: String,
}

impl UnknownTransport {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        "E437"
    }

    /// What the user can do about it: the text says all there is.
    pub fn hint(&self) -> Option<String> {
        None
    }
}

impl Transport {
    const ALL: [Self; 3] = [Self::Tcp, Self::Unix, Self::Shm];

    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Unix => "unix",
            Self::Shm => "shm",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for TransportChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Only(transport) => transport.fmt(f),
        }
    }
}

impl FromStr for TransportChoice {
    type Err = UnknownTransport;

    fn from_str(given: &str) -> Result<Self, Self::Err> {
        if given == "auto" {
            return Ok(Self::Auto);
        }
        let named = Transport::ALL.into_iter().find(|transport| transport.name() == given);
        named.map(Self::Only).ok_or_else(|| UnknownTransport { given: given.chars().take(40).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_reads_as_it_is_written_and_nothing_else_is_one() {
        for name in ["auto", "shm", "unix", "tcp"] {
            assert_eq!(name.parse::<TransportChoice>().unwrap().to_string(), name);
        }
        for other in ["", "TCP", "memory", "shm "] {
            assert!(
                other.parse::<TransportChoice>().unwrap_err().to_string().starts_with("[E437]"),
                "{other}"
            );
        }
    }
}
