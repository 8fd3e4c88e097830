//! Large values that were fetched or made here, kept for the next task that takes them.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use syncline_ps::PsError;
use syncline_scheduler::tasks::{BlobValue, Bytes};

use crate::{
    functions::{Salt, ValueStore},
    worker::lock::lock,
};

/// Values are kept up to this sum of their sizes; the newest is kept whatever its size.
const MAX_BYTES: u64 = 64 << 20;

/// A store in front of which the values that were used last are kept. Threads that want the same value fetch it once.
pub(super) struct ValueCache {
    store: Box<dyn ValueStore>,
    kept: Mutex<LruEntries>,
}

#[derive(Default)]
struct LruEntries {
    /// The one that was used last is the last.
    entries: VecDeque<Entry>,
    bytes: u64,
}

#[derive(Clone)]
struct Entry {
    blob: BlobValue,
    /// `None` until it is here; locked while it is fetched.
    value: Arc<Mutex<Option<Bytes>>>,
}

impl ValueCache {
    pub(super) fn new(store: Box<dyn ValueStore>) -> Self {
        Self { store, kept: Mutex::default() }
    }
}

impl ValueStore for ValueCache {
    fn put(&self, salt: Salt, value: &[u8]) -> Result<BlobValue, PsError> {
        let blob = self.store.put(salt, value)?;
        // A task that comes next often takes what was made here. One that is very large is there twice for now, and not kept.
        if blob.bytes <= MAX_BYTES {
            let entry = lock(&self.kept).entry(&blob);
            *lock(&entry.value) = Some(value.into());
        }
        Ok(blob)
    }

    fn get(&self, blob: &BlobValue) -> Result<Bytes, PsError> {
        let entry = lock(&self.kept).entry(blob);
        let mut value = lock(&entry.value);
        if let Some(value) = &*value {
            return Ok(value.clone());
        }
        match self.store.get(blob) {
            Ok(fetched) => Ok(value.insert(fetched).clone()),
            Err(error) => {
                drop(value);
                lock(&self.kept).remove_empty(blob);
                Err(error)
            }
        }
    }
}

impl LruEntries {
    /// Forgets a value that could not be fetched: it takes no room from others. One that is here, or is being fetched, stays.
    fn remove_empty(&mut self, blob: &BlobValue) {
        let is_empty =
            |entry: &Entry| entry.blob == *blob && entry.value.try_lock().is_ok_and(|value| value.is_none());
        if let Some(at) = self.entries.iter().position(is_empty)
            && let Some(removed) = self.entries.remove(at)
        {
            self.bytes -= removed.blob.bytes;
        }
    }

    /// The place of a value, which is the newest from now on. Makes room for one that is new.
    fn entry(&mut self, blob: &BlobValue) -> Entry {
        if let Some(at) = self.entries.iter().position(|entry| entry.blob == *blob)
            && let Some(known) = self.entries.remove(at)
        {
            self.entries.push_back(known.clone());
            return known;
        }
        while self.bytes + blob.bytes > MAX_BYTES
            && let Some(oldest) = self.entries.pop_front()
        {
            self.bytes -= oldest.blob.bytes;
        }
        let entry = Entry { blob: blob.clone(), value: Arc::default() };
        self.bytes += blob.bytes;
        self.entries.push_back(entry.clone());
        entry
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        thread,
    };

    use super::*;

    /// Counts how often values are fetched; the first time in vain.
    #[derive(Clone, Default)]
    struct Counting(Arc<AtomicU32>);

    impl ValueStore for Counting {
        fn put(&self, _: Salt, value: &[u8]) -> Result<BlobValue, PsError> {
            let digest = String::from_utf8_lossy(value).into_owned();
            Ok(BlobValue { digest, bytes: value.len() as u64 })
        }

        fn get(&self, blob: &BlobValue) -> Result<Bytes, PsError> {
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 => Err(PsError::Canceled),
                _ => Ok(blob.digest.as_bytes().into()),
            }
        }
    }

    #[test]
    fn what_is_made_here_is_not_fetched_and_what_cannot_be_takes_no_room() {
        let store = Counting::default();
        let cache = ValueCache::new(Box::new(store.clone()));
        let blob = cache.put(Salt::default(), b"made").unwrap();
        assert_eq!(&cache.get(&blob).unwrap()[..], b"made");
        assert_eq!(store.0.load(Ordering::SeqCst), 0);
        let missing = BlobValue { digest: "missing".into(), bytes: MAX_BYTES };
        assert!(cache.get(&missing).is_err());
        assert_eq!(lock(&cache.kept).bytes, 0, "it has made room for it");
        cache.put(Salt::default(), b"made").unwrap();
        cache.get(&blob).unwrap();
        assert_eq!(store.0.load(Ordering::SeqCst), 1);
        assert_eq!(lock(&cache.kept).bytes, 4);
    }

    #[test]
    fn a_value_is_fetched_once_as_long_as_there_is_room() {
        let store = Counting::default();
        let cache = ValueCache::new(Box::new(store.clone()));
        let blob = |name: &str, bytes| BlobValue { digest: name.into(), bytes };
        let fetched = |name, bytes| {
            let before = store.0.load(Ordering::SeqCst);
            assert_eq!(&cache.get(&blob(name, bytes)).unwrap()[..], name.as_bytes());
            store.0.load(Ordering::SeqCst) - before
        };
        assert!(cache.get(&blob("a", MAX_BYTES / 2)).is_err(), "what fails is tried again");
        thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| cache.get(&blob("a", MAX_BYTES / 2)).unwrap());
            }
        });
        assert_eq!(store.0.load(Ordering::SeqCst), 2);
        assert_eq!([fetched("b", MAX_BYTES / 2), fetched("a", MAX_BYTES / 2)], [1, 0]);
        // The one that was used longest ago makes room.
        assert_eq!([fetched("c", 1), fetched("a", MAX_BYTES / 2), fetched("b", MAX_BYTES / 2)], [1, 0, 1]);
        // One that is larger than everything is kept alone.
        assert_eq!([fetched("d", MAX_BYTES + 1), fetched("d", MAX_BYTES + 1), fetched("a", 1)], [1, 0, 1]);
    }
}
