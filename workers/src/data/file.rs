//! Reading files: bounded, hashed, unpacked.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use syncline_scheduler::ids::ContentDigest;

use flate2::bufread::MultiGzDecoder;
use syncline_rpc::input;

use super::contents::{Contents, DiskFile, room};
use super::digests::Hashes;
use super::error::{DataError, FileError, FormatError};
use super::remote;

/// Largest file that is read, and the most that a packed file may unpack to.
pub const MAX_FILE_BYTES: u64 = 4 << 30;
/// Largest file of arrays, and of a table, whose numbers may stay on the disk.
pub const MAX_DISK_FILE_BYTES: u64 = 16 << 40;
/// Most numbers in one array of a data set that is in memory, and in one sample of any.
pub const MAX_ELEMENTS: u64 = 1 << 31;
/// Of so many bytes of a source's files all are read into memory, and of one of arrays that does not fit
/// there the arrays that do.
pub const MOST_IN_MEMORY_BYTES: u64 = 512 << 20;
/// So short ones are, however many there are before them.
pub const ALWAYS_IN_MEMORY_BYTES: u64 = 16 << 20;

/// Bytes that are read or unpacked between two steps.
pub(super) const STEP_BYTES: usize = 4 << 20;

/// Who follows the opening of a data set, and may end it with an error: called every [`STEP_BYTES`] that are
/// read or unpacked, and every few thousand samples. A file system that does not answer shows in that it is
/// not called.
pub(crate) type Step<'a> = dyn FnMut() -> io::Result<()> + 'a;

/// How much may be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    /// Most bytes of the next file, unpacked.
    pub left: u64,
    /// Most bytes of all files that count together, which people are told.
    pub total: u64,
    /// Most bytes of a file that is read into memory, where longer ones may stay on the disk.
    pub in_memory: Option<u64>,
    /// So short ones are, whatever is there before them.
    pub always_in_memory: u64,
    /// Whether that goes for packed ones, by their bytes unpacked.
    pub is_of_table: bool,
}

impl Limit {
    /// That of a file on its own.
    pub const FILE: Self = Self::of_files(MAX_FILE_BYTES);
    /// That of all files which become one array of bytes.
    pub const JOINED: Self = Self::of_files(MAX_ELEMENTS);

    /// That of a file of arrays, which stays on the disk if it has more bytes than these.
    pub fn of_arrays(in_memory: u64) -> Self {
        Self { always_in_memory: ALWAYS_IN_MEMORY_BYTES, is_of_table: false, ..Self::of_tables(in_memory) }
    }

    /// That of a table. Its files become one array, and it is no matter how many there are.
    pub fn of_tables(in_memory: u64) -> Self {
        Self { in_memory: Some(in_memory), is_of_table: true, ..Self::of_files(MAX_DISK_FILE_BYTES) }
    }

    const fn of_files(bytes: u64) -> Self {
        Self { left: bytes, total: bytes, in_memory: None, always_in_memory: 0, is_of_table: false }
    }

    /// That of a file which is read into memory.
    fn of_memory(self) -> Self {
        if self.in_memory.is_some() { Self::FILE } else { self }
    }

    /// The next file comes behind one of which so many bytes are in memory. What of all files is there counts
    /// together, but for small ones, as of labels, which always are.
    pub fn spend(&mut self, bytes: u64) {
        if let Some(left) = &mut self.in_memory {
            *left = (*left).min(left.saturating_sub(bytes).max(self.always_in_memory));
        }
    }

    fn exceeded(self, path: &Path) -> DataError {
        too_large(path, self.total, "bytes")
    }
}

