//! Loading this shard's part of the parameters when a job opens.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    time::Duration,
};

use syncline_engine::rpc::{OpenJob, ShardFault};
use syncline_scheduler::{ids::EngineEpoch, spec::ElementRange};

use super::{Shared, blobs::disk_fault, checkpoints};
use crate::{
    client::{Link, LinkError, digest_from_hex},
    shard::JobShard,
    wire::Digest,
};

/// Bounds connecting to a peer and every wait for its bytes.
const PEER_LIMIT: Duration = Duration::from_secs(10);
/// Longest header that the safetensors format allows.
const MAX_SAFETENSORS_HEADER: u64 = 100_000_000;

/// Checks the order and loads the initial values, from the own blobs or from a peer's.
pub(super) fn load(shared: &Shared, order: &OpenJob, epoch: EngineEpoch) -> Result<JobShard, ShardFault> {
    let elements = check(order)?;
    let range = ElementRange::of_shard(elements, order.shard.0, order.shards.len() as u32);
    if let Some(number) = order.checkpoint {
        return checkpoints::load(shared, order, range, epoch, number);
    }
    let digest = digest_from_hex(&order.initial).map_err(|e| ShardFault::Invalid { what: e.to_string() })?;
    let part = BlobRange { digest, elements, range };
    let mut source = open_source(shared, order, part)?;
    JobShard::read(order, range, epoch, &mut source).map_err(|e| ShardFault::Io {
        what: format!("cannot load {} parameters of job {}", range.len(), order.job),
        cause: e.to_string(),
    })
}

/// A range of the values in a blob.
#[derive(Clone, Copy)]
struct BlobRange {
    digest: Digest,
    /// Of the whole job.
    elements: u64,
    range: ElementRange,
}

/// Elements of the layout, if the order makes sense.
fn check(order: &OpenJob) -> Result<u64, ShardFault> {
    let invalid =
        |what: &str| Err(ShardFault::Invalid { what: format!("{what} in the order for job {}", order.job) });
    let Some(elements) = order.layout.elements() else { return invalid("too many parameters") };
    if !order.layout.is_ordered() {
        return invalid("a buffer before a trained parameter");
    }
    let mut names = HashSet::new();
    if !order.layout.0.iter().all(|p| names.insert(&p.name) && p.name != "__metadata__") {
        return invalid("a parameter name that is taken");
    }
    if order.shard.0 as usize >= order.shards.len() {
        return invalid("a shard number beyond the shards");
    }
    if order.clip_norm.is_some_and(|norm| !(norm.is_finite() && norm > 0.0)) {
        return invalid("a norm to clip to that is no positive number");
    }
    match order.optimizer.fault() {
        Some(fault) => invalid(&fault),
        None => Ok(elements),
    }
}

/// The blob from the first shard that has it, positioned at the first byte of `part`.
fn open_source(shared: &Shared, order: &OpenJob, part: BlobRange) -> Result<Box<dyn Read>, ShardFault> {
    if let Some(total) = shared.blobs.stat(&part.digest)? {
        let path = shared.blobs.path(&part.digest);
        let io = |e: io::Error| disk_fault("read", &path, &e);
        let mut file = File::open(&path).map_err(io)?;
        let mut start = [0; 8];
        file.read_exact(&mut start[..total.min(8) as usize]).map_err(io)?;
        let offset = data_offset(total, start, part.elements)?;
        file.seek(SeekFrom::Start(offset + part.range.start * 4)).map_err(io)?;
        return Ok(Box::new(file));
    }
    let mut unreachable = None;
    for address in &order.shards {
        match open_peer_source(shared, address, part) {
            Ok(Some(link)) => return Ok(Box::new(link.into_body())),
            Ok(None) => {}
            Err(LinkError::Fault(fault)) => return Err(fault),
            Err(error) => unreachable = Some((address, error)),
        }
    }
    match unreachable {
        Some((address, error)) => Err(ShardFault::PeerAway {
            digest: order.initial.clone(),
            address: address.clone(),
            cause: error.into_error(address).to_string(),
        }),
        None => Err(ShardFault::MissingBlob { digest: order.initial.clone() }),
    }
}

fn open_peer_source(shared: &Shared, address: &str, part: BlobRange) -> Result<Option<Link>, LinkError> {
    let BlobRange { digest, elements, range } = part;
    let mut link = Link::open(address, &shared.token, PEER_LIMIT)?;
    let Some(total) = link.stat_blob(digest)? else { return Ok(None) };
    let mut start = [0; 8];
    let head = total.min(8);
    link.ask_blob(digest, 0, head)?;
    link.read_body(&mut start[..head as usize])?;
    let offset = data_offset(total, start, elements).map_err(LinkError::Fault)?;
    link.ask_blob(digest, offset + range.start * 4, range.len() * 4)?;
    Ok(Some(link))
}

/// Where the values begin: at once in a blob of plain values, behind its header in one of our snapshots, which
/// keeps them in layout order too. Anything else has the wrong length.
fn data_offset(total: u64, start: [u8; 8], elements: u64) -> Result<u64, ShardFault> {
    let data = elements * size_of::<f32>() as u64;
    let header = u64::from_le_bytes(start);
    if total == data {
        return Ok(0);
    }
    if header <= MAX_SAFETENSORS_HEADER && total == 8 + header + data {
        return Ok(8 + header);
    }
    let what =
        format!("initial parameters of {total} bytes, expected {data}: the model and the layout differ");
    Err(ShardFault::Invalid { what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_begin_at_once_or_behind_a_snapshot_header() {
        assert_eq!(data_offset(40, [0; 8], 10), Ok(0));
        assert_eq!(data_offset(40 + 8 + 64, 64u64.to_le_bytes(), 10), Ok(72));
        assert!(data_offset(41, [0; 8], 10).is_err());
        assert!(data_offset(40 + 8 + 64, 65u64.to_le_bytes(), 10).is_err());
    }
}
