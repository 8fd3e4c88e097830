//! What the parameter server promises, over unix sockets.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod contract;

/// How workers of these tests are connected.
const TRANSPORT: syncline_ps::transport::Transport = syncline_ps::transport::Transport::Unix;
