//! Where measurements keep their files: one folder, which goes with the program however that ends.

use std::{
    env,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use syncline_rpc::threads;
use syncline_workers::process::{INTERRUPTED, StopSignal};

use crate::cli::{CliError, end_at_once, hold_end, support::processes::kill_children};

/// What is removed may be written to by a thread that does not know yet that all is over.
const MOST_TRIES: u32 = 50;
/// What stays away for so long is not made again.
const QUIET_FOR: Duration = Duration::from_millis(10);

/// Makes the folder in which all temporary files of this process lie from now on, until it is dropped, or
/// Ctrl-C or SIGTERM ends the process.
pub(super) fn scratch_folder() -> Result<ScratchFolder, CliError> {
    let path = env::temp_dir().join(format!("syncline-bench-{:016x}", rand::random::<u64>()));
    // SAFETY: no other thread is there yet that could read the environment.
    #[expect(
        unsafe_code,
        reason = "what is started from here on keeps its files there, too, its sockets among them"
    )]
    unsafe {
        env::set_var("TMPDIR", &path);
    }
    let (ready, is_ready) = mpsc::channel();
    let folder = path.clone();
    let waiting = threads::spawn("stop", move || end_when_told(&folder, &ready));
    waiting.map_err(|error| CliError::Runtime { source: error.into() })?;
    // Whoever interrupts from here on finds somebody who removes it.
    let _ = is_ready.recv();
    let private = DirBuilder::new().mode(0o700).create(&path);
    private.map_err(|source| CliError::Path { path: path.clone(), source })?;
    Ok(ScratchFolder(path))
}

/// Removed when it is dropped.
pub(super) struct ScratchFolder(PathBuf);

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Ends the process, without its files, when somebody wants that.
fn end_when_told(folder: &Path, ready: &mpsc::Sender<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let listening = runtime.as_ref().ok().and_then(|runtime| {
        // A second request changes nothing: this one is being done.
        let _within = runtime.enter();
        StopSignal::hearing_a_second(false).ok()
    });
    // Without a way to listen the process ends as the system ends it.
    let _ = ready.send(());
    if let (Ok(runtime), Some((mut stop, _second))) = (&runtime, listening) {
        runtime.block_on(stop.requested());
        let _ending = hold_end();
        // They would go on writing there, and what stands in the place of Python need not notice that nobody
        // listens.
        kill_children();
        remove(folder);
        end_at_once(INTERRUPTED);
    }
}

/// Removes a folder in which something may still be made.
fn remove(folder: &Path) {
    for _ in 0..MOST_TRIES {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            _ => {
                thread::sleep(QUIET_FOR);
                if !folder.exists() {
                    return;
                }
            }
        }
    }
}
