//! Unix sockets: a shard's second listener, for callers on the same machine and of the same user.
//!
//! The socket is a file with a random name in a folder that nobody else may enter, of all shards of a user
//! where they can. Only the shard tells the name, to who has greeted it over TCP; a file of that name is
//! therefore this shard's, or there is none.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use socket2::{Domain, SockAddr, Type};
use tracing::warn;

use super::{
    Socket, Transport,
    peer::{is_same_user_or_root, own_user},
    tcp::ask_buffers,
};

const BACKLOG: i32 = 1024;
const ENDING: &str = "sock";

/// The file of a listening socket, removed when dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Whether its folder goes with it.
    is_alone: bool,
}

impl SocketFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody who cleans the folder may have been faster.
        let _ = fs::remove_file(&self.path);
        if let (true, Some(folder)) = (self.is_alone, self.path.parent()) {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Listens on a new file in the user's own folder, from which files of shards that were killed are removed.
pub(crate) fn bind() -> io::Result<(socket2::Socket, SocketFile)> {
    bind_below(&socket_folder().take()?)
}

/// Where somebody else has made that folder, they keep nobody from a folder of another name.
fn bind_below(named: &Path) -> io::Result<(socket2::Socket, SocketFile)> {
    remove_left(named);
    match make_private(named) {
        Ok(()) => {
            remove_stale(named)?;
            bind_in(named)
        }
        Err(error) => {
            let mut alone = named.as_os_str().to_owned();
            alone.push(format!("-{:016x}", rand::random::<u64>()));
            let alone = PathBuf::from(alone);
            make_private(&alone)?;
            warn!(%error, taken = %alone.display(), "the folder for sockets is not ours: one of another name is taken");
            let (socket, mut file) = bind_in(&alone)?;
            file.is_alone = true;
            Ok((socket, file))
        }
    }
}

fn bind_in(folder: &Path) -> io::Result<(socket2::Socket, SocketFile)> {
    let name: u128 = rand::random();
    let unfinished = SocketFile { path: folder.join(format!("{name:032x}")), is_alone: false };
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // What is accepted does not inherit them, but is given them by `connected`.
    socket.bind(&SockAddr::unix(unfinished.path())?)?;
    socket.listen(BACKLOG)?;
    // It has its name only when it listens: who finds the name and nobody behind it may remove it.
    let file = SocketFile { path: unfinished.path().with_extension(ENDING), is_alone: false };
    fs::rename(unfinished.path(), file.path())?;
    Ok((socket, file))
}

/// Most bytes of the path of a unix socket, without the zero behind it.
pub const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Where a shard makes its unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketFolder {
    /// `None`: no path there would be short enough.
    pub dir: Option<PathBuf>,
    /// It would come first, and its path is too long.
    pub passed_over: Option<PathBuf>,
}

/// `$XDG_RUNTIME_DIR/syncline`, or a folder in the one for temporary files, where the path of a socket is
/// short enough.
pub fn socket_folder() -> SocketFolder {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_dir());
    let temporary = env::temp_dir().join(format!("syncline-{}", own_user()));
    SocketFolder::of(runtime.map(|dir| dir.join("syncline")).into_iter().chain([temporary]))
}

impl SocketFolder {
    /// The first of these that will do.
    fn of(candidates: impl Iterator<Item = PathBuf>) -> Self {
        let (mut dir, mut passed_over) = (None, None);
        for candidate in candidates {
            if Self::path_bytes(&candidate) <= MAX_SOCKET_PATH_BYTES {
                dir = Some(candidate);
                break;
            }
            passed_over.get_or_insert(candidate);
        }
        Self { dir, passed_over }
    }

    /// Of a socket in this folder, or in one beside it where somebody else has made it.
    pub fn path_bytes(folder: &Path) -> usize {
        let longest = "-0123456789abcdef/0123456789abcdef0123456789abcdef.".len() + ENDING.len();
        folder.as_os_str().len() + longest
    }

