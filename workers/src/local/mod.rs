//! A whole cluster inside one process, for a quick start and for users' own tests.
//!
//! Only the processes are folded into threads: Redis is a real server, and everything still travels over
//! tarpc and tensor connections, as between processes of one machine.

mod cluster;
mod error;
mod options;
mod saving;
mod worker;

pub use cluster::LocalCluster;
pub use error::LocalError;
pub use options::LocalOptions;
