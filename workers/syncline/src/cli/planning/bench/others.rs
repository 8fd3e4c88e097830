//! What others did on the machine while something was measured: its figures are those of a quiet machine only
//! if that is little.

use std::{fs, process};

use crate::cli::support::processes::{cpu_ticks, stat};

/// Others with more of the processors than this change figures by more than what is measured varies by
/// itself.
const MOST_OF_OTHERS: f64 = 0.05;

/// Processor time so far, in ticks of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Used {
    /// By all processes of the machine, and by its host, where it is a virtual one.
    all: u64,
    /// That, and the time in which processors had nothing to do.
    passed: u64,
    /// By this process and those that it has started and that have ended.
    own: u64,
}

impl Used {
    /// `None`: the system does not say.
    pub(super) fn now() -> Option<Self> {
        let (all, passed) = of_machine(&fs::read_to_string("/proc/stat").ok()?)?;
        Some(Self { all, passed, own: of_process(&stat(process::id())?)? })
    }

    /// The share of the processors that others had from then on until `end`.
    fn of_others(self, end: Self) -> f64 {
        let passed = end.passed.saturating_sub(self.passed);
        let others = end.all.saturating_sub(self.all).saturating_sub(end.own.saturating_sub(self.own));
        others as f64 / passed.max(1) as f64
    }

    /// What is said of what was measured from then on until `end`; `None`: the machine was as quiet as it is.
    pub(super) fn warning(self, end: Self) -> Option<String> {
        let share = self.of_others(end);
        (share > MOST_OF_OTHERS).then(|| {
            format!(
                "warning: other programs had {:.0} % of the processors meanwhile: figures are not those of a quiet machine, and even shares may be wrong; measure again when nothing else runs",
                share * 100.0
            )
        })
    }
}

/// The first line of `/proc/stat`: ticks in which something ran, and all.
fn of_machine(text: &str) -> Option<(u64, u64)> {
    let fields = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; what guests have is in user and nice already.
    let [user, nice, system, idle, iowait, irq, softirq, steal] = *ticks.first_chunk()?;
    // Interrupts that a process causes by its messages are charged to none: they are nobody's.
    let all = user + nice + system + steal;
    Some((all, all + idle + iowait + irq + softirq))
}

/// By the line of a process: its own ticks and those of its children that have ended.
fn of_process(stat: &str) -> Option<u64> {
    Some(cpu_ticks(stat)?.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_writes_is_read() {
        let stat = "cpu  10 20 30 400 50 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(of_machine(stat), Some((68, 531)));
        assert_eq!(of_machine("cpu  10 20 30\n"), None);
        let own = "42 (a) (b) S 1 42 42 0 -1 4194560 100 200 0 0 11 22 33 44 20 0 1 0 5 6 7\n";
        assert_eq!(of_process(own), Some(110));
        assert_eq!(of_process("42 (a) S 1"), None);
        assert!(Used::now().is_some());
    }

    #[test]
    fn others_are_named_where_they_had_more_than_a_twentieth_of_the_processors() {
        let begin = Used { all: 1_000, passed: 5_000, own: 300 };
        #[rustfmt::skip]
        let cases = [
            ("only what was measured ran",  Used { all: 1_800, passed: 6_000, own: 1_100 }, None),
            ("a little beside it",          Used { all: 1_840, passed: 6_000, own: 1_100 }, None),
            ("as much beside it",           Used { all: 1_900, passed: 6_000, own: 750 },   Some("45 %")),
            ("nothing passed",              begin,                                          None),
        ];
        for (name, end, said) in cases {
            let warning = begin.warning(end);
            assert_eq!(warning.is_some(), said.is_some(), "{name}: {warning:?}");
            assert!(said.is_none_or(|share| warning.unwrap().contains(share)), "{name}");
        }
    }
}
