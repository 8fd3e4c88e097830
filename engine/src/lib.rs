//! The engine: Redis store, leases, tarpc services, client library, command line.
//!
//! By default this is the client only, without Redis. Feature `server` adds [`store`] and [`service`], feature `cli`
//! adds [`cli`], the subcommands of `syncline` that need no tensors.

#[cfg(feature = "cli")]
pub mod cli;
pub mod client;
pub mod folder;
pub mod input;
pub mod rpc;
#[cfg(feature = "server")]
pub mod service;
#[cfg(feature = "server")]
pub mod store;
