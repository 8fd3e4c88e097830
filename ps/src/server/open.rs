//! Loading this shard's part of the parameters when a job opens.

use std::{collections::HashSet, io};

use syncline_engine::rpc::{OpenJob, ShardFault};
use syncline_scheduler::{ids::EngineEpoch, spec::ElementRange};

use super::Shared;
use crate::{
    client::{Link, Trouble, digest_from_hex},
    shard::JobShard,
    wire::Digest,
};

/// Bounds connecting to a peer and every wait for its bytes.
const PEER_LIMIT: std::time::Duration = std::time::Duration::from_secs(10);
/// Longest header that the safetensors format allows.
const MAX_SAFETENSORS_HEADER: u64 = 100_000_000;

/// Checks the order and loads the initial values, from the own blobs or from a peer's.
pub(super) fn load(shared: &Shared, order: &OpenJob, epoch: EngineEpoch) -> Result<JobShard, ShardFault> {
    let elements = check(order)?;
    let range = ElementRange::of_shard(elements, order.shard.0, order.shards.len() as u32);
    let digest = digest_from_hex(&order.initial).map_err(|e| ShardFault::Invalid { what: e.to_string() })?;
    let mut values = Vec::new();
    let length = range.len() as usize;
    values.try_reserve_exact(length).map_err(|e| ShardFault::Io {
        what: format!("no memory for {length} parameters of job {}", order.job),
        cause: e.to_string(),
    })?;
    values.resize(length, 0.0f32);
    fetch(shared, order, digest, elements, range, bytemuck::cast_slice_mut(&mut values))?;
    Ok(JobShard::new(order, range, &values, epoch))
}

/// Elements of the layout, if the order makes sense.
fn check(order: &OpenJob) -> Result<u64, ShardFault> {
    let invalid = |what: &str| Err(ShardFault::Invalid { what: format!("{what} in the order for job {}", order.job) });
    let Some(elements) = order.layout.elements() else { return invalid("too many parameters") };
    let mut names = HashSet::new();
    if !order.layout.0.iter().all(|p| names.insert(&p.name) && p.name != "__metadata__") {
        return invalid("a parameter name that is taken");
    }
    if order.shard.0 as usize >= order.shards.len() {
        return invalid("a shard number beyond the shards");
    }
    match order.optimizer.fault() {
        Some(fault) => invalid(&fault),
        None => Ok(elements),
    }
}

fn fetch(
    shared: &Shared,
    order: &OpenJob,
    digest: Digest,
    elements: u64,
    range: ElementRange,
    into: &mut [u8],
) -> Result<(), ShardFault> {
    if let Some(total) = shared.blobs.stat(&digest)? {
        let mut start = [0; 8];
        shared.blobs.read_at(&digest, 0, &mut start[..total.min(8) as usize])?;
        let offset = data_offset(total, start, elements)?;
        return shared.blobs.read_at(&digest, offset + range.start * 4, into);
    }
    let mut unreachable = None;
    for address in &order.shards {
        match fetch_from(shared, address, digest, elements, range, into) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(Trouble::Fault(fault)) => return Err(fault),
            Err(trouble) => unreachable = Some((address, trouble)),
        }
    }
    match unreachable {
        Some((address, trouble)) => Err(ShardFault::Io {
            what: format!("cannot fetch blob {} from {address}", order.initial),
            cause: trouble.into_error(address).to_string(),
        }),
        None => Err(ShardFault::MissingBlob { digest: order.initial.clone() }),
    }
}

fn fetch_from(
    shared: &Shared,
    address: &str,
    digest: Digest,
    elements: u64,
    range: ElementRange,
    into: &mut [u8],
) -> Result<bool, Trouble> {
    let mut link = Link::open(address, &shared.token, PEER_LIMIT)?;
    let Some(total) = link.stat_blob(digest)? else { return Ok(false) };
    let mut start = [0; 8];
    let head = total.min(8);
    link.ask_blob(digest, 0, head)?;
    link.read_body(&mut start[..head as usize])?;
    let offset = data_offset(total, start, elements).map_err(Trouble::Fault)?;
    link.ask_blob(digest, offset + range.start * 4, into.len() as u64)?;
    link.read_body(into)?;
    Ok(true)
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
    let cause = io::Error::new(io::ErrorKind::InvalidData, "the model and the layout differ");
    let what = format!("initial parameters of {total} bytes, expected {data} ({cause})");
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
