//! Where measurements keep their files: one folder, which goes with the program however that ends.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
};

use syncline_workers::process::StopSignal;
use tempfile::TempDir;

use crate::cli::{CliError, hold_end, support::processes::kill_children};

/// What a shell reports for a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;
/// What is removed may be written to by a process that does not know yet that all is over.
const MOST_TRIES: u32 = 10;

/// Makes the folder in which all temporary files of this process lie from now on, until it is dropped, or Ctrl-C or SIGTERM
/// ends the process.
pub(super) fn scratch_folder() -> Result<TempDir, CliError> {
    let cannot_use = |source| CliError::Path { path: std::env::temp_dir(), source };
    let folder = tempfile::Builder::new().prefix("syncline-bench-").tempdir().map_err(cannot_use)?;
    // Only the first who says so is heard: there is one measurement in a process.
    let _ = tempfile::env::override_temp_dir(folder.path());
    let path = folder.path().to_owned();
    let waiting = thread::Builder::new().name("stop".into()).spawn(move || end_when_told(path));
    waiting.map_err(|source| CliError::Runtime { source })?;
    Ok(folder)
}

/// Ends the process, without its files, when somebody wants that.
fn end_when_told(folder: PathBuf) {
    let listening = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        runtime.block_on(async {
            StopSignal::listen(false)?.requested().await;
            Ok(())
        })
    });
    // Without a way to listen the process ends as the system ends it.
    if listening.is_ok() {
        let _ending = hold_end();
        // They would go on writing there, and what stands in the place of Python need not notice that nobody listens.
        kill_children();
        remove(&folder);
        end_at_once();
    }
}

/// Ends the process without what is done at an orderly end: ONNX Runtime must not be taken down under threads that compute.
fn end_at_once() -> ! {
    // SAFETY: nothing is left to do; everything else of this process ends where it is.
    #[expect(unsafe_code, reason = "the standard library ends a process in order only, or with a core dump")]
    unsafe {
        libc::_exit(INTERRUPTED)
    }
}

fn remove(folder: &Path) {
    for _ in 0..MOST_TRIES {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            _ => return,
        }
    }
}
