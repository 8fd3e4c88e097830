//! The frames of a greeting, and what proves that both ends hold the same token: pure, for streams of any
//! kind.
//!
//! ```text
//! caller   "SYNC" | version u16 le | role u8    | 0 | nonce [32]
//! listener "SYNC" | version u16 le | verdict u8 | 0               and, if the verdict is OK, | nonce [32] | proof [32]
//! caller   proof [32] | shard u32 le | of so many u32 le, 0 for any process
//! listener "SYNC" | version u16 le | verdict u8 | 0
//! ```
//!
//! A proof is a hash keyed with the token, over who makes it, the role, the version, both nonces, and the
//! caller's over the shard that it means: an address may be another shard's by now. The token itself never
//! travels, so that a stranger who took somebody's address learns nothing from those who call there. The
//! listener proves first. The frames up to the first verdict have the layout of all releases, which tell each
//! other their versions by them.

use rand::Rng;

use super::{
    ShardPosition, Token,
    hello::{HelloError, PROTOCOL_VERSION, Role},
};

const MAGIC: [u8; 4] = *b"SYNC";
pub(super) const CALL_BYTES: usize = 8 + NONCE_BYTES;
pub(super) const ANSWER_BYTES: usize = 8;
pub(super) const CHALLENGE_BYTES: usize = NONCE_BYTES + PROOF_BYTES;
/// What a caller answers to a challenge: its proof, and the shard that it means.
pub(super) const RESPONSE_BYTES: usize = PROOF_BYTES + SHARD_BYTES;
const PROOF_BYTES: usize = blake3::OUT_LEN;
const SHARD_BYTES: usize = 8;
const NONCE_BYTES: usize = 32;

const OK: u8 = 0;
const BAD_VERSION: u8 = 1;
const BAD_TOKEN: u8 = 2;
const BAD_ROLE: u8 = 3;
const BAD_SHARD: u8 = 4;

/// What a caller sends in place of a proof to a listener that does not know the token. It is told as if the
/// caller did not.
pub(super) const NO_PROOF: [u8; RESPONSE_BYTES] = [0; RESPONSE_BYTES];

/// Who makes a proof: neither end can answer with what the other one sent.
#[derive(Clone, Copy)]
enum Prover {
    Listener,
    /// With the shard that it means.
    Caller([u8; SHARD_BYTES]),
}

/// What both ends know once each has sent its nonce.
struct Exchange<'a> {
    token: &'a Token,
    /// As it was sent, served or not.
    role: u8,
    caller_nonce: [u8; NONCE_BYTES],
    listener_nonce: [u8; NONCE_BYTES],
}

impl Exchange<'_> {
    /// Two of them compare in constant time.
    fn proof(&self, by: Prover) -> blake3::Hash {
        let (label, shard): (&[u8], &[u8]) = match &by {
            Prover::Listener => (b"syncline greeting, listener", &[]),
            Prover::Caller(shard) => (b"syncline greeting, caller", shard),
        };
        // For each label all that follows has a fixed size, and no label begins with another.
        blake3::Hasher::new_keyed(self.token.as_bytes())
            .update(label)
            .update(&[self.role])
            .update(&PROTOCOL_VERSION.to_le_bytes())
            .update(&self.caller_nonce)
            .update(&self.listener_nonce)
            .update(shard)
            .finalize()
    }
}

/// The caller's part of one greeting.
pub(super) struct Caller<'a> {
    token: &'a Token,
    role: Role,
    /// Which shard is meant, if it matters.
    shard: Option<ShardPosition>,
    nonce: [u8; NONCE_BYTES],
}

impl<'a> Caller<'a> {
    pub(super) fn new(role: Role, shard: Option<ShardPosition>, token: &'a Token) -> Self {
        Self { token, role, shard, nonce: new_nonce() }
    }

    pub(super) fn call(&self) -> [u8; CALL_BYTES] {
        frame(self.role as u8, &[&self.nonce])
    }

