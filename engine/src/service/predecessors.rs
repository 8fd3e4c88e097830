//! Workers whose process has ended on this machine, and in whose place another one has come, as where all of
//! a cluster was killed and is started anew. A new engine waits long for the workers of the one before
//! ([`super::sessions`]); these it need not wait for.

use std::{fs, io::ErrorKind, path::Path};

use syncline_scheduler::{core::WorkerInfo, ids::Incarnation};

/// Those of `unheard` that are gone, each with the reason, now that `newcomer` is there: `is_over` says of a
/// process of this machine, which is called `here`, whether it has ended. `unheard` are workers of the engine
/// before that have not called this one.
///
/// A name need not be unique, nor that of a machine, and behind one there may be containers that do not see
/// each other's processes: only all of that together says that somebody has come in place of another.
pub(super) fn replaced(
    unheard: impl FnOnce() -> Vec<(Incarnation, WorkerInfo)>,
    newcomer: &WorkerInfo,
    here: Option<&str>,
    is_over: impl Fn(u32) -> bool,
) -> Vec<(Incarnation, String)> {
    if here != Some(newcomer.host.as_str()) {
        return Vec::new();
    }
    let is_gone = |old: &WorkerInfo| {
        (&old.name, &old.host) == (&newcomer.name, &newcomer.host)
            && ![0, newcomer.pid].contains(&old.pid)
            && is_over(old.pid)
    };
    let reason = |old: &WorkerInfo| {
        format!("its process {} has ended, and {} is process {} now", old.pid, newcomer.name, newcomer.pid)
    };
    let gone = unheard().into_iter().filter(|(_, about)| is_gone(about));
    gone.map(|(worker, about)| (worker, reason(&about))).collect()
}

/// Whether a process of this machine has ended. Where the system does not say, it has not.
pub(super) fn is_over(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        // Behind its name, which may hold anything, comes what it does: nothing any more, and nobody has
        // asked how it ended.
        Ok(stat) => stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with(['Z', 'X'])),
        Err(error) => error.kind() == ErrorKind::NotFound && Path::new("/proc/self/stat").exists(),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn worker(name: &str, host: &str, pid: u32) -> WorkerInfo {
        WorkerInfo { name: name.into(), host: host.into(), pid, ..WorkerInfo::default() }
    }

    #[test]
    fn who_is_gone_where_another_has_come_table() {
        #[rustfmt::skip]
        let cases = [
            // Who was there, whether its process has ended; whether it is gone.
            ("its process has ended",        worker("worker-0", "a", 7), true,  true),
            ("both are there",               worker("worker-0", "a", 7), false, false),
            ("another of this machine",      worker("worker-1", "a", 7), true,  false),
            ("one of another machine",       worker("worker-0", "b", 7), true,  false),
            ("each first in its container",  worker("worker-0", "a", 8), true,  false),
            ("one of an earlier release",    worker("worker-0", "a", 0), true,  false),
        ];
        let newcomer = worker("worker-0", "a", 8);
        for (what, about, has_ended, is_gone) in cases {
            let pid = about.pid;
            let is_over = |asked: u32| has_ended && asked == pid;
            let reason = "its process 7 has ended, and worker-0 is process 8 now".to_owned();
            let gone: Vec<_> = is_gone.then_some((Incarnation(3), reason)).into_iter().collect();
            let unheard = || vec![(Incarnation(3), about.clone())];
            assert_eq!(replaced(unheard, &newcomer, Some("a"), is_over), gone, "{what}");
            assert_eq!(replaced(unheard, &newcomer, Some("b"), is_over), [], "{what}: seen from elsewhere");
        }
    }

    #[test]
    fn a_process_is_over_once_it_has_ended_also_where_nobody_has_asked_how() {
        assert!(!is_over(std::process::id()));
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(!is_over(child.id()));
        drop(child.stdin.take());
        while !is_over(child.id()) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        // No process has this number.
        assert!(is_over(u32::MAX));
    }
}
