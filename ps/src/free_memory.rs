//! Memory that is free for one more copy of a job's part. Linux promises memory that is not there, and ends
//! the process that touches it: whoever may do without a copy asks before.
//!
//! In: `/proc/meminfo`, `/proc/self/cgroup`, and the files of the control groups, of version 1 or 2, that it
//! names.

use std::{fs, io, path::Path};

use syncline_rpc::memory_files::{MemoryGroup, field, memory_groups};

/// Refuses a copy of so many bytes for which there is no room. Where the system does not say what is free,
/// there is.
pub(crate) fn check_room(bytes: u64) -> io::Result<()> {
    match free_here() {
        Some(free) if free < bytes => {
            let reason = format!("{bytes} bytes of memory are needed on this machine, and {free} are free");
            Err(io::Error::new(io::ErrorKind::OutOfMemory, reason))
        }
        _ => Ok(()),
    }
}

fn free_here() -> Option<u64> {
    #[cfg(test)]
    if let Some(free) = testing::FREE_BYTES.get() {
        return Some(free);
    }
    free_bytes(&|path| fs::read_to_string(path).unwrap_or_default())
}

/// Free on the machine, or below the limits of the process's groups if one of them allows less.
fn free_bytes(read: &dyn Fn(&Path) -> String) -> Option<u64> {
    let groups = memory_groups(&read(Path::new("/proc/self/cgroup")));
    let below_limits = groups.iter().filter_map(|MemoryGroup { folder, names }| {
        let number = |file: &str| read(&folder.join(file)).trim().parse::<u64>().ok();
        let (limit, used) = (number(names.limit)?, number(names.used)?);
        // What was read from files makes room.
        let stat = read(&folder.join("memory.stat"));
        let reclaimable = names.reclaimable.iter().filter_map(|name| field(&stat, name)).sum();
        Some(limit.saturating_sub(used.saturating_sub(reclaimable)))
    });
    let machine =
        field(&read(Path::new("/proc/meminfo")), "MemAvailable:").map(|kib| kib.saturating_mul(1024));
    machine.into_iter().chain(below_limits).min()
}

#[cfg(test)]
pub(crate) mod testing {
    use std::cell::Cell;

    thread_local! {
        pub(super) static FREE_BYTES: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// Does what happens on this thread while so many bytes are free.
    pub(crate) fn while_free<T>(bytes: u64, happens: impl FnOnce() -> T) -> T {
        FREE_BYTES.set(Some(bytes));
        let outcome = happens();
        FREE_BYTES.set(None);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is free where these files are there.
    fn free(files: &[(&str, &str)]) -> Option<u64> {
        free_bytes(&|path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| (*text).to_owned()).unwrap_or_default()
        })
    }

    #[test]
    fn what_is_free_is_what_the_machine_and_every_group_allow_table() {
        let machine = ("/proc/meminfo", "MemTotal: 9000 kB\nMemFree: 1 kB\nMemAvailable:   4 kB\n");
        let own = ("/proc/self/cgroup", "0::/a/b\n");
        let unlimited = ("/sys/fs/cgroup/a/b/memory.max", "max\n");
        let limit = ("/sys/fs/cgroup/a/memory.max", "5000\n");
        let used = ("/sys/fs/cgroup/a/memory.current", "3000\n");
        let reclaimable = ("/sys/fs/cgroup/a/memory.stat", "anon 9\ninactive_file 300\nactive_file 200\n");
        let own_v1 = ("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n");
        let unlimited_v1 = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        let used_v1 = ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "7000\n");
        let limit_below_v1 = ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "5000\n");
        let used_below_v1 = ("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "3500\n");
        // Without `total_` a line leaves out the groups below, whose memory counts as used.
        let reclaimable_v1 = (
            "/sys/fs/cgroup/memory/x/memory.stat",
            "inactive_file 30\nactive_file 20\ntotal_inactive_file 300\ntotal_active_file 200\n",
        );
        /// Files, by their paths, and what is free by them.
        type Case<'a> = (&'a [(&'a str, &'a str)], Option<u64>);
        let cases: &[Case<'_>] = &[
            (&[], None),
            (&[machine], Some(4096)),
            (&[machine, own, unlimited], Some(4096)),
            (&[machine, own, unlimited, limit, used], Some(2000)),
            (&[machine, own, unlimited, limit, used, reclaimable], Some(2500)),
            (&[own, limit, ("/sys/fs/cgroup/a/memory.current", "6000")], Some(0)),
            (&[machine, own_v1, unlimited_v1, used_v1], Some(4096)),
            (&[machine, own_v1, unlimited_v1, used_v1, limit_below_v1, used_below_v1], Some(1500)),
            (&[machine, own_v1, limit_below_v1, used_below_v1, reclaimable_v1], Some(2000)),
        ];
        for (files, want) in cases {
            assert_eq!(free(files), *want, "{files:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_copy_for_which_there_is_no_memory_is_refused_before_it_is_made() {
        assert!(check_room(1).is_ok());
        let refused = check_room(u64::MAX).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
        assert!(
            refused.to_string().starts_with("18446744073709551615 bytes of memory are needed"),
            "{refused}"
        );
    }
}
