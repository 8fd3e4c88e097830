//! The first bytes on every connection: who calls, in which protocol version, and that both ends hold the
//! same token.
//!
//! Two frames of fixed size each way, before anything of variable length is read; see `handshake`.

use std::io::{self, Read, Write};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{
    ShardPosition, Token,
    handshake::{
        ANSWER_BYTES, CALL_BYTES, CHALLENGE_BYTES, Caller, Listener, NO_PROOF, RESPONSE_BYTES, answer,
        role_of,
    },
    open_files::NoDescriptor,
};

/// Raised with every change of any message. postcard is not self-describing, so both ends must agree.
pub const PROTOCOL_VERSION: u16 = 57;

/// What the caller wants to speak on this connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// To the engine: submits and watches.
    Client = 1,
    /// To the engine: executes tasks.
    Worker = 2,
    /// To the engine: announces itself.
    Shard = 3,
    /// To a shard: the engine gives orders.
    Control = 4,
    /// To a shard: tensors and blobs.
    Tensor = 5,
}

/// Why a connection was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// What the other end sent is no greeting, or no answer to one.
    #[error("[E121] the peer does not speak Syncline's protocol")]
    NotSyncline,
    /// Both ends are told: neither can read messages of the other.
    #[error("[E122] this process speaks protocol version {PROTOCOL_VERSION}, and its peer {theirs}, of {} release", age(*.theirs))]
    Version {
        /// Version of the other end.
        theirs: u16,
    },
    /// The caller's token is not the one of the listener, whichever of them it is that does not know the
    /// cluster's. Both ends are told.
    #[error("[E123] the token was refused; use the token file that `syncline up` printed")]
    Token,
    /// The listener does not serve this [`Role`], given as its number. Both ends are told.
    #[error("[E124] this address does not serve the role {}", role_name(*.0))]
    Role(u8),
    /// The listener is a process of another shard than the one that was called. Both ends are told.
    #[error("[E613] this address is not that of shard {0}, but of another one")]
    OtherShard(ShardPosition),
    /// Nobody could be reached, or the connection broke or timed out before the answer was in.
    #[error("[E125] there is no connection, or it broke during the greeting")]
    Io(#[from] io::Error),
}

impl HelloError {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotSyncline => "E121",
            Self::Version { .. } => "E122",
            Self::Token => "E123",
            Self::Role(_) => "E124",
            Self::OtherShard(_) => "E613",
            Self::Io(_) => "E125",
        }
    }

    /// The same for one more who waited for it.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::NotSyncline => Self::NotSyncline,
            Self::Version { theirs } => Self::Version { theirs: *theirs },
            Self::Token => Self::Token,
            Self::Role(role) => Self::Role(*role),
            Self::OtherShard(shard) => Self::OtherShard(*shard),
            Self::Io(error) => Self::Io(
                NoDescriptor::behind(error)
                    .map_or_else(|| io::Error::new(error.kind(), error.to_string()), Into::into),
            ),
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NotSyncline => "something else listens there: see whether the address is the right one",
            Self::Version { .. } => "use the same release everywhere",
            Self::Token => "name the token file of this cluster",
            Self::Role(_) => {
                "name the engine's address where an engine is asked for, a shard's where it is a shard"
            }
            Self::OtherShard(_) => {
                "shards may have exchanged their addresses, which is passing; if it stays, two of them announce the same address: see \
                 --listen and --advertise of `syncline ps`"
            }
            Self::Io(error) if NoDescriptor::behind(error).is_some() => NoDescriptor::HINT,
            Self::Io(_) => "see whether it runs there and its port can be reached",
        };
        Some(hint.to_owned())
    }
}

/// Which of two releases the one is that speaks this version.
fn age(theirs: u16) -> &'static str {
    if theirs < PROTOCOL_VERSION { "an earlier" } else { "a later" }
}

/// What a person calls a role.
fn role_name(role: u8) -> String {
    let known = [
        (Role::Client, "client"),
        (Role::Worker, "worker"),
        (Role::Shard, "shard"),
        (Role::Control, "engine of a shard"),
        (Role::Tensor, "worker of a shard"),
    ];
    let name = known.into_iter().find(|(known, _)| *known as u8 == role).map(|(_, name)| name.to_owned());
    name.unwrap_or_else(|| role.to_string())
}

