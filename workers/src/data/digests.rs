//! What files hold, in few bytes: all of a data set together, and each by itself where they are several.

use syncline_ps::content::digest_from;
use syncline_scheduler::{ids::ContentDigest, spec::DataSpec};

use super::error::{DataError, FileError};

/// BLAKE3 of the files of a data set as they lie on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDigests {
    /// Of all, one after the other.
    pub all: ContentDigest,
    /// Of each, where they are several.
    pub each: Vec<ContentDigest>,
}

impl FileDigests {
    /// Of each file, even where there is only one.
    pub(super) fn of_each(&self) -> &[ContentDigest] {
        if self.each.is_empty() { std::slice::from_ref(&self.all) } else { &self.each }
    }
}

/// The files that are read, one after the other.
pub(super) struct Hashes {
    all: blake3::Hasher,
    /// Of the file that is read; `None` where it is the only one.
    file: Option<blake3::Hasher>,
    each: Vec<ContentDigest>,
    /// Those that a note says each file has.
    noted: Option<Vec<ContentDigest>>,
    /// Whether one is a table that may be believed to have its own.
    pub(super) has_tables: bool,
}

impl Hashes {
    /// Of so many files.
    pub(super) fn of(files: usize) -> Self {
        let file = (files > 1).then(blake3::Hasher::new);
        Self { all: blake3::Hasher::new(), file, each: Vec::new(), noted: None, has_tables: false }
    }

    /// Of the files of this job, of which there is a note.
    pub(super) fn noted(spec: &DataSpec) -> Self {
        let all: Vec<ContentDigest> = spec.digest.into_iter().collect();
        let noted = if spec.file_digests.is_empty() { all } else { spec.file_digests.clone() };
        Self { file: Some(blake3::Hasher::new()), noted: Some(noted), ..Self::of(1) }
    }

    /// Whether the next file, which is a table that is not in memory, need not be read.
    pub(super) fn pass_over(&mut self) -> bool {
        self.has_tables = true;
        let noted = self.noted.as_ref().and_then(|noted| noted.get(self.each.len()));
        self.each.extend(noted.copied());
        noted.is_some()
    }

    /// Of all so far.
    pub(super) fn all(&self) -> ContentDigest {
        digest_from(self.all.finalize())
    }

    /// Bytes of the file that is read come next.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.all.update(bytes);
        if let Some(file) = &mut self.file {
            file.update(bytes);
        }
    }

    /// The file is over.
    pub(super) fn end_file(&mut self) {
        if let Some(file) = &mut self.file {
            self.each.push(digest_from(file.finalize()));
            file.reset();
        }
    }

    /// The digests, which must be those of the job, if it has some. Where it has one of each file, those that
    /// differ are named: that of all does not see where one ends and the next begins.
    pub(super) fn checked(self, spec: &DataSpec) -> Result<FileDigests, DataError> {
        // Where some were passed over, that of all is not known, and follows from those of each.
        let is_noted = self.noted.as_ref().is_some_and(|noted| *noted == self.each);
        let all = spec.digest.filter(|_| is_noted).unwrap_or_else(|| self.all());
        let each = if spec.paths().len() > 1 { self.each } else { Vec::new() };
        let found = FileDigests { all, each };
        let Some(expected) = spec.digest else { return Ok(found) };
        let (paths, known) = (spec.paths(), &spec.file_digests);
        let pairs = known.iter().zip(&found.each);
        let mut other = paths.iter().zip(pairs).filter(|(_, (known, found))| known != found);
        if known.len() == paths.len()
            && let Some((first, (expected, found))) = other.next()
        {
            let files: Vec<&str> = std::iter::once(*first).chain(other.map(|(path, _)| *path)).collect();
            let (files, expected, found) = (files.join(", "), *expected, *found);
            return Err(FileError::Digest { files, expected, found }.into());
        }
        match expected == found.all {
            true => Ok(found),
            false => Err(FileError::Digest { files: paths.join(", "), expected, found: found.all }.into()),
        }
    }
}
