//! Identities. Each is a type of its own, so that a worker can never be taken for a task.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Longest name a user may give a job or a node of its graph, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// A name that may stand in a Redis key, a file name and a log line: `[a-z0-9][a-z0-9._-]*`, at most 64 bytes. The engine
/// alone makes names with one `~` behind that, for jobs that a task of another job has begun: see [`Name::of_training`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Box<str>);

impl Name {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The job that trains for task `task` of this job, at its attempt `attempt`: `sweep~3`, and `sweep~3-2` when it is
    /// tried again.
    pub fn of_training(&self, task: u32, attempt: u16) -> Self {
        match attempt {
            0 | 1 => Self(format!("{self}~{task}").into()),
            _ => Self(format!("{self}~{task}-{attempt}").into()),
        }
    }

    /// Whether the engine has made it: users cannot give such names.
    pub fn is_made_by_engine(&self) -> bool {
        self.0.contains('~')
    }
}

/// Why a text is not a [`Name`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "[E001] `{0}` is not a valid name: use 1 to 64 of a-z, 0-9, '.', '_' and '-', starting with a letter or digit"
)]
pub struct InvalidName(pub String);

impl InvalidName {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        "E001"
    }

    /// What the user can do about it: the text says all there is.
    pub fn hint(&self) -> Option<String> {
        None
    }
}

/// `3` or `3-2`.
fn is_task_and_attempt(text: &str) -> bool {
    let (task, attempt) = text.split_once('-').unwrap_or((text, "2"));
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    is_number(task) && is_number(attempt) && task.parse::<u32>().is_ok() && attempt.parse::<u16>().is_ok()
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let (name, training) = text.split_once('~').map_or((text, None), |(name, of)| (name, Some(of)));
        let ok = name.len() <= MAX_NAME_BYTES
            && name.bytes().next().is_some_and(plain)
            && name.bytes().all(|b| plain(b) || matches!(b, b'.' | b'_' | b'-'))
            && training.is_none_or(is_task_and_attempt);
        if ok { Ok(Self(text.into())) } else { Err(InvalidName(text.chars().take(80).collect())) }
    }
}

impl TryFrom<String> for Name {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0.into()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0)
    }
}

/// An identifier in JSON and on the wire as it is printed, such as `w3`.
pub mod as_text {
    use std::{fmt::Display, str::FromStr};

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// For `#[serde(with = "...")]`.
    pub fn serialize<T: Display, S: Serializer>(id: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(id)
    }

    /// For `#[serde(with = "...")]`.
    pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// A job, named by its user.
pub type JobId = Name;
/// A node of a job's graph, named by its user.
pub type NodeName = Name;

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
number_id!(
    /// Position of a shard in a job's parameter server, from 0.
    ShardIndex(u32), "s");
number_id!(
    /// Term of one active engine. Everybody refuses messages of a lower term than the highest seen.
    EngineEpoch(u64), "e");
number_id!(
    /// The span between two barriers, from 0. The barrier that ends superstep n makes version n + 1.
    Superstep(u64), "");

/// One generation of one job's parameters; printed as `g1-89abcdef`. The lower half counts from 1: it rises when the
/// parameters are restored, and everything older is refused. The upper half is the nonce that was drawn when the job was
/// submitted: a job that takes the name of an earlier one never meets what that one left behind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl Generation {
    /// The first generation of the job that was submitted with `nonce`.
    pub fn first(nonce: u32) -> Self {
        Self(u64::from(nonce) << 32 | 1)
    }

    /// The generation that begins when the parameters of this one are restored.
    pub fn next(self) -> Self {
        Self(u64::from(self.nonce()) << 32 | u64::from(self.number().saturating_add(1)))
    }

    /// What tells the job from others of the same name.
    pub fn nonce(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Which generation of the parameters this is, from 1.
    pub fn number(self) -> u32 {
        self.0 as u32
    }

    /// Whether this is a later generation of the same job.
    pub fn follows(self, other: Self) -> bool {
        self.nonce() == other.nonce() && self.number() > other.number()
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}-{:08x}", self.number(), self.nonce())
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_of_two_jobs_of_one_name_never_follow_each_other() {
        let (first, other) = (Generation::first(7), Generation::first(9));
        let second = Generation(first.0 + 1);
        assert_eq!((first.number(), second.number(), second.nonce()), (1, 2, 7));
        assert!(second.follows(first) && !first.follows(second) && !first.follows(first));
        assert!(!other.follows(first) && !first.follows(other) && !other.follows(second));
        assert_eq!(second.to_string(), "g2-00000007");
    }

    #[test]
    fn name_accepts_only_what_is_safe_in_a_key_and_a_path() {
        for ok in ["digits", "a", "0", "digits-2026.1_x", &"a".repeat(64)] {
            assert!(ok.parse::<Name>().is_ok(), "{ok}");
        }
        for bad in ["", "-a", ".hidden", "A", "a b", "a{b}", "a:b", "../x", "ä", &"a".repeat(65)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_training_of_a_task_has_a_name_that_no_user_can_give() {
        let sweep: Name = "sweep".parse().unwrap();
        for (attempt, name) in [(1, "sweep~3"), (2, "sweep~3-2")] {
            let made = sweep.of_training(3, attempt);
            assert_eq!((made.as_str(), name.parse()), (name, Ok(made.clone())));
            assert!(made.is_made_by_engine() && !sweep.is_made_by_engine());
        }
        assert!(format!("{}~4294967295-65535", "a".repeat(64)).parse::<Name>().is_ok());
        for bad in ["~3", "a~", "a~b", "a~3-", "a~-3", "a~+3", "a~3~4", "a~3-4-5", "a~4294967296"] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }

    #[test]
    fn numbered_ids_read_what_they_print() {
        assert_eq!("w17".parse::<Incarnation>(), Ok(Incarnation(17)));
        assert_eq!(Incarnation(17).to_string(), "w17");
        assert_eq!("17".parse::<Incarnation>(), Ok(Incarnation(17)));
        assert!("s17x".parse::<ShardIndex>().is_err());
    }
}
