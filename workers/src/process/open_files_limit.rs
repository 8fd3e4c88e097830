//! The limit on open files, which is low by default.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process, and those that it starts, open as many files as the system's administrator allows.
/// Shells and service managers often begin with 1,024, so that programs which use `select` do not overrun
/// their tables; nothing here does, and each connection and each mapped file is one.
pub fn open_as_many_files_as_allowed() {
    let limit = getrlimit(Resource::Nofile);
    // Where that fails the limit stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
