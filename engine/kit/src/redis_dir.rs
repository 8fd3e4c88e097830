//! The folder of a Redis server: its password, configuration, log and lock.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{KitError, password::Password, private_file::write_private};

/// How long a predecessor on the same directory may take to end.
const PREDECESSOR_LIMIT: Duration = Duration::from_secs(3);
/// More than a server says before it listens.
const STARTING_BYTES: u64 = 1 << 20;

/// Makes the folder for its owner alone; one that is there, from an earlier release perhaps, is closed to
/// others.
pub(crate) fn make_private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    fs::set_permissions(dir, Permissions::from_mode(0o700))
}

pub(crate) fn password_path(dir: &Path) -> PathBuf {
    dir.join("password")
}

/// Writes the configuration that the server reads at its start.
pub(crate) fn configure(dir: &Path, password: &Password) -> Result<(), KitError> {
    let path = config_path(dir);
    write_private(&path, &format!("requirepass {}\n", password.reveal()))
        .map_err(KitError::io("write", &path))
}

pub(crate) fn config_path(dir: &Path) -> PathBuf {
    dir.join("redis.conf")
}

pub(crate) fn log_path(dir: &Path) -> PathBuf {
    dir.join("redis.log")
}

/// The lock of a data directory. The server inherits it and is its only holder once it runs: so it is the
/// server's end that lets a successor in, even when the starter was killed before.
pub(crate) fn lock(dir: &Path) -> Result<File, KitError> {
    let path = dir.join("redis.lock");
    let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = open.map_err(KitError::io("open", &path))?;
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => return Ok(file),
            Err(TryLockError::Error(e)) => return Err(KitError::io("lock", &path)(e)),
            Err(TryLockError::WouldBlock) if since.elapsed() > PREDECESSOR_LIMIT => {
                return Err(KitError::DirInUse { dir: dir.into() });
            }
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Whether the server that logs since `start` has its port, and nobody else can have it. Every server that we
/// take says so before it reads its data, which may last.
pub(crate) fn has_port(log: &Path, start: u64) -> bool {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(STARTING_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let logged = read().unwrap_or_default();
    let logged = String::from_utf8_lossy(&logged);
    ["Server initialized", "Ready to accept connections"].iter().any(|said| logged.contains(said))
}
