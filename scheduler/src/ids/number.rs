//! Identities that are numbers: a type each, so that a worker can never be taken for a shard.

use std::{fmt, num::NonZeroU64, str::FromStr};

use serde::{Deserialize, Serialize};

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = std::num::ParseIntError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.strip_prefix($prefix).unwrap_or(text).parse().map(Self)
            }
        }
    };
}

number_id!(
    /// One life of one worker process. A worker that was dropped comes back under a new incarnation.
    Incarnation(u64), "w");
/// A process of workers, which are its training slots: the number that it drew for itself when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProcessId(NonZeroU64);

impl ProcessId {
    /// As workers say it of themselves; 0 is none.
    pub fn new(drawn: u64) -> Option<Self> {
        NonZeroU64::new(drawn).map(Self)
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

number_id!(
    /// One registration of a worker, by the number that was drawn for it. Incarnations are counted in Redis, and
    /// another Redis gives the same ones to other workers.
    RegistrationId(u64), "r");
number_id!(
    /// Position of a shard in a job's parameter server, from 0.
    ShardIndex(u32), "s");
number_id!(
    /// State directory of a process of a shard, by the number that was drawn for it: whoever comes back on the same one has what lies in it.
    StateDirId(u64), "d");
number_id!(
    /// Term of one active engine. Everybody refuses messages of a lower term than the highest seen.
    EngineEpoch(u64), "e");
number_id!(
    /// The span between two barriers, from 0. The barrier that ends superstep n makes version n + 1.
    Superstep(u64), "");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_ids_read_what_they_print() {
        assert_eq!("w17".parse::<Incarnation>(), Ok(Incarnation(17)));
        assert_eq!(Incarnation(17).to_string(), "w17");
        assert_eq!("17".parse::<Incarnation>(), Ok(Incarnation(17)));
        assert!("s17x".parse::<ShardIndex>().is_err());
    }
}
