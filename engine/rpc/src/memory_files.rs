//! What Linux writes about memory into files: of the machine, and of the control groups, of version 1 or 2,
//! that a process is in.

use std::path::{Path, PathBuf};

/// A control group that counts memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryGroup {
    /// Where its files are.
    pub folder: PathBuf,
    /// What they are called.
    pub names: &'static GroupNames,
}

/// What the files of a group are called, and lines in them; this is all in which the versions differ here.
#[derive(Debug, PartialEq, Eq)]
pub struct GroupNames {
    root: &'static str,
    /// The file with the limit in bytes; without a limit it says `max`, or a number above any memory.
    pub limit: &'static str,
    /// The file with the bytes in use, by groups below it as well.
    pub used: &'static str,
    /// The lines of `memory.stat` with the bytes that were read from files, which make room for others.
    pub reclaimable: [&'static str; 2],
}

const VERSION_1: GroupNames = GroupNames {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    reclaimable: ["total_inactive_file", "total_active_file"],
};
const VERSION_2: GroupNames = GroupNames {
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    reclaimable: ["inactive_file", "active_file"],
};

/// The groups that count the memory of a process, and all above them. `cgroup`: its `/proc/PID/cgroup`.
pub fn memory_groups(cgroup: &str) -> Vec<MemoryGroup> {
    let of_line = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let names = match controllers {
            "" => &VERSION_2,
            _ if controllers.split(',').any(|name| name == "memory") => &VERSION_1,
            _ => return None,
        };
        let group = Path::new(names.root).join(group.trim_start_matches('/'));
        let groups = group.ancestors().take_while(|group| group.starts_with(names.root));
        Some(groups.map(|group| MemoryGroup { folder: group.to_owned(), names }).collect::<Vec<_>>())
    };
    cgroup.lines().filter_map(of_line).flatten().collect()
}

/// The number behind a name, in a file such as `/proc/meminfo`, where names end in a colon, or `memory.stat`.
pub fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()?.parse().ok())?)
}
