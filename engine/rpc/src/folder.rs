//! Folders that only their owner may enter: what a cluster keeps is nobody else's business on a shared machine.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
};

const PRIVATE: u32 = 0o700;

/// Makes the folder, and those above it that are missing, with mode 0700. One that is there stays as it is: it may have
/// been named by the user and belong to others as well.
pub fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE).create(path)
}

/// The same for a folder that is ours alone: one that is there, from an earlier release perhaps, is closed to others.
pub fn make_or_close(path: &Path) -> io::Result<()> {
    make(path)?;
    match others_may_enter(path) {
        true => fs::set_permissions(path, Permissions::from_mode(PRIVATE)),
        false => Ok(()),
    }
}

/// Whether its group, or everybody, has any right to it.
pub fn others_may_enter(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o077 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_made_is_private_and_what_was_there_is_closed_only_if_it_is_ours() {
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(0o755)).unwrap();

        let state = shared.join("a/b");
        make(&state).unwrap();
        assert_eq!((mode(&shared), mode(&shared.join("a")), mode(&state)), (0o755, 0o700, 0o700));
        make(&shared).unwrap();
        assert_eq!(mode(&shared), 0o755);
        make_or_close(&shared).unwrap();
        assert_eq!(mode(&shared), 0o700);
    }
}