/// What a file holds, unpacked if its name ends in `.gz`. Its bytes on the disk go into `hashes`. `mark`:
/// what a file of its source begins with, where another one would be called by its kind.
pub(super) fn read(
    path: &Path,
    mark: &[u8],
    limit: Limit,
    hashes: &mut Hashes,
    step: &mut Step<'_>,
) -> Result<Contents, DataError> {
    let failed = |source| FileError::Io { path: path.to_owned(), source };
    if let Some(url) = path.to_str().filter(|path| remote::is_url(path)) {
        return Err(FileError::Remote { url: url.to_owned() }.into());
    }
    let file = input::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let packed = is_packed(path);
    let limit_on_disk = if packed && !limit.is_of_table { Limit::FILE } else { limit };
    if length > limit_on_disk.left {
        return Err(limit_on_disk.exceeded(path));
    }
    if let Some(most) = limit_on_disk.in_memory.filter(|&most| packed || length > most) {
        let file = DiskFile::new(path, file, most).map_err(failed)?;
        let is_noted = limit.is_of_table && !packed && hashes.pass_over();
        if !is_noted {
            hash_on_disk(&file, hashes, step)?;
        }
        if packed {
            return unpacked_if_small(file, most, mark, step);
        }
        check_kind(&file.head, path, mark)?;
        return Ok(Contents::OnDisk(Arc::new(file)));
    }
    let bytes = read_bounded(file, length, limit_on_disk.of_memory(), path, step)?;
    for piece in bytes.chunks(STEP_BYTES) {
        hashes.update(piece);
        step().map_err(failed)?;
    }
    hashes.end_file();
    unpacked(bytes, packed, path, mark, limit.of_memory(), step).map(Contents::InMemory)
}

/// Whether a file is packed by gzip, by its name.
pub(crate) fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"))
}

/// A packed file of a table: what it holds, if that is so little; else it stays on the disk, packed.
fn unpacked_if_small(
    file: DiskFile,
    most: u64,
    mark: &[u8],
    step: &mut Step<'_>,
) -> Result<Contents, DataError> {
    let file = Arc::new(file);
    let contents = Contents::OnDisk(file.clone());
    // One that is larger packed shows its kind by its beginning.
    let most = if file.bytes() > most { file.head.len() as u64 } else { most };
    let text = MultiGzDecoder::new(BufReader::new(contents.reader(0))).take(most + 1);
    let bytes = read_bounded(text, 0, Limit::of_tables(most), file.path(), step)?;
    file.check_unchanged()?;
    check_kind(&bytes, file.path(), mark)?;
    Ok(if bytes.len() as u64 > most { contents } else { Contents::InMemory(bytes) })
}

/// BLAKE3 of a file that stays on the disk.
pub(super) fn digest(file: &DiskFile, step: &mut Step<'_>) -> Result<ContentDigest, DataError> {
    let mut hashes = Hashes::of(1);
    hash_on_disk(file, &mut hashes, step)?;
    Ok(hashes.all())
}

/// Looks through a file that stays on the disk.
fn hash_on_disk(file: &DiskFile, hashes: &mut Hashes, step: &mut Step<'_>) -> Result<(), DataError> {
    let mut piece = room(STEP_BYTES, file.path())?;
    for start in (0..file.bytes()).step_by(STEP_BYTES) {
        let piece = &mut piece[..(file.bytes() - start).min(STEP_BYTES as u64) as usize];
        file.read_exact_at(piece, start)?;
        hashes.update(piece);
        step().map_err(|source| FileError::Io { path: file.path().to_owned(), source })?;
    }
    hashes.end_file();
    file.check_unchanged()
}

/// The same of what came in another way; `path` is what it is called. It is unpacked if it begins as gzip
/// does.
pub(super) fn read_given(
    bytes: &[u8],
    path: &Path,
    mark: &[u8],
    hashes: &mut Hashes,
    step: &mut Step<'_>,
) -> Result<Contents, DataError> {
    if bytes.len() as u64 > Limit::FILE.left {
        return Err(Limit::FILE.exceeded(path));
    }
    hashes.update(bytes);
    hashes.end_file();
    let is_packed = bytes.starts_with(GZIP_MARK);
    unpacked(bytes.to_vec(), is_packed, path, mark, Limit::FILE, step).map(Contents::InMemory)
}

/// The bytes that a source reads, if they are of its kind.
fn unpacked(
    bytes: Vec<u8>,
    is_packed: bool,
    path: &Path,
    mark: &[u8],
    limit: Limit,
    step: &mut Step<'_>,
) -> Result<Vec<u8>, DataError> {
    let bytes = match is_packed {
        true => read_bounded(MultiGzDecoder::new(bytes.as_slice()), 0, limit, path, step)?,
        false => bytes,
    };
    check_kind(&bytes, path, mark)?;
    Ok(bytes)
}

