//! Content-addressed values: models, training graphs, initial parameters.

use std::{
    io::{self, Read, Write},
    time::Duration,
};
use syncline_scheduler::ids::ContentDigest;

use syncline_rpc::{ShardFault, Token};

use super::{Addresses, CancelToken, Link, LinkError, retry::RetryBudget};
use crate::{
    PsError,
    content::digest_of,
    wire::{MAX_BLOB_BYTES, Request},
};

/// Memory is asked for in steps of this size, so that a wrong length cannot exhaust it.
const STEP_BYTES: u64 = 64 << 20;

/// How long a blob that no shard has is asked for again.
pub const MISSING_PATIENCE: Duration = Duration::from_secs(3);

/// Stores and fetches blobs. Each call opens a connection of its own.
#[derive(Debug, Clone)]
pub struct BlobClient {
    token: Token,
    limit: Duration,
    cancel_token: CancelToken,
}

impl BlobClient {
    /// A client that holds `token`.
    pub fn new(token: Token) -> Self {
        Self { token, limit: Duration::from_secs(10), cancel_token: CancelToken::default() }
    }

    /// The same, fetching only as long as nobody cancels.
    pub fn under(self, cancel_token: CancelToken) -> Self {
        Self { cancel_token, ..self }
    }

    /// Stores `bytes` on the shard at `address` and returns their digest. Nothing is sent if they are there
    /// already.
    pub fn put(&self, address: &str, bytes: &[u8]) -> Result<ContentDigest, PsError> {
        let digest = digest_of(bytes);
        self.put_as(address, digest, bytes).map_err(|t| t.into_error(address))?;
        Ok(digest)
    }

    /// As [`put`](Self::put), on the shard that the digest says: many blobs spread over all of `addresses`.
    pub fn put_by_digest(&self, addresses: &[String], bytes: &[u8]) -> Result<ContentDigest, PsError> {
        let digest = digest_of(bytes);
        let address = first_by_digest(addresses, digest).next().ok_or_else(|| missing(digest))?;
        self.put_as(address, digest, bytes).map_err(|t| t.into_error(address))?;
        Ok(digest)
    }

    /// As [`get`](Self::get), asking the shard that the digest says first.
    pub fn get_by_digest(&self, addresses: &[String], digest: ContentDigest) -> Result<Vec<u8>, PsError> {
        let ordered: Vec<String> = first_by_digest(addresses, digest).cloned().collect();
        self.get(&ordered, digest)
    }

    /// Fetches a blob from the first of `addresses` that has it whole, and checks it against its digest.
    pub fn get(&self, addresses: &[String], digest: ContentDigest) -> Result<Vec<u8>, PsError> {
        // One that cannot be asked may have it whole: only where all were asked it is lost.
        let (mut lost, mut unasked) = (missing(digest), None);
        for address in addresses {
            self.cancel_token.check()?;
            let got = self.get_from(address, digest);
            self.cancel_token.let_go();
            self.cancel_token.check()?;
            match got {
                Ok(Fetched::Whole(bytes)) => return Ok(bytes),
                Ok(Fetched::Damaged) => {
                    lost = PsError::Damaged { digest, address: address.clone() };
                }
                Ok(Fetched::Missing) => {}
                Err(error) => unasked = Some(error.into_error(address)),
            }
        }
        Err(unasked.unwrap_or(lost))
    }

    /// As [`get`](Self::get), from wherever the shards are by then: while one cannot be reached it is tried
    /// again for so long. A blob that none has is asked for again for a moment: a process that has just
    /// taken over may not know yet where it is. So is one that a shard's disk did not give.
    pub fn get_within(
        &self,
        addresses: &Addresses,
        digest: ContentDigest,
        limit: Duration,
    ) -> Result<Vec<u8>, PsError> {
        let (mut away, mut missing) =
            (RetryBudget::new(limit), RetryBudget::new(limit.min(MISSING_PATIENCE)));
        loop {
            let asked = addresses.get();
            match self.get(&asked, digest) {
                Err(error) if error.is_away() => {
                    if addresses.get() != asked {
                        // Nobody has asked where they are by now.
                        away.progress();
                    }
                    away.pause_unless_heard(addresses.heard_since()).map_err(|_| error)?;
                }
                Err(error) if error.is_missing() => {
                    missing.pause().map_err(|_| error)?;
                }
                got => return got,
            }
        }
    }

