//! One safetensors file from the parts of all shards.
//!
//! The format lets us choose the order of the data, so the file is a header and then the flat array as it
//! lies: it is streamed through, no machine holds the model twice, and it can be read by range like an
//! initial blob. The file is kept as a blob too: a new generation opens with the snapshot's digest as its
//! initial parameters.

use std::{collections::BTreeMap, fs, io, path::Path, thread, time::Duration};

use syncline_rpc::{JobFolders, ShardFault, ShardPosition, SnapshotFile};
use syncline_scheduler::{
    ids::{ContentDigest, Incarnation, Name, RunId},
    spec::ElementRange,
};
use tracing::warn;

use super::{
    Shared,
    blob_check::{self, hash_of},
    blob_mirror,
    blobs::{PendingFile, disk_fault},
    checkpoints::{folder_name, make_durably},
    damaged_snapshot,
};
use crate::{
    client::{Link, LinkError, unexpected_reply},
    codec::Codec,
    shard::{JobShard, ReadCondition},
    tensor_header::weights_header,
    wire::{Reply, Request, SessionKey},
};

/// Shards pull from each other under this name; no worker ever has it.
pub(super) const SHARD_ITSELF: Incarnation = Incarnation(u64::MAX);
/// Bounds every wait for a peer's next bytes. Its barrier may close a little later than ours.
const PEER_LIMIT: Duration = Duration::from_secs(30);
const PIECE_BYTES: usize = 1 << 20;

/// Where parts of the latest values are of two versions they are read so many times more: what is on its way
/// comes, but where workers have gone in the middle of a push some shards never close its round.
const MORE_READINGS: u32 = 6;
const READING_PAUSE: Duration = Duration::from_millis(500);

/// How far a part was before and behind the reading of its values.
#[derive(Clone, Copy, PartialEq)]
struct PartVersions {
    before: u64,
    /// Newest version that a round went into; 0 for a pinned copy, which does not change.
    round_behind: u64,
}

/// Writes pinned version `version` of the whole job as `snapshots/<job>-<nonce>/<name>.safetensors`; without
/// a version the latest values: no round lies between any two of them, unless some shards never close the
/// last one.
pub(super) fn write(
    shared: &Shared,
    run: &RunId,
    version: Option<u64>,
    name: &str,
) -> Result<SnapshotFile, ShardFault> {
    let name: Name = name.parse().map_err(|e| ShardFault::Invalid { what: format!("snapshot name: {e}") })?;
    // A later job of the same name writes elsewhere.
    let dir = shared.state_dir.join(JobFolders::Snapshots.dir_name()).join(folder_name(run));
    let path = dir.join(format!("{name}.safetensors"));
    let shard = match shared.jobs.find(run) {
        // An engine that does not know any more that it was written asks once more.
        Err(ShardFault::Closed { .. } | ShardFault::UnknownJob { .. })
            if version.is_none() && path.exists() =>
        {
            return written_before(shared, &path);
        }
        found => found?,
    };
    let condition = match version {
        Some(version) if shard.version() < version => {
            return Err(ShardFault::NotPinned { job: run.job.clone(), wanted: version });
        }
        Some(version) => ReadCondition::Pinned(version),
        None => ReadCondition::version(0),
    };
    make_durably(&dir).map_err(|e| disk_fault("make", &dir, &e))?;
    let (mut file, mut parts) = write_parts(shared, &shard, condition, &dir)?;
    let mut unchanged = 0;
    for _ in 0..MORE_READINGS {
        // A round that nobody closes any more is not waited for.
        if !is_mixed(&parts) || unchanged == 2 {
            break;
        }
        // The disk may have room for one.
        drop(file);
        thread::sleep(READING_PAUSE);
        let before = parts;
        (file, parts) = write_parts(shared, &shard, condition, &dir)?;
        unchanged = if parts == before { unchanged + 1 } else { 0 };
    }
    if is_mixed(&parts) {
        warn!(job = %run.job, "the last round is in the values of some shards only, and in a snapshot of the latest ones");
    }
    let (digest, bytes) = file.digest();
    file.finish(&path)?;
    as_blob(shared, &path, digest, bytes)
}

fn written_before(shared: &Shared, path: &Path) -> Result<SnapshotFile, ShardFault> {
    let fault = |e| disk_fault("read", path, &e);
    let (digest, bytes) = (hash_of(path).map_err(fault)?, fs::metadata(path).map_err(fault)?.len());
    // Weights that a disk has damaged must not become those of the job.
    if let Some(written) = damaged_snapshot::written_digest(shared, path)?
        && written != digest
    {
        blob_check::check(shared, &written)?;
        let [path, aside] = [path, &damaged_snapshot::aside(path)].map(|path| path.display().to_string());
        return Err(ShardFault::DamagedSnapshot { path, aside });
    }
    as_blob(shared, path, digest, bytes)
}

