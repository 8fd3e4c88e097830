//! Threads and runtimes at a limit on processes, where the standard library and Tokio panic, and locks that
//! threads share.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{Builder, JoinHandle, Scope, ScopedJoinHandle},
    time::Duration,
};

use tokio::runtime::{self, Runtime};

/// The system gives this process no further thread.
#[derive(Debug, thiserror::Error)]
#[error("[E595] no thread for {what}: {source}")]
pub struct NoThread {
    /// Name of the thread.
    pub what: String,
    /// What the system said.
    pub source: io::Error,
}

impl NoThread {
    /// What the user can do about it.
    pub const HINT: &str = "raise the limit on processes and threads of this user or container (`ulimit -u`, pids.max, --pids-limit, \
                            TasksMax), or run fewer of them there; memory that is short does the same";

    /// The stable code, see docs/errors.md.
    pub fn code(&self) -> &'static str {
        "E595"
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        Some(Self::HINT.to_owned())
    }

    /// Whether that is what lies behind `error`.
    pub fn is_behind(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

impl From<NoThread> for io::Error {
    fn from(error: NoThread) -> Self {
        Self::new(error.source.kind(), error)
    }
}

/// Locks; what a panicking thread left behind is still whole, because no code under our locks can panic half
/// way.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread of this name.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, NoThread> {
    start(Builder::new(), name, |thread| thread.spawn(work))
}

/// Starts a thread of this name whose stack has room for so much; what is not used costs no memory.
pub fn spawn_with_stack<T: Send + 'static>(
    name: &str,
    stack_bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, NoThread> {
    start(Builder::new().stack_size(stack_bytes), name, |thread| thread.spawn(work))
}

/// Starts a thread of this name that may borrow what outlives `scope`.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, NoThread> {
    start(Builder::new(), name, |thread| thread.spawn_scoped(scope, work))
}

/// Builds a runtime that has so many threads of its own, unless the system does not give them, and one for
/// what blocks.
pub fn runtime(runtime: &mut runtime::Builder, own: usize) -> io::Result<Runtime> {
    // Tokio does not say that it got none: it panics. So as many are there at the same time before.
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock();
    let waiting: Result<Vec<_>, _> = (0..=own)
        .map(|_| {
            let gate = gate.clone();
            spawn("the runtime", move || drop(gate.lock()))
        })
        .collect();
    drop(closed);
    waiting?.into_iter().for_each(|thread| drop(thread.join()));
    runtime.enable_all().build()
}

/// As [`runtime()`], and the thread for what blocks is there all the time: where Tokio has one it lets what
/// blocks wait at the limit, and panics where it has none, as under who looks up a name. Whichever others are
/// begun stay as well: for a runtime on which little blocks.
pub fn runtime_with_blocking_thread(runtime: &mut runtime::Builder, own: usize) -> io::Result<Runtime> {
    // A century and more; a longer time may overflow.
    const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);
    let runtime = self::runtime(runtime.thread_keep_alive(FOREVER), own)?;
    drop(runtime.spawn_blocking(|| ()));
    Ok(runtime)
}

fn start<T>(
    thread: Builder,
    name: &str,
    spawn: impl FnOnce(Builder) -> io::Result<T>,
) -> Result<T, NoThread> {
    spawn(thread.name(name.to_owned())).map_err(|source| NoThread { what: name.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_runtime_is_built_where_there_are_threads_for_it() {
        let mut two = runtime::Builder::new_multi_thread();
        let answer = runtime(two.worker_threads(2), 2).unwrap().block_on(async { 7 });
        assert_eq!(answer, 7);
    }

    #[test]
    fn threads_for_what_blocks_stay() {
        let (mut builder, stopped) = (runtime::Builder::new_current_thread(), Arc::new(AtomicUsize::new(0)));
        let count = stopped.clone();
        builder
            .thread_keep_alive(Duration::ZERO)
            .on_thread_stop(move || _ = count.fetch_add(1, Ordering::SeqCst));
        let runtime = runtime_with_blocking_thread(&mut builder, 0).unwrap();
        (0..100).for_each(|_| runtime.block_on(runtime.spawn_blocking(|| ())).unwrap());
        assert_eq!(stopped.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_thread_that_the_system_does_not_give_is_an_error_with_its_code_and_the_limit_to_raise() {
        // No system has room for such a stack, and says what it says at the limit on processes.
        let thread = Builder::new().stack_size(1 << 60);
        let error = start(thread, "executor", |thread| thread.spawn(|| ())).unwrap_err();
        assert!(error.to_string().starts_with("[E595] no thread for executor: "), "{error}");
        assert!(error.hint().unwrap().contains("pids.max"));
        let error = io::Error::from(error);
        assert!(NoThread::is_behind(&error));
        assert!(!NoThread::is_behind(&io::Error::other("refused")));
    }
}
