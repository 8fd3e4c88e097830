//! What Linux writes about memory into files: of the machine, and of the control groups, of version 1 or 2, that a process is in.

use std::path::{Path, PathBuf};

/// A control group that counts memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryGroup {
    /// Where its files are.
    pub folder: PathBuf,
    /// The one with the limit in bytes; without a limit it says `max`, or a number above any memory.
    pub limit: &'static str,
}

impl MemoryGroup {
    /// Name of that file in version 2.
    pub const LIMIT_OF_VERSION_2: &str = "memory.max";
}

/// The groups that count the memory of a process, and all above them. `cgroup`: its `/proc/PID/cgroup`.
pub fn memory_groups(cgroup: &str) -> Vec<MemoryGroup> {
    let of_line = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let (root, limit) = match controllers {
            "" => ("/sys/fs/cgroup", MemoryGroup::LIMIT_OF_VERSION_2),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let group = Path::new(root).join(group.trim_start_matches('/'));
        let groups = group.ancestors().take_while(|group| group.starts_with(root));
        Some(groups.map(|group| MemoryGroup { folder: group.to_owned(), limit }).collect::<Vec<_>>())
    };
    cgroup.lines().filter_map(of_line).flatten().collect()
}

/// The number behind a name, in a file such as `/proc/meminfo`, where names end in a colon, or `memory.stat`.
pub fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()?.parse().ok())?)
}