/// Refuses what is known to be a file of another kind than that with this mark.
fn check_kind(bytes: &[u8], path: &Path, mark: &[u8]) -> Result<(), DataError> {
    let is_known = !mark.is_empty() && bytes.starts_with(mark);
    match foreign(bytes).filter(|_| !is_known) {
        Some(what) => {
            Err(FormatError::Malformed { path: path.to_owned(), reason: format!("it is {what}") }.into())
        }
        None => Ok(()),
    }
}

/// What a file of `numpy.save` begins with.
pub(super) const NPY_MARK: &[u8] = b"\x93NUMPY";
/// What a zip archive begins with, as files of `numpy.savez` are.
pub(super) const ZIP_MARK: &[u8] = b"PK\x03\x04";
/// What a file of gzip begins with.
const GZIP_MARK: &[u8] = b"\x1f\x8b\x08";

/// What a file is that its source does not read, by its first bytes, and how it is read nevertheless.
fn foreign(bytes: &[u8]) -> Option<&'static str> {
    const KINDS: [(&[u8], &str); 6] = [
        (NPY_MARK, "an array of numpy, as `source = { npy = { samples = ..., labels = ... } }` reads it"),
        (
            ZIP_MARK,
            "a zip archive: `source = { npz = { path = ... } }` reads it if it is a .npz of numpy; save arrays from a .pt or .xlsx with \
             numpy.savez",
        ),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file: save its arrays with numpy.savez, as docs/data.md shows"),
        (
            b"\x89PNG\r\n\x1a\n",
            "a PNG image: save all images as one array with numpy.savez, as docs/data.md shows",
        ),
        (
            b"\xff\xd8\xff",
            "a JPEG image: save all images as one array with numpy.savez, as docs/data.md shows",
        ),
        (GZIP_MARK, "packed by gzip: its name has to end in .gz"),
    ];
    const PARQUET: &[u8] = b"PAR1";
    if bytes.len() > 8 && bytes.starts_with(PARQUET) && bytes.ends_with(PARQUET) {
        return Some(
            "a Parquet file: save its columns as CSV (to_csv of pandas), or as arrays with numpy.savez, as docs/data.md shows",
        );
    }
    if is_utf16(bytes) {
        return Some(
            "text in UTF-16: save it in UTF-8, with `iconv -f UTF-16 -t UTF-8 FILE > NEW`, say, or from Excel as `CSV UTF-8`",
        );
    }
    KINDS.into_iter().find(|(mark, _)| bytes.starts_with(mark)).map(|(_, what)| what)
}

/// Whether these are a mark of UTF-16 and text: a safetensors file, which begins with the length of its
/// header in 8 bytes, has zeros there.
fn is_utf16(bytes: &[u8]) -> bool {
    const MARKS: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];
    let mut units = bytes.chunks_exact(2).take(4);
    MARKS.iter().any(|mark| bytes.starts_with(mark)) && units.all(|unit| unit != [0, 0])
}

/// Reads to the end; `expected` bytes are there, as far as is known.
fn read_bounded(
    reader: impl Read,
    expected: u64,
    limit: Limit,
    path: &Path,
    step: &mut Step<'_>,
) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::new();
    reserve(&mut bytes, usize::try_from(expected).unwrap_or(usize::MAX), path)?;
    let mut reader = reader.take(limit.left + 1);
    let mut read_piece = || -> io::Result<bool> {
        let read = reader.by_ref().take(STEP_BYTES as u64).read_to_end(&mut bytes)?;
        step()?;
        Ok(read > 0)
    };
    while read_piece().map_err(|source| FileError::Io { path: path.to_owned(), source })? {}
    match bytes.len() as u64 > limit.left {
        true => Err(limit.exceeded(path)),
        false => Ok(bytes),
    }
}

/// Makes room for so many more numbers of a file: a process whose memory is limited says which file was too
/// much, and other jobs of it go on, where a plain allocation would end it.
pub(super) fn reserve<T>(numbers: &mut Vec<T>, more: usize, path: &Path) -> Result<(), DataError> {
    numbers.try_reserve(more).map_err(|_| {
        let megabytes = (more.saturating_mul(size_of::<T>()) >> 20).max(1);
        let reason = format!("this process gets no memory for {megabytes} MB more");
        let source = io::Error::new(io::ErrorKind::OutOfMemory, reason);
        FileError::Io { path: path.to_owned(), source }.into()
    })
}

