//! Drives the DSSP policy through recorded inputs: one call of the controller, or the pushes of a whole run.

use std::collections::BTreeSet;

use syncline_scheduler::{
    ids::Incarnation,
    spec::DsspReading,
    sync::{Clock, Clocks, Dssp, Verdict},
};

/// One call of the controller.
pub struct Asked {
    /// Who has pushed; its push is counted already.
    pub worker: usize,
    /// Per worker its pushes, and the times of the latest and of the one before it.
    pub clocks: Vec<(u64, [Option<u64>; 2])>,
    /// s_L, and s_U − s_L.
    pub lower: u32,
    pub range: u32,
}

impl Asked {
    /// Extra iterations granted.
    pub fn controller(&self, reading: DsspReading) -> u64 {
        let mut clocks = Clocks::default();
        for (worker, &(pushes, [last_push_us, previous_push_us])) in self.clocks.iter().enumerate() {
            let clock = Clock { pushes, granted: pushes, last_push_us, previous_push_us, ..Clock::default() };
            clocks.join(id(worker), Some(clock));
        }
        Dssp::new(self.lower, self.lower + self.range, reading).controller(id(self.worker), &clocks)
    }
}

/// A run in virtual time.
pub struct Trace {
    /// Time of each worker's j-th iteration.
    pub durations: Vec<Vec<u64>>,
    /// s_L, and s_U − s_L.
    pub lower: u32,
    pub range: u32,
    /// Pushes after which the run ends.
    pub max_pushes: usize,
}

/// Time, worker, its pushes, its lead over the slowest, the decision, extra iterations before and after, what
/// the controller returned if it was asked, and the workers whose wait ended.
pub type Event = (u64, usize, u64, u64, &'static str, u64, u64, Option<u64>, Vec<usize>);

impl Trace {
    /// What the policy decides at each push.
    ///
    /// All workers start at time 0, and each starts its next iteration when it is told to go on; a worker
    /// without a further duration stops. Pushes at the same time are handled in the order of the workers.
    pub fn events(&self, reading: DsspReading) -> Vec<Event> {
        let policy = Dssp::new(self.lower, self.lower + self.range, reading);
        let mut clocks = Clocks::default();
        (0..self.durations.len()).for_each(|worker| clocks.join(id(worker), None));
        let mut left: Vec<_> = self.durations.iter().map(|d| d.iter()).collect();
        let mut pushes = BTreeSet::new();
        let mut waiting = BTreeSet::new();
        let mut go_on = |worker: usize, now, pushes: &mut BTreeSet<(u64, usize)>| {
            pushes.extend(left[worker].next().map(|duration| (now + duration, worker)));
        };
        (0..self.durations.len()).for_each(|worker| go_on(worker, 0, &mut pushes));
        let mut events = Vec::new();
        while events.len() < self.max_pushes {
            let Some((now, worker)) = pushes.pop_first() else { break };
            let extra = |clocks: &Clocks| clocks.get(id(worker)).map_or(0, |c| c.extra);
            let extra_before = extra(&clocks);
            let (decision, r_star) = match policy.on_push(id(worker), now, &mut clocks) {
                Verdict::Near => ("ok", None),
                Verdict::Extra => ("ok_extra", None),
                Verdict::Granted(extra) => ("grant", Some(extra)),
                Verdict::Wait(asked) => ("wait", asked),
            };
            waiting.insert(worker);
            let mut released: Vec<usize> =
                waiting.iter().copied().filter(|&w| policy.may_go(id(w), &clocks)).collect();
            for &goes in &released {
                waiting.remove(&goes);
                go_on(goes, now, &mut pushes);
            }
            // The one that pushed did not wait if it may go on at once.
            released.retain(|&w| w != worker);
            let pushed = clocks.get(id(worker)).map_or(0, |c| c.pushes);
            let lead = clocks.lead(id(worker));
            events.push((
                now,
                worker,
                pushed,
                lead,
                decision,
                extra_before,
                extra(&clocks),
                r_star,
                released,
            ));
        }
        events
    }
}

fn id(worker: usize) -> Incarnation {
    Incarnation(worker as u64)
}
