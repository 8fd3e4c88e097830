//! What the parameter server promises, over each of its transports. One program, so that all of it runs beside each other
//! and is linked once.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]
#![allow(clippy::duplicate_mod, reason = "the same promises, over each transport")]

mod transports;

#[path = "."]
mod tcp {
    /// How workers of these tests are connected.
    const TRANSPORT: syncline_ps::transport::Transport = syncline_ps::transport::Transport::Tcp;

    #[path = "contract/mod.rs"]
    mod contract;
}

#[path = "."]
mod unix {
    /// How workers of these tests are connected.
    const TRANSPORT: syncline_ps::transport::Transport = syncline_ps::transport::Transport::Unix;

    #[path = "contract/mod.rs"]
    mod contract;
}

#[path = "."]
mod shm {
    /// How workers of these tests are connected.
    const TRANSPORT: syncline_ps::transport::Transport = syncline_ps::transport::Transport::Shm;

    #[path = "contract/mod.rs"]
    mod contract;
}
