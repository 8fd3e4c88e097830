//! Opens a connection to one of several engines, of which some may hang.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::select_all;
use tokio::time::timeout;

use super::{EngineAddresses, hello::HelloError, leader_hint::LeaderHint, threads::lock};

/// So long one engine is waited for alone, before the next is greeted beside it.
const HEAD_START: Duration = Duration::from_millis(300);

/// So long those are waited for that were slower than one that does not lead: long enough for a leader, and
/// no longer, where one of them is gone.
const OUTRUN_HEAD_START: Duration = Duration::from_secs(1);

type Opening<C> = Pin<Box<dyn Future<Output = Result<C, HelloError>> + Send>>;

/// A connection on its way: connecting and greeting.
struct Attempt<C> {
    address: String,
    opening: Opening<C>,
}

/// Greets engines in rotation, the next beside one that keeps it waiting, and takes whoever answers first. If
/// that one turns out not to lead, those that were slower are waited for: a standby must not win over a
/// leader that is slow.
pub(super) struct Dialer<C> {
    addresses: EngineAddresses,
    hint: LeaderHint,
    open: Box<dyn Fn(String) -> Opening<C> + Send + Sync>,
    /// Who was still to answer when another one did.
    outrun: Mutex<Vec<Attempt<C>>>,
    /// Whether the last connection was tried with every engine, and none let us in.
    all_failed: AtomicBool,
}