    /// # Errors
    /// Where there is none, with the variable to change.
    fn take(self) -> io::Result<PathBuf> {
        let length = |path: &Path| (path.display().to_string(), Self::path_bytes(path));
        match self {
            Self { dir: Some(dir), passed_over: None } => Ok(dir),
            Self { dir: Some(dir), passed_over: Some(long) } => {
                let (path, bytes) = length(&long);
                warn!(%path, bytes, most = MAX_SOCKET_PATH_BYTES, taken = %dir.display(), "the path in XDG_RUNTIME_DIR is too long for a socket");
                Ok(dir)
            }
            Self { dir: None, passed_over } => {
                let (path, bytes) = length(&passed_over.unwrap_or_default());
                let what = format!(
                    "a socket in {path} would have a path of {bytes} bytes, and {MAX_SOCKET_PATH_BYTES} are the most: name a shorter folder with XDG_RUNTIME_DIR, or TMPDIR"
                );
                Err(io::Error::new(ErrorKind::InvalidInput, what))
            }
        }
    }
}

fn make_private(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    check_private(folder, own_user())
}

/// Somebody else may have made the folder before us.
fn check_private(folder: &Path, user: u32) -> io::Result<()> {
    let about = fs::symlink_metadata(folder)?;
    if about.is_dir() && about.uid() == user && about.mode() & 0o077 == 0 {
        return Ok(());
    }
    let what = format!("{} is not a folder that its owner alone may enter, or is not ours", folder.display());
    Err(io::Error::new(ErrorKind::PermissionDenied, what))
}

/// Removes the folders of other names that shards had which were killed. One without a socket may be about to
/// get its own.
fn remove_left(named: &Path) {
    let (Some(parent), Some(name)) = (named.parent(), named.file_name().and_then(OsStr::to_str)) else {
        return;
    };
    let is_drawn = |file: &OsStr| {
        let drawn = file.to_str().and_then(|file| file.strip_prefix(name)?.strip_prefix('-'));
        drawn.is_some_and(|drawn| drawn.len() == 16 && drawn.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let folder = entry.path();
        if is_drawn(&entry.file_name())
            && check_private(&folder, own_user()).is_ok()
            && remove_stale(&folder).is_ok_and(|removed| removed > 0)
        {
            // Where another shard lives in it, it stays.
            let _ = fs::remove_dir(&folder);
        }
    }
}

/// Removes the files of sockets that nobody has open any more; how many.
fn remove_stale(folder: &Path) -> io::Result<usize> {
    // A datagram cannot be sent to a stream: one that lives says so, and its shard hears nothing of it.
    let probe = socket2::Socket::new(Domain::UNIX, Type::DGRAM, None)?;
    let mut removed = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let ours = entry.file_type()?.is_socket() && path.extension().is_some_and(|ending| ending == ENDING);
        let Ok(address) = SockAddr::unix(&path) else { continue };
        if ours && probe.connect(&address).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused) {
            removed += usize::from(fs::remove_file(&path).is_ok());
        }
    }
    Ok(removed)
}

/// Connects to a shard's socket. The peer is our user or root.
pub fn connect(path: &Path) -> io::Result<Socket> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("{} is no socket", path.display())));
    }
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // With a full backlog a blocking call would wait as long as the shard is stopped.
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)?;
    socket.set_nonblocking(false)?;
    if !is_same_user_or_root(&socket)? {
        return Err(io::Error::new(
            ErrorKind::PermissionDenied,
            "the process that listens there is another user's",
        ));
    }
    connected(socket)
}

