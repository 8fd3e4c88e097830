//! Folders that only their owner may enter: what a cluster keeps is nobody else's business on a shared
//! machine.

use std::{
    fs::{self, DirBuilder, File, Metadata, Permissions},
    io::{
        self,
        ErrorKind::{InvalidInput, PermissionDenied, Unsupported},
    },
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// With less free room than this on the disk of a state directory people are told.
pub const LITTLE_DISK_BYTES: u64 = 1 << 30;
/// A disk with room for fewer files is nearly full as well.
pub const FEW_INODES: u64 = 1_000;

const PRIVATE: u32 = 0o700;
const STICKY: u32 = 0o1000;
const ROOT: u32 = 0;

/// What lies there may have been put there by somebody else, who could read or replace what we keep in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[E129] {} is not ours alone: {why}", path.display())]
pub struct NotOurs {
    /// The folder or file.
    pub path: PathBuf,
    /// What shows that.
    pub why: String,
}

impl NotOurs {
    /// What the user can do about it.
    pub const HINT: &str = "if nobody else has put anything there, `chmod go-w` it, or have it belong to you; else name another, one below your home";

    /// Whether that is what lies behind `error`.
    pub fn is_behind(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// Makes the folder, and those above it that are missing, with mode 0700. One that is there stays as it is:
/// it may have been named by the user and belong to others as well.
pub fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE).create(path)
}

/// Brings to disk that a file of this name is there, or there no more: after a power failure its folder may
/// else be as it was before. Where we may not read the folder, or its file system knows no such order, that is
/// left to the system.
pub fn sync_name(file: &Path) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(error) if !matches!(error.kind(), PermissionDenied | InvalidInput | Unsupported) => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Makes a folder for a cluster's secrets. Nobody but us and root may own it, or anything in it, and nobody
/// else may have the right to write there: a folder that stands where everybody may make one, such as /tmp,
/// may have been made for us to use. An empty one of ours, which many a umask lets the group write into, is
/// closed.
pub fn make_ours(path: &Path) -> io::Result<()> {
    make(path)?;
    let there = fs::metadata(path)?;
    let is_closable = there.uid() == effective_user() && there.mode() & STICKY == 0;
    if is_closable && foreign_writer(there.mode()).is_some() && fs::read_dir(path)?.next().is_none() {
        fs::set_permissions(path, Permissions::from_mode(PRIVATE))?;
    }
    check_ours(path)?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // What was there and went away meanwhile hinders nobody.
        let Ok(there) = fs::symlink_metadata(entry.path()) else { continue };
        if let Some(why) = foreign_owner(&there, effective_user()) {
            return Err(refused(&entry.path(), why));
        }
    }
    Ok(())
}

/// Refuses a folder or file that somebody else than us and root owns or may write into.
pub fn check_ours(path: &Path) -> io::Result<()> {
    check_ours_as(path, &fs::metadata(path)?)
}

/// The same, of what has been opened under this name.
pub(super) fn check_ours_as(path: &Path, there: &Metadata) -> io::Result<()> {
    let why = foreign_owner(there, effective_user()).or_else(|| foreign_writer(there.mode()));
    why.map_or(Ok(()), |why| Err(refused(path, why)))
}

fn refused(path: &Path, why: String) -> io::Error {
    io::Error::new(PermissionDenied, NotOurs { path: path.to_owned(), why })
}

fn foreign_owner(there: &Metadata, us: u32) -> Option<String> {
    let owner = there.uid();
    let is_foreign = owner != us && owner != ROOT;
    is_foreign.then(|| format!("it belongs to the user {owner}, and we are {us}"))
}

fn foreign_writer(mode: u32) -> Option<String> {
    (mode & 0o022 != 0).then(|| format!("others may write there, mode {:o}", mode & 0o7777))
}

fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Makes a folder that is ours alone: one that is there, from an earlier release perhaps, is closed to
/// others.
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

/// How much may still be written to the disk on which this is; `None`: the system does not tell.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    Some(disk.f_bavail * disk.f_frsize)
}

/// How many files and folders may still be made there; `None`: the system does not tell, or its file system
/// does not count them.
pub fn free_inodes(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    (disk.f_files > 0).then_some(disk.f_favail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_brought_to_disk_with_its_folder_also_where_that_may_only_be_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("out.onnx");
        sync_name(&file).unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o300)).unwrap();
        sync_name(&file).unwrap();
        sync_name(Path::new("in-the-present-folder")).unwrap();
        assert_eq!(sync_name(&file.join("x")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_others_own_or_may_write_into_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        make_ours(&state).unwrap();
        fs::write(state.join("token"), "").unwrap();
        let (there, us) = (fs::metadata(&state).unwrap(), effective_user());
        assert_eq!(foreign_owner(&there, us), None);
        if us != ROOT {
            let foreign = foreign_owner(&there, us + 1).unwrap();
            assert_eq!(foreign, format!("it belongs to the user {us}, and we are {}", us + 1));
        }
        for (mode, is_fine) in
            [(0o700, true), (0o755, true), (0o770, false), (0o777, false), (0o1777, false), (0o720, false)]
        {
            fs::set_permissions(&state, Permissions::from_mode(mode)).unwrap();
            let made = make_ours(&state).map_err(|error| error.to_string());
            let refused = format!(
                "[E129] {} is not ours alone: others may write there, mode {mode:o}",
                state.display()
            );
            assert_eq!(made, if is_fine { Ok(()) } else { Err(refused) });
        }
    }

    #[test]
    fn what_another_user_has_put_into_it_beforehand_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let token = dir.path().join("token");
        fs::write(&token, "").unwrap();
        // Only root can give a file away.
        if std::os::unix::fs::lchown(&token, Some(12_345), None).is_err() {
            return;
        }
        let us = effective_user();
        let refused = format!(
            "[E129] {} is not ours alone: it belongs to the user 12345, and we are {us}",
            token.display()
        );
        assert_eq!(make_ours(dir.path()).unwrap_err().to_string(), refused);
        assert_eq!(crate::Token::load_or_create(&token).unwrap_err().to_string(), refused);
    }

    #[test]
    fn an_empty_folder_of_ours_is_closed_unless_everybody_is_to_use_it() {
        let dir = tempfile::tempdir().unwrap();
        for (before, after) in [(0o775, 0o700), (0o777, 0o700), (0o1777, 0o777), (0o755, 0o755)] {
            fs::set_permissions(dir.path(), Permissions::from_mode(before)).unwrap();
            assert_eq!(make_ours(dir.path()).is_ok(), before != 0o1777, "{before:o}");
            assert_eq!(mode(dir.path()), after, "{before:o}");
        }
    }

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
