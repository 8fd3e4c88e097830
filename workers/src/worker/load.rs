//! How busy the machine is, as Linux tells: what LB-BSP's predictor sees besides a worker's own times.
//!
//! In: `/proc/stat` and `/proc/meminfo`. Out: shares from 0 to 1; 0 where the files do not exist or cannot be
//! understood. Two small files are read at most once per 100 ms, some tens of µs each.

use std::{
    fs,
    time::{Duration, Instant},
};

use syncline_rpc::memory_files::field;

/// A reading is good for this long: an iteration may be much shorter, and over less the counters, of 10 ms
/// each, say little.
const GOOD_FOR: Duration = Duration::from_millis(100);

/// Shares of the machine that are in use, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Load {
    /// Time that the processors were busy since the reading before, or since the machine started.
    pub(super) cpu: f32,
    /// Memory that cannot be had without swapping.
    pub(super) memory: f32,
}

/// Counters since the machine started, over all processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct CpuTicks {
    busy: u64,
    all: u64,
}

/// Reads the load of this machine.
#[derive(Debug, Default)]
pub(super) struct LoadProbe {
    ticks: CpuTicks,
    load: Load,
    read_at: Option<Instant>,
}

impl LoadProbe {
    /// The load now, or as it was less than 100 ms ago.
    pub(super) fn read(&mut self) -> Load {
        if self.read_at.is_none_or(|at| at.elapsed() >= GOOD_FOR) {
            self.read_at = Some(Instant::now());
            let text = |path| fs::read_to_string(path).unwrap_or_default();
            self.update(&text("/proc/stat"), &text("/proc/meminfo"));
        }
        self.load
    }

    fn update(&mut self, stat: &str, meminfo: &str) {
        let ticks = cpu_ticks(stat).unwrap_or(self.ticks);
        // Without a tick in between, the share before still holds.
        self.load.cpu = busy_share(self.ticks, ticks).unwrap_or(self.load.cpu);
        self.ticks = ticks;
        self.load.memory = memory_load(meminfo).unwrap_or(0.0);
    }
}

/// Share of busy time between two readings; `None` if no time passed.
fn busy_share(before: CpuTicks, now: CpuTicks) -> Option<f32> {
    let all = now.all.checked_sub(before.all).filter(|&ticks| ticks > 0)?;
    // Some counters of Linux may go back.
    let busy = now.busy.saturating_sub(before.busy).min(all);
    Some((busy as f64 / all as f64) as f32)
}

/// From the line `cpu user nice system idle iowait irq softirq steal ..`; what guests used is counted in
/// `user`.
fn cpu_ticks(stat: &str) -> Option<CpuTicks> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let all = ticks.iter().sum();
    let idle: u64 = ticks.get(3..)?.iter().take(2).sum();
    Some(CpuTicks { busy: all - idle, all })
}

/// `1 − MemAvailable / MemTotal`.
fn memory_load(meminfo: &str) -> Option<f32> {
    let (total, available) = (field(meminfo, "MemTotal:")?, field(meminfo, "MemAvailable:")?);
    (total > 0).then(|| (1.0 - available as f64 / total as f64).clamp(0.0, 1.0) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 20 30 800 40 5 5 0 7 0\ncpu0 50 10 15 400 20 2 3 0 3 0\nintr 12345 0 9\n";
    const LATER: &str = "cpu  160 20 50 810 50 5 5 0 7 0\n";
    const MEMINFO: &str = "MemTotal:        8000 kB\nMemFree:         100 kB\nMemAvailable:    2000 kB\n";

    #[test]
    fn ticks_table() {
        #[rustfmt::skip]
        let cases = [
            ("linux",             STAT,                     Some(CpuTicks { busy: 160, all: 1000 })),
            ("old, without irq",  "cpu 1 2 3 4\n",          Some(CpuTicks { busy: 6, all: 10 })),
            ("one processor",     "cpu0 1 2 3 4 5 6 7 8\n", None),
            ("too short",         "cpu 1 2\n",              None),
            ("no numbers",        "cpu a b c d\n",          None),
            ("no file",           "",                       None),
        ];
        for (name, text, want) in cases {
            assert_eq!(cpu_ticks(text), want, "{name}");
        }
    }

    #[test]
    fn memory_table() {
        #[rustfmt::skip]
        let cases = [
            ("linux",          MEMINFO,                                    Some(0.75)),
            ("more than all",  "MemTotal: 10 kB\nMemAvailable: 11 kB\n",   Some(0.0)),
            ("no memory",      "MemTotal: 0 kB\nMemAvailable: 0 kB\n",     None),
            ("old",            "MemTotal: 8000 kB\nMemFree: 100 kB\n",     None),
            ("no file",        "",                                         None),
        ];
        for (name, text, want) in cases {
            assert_eq!(memory_load(text), want, "{name}");
        }
    }

    #[test]
    fn the_share_is_of_the_time_since_the_last_reading() {
        let mut probe = LoadProbe::default();
        probe.update(STAT, MEMINFO);
        assert_eq!(probe.load, Load { cpu: 0.16, memory: 0.75 });
        probe.update(LATER, MEMINFO);
        assert_eq!(probe.load, Load { cpu: 0.8, memory: 0.75 });
        probe.update(LATER, "");
        assert_eq!(probe.load, Load { cpu: 0.8, memory: 0.0 });
    }

    #[test]
    fn counters_that_go_back_leave_the_share_within_bounds() {
        let ticks = |busy, all| CpuTicks { busy, all };
        assert_eq!(busy_share(ticks(50, 100), ticks(40, 110)), Some(0.0));
        assert_eq!(busy_share(ticks(50, 100), ticks(90, 110)), Some(1.0));
        assert_eq!(busy_share(ticks(50, 100), ticks(50, 90)), None);
    }

    #[test]
    fn a_reading_is_kept_for_a_while_and_nothing_is_no_load() {
        let mut probe = LoadProbe::default();
        probe.update("", "");
        assert_eq!(probe.load, Load::default());
        let kept = Load { cpu: 0.25, memory: 0.5 };
        let mut probe = LoadProbe { load: kept, read_at: Some(Instant::now() + GOOD_FOR), ..probe };
        assert_eq!(probe.read(), kept);
        probe.read_at = None;
        let load = probe.read();
        assert!((0.0..=1.0).contains(&load.cpu) && (0.0..=1.0).contains(&load.memory), "{load:?}");
    }
}
