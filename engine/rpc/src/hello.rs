//! The first bytes on every connection: who calls, in which protocol version, with which token.
//!
//! One frame of fixed size each way, before anything of variable length is read:
//! `"SYNC" | version u16 le | role u8 | 0 | token [32]`, answered by `"SYNC" | version u16 le | verdict u8 | 0`.

use std::io::{self, Read, Write};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::Token;

/// Raised with every change of any message. postcard is not self-describing, so both ends must agree.
pub const PROTOCOL_VERSION: u16 = 29;

const MAGIC: [u8; 4] = *b"SYNC";
const CALL_BYTES: usize = 8 + Token::BYTES;
const ANSWER_BYTES: usize = 8;

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
    #[error(
        "[E122] protocol version {theirs} met version {PROTOCOL_VERSION}; use the same release everywhere"
    )]
    Version {
        /// Version of the other end.
        theirs: u16,
    },
    /// The caller's token is not the one of the listener. Both ends are told.
    #[error("[E123] the token was refused; use the token file that `syncline up` printed")]
    Token,
    /// The listener does not serve this [`Role`], given as its number. Both ends are told.
    #[error("[E124] this address does not serve the role {}", role_name(*.0))]
    Role(u8),
    /// Nobody could be reached, or the connection broke or timed out before the answer was in.
    #[error("[E125] there is no connection, or it broke during the greeting")]
    Io(#[from] io::Error),
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

const OK: u8 = 0;
const BAD_VERSION: u8 = 1;
const BAD_TOKEN: u8 = 2;
const BAD_ROLE: u8 = 3;

fn call(role: Role, token: &Token) -> [u8; CALL_BYTES] {
    let mut frame = [0; CALL_BYTES];
    frame[..4].copy_from_slice(&MAGIC);
    frame[4..6].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    frame[6] = role as u8;
    frame[8..].copy_from_slice(token.as_bytes());
    frame
}

fn answer(verdict: u8) -> [u8; ANSWER_BYTES] {
    let [a, b] = PROTOCOL_VERSION.to_le_bytes();
    let [m0, m1, m2, m3] = MAGIC;
    [m0, m1, m2, m3, a, b, verdict, 0]
}

fn verify(frame: &[u8; CALL_BYTES], token: &Token, served: &[Role]) -> (u8, Result<Role, HelloError>) {
    if frame[..4] != MAGIC {
        return (BAD_VERSION, Err(HelloError::NotSyncline));
    }
    let theirs = u16::from_le_bytes([frame[4], frame[5]]);
    if theirs != PROTOCOL_VERSION {
        return (BAD_VERSION, Err(HelloError::Version { theirs }));
    }
    let mut bytes = [0; Token::BYTES];
    bytes.copy_from_slice(&frame[8..]);
    if !token.matches(&Token::from_bytes(bytes)) {
        return (BAD_TOKEN, Err(HelloError::Token));
    }
    match served.iter().find(|r| **r as u8 == frame[6]) {
        Some(role) => (OK, Ok(*role)),
        None => (BAD_ROLE, Err(HelloError::Role(frame[6]))),
    }
}

fn read_answer(frame: [u8; ANSWER_BYTES], role: Role) -> Result<(), HelloError> {
    if frame[..4] != MAGIC {
        return Err(HelloError::NotSyncline);
    }
    match frame[6] {
        OK => Ok(()),
        BAD_TOKEN => Err(HelloError::Token),
        BAD_ROLE => Err(HelloError::Role(role as u8)),
        _ => Err(HelloError::Version { theirs: u16::from_le_bytes([frame[4], frame[5]]) }),
    }
}

/// Greets as the caller, on a tokio stream.
pub async fn greet(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    role: Role,
    token: &Token,
) -> Result<(), HelloError> {
    stream.write_all(&call(role, token)).await?;
    let mut frame = [0; ANSWER_BYTES];
    stream.read_exact(&mut frame).await?;
    read_answer(frame, role)
}

/// Answers a caller, on a tokio stream.
pub async fn receive(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    token: &Token,
    served: &[Role],
) -> Result<Role, HelloError> {
    let mut frame = [0; CALL_BYTES];
    stream.read_exact(&mut frame).await?;
    let (verdict, outcome) = verify(&frame, token, served);
    stream.write_all(&answer(verdict)).await?;
    outcome
}

/// Greets as the caller, on a blocking stream (the tensor path).
pub fn greet_blocking(stream: &mut (impl Read + Write), role: Role, token: &Token) -> Result<(), HelloError> {
    stream.write_all(&call(role, token))?;
    let mut frame = [0; ANSWER_BYTES];
    stream.read_exact(&mut frame)?;
    read_answer(frame, role)
}

/// Answers a caller, on a blocking stream. Set a read timeout first.
pub fn receive_blocking(
    stream: &mut (impl Read + Write),
    token: &Token,
    served: &[Role],
) -> Result<Role, HelloError> {
    let mut frame = [0; CALL_BYTES];
    stream.read_exact(&mut frame)?;
    let (verdict, outcome) = verify(&frame, token, served);
    stream.write_all(&answer(verdict))?;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn meet(token: &Token, expected: &Token, role: Role, served: &[Role]) -> [Option<String>; 2] {
        let (mut a, mut b) = tokio::io::duplex(256);
        let (caller, server) = tokio::join!(greet(&mut a, role, token), receive(&mut b, expected, served));
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
    async fn another_release_is_told_so_at_both_ends() {
        let token = Token::generate();
        let (mut a, mut b) = tokio::io::duplex(256);
        let mut frame = call(Role::Client, &token);
        frame[4..6].copy_from_slice(&(PROTOCOL_VERSION + 1).to_le_bytes());
        a.write_all(&frame).await.unwrap();
        let refused = receive(&mut b, &token, &[Role::Client]).await.unwrap_err();
        assert!(matches!(refused, HelloError::Version { theirs } if theirs == PROTOCOL_VERSION + 1));
        let mut answer = [0; ANSWER_BYTES];
        a.read_exact(&mut answer).await.unwrap();
        answer[4..6].copy_from_slice(&(PROTOCOL_VERSION - 1).to_le_bytes());
        let told = read_answer(answer, Role::Client).unwrap_err().to_string();
        let (theirs, ours) = (PROTOCOL_VERSION - 1, PROTOCOL_VERSION);
        let wanted =
            format!("[E122] protocol version {theirs} met version {ours}; use the same release everywhere");
        assert_eq!(told, wanted);
    }

    #[tokio::test]
    async fn strangers_are_turned_away() {
        let (mut a, mut b) = tokio::io::duplex(256);
        a.write_all(&[b'x'; CALL_BYTES]).await.unwrap();
        assert!(matches!(
            receive(&mut b, &Token::generate(), &[Role::Client]).await,
            Err(HelloError::NotSyncline)
        ));
    }
}
