//! Addresses of the shards, which may change while a worker trains.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::transport::Socket;

/// Addresses of all shards, in order. Clones share them: when a shard has moved, the new address is set here, and a
/// connection that breaks is opened again at that address.
#[derive(Debug, Clone, Default)]
pub struct Addresses(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    addresses: Vec<String>,
    /// Open connections, with the address that they lead to.
    connections: BTreeMap<usize, (String, Socket)>,
    /// Shards that a caller has lost and not reached again, with the address that was tried last.
    unreachable: BTreeMap<usize, String>,
}

impl Addresses {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As they are known now.
    pub fn get(&self) -> Vec<String> {
        self.lock().addresses.clone()
    }

    /// Replaces the addresses. A connection to a shard that is elsewhere now is cut: who is still there may keep a caller
    /// waiting for ever.
    pub fn set(&self, addresses: Vec<String>) {
        let mut known = self.lock();
        known.connections.retain(|index, (address, socket)| {
            let stays = addresses.get(*index).is_none_or(|now| now == address);
            if !stays {
                socket.shut_down();
            }
            stays
        });
        known.addresses = addresses;
    }

    /// A connection to a shard was opened, or there is none any more.
    pub(super) fn register(&self, index: usize, connection: Option<(&str, &Socket)>) {
        let mut known = self.lock();
        match connection {
            Some((address, socket)) => {
                known.connections.insert(index, (address.to_owned(), socket.clone()));
                known.unreachable.remove(&index);
            }
            None => drop(known.connections.remove(&index)),
        }
    }

    /// A shard that a caller tries to reach in vain, in words.
    pub fn unreachable(&self) -> Option<String> {
        let known = self.lock();
        let (index, address) = known.unreachable.first_key_value()?;
        Some(format!("shard s{index}, which does not answer at {address}"))
    }

    /// The address of one shard, if there is such a one.
    pub(super) fn of(&self, index: usize) -> Option<String> {
        self.lock().addresses.get(index).cloned()
    }

    /// A new client has lost no shard yet.
    pub(super) fn clear_unreachable(&self) {
        self.lock().unreachable.clear();
    }

    pub(super) fn mark_unreachable(&self, index: usize, address: &str) {
        self.lock().unreachable.insert(index, address.to_owned());
    }
}

impl From<&[String]> for Addresses {
    fn from(addresses: &[String]) -> Self {
        let known = Known { addresses: addresses.to_vec(), ..Known::default() };
        Self(Arc::new(Mutex::new(known)))
    }
}
