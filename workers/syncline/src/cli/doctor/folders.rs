//! Folders beside the state directory that Syncline needs: the one for temporary files, and that of the sockets
//! of shards.

use std::{env, io::Write, path::Path};

use syncline_ps::transport::{MAX_SOCKET_PATH_BYTES, SocketFolder, socket_folder};
use syncline_rpc::folder;

use super::{Exit, Finding};

/// What one submission may write there at a time is a model, or a checkpoint that it goes on from.
const LITTLE_ROOM_BYTES: u64 = 256 << 20;
/// So much is written to see whether it can be.
const PROBE_BYTES: usize = 64 << 10;

pub(super) fn check() -> Vec<Finding> {
    let mut findings = vec![temporary(&env::temp_dir())];
    findings.extend(sockets(socket_folder()));
    findings
}

/// Whether models can be prepared there.
fn temporary(dir: &Path) -> Finding {
    const CHECK: &str = "temporary";
    let shown = dir.display();
    let written = tempfile::tempfile_in(dir).and_then(|mut file| file.write_all(&[0; PROBE_BYTES]));
    if let Err(error) = written {
        let hint = "models are prepared there by `submit`, `plan` and `model`, and pip fetches through it: make room, or name a folder that can \
                    be written with TMPDIR";
        return Finding::fail(CHECK, Exit::Usage, format!("{shown} cannot be written: {error}"), hint);
    }
    match folder::free_bytes(dir) {
        Some(free) if free < LITTLE_ROOM_BYTES => Finding::warn(
            CHECK,
            format!("{shown}, {:.1} MB free", free as f64 / 1e6),
            "a model that is submitted lies there meanwhile: make room, or name another folder with TMPDIR",
        ),
        Some(free) => Finding::ok(CHECK, format!("{shown}, {:.1} GB free", free as f64 / 1e9)),
        None => Finding::ok(CHECK, shown.to_string()),
    }
}

/// Where a shard that is started from here listens for workers of this machine; `None`: where it should.
fn sockets(found: SocketFolder) -> Option<Finding> {
    const CHECK: &str = "sockets";
    let too_long = |passed: &Path| {
        format!(
            "a socket in {} would have a path of {} bytes, and {MAX_SOCKET_PATH_BYTES} are the most",
            passed.display(),
            SocketFolder::path_bytes(passed)
        )
    };
    match found {
        SocketFolder { dir: Some(_), passed_over: None } => None,
        SocketFolder { dir: Some(dir), passed_over: Some(passed) } => Some(Finding::warn(
            CHECK,
            format!("{}: shards listen in {} instead", too_long(&passed), dir.display()),
            "nothing needs to be done; a shorter path in XDG_RUNTIME_DIR is used",
        )),
        SocketFolder { dir: None, passed_over } => Some(Finding::warn(
            CHECK,
            format!("{}: workers here reach shards over TCP", too_long(&passed_over.unwrap_or_default())),
            "name shorter folders with XDG_RUNTIME_DIR, or with TMPDIR where that is not set, to have them share memory",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Verdict, *};

    #[test]
    fn a_folder_for_temporary_files_that_takes_none_is_told_with_what_needs_it() {
        let dir = tempfile::tempdir().unwrap();
        assert_ne!(temporary(dir.path()).verdict, Verdict::Fail);
        let gone = temporary(&dir.path().join("gone"));
        assert_eq!(gone.verdict, Verdict::Fail);
        assert!(gone.found.contains("cannot be written") && gone.hint.contains("TMPDIR"), "{gone:?}");
    }

    #[test]
    fn a_path_that_is_too_long_for_a_socket_is_told_with_its_length_and_where_they_are_instead() {
        let (short, long) = (Path::new("/tmp/syncline-0"), Path::new("/run").join("x".repeat(100)));
        let folder = |dir: Option<&Path>, passed: Option<&Path>| SocketFolder {
            dir: dir.map(Path::to_owned),
            passed_over: passed.map(Path::to_owned),
        };
        assert!(sockets(folder(Some(short), None)).is_none());
        let moved = sockets(folder(Some(short), Some(&long))).unwrap();
        let bytes = SocketFolder::path_bytes(&long).to_string();
        assert!(
            moved.found.contains(&bytes) && moved.found.ends_with("shards listen in /tmp/syncline-0 instead")
        );
        let none = sockets(folder(None, Some(&long))).unwrap();
        assert!(none.found.contains("over TCP") && none.hint.contains("XDG_RUNTIME_DIR"), "{none:?}");
    }
}
