//! A standby, and the process that serves, within a test.

use std::sync::{Arc, atomic::Ordering};

use syncline_rpc::ReplicaRole;
use tempfile::TempDir;

use crate::{
    server::{self, Handle, Options, Shared, rig::follow_orders},
    shard::Term,
};

pub(in crate::server) const TERM: Term = 1;

/// Both of them. Nothing is fetched by itself: the standby was not told where the other one is.
pub(in crate::server) struct Pair {
    /// The standby, under [`TERM`].
    pub shared: Arc<Shared>,
    primary: Handle,
    /// State directories: of the standby, and of the primary.
    pub dirs: [TempDir; 2],
}

impl Pair {
    pub fn new() -> Self {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let shared = Shared::for_test(dirs[0].path());
        follow_orders(&shared, ReplicaRole::Standby { term: TERM }, None);
        let options = Options {
            listen: ([127, 0, 0, 1], 0).into(),
            token: shared.token.clone(),
            state_dir: dirs[1].path().to_owned(),
            index: 0,
            count: 1,
            replicas: 1,
            engine: None,
            advertise: None,
        };
        Self { shared, primary: server::start(options).unwrap(), dirs }
    }

    /// Where the primary listens.
    pub fn primary(&self) -> String {
        self.primary.address().to_string()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
    }
}