impl<C> Dialer<C> {
    /// `open` connects to an address and greets; it ends within a limit of its own.
    pub(super) fn new<F>(
        addresses: EngineAddresses,
        open: impl Fn(String) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<C, HelloError>> + Send + 'static,
    {
        let open = Box::new(move |address| Box::pin(open(address)) as Opening<C>);
        Self {
            addresses,
            hint: LeaderHint::default(),
            open,
            outrun: Mutex::default(),
            all_failed: AtomicBool::default(),
        }
    }

    pub(super) fn addresses(&self) -> &EngineAddresses {
        &self.addresses
    }

    pub(super) fn hint(&self) -> &LeaderHint {
        &self.hint
    }

    /// Whether the last connection was tried with every engine, and none let us in: to ask again at once is
    /// of no use.
    pub(super) fn all_failed(&self) -> bool {
        self.all_failed.load(Ordering::Relaxed)
    }

    /// An engine that leads has answered: nobody else is waited for.
    pub(super) fn forget_outrun(&self) {
        self.lock().clear();
    }

    /// Connection `number`: to whom the last one has named as the leader, else to who was outrun, else in
    /// rotation.
    pub(super) async fn dial(&self, number: usize) -> Result<C, HelloError> {
        self.all_failed.store(false, Ordering::Relaxed);
        let outrun = std::mem::take(&mut *self.lock());
        if let Some(leader) = self.hint.take() {
            return self.follow(leader, outrun).await;
        }
        let turns = number..number + self.addresses.count();
        let waited_for: Vec<String> = outrun.iter().map(|attempt| attempt.address.clone()).collect();
        let others = turns.map(|turn| self.addresses.round_robin(turn).to_owned());
        let mut rotation =
            others.filter(|address| !waited_for.contains(address)).map(|address| self.attempt(address));
        let (first, head_start) = match outrun.is_empty() {
            true => (rotation.next().into_iter().collect(), HEAD_START),
            false => (outrun, OUTRUN_HEAD_START),
        };
        let opened = self.race(first, rotation, head_start).await;
        self.all_failed.store(opened.is_err(), Ordering::Relaxed);
        opened
    }

    /// The one that was named as the leader, whom maybe we wait for already. Nobody else is asked beside it:
    /// it was just said that nobody else leads.
    async fn follow(&self, leader: String, outrun: Vec<Attempt<C>>) -> Result<C, HelloError> {
        self.hint.called(&leader);
        let begun = outrun.into_iter().find(|attempt| attempt.address == leader);
        let attempt = begun.unwrap_or_else(|| self.attempt(leader.clone()));
        attempt.opening.await.map_err(|error| not_the_leader(&leader, error))
    }

    /// Whoever is connected first. `running` have begun; of the others the first begins when nobody has
    /// answered after `head_start`, the next whenever nobody has for a while, and each at once where
    /// nobody is left who might. Fails once all have: as one that is there and unwilling, if any was.
    async fn race(
        &self,
        mut running: Vec<Attempt<C>>,
        mut others: impl Iterator<Item = Attempt<C>>,
        mut head_start: Duration,
    ) -> Result<C, HelloError> {
        let mut unwilling = None;
        loop {
            let openings = running.iter_mut().map(|attempt| attempt.opening.as_mut());
            let Ok((opened, first, _)) = timeout(head_start, select_all(openings)).await else {
                running.extend(others.next());
                head_start = HEAD_START;
                continue;
            };
            let Attempt { address, .. } = running.remove(first);
            match opened {
                Err(error) => {
                    let told = unwilling.take().unwrap_or(error);
                    if running.is_empty() {
                        running.extend(others.next());
                    }
                    if running.is_empty() {
                        self.hint.called(&address);
                        return Err(told);
                    }
                    unwilling = Some(told).filter(|error| !matches!(error, HelloError::Io(_)));
                }
                opened => {
                    self.hint.called(&address);
                    *self.lock() = running;
                    return opened;
                }
            }
        }
    }

    fn attempt(&self, address: String) -> Attempt<C> {
        Attempt { opening: (self.open)(address.clone()), address }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Attempt<C>>> {
        lock(&self.outrun)
    }
}

/// Whoever is at an address that nobody has named to us and does not let us in says nothing about our
/// settings.
fn not_the_leader(address: &str, error: HelloError) -> HelloError {
    match error {
        // It is one of Syncline, and waiting does not make it another.
        HelloError::Version { .. } => error,
        error => {
            io::Error::other(format!("a standby names {address} as the engine that leads: {error}")).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Notify;

    use super::*;

    /// What becomes of the greeting of an engine.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Engine {
        Answers,
        Refuses,
        Hangs,
        /// Answers when it is released.
        Slow,
        /// Refuses, and releases who is slow.
        RefusesLater,
        /// Belongs to another cluster.
        Foreign,
        OtherRelease,
    }

    /// Engines at 10.0.0.1:1, 10.0.0.1:2 and so on, here called by their port.
    struct Engines {
        dialer: Dialer<usize>,
        /// Whose greeting was begun, in order.
        greeted: Arc<Mutex<Vec<usize>>>,
        release: Arc<Notify>,
    }

    impl Engines {
        fn new(engines: &[Engine]) -> Self {
            let engines = engines.to_vec();
            let addresses: Vec<_> = (1..=engines.len()).map(|port| format!("10.0.0.1:{port}")).collect();
            let (greeted, release) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
            let (seen, released) = (greeted.clone(), release.clone());
            let dialer = Dialer::new(addresses.join(",").parse().unwrap(), move |address: String| {
                let port: usize = address.rsplit(':').next().unwrap().parse().unwrap();
                seen.lock().unwrap().push(port);
                let (engine, release) = (engines[port - 1], released.clone());
                async move {
                    match engine {
                        Engine::Answers => return Ok(port),
                        Engine::Refuses => {}
                        Engine::Hangs => std::future::pending().await,
                        Engine::Slow => {
                            release.notified().await;
                            return Ok(port);
                        }
                        Engine::RefusesLater => release.notify_one(),
                        Engine::Foreign => return Err(HelloError::Token),
                        Engine::OtherRelease => return Err(HelloError::Version { theirs: 1 }),
                    }
                    Err(io::Error::other(port.to_string()).into())
                }
            });
            Self { dialer, greeted, release }
        }

        /// Whom connection `number` reaches, or whose refusal it fails with.
        async fn dial(&self, number: usize) -> Result<usize, String> {
            self.dialer.dial(number).await.map_err(|error| error.to_string())
        }

        fn greeted(&self) -> Vec<usize> {
            self.greeted.lock().unwrap().clone()
        }
    }

    #[tokio::test]
    async fn the_next_is_greeted_beside_who_hangs_and_the_first_answer_is_taken() {
        use Engine::{Answers, Foreign, Hangs, Refuses, RefusesLater, Slow};
        #[rustfmt::skip]
        let cases: &[(&[Engine], Option<usize>, &[usize])] = &[
            (&[Answers, Answers],        Some(1), &[1]),
            (&[Hangs, Answers],          Some(2), &[1, 2]),
            (&[Hangs, Hangs, Answers],   Some(3), &[1, 2, 3]),
            (&[Hangs, Refuses, Answers], Some(3), &[1, 2, 3]),
            (&[Refuses, Answers],        Some(2), &[1, 2]),
            (&[Refuses, Refuses],        None,    &[1, 2]),
            (&[Foreign, Answers],        Some(2), &[1, 2]),
            (&[Slow, RefusesLater],      Some(1), &[1, 2]),
        ];
        for (engines, reached, greeted) in cases {
            let cluster = Engines::new(engines);
            assert_eq!(cluster.dial(0).await.ok(), *reached, "{engines:?}");
            assert_eq!(cluster.greeted(), *greeted, "{engines:?}");
        }
    }

    #[tokio::test]
    async fn where_nobody_lets_us_in_the_one_that_is_there_says_why() {
        for engines in [[Engine::Foreign, Engine::Refuses], [Engine::Refuses, Engine::Foreign]] {
            let refused = Engines::new(&engines).dial(0).await.unwrap_err();
            assert!(refused.contains("[E123]"), "{engines:?}: {refused}");
        }
    }

    #[tokio::test]
    async fn a_leader_that_a_standby_names_says_of_which_release_it_is_and_nothing_else_of_itself() {
        for (leader, code) in [(Engine::OtherRelease, "[E122]"), (Engine::Foreign, "[E125]")] {
            let cluster = Engines::new(&[Engine::Answers, leader]);
            cluster.dialer.hint().note("10.0.0.1:2");
            let refused = cluster.dial(0).await.unwrap_err();
            assert!(refused.starts_with(code), "{leader:?}: {refused}");
        }
    }

    #[tokio::test]
    async fn all_have_failed_only_where_every_engine_was_greeted() {
        use Engine::{Answers, Refuses, RefusesLater, Slow};
        let refusing = Engines::new(&[Refuses, Refuses]);
        assert!(refusing.dial(0).await.is_err() && refusing.dialer.all_failed());
        assert_eq!(refusing.greeted(), [1, 2]);
        let misleading = Engines::new(&[Refuses, Answers]);
        misleading.dialer.hint().note("10.0.0.1:1");
        assert!(
            misleading.dial(0).await.is_err() && !misleading.dialer.all_failed(),
            "the other one was not asked"
        );
        let slow = Engines::new(&[Slow, RefusesLater]);
        assert!(slow.dial(0).await.is_ok() && !slow.dialer.all_failed());
    }

    #[tokio::test]
    async fn who_was_outrun_by_a_standby_is_waited_for() {
        let cluster = Engines::new(&[Engine::Slow, Engine::Answers]);
        assert_eq!(cluster.dial(0).await, Ok(2));
        cluster.release.notify_one();
        assert_eq!(cluster.dial(1).await, Ok(1));
        assert_eq!(cluster.greeted(), [1, 2], "its greeting was not begun anew");
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_outrun_and_never_answers_is_not_waited_for_alone() {
        let cluster = Engines::new(&[Engine::Hangs, Engine::Answers, Engine::Foreign]);
        assert_eq!(cluster.dial(0).await, Ok(2));
        let since = tokio::time::Instant::now();
        assert_eq!(cluster.dial(1).await, Ok(2));
        assert_eq!(since.elapsed(), OUTRUN_HEAD_START);
        assert_eq!(cluster.greeted(), [1, 2, 2], "the one that hangs is not greeted anew");
    }

    #[tokio::test]
    async fn who_is_named_as_the_leader_is_waited_for_and_nobody_else_is_asked() {
        let cluster = Engines::new(&[Engine::Slow, Engine::Slow, Engine::Answers]);
        assert_eq!(cluster.dial(0).await, Ok(3));
        assert!(cluster.dialer.hint().note("10.0.0.1:1"));
        cluster.release.notify_waiters();
        assert_eq!(cluster.dial(1).await, Ok(1));
        assert_eq!(cluster.greeted(), [1, 2, 3]);
    }

    #[tokio::test]
    async fn nobody_is_waited_for_once_a_leader_has_answered() {
        let cluster = Engines::new(&[Engine::Hangs, Engine::Answers]);
        assert_eq!(cluster.dial(0).await, Ok(2));
        cluster.dialer.forget_outrun();
        assert_eq!(cluster.dial(1).await, Ok(2));
        assert_eq!(cluster.greeted(), [1, 2, 2]);
    }
}
