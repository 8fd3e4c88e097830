//! The engine: Redis store, leases, tarpc services.
//!
//! By default this is only what those need that talk to an engine, without Redis: connections and messages ([`rpc`]), and
//! what they say of jobs and workers as types ([`status`]). Feature `server` adds [`store`] and [`service`].

pub mod folder;
pub mod input;
pub mod rpc;
#[cfg(feature = "server")]
pub mod service;
pub mod status;
#[cfg(feature = "server")]
pub mod store;
