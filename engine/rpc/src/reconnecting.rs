//! A client that connects again when its connection is lost. tarpc itself never does.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use tarpc::client::RpcError;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{
    codec::MAX_FRAME_BYTES, connection::MAX_OPEN_CALLS, guarded::PANICKED, hello::HelloError, threads::lock,
};

type Dial<C> = dyn Fn(usize) -> BoxFuture<'static, Result<C, HelloError>> + Send + Sync;
/// A connection on its way. Whoever waits for it drives it: a call that nobody polls for a while, as in an
/// arm of a `select!`, holds up no other.
type Dialing<C> = Shared<BoxFuture<'static, Result<Arc<Connection<C>>, Arc<HelloError>>>>;

/// Holds at most one live client; cheap to clone. Calls that may be repeated go through
/// [`Reconnecting::call`].
pub struct Reconnecting<C> {
    dial: Arc<Dial<C>>,
    current: Arc<Mutex<Current<C>>>,
    /// Calls in a row that were not answered in time.
    unanswered: Arc<AtomicU32>,
    /// After this many such calls the connection counts as lost: its other end may have vanished.
    max_unanswered: u32,
    /// The other end refuses more calls at a time: the rest waits here.
    open_calls: Arc<Semaphore>,
}

/// The connection and its number, counted from the first: a call that failed on an old one does not close the
/// present one.
struct Current<C> {
    number: usize,
    state: State<C>,
}

enum State<C> {
    Closed,
    Dialing(Dialing<C>),
    Open(Arc<Connection<C>>),
}

struct Connection<C> {
    client: C,
    /// Answers that have come, to any call.
    answers: AtomicU64,
    /// Ends its calls. tarpc looks at no deadline of one that waits behind a message that the socket does
    /// not take.
    given_up: CancellationToken,
}

const MAX_UNANSWERED: u32 = 2;

impl<C> Clone for Reconnecting<C> {
    fn clone(&self) -> Self {
        let Self { dial, current, unanswered, max_unanswered, open_calls } = self;
        Self {
            dial: dial.clone(),
            current: current.clone(),
            unanswered: unanswered.clone(),
            max_unanswered: *max_unanswered,
            open_calls: open_calls.clone(),
        }
    }
}

/// Why a call did not come through.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No connection could be opened: the call was not sent.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// The connection broke, or no answer came in time: whether the call was carried out is not known.
    #[error("[E126] the connection was lost during a call")]
    Lost(#[source] RpcError),
    /// Everything else goes on there, and the same call would fail again.
    #[error("[E128] the peer has a bug, at which this call failed: {panic}")]
    Panicked {
        /// Message of the panic there.
        panic: String,
    },
    /// It was not sent: it makes a message that no connection takes.
    #[error("[E633] the call makes a message that cannot be sent: {cause}")]
    TooLarge {
        /// In the words of whoever writes messages.
        cause: String,
    },
}

impl CallError {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Hello(source) => source.code(),
            Self::Lost(_) => "E126",
            Self::Panicked { .. } => "E128",
            Self::TooLarge { .. } => "E633",
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Hello(source) => source.hint(),
            Self::Lost(_) => {
                Some("see whether the other end still runs; the call may have been carried out".to_owned())
            }
            Self::Panicked { .. } => {
                Some("please report it, with what the log of the other end says".to_owned())
            }
            Self::TooLarge { .. } => Some(format!(
                "a message has {} MiB at most: make several graphs of one that has very many kinds of calls, and give a call that \
                 takes millions of values some that hold many",
                MAX_FRAME_BYTES >> 20
            )),
        }
    }
}

