//! How a person calls a task: by its number or by its name.

use std::{fmt, str::FromStr};

use syncline_scheduler::{
    ids::{InvalidName, NodeName},
    tasks::TaskIndex,
};

/// How a person calls a task.
#[derive(Debug, Clone)]
pub(crate) enum TaskName {
    Number(TaskIndex),
    Name(NodeName),
}

impl FromStr for TaskName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        match text.parse() {
            Ok(number) => Ok(Self::Number(TaskIndex(number))),
            Err(_) => text.parse().map(Self::Name),
        }
    }
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}
