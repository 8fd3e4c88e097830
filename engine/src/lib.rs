//! The engine: Redis store, leases, tarpc services, client library.
//!
//! By default this is the client only, without Redis. Feature `server` adds [`store`] and [`service`].

pub mod client;
pub mod folder;
pub mod input;
pub mod rpc;
#[cfg(feature = "server")]
pub mod service;
#[cfg(feature = "server")]
pub mod store;