/// Greets as the caller, on a tokio stream; `shard`: which shard's process it must be. Bound its time.
pub async fn greet(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    role: Role,
    shard: Option<ShardPosition>,
    token: &Token,
) -> Result<(), HelloError> {
    let caller = Caller::new(role, shard, token);
    stream.write_all(&caller.call()).await?;
    let mut verdict = [0; ANSWER_BYTES];
    stream.read_exact(&mut verdict).await?;
    caller.read_answer(verdict)?;
    let mut challenge = [0; CHALLENGE_BYTES];
    stream.read_exact(&mut challenge).await?;
    let proof = caller.prove(&challenge);
    stream.write_all(proof.as_ref().unwrap_or(&NO_PROOF)).await?;
    proof?;
    stream.read_exact(&mut verdict).await?;
    caller.read_answer(verdict)
}

/// Answers a caller, on a tokio stream. Bound its time. `is_foreign` is told of who called as what if it
/// speaks another version.
pub async fn receive(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    token: &Token,
    served: &[Role],
    is_foreign: impl FnOnce(u8),
) -> Result<Role, HelloError> {
    let mut call = [0; CALL_BYTES];
    stream.read_exact(&mut call).await?;
    let listener = Listener::new(&call, token);
    if let Err(HelloError::Version { .. }) = listener {
        is_foreign(role_of(&call));
    }
    let outcome = match listener {
        Ok(listener) => {
            stream.write_all(&listener.challenge()).await?;
            let mut response = [0; RESPONSE_BYTES];
            stream.read_exact(&mut response).await?;
            // No shard listens by tokio: calls that mean one are for it whichever it is.
            listener.admit(response, served, None)
        }
        Err(refused) => Err(refused),
    };
    stream.write_all(&answer(&outcome)).await?;
    outcome
}

/// Greets as the caller, on a blocking stream (the tensor path); `shard`: which shard's process it must be.
/// Set a read timeout first.
pub fn greet_blocking(
    stream: &mut (impl Read + Write),
    role: Role,
    shard: Option<ShardPosition>,
    token: &Token,
) -> Result<(), HelloError> {
    let caller = Caller::new(role, shard, token);
    stream.write_all(&caller.call())?;
    let mut verdict = [0; ANSWER_BYTES];
    stream.read_exact(&mut verdict)?;
    caller.read_answer(verdict)?;
    let mut challenge = [0; CHALLENGE_BYTES];
    stream.read_exact(&mut challenge)?;
    let proof = caller.prove(&challenge);
    stream.write_all(proof.as_ref().unwrap_or(&NO_PROOF))?;
    proof?;
    stream.read_exact(&mut verdict)?;
    caller.read_answer(verdict)
}

