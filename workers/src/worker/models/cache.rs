//! Which models a worker keeps: those that were used last.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, OnceLock, TryLockError},
    thread,
    time::{Duration, Instant},
};

use syncline_rpc::threads::lock;
use syncline_scheduler::{ids::ContentDigest, tasks::Bytes};

use crate::functions::OnnxModel;

/// Most models that are kept.
const MAX_MODELS: usize = 32;
/// Most bytes of their files, and of what is loaded of them and not in use: each about as many as its file.
/// The model that was used last is kept whatever its size, loaded once.
const MAX_BYTES: usize = 1 << 30;

/// How often a waiter for a fetch checks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// The models that were used last, each with its file and what was loaded of it. `L` is a loaded model.
pub(super) struct ModelCache<L> {
    /// The one that was used last is the last.
    entries: Mutex<VecDeque<Arc<CacheEntry<L>>>>,
    max_bytes: usize,
}

/// What is kept of one model.
pub(super) struct CacheEntry<L> {
    model: OnnxModel,
    file: OnceLock<Bytes>,
    /// Held while the file is fetched, so that it is once for all who want it.
    fetching: Mutex<()>,
    /// Loaded, and not in use, since when; the one that was given back last is the last.
    idle: Mutex<Vec<(Instant, L)>>,
}

impl<L> Default for ModelCache<L> {
    fn default() -> Self {
        Self { entries: Mutex::default(), max_bytes: MAX_BYTES }
    }
}

impl<L> ModelCache<L> {
    /// The entry of a model, which is the one used last from now on.
    pub(super) fn entry(&self, model: &OnnxModel) -> Arc<CacheEntry<L>> {
        let mut entries = lock(&self.entries);
        let known = entries.iter().position(|entry| entry.model == *model).and_then(|at| entries.remove(at));
        let entry = known.unwrap_or_else(|| Arc::new(CacheEntry::new(*model)));
        entries.push_back(entry.clone());
        self.trim(&mut entries);
        entry
    }

    /// The model's file, fetched if it is not here. Whoever waits for another one's fetching asks `go_on` now
    /// and then.
    pub(super) fn file<E>(
        &self,
        entry: &CacheEntry<L>,
        go_on: impl Fn() -> Result<(), E>,
        fetch: impl FnOnce(ContentDigest) -> Result<Vec<u8>, E>,
    ) -> Result<Bytes, E> {
        let _fetching = loop {
            match entry.fetching.try_lock() {
                Ok(fetching) => break fetching,
                Err(TryLockError::Poisoned(fetching)) => break fetching.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    go_on()?;
                    thread::sleep(LOOK);
                }
            }
        };
        if let Some(file) = entry.file.get() {
            return Ok(file.clone());
        }
        let file = Bytes::from(fetch(entry.model.digest())?);
        let file = entry.file.get_or_init(|| file).clone();
        self.trim(&mut lock(&self.entries));
        Ok(file)
    }

    /// Keeps what was loaded of a model for the next who wants it, if there is room for one more.
    pub(super) fn give_back(&self, entry: &CacheEntry<L>, loaded: L) {
        let mut idle = lock(&entry.idle);
        if !idle.is_empty() && entry.file_bytes() * (idle.len() + 2) > self.max_bytes {
            return;
        }
        idle.push((Instant::now(), loaded));
        drop(idle);
        self.trim(&mut lock(&self.entries));
    }

    /// Lets go of what was loaded and given back before then: its memory for values may be far more than its
    /// file. The files stay.
    pub(super) fn let_go_of_idle(&self, given_back_before: Instant) {
        let entries: Vec<_> = lock(&self.entries).iter().cloned().collect();
        for entry in entries {
            lock(&entry.idle).retain(|(since, _)| *since >= given_back_before);
        }
    }

    /// Lets go of those that were used longest ago; who uses one still has it.
    fn trim(&self, entries: &mut VecDeque<Arc<CacheEntry<L>>>) {
        let bytes =
            |entries: &VecDeque<Arc<CacheEntry<L>>>| entries.iter().map(|entry| entry.bytes()).sum::<usize>();
        while entries.len() > MAX_MODELS || entries.len() > 1 && bytes(entries) > self.max_bytes {
            entries.pop_front();
        }
    }
}

impl<L> CacheEntry<L> {
    fn new(model: OnnxModel) -> Self {
        Self { model, file: OnceLock::new(), fetching: Mutex::default(), idle: Mutex::default() }
    }

    /// One that is loaded and that nobody uses.
    pub(super) fn take(&self) -> Option<L> {
        lock(&self.idle).pop().map(|(_, loaded)| loaded)
    }

    fn file_bytes(&self) -> usize {
        self.file.get().map_or(0, |file| file.len())
    }

    /// What it takes up, about.
    fn bytes(&self) -> usize {
        self.file_bytes() * (1 + lock(&self.idle).len())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        thread,
    };

    use super::*;

