//! Where the shards are, which may change while a worker trains.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Addresses of all shards, in order. Clones share them: whoever hears that a shard has moved says it here, and a
/// connection that breaks is opened again where the shard is by then.
#[derive(Debug, Clone, Default)]
pub struct Addresses(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    addresses: Vec<String>,
    /// Shards that a caller has lost and not reached again, with the address that was tried last.
    away: BTreeMap<usize, String>,
}

impl Addresses {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As they are known now.
    pub fn get(&self) -> Vec<String> {
        self.lock().addresses.clone()
    }

    /// Takes note of where the shards are.
    pub fn set(&self, addresses: Vec<String>) {
        self.lock().addresses = addresses;
    }

    /// A shard that a caller tries to reach in vain, in words.
    pub fn away(&self) -> Option<String> {
        let book = self.lock();
        let (index, address) = book.away.first_key_value()?;
        Some(format!("shard s{index}, which does not answer at {address}"))
    }

    /// The address of one shard, if there is such a one.
    pub(super) fn of(&self, index: usize) -> Option<String> {
        self.lock().addresses.get(index).cloned()
    }

    /// Whoever begins afresh has lost nobody yet.
    pub(super) fn forget_lost(&self) {
        self.lock().away.clear();
    }

    pub(super) fn lost(&self, index: usize, address: &str) {
        self.lock().away.insert(index, address.to_owned());
    }

    pub(super) fn reached(&self, index: usize) {
        self.lock().away.remove(&index);
    }
}

impl From<&[String]> for Addresses {
    fn from(addresses: &[String]) -> Self {
        let book = Book { addresses: addresses.to_vec(), away: BTreeMap::new() };
        Self(Arc::new(Mutex::new(book)))
    }
}
