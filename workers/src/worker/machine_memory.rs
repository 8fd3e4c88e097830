//! How much memory this process may use, and how much of it a worker offers.
//!
//! In: `/proc/meminfo`, `/proc/self/cgroup` and the limits of the control groups that it names, of version 1
//! or 2. Out: bytes; 0 where none of these files exists, as on other systems than Linux.

use std::{
    fs,
    path::{Path, PathBuf},
};

use syncline_rpc::memory_files::{field, memory_groups};
use syncline_scheduler::tasks::MemorySize;

/// What a person lets a worker offer to tasks, as it is typed behind `--memory`. The error says what is wrong
/// with it.
pub fn offered_memory(text: &str) -> Result<MemorySize, String> {
    match text.parse() {
        Ok(MemorySize(0)) => Err(format!(
            "[E509] a worker cannot offer {text}: without --memory it offers what the machine has"
        )),
        read => read.map_err(|error| error.to_string()),
    }
}

/// What a person lets a model take of a GPU's memory, as it is typed behind `--gpu-memory`. The error says
/// what is wrong with it.
pub fn gpu_memory(text: &str) -> Result<MemorySize, String> {
    match text.parse() {
        Ok(MemorySize(0)) => Err(format!("[E509] no model runs with {text} of a GPU's memory")),
        read => read.map_err(|error| error.to_string()),
    }
}

/// Memory of the machine, or of the control groups of this process if one of them allows less.
pub fn machine_memory_bytes() -> u64 {
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let groups = limit_files(&text(Path::new("/proc/self/cgroup")));
    let limits = groups.iter().filter_map(|file| text(file).trim().parse::<u64>().ok());
    let machine = total_bytes(&text(Path::new("/proc/meminfo")));
    // Without a limit the file says `max`, or a number above any memory.
    machine.into_iter().chain(limits).min().unwrap_or(0)
}

fn total_bytes(meminfo: &str) -> Option<u64> {
    field(meminfo, "MemTotal:")?.checked_mul(1024)
}

/// The files with the limit of each control group that the process is in, and of those above it.
fn limit_files(cgroup: &str) -> Vec<PathBuf> {
    memory_groups(cgroup).into_iter().map(|group| group.folder.join(group.names.limit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_offers_some_memory_or_does_not_say() {
        assert_eq!(offered_memory("4GiB"), Ok(MemorySize(4 << 30)));
        for (nothing, code) in [("0B", "[E509]"), ("0.1 B", "[E509]"), ("0", "[E061]")] {
            assert!(offered_memory(nothing).unwrap_err().starts_with(code), "{nothing}");
        }
    }

    #[test]
    fn a_group_is_limited_by_all_above_it() {
        let files = |cgroup| limit_files(cgroup).iter().map(|f| f.display().to_string()).collect::<Vec<_>>();
        let v2 =
            ["/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/memory.max"];
        assert_eq!(files("0::/a/b\n"), v2);
        let v1 =
            ["/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
        assert_eq!(files("5:cpu,cpuacct:/x\n4:memory:/x\n"), v1);
        assert!(files("nonsense\n").is_empty() && files("").is_empty());
    }

    #[test]
    fn the_memory_of_the_machine_is_read() {
        assert_eq!(total_bytes("MemTotal:        8000 kB\nMemFree: 1 kB\n"), Some(8_192_000));
        assert_eq!(total_bytes("MemFree: 1 kB\n"), None);
        #[cfg(target_os = "linux")]
        assert!(machine_memory_bytes() > 1 << 20);
    }
}
