//! The connection to whichever engine leads.

use std::{
    future::Future,
    io,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde::{Serialize, de::DeserializeOwned};
use tarpc::client::RpcError;
use tokio::time::timeout;

use super::{
    CallError, EngineAddresses, EngineFault, GREETING_TIMEOUT, InactiveReason, Reconnecting, Token,
    Transport, connect, dialer::Dialer, hello::Role, threads::lock,
};

/// Calls the engines of a cluster in rotation: after one that cannot be reached, or does not lead, the next
/// is called, and one that does not greet at once is not waited for alone. Where one that stands by says who
/// leads, that one is next, whether it was named or not. Each call asks one engine once; the caller pauses
/// between two tries. Cheap to clone.
pub struct EngineLink<C> {
    dialer: Arc<Dialer<C>>,
    link: Reconnecting<C>,
    /// When one that had let its lead run out was left last.
    left: Arc<Mutex<Option<Instant>>>,
    /// How long an engine may take to greet, and to answer a call, whatever the call allows.
    limit: Option<Duration>,
}

/// So long after one engine was left that may not lead any more it is stayed with, if nobody else leads.
const STAY: Duration = Duration::from_secs(2);

impl<C> Clone for EngineLink<C> {
    fn clone(&self) -> Self {
        let Self { dialer, link, left, limit } = self;
        Self { dialer: dialer.clone(), link: link.clone(), left: left.clone(), limit: *limit }
    }
}

impl<C: Clone + Send + Sync + 'static> EngineLink<C> {
    /// Does not connect yet. `open` makes a client of a connection.
    pub fn new<Req, Resp>(
        addresses: EngineAddresses,
        role: Role,
        token: Token,
        open: fn(Transport<tarpc::Response<Resp>, tarpc::ClientMessage<Req>>) -> C,
    ) -> Self
    where
        Req: Serialize + Send + 'static,
        Resp: DeserializeOwned + Send + 'static,
    {
        Self::limited(None, addresses, role, token, open)
    }

    /// A link for which no engine is waited for longer than `limit`, neither for its greeting nor for an
    /// answer.
    pub fn limited<Req, Resp>(
        limit: Option<Duration>,
        addresses: EngineAddresses,
        role: Role,
        token: Token,
        open: fn(Transport<tarpc::Response<Resp>, tarpc::ClientMessage<Req>>) -> C,
    ) -> Self
    where
        Req: Serialize + Send + 'static,
        Resp: DeserializeOwned + Send + 'static,
    {
        let several = addresses.count() > 1;
        let dialer = Arc::new(Dialer::new(addresses, move |address: String| {
            let token = token.clone();
            async move {
                let greeting = timeout(limit.unwrap_or(GREETING_TIMEOUT), connect(&address, role, &token));
                let late =
                    || io::Error::new(io::ErrorKind::TimedOut, format!("no greeting from {address} in time"));
                Ok(open(greeting.await.map_err(|_| late())??))
            }
        }));
        let dialing = dialer.clone();
        let link = Reconnecting::numbered(move |number| {
            let dialer = dialing.clone();
            async move { dialer.dial(number).await }
        });
        // Where another engine may lead, one that does not answer is not asked a second time.
        let link = if several { link.lost_after_one_timeout() } else { link };
        Self { dialer, link, left: Arc::default(), limit }
    }

    /// The engine that has just answered may lead no longer: where others are known, the next call goes to
    /// another, at most every two seconds.
    pub async fn try_another(&self) {
        if self.addresses().count() < 2 || !self.may_leave() {
            return;
        }
        self.link.discard_current();
    }

    fn may_leave(&self) -> bool {
        let mut left = lock(&self.left);
        let may = left.is_none_or(|left| left.elapsed() >= STAY);
        if may {
            *left = Some(Instant::now());
        }
        may
    }

    /// Whether the next call goes to an engine that was said to lead.
    pub fn has_hint(&self) -> bool {
        self.dialer.hint().is_there()
    }

    /// Whether the last connection was tried with every engine, and none let us in.
    pub fn all_failed(&self) -> bool {
        self.dialer.all_failed()
    }

    /// Where the engine was called last that has answered, or was to answer: one that was named, or that one of
    /// these has said to lead. Empty before the first call.
    pub fn last_called(&self) -> String {
        self.dialer.hint().last_called()
    }

    /// All addresses.
    pub fn addresses(&self) -> &EngineAddresses {
        self.dialer.addresses()
    }

    /// Whether a call whose answer did not come is worth another try: at another engine, or where this one
    /// closed the connection.
    pub fn may_try_again(&self, lost: &RpcError) -> bool {
        self.limit.is_some() && (self.addresses().count() > 1 || !matches!(lost, RpcError::DeadlineExceeded))
    }

    /// One call of the engine whose turn it is.
    pub async fn call<T, F>(&self, call: impl FnOnce(C) -> F) -> Result<Result<T, EngineFault>, CallError>
    where
        F: Future<Output = Result<Result<T, EngineFault>, RpcError>>,
    {
        self.call_judged(call, |_| None).await
    }

    /// Makes a call that an engine answers that stands by, too: `stands_by` says so of the answer, with the
    /// address of who leads, which may be empty. Where others are known, the next call goes to one of
    /// them.
    pub async fn call_judged<T, F>(
        &self,
        call: impl FnOnce(C) -> F,
        stands_by: impl FnOnce(&T) -> Option<String>,
    ) -> Result<Result<T, EngineFault>, CallError>
    where
        F: Future<Output = Result<Result<T, EngineFault>, RpcError>>,
    {
        let limited = async |client| match self.limit {
            Some(limit) => timeout(limit, call(client)).await.unwrap_or(Err(RpcError::DeadlineExceeded)),
            None => call(client).await,
        };
        let (number, answer) = self.link.call_numbered(limited).await;
        let Ok(answered) = &answer else { return answer };
        let standby = answered.as_ref().ok().and_then(stands_by).filter(|_| self.addresses().count() > 1);
        let follows = match (answered, &standby) {
            (_, Some(leader)) => self.dialer.hint().note(leader),
            (Err(EngineFault::NotActive { why: InactiveReason::Standby { address, .. } }), _) => {
                self.dialer.hint().note(address)
            }
            // Redis may answer another, which leads then.
            (Err(EngineFault::NotActive { .. } | EngineFault::Store { .. }), _) => false,
            _ => {
                self.dialer.forget_outrun();
                return answer;
            }
        };
        // With one engine alone the connection stays: it will lead again.
        if follows || self.addresses().count() > 1 {
            self.link.discard(number);
        }
        answer
    }
}
