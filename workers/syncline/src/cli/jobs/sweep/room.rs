//! How many trials train at the same time. Pure.

use std::collections::BTreeMap;

use syncline_rpc::status::LiveWorker;

/// The workers of a cluster: in each process as many trainings as it has slots for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Room {
    /// Processes.
    workers: u32,
    /// Training slots of all of them.
    slots: u32,
    /// Those of the process that has the most.
    most_slots: u32,
}

impl Room {
    pub(super) fn of(workers: &[LiveWorker]) -> Self {
        let mut slots: BTreeMap<(&str, u32, &str), u32> = BTreeMap::new();
        for worker in workers.iter().filter(|worker| worker.trains()) {
            *slots.entry((worker.host.as_str(), worker.pid, worker.name.as_str())).or_default() += 1;
        }
        let count = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        Self {
            workers: count,
            slots: slots.values().sum(),
            most_slots: slots.values().copied().max().unwrap_or(0),
        }
    }

    /// Jobs of so many workers each that can train at the same time, at least one. A job takes one slot of
    /// each worker at most.
    pub(super) fn jobs(&self, max_workers: u32) -> u32 {
        let each = max_workers.min(self.workers).max(1);
        let jobs = match each == self.workers {
            true => self.most_slots,
            false => self.slots / each,
        };
        jobs.max(1)
    }

    /// How more jobs would train at a time than do with so many workers each; `None` if no more would.
    pub(super) fn for_more_in_words(&self, max_workers: u32) -> Option<String> {
        let (now, then) = (self.jobs(max_workers), self.jobs(1));
        (then > now).then(|| {
            let each = max_workers.min(self.workers);
            format!(
                "each of them has up to {each} workers; with `--set settings.max_workers=1` {then} train at a time"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_trials_as_the_workers_serve_table() {
        let room = |slots: &[u32]| Room {
            workers: slots.len() as u32,
            slots: slots.iter().sum(),
            most_slots: slots.iter().copied().max().unwrap_or(0),
        };
        #[rustfmt::skip]
        let cases: [(&[u32], u32, u32); 8] = [
            (&[],           u32::MAX, 1),
            (&[1, 1, 1, 1], u32::MAX, 1),
            (&[1, 1, 1, 1], 1,        4),
            (&[1, 1, 1, 1], 2,        2),
            (&[4, 4],       u32::MAX, 4),
            (&[4, 4],       1,        8),
            (&[1, 1, 1],    2,        1),
            (&[1],          1,        1),
        ];
        for (slots, max_workers, want) in cases {
            assert_eq!(room(slots).jobs(max_workers), want, "{slots:?} {max_workers}");
        }
        let words =
            |slots: &[u32], max_workers| room(slots).for_more_in_words(max_workers).unwrap_or_default();
        assert!(words(&[1, 1, 1, 1], u32::MAX).starts_with("each of them has up to 4 workers; "));
        assert!(words(&[1, 1, 1, 1], 2).starts_with("each of them has up to 2 workers; "));
        assert_eq!(words(&[1, 1, 1, 1], 1), "", "as many train already");
    }
}
