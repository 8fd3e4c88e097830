//! Addresses of the shards, which may change while a worker trains.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Addresses of all shards, in order. Clones share them: when a shard has moved, the new address is set here, and a
/// connection that breaks is opened again at that address.
#[derive(Debug, Clone, Default)]
pub struct Addresses(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    addresses: Vec<String>,
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

    /// Replaces the addresses.
    pub fn set(&self, addresses: Vec<String>) {
        self.lock().addresses = addresses;
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

    pub(super) fn mark_reached(&self, index: usize) {
        self.lock().unreachable.remove(&index);
    }
}

impl From<&[String]> for Addresses {
    fn from(addresses: &[String]) -> Self {
        let known = Known { addresses: addresses.to_vec(), unreachable: BTreeMap::new() };
        Self(Arc::new(Mutex::new(known)))
    }
}
