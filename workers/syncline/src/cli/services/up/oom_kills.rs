//! Whether the kernel's OOM killer has been at work in the control group of a child (cgroup v2), for whoever
//! wonders about its SIGKILL.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where the groups lie, and where the system tells of processes.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";
const PROC: &str = "/proc";

/// The group of a process, and how many have been killed in it when the process began.
#[derive(Debug)]
pub(super) struct OomKills {
    events: PathBuf,
    before: u64,
}

impl OomKills {
    /// Of a process that has just begun; `None` where the system does not tell.
    pub(super) fn of(pid: u32) -> Option<Self> {
        Self::below(Path::new(PROC), Path::new(CGROUP_ROOT), pid)
    }

    fn below(proc: &Path, root: &Path, pid: u32) -> Option<Self> {
        let groups = fs::read_to_string(proc.join(format!("{pid}/cgroup"))).ok()?;
        // Version 2 has one group for each process, and no controller in this line.
        let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let events = root.join(group).join("memory.events");
        let before = oom_kills(&events)?;
        Some(Self { events, before })
    }

    /// Whether more have been killed since.
    pub(super) fn rose(&self) -> bool {
        oom_kills(&self.events).is_some_and(|now| now > self.before)
    }
}

fn oom_kills(events: &Path) -> Option<u64> {
    let text = fs::read_to_string(events).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oom_kill_in_the_group_of_a_process_is_seen_and_none_that_was_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let (proc, root) = (dir.path().join("proc"), dir.path().join("cgroup"));
        let group = root.join("train.slice/up.service");
        fs::create_dir_all(proc.join("7")).unwrap();
        fs::create_dir_all(&group).unwrap();
        let of = || OomKills::below(&proc, &root, 7);
        assert!(of().is_none(), "no process");
        fs::write(proc.join("7/cgroup"), "5:memory:/train.slice\n").unwrap();
        assert!(of().is_none(), "version 1");
        fs::write(proc.join("7/cgroup"), "1:name=systemd:/\n0::/train.slice/up.service\n").unwrap();
        assert!(of().is_none(), "no memory controller");
        let count = |oom, kills| {
            fs::write(group.join("memory.events"), format!("low 0\nmax 9\noom {oom}\noom_kill {kills}\n"))
                .unwrap();
        };
        count(4, 3);
        let since = of().unwrap();
        count(5, 3);
        assert!(!since.rose());
        count(5, 4);
        assert!(since.rose());
        assert!(!of().unwrap().rose());
    }
}
