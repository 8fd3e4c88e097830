//! What the parameter server promises, over each of its transports. One program, so that all of it runs
//! beside each other and is linked once.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]
#![allow(clippy::duplicate_mod, reason = "the same promises, over each transport")]

mod hostile_bytes;
mod transports;
#[path = "../../tests/waiting/threads.rs"]
mod waiting;

#[path = "."]
mod tcp {
    /// How workers of these tests are connected.
    const TRANSPORT: syncline_ps::transport::Transport = syncline_ps::transport::Transport::Tcp;
    /// Whether shards lend them parameters.
    const IN_PLACE: bool = false;
    /// How their gradients travel.
    const CODEC: syncline_ps::codec::Codec = syncline_ps::codec::Codec::Plain;

    #[path = "contract/mod.rs"]
    mod contract;
}

#[path = "."]
mod unix {
    /// How workers of these tests are connected.
    const TRANSPORT: syncline_ps::transport::Transport = syncline_ps::transport::Transport::Unix;
    /// Whether shards lend them parameters.
    const IN_PLACE: bool = false;
    /// How their gradients travel.
    const CODEC: syncline_ps::codec::Codec = syncline_ps::codec::Codec::Plain;

    #[path = "contract/mod.rs"]
    mod contract;
}

#[path = "."]
mod shm {
    /// How workers of these tests are connected.
    const TRANSPORT: syncline_ps::transport::Transport = syncline_ps::transport::Transport::Shm;
    /// Whether shards lend them parameters.
    const IN_PLACE: bool = false;
    /// How their gradients travel.
    const CODEC: syncline_ps::codec::Codec = syncline_ps::codec::Codec::Plain;

    #[path = "contract/mod.rs"]
    mod contract;
}

#[path = "."]
mod lent {
    /// How workers of these tests are connected.
    const TRANSPORT: syncline_ps::transport::Transport = syncline_ps::transport::Transport::Shm;
    /// Whether shards lend them parameters.
    const IN_PLACE: bool = true;
    /// How their gradients travel.
    const CODEC: syncline_ps::codec::Codec = syncline_ps::codec::Codec::Plain;

    #[path = "contract/mod.rs"]
    mod contract;
}

#[path = "."]
mod compressed {
    /// How workers of these tests are connected.
    const TRANSPORT: syncline_ps::transport::Transport = syncline_ps::transport::Transport::Tcp;
    /// Whether shards lend them parameters.
    const IN_PLACE: bool = false;
    /// How their gradients travel.
    const CODEC: syncline_ps::codec::Codec = syncline_ps::codec::Codec::Bf16;

    #[path = "contract/mod.rs"]
    mod contract;
}
