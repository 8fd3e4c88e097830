//! Values of tasks on the shards: many and short-lived, so that their connections stay open.

use std::{
    collections::HashMap,
    fmt,
    io::Write,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use syncline_scheduler::ids::ContentDigest;

use syncline_rpc::{ShardFault, Token, threads::lock};

use super::{
    CancelToken, Link, LinkError,
    blob::{fetch_whole, first_by_digest, missing},
    unexpected_reply,
};
use crate::{
    PsError,
    content::digest_from,
    wire::{MAX_BLOB_BYTES, Reply, Request},
};

/// Most connections to one shard that wait for their next use.
const MAX_IDLE: usize = 16;
/// A connection that nobody used for so long is closed: the shard may have moved, and nobody asks there any
/// more.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// Limit of connecting, and of sending.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest silence of a shard that reads or writes a value.
const READ_LIMIT: Duration = Duration::from_secs(60);

/// Stores and fetches values. Clones share their connections.
#[derive(Clone)]
pub struct ValueClient {
    token: Token,
    read_limit: Duration,
    idle: Arc<Mutex<IdleLinks>>,
}

/// Open connections by address, and since when each is idle: the newest last.
#[derive(Default)]
struct IdleLinks(HashMap<String, Vec<(Instant, Link)>>);

impl IdleLinks {
    /// The connection to `address` that was used last.
    fn take(&mut self, address: &str) -> Option<Link> {
        self.0.get_mut(address)?.pop().map(|(_, link)| link)
    }

    /// Keeps a connection for the next call, if there are not enough of them, and closes those that were idle
    /// for too long.
    fn keep(&mut self, address: &str, link: Link, now: Instant) {
        self.0.retain(|_, links| {
            links.retain(|(since, _)| now.saturating_duration_since(*since) < IDLE_LIMIT);
            !links.is_empty()
        });
        let links = self.0.entry(address.to_owned()).or_default();
        if links.len() < MAX_IDLE {
            links.push((now, link));
        }
    }
}

impl fmt::Debug for ValueClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ValueClient")
    }
}

impl ValueClient {
    /// A client that holds `token`.
    pub fn new(token: Token) -> Self {
        Self { token, read_limit: READ_LIMIT, idle: Arc::default() }
    }

    /// The digest of the `parts`, one behind the other.
    pub fn digest(parts: [&[u8]; 2]) -> ContentDigest {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(part);
        }
        digest_from(hasher.finalize())
    }

    /// Which of the shards keeps the value of this digest; `None` where there are none.
    pub fn home(addresses: &[String], digest: ContentDigest) -> Option<&String> {
        first_by_digest(addresses, digest).next()
    }

    /// Stores the `parts`, one behind the other, on the shard that their digest says. The shard has them in the
    /// system's memory then, and on disk within about a second.
    pub fn put(
        &self,
        addresses: &[String],
        digest: ContentDigest,
        parts: [&[u8]; 2],
        cancel_token: &CancelToken,
    ) -> Result<(), PsError> {
        let address = Self::home(addresses, digest).ok_or_else(|| missing(digest))?;
        let named = |error| match error {
            // Whoever reads it is far from the shard, and does not know which one took the value.
            LinkError::Fault(ShardFault::Io { what, cause }) => {
                LinkError::Fault(ShardFault::Io { what: format!("the shard at {address} {what}"), cause })
            }
            other => other,
        };
        match self.with_link(address, cancel_token, |link| put(link, digest, parts, self.read_limit)) {
            Ok(()) => Ok(()),
            Err(error) => cancel_token.check().and(Err(named(error).into_error(address))),
        }
    }

    /// Fetches a value of so many bytes from the shard that its digest says, or from another one of
    /// `addresses`, and checks it against its digest.
    pub fn get(
        &self,
        addresses: &[String],
        digest: ContentDigest,
        bytes: u64,
        cancel_token: &CancelToken,
    ) -> Result<Vec<u8>, PsError> {
        // One that cannot be asked may have it whole: only where all were asked it is lost.
        let (mut lost, mut unasked) = (missing(digest), None);
        for address in first_by_digest(addresses, digest) {
            let got = self.with_link(address, cancel_token, |link| {
                let bytes = bytes.min(MAX_BLOB_BYTES);
                link.set_read_timeout(Some(self.read_limit))?;
                fetch_whole(link, digest, bytes)
            });
            match got {
                Ok(Some(value)) => return Ok(value),
                Ok(None) => lost = PsError::Damaged { digest, address: address.clone() },
                Err(LinkError::Fault(ShardFault::MissingBlob { .. })) => {}
                Err(error) => unasked = Some(error.into_error(address)),
            }
            cancel_token.check()?;
        }
        Err(unasked.unwrap_or(lost))
    }

    /// Makes a call on an open connection, and on a new one if that had been closed meanwhile.
    fn with_link<T>(
        &self,
        address: &str,
        cancel_token: &CancelToken,
        call: impl Fn(&mut Link) -> Result<T, LinkError>,
    ) -> Result<T, LinkError> {
        if let Some(mut link) = self.take(address) {
            cancel_token.hold(link.socket());
            let done = call(&mut link);
            cancel_token.let_go();
            match done {
                Err(LinkError::Broken(_)) => {}
                done => return self.keep(address, link, done),
            }
        }
        let opened = Link::open_under(cancel_token, address, &self.token, LIMIT);
        let called = opened.map(|mut link| (call(&mut link), link));
        cancel_token.let_go();
        let (done, link) = called?;
        self.keep(address, link, done)
    }

    fn take(&self, address: &str) -> Option<Link> {
        lock(&self.idle).take(address)
    }

    /// Keeps a connection for the next call, unless it is out of step.
    fn keep<T>(&self, address: &str, link: Link, done: Result<T, LinkError>) -> Result<T, LinkError> {
        if matches!(done, Ok(_) | Err(LinkError::Fault(_))) {
            lock(&self.idle).keep(address, link, Instant::now());
        }
        done
    }
}

