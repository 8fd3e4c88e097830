//! Other processes of this machine.

use std::{
    fs,
    process::{self, Command, Stdio},
};

/// The parent of a process that is there.
pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

/// Sends a signal, by name; `false` if the process is gone.
pub(crate) fn signal(pid: u32, name: &str) -> bool {
    let sent =
        Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).stderr(Stdio::null()).status();
    sent.is_ok_and(|status| status.success())
}

/// Kills whatever this process has started and not waited for. Where the system does not tell, nothing.
pub(crate) fn kill_children() {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for pid in pids.filter(|pid| parent_of(*pid) == Some(process::id())) {
        signal(pid, "KILL");
    }
}
