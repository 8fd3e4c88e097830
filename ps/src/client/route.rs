//! How a shard is reached: what the speed of a connection depends on.

use super::Link;
use crate::transport::{Transport, host_of};

/// The port is no part of it: a process that was started again beside the one before is as far away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    host: String,
    transport: Transport,
}

impl Route {
    pub(super) fn of(address: &str, link: &Link) -> Self {
        Self { host: host_of(address).to_owned(), transport: link.transport() }
    }
}