    fn model(name: u8) -> OnnxModel {
        OnnxModel::new(ContentDigest::from_bytes([name; 32]))
    }

    /// What is loaded is told by a number; every file has ten bytes.
    fn kept() -> ModelCache<u32> {
        ModelCache { max_bytes: 30, ..ModelCache::default() }
    }

    /// Whether the file had to be fetched.
    fn fetches(kept: &ModelCache<u32>, name: u8) -> bool {
        let mut fetched = false;
        let entry = kept.entry(&model(name));
        let fetch = |digest| {
            assert_eq!(digest, model(name).digest());
            fetched = true;
            Ok::<_, ()>(vec![name; 10])
        };
        assert_eq!(kept.file(&entry, || Ok(()), fetch).unwrap()[..], [name; 10]);
        fetched
    }

    #[test]
    fn the_models_that_were_used_last_stay() {
        let kept = kept();
        assert_eq!([1, 2, 3, 1, 4].map(|name| fetches(&kept, name)), [true, true, true, false, true]);
        assert_eq!([1, 3, 4, 2].map(|name| fetches(&kept, name)), [false, false, false, true]);
        let large = kept.entry(&model(9));
        kept.file(&large, || Ok(()), |_| Ok::<_, ()>(vec![0; 31])).unwrap();
        assert_eq!(lock(&kept.entries).len(), 1, "the newest stays, whatever its size");
    }

    #[test]
    fn many_small_models_are_too_many() {
        let kept = ModelCache::<u32>::default();
        for name in 0..=MAX_MODELS as u8 {
            kept.give_back(&kept.entry(&model(name)), u32::from(name));
        }
        assert_eq!(kept.entry(&model(1)).take(), Some(1));
        assert_eq!(kept.entry(&model(0)).take(), None);
    }

    #[test]
    fn a_model_that_many_ran_at_a_time_stays_loaded_as_often_as_there_is_room() {
        let kept = ModelCache { max_bytes: 60, ..ModelCache::default() };
        let ran_by = |name, many: u32| {
            fetches(&kept, name);
            let entry = kept.entry(&model(name));
            (0..many).for_each(|loaded| kept.give_back(&entry, loaded));
            lock(&entry.idle).len()
        };
        assert_eq!(ran_by(1, 2), 2);
        assert_eq!(ran_by(2, 16), 5, "the file, and what was loaded of it");
        assert_eq!(lock(&kept.entries).len(), 1, "there is no room for another one");
        let small = ModelCache { max_bytes: 5, ..ModelCache::default() };
        fetches(&small, 1);
        let entry = small.entry(&model(1));
        (0..2).for_each(|loaded| small.give_back(&entry, loaded));
        assert_eq!(entry.take(), Some(0), "the newest stays, whatever its size");
        assert_eq!(entry.take(), None);
    }

    #[test]
    fn what_is_loaded_serves_one_at_a_time() {
        let kept = kept();
        let entry = kept.entry(&model(1));
        assert_eq!(entry.take(), None);
        kept.give_back(&entry, 7);
        assert_eq!((kept.entry(&model(1)).take(), entry.take()), (Some(7), None));
    }

    #[test]
    fn what_nobody_has_used_for_long_is_let_go_and_its_file_stays() {
        let kept = kept();
        fetches(&kept, 1);
        let entry = kept.entry(&model(1));
        kept.give_back(&entry, 7);
        let later = Instant::now() + Duration::from_secs(1);
        kept.let_go_of_idle(later.checked_sub(Duration::from_secs(60)).unwrap());
        assert_eq!(entry.take(), Some(7));
        kept.give_back(&entry, 7);
        kept.let_go_of_idle(later);
        assert_eq!((entry.take(), fetches(&kept, 1)), (None, false));
    }

    #[test]
    fn who_waits_for_the_fetching_of_another_can_be_stopped() {
        let kept = kept();
        let entry = kept.entry(&model(1));
        let fetch = |_: ContentDigest| {
            let stopped = kept.file(&entry, || Err("stopped"), |_| Ok(vec![2]));
            assert_eq!(stopped, Err("stopped"));
            Ok::<_, &str>(vec![1])
        };
        assert_eq!(kept.file(&entry, || Ok(()), fetch).unwrap()[..], [1]);
    }

    #[test]
    fn a_file_is_fetched_once_for_all_who_want_it_and_again_after_it_failed() {
        let (kept, fetched) = (kept(), AtomicU32::new(0));
        let entry = kept.entry(&model(1));
        assert!(kept.file(&entry, || Ok(()), |_| Err(())).is_err());
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let fetch = |_: ContentDigest| {
                        fetched.fetch_add(1, Ordering::SeqCst);
                        thread::yield_now();
                        Ok::<_, ()>(vec![1])
                    };
                    kept.file(&kept.entry(&model(1)), || Ok(()), fetch).unwrap();
                });
            }
        });
        assert_eq!(fetched.into_inner(), 1);
    }
}
