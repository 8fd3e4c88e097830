//! A client that connects again when its connection is lost. tarpc itself never does.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::sync::Mutex;

use super::hello::HelloError;

type Dial<C> = dyn Fn(usize) -> Pin<Box<dyn Future<Output = Result<C, HelloError>> + Send>> + Send + Sync;

/// Holds at most one live client; cheap to clone. Calls that may be repeated go through [`Reconnecting::call`].
pub struct Reconnecting<C> {
    dial: Arc<Dial<C>>,
    current: Arc<Mutex<Current<C>>>,
    /// Calls in a row that were not answered in time.
    unanswered: Arc<AtomicU32>,
    /// After so many calls without an answer in time the connection counts as lost: its other end may be gone without a
    /// word.
    most_unanswered: u32,
}

/// The connection, and which one it is, counted from the first: who finds an old one lost has nothing against the present one.
struct Current<C> {
    turn: usize,
    client: Option<C>,
}

const UNANSWERED: u32 = 2;

impl<C> Clone for Reconnecting<C> {
    fn clone(&self) -> Self {
        let Self { dial, current, unanswered, most_unanswered } = self;
        Self {
            dial: dial.clone(),
            current: current.clone(),
            unanswered: unanswered.clone(),
            most_unanswered: *most_unanswered,
        }
    }
}

/// Why a call did not come through.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    #[error(transparent)]
    Hello(#[from] HelloError),
    #[error("[E126] the connection was lost during a call")]
    Lost(#[source] tarpc::client::RpcError),
}

impl<C: Clone> Reconnecting<C> {
    /// `dial` opens a connection and greets.
    pub fn new<F>(dial: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<C, HelloError>> + Send + 'static,
    {
        Self::in_turn(move |_| dial())
    }

    /// The same; `dial` is told how many connections were lost, or could not be opened, before.
    pub(super) fn in_turn<F>(dial: impl Fn(usize) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<C, HelloError>> + Send + 'static,
    {
        Self {
            dial: Arc::new(move |turn| Box::pin(dial(turn))),
            current: Arc::new(Mutex::new(Current { turn: 0, client: None })),
            unanswered: Arc::default(),
            most_unanswered: UNANSWERED,
        }
    }

    /// Takes the connection for lost after one call without an answer.
    pub(super) fn impatient(self) -> Self {
        Self { most_unanswered: 1, ..self }
    }

    /// One call, over the present connection or a new one. A lost connection is forgotten, so that the next call
    /// opens another.
    pub async fn call<T, F>(&self, call: impl FnOnce(C) -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, tarpc::client::RpcError>>,
    {
        self.call_in_turn(call).await.1
    }

    /// The same, with the turn in which the call was made.
    pub(super) async fn call_in_turn<T, F>(&self, call: impl FnOnce(C) -> F) -> (usize, Result<T, CallError>)
    where
        F: Future<Output = Result<T, tarpc::client::RpcError>>,
    {
        let (turn, client) = match self.connected().await {
            (turn, Ok(client)) => (turn, client),
            (turn, Err(error)) => return (turn, Err(error.into())),
        };
        let answer = match call(client).await {
            Ok(value) => {
                self.unanswered.store(0, Ordering::Relaxed);
                Ok(value)
            }
            Err(error) => {
                let late = matches!(error, tarpc::client::RpcError::DeadlineExceeded);
                if !late || self.unanswered.fetch_add(1, Ordering::Relaxed) + 1 >= self.most_unanswered {
                    self.next_turn(turn).await;
                }
                Err(CallError::Lost(error))
            }
        };
        (turn, answer)
    }

    async fn connected(&self) -> (usize, Result<C, HelloError>) {
        let mut current = self.current.lock().await;
        let turn = current.turn;
        if let Some(client) = &current.client {
            return (turn, Ok(client.clone()));
        }
        let dialed = (self.dial)(turn).await;
        match &dialed {
            Ok(client) => current.client = Some(client.clone()),
            Err(_) => current.turn += 1,
        }
        (turn, dialed)
    }

    /// Gives up the connection of that turn, if it is still the present one.
    pub(super) async fn next_turn(&self, turn: usize) {
        let mut current = self.current.lock().await;
        if current.turn == turn {
            *current = Current { turn: turn + 1, client: None };
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

    async fn same(turn: usize) -> Result<usize, tarpc::client::RpcError> {
        Ok(turn)
    }

    #[tokio::test]
    async fn who_gives_up_an_old_connection_leaves_the_present_one() {
        let link = Reconnecting::in_turn(|turn| async move { Ok(turn) });
        assert_eq!(link.call(same).await.unwrap(), 0);
        link.next_turn(0).await;
        assert_eq!(link.call(same).await.unwrap(), 1);
        link.next_turn(0).await;
        assert_eq!(link.call(same).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn who_cannot_be_reached_loses_its_turn() {
        let link = Reconnecting::in_turn(|turn| async move {
            if turn == 0 { Err(std::io::Error::other("away").into()) } else { Ok(turn) }
        });
        assert!(link.call(same).await.unwrap_err().is_passing());
        assert_eq!(link.call(same).await.unwrap(), 1);
    }
}