pub(super) fn too_large(path: &Path, limit: u64, unit: &'static str) -> DataError {
    FileError::TooLarge { path: PathBuf::from(path), limit, unit }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &Path) -> DataError {
        read(path, &[], Limit::FILE, &mut Hashes::of(1), &mut || Ok(())).unwrap_err()
    }

    #[test]
    fn a_file_for_which_there_is_no_memory_is_named() {
        let error = reserve(&mut Vec::<u64>::new(), usize::MAX >> 4, Path::new("all.csv")).unwrap_err();
        assert!(error.to_string().starts_with("[E330] cannot read all.csv: this process gets no memory for"));
    }

    #[test]
    fn files_of_a_source_share_the_memory_that_they_may_take_and_small_ones_are_always_there_table() {
        const MIB: u64 = 1 << 20;
        for (left, bytes, then) in [
            (512 * MIB, 400 * MIB, 112 * MIB),
            (112 * MIB, 112 * MIB, 16 * MIB),
            (16 * MIB, 16 * MIB, 16 * MIB),
            (100, 50, 100),
        ] {
            let mut limit = Limit::of_arrays(left);
            limit.spend(bytes);
            assert_eq!(limit.in_memory, Some(then), "{bytes} of {left}");
        }
    }

    #[test]
    fn files_of_other_kinds_are_called_by_name_and_a_table_that_begins_alike_is_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (bytes, what) in [
            (&b"PAR1\x15\x04\x15\x10PAR1"[..], "it is a Parquet file"),
            (b"\x93NUMPY\x01\0v\0{'descr': '<f4'}", "it is an array of numpy"),
            (b"PK\x03\x04\x14\0", "it is a zip archive"),
            (b"\x1f\x8b\x08\0", "it is packed by gzip: its name has to end in .gz"),
            (b"\xff\xfe1\0,\x002\0\n\0", "it is text in UTF-16: save it in UTF-8, with `iconv -f UTF-16"),
            (b"\xfe\xff\x001\0,\x002\0\n", "it is text in UTF-16: save it in UTF-8, with `iconv -f UTF-16"),
        ] {
            std::fs::write(file.path(), bytes).unwrap();
            let refused = refused(file.path());
            assert!(refused.code() == "E333" && refused.to_string().contains(what), "{refused}");
        }
        // The last two are safetensors, whose headers are as long.
        for bytes in [&b"PAR1,PAR2\n1,2\n"[..], b"\xfe\xff\0\0\0\0\0\0{}", b"\xff\xfe\x01\0\0\0\0\0{}"] {
            std::fs::write(file.path(), bytes).unwrap();
            assert!(read(file.path(), &[], Limit::FILE, &mut Hashes::of(1), &mut || Ok(())).is_ok());
        }
    }

    #[test]
    fn a_file_that_is_too_large_is_refused_by_its_size() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // A hole: takes no room, and would take this machine's memory if it were read.
        file.as_file().set_len(MAX_FILE_BYTES * 64).unwrap();
        assert_eq!(refused(file.path()).code(), "E332");
    }

    #[test]
    fn a_file_that_takes_more_than_is_left_is_refused_packed_or_not() {
        let dir = tempfile::tempdir().unwrap();
        let [plain, packed] = ["a.bin", "a.bin.gz"].map(|name| dir.path().join(name));
        std::fs::write(&plain, [7; 100]).unwrap();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut encoder, &[7; 100]).unwrap();
        std::fs::write(&packed, encoder.finish().unwrap()).unwrap();
        for path in [plain, packed] {
            let read = |left| {
                let limit = Limit { left, total: 400, ..Limit::FILE };
                read(&path, &[], limit, &mut Hashes::of(1), &mut || Ok(()))
            };
            assert!(matches!(read(100).unwrap(), Contents::InMemory(bytes) if bytes == [7; 100]));
            let error = read(99).unwrap_err();
            assert!(error.code() == "E332" && error.to_string().contains("400 bytes"), "{error}");
        }
    }

    #[test]
    fn an_address_is_called_one() {
        let error = refused(Path::new("s3://bucket/train.csv"));
        assert!(error.code() == "E487" && error.to_string().contains("s3://bucket/train.csv"), "{error}");
    }
}
