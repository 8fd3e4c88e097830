//! Files that cannot be read on this machine.

use std::path::PathBuf;
use syncline_scheduler::ids::ContentDigest;

use super::super::remote::how_to_fetch;

/// Why files, or what is kept of them, are of no use on this machine: another one may read the same data
/// well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file cannot be read.
    #[error("[E330] cannot read {}: {source}", path.display())]
    Io {
        /// File as the job names it.
        path: PathBuf,
        /// What the system says, or what unpacking met.
        source: std::io::Error,
    },
    /// A file that stays on the disk, and was written into.
    #[error("[E619] {} is not as it was when this process looked through it", path.display())]
    Changed {
        /// File as the job names it.
        path: PathBuf,
    },
    /// The address of something that lies elsewhere.
    #[error("[E487] {url} is an address, and data is read from files")]
    Remote {
        /// Address with its scheme, such as `s3://bucket/key`.
        url: String,
    },
    /// Other bytes than the job was submitted with.
    #[error(
        "[E331] {files} holds other data than the job was submitted with: its digest begins with {}, not {}",
        start(*found),
        start(*expected)
    )]
    Digest {
        /// All files of the data set, with commas between.
        files: String,
        /// BLAKE3 of the files at submission.
        expected: ContentDigest,
        /// BLAKE3 of the files on this machine.
        found: ContentDigest,
    },
    /// More than the reader accepts.
    #[error("[E332] {} holds more than {limit} {unit}", path.display())]
    TooLarge {
        /// File as the job names it.
        path: PathBuf,
        /// Most that is read.
        limit: u64,
        /// What `limit` counts, such as `bytes`.
        unit: &'static str,
    },
    /// Numbers of a table that do not fit on the disk.
    #[error(
        "[E611] {} as numbers takes about {} MB in {}, and its disk has no room for them",
        path.display(),
        needed_bytes.div_ceil(1_000_000),
        folder.display()
    )]
    NoRoom {
        /// The first file of the table, as the job names it.
        path: PathBuf,
        /// Where they were to be kept.
        folder: PathBuf,
        /// Of all of them, as far as could be told.
        needed_bytes: u64,
    },
    /// A file or folder in which the numbers of a table are kept, and that fails.
    #[error("[E630] cannot keep {} as numbers in {}: {source}", path.display(), place.display())]
    TableCache {
        /// The first file of the table, as the job names it.
        path: PathBuf,
        /// What fails, in the user's cache.
        place: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A table that does not fit in memory, and no place for its numbers.
    #[error(
        "[E612] {} as numbers is kept on the disk, and none of SYNCLINE_CACHE, XDG_CACHE_HOME and HOME says where",
        path.display()
    )]
    NoCache {
        /// The first file of the table, as the job names it.
        path: PathBuf,
    },
}

impl FileError {
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "E330",
            Self::Changed { .. } => "E619",
            Self::Remote { .. } => "E487",
            Self::Digest { .. } => "E331",
            Self::TooLarge { .. } => "E332",
            Self::NoRoom { .. } => "E611",
            Self::TableCache { .. } => "E630",
            Self::NoCache { .. } => "E612",
        }
    }

    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => "every worker reads the data itself: the path must exist on its machine",
            Self::Changed { .. } => {
                "large files are read while the job runs: put back what was there, or submit the job again; write new data to another file"
            }
            Self::Remote { url } => how_to_fetch(url),
            Self::Digest { .. } => {
                "copy the same file to every machine, or submit the job again, which looks at the data anew"
            }
            Self::TooLarge { .. } => {
                "arrays in .npy, .npz (not compressed), safetensors and IDX files, in C order, and tables may be larger: they stay on the disk; else leave out what \
                 need not be there, or keep its numbers in fewer bytes, as uint8"
            }
            Self::NoRoom { .. } => "make room there, or name a folder on a larger disk by SYNCLINE_CACHE",
            Self::TableCache { .. } => {
                "name another folder by SYNCLINE_CACHE, which this user may write to and whose disk has locks and room: 2 bytes for each number of the \
                 table, or 8 where not all of its samples are integers of 16 bits"
            }
            Self::NoCache { .. } => "set one of the three, SYNCLINE_CACHE to a folder on a large disk",
        }
    }
}

/// As much of a digest as tells two apart.
fn start(digest: ContentDigest) -> String {
    digest.to_string().chars().take(8).collect()
}
