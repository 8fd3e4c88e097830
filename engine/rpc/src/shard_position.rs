//! Which shard of how many.

use std::{fmt, str::FromStr};

/// `INDEX/COUNT`, with the index from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardPosition {
    /// Position of the shard, from 0 and below `count`.
    pub index: u32,
    /// Shards of the whole parameter server.
    pub count: u32,
}

impl fmt::Display for ShardPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

impl FromStr for ShardPosition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parsed {
            Some((index, count)) if index < count => Ok(Self { index, count }),
            _ => Err(format!("`{text}` is not INDEX/COUNT with an index from 0, such as 0/2")),
        }
    }
}
