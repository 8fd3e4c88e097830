//! The limit on open files, which is low by default.

/// Lets this process, and those that it starts, open as many files as the system's administrator allows. Shells and service managers
/// often begin with 1,024, so that programs which use `select` do not overrun their tables; nothing here does, and each connection
/// and each mapped file is one.
pub fn open_as_many_files_as_allowed() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls read or write the one struct they are given, which outlives them. Where they fail the limit stays.
    #[expect(unsafe_code, reason = "the standard library knows no limits of processes")]
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}
