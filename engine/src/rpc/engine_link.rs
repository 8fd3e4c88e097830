//! The connection to whichever engine leads.

use std::{future::Future, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};

use super::{CallError, EngineAddresses, EngineFault, Reconnecting, Token, Transport, connect, hello::Role};

/// Calls the engines of a cluster in rotation: after one that cannot be reached, or does not lead, the next is called. Each
/// call asks one engine once; the caller pauses between two tries. Cheap to clone.
pub struct EngineLink<C> {
    addresses: Arc<EngineAddresses>,
    link: Reconnecting<C>,
}

impl<C> Clone for EngineLink<C> {
    fn clone(&self) -> Self {
        Self { addresses: self.addresses.clone(), link: self.link.clone() }
    }
}

impl<C: Clone> EngineLink<C> {
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
        C: 'static,
    {
        let addresses = Arc::new(addresses);
        let dialed = addresses.clone();
        let link = Reconnecting::numbered(move |number| {
            let (addresses, token) = (dialed.clone(), token.clone());
            async move { Ok(open(connect(addresses.round_robin(number), role, &token).await?)) }
        });
        // Where another engine may lead, one that does not answer is not asked a second time.
        let link = if addresses.count() > 1 { link.lost_after_one_timeout() } else { link };
        Self { addresses, link }
    }

    /// All addresses.
    pub fn addresses(&self) -> &EngineAddresses {
        &self.addresses
    }

    /// One call of the engine whose turn it is.
    pub async fn call<T, F>(&self, call: impl FnOnce(C) -> F) -> Result<Result<T, EngineFault>, CallError>
    where
        F: Future<Output = Result<Result<T, EngineFault>, tarpc::client::RpcError>>,
    {
        let (number, answer) = self.link.call_numbered(call).await;
        // With one engine alone the connection stays: it will lead again.
        if matches!(answer, Ok(Err(EngineFault::NotActive { .. }))) && self.addresses.count() > 1 {
            self.link.discard(number).await;
        }
        answer
    }
}
