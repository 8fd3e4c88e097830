//! The connection to whichever engine leads.

use std::{future::Future, io, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    CallError, EngineAddresses, EngineFault, InactiveReason, Reconnecting, Token, Transport, connect,
    hello::{HelloError, Role},
    leader_hint::LeaderHint,
};

/// Calls the engines of a cluster in rotation: after one that cannot be reached, or does not lead, the next is called. Where
/// one that stands by says who leads, that one is next, whether it was named or not. Each call asks one engine once; the caller
/// pauses between two tries. Cheap to clone.
pub struct EngineLink<C> {
    addresses: Arc<EngineAddresses>,
    hint: Arc<LeaderHint>,
    link: Reconnecting<C>,
}

impl<C> Clone for EngineLink<C> {
    fn clone(&self) -> Self {
        Self { addresses: self.addresses.clone(), hint: self.hint.clone(), link: self.link.clone() }
    }
}

/// Whoever is at an address that nobody has named to us and does not let us in says nothing about our settings.
fn misled(address: &str, error: &HelloError) -> HelloError {
    io::Error::other(format!("a standby names {address} as the engine that leads: {error}")).into()
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
        let hint = Arc::new(LeaderHint::default());
        let (dialed, followed) = (addresses.clone(), hint.clone());
        let link = Reconnecting::numbered(move |number| {
            let (address, is_hint) = followed.next(|| dialed.round_robin(number).to_owned());
            let token = token.clone();
            async move {
                let connected = connect(&address, role, &token).await;
                Ok(open(connected.map_err(|error| if is_hint { misled(&address, &error) } else { error })?))
            }
        });
        // Where another engine may lead, one that does not answer is not asked a second time.
        let link = if addresses.count() > 1 { link.lost_after_one_timeout() } else { link };
        Self { addresses, hint, link }
    }

    /// Whether the next call goes to an engine that was said to lead.
    pub fn has_hint(&self) -> bool {
        self.hint.is_there()
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
        if let Ok(Err(EngineFault::NotActive { why })) = &answer {
            let follows = match why {
                InactiveReason::Standby { address, .. } => self.hint.note(address),
                _ => false,
            };
            // With one engine alone the connection stays: it will lead again.
            if follows || self.addresses.count() > 1 {
                self.link.discard(number).await;
            }
        }
        answer
    }
}
