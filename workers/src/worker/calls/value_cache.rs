//! Large values that were fetched or made here, kept for the next task that takes them.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

use syncline_ps::{PsError, client::CancelToken};
use syncline_rpc::threads::lock;
use syncline_scheduler::tasks::{BlobValue, Bytes};

use crate::functions::{Salt, ValueStore};

/// Values are kept up to this sum of their sizes; the newest is kept whatever its size.
const MAX_BYTES: u64 = 64 << 20;
/// How often a waiter for a fetch checks that its value is still wanted.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A store in front of which the values that were used last are kept. Threads that want the same value fetch
/// it once.
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
    value: Arc<Slot>,
}

#[derive(Default)]
struct Slot {
    state: Mutex<SlotState>,
    /// It was fetched, or was not to be had.
    changed: Condvar,
}

#[derive(Default)]
enum SlotState {
    #[default]
    Empty,
    /// By one for all who want it.
    Fetching,
    Here(Bytes),
}

impl Slot {
    fn set(&self, state: SlotState) {
        *lock(&self.state) = state;
        self.changed.notify_all();
    }

    /// The value if it is here, or comes while another one fetches it; `None`: the caller is to fetch it.
    fn wait(&self, cancel_token: &CancelToken) -> Result<Option<Bytes>, PsError> {
        let mut state = lock(&self.state);
        loop {
            match &*state {
                SlotState::Here(value) => return Ok(Some(value.clone())),
                SlotState::Empty => break,
                SlotState::Fetching => cancel_token.check()?,
            }
            let woken = self.changed.wait_timeout(state, CANCEL_POLL_INTERVAL);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        *state = SlotState::Fetching;
        Ok(None)
    }
}

impl ValueCache {
    pub(super) fn new(store: Box<dyn ValueStore>) -> Self {
        Self { store, kept: Mutex::default() }
    }
}

impl ValueStore for ValueCache {
    fn put(
        &self,
        salt: Salt,
        value: &[u8],
        cancel_token: &CancelToken,
        told: &dyn Fn(&str),
    ) -> Result<BlobValue, PsError> {
        let blob = self.store.put(salt, value, cancel_token, told)?;
        // A task that comes next often takes what was made here. One that is very large is there twice for
        // now, and not kept.
        if blob.bytes <= MAX_BYTES {
            let entry = lock(&self.kept).entry(&blob);
            entry.value.set(SlotState::Here(value.into()));
        }
        Ok(blob)
    }

    fn get(&self, blob: &BlobValue, cancel_token: &CancelToken) -> Result<Bytes, PsError> {
        let entry = lock(&self.kept).entry(blob);
        if let Some(value) = entry.value.wait(cancel_token)? {
            return Ok(value);
        }
        match self.store.get(blob, cancel_token) {
            Ok(fetched) => {
                entry.value.set(SlotState::Here(fetched.clone()));
                Ok(fetched)
            }
            Err(error) => {
                entry.value.set(SlotState::Empty);
                lock(&self.kept).remove_empty(blob);
                Err(error)
            }
        }
    }
}

impl LruEntries {
    /// Forgets a value that could not be fetched: it takes no room from others. One that is here, or is being
    /// fetched, stays.
    fn remove_empty(&mut self, blob: &BlobValue) {
        let is_empty =
            |entry: &Entry| entry.blob == *blob && matches!(*lock(&entry.value.state), SlotState::Empty);
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
        sync::{
            atomic::{AtomicU32, Ordering},
            mpsc,
        },
        thread,
    };
    use syncline_scheduler::ids::ContentDigest;

    use super::*;

    /// A digest that says what the value is.
    fn named(value: &[u8]) -> ContentDigest {
        let mut bytes = [0; ContentDigest::BYTES];
        bytes[..value.len()].copy_from_slice(value);
        ContentDigest::from_bytes(bytes)
    }

    fn name_of(digest: ContentDigest) -> Vec<u8> {
        digest.as_bytes().iter().copied().take_while(|byte| *byte != 0).collect()
    }

