//! The callers of one listener whose greeting is still to come: so few at a time that strangers who say nothing cannot use up
//! the file descriptors of everybody else.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, sleep},
};

/// As many at the same time, as at a shard.
const MAX_GREETING: usize = 64;
/// How long a greeting is left alone. It is enough over any link, and when a thousand workers come back at once they are let in one
/// after another instead of driving each other out.
const UNDISTURBED: Duration = Duration::from_millis(250);

/// All callers that have not greeted.
#[derive(Default)]
pub(super) struct Greeters {
    waiting: Mutex<Waiting>,
    /// One of them has left.
    left: Notify,
}

#[derive(Default)]
struct Waiting {
    /// Number of the next caller.
    next: u64,
    /// By number and so by age. Who is dropped here is told so.
    callers: BTreeMap<u64, (Instant, oneshot::Sender<()>)>,
}

/// The place of one caller, free again when it is dropped.
pub(super) struct Place {
    greeters: Arc<Greeters>,
    number: u64,
    driven_out: oneshot::Receiver<()>,
}

impl Greeters {
    /// A place for one more caller. Where all are taken, the oldest greeting ends, once it has had its time. Called by the one task that
    /// accepts.
    pub(super) async fn enter(self: &Arc<Self>) -> Place {
        while let Some(wait) = self.make_room() {
            tokio::select! {
                () = self.left.notified() => {}
                () = sleep(wait) => {}
            }
        }
        let (oust, driven_out) = oneshot::channel();
        let mut waiting = self.waiting();
        let number = waiting.next;
        waiting.next += 1;
        waiting.callers.insert(number, (Instant::now(), oust));
        Place { greeters: self.clone(), number, driven_out }
    }

    /// How long to wait until there is room, if somebody has to leave first.
    fn make_room(&self) -> Option<Duration> {
        let mut waiting = self.waiting();
        if waiting.callers.len() < MAX_GREETING {
            return None;
        }
        let oldest = waiting.callers.first_entry()?;
        let had = oldest.get().0.elapsed();
        if had < UNDISTURBED {
            return Some(UNDISTURBED - had);
        }
        oldest.remove();
        None
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Runs the greeting of this caller, until its place is needed.
    pub(super) async fn hold<T>(&mut self, greeting: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            greeted = greeting => Some(greeted),
            _ = &mut self.driven_out => None,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.greeters.waiting().callers.remove(&self.number);
        self.greeters.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    async fn full() -> (Arc<Greeters>, Vec<Place>) {
        let greeters = Arc::new(Greeters::default());
        let mut places = Vec::new();
        for _ in 0..MAX_GREETING {
            places.push(greeters.enter().await);
        }
        (greeters, places)
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_leaves_for_one_more_once_it_has_had_its_time() {
        let (greeters, mut places) = full().await;
        let since = Instant::now();
        let _more = greeters.enter().await;
        assert_eq!(since.elapsed().as_millis(), UNDISTURBED.as_millis());
        assert_eq!(places[0].hold(pending::<()>()).await, None);
        assert_eq!(places[1].hold(async { 7 }).await, Some(7));
        // All others have had their time as well.
        let _another = greeters.enter().await;
        assert_eq!(since.elapsed().as_millis(), UNDISTURBED.as_millis());
        assert_eq!(places[1].hold(pending::<()>()).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_greeted_makes_room_at_once() {
        let (greeters, mut places) = full().await;
        let since = Instant::now();
        let (_more, ()) = tokio::join!(greeters.enter(), async { drop(places.pop()) });
        assert!(since.elapsed().is_zero());
        assert_eq!(places[0].hold(async { 7 }).await, Some(7));
    }
}
