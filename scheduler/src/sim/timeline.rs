//! Who did what when: the boxes of a plot.

/// A stretch of one worker's time, in µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bar {
    /// Row, from 0.
    pub worker: usize,
    /// When it begins, from the start of the run.
    pub start_us: u64,
    /// When it ends, cut at [`Timeline::until_us`].
    pub end_us: u64,
    /// Whether the worker waits; otherwise it pulls, computes and pushes.
    pub waiting: bool,
}

/// What happened in the first `until_us` of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    /// How much of the run is kept, from its start; 0: nothing.
    pub until_us: u64,
    /// Boxes of all workers, in the order in which they ended.
    pub bars: Vec<Bar>,
    /// When everybody met.
    pub barriers_us: Vec<u64>,
}

/// Most boxes that are kept: more cannot be told apart.
const MOST_BARS: usize = 200_000;

impl Timeline {
    /// Keeps what begins before `until_us`; 0 keeps nothing.
    pub fn until(until_us: u64) -> Self {
        Self { until_us, ..Self::default() }
    }

    pub(super) fn bar(&mut self, worker: usize, start_us: u64, end_us: u64, waiting: bool) {
        if start_us < self.until_us && end_us > start_us && self.bars.len() < MOST_BARS {
            self.bars.push(Bar { worker, start_us, end_us: end_us.min(self.until_us), waiting });
        }
    }

    pub(super) fn barrier(&mut self, at_us: u64) {
        if at_us < self.until_us && self.barriers_us.len() < MOST_BARS {
            self.barriers_us.push(at_us);
        }
    }
}