    /// Whether the listener goes on.
    pub(super) fn read_answer(&self, answer: [u8; ANSWER_BYTES]) -> Result<(), HelloError> {
        if answer[..4] != MAGIC {
            return Err(HelloError::NotSyncline);
        }
        let theirs = u16::from_le_bytes([answer[4], answer[5]]);
        match (answer[6], self.shard) {
            (OK, _) if theirs == PROTOCOL_VERSION => Ok(()),
            (BAD_TOKEN, _) => Err(HelloError::Token),
            (BAD_ROLE, _) => Err(HelloError::Role(self.role as u8)),
            (BAD_SHARD, Some(shard)) => Err(HelloError::OtherShard(shard)),
            _ => Err(HelloError::Version { theirs }),
        }
    }

    /// The proof for a listener that has proved that it knows the token.
    pub(super) fn prove(
        &self,
        challenge: &[u8; CHALLENGE_BYTES],
    ) -> Result<[u8; RESPONSE_BYTES], HelloError> {
        let (nonce, proof) = challenge.split_at(NONCE_BYTES);
        let mut exchange = Exchange {
            token: self.token,
            role: self.role as u8,
            caller_nonce: self.nonce,
            listener_nonce: [0; NONCE_BYTES],
        };
        exchange.listener_nonce.copy_from_slice(nonce);
        if exchange.proof(Prover::Listener) != *proof {
            return Err(HelloError::Token);
        }
        let shard = shard_bytes(self.shard);
        let mut response = [0; RESPONSE_BYTES];
        response[..PROOF_BYTES].copy_from_slice(exchange.proof(Prover::Caller(shard)).as_bytes());
        response[PROOF_BYTES..].copy_from_slice(&shard);
        Ok(response)
    }
}

/// As what somebody calls, in every version of the protocol.
pub(super) fn role_of(call: &[u8; CALL_BYTES]) -> u8 {
    call[6]
}

/// The listener's part of one greeting, after a call in its own version.
pub(super) struct Listener<'a>(Exchange<'a>);

impl<'a> Listener<'a> {
    pub(super) fn new(call: &[u8; CALL_BYTES], token: &'a Token) -> Result<Self, HelloError> {
        if call[..4] != MAGIC {
            return Err(HelloError::NotSyncline);
        }
        let theirs = u16::from_le_bytes([call[4], call[5]]);
        if theirs != PROTOCOL_VERSION {
            return Err(HelloError::Version { theirs });
        }
        let mut caller_nonce = [0; NONCE_BYTES];
        caller_nonce.copy_from_slice(&call[8..]);
        Ok(Self(Exchange { token, role: role_of(call), caller_nonce, listener_nonce: new_nonce() }))
    }

    /// The answer with the challenge.
    pub(super) fn challenge(&self) -> [u8; ANSWER_BYTES + CHALLENGE_BYTES] {
        frame(OK, &[&self.0.listener_nonce, self.0.proof(Prover::Listener).as_bytes()])
    }

    /// Which role is welcome. What is served is no stranger's business: the token comes first. `here`: the
    /// shard whose process this is.
    pub(super) fn admit(
        &self,
        response: [u8; RESPONSE_BYTES],
        served: &[Role],
        here: Option<ShardPosition>,
    ) -> Result<Role, HelloError> {
        let (proof, shard) = response.split_at(PROOF_BYTES);
        let mut meant = [0; SHARD_BYTES];
        meant.copy_from_slice(shard);
        if self.0.proof(Prover::Caller(meant)) != *proof {
            return Err(HelloError::Token);
        }
        let role = served.iter().find(|served| **served as u8 == self.0.role);
        let role = *role.ok_or(HelloError::Role(self.0.role))?;
        match (shard_of(meant), here) {
            (Some(meant), Some(here)) if meant != here => Err(HelloError::OtherShard(meant)),
            _ => Ok(role),
        }
    }
}

/// How a caller is told the outcome.
pub(super) fn answer<T>(outcome: &Result<T, HelloError>) -> [u8; ANSWER_BYTES] {
    let verdict = match outcome {
        Ok(_) => OK,
        Err(HelloError::Token) => BAD_TOKEN,
        Err(HelloError::Role(_)) => BAD_ROLE,
        Err(HelloError::OtherShard(_)) => BAD_SHARD,
        Err(_) => BAD_VERSION,
    };
    frame(verdict, &[])
}