fn put(
    link: &mut Link,
    digest: ContentDigest,
    parts: [&[u8]; 2],
    read_limit: Duration,
) -> Result<(), LinkError> {
    let mut head = Vec::new();
    let bytes = parts.iter().map(|part| part.len() as u64).sum();
    Request::PutValue { digest }.encode(bytes, &mut head);
    link.set_read_timeout(Some(read_limit))?;
    link.channel().write_all(&head)?;
    for part in parts {
        link.channel().write_all(part)?;
    }
    match link.answer()? {
        (Reply::BlobStored, 0) => Ok(()),
        (reply, _) => Err(unexpected_reply(&reply)),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        net::{SocketAddr, TcpListener},
        thread,
    };

    use syncline_rpc::hello::{self, Role};

    use super::*;
    use crate::server::{self, Handle, Options};

    fn nobody() -> CancelToken {
        CancelToken::default()
    }

    fn put(
        values: &ValueClient,
        addresses: &[String],
        parts: [&[u8]; 2],
        cancel_token: &CancelToken,
    ) -> Result<ContentDigest, PsError> {
        let digest = ValueClient::digest(parts);
        values.put(addresses, digest, parts, cancel_token).map(|()| digest)
    }

    fn start(dir: &std::path::Path, listen: SocketAddr, token: &Token) -> Handle {
        let (token, state_dir) = (token.clone(), dir.to_owned());
        server::start(Options {
            listen,
            token,
            state_dir,
            index: 0,
            count: 1,
            replicas: 1,
            engine: None,
            advertise: None,
        })
        .unwrap()
    }

    #[test]
    fn a_connection_that_was_kept_too_long_costs_nothing_but_a_new_one() {
        let (dir, token) = (tempfile::tempdir().unwrap(), Token::generate());
        let shard = start(dir.path(), SocketAddr::from(([127, 0, 0, 1], 0)), &token);
        let addresses = [shard.address().to_string()];
        let values = ValueClient::new(token.clone());
        let first = put(&values, &addresses, [b"salt", b"first"], &nobody()).unwrap();
        assert_eq!(values.idle.lock().unwrap().0[&addresses[0]].len(), 1, "it is kept");
        let address = shard.address();
        shard.stop();
        let _shard = start(dir.path(), address, &token);
        assert_eq!(
            values.get(&addresses, first, 9, &nobody()).unwrap(),
            b"saltfirst",
            "through a stop, and a new connection"
        );
        let second = put(&values, &addresses, [b"salt", b"second"], &nobody()).unwrap();
        assert_eq!(values.get(&addresses, second, 10, &nobody()).unwrap(), b"saltsecond");
        assert_eq!(values.idle.lock().unwrap().0[&addresses[0]].len(), 1, "one is enough");
    }

    #[test]
    fn connections_to_where_a_shard_has_been_are_closed_after_a_minute_and_the_newest_is_used_first() {
        let (dir, token) = (tempfile::tempdir().unwrap(), Token::generate());
        let shard = start(dir.path(), SocketAddr::from(([127, 0, 0, 1], 0)), &token);
        let address = shard.address().to_string();
        let open = || Link::open(&address, &token, LIMIT).unwrap();
        let (mut idle, begin) = (IdleLinks::default(), Instant::now());
        let kept = |idle: &IdleLinks| -> Vec<(String, usize)> {
            let mut kept: Vec<_> = idle.0.iter().map(|(at, links)| (at.clone(), links.len())).collect();
            kept.sort();
            kept
        };
        idle.keep("before", open(), begin);
        idle.keep("before", open(), begin + IDLE_LIMIT / 2);
        idle.keep("now", open(), begin + IDLE_LIMIT);
        assert_eq!(kept(&idle), [("before".to_owned(), 1), ("now".to_owned(), 1)]);
        idle.keep("now", open(), begin + 2 * IDLE_LIMIT - Duration::from_secs(1));
        assert_eq!(kept(&idle), [("now".to_owned(), 2)]);
        assert!(idle.take("now").is_some() && idle.take("before").is_none());
        let left: Vec<Instant> = idle.0["now"].iter().map(|(since, _)| *since).collect();
        assert_eq!(left, [begin + IDLE_LIMIT]);
    }

    #[test]
    fn a_value_that_is_not_there_or_of_another_length_is_an_error() {
        let (dir, token) = (tempfile::tempdir().unwrap(), Token::generate());
        let shard = start(dir.path(), SocketAddr::from(([127, 0, 0, 1], 0)), &token);
        let addresses = [shard.address().to_string()];
        let values = ValueClient::new(token);
        let digest = put(&values, &addresses, [b"salt", b"value"], &nobody()).unwrap();
        assert!(
            values
                .get(&addresses, ContentDigest::LOWEST, 9, &nobody())
                .unwrap_err()
                .to_string()
                .contains("E4")
        );
        for bytes in [8, 10] {
            assert!(
                matches!(values.get(&addresses, digest, bytes, &nobody()), Err(PsError::Damaged { .. })),
                "{bytes}"
            );
        }
        assert_eq!(values.get(&addresses, digest, 9, &nobody()).unwrap(), b"saltvalue", "it is still there");
        let nobody_there = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        for beside in [[addresses[0].clone(), nobody_there.clone()], [nobody_there, addresses[0].clone()]] {
            let away = values.get(&beside, digest, 8, &nobody()).unwrap_err();
            assert!(away.is_away(), "the other one may have it whole: {away}");
        }
        assert!(put(&values, &[], [b"salt", b"value"], &nobody()).is_err(), "no shard is named");
    }

    #[test]
    fn a_call_that_is_canceled_ends_whatever_its_shard_owes_it() {
        let (token, value) = (Token::generate(), [b"salt".as_slice(), b"value"]);
        type Call = fn(&ValueClient, &[String], [&[u8]; 2], &CancelToken) -> Result<(), PsError>;
        let calls: [Call; 2] = [
            |values, at, value, token| put(values, at, value, token).map(drop),
            |values, at, _, token| values.get(at, ContentDigest::LOWEST, 9, token).map(drop),
        ];
        for (call, greets) in calls.into_iter().flat_map(|call| [(call, true), (call, false)]) {
            let (listener, cancel_token) = (TcpListener::bind("127.0.0.1:0").unwrap(), nobody());
            let addresses = [listener.local_addr().unwrap().to_string()];
            let day = Duration::from_secs(24 * 3600);
            let values = ValueClient { read_limit: day, ..ValueClient::new(token.clone()) };
            thread::scope(|scope| {
                let shard = scope.spawn(|| {
                    let mut caller = listener.accept().unwrap().0;
                    if greets {
                        hello::receive_blocking(&mut caller, &token, &[Role::Tensor], None).unwrap();
                    }
                    caller.read_exact(&mut [0]).unwrap();
                    cancel_token.cancel();
                    caller
                });
                let ended = call(&values, &addresses, value, &cancel_token);
                assert!(matches!(ended, Err(PsError::Canceled)), "{greets}: {ended:?}");
                drop(shard.join());
            });
        }
    }

    #[test]
    fn a_connection_that_waits_for_its_next_use_is_none_that_a_cancel_ends() {
        let (dir, token) = (tempfile::tempdir().unwrap(), Token::generate());
        let shard = start(dir.path(), SocketAddr::from(([127, 0, 0, 1], 0)), &token);
        let addresses = [shard.address().to_string()];
        let (values, cancel_token) = (ValueClient::new(token), nobody());
        for value in [b"first", b"later"] {
            put(&values, &addresses, [b"salt", value], &cancel_token).unwrap();
        }
        cancel_token.cancel();
        let link = values.take(&addresses[0]).unwrap();
        assert!(!link.socket().is_shut_down());
    }
}
