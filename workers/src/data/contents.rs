//! What a file holds: in memory, or, where it is large, left on the disk and read as it is needed.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::fs::Advice;

use super::error::{DataError, FileError};
use super::file::reserve;

/// By which the kind of a file is known.
const HEAD_BYTES: usize = 16;

/// A file that was read, or looked through.
#[derive(Debug)]
pub(super) enum Contents {
    InMemory(Vec<u8>),
    OnDisk(Arc<DiskFile>),
}

/// A file, and what it holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct DataFile<'a> {
    pub(super) path: &'a Path,
    pub(super) contents: &'a Contents,
}

/// A file that stays on the disk. Whoever reads of it is told if it is another one than it was when it was
/// opened.
#[derive(Debug)]
pub(super) struct DiskFile {
    path: PathBuf,
    file: File,
    state: State,
    /// Number of the system's error with which a [`ContentsReader`] could not read, or 0: formats only say
    /// that a file is not theirs.
    read_error: AtomicI32,
    /// Its first bytes, [`HEAD_BYTES`] at most.
    pub(super) head: Vec<u8>,
    /// Most bytes of one of its arrays that are read into memory.
    pub(super) most_in_memory: u64,
}

/// By which it is told that somebody writes into a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    bytes: u64,
    modified_s: i64,
    modified_ns: i64,
}

impl State {
    fn of(file: &File) -> io::Result<Self> {
        let about = file.metadata()?;
        Ok(Self { bytes: about.len(), modified_s: about.mtime(), modified_ns: about.mtime_nsec() })
    }
}

impl DiskFile {
    pub(super) fn new(path: &Path, file: File, most_in_memory: u64) -> io::Result<Self> {
        let (state, mut head) = (State::of(&file)?, vec![0; HEAD_BYTES]);
        let count = file.read_at(&mut head, 0)?;
        head.truncate(count);
        Ok(Self { path: path.to_owned(), file, state, read_error: AtomicI32::new(0), head, most_in_memory })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn bytes(&self) -> u64 {
        self.state.bytes
    }

    /// Fills `bytes` with those that begin at `start`; whether they are what they were,
    /// [`check_unchanged`](Self::check_unchanged) says behind it.
    pub(super) fn read_exact_at(&self, bytes: &mut [u8], start: u64) -> Result<(), DataError> {
        self.file.read_exact_at(bytes, start).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => self.changed(),
            _ => FileError::Io { path: self.path.clone(), source }.into(),
        })
    }

    /// Whether what was read so far is of the file that was opened. If a reader could not read, that is told.
    pub(super) fn check_unchanged(&self) -> Result<(), DataError> {
        let read_error = self.read_error.swap(0, Ordering::Relaxed);
        if read_error != 0 {
            let source = io::Error::from_raw_os_error(read_error);
            return Err(FileError::Io { path: self.path.clone(), source }.into());
        }
        let state =
            State::of(&self.file).map_err(|source| FileError::Io { path: self.path.clone(), source })?;
        if state == self.state { Ok(()) } else { Err(self.changed()) }
    }

    fn changed(&self) -> DataError {
        FileError::Changed { path: self.path.clone() }.into()
    }
}

#[cfg(test)]
impl DiskFile {
    /// The file at `path`, of which nothing can be read.
    pub(super) fn unreadable(path: &Path) -> Self {
        let mut unreadable = Self::new(path, File::open(path).unwrap(), 0).unwrap();
        unreadable.file = File::options().append(true).open(path).unwrap();
        unreadable
    }
}

impl DiskFile {
    /// Asks the system to fetch these bytes meanwhile; whether it does shows only in how long reading them
    /// takes.
    pub(super) fn read_ahead(&self, start: u64, bytes: u64) {
        let _ = rustix::fs::fadvise(&self.file, start, NonZeroU64::new(bytes), Advice::WillNeed);
    }

    /// So many bytes from `start` on, for which there is room in memory.
    pub(super) fn read(&self, start: u64, bytes: usize) -> Result<Vec<u8>, DataError> {
        let mut read = room(bytes, &self.path)?;
        self.read_exact_at(&mut read, start)?;
        Ok(read)
    }
}

impl Contents {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::InMemory(bytes) => bytes.len() as u64,
            Self::OnDisk(file) => file.bytes(),
        }
    }

    /// Whether these are its first bytes.
    pub(super) fn starts_with(&self, mark: &[u8]) -> bool {
        match self {
            Self::InMemory(bytes) => bytes.starts_with(mark),
            Self::OnDisk(file) => file.head.starts_with(mark),
        }
    }

    /// The file, if it stays on the disk.
    pub(super) fn on_disk(&self) -> Option<&Arc<DiskFile>> {
        match self {
            Self::InMemory(_) => None,
            Self::OnDisk(file) => Some(file),
        }
    }

    /// Its bytes from `start` on.
    pub(super) fn reader(&self, start: u64) -> ContentsReader<'_> {
        match self {
            Self::InMemory(bytes) => {
                let mut cursor = Cursor::new(bytes.as_slice());
                cursor.set_position(start);
                ContentsReader::InMemory(cursor)
            }
            Self::OnDisk(file) => ContentsReader::OnDisk { file, position: start },
        }
    }
}

/// So many bytes of memory for what is read of a file.
pub(super) fn room(bytes: usize, path: &Path) -> Result<Vec<u8>, DataError> {
    let mut room = Vec::new();
    reserve(&mut room, bytes, path)?;
    room.resize(bytes, 0);
    Ok(room)
}

/// Reads a file from one end to the other, or from where it is told to.
pub(super) enum ContentsReader<'a> {
    InMemory(Cursor<&'a [u8]>),
    OnDisk { file: &'a DiskFile, position: u64 },
}

impl ContentsReader<'_> {
    /// How many bytes are before the next one.
    pub(super) fn position(&self) -> u64 {
        match self {
            Self::InMemory(cursor) => cursor.position(),
            Self::OnDisk { position, .. } => *position,
        }
    }
}

impl Read for ContentsReader<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::InMemory(cursor) => cursor.read(bytes),
            Self::OnDisk { file, position } => {
                let read = file.file.read_at(bytes, *position);
                match &read {
                    Ok(count) => *position += *count as u64,
                    // It is read again.
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        file.read_error.store(error.raw_os_error().unwrap_or_default(), Ordering::Relaxed);
                    }
                }
                read
            }
        }
    }
}

impl Seek for ContentsReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (file, position) = match self {
            Self::InMemory(cursor) => return cursor.seek(to),
            Self::OnDisk { file, position } => (file, position),
        };
        let target = match to {
            SeekFrom::Start(start) => Some(start),
            SeekFrom::End(by) => file.bytes().checked_add_signed(by),
            SeekFrom::Current(by) => position.checked_add_signed(by),
        };
        *position = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(*position)
    }
}
