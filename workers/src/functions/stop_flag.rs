//! How a running function learns that nobody wants its result any more.

use std::{
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use syncline_ps::client::CancelToken;
use syncline_rpc::threads::lock;
use tokio::sync::Notify;

/// What ends work that does not look.
type Interrupt = Box<dyn Fn(Urgency) + Send>;

/// How long work may take that was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// What is nearly done still counts for a while.
    Soon,
    /// Nothing of it counts any more, or its worker ends.
    Now,
}

/// Tells one who works that nobody wants the result any more.
#[derive(Default)]
pub(crate) struct StopFlag {
    asked: AtomicBool,
    /// Whether [`Urgency::Now`] was asked for.
    now: AtomicBool,
    /// For those who wait for it in async code.
    told: Notify,
    interrupt: Mutex<Option<Interrupt>>,
}

impl fmt::Debug for StopFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopFlag").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl StopFlag {
    pub(crate) fn ask(&self, urgency: Urgency) {
        // Under the lock: either this finds the interrupt, or whoever sets it finds that it was asked for.
        let interrupt = lock(&self.interrupt);
        self.now.fetch_or(urgency == Urgency::Now, Ordering::Relaxed);
        self.asked.store(true, Ordering::Relaxed);
        if let Some(interrupt) = &*interrupt {
            interrupt(self.urgency());
        }
        self.told.notify_one();
    }

    fn urgency(&self) -> Urgency {
        if self.now.load(Ordering::Relaxed) { Urgency::Now } else { Urgency::Soon }
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Returns when it is asked for.
    pub(crate) async fn asked(&self) {
        while !self.is_asked() {
            self.told.notified().await;
        }
    }

    /// Works, with something that ends the work from another thread once it is asked for; at once if it was.
    pub(crate) fn interruptible<T>(
        &self,
        interrupt: impl Fn(Urgency) + Send + 'static,
        work: impl FnOnce() -> T,
    ) -> T {
        let set = |interrupt| {
            let mut slot = lock(&self.interrupt);
            *slot = interrupt;
            if self.is_asked()
                && let Some(interrupt) = &*slot
            {
                interrupt(self.urgency());
            }
        };
        set(Some(Box::new(interrupt) as Interrupt));
        let done = work();
        set(None);
        done
    }

    /// Works with shards, under a token that is canceled once it is asked for.
    pub(crate) fn cancelable<T>(&self, work: impl FnOnce(&CancelToken) -> T) -> T {
        let cancel_token = CancelToken::default();
        let canceled = cancel_token.clone();
        self.interruptible(move |_| canceled.cancel(), || work(&cancel_token))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::AtomicU32};

    use super::*;

    #[test]
    fn work_is_interrupted_when_it_is_asked_for_before_or_meanwhile_and_not_behind_it() {
        let (flag, interrupts) = (StopFlag::default(), Arc::new(AtomicU32::new(0)));
        let interrupt = || {
            let interrupts = interrupts.clone();
            move |_| {
                interrupts.fetch_add(1, Ordering::SeqCst);
            }
        };
        flag.interruptible(interrupt(), || ());
        assert_eq!(interrupts.load(Ordering::SeqCst), 0);
        flag.interruptible(interrupt(), || flag.ask(Urgency::Now));
        assert_eq!(interrupts.load(Ordering::SeqCst), 1);
        flag.ask(Urgency::Now);
        assert_eq!(interrupts.load(Ordering::SeqCst), 1, "the work is over");
        flag.interruptible(interrupt(), || ());
        assert_eq!(interrupts.load(Ordering::SeqCst), 2, "it was asked for before");
    }

    #[test]
    fn who_was_given_time_has_none_any_more_once_nothing_counts() {
        let (flag, told) = (StopFlag::default(), Arc::new(Mutex::new(Vec::new())));
        let heard = told.clone();
        flag.interruptible(
            move |stop| heard.lock().unwrap().push(stop),
            || [Urgency::Soon, Urgency::Now, Urgency::Soon].map(|stop| flag.ask(stop)),
        );
        assert_eq!(*told.lock().unwrap(), [Urgency::Soon, Urgency::Now, Urgency::Now]);
    }
}