/// A connected unix socket as the tensor connection needs it.
pub(super) fn connected(socket: socket2::Socket) -> io::Result<Socket> {
    // These are not tuned by the kernel: whatever it grants is better than what is there.
    ask_buffers(&socket)?;
    Ok(Socket::new(socket, Transport::Unix))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder(mode: u32) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        dir
    }

    #[test]
    fn a_socket_is_found_under_its_name_and_goes_with_its_owner() {
        let dir = folder(0o700);
        let (listener, file) = bind_in(dir.path()).unwrap();
        connect(file.path()).unwrap();
        listener.accept().unwrap();
        drop(file);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_sockets_that_nobody_listens_on_are_removed_and_those_who_listen_hear_nothing() {
        let dir = folder(0o700);
        let (listener, alive) = bind_in(dir.path()).unwrap();
        let (killed, left) = bind_in(dir.path()).unwrap();
        drop(killed);
        let notes = dir.path().join("notes.sock");
        fs::write(&notes, b"no socket").unwrap();
        remove_stale(dir.path()).unwrap();
        assert!(alive.path().exists() && notes.exists() && !left.path().exists());
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn a_folder_that_others_may_enter_or_own_holds_no_socket() {
        let user = own_user();
        assert!(check_private(folder(0o700).path(), user).is_ok());
        assert!(check_private(folder(0o755).path(), user).is_err());
        assert!(check_private(folder(0o700).path(), user + 1).is_err());
        let dir = folder(0o700);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(folder(0o700).path(), &link).unwrap();
        assert!(check_private(&link, user).is_err());
    }

    #[test]
    fn a_folder_whose_path_is_too_long_for_a_socket_is_passed_over_and_named() {
        let rest = SocketFolder::path_bytes(Path::new(""));
        let path = |name: &str, bytes: usize| {
            PathBuf::from(format!("/{name}{}", "x".repeat(bytes - 1 - name.len())))
        };
        let (fits, long) =
            (path("a", MAX_SOCKET_PATH_BYTES - rest), path("b", MAX_SOCKET_PATH_BYTES - rest + 1));
        let of = |candidates: [&PathBuf; 2]| SocketFolder::of(candidates.into_iter().cloned());
        assert_eq!(of([&fits, &long]), SocketFolder { dir: Some(fits.clone()), passed_over: None });
        let moved = of([&long, &fits]);
        assert_eq!(moved, SocketFolder { dir: Some(fits.clone()), passed_over: Some(long.clone()) });
        assert_eq!(moved.take().unwrap(), fits);
        let none = of([&long, &long]).take().unwrap_err().to_string();
        assert!(
            none.contains("108 bytes, and 107 are the most: name a shorter folder with XDG_RUNTIME_DIR"),
            "{none}"
        );
    }

    #[test]
    fn sockets_are_made_in_a_folder_of_the_longest_path_also_where_somebody_else_has_made_it() {
        let dir = folder(0o700);
        let room = MAX_SOCKET_PATH_BYTES - SocketFolder::path_bytes(dir.path()) - 1;
        let named = dir.path().join("x".repeat(room));
        assert_eq!(SocketFolder::path_bytes(&named), MAX_SOCKET_PATH_BYTES);
        fs::write(&named, b"").unwrap();
        let (_listener, file) = bind_below(&named).unwrap();
        connect(file.path()).unwrap();
    }

    #[test]
    fn whoever_makes_the_folder_first_keeps_no_shard_from_its_socket() {
        let dir = folder(0o700);
        let named = dir.path().join("syncline-1000");
        fs::write(&named, b"").unwrap();
        let (_listener, file) = bind_below(&named).unwrap();
        assert!(check_private(file.path().parent().unwrap(), own_user()).is_ok());
        connect(file.path()).unwrap();
        drop(file);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::remove_file(&named).unwrap();
        let (_listener, file) = bind_below(&named).unwrap();
        assert_eq!(file.path().parent(), Some(named.as_path()));
    }

    #[test]
    fn the_folder_of_a_shard_that_was_killed_goes_with_the_next_start_and_that_of_one_that_lives_stays() {
        let dir = folder(0o700);
        let named = dir.path().join("syncline-1000");
        let alone = |name: &str| {
            let folder = dir.path().join(name);
            make_private(&folder).unwrap();
            let (listener, file) = bind_in(&folder).unwrap();
            (folder, listener, file)
        };
        let (lives, _listener, _file) = alone("syncline-1000-00000000000000aa");
        let (left, killed, _left_file) = alone("syncline-1000-00000000000000bb");
        let (others, ended, _others_file) = alone("syncline-1000-of-somebody");
        let begins = dir.path().join("syncline-1000-00000000000000cc");
        make_private(&begins).unwrap();
        drop((killed, ended));
        let (_next, _next_file) = bind_below(&named).unwrap();
        assert_eq!([lives, left, others, begins].map(|folder| folder.exists()), [true, false, true, true]);
    }

    #[test]
    fn a_file_that_is_no_socket_is_not_connected_to() {
        let dir = folder(0o700);
        let file = dir.path().join("file");
        fs::write(&file, b"").unwrap();
        assert_eq!(connect(&file).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(connect(&dir.path().join("gone")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