impl<C: Clone + Send + Sync + 'static> Reconnecting<C> {
    /// `dial` opens a connection and greets.
    pub fn new<F>(dial: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<C, HelloError>> + Send + 'static,
    {
        Self::numbered(move |_| dial())
    }

    /// Connects by `dial` at the first call; it is told how many connections were lost, or could not be
    /// opened, before.
    pub(super) fn numbered<F>(dial: impl Fn(usize) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<C, HelloError>> + Send + 'static,
    {
        Self {
            dial: Arc::new(move |number| dial(number).boxed()),
            current: Arc::new(Mutex::new(Current { number: 0, state: State::Closed })),
            unanswered: Arc::default(),
            max_unanswered: MAX_UNANSWERED,
            open_calls: Arc::new(Semaphore::new(MAX_OPEN_CALLS)),
        }
    }

    /// Takes the connection for lost after one call without an answer. If it was silent meanwhile, its other
    /// calls end, too: who asks again is answered elsewhere.
    pub(super) fn lost_after_one_timeout(self) -> Self {
        Self { max_unanswered: 1, ..self }
    }

    /// One call, over the present connection or a new one. A lost connection is forgotten, so that the next
    /// call opens another.
    pub async fn call<T, F>(&self, call: impl FnOnce(C) -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, RpcError>>,
    {
        self.call_numbered(call).await.1
    }

    /// Makes a call, and says on which connection, by its number.
    pub(super) async fn call_numbered<T, F>(&self, call: impl FnOnce(C) -> F) -> (usize, Result<T, CallError>)
    where
        F: Future<Output = Result<T, RpcError>>,
    {
        // Never closed.
        let _open = self.open_calls.acquire().await;
        let (number, connection) = match self.connected().await {
            (number, Ok(connection)) => (number, connection),
            (number, Err(error)) => return (number, Err(error.into())),
        };
        let answers = connection.answers.load(Ordering::Relaxed);
        let answer = tokio::select! {
            biased;
            answer = call(connection.client.clone()) => answer,
            () = connection.given_up.cancelled() => Err(RpcError::Shutdown),
        };
        let answer = match answer {
            Ok(value) => {
                connection.answers.fetch_add(1, Ordering::Relaxed);
                self.unanswered.store(0, Ordering::Relaxed);
                Ok(value)
            }
            Err(RpcError::Server(error)) if error.kind == PANICKED => {
                connection.answers.fetch_add(1, Ordering::Relaxed);
                Err(CallError::Panicked { panic: error.detail })
            }
            // Nothing of it has left, and the connection is as it was.
            Err(RpcError::Send(cause)) => Err(CallError::TooLarge { cause: cause.to_string() }),
            Err(error) => {
                let late = matches!(error, RpcError::DeadlineExceeded);
                if !late || self.unanswered.fetch_add(1, Ordering::Relaxed) + 1 >= self.max_unanswered {
                    self.discard(number);
                }
                // A shard may be at something long that holds up the rest, and would have to begin anew.
                let is_silent = connection.answers.load(Ordering::Relaxed) == answers;
                if late && is_silent && self.max_unanswered == 1 {
                    connection.given_up.cancel();
                }
                Err(CallError::Lost(error))
            }
        };
        (number, answer)
    }

    /// Whoever waits while another one dials in vain fails with it: each would wait longer than the one
    /// before.
    async fn connected(&self) -> (usize, Result<Arc<Connection<C>>, HelloError>) {
        let (number, dialing) = {
            let mut current = self.current();
            let number = current.number;
            let dialing = match &current.state {
                State::Open(connection) => return (number, Ok(connection.clone())),
                // Where all who waited for it were dropped, the runtime that it began in may be gone.
                State::Dialing(dialing) if dialing.strong_count() > Some(1) => dialing.clone(),
                State::Dialing(_) | State::Closed => self.dialing(number),
            };
            current.state = State::Dialing(dialing.clone());
            (number, dialing)
        };
        let dialed = dialing.await;
        let mut current = self.current();
        if current.number == number && matches!(current.state, State::Dialing(_)) {
            match &dialed {
                Ok(connection) => current.state = State::Open(connection.clone()),
                Err(_) => *current = Current { number: number + 1, state: State::Closed },
            }
        }
        (number, dialed.map_err(|error| error.again()))
    }

    fn dialing(&self, number: usize) -> Dialing<C> {
        let open = |client| {
            Arc::new(Connection { client, answers: AtomicU64::default(), given_up: CancellationToken::new() })
        };
        let dialed = (self.dial)(number).map(move |dialed| dialed.map(open).map_err(Arc::new));
        dialed.boxed().shared()
    }

    fn current(&self) -> MutexGuard<'_, Current<C>> {
        lock(&self.current)
    }

    /// Drops the present connection.
    pub(super) fn discard_current(&self) {
        self.discard_if(|current| matches!(current.state, State::Open(_)));
    }

    /// Drops connection `number`, unless another has replaced it.
    pub(super) fn discard(&self, number: usize) {
        self.discard_if(|current| current.number == number);
    }

    fn discard_if(&self, wanted: impl FnOnce(&Current<C>) -> bool) {
        let mut current = self.current();
        if wanted(&current) {
            *current = Current { number: current.number + 1, state: State::Closed };
            self.unanswered.store(0, Ordering::Relaxed);
        }
    }
}

impl CallError {
    /// Whether trying again later can help: the peer is away, not unwilling.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Hello(HelloError::Io(_)))
    }
}

