//! Ending blocked calls from another thread.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use crate::{PsError, wire::Tcp};

/// Ends the calls of one [`Shards`](super::Shards), now and for good.
#[derive(Debug, Clone, Default)]
pub struct Canceller(Arc<State>);

#[derive(Debug, Default)]
struct State {
    canceled: AtomicBool,
    /// One place per shard; a connection that is replaced leaves it.
    sockets: Mutex<Vec<Option<Tcp>>>,
}

impl Canceller {
    /// Shuts every connection down. Calls that block, and all later ones, fail with [`PsError::Canceled`].
    pub fn cancel(&self) {
        self.0.canceled.store(true, Ordering::SeqCst);
        for socket in self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner).iter().flatten() {
            socket.shut_down();
        }
    }

    /// Whether somebody has canceled.
    pub fn is_canceled(&self) -> bool {
        self.0.canceled.load(Ordering::SeqCst)
    }

    pub(crate) fn check(&self) -> Result<(), PsError> {
        if self.is_canceled() { Err(PsError::Canceled) } else { Ok(()) }
    }

    /// Puts the connection of shard `index` within reach; one that comes too late is shut down at once.
    pub(crate) fn watch(&self, index: usize, socket: Option<&Tcp>) {
        let mut sockets = self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        if sockets.len() <= index {
            sockets.resize(index + 1, None);
        }
        sockets[index] = socket.cloned();
        if let (true, Some(socket)) = (self.is_canceled(), socket) {
            socket.shut_down();
        }
    }
}
