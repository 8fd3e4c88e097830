//! The room that remembers and talks: Redis store, leases, tarpc services, client, native parts.

pub mod client;
pub mod kit;
pub mod rpc;
pub mod service;
pub mod store;
