//! Files that are there as a whole or not at all.

use std::{
    fs::{self, Permissions},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use super::CliError;

/// Writes a file in place of what is there. Where that fails, that stays as it was, and whoever reads meanwhile sees the one or the
/// other.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    place(path, bytes, true).map_err(|source| CliError::Written { path: path.to_owned(), source })
}

/// The same; without `replaces` it fails where something is there.
pub(crate) fn place(path: &Path, bytes: &[u8], replaces: bool) -> io::Result<()> {
    // Of a link, the file behind it is replaced.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if replaces && path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        // A device or a pipe.
        return fs::write(path, bytes);
    }
    // In the same folder, so that it can be renamed.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut unfinished = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    unfinished.write_all(bytes)?;
    unfinished.as_file().sync_all()?;
    if replaces {
        unfinished.persist(&path)?
    } else {
        unfinished.persist_noclobber(&path)?
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_stays_where_it_cannot_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (file, folder) = (dir.path().join("loss.svg"), dir.path().join("folder"));
        replace(&file, b"first").unwrap();
        replace(&file, b"second").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"second");
        fs::create_dir(&folder).unwrap();
        for wrong in [&folder, &folder.join("none/loss.svg")] {
            assert!(replace(wrong, b"third").unwrap_err().to_string().starts_with("[E574]"));
        }
        assert!(place(&file, b"third", false).is_err());
        let mut left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(
            (left, fs::read(&file).unwrap()),
            (vec!["folder".into(), "loss.svg".into()], b"second".to_vec())
        );
    }
}