/// Answers a caller, on a blocking stream; `here`: the shard whose process this is. Set a read timeout first.
pub fn receive_blocking(
    stream: &mut (impl Read + Write),
    token: &Token,
    served: &[Role],
    here: Option<ShardPosition>,
) -> Result<Role, HelloError> {
    let mut call = [0; CALL_BYTES];
    stream.read_exact(&mut call)?;
    let outcome = match Listener::new(&call, token) {
        Ok(listener) => {
            stream.write_all(&listener.challenge())?;
            let mut response = [0; RESPONSE_BYTES];
            stream.read_exact(&mut response)?;
            listener.admit(response, served, here)
        }
        Err(refused) => Err(refused),
    };
    stream.write_all(&answer(&outcome))?;
    outcome
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixStream, thread};

    use super::*;

    async fn meet(token: &Token, expected: &Token, role: Role, served: &[Role]) -> [Option<String>; 2] {
        let (mut a, mut b) = tokio::io::duplex(256);
        let (caller, server) =
            tokio::join!(greet(&mut a, role, None, token), receive(&mut b, expected, served, |_| ()));
        [caller.err().map(|e| e.to_string()), server.err().map(|e| e.to_string())]
    }

    #[tokio::test]
    async fn both_ends_agree_on_the_verdict() {
        let (good, bad) = (Token::generate(), Token::generate());
        assert_eq!(meet(&good, &good, Role::Worker, &[Role::Worker]).await, [None, None]);
        for end in meet(&bad, &good, Role::Worker, &[Role::Worker]).await {
            assert!(end.unwrap().contains("E123"));
        }
        for end in meet(&good, &good, Role::Tensor, &[Role::Worker]).await {
            assert!(end.unwrap().ends_with("[E124] this address does not serve the role worker of a shard"));
        }
    }

    #[tokio::test]
    async fn another_release_is_told_so_at_both_ends_before_any_token() {
        // A release that sent its token where the nonce is now, and read eight bytes.
        let token = Token::generate();
        let (mut a, mut b) = tokio::io::duplex(256);
        let mut earlier = Caller::new(Role::Client, None, &token).call();
        earlier[4..6].copy_from_slice(&29_u16.to_le_bytes());
        earlier[8..].copy_from_slice(Token::generate().as_bytes());
        a.write_all(&earlier).await.unwrap();
        let mut called_as = None;
        let refused =
            receive(&mut b, &token, &[Role::Client], |role| called_as = Some(role)).await.unwrap_err();
        assert_eq!(called_as, Some(Role::Client as u8));
        assert!(matches!(refused, HelloError::Version { theirs: 29 }));
        drop(b);
        let mut told = Vec::new();
        a.read_to_end(&mut told).await.unwrap();
        let [low, high] = PROTOCOL_VERSION.to_le_bytes();
        assert_eq!(told, [b'S', b'Y', b'N', b'C', low, high, 1, 0]);

        // Such a release as the listener, which answers forty bytes with eight.
        let (mut a, mut b) = tokio::io::duplex(256);
        let earlier = async {
            b.read_exact(&mut [0; 40]).await.unwrap();
            b.write_all(&[b'S', b'Y', b'N', b'C', 29, 0, 1, 0]).await.unwrap();
        };
        let (told, ()) = tokio::join!(greet(&mut a, Role::Client, None, &token), earlier);
        let wanted = format!(
            "[E122] this process speaks protocol version {PROTOCOL_VERSION}, and its peer 29, of an earlier release"
        );
        assert_eq!(told.unwrap_err().to_string(), wanted);
    }

    #[tokio::test]
    async fn whoever_took_the_address_of_an_engine_learns_nothing() {
        let token = Token::generate();
        let (mut a, mut b) = tokio::io::duplex(256);
        let squatter = async {
            let mut call = [0; CALL_BYTES];
            b.read_exact(&mut call).await.unwrap();
            // It welcomes everybody, and makes a proof up.
            let mut challenge = answer(&Ok(())).to_vec();
            challenge.extend([7; CHALLENGE_BYTES]);
            b.write_all(&challenge).await.unwrap();
            let mut proof = [0; RESPONSE_BYTES];
            b.read_exact(&mut proof).await.unwrap();
            (call, proof)
        };
        let (refused, (call, proof)) = tokio::join!(greet(&mut a, Role::Client, None, &token), squatter);
        assert!(matches!(refused, Err(HelloError::Token)));
        assert_ne!(call[8..], token.as_bytes()[..]);
        assert_eq!(proof, NO_PROOF);
    }

    #[test]
    fn blocking_ends_agree_on_the_verdict_with_those_that_are_not() {
        let (good, bad) = (Token::generate(), Token::generate());
        for (token, fine) in [(&good, true), (&bad, false)] {
            let (mut a, mut b) = UnixStream::pair().unwrap();
            let (caller, listener) = thread::scope(|threads| {
                let caller = threads.spawn(|| greet_blocking(&mut a, Role::Tensor, None, token));
                let listener = receive_blocking(&mut b, &good, &[Role::Control, Role::Tensor], None);
                (caller.join().unwrap(), listener)
            });
            match fine {
                true => assert!(caller.is_ok() && matches!(listener, Ok(Role::Tensor))),
                false => {
                    assert!(matches!((caller, listener), (Err(HelloError::Token), Err(HelloError::Token))));
                }
            }
        }
    }

    #[test]
    fn whoever_calls_a_shard_by_its_number_is_told_where_another_one_listens() {
        let token = Token::generate();
        let of = |index, count| Some(ShardPosition { index, count });
        let cases = [
            (of(1, 2), of(1, 2), true),
            (None, of(1, 2), true),
            (of(1, 2), None, true),
            (of(0, 2), of(1, 2), false),
            (of(1, 3), of(1, 2), false),
        ];
        for (called, here, fine) in cases {
            let (mut a, mut b) = UnixStream::pair().unwrap();
            let ends = thread::scope(|threads| {
                let caller = threads.spawn(|| greet_blocking(&mut a, Role::Tensor, called, &token));
                let listener = receive_blocking(&mut b, &token, &[Role::Tensor], here);
                [caller.join().unwrap().err(), listener.err()]
            });
            for end in ends {
                let told =
                    end.map(|error| matches!(error, HelloError::OtherShard(shard) if Some(shard) == called));
                assert_eq!(told, (!fine).then_some(true), "{called:?} {here:?}");
            }
        }
    }

    #[tokio::test]
    async fn strangers_are_turned_away() {
        let (mut a, mut b) = tokio::io::duplex(256);
        a.write_all(&[b'x'; CALL_BYTES]).await.unwrap();
        assert!(matches!(
            receive(&mut b, &Token::generate(), &[Role::Client], |_| ()).await,
            Err(HelloError::NotSyncline)
        ));
    }
}
