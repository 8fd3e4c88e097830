//! A blob of the cluster, from the own disk or from a peer's, read piece by piece.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    time::Duration,
};
use syncline_scheduler::ids::ContentDigest;

use syncline_rpc::ShardFault;

use super::{Shared, blob_check, blobs::disk_fault};
use crate::{
    checkpoint_file::Piece,
    client::{Link, LinkError},
};

/// Bounds connecting to a peer and every wait for its bytes.
const PEER_LIMIT: Duration = Duration::from_secs(10);

/// An open blob.
pub(super) struct BlobSource {
    origin: Origin,
    bytes: u64,
    start: [u8; 8],
}

enum Origin {
    Disk(File),
    Peer { link: Box<Link>, digest: ContentDigest, address: String },
}

impl BlobSource {
    /// Opens the blob where it is found whole first: here, or on one of the shards at `addresses`. Whoever
    /// has it reads all of it before.
    pub(super) fn find(
        shared: &Shared,
        digest: ContentDigest,
        addresses: &[String],
    ) -> Result<Self, ShardFault> {
        if let Some(bytes) = blob_check::check(shared, &digest)? {
            let path = shared.blobs.path(&digest);
            let open = || Self::new(Origin::Disk(File::open(&path)?), bytes);
            return open().map_err(|e| disk_fault("read", &path, &e));
        }
        let mut unreachable = None;
        for address in addresses {
            match Self::ask_peer(shared, address, digest) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(LinkError::Fault(fault)) if !matches!(fault, ShardFault::SecondAway { .. }) => {
                    return Err(fault);
                }
                Err(error) => unreachable = Some((address, error)),
            }
        }
        match unreachable {
            Some((address, error)) => {
                let cause = error.into_error(address).to_string();
                Err(ShardFault::PeerAway { digest, address: address.clone(), cause })
            }
            None => Err(ShardFault::MissingBlob { digest }),
        }
    }

    fn ask_peer(shared: &Shared, address: &str, digest: ContentDigest) -> Result<Option<Self>, LinkError> {
        let mut link = Link::open(address, &shared.token, PEER_LIMIT)?;
        let Some(bytes) = link.find_whole_blob(digest)? else { return Ok(None) };
        let origin = Origin::Peer { link: Box::new(link), digest, address: address.to_owned() };
        Ok(Some(Self::new(origin, bytes)?))
    }

    fn new(origin: Origin, bytes: u64) -> io::Result<Self> {
        let mut source = Self { origin, bytes, start: [0; 8] };
        let mut start = [0; 8];
        let begin = Piece { offset: 0, bytes: bytes.min(start.len() as u64) };
        source.read(begin)?.read_exact(&mut start[..begin.bytes as usize])?;
        source.start = start;
        Ok(source)
    }

    /// All of its bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The first ones, as far as it has as many; zeros else.
    pub(super) fn start(&self) -> [u8; 8] {
        self.start
    }

    /// A piece, which must be read to its end before the next one is asked for.
    pub(super) fn read(&mut self, piece: Piece) -> io::Result<Box<dyn Read + '_>> {
        match &mut self.origin {
            Origin::Disk(file) => {
                file.seek(SeekFrom::Start(piece.offset))?;
                Ok(Box::new(file.take(piece.bytes)))
            }
            Origin::Peer { link, digest, address } => {
                let asked = link.ask_blob(*digest, piece.offset, piece.bytes);
                asked.map_err(|error| io::Error::other(error.into_error(address)))?;
                Ok(Box::new(link.channel().take(piece.bytes)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::{
        super::{rig::Two, role::RoleKeeper},
        *,
    };
    use crate::content::digest_of;

    #[test]
    fn a_blob_that_a_power_cut_has_torn_is_not_read_and_makes_room_for_a_whole_one() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        let digest = digest_of(b"whole");
        let path = shared.blobs.path(&digest);
        let find = || BlobSource::find(&shared, digest, &[]);
        std::fs::write(&path, "torn!").unwrap();
        assert_eq!(find().err().map(|fault| fault.code()), Some("E404"));
        assert!(!path.exists());
        std::fs::write(&path, "whole").unwrap();
        assert_eq!(find().unwrap().bytes(), 5);
    }

    #[test]
    fn a_large_blob_in_which_one_bit_is_flipped_is_neither_read_nor_kept() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        let whole = vec![0; 65 << 20];
        let digest = digest_of(&whole);
        let path = shared.blobs.path(&digest);
        std::fs::write(&path, whole).unwrap();
        let find = || BlobSource::find(&shared, digest, &[]);
        assert_eq!(find().unwrap().bytes(), 65 << 20);
        File::options().write(true).open(&path).unwrap().write_all_at(&[1], 40 << 20).unwrap();
        assert_eq!(find().err().map(|fault| fault.code()), Some("E404"));
        assert!(!path.exists());
    }

    #[test]
    fn a_blob_that_is_damaged_where_it_lies_is_not_read_from_there() {
        let two = Two::new(|second| second.role = RoleKeeper::open(&second.state_dir, 1).unwrap());
        let digest = digest_of(b"whole");
        let path = two.second.blobs.path(&digest);
        let addresses = [two.address.clone()];
        let find = || BlobSource::find(&two.first, digest, &addresses);
        std::fs::write(&path, "whole").unwrap();
        assert_eq!(find().unwrap().bytes(), 5);
        std::fs::write(&path, "whale").unwrap();
        assert_eq!(find().err().map(|fault| fault.code()), Some("E404"));
        assert!(!path.exists());
    }
}