fn as_blob(
    shared: &Shared,
    path: &Path,
    digest: ContentDigest,
    bytes: u64,
) -> Result<SnapshotFile, ShardFault> {
    shared.blobs.link(&digest, path).map_err(|e| disk_fault("link", path, &e))?;
    blob_mirror::send_to_standby(shared, digest);
    Ok(SnapshotFile { path: path.display().to_string(), bytes, digest })
}

/// Whether the newest round is in some of the values only.
fn is_mixed(parts: &[PartVersions]) -> bool {
    let oldest = parts.iter().map(|part| part.before).min().unwrap_or(0);
    let newest = parts.iter().map(|part| part.round_behind).max().unwrap_or(0);
    newest > oldest
}

/// Writes the parts of all shards.
fn write_parts(
    shared: &Shared,
    shard: &JobShard,
    condition: ReadCondition,
    dir: &Path,
) -> Result<(PendingFile, Vec<PartVersions>), ShardFault> {
    let mut file = shared.blobs.begin_in(dir)?;
    let mut parts = Vec::new();
    let version = match condition {
        ReadCondition::Pinned(version) => version,
        ReadCondition::Version { .. } => shard.version(),
    };
    file.write(&header(shard, version)?)?;
    let own = shard.position();
    for (index, address) in (0..).zip(&shard.shards()) {
        let position = ShardPosition { index, ..own };
        parts.push(match position == own {
            true => append_own(shard, condition, &mut file)?,
            false => append_part(shared, shard, (position, address), condition, &mut file)?,
        });
    }
    Ok((file, parts))
}

fn append_own(
    shard: &JobShard,
    condition: ReadCondition,
    file: &mut PendingFile,
) -> Result<PartVersions, ShardFault> {
    let grant = shard.wait_readable(SHARD_ITSELF, condition, || true)?;
    match &grant.pinned {
        Some(values) => file.write(bytemuck::cast_slice(values))?,
        None => append_latest(shard, file)?,
    }
    let round_behind = if grant.pinned.is_some() { 0 } else { shard.round_version() };
    Ok(PartVersions { before: grant.version, round_behind })
}

/// Writes the chunks as they are, each from a copy: a disk must not hold up those who push, nor the part lie
/// in memory twice.
fn append_latest(shard: &JobShard, file: &mut PendingFile) -> Result<(), ShardFault> {
    let mut copy = Vec::new();
    for index in 0..shard.chunk_count() {
        copy.clear();
        shard.read_chunks(index, 1, |chunks| copy.extend_from_slice(chunks[0]));
        file.write(bytemuck::cast_slice(&copy))?;
    }
    Ok(())
}

fn header(shard: &JobShard, version: u64) -> Result<Vec<u8>, ShardFault> {
    let about = BTreeMap::from([
        ("job", shard.job().to_string()),
        ("generation", shard.run().generation.0.to_string()),
        ("version", version.to_string()),
    ]);
    let invalid =
        |e: String| ShardFault::Invalid { what: format!("no safetensors header for this layout: {e}") };
    weights_header(&about, shard.layout()).map_err(invalid)
}