    /// Whether the shard at `address` keeps the blob whole. It reads all of it, and removes it if it is
    /// damaged.
    pub fn has(&self, address: &str, digest: ContentDigest) -> Result<bool, PsError> {
        let found = Link::open(address, &self.token, self.limit).and_then(|mut link| link.check_blob(digest));
        found.map(|size| size.is_some()).map_err(|t| t.into_error(address))
    }

    fn put_as(&self, address: &str, digest: ContentDigest, bytes: &[u8]) -> Result<(), LinkError> {
        let mut link = Link::open(address, &self.token, self.limit)?;
        let request = Request::PutBlob { digest };
        link.put_blob(&request, digest, bytes.len() as u64, None, |channel| channel.write_all(bytes))
    }

    fn get_from(&self, address: &str, digest: ContentDigest) -> Result<Fetched, LinkError> {
        let mut link = Link::open_under(&self.cancel_token, address, &self.token, self.limit)?;
        let Some(total) = link.find_blob(digest)? else { return Ok(Fetched::Missing) };
        let whole = fetch_whole(&mut link, digest, total.min(MAX_BLOB_BYTES))?;
        Ok(whole.map_or(Fetched::Damaged, Fetched::Whole))
    }
}

/// What came of asking one shard for a blob.
enum Fetched {
    Whole(Vec<u8>),
    Damaged,
    Missing,
}

/// Fetches a blob of so many bytes that the shard has; `None` if it has it no longer, because it was damaged.
pub(super) fn fetch_whole(
    link: &mut Link,
    digest: ContentDigest,
    total: u64,
) -> Result<Option<Vec<u8>>, LinkError> {
    let fetch = |link: &mut Link| {
        let coming = link.ask_whole_blob(digest, total)?;
        let bytes = read_blob(link, coming)?;
        Ok((coming == total && digest_of(&bytes) == digest).then_some(bytes))
    };
    match fetch(link)? {
        // The shard removes what its disk has damaged, so that it is uploaded again. It is there all the same
        // if it was damaged on the way, or if the second process of the shard has it whole.
        None if link.check_blob(digest)? == Some(total) => fetch(link),
        fetched => Ok(fetched),
    }
}

/// Reads the whole of a blob that was asked for.
fn read_blob(link: &mut Link, total: u64) -> Result<Vec<u8>, LinkError> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < total {
        let step = (total - bytes.len() as u64).min(STEP_BYTES);
        bytes.try_reserve(step as usize).map_err(io::Error::other)?;
        if link.channel().take(step).read_to_end(&mut bytes)? as u64 != step {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
    Ok(bytes)
}

pub(super) fn missing(digest: ContentDigest) -> PsError {
    PsError::Refused { fault: ShardFault::MissingBlob { digest } }
}

/// The addresses of all shards, in order, beginning with the one that the digest says: what has many digests
/// is spread over all of them.
pub(super) fn first_by_digest(addresses: &[String], digest: ContentDigest) -> impl Iterator<Item = &String> {
    let [a, b, c, d, ..] = *digest.as_bytes();
    let first = u32::from_le_bytes([a, b, c, d]) as usize % addresses.len().max(1);
    addresses[first..].iter().chain(&addresses[..first])
}

/// A digest as somebody has typed it: its 64 hexadecimal digits, capitals or not.
pub fn digest_from_hex(hex: &str) -> Result<ContentDigest, PsError> {
    let invalid = |_| PsError::Digest { given: hex.chars().take(80).collect() };
    hex.to_ascii_lowercase().parse().map_err(invalid)
}
