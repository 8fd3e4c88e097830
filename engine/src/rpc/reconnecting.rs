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

type Dial<C> = dyn Fn() -> Pin<Box<dyn Future<Output = Result<C, HelloError>> + Send>> + Send + Sync;

/// Holds at most one live client; cheap to clone. Calls that may be repeated go through [`Reconnecting::call`].
pub struct Reconnecting<C> {
    dial: Arc<Dial<C>>,
    current: Arc<Mutex<Option<C>>>,
    /// Calls in a row that were not answered in time.
    unanswered: Arc<AtomicU32>,
}

/// After so many calls without an answer in time the connection counts as lost: its other end may be gone without a word.
const UNANSWERED: u32 = 2;

impl<C> Clone for Reconnecting<C> {
    fn clone(&self) -> Self {
        let Self { dial, current, unanswered } = self;
        Self { dial: dial.clone(), current: current.clone(), unanswered: unanswered.clone() }
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
        let (current, unanswered) = Default::default();
        Self { dial: Arc::new(move || Box::pin(dial())), current, unanswered }
    }

    /// One call, over the present connection or a new one. A lost connection is forgotten, so that the next call
    /// opens another.
    pub async fn call<T, F>(&self, call: impl FnOnce(C) -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, tarpc::client::RpcError>>,
    {
        let client = {
            let mut current = self.current.lock().await;
            match &*current {
                Some(client) => client.clone(),
                None => current.insert((self.dial)().await?).clone(),
            }
        };
        match call(client).await {
            Ok(value) => {
                self.unanswered.store(0, Ordering::Relaxed);
                Ok(value)
            }
            Err(error) => {
                let late = matches!(error, tarpc::client::RpcError::DeadlineExceeded);
                if !late || self.unanswered.fetch_add(1, Ordering::Relaxed) + 1 >= UNANSWERED {
                    self.unanswered.store(0, Ordering::Relaxed);
                    *self.current.lock().await = None;
                }
                Err(CallError::Lost(error))
            }
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