/// Streams another shard's part into the file.
fn append_part(
    shared: &Shared,
    shard: &JobShard,
    (position, address): (ShardPosition, &str),
    condition: ReadCondition,
    file: &mut PendingFile,
) -> Result<PartVersions, ShardFault> {
    let session = SessionKey { run: shard.run().clone(), incarnation: SHARD_ITSELF };
    let elements = shard.layout().elements().unwrap_or(0);
    let range = ElementRange::of_shard(elements, position.index, position.count);
    let copy = || -> Result<PartVersions, LinkError> {
        let mut link = Link::open_shard(address, position, &shared.token, PEER_LIMIT)?;
        link.set_read_timeout(Some(PEER_LIMIT))?;
        link.ask(&Request::Pull { session, condition, codec: Codec::Plain })?;
        let (before, mut left) = loop {
            match link.answer_or_sign()? {
                Some((Reply::Pulled { version, .. }, body)) if body == range.len() * 4 => {
                    break (version, body as usize);
                }
                Some((reply, _)) => return Err(unexpected_reply(&reply)),
                // It may wait for a barrier that it is never ordered.
                None if !shard.has_shard_at(position.index, address) => {
                    return Err(io::Error::other("another process serves that shard by now").into());
                }
                None => {}
            }
        };
        let mut piece = vec![0; PIECE_BYTES.min(left)];
        while left > 0 {
            let part = left.min(PIECE_BYTES);
            link.read_body(&mut piece[..part])?;
            file.write(&piece[..part]).map_err(LinkError::Fault)?;
            left -= part;
        }
        match link.answer()? {
            (Reply::PullEnd { round_version }, 0) => Ok(PartVersions { before, round_behind: round_version }),
            (reply, _) => Err(unexpected_reply(&reply)),
        }
    };
    copy().map_err(|error| match error {
        LinkError::Fault(fault) => fault,
        other => ShardFault::Io {
            what: format!("cannot fetch the part of shard {address}"),
            cause: io::Error::other(other.into_error(address)).to_string(),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use syncline_rpc::{OpenJob, ReplicaRole};
    use syncline_scheduler::{
        ids::{ContentDigest, Generation, ShardIndex},
        spec::{Layout, Optimizer, Parameter},
        sync::PushMode,
    };

    use super::{
        super::rig::{self, EPOCH, Two},
        *,
    };
    use crate::{
        shard::{PushHeader, PushedChunk},
        waiting::until,
    };

    const ELEMENTS: usize = 32;

    /// One of two shards of a job whose parameters are zeros.
    fn part(index: u32, shards: &[String]) -> Arc<JobShard> {
        let range = ElementRange::of_shard(ELEMENTS as u64, index, 2);
        let order = OpenJob {
            run: RunId { job: "digits".parse().unwrap(), generation: Generation(1) },
            shard: ShardIndex(index),
            shards: shards.to_vec(),
            layout: Layout(vec![Parameter::trained("w", vec![ELEMENTS as u64])]),
            optimizer: Optimizer::sgd(),
            clip_norm: None,
            initial: ContentDigest::LOWEST,
            resumed: None,
            checkpoint: None,
            known_through: None,
        };
        let zeros = [0.0f32; ELEMENTS];
        Arc::new(JobShard::read(&order, range, EPOCH, &mut bytemuck::cast_slice(&zeros)).unwrap())
    }

    /// A round of one push closes, which makes each value -1.
    fn close_round(shard: &JobShard) {
        let (worker, mode) = (Incarnation(1), PushMode::Accumulate);
        let header = PushHeader { learning_rate: 1.0, weight: 1.0, scale: 1.0, skip: false, mode, covers: 1 };
        let ones = vec![1.0; shard.range().len() as usize];
        let chunk = PushedChunk { worker, seq: 1, index: 0, header: &header, share: None };
        shard.apply(chunk, &ones).unwrap();
        shard.complete(worker, 1, &header).unwrap();
        shard.add_barrier(EPOCH, rig::round_of(worker)).unwrap();
    }

    /// Two shards, and the part of a job that each has.
    fn two_with_parts() -> (Two, [Arc<JobShard>; 2]) {
        let two = Two::new(|second| second.here = ShardPosition { index: 1, count: 2 });
        rig::follow_orders(&two.second, ReplicaRole::Primary { term: 1 }, None);
        let shards = [String::new(), two.address.clone()];
        let parts = [0, 1].map(|index| part(index, &shards));
        two.first.jobs.restore(parts[0].clone());
        two.second.jobs.restore(parts[1].clone());
        (two, parts)
    }

    #[test]
    fn the_latest_values_of_two_shards_are_of_one_version_where_a_round_closes_on_one_of_them_first() {
        let (two, [first, second]) = two_with_parts();
        let (own, peer) = (&two.first, &two.second);
        close_round(&second);
        let file = thread::scope(|scope| {
            let written = scope.spawn(|| write(own, first.run(), None, "last").unwrap());
            // The own part is read before the other is asked for.
            until("the other is asked", || peer.connections.accepted() > 0);
            close_round(&first);
            written.join().unwrap()
        });
        own.jobs.close(EPOCH, first.run()).unwrap();
        let again = write(own, first.run(), None, "last").unwrap();
        assert_eq!(again, file, "of an engine that forgot that it was written");
        assert!(write(own, first.run(), None, "other").is_err());
        let bytes = fs::read(file.path).unwrap();
        let values = &bytes[bytes.len() - ELEMENTS * 4..];
        assert!(values == bytemuck::cast_slice::<f32, u8>(&[-1.0; ELEMENTS]), "{values:?}");
    }

    #[test]
    fn a_part_is_not_awaited_of_a_process_that_serves_its_shard_no_more() {
        let (two, [first, _]) = two_with_parts();
        let (own, peer) = (&two.first, &two.second);
        close_round(&first);
        let fault = thread::scope(|scope| {
            let written = scope.spawn(|| write(own, first.run(), None, "last"));
            until("the other one waits for its round", || peer.connections.accepted() > 0);
            first.set_addresses(&[String::new(), "127.0.0.1:1".into()]);
            written.join().unwrap().unwrap_err()
        });
        assert_eq!(fault.code(), "E406");
    }
}