    /// Counts how often values are fetched; the first time in vain.
    #[derive(Clone, Default)]
    struct Counting(Arc<AtomicU32>);

    impl ValueStore for Counting {
        fn put(
            &self,
            _: Salt,
            value: &[u8],
            _: &CancelToken,
            _: &dyn Fn(&str),
        ) -> Result<BlobValue, PsError> {
            let digest = named(value);
            Ok(BlobValue { digest, bytes: value.len() as u64 })
        }

        fn get(&self, blob: &BlobValue, _: &CancelToken) -> Result<Bytes, PsError> {
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 => Err(PsError::Canceled),
                _ => Ok(name_of(blob.digest).into()),
            }
        }
    }

    fn nobody() -> CancelToken {
        CancelToken::default()
    }

    /// Says that it was asked, and gives the value when it is let to.
    struct Slow(mpsc::Sender<()>, Mutex<mpsc::Receiver<()>>);

    impl ValueStore for Slow {
        fn put(&self, _: Salt, _: &[u8], _: &CancelToken, _: &dyn Fn(&str)) -> Result<BlobValue, PsError> {
            panic!("nothing is stored here")
        }

        fn get(&self, blob: &BlobValue, _: &CancelToken) -> Result<Bytes, PsError> {
            self.0.send(()).unwrap();
            lock(&self.1).recv().unwrap();
            Ok(name_of(blob.digest).into())
        }
    }

    #[test]
    fn who_waits_for_what_another_one_fetches_is_let_go_when_it_is_canceled() {
        let ((begin, begun), (go, gone)) = (mpsc::channel(), mpsc::channel());
        let cache = ValueCache::new(Box::new(Slow(begin, Mutex::new(gone))));
        let blob = BlobValue { digest: named(b"slow"), bytes: 4 };
        thread::scope(|threads| {
            let fetches = threads.spawn(|| cache.get(&blob, &nobody()));
            begun.recv().unwrap();
            let canceled = nobody();
            canceled.cancel();
            assert!(matches!(cache.get(&blob, &canceled), Err(PsError::Canceled)));
            go.send(()).unwrap();
            assert_eq!(&fetches.join().unwrap().unwrap()[..], b"slow");
        });
        assert_eq!(&cache.get(&blob, &nobody()).unwrap()[..], b"slow", "it is kept");
    }

    #[test]
    fn what_is_made_here_is_not_fetched_and_what_cannot_be_takes_no_room() {
        let store = Counting::default();
        let cache = ValueCache::new(Box::new(store.clone()));
        let blob = cache.put(Salt::default(), b"made", &nobody(), &|_| {}).unwrap();
        assert_eq!(&cache.get(&blob, &nobody()).unwrap()[..], b"made");
        assert_eq!(store.0.load(Ordering::SeqCst), 0);
        let missing = BlobValue { digest: named(b"missing"), bytes: MAX_BYTES };
        assert!(cache.get(&missing, &nobody()).is_err());
        assert_eq!(lock(&cache.kept).bytes, 0, "it has made room for it");
        cache.put(Salt::default(), b"made", &nobody(), &|_| {}).unwrap();
        cache.get(&blob, &nobody()).unwrap();
        assert_eq!(store.0.load(Ordering::SeqCst), 1);
        assert_eq!(lock(&cache.kept).bytes, 4);
    }

    #[test]
    fn a_value_is_fetched_once_as_long_as_there_is_room() {
        let store = Counting::default();
        let cache = ValueCache::new(Box::new(store.clone()));
        let blob = |name: &str, bytes| BlobValue { digest: named(name.as_bytes()), bytes };
        let fetched = |name, bytes| {
            let before = store.0.load(Ordering::SeqCst);
            assert_eq!(&cache.get(&blob(name, bytes), &nobody()).unwrap()[..], name.as_bytes());
            store.0.load(Ordering::SeqCst) - before
        };
        assert!(cache.get(&blob("a", MAX_BYTES / 2), &nobody()).is_err(), "what fails is tried again");
        thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| cache.get(&blob("a", MAX_BYTES / 2), &nobody()).unwrap());
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
