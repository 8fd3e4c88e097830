//! The callers of one listener whose greeting is still to come: so few at a time that strangers who say
//! nothing cannot use up the file descriptors of everybody else.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::oneshot;

use super::threads::lock;

/// Callers of one listener that may greet at the same time: a thousand workers that come back at once do not
/// drive each other out.
pub const MAX_GREETING: usize = 1024;

/// All callers that have not greeted.
#[derive(Default)]
pub(super) struct Greeters(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// Number of the next caller.
    next: u64,
    /// By number and so by age. Whoever is dropped here is told so.
    callers: BTreeMap<u64, oneshot::Sender<()>>,
}

/// The place of one caller, free again when it is dropped.
pub(super) struct Place {
    greeters: Arc<Greeters>,
    number: u64,
    driven_out: oneshot::Receiver<()>,
}

impl Greeters {
    /// A place for one more caller. Where all are taken, the oldest greeting ends: whoever would wait for a
    /// place here would keep all from being accepted who come later.
    pub(super) fn enter(self: &Arc<Self>) -> Place {
        let (oust, driven_out) = oneshot::channel();
        let mut waiting = self.waiting();
        if waiting.callers.len() >= MAX_GREETING {
            waiting.callers.pop_first();
        }
        let number = waiting.next;
        waiting.next += 1;
        waiting.callers.insert(number, oust);
        Place { greeters: self.clone(), number, driven_out }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.0)
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
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    fn full() -> (Arc<Greeters>, Vec<Place>) {
        let greeters = Arc::new(Greeters::default());
        let places = (0..MAX_GREETING).map(|_| greeters.enter()).collect();
        (greeters, places)
    }

    #[tokio::test]
    async fn the_oldest_leaves_at_once_for_one_more_and_nobody_else() {
        let (greeters, mut places) = full();
        let _more = greeters.enter();
        assert_eq!(places[0].hold(pending::<()>()).await, None);
        assert_eq!(places[1].hold(async { 7 }).await, Some(7));
        let _another = greeters.enter();
        assert_eq!(places[1].hold(pending::<()>()).await, None);
    }

    #[tokio::test]
    async fn who_has_greeted_makes_room() {
        let (greeters, mut places) = full();
        drop(places.pop());
        let _more = greeters.enter();
        assert_eq!(places[0].hold(async { 7 }).await, Some(7));
    }
}
