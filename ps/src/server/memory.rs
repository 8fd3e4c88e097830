//! Memory that jobs had, back to the system. The C library keeps what is freed in pieces of a chunk's size, for each thread that ever
//! received some: a process that has served large jobs would look as large as all of them for as long as it lives.

use std::time::Duration;

use tokio::{task::spawn_blocking, time::sleep};

/// Connections let go of a job a moment after it is closed.
const AFTER: Duration = Duration::from_secs(5);

/// Gives back what is free a moment from now. Cost: milliseconds of one thread, during which its siblings may wait to allocate.
pub(super) fn give_back_soon() {
    tokio::spawn(async {
        sleep(AFTER).await;
        let _ = spawn_blocking(give_back).await;
    });
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the standard library has no name for it")]
fn give_back() {
    // SAFETY: it takes no pointer, and touches only what is free.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn give_back() {}
