//! A limit of the user on the size of files.

/// From now on a write beyond `ulimit -f` fails, in this process and those that it starts, as one to a full
/// disk does: it is told and tried again. Otherwise the first one would end the process. Call it before there
/// are other threads.
pub fn outlive_file_size_limit() {
    // SAFETY: no handler is installed that could run; the signal is ignored, and nobody else in this process
    // handles it.
    #[expect(unsafe_code, reason = "the standard library sets no dispositions of signals")]
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
