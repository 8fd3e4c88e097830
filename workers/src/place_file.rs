//! Files that are there as a whole or not at all.

use std::{
    fs::{self, Permissions},
    io::{self, ErrorKind, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use syncline_rpc::folder;

/// Writes a file under another name, brings it to disk and renames it: nobody reads half of it, and where
/// that fails what stood there is as it was. One that `replaces` another keeps its permissions. Of a link to
/// a file, that file is replaced. What cannot be replaced, a device, a pipe, or a file whose folder takes no
/// other, is written into.
///
/// # Errors
/// What the system says; `AlreadyExists` where something is there and it must not be replaced.
pub fn place_file(path: &Path, bytes: &[u8], replaces: bool) -> io::Result<()> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let there = path.metadata().ok().filter(|there| replaces && !there.is_dir());
    let Some(there) = there else { return place(&path, bytes, None, replaces) };
    if !there.is_file() {
        return fs::write(path, bytes);
    }
    place(&path, bytes, Some(there.permissions()), replaces).or_else(|error| match error.kind() {
        // The folder may not be written to, or the file is a mount of its own, as in a container.
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::ResourceBusy => {
            fs::write(&path, bytes)
        }
        _ => Err(error),
    })
}

fn place(path: &Path, bytes: &[u8], permissions: Option<Permissions>, replaces: bool) -> io::Result<()> {
    // In the same folder, so that it can be renamed.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut unfinished = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    if let Some(permissions) = permissions {
        unfinished.as_file().set_permissions(permissions)?;
    }
    unfinished.write_all(bytes)?;
    unfinished.as_file().sync_all()?;
    if replaces {
        unfinished.persist(path)?
    } else {
        unfinished.persist_noclobber(path)?
    };
    folder::sync_name(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_behind_links_and_keeps_its_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("out.onnx"), dir.path().join("link.onnx"));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        place_file(&file, b"first", false).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o400, 0o400);
        let refused = place_file(&file, b"second", false).unwrap_err();
        assert_eq!((refused.kind(), fs::read(&file).unwrap()), (ErrorKind::AlreadyExists, b"first".to_vec()));
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        // Whoever has it open reads on what it was: the file is another one.
        let before = file.metadata().unwrap().ino();
        let open = fs::File::open(&file).unwrap();
        place_file(&link, b"second", true).unwrap();
        assert_eq!(io::read_to_string(open).unwrap(), "first");
        let after = file.metadata().unwrap();
        assert_eq!(
            (fs::read(&file).unwrap(), after.permissions().mode() & 0o777),
            (b"second".to_vec(), 0o600)
        );
        assert_ne!(after.ino(), before);
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing unfinished is left");
    }

    #[test]
    fn a_folder_makes_way_for_no_file_and_a_device_is_written_into() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        place_file(&dir.path().join("folder"), b"x", true).unwrap_err();
        place_file(&dir.path().join("nowhere/x"), b"x", true).unwrap_err();
        place_file(Path::new("/dev/null"), b"x", true).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
