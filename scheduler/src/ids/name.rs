//! What users call jobs, nodes and functions: a type each, so that a job can never be taken for a node.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize, Serializer};

/// Longest name a user may give a job or a node of its graph, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// Why a text is not a [`Name`], a [`NodeName`] or a [`JobId`].
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

    /// What the user can do about it, where the text does not say all there is.
    pub fn hint(&self) -> Option<String> {
        let is_of_engine = self.0.contains('~');
        is_of_engine.then(|| {
            "names with `~` are given by the engine alone, to trainings of tasks: GRAPH~TASK".to_owned()
        })
    }
}

/// `[a-z0-9][a-z0-9._-]*`, at most 64 bytes: it may stand in a Redis key, a file name and a log line.
fn is_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.len() <= MAX_NAME_BYTES
        && text.bytes().next().is_some_and(plain)
        && text.bytes().all(|b| plain(b) || matches!(b, b'.' | b'_' | b'-'))
}

/// A name, or one with `~` and a task behind it.
fn is_job_name(text: &str) -> bool {
    match text.split_once('~') {
        Some((graph, task)) => is_name(graph) && is_task_and_attempt(task),
        None => is_name(text),
    }
}

/// `3` or `3-2`.
fn is_task_and_attempt(text: &str) -> bool {
    let (task, attempt) = text.split_once('-').unwrap_or((text, "2"));
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    is_number(task) && is_number(attempt) && task.parse::<u32>().is_ok() && attempt.parse::<u16>().is_ok()
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $is_valid:path) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Box<str>);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                text.to_owned().try_into()
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                match $is_valid(&text) {
                    true => Ok(Self(text.into())),
                    false => Err(InvalidName(text.chars().take(80).collect())),
                }
            }
        }

        // Not by way of a `String`: names are in most messages.
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                self.0.serialize(to)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "`{}`", self.0)
            }
        }
    };
}

name!(
    /// What its user calls a function or a file: 1 to 64 of `a-z`, `0-9`, `.`, `_` and `-`, beginning with a letter or digit.
    Name, is_name
);
name!(
    /// A node of a job's graph, named by its user as a [`Name`] is.
    NodeName, is_name
);
name!(
    /// A job, named by its user as a [`Name`] is. The engine alone makes names with one `~` behind that, for jobs that a task of
    /// another job has begun: see [`JobId::of_training`].
    JobId, is_job_name
);

impl JobId {
    /// The job that trains for task `task` of this job, at its attempt `attempt`: `sweep~3`, and `sweep~3-2`
    /// when it is tried again.
    pub fn of_training(&self, task: u32, attempt: u16) -> Self {
        match attempt {
            0 | 1 => Self(format!("{self}~{task}").into()),
            _ => Self(format!("{self}~{task}-{attempt}").into()),
        }
    }

    /// Whether it is a job that trains, or trained, for a task of this graph.
    pub fn is_training_of(&self, graph: &Self) -> bool {
        self.0.split_once('~').is_some_and(|(of, _)| of == graph.as_str())
    }

    /// Whether the engine has made it: users cannot give such names.
    pub fn is_made_by_engine(&self) -> bool {
        self.0.contains('~')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_accepts_only_what_is_safe_in_a_key_and_a_path() {
        for ok in ["digits", "a", "0", "digits-2026.1_x", &"a".repeat(64)] {
            assert!(ok.parse::<Name>().is_ok() && ok.parse::<NodeName>().is_ok(), "{ok}");
            assert!(ok.parse::<JobId>().is_ok(), "{ok}");
        }
        for bad in ["", "-a", ".hidden", "A", "a b", "a{b}", "a:b", "../x", "ä", &"a".repeat(65)] {
            assert!(bad.parse::<Name>().is_err() && bad.parse::<NodeName>().is_err(), "{bad}");
            assert!(bad.parse::<JobId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_training_of_a_task_has_a_name_that_no_user_can_give_and_nothing_but_a_job_has() {
        let sweep: JobId = "sweep".parse().unwrap();
        for (attempt, name) in [(1, "sweep~3"), (2, "sweep~3-2")] {
            let made = sweep.of_training(3, attempt);
            assert_eq!((made.as_str(), name.parse()), (name, Ok(made.clone())));
            assert!(made.is_made_by_engine() && !sweep.is_made_by_engine());
            assert!(made.is_training_of(&sweep) && !sweep.is_training_of(&sweep));
            assert!(!made.is_training_of(&"swee".parse().unwrap()));
            assert!(name.parse::<Name>().is_err() && name.parse::<NodeName>().is_err(), "{name}");
        }
        assert!(format!("{}~4294967295-65535", "a".repeat(64)).parse::<JobId>().is_ok());
        for bad in ["~3", "a~", "a~b", "a~3-", "a~-3", "a~+3", "a~3~4", "a~3-4-5", "a~4294967296"] {
            assert!(bad.parse::<JobId>().is_err(), "{bad}");
        }
    }
}
