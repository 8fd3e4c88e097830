//! A service whose panics are answered: else whoever called would wait for its own time limit.

use std::{any::Any, io, panic::AssertUnwindSafe};

use futures::FutureExt;
use tarpc::{ServerError, context::Context, server::Serve};
use tracing::error;

/// Kind of the error with which a call at which the service panicked is answered; tarpc itself has other
/// ones.
pub(super) const PANICKED: io::ErrorKind = io::ErrorKind::Other;

/// Answers a call at which `service` panics with the words of the panic; other calls go on. What the call has
/// half done stays: nothing may be shared between calls but what is whole at every await.
#[derive(Clone)]
pub struct Guarded<S>(pub S);

impl<S: Serve> Serve for Guarded<S> {
    type Req = S::Req;
    type Resp = S::Resp;

    async fn serve(self, context: Context, request: S::Req) -> Result<S::Resp, ServerError> {
        let answer = AssertUnwindSafe(async move { self.0.serve(context, request).await }).catch_unwind();
        answer.await.unwrap_or_else(|panic| {
            let panic = describe(panic.as_ref());
            error!(panic, "a call has met a bug; everything else goes on");
            Err(ServerError::new(PANICKED, panic))
        })
    }
}

/// The message of a panic.
pub fn describe(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".into())
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, time::Duration};

    use tarpc::{client::Config, server, server::Channel};
    use tokio::net::TcpListener;

    use syncline_scheduler::ids::ContentDigest;

    use super::*;
    use crate::{
        CallError, Reconnecting, ShardClient, ShardRequest, ShardResponse, Token, accept, answer_calls,
        channel, connect, hello::Role, within,
    };

    #[tokio::test]
    async fn who_calls_learns_of_a_panic_at_once_and_the_next_call_is_answered_on_the_same_connection() {
        let (listener, token) =
            (TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap(), Token::generate());
        let address = listener.local_addr().unwrap().to_string();
        let respond = |_, request| async move {
            match request {
                ShardRequest::HasBlobs { digests } if digests.is_empty() => panic!("{} blobs", digests.len()),
                ShardRequest::HasBlobs { digests } => Ok(ShardResponse::HasBlobs(vec![true; digests.len()])),
                _ => unreachable!("nothing else is asked here"),
            }
        };
        let serve = move |_, stream| answer_calls(channel(stream).execute(Guarded(server::serve(respond))));
        tokio::spawn(accept(listener, token.clone(), &[Role::Control], serve));
        let link = Reconnecting::numbered(move |number| {
            assert_eq!(number, 0, "the connection was given up");
            let (address, token) = (address.clone(), token.clone());
            async move {
                let open = connect(&address, Role::Control, &token).await?;
                Ok(ShardClient::new(Config::default(), open).spawn())
            }
        });
        let ask = async |digests: Vec<ContentDigest>| {
            // Longer than a test may take: what waits for it never ends.
            let limit = Duration::from_secs(3_600);
            link.call(|c| async move { c.has_blobs(within(limit), digests).await }).await
        };
        let failed = ask(Vec::new()).await.unwrap_err();
        assert!(matches!(&failed, CallError::Panicked { panic } if panic == "0 blobs"), "{failed}");
        assert_eq!(ask(vec![ContentDigest::LOWEST]).await.unwrap(), [true]);
    }
}