fn shard_bytes(shard: Option<ShardPosition>) -> [u8; SHARD_BYTES] {
    let (index, count) = shard.map_or((0, 0), |shard| (shard.index, shard.count));
    let mut bytes = [0; SHARD_BYTES];
    bytes[..4].copy_from_slice(&index.to_le_bytes());
    bytes[4..].copy_from_slice(&count.to_le_bytes());
    bytes
}

fn shard_of(bytes: [u8; SHARD_BYTES]) -> Option<ShardPosition> {
    let [a, b, c, d, e, f, g, h] = bytes;
    let (index, count) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    (count > 0).then_some(ShardPosition { index, count })
}

/// The head that all releases know, with a role or a verdict, and what follows it.
fn frame<const BYTES: usize>(kind: u8, parts: &[&[u8]]) -> [u8; BYTES] {
    let mut frame = [0; BYTES];
    frame[..4].copy_from_slice(&MAGIC);
    frame[4..6].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    frame[6] = kind;
    let mut at = 8;
    for part in parts {
        frame[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    frame
}

fn new_nonce() -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    rand::rng().fill_bytes(&mut nonce);
    nonce
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a caller reads of a challenge.
    fn challenge(listener: &Listener) -> [u8; CHALLENGE_BYTES] {
        *listener.challenge().last_chunk().unwrap()
    }

    #[test]
    fn the_token_is_in_no_frame_and_no_frame_comes_twice() {
        let token = Token::generate();
        let greeting = || {
            let caller = Caller::new(Role::Client, None, &token);
            let listener = Listener::new(&caller.call(), &token).unwrap();
            let proof = caller.prove(&challenge(&listener)).unwrap();
            assert_eq!(listener.admit(proof, &[Role::Client], None).unwrap(), Role::Client);
            [&caller.call()[8..], &challenge(&listener)[..32], &challenge(&listener)[32..], &proof]
                .map(<[u8]>::to_vec)
        };
        let (first, second) = (greeting(), greeting());
        for (one, other) in first.iter().zip(&second) {
            assert_ne!(one, other);
            assert_ne!(one, token.as_bytes());
        }
    }

    #[test]
    fn a_listener_that_does_not_know_the_token_gets_no_proof() {
        let (token, other) = (Token::generate(), Token::generate());
        let caller = Caller::new(Role::Client, None, &token);
        let stranger = Listener::new(&caller.call(), &other).unwrap();
        assert!(matches!(caller.prove(&challenge(&stranger)), Err(HelloError::Token)));
        // Neither does one that sends back what it was sent, as its nonce and as its proof.
        let mut echo = [0; CHALLENGE_BYTES];
        echo[..NONCE_BYTES].copy_from_slice(&caller.nonce);
        echo[NONCE_BYTES..].copy_from_slice(&caller.nonce);
        assert!(matches!(caller.prove(&echo), Err(HelloError::Token)));
        assert!(matches!(stranger.admit(NO_PROOF, &[Role::Client], None), Err(HelloError::Token)));
    }

    #[test]
    fn a_proof_is_good_for_one_greeting_one_role_and_one_end() {
        let token = Token::generate();
        let caller = Caller::new(Role::Client, None, &token);
        let [first, second] = [(); 2].map(|()| Listener::new(&caller.call(), &token).unwrap());
        let proof = caller.prove(&challenge(&first)).unwrap();
        assert!(matches!(second.admit(proof, &[Role::Client], None), Err(HelloError::Token)));
        let mut listeners = NO_PROOF;
        listeners[..PROOF_BYTES].copy_from_slice(&challenge(&first)[NONCE_BYTES..]);
        assert!(matches!(first.admit(listeners, &[Role::Client], None), Err(HelloError::Token)));
        let mut as_worker = caller.call();
        as_worker[6] = Role::Worker as u8;
        let misled = Listener::new(&as_worker, &token).unwrap();
        assert!(matches!(caller.prove(&challenge(&misled)), Err(HelloError::Token)));
    }
}
