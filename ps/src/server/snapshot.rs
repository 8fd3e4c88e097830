//! One safetensors file from the parts of all shards.
//!
//! The format lets us choose the order of the data, so the file is a header and then the flat array as it lies:
//! it is streamed through, no machine holds the model twice, and it can be read by range like an initial blob. The
//! file is kept as a blob too: a new generation opens with the snapshot's digest as its initial parameters.

use std::{collections::BTreeMap, io, time::Duration};

use safetensors::tensor::{Dtype, TensorInfo};
use syncline_rpc::{JobFolders, ShardFault, SnapshotFile};
use syncline_scheduler::{
    ids::{Incarnation, Name, RunId},
    spec::ElementRange,
};

use super::{
    Shared, blob_mirror,
    blobs::{PendingFile, disk_fault},
    checkpoints::{folder_name, make_durably},
};
use crate::{
    client::{Link, LinkError, unexpected_reply},
    codec::Codec,
    shard::{JobShard, ReadCondition},
    tensor_header::tensor_header,
    wire::{Reply, Request, SessionKey},
};

/// Shards pull from each other under this name; no worker ever has it.
pub(super) const SHARD_ITSELF: Incarnation = Incarnation(u64::MAX);
/// Bounds every wait for a peer's next bytes. Its barrier may close a little later than ours.
const PEER_LIMIT: Duration = Duration::from_secs(30);
const PIECE_BYTES: usize = 1 << 20;

/// Writes pinned version `version` of the whole job as `snapshots/<job>-<nonce>/<name>.safetensors`; without a version the
/// latest values, each chunk as it is when its turn comes.
pub(super) fn write(
    shared: &Shared,
    run: &RunId,
    version: Option<u64>,
    name: &str,
) -> Result<SnapshotFile, ShardFault> {
    let name: Name = name.parse().map_err(|e| ShardFault::Invalid { what: format!("snapshot name: {e}") })?;
    let shard = shared.jobs.find(run)?;
    let condition = match version {
        Some(version) if shard.version() < version => {
            return Err(ShardFault::NotPinned { job: run.job.clone(), wanted: version });
        }
        Some(version) => ReadCondition::Pinned(version),
        None => ReadCondition::version(0),
    };
    // A later job of the same name writes elsewhere.
    let dir = shared.state_dir.join(JobFolders::Snapshots.dir_name()).join(folder_name(run));
    make_durably(&dir).map_err(|e| disk_fault("make", &dir, &e))?;
    let path = dir.join(format!("{name}.safetensors"));
    let mut file = shared.blobs.begin_in(&dir)?;
    file.write(&header(&shard, version.unwrap_or_else(|| shard.version()))?)?;
    let count = shard.shards().len() as u32;
    let elements = shard.layout().elements().unwrap_or(0);
    for (index, address) in (0..).zip(&shard.shards()) {
        let range = ElementRange::of_shard(elements, index, count);
        if range == shard.range() {
            match shard.wait_readable(SHARD_ITSELF, condition, || true)?.pinned {
                Some(values) => file.write(bytemuck::cast_slice(&values))?,
                None => file.write(bytemuck::cast_slice(&shard.copy_values()))?,
            }
        } else {
            append_part(shared, &shard, address, range, condition, &mut file)?;
        }
    }
    let (digest, bytes) = file.digest();
    file.finish(&path)?;
    shared.blobs.link(&digest, &path).map_err(|e| disk_fault("link", &path, &e))?;
    blob_mirror::send_to_standby(shared, digest);
    Ok(SnapshotFile {
        path: path.display().to_string(),
        bytes,
        digest: blake3::Hash::from_bytes(digest).to_hex().to_string(),
    })
}

/// The file's first bytes: names, shapes and offsets in layout order, padded to eight bytes.
fn header(shard: &JobShard, version: u64) -> Result<Vec<u8>, ShardFault> {
    let about = BTreeMap::from([
        ("job", shard.job().to_string()),
        ("generation", shard.run().generation.0.to_string()),
        ("version", version.to_string()),
    ]);
    let info = |range: ElementRange, shape: &[u64]| TensorInfo {
        dtype: Dtype::F32,
        shape: shape.iter().map(|&d| d as usize).collect(),
        data_offsets: (range.start as usize * 4, range.end as usize * 4),
    };
    let tensors = shard.layout().ranges().map(|(p, range)| (p.name.clone(), info(range, &p.shape))).collect();
    let invalid =
        |e: String| ShardFault::Invalid { what: format!("no safetensors header for this layout: {e}") };
    let mut json = tensor_header(&about, tensors).map_err(invalid)?;
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut json);
    Ok(bytes)
}

/// Streams another shard's part into the file.
fn append_part(
    shared: &Shared,
    shard: &JobShard,
    address: &str,
    range: ElementRange,
    condition: ReadCondition,
    file: &mut PendingFile,
) -> Result<(), ShardFault> {
    let session = SessionKey { run: shard.run().clone(), incarnation: SHARD_ITSELF };
    let copy = || -> Result<(), LinkError> {
        let mut link = Link::open(address, &shared.token, PEER_LIMIT)?;
        link.set_read_timeout(Some(PEER_LIMIT))?;
        link.ask(&Request::Pull { session, condition, codec: Codec::Plain })?;
        let mut left = match link.answer()? {
            (Reply::Pulled { .. }, body) if body == range.len() * 4 => body as usize,
            (reply, _) => return Err(unexpected_reply(&reply)),
        };
        let mut piece = vec![0; PIECE_BYTES.min(left)];
        while left > 0 {
            let part = left.min(PIECE_BYTES);
            link.read_body(&mut piece[..part])?;
            file.write(&piece[..part]).map_err(LinkError::Fault)?;
            left -= part;
        }
        Ok(())
    };
    copy().map_err(|error| match error {
        LinkError::Fault(fault) => fault,
        other => ShardFault::Io {
            what: format!("cannot fetch the part of shard {address}"),
            cause: io::Error::other(other.into_error(address)).to_string(),
        },
    })
}
