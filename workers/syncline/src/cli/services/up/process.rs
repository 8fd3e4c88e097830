//! The processes of a cluster: what each is, and the name that follows from it.

use std::{fmt, num::ParseIntError, str::FromStr};

/// One process that `up` starts. Other commands, logs and files know it by its name, as it is displayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Process {
    Redis,
    /// Which of two engines leads is between them.
    Engine {
        second: bool,
    },
    Shard(ShardProcess),
    /// By its position, from 0.
    Worker(u32),
}

pub(super) const FIRST_ENGINE: Process = Process::Engine { second: false };
pub(super) const SECOND_ENGINE: Process = Process::Engine { second: true };

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis => f.write_str("redis"),
            Self::Engine { second: false } => f.write_str("engine"),
            Self::Engine { second: true } => f.write_str("engine-b"),
            Self::Shard(shard) => write!(f, "{SHARD}{shard}"),
            Self::Worker(index) => write!(f, "worker-{index}"),
        }
    }
}

/// Beginning of the name of a process that holds a shard.
pub(super) const SHARD: &str = "ps-";
/// Ending of the name of a second process.
const SECOND: &str = "b";

/// One of the processes that hold a shard: `0`, `1`, and `0b`, `1b` for the second ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShardProcess {
    pub index: u32,
    pub second: bool,
}

impl ShardProcess {
    /// All of them, first ones first: those serve a new cluster.
    pub(crate) fn all(shards: u32, replicas: u32) -> impl Iterator<Item = Self> {
        (0..replicas).flat_map(move |n| (0..shards).map(move |index| Self { index, second: n > 0 }))
    }
}

impl FromStr for ShardProcess {
    type Err = ParseIntError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let first = name.strip_suffix(SECOND);
        Ok(Self { index: first.unwrap_or(name).parse()?, second: first.is_some() })
    }
}

impl fmt::Display for ShardProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.index, if self.second { SECOND } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_keep_the_names_that_logs_and_files_have() {
        let shard = |index, second| Process::Shard(ShardProcess { index, second });
        let all = [
            Process::Redis,
            FIRST_ENGINE,
            SECOND_ENGINE,
            shard(0, false),
            shard(1, true),
            Process::Worker(3),
        ];
        let names = all.map(|process| process.to_string());
        assert_eq!(names, ["redis", "engine", "engine-b", "ps-0", "ps-1b", "worker-3"]);
        for shard in ShardProcess::all(3, 2) {
            assert_eq!(shard.to_string().parse(), Ok(shard));
        }
        assert!(["", "b", "x", "1c"].iter().all(|name| name.parse::<ShardProcess>().is_err()));
    }
}