/// A tarpc context whose call may take this long.
pub fn within(limit: Duration) -> tarpc::context::Context {
    let mut context = tarpc::context::current();
    context.deadline = std::time::Instant::now() + limit;
    context
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn same(number: usize) -> Result<usize, RpcError> {
        Ok(number)
    }

    #[tokio::test]
    async fn who_gives_up_an_old_connection_leaves_the_present_one() {
        let link = Reconnecting::numbered(|number| async move { Ok(number) });
        assert_eq!(link.call(same).await.unwrap(), 0);
        link.discard(0);
        assert_eq!(link.call(same).await.unwrap(), 1);
        link.discard(0);
        assert_eq!(link.call(same).await.unwrap(), 1);
    }

    /// Makes a call whose answer does not come, while another waits; after an answer to a third, if `speaks`.
    /// Says what became of that other one so far.
    async fn beside_a_late_call(link: Reconnecting<usize>, speaks: bool) -> Option<Result<usize, CallError>> {
        let mut waits = std::pin::pin!(link.call(|_| std::future::pending()));
        assert!(futures::poll!(waits.as_mut()).is_pending());
        let late = link.call(async |_| {
            if speaks {
                assert_eq!(link.call(same).await.unwrap(), 0);
            }
            Err::<usize, _>(RpcError::DeadlineExceeded)
        });
        assert!(late.await.is_err());
        waits.now_or_never()
    }

    #[tokio::test]
    async fn what_waits_on_a_connection_that_was_silent_ends_with_the_call_that_shows_it_where_another_may_be_asked()
     {
        let link = || Reconnecting::numbered(|number| async move { Ok(number) });
        let several = || link().lost_after_one_timeout();
        let ended = beside_a_late_call(several(), false).await.expect("it ends at once");
        assert!(matches!(ended, Err(CallError::Lost(RpcError::Shutdown))), "it may have been carried out");
        assert!(beside_a_late_call(several(), true).await.is_none(), "the other end lives");
        assert!(beside_a_late_call(link(), false).await.is_none(), "nobody else could be asked");
    }

    #[tokio::test]
    async fn what_waits_where_an_engine_was_left_that_answers_goes_on() {
        let link = Reconnecting::numbered(|number| async move { Ok(number) }).lost_after_one_timeout();
        let (answer, gate) = tokio::sync::oneshot::channel();
        let mut waits = std::pin::pin!(link.call(async |number| Ok((number, gate.await.unwrap()))));
        assert!(futures::poll!(waits.as_mut()).is_pending());
        link.discard(0);
        assert_eq!(link.call(same).await.unwrap(), 1);
        answer.send("done").unwrap();
        assert_eq!(waits.await.unwrap(), (0, "done"));
    }

    #[tokio::test]
    async fn more_calls_than_the_other_end_takes_at_a_time_wait_for_each_other() {
        let link = Reconnecting::numbered(|number| async move { Ok(number) });
        let (open, most, gate) = (AtomicU32::new(0), AtomicU32::new(0), Semaphore::new(0));
        let held = async |number| {
            let now = open.fetch_add(1, Ordering::Relaxed) + 1;
            most.fetch_max(now, Ordering::Relaxed);
            // Nobody ends before as many are open as may be.
            if now == MAX_OPEN_CALLS as u32 {
                gate.add_permits(2_500);
            }
            gate.acquire().await.unwrap().forget();
            open.fetch_sub(1, Ordering::Relaxed);
            Ok(number)
        };
        let calls = (0..2_500).map(|_| link.call(held));
        let answers = futures::future::join_all(calls).await;
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(most.into_inner(), MAX_OPEN_CALLS as u32);
    }

    #[tokio::test]
    async fn a_call_at_which_the_peer_panicked_is_no_lost_connection() {
        let link = Reconnecting::numbered(|number| async move { Ok(number) });
        let panicked = tarpc::ServerError::new(PANICKED, "a task without its node".into());
        let failed = link.call(|_| async { Err::<usize, _>(RpcError::Server(panicked)) }).await.unwrap_err();
        assert!(!failed.is_passing());
        assert!(failed.to_string().contains("a task without its node"), "{failed}");
        assert_eq!(link.call(same).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_call_that_no_connection_takes_fails_for_good_and_leaves_the_connection() {
        let link = Reconnecting::numbered(|number| async move { Ok(number) });
        let refused = RpcError::Send("frame size too big".into());
        let failed = link.call(|_| async { Err::<usize, _>(refused) }).await.unwrap_err();
        assert!(!failed.is_passing());
        assert!(failed.to_string().ends_with("cannot be sent: frame size too big"), "{failed}");
        assert_eq!(link.call(same).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn who_waits_while_another_call_dials_in_vain_fails_with_it_and_dials_the_next_time() {
        let gate = Arc::new(Semaphore::new(0));
        let tried = gate.clone();
        let link = Reconnecting::numbered(move |number| {
            let gate = tried.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                if number == 0 { Err(std::io::Error::other("away").into()) } else { Ok(number) }
            }
        });
        let mut calls = std::pin::pin!(futures::future::join_all((0..3).map(|_| link.call(same))));
        assert!(futures::poll!(calls.as_mut()).is_pending());
        gate.add_permits(2);
        for error in calls.await.into_iter().map(Result::unwrap_err) {
            assert!(matches!(&error, CallError::Hello(HelloError::Io(cause)) if cause.to_string() == "away"));
        }
        assert_eq!(link.call(same).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_call_that_nobody_polls_while_it_dials_holds_up_no_other() {
        let gate = Arc::new(Semaphore::new(0));
        let opened = gate.clone();
        let link = Reconnecting::numbered(move |number| {
            let gate = opened.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                Ok(number)
            }
        });
        let mut paused = std::pin::pin!(link.call(same));
        assert!(futures::poll!(paused.as_mut()).is_pending());
        link.discard_current();
        let mut other = std::pin::pin!(link.call(same));
        assert!(futures::poll!(other.as_mut()).is_pending());
        gate.add_permits(1);
        assert_eq!(other.await.unwrap(), 0);
        assert_eq!(paused.await.unwrap(), 0, "one connection for both");
    }

    #[tokio::test]
    async fn a_call_that_was_dropped_while_it_dialed_leaves_nothing_to_wait_for() {
        let link = Reconnecting::numbered(|number| async move { Ok(number) });
        let never = Reconnecting::<usize>::numbered(|_| std::future::pending());
        let stale = never.dialing(0);
        link.current().state = State::Dialing(stale);
        assert_eq!(link.call(same).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn who_cannot_be_reached_loses_its_turn() {
        let link = Reconnecting::numbered(|number| async move {
            if number == 0 { Err(std::io::Error::other("away").into()) } else { Ok(number) }
        });
        assert!(link.call(same).await.unwrap_err().is_passing());
        assert_eq!(link.call(same).await.unwrap(), 1);
    }
}
