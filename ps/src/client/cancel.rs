//! Ending blocked calls from another thread.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use syncline_rpc::threads::lock;

use crate::{PsError, transport::Socket};

/// Ends the calls of the [`ShardSet`](super::ShardSet), [`BlobClient`](super::BlobClient) and
/// [`ValueClient`](super::ValueClient) that were given it: for good, or those of a while.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<State>);

#[derive(Debug, Default)]
struct State {
    canceled: AtomicBool,
    /// Until [`CancelToken::resume`].
    interrupted: AtomicBool,
    /// By shard, and one for blobs and values.
    sockets: Mutex<BTreeMap<usize, Socket>>,
}

/// Key of the connection for a blob or a value.
const BLOB_SOCKET: usize = usize::MAX;

impl CancelToken {
    /// Shuts every connection down. Calls that block, and all later ones, fail with [`PsError::Canceled`].
    pub fn cancel(&self) {
        self.0.canceled.store(true, Ordering::SeqCst);
        self.sockets().values().for_each(Socket::shut_down);
    }

    /// The same for the calls until [`resume`](Self::resume); later ones connect anew.
    pub fn interrupt(&self) {
        self.0.interrupted.store(true, Ordering::SeqCst);
        self.sockets().values().for_each(Socket::shut_down);
    }

    /// Ends an interruption. Nobody may be in a call.
    pub fn resume(&self) {
        self.0.interrupted.store(false, Ordering::SeqCst);
    }

    /// Whether somebody has canceled, or interrupted.
    pub fn is_canceled(&self) -> bool {
        self.0.canceled.load(Ordering::SeqCst) || self.0.interrupted.load(Ordering::SeqCst)
    }

    /// An error if somebody has.
    pub fn check(&self) -> Result<(), PsError> {
        if self.is_canceled() { Err(PsError::Canceled) } else { Ok(()) }
    }

    /// Registers the connection of shard `index`, to be shut down by a cancel; after one it is shut down at
    /// once.
    pub(crate) fn register(&self, index: usize, socket: Option<&Socket>) {
        let mut sockets = self.sockets();
        match socket {
            Some(socket) => sockets.insert(index, socket.clone()),
            None => sockets.remove(&index),
        };
        if let (true, Some(socket)) = (self.is_canceled(), socket) {
            socket.shut_down();
        }
    }

    /// Registers the connection for a blob or a value, of which there is one at a time, until
    /// [`let_go`](Self::let_go).
    pub(super) fn hold(&self, socket: &Socket) {
        self.register(BLOB_SOCKET, Some(socket));
    }

    /// Leaves that connection to others.
    pub(super) fn let_go(&self) {
        self.register(BLOB_SOCKET, None);
    }

    /// Forgets the connection of shard `index`, unless another one has its place.
    pub(crate) fn forget(&self, index: usize, socket: &Socket) {
        let mut sockets = self.sockets();
        if sockets.get(&index).is_some_and(|known| known.is(socket)) {
            sockets.remove(&index);
        }
    }

    fn sockets(&self) -> MutexGuard<'_, BTreeMap<usize, Socket>> {
        lock(&self.0.sockets)
    }
}

/// Cancels when it is dropped: an async caller that goes away leaves no thread behind in a call.
#[derive(Debug, Default)]
pub struct CancelOnDrop(CancelToken);

impl CancelOnDrop {
    /// What it cancels.
    pub fn token(&self) -> CancelToken {
        self.0.clone()
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn what_is_dropped_cancels() {
        let on_drop = CancelOnDrop::default();
        let token = on_drop.token();
        assert!(!token.is_canceled());
        drop(on_drop);
        assert!(token.is_canceled());
    }

    #[test]
    fn a_connection_that_is_forgotten_is_closed_and_its_successor_stays() {
        let (token, mut bytes) = (CancelToken::default(), Vec::new());
        let ((old, _), (new, mut peer)) = (Socket::with_peer(), Socket::with_peer());
        token.register(0, Some(&old));
        token.register(0, Some(&new));
        token.forget(0, &old);
        assert_eq!(token.sockets().len(), 1);
        token.forget(0, &new);
        drop(new);
        assert_eq!(peer.read_to_end(&mut bytes).unwrap(), 0);
    }
}
