//! Other processes of this machine.

use std::{
    fs, process, thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// The parent of a process that is there.
pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

/// Sends a signal; `false` if the process is gone.
pub(crate) fn send_signal(pid: u32, signal: Signal) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
}

/// Longest wait for the end of what was killed.
const KILLED_LIMIT: Duration = Duration::from_secs(2);

/// Kills whatever this process has started and not waited for, and waits until it has ended. Where the system
/// does not tell, nothing.
pub(crate) fn kill_children() {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let children: Vec<u32> = pids.filter(|pid| parent_of(*pid) == Some(process::id())).collect();
    for pid in &children {
        send_signal(*pid, Signal::KILL);
    }
    let since = Instant::now();
    while children.iter().any(|pid| runs(*pid)) && since.elapsed() < KILLED_LIMIT {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process is there and has not ended.
pub(crate) fn runs(pid: u32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Whether a process stands still because of a signal, or for a debugger.
pub(crate) fn is_stopped(pid: u32) -> bool {
    matches!(state(pid), Some('T' | 't'))
}

/// The letter for what a process does, as proc(5) lists them.
fn state(pid: u32) -> Option<char> {
    behind_name(&stat(pid)?)?.chars().next()
}

/// What the system says of a process in one line.
pub(crate) fn stat(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/stat")).ok()
}

/// Processor time by the line of a process, in hundredths of a second: its own as user and as system, and the
/// same of its children that have ended.
pub(crate) fn cpu_ticks(stat: &str) -> Option<[u64; 4]> {
    let fields = behind_name(stat)?.split_whitespace().skip(11);
    let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).take(4).collect();
    ticks.try_into().ok()
}

/// The fields behind the name of a process, which comes second and may hold anything.
fn behind_name(stat: &str) -> Option<&str> {
    Some(stat.rsplit_once(") ")?.1)
}
