//! Processes of shards that talk to each other within a test.

use std::sync::{Arc, atomic::Ordering};

use syncline_rpc::{BarrierOrder, ReplicaRole, ShardOrders, ShardPeer};
use syncline_scheduler::{
    ids::{EngineEpoch, Incarnation, Superstep},
    sync::RoundRule,
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::{Shared, listen, role_change};
use crate::transport::Transport;

pub(super) const EPOCH: EngineEpoch = EngineEpoch(1);

/// Tells a process what an engine would.
pub(super) fn follow_orders(shared: &Arc<Shared>, role: ReplicaRole, peer: Option<ShardPeer>) {
    role_change::follow_orders(shared, &ShardOrders { epoch: EPOCH, role, peer, lead_expired: false });
}

/// A round of one push, the first one of this worker.
pub(super) fn round_of(worker: Incarnation) -> BarrierOrder {
    BarrierOrder {
        superstep: Superstep(0),
        revision: 0,
        roster: [(worker, 1)].into(),
        rule: RoundRule::Optimizer,
        learning_rate: 1.0,
        pin: false,
    }
}

/// Two processes of one cluster. The second one has its own thread and port.
pub(super) struct Two {
    pub first: Arc<Shared>,
    pub second: Arc<Shared>,
    /// Where the second one listens.
    pub address: String,
    _control: Runtime,
    _dirs: [TempDir; 2],
}

impl Two {
    /// `change` says what the second one is before anybody reaches it.
    pub(super) fn new(change: impl FnOnce(&mut Shared)) -> Self {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [mut first, mut second] = dirs.each_ref().map(|dir| Shared::for_test(dir.path()));
        Arc::get_mut(&mut first).unwrap().token = second.token.clone();
        change(Arc::get_mut(&mut second).unwrap());
        let control = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (listener, address) = listen::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let handle = control.handle().clone();
        listen::spawn(Arc::new(listener), Transport::Tcp, second.clone(), handle).unwrap();
        Self { first, second, address: address.to_string(), _control: control, _dirs: dirs }
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        for shared in [&self.first, &self.second] {
            shared.stopping.store(true, Ordering::SeqCst);
            shared.connections.shut_down();
        }
    }
}
