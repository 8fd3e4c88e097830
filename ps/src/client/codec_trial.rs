//! Whether pushes are faster in fewer bytes: measured on the worker's own link, once.

use std::{
    mem,
    time::{Duration, Instant},
};

use crate::codec::Codec;

/// Pushes that each way is measured over.
const PUSHES: usize = 8;
/// Least share of the time from push to push that pushing must take: below it there is too little to gain.
const WORTH_TRYING: f64 = 0.1;
/// A push must become so much faster: what an encoding keeps back comes later, which is not for nothing.
const WORTH_KEEPING: f64 = 0.75;

/// What is tried: a quarter of the bytes, and hardly a difference in what is learned.
pub(super) const TRIED: Codec = Codec::Int8;

/// Measures some pushes as they are, then, where they take long enough, some that are encoded.
pub(super) struct CodecTrial {
    /// Elements of the whole job that the optimizer moves.
    pub trained: u64,
    phase: TrialPhase,
    pushes: Vec<Duration>,
    /// From the end of one push to that of the next.
    steps: Vec<Duration>,
    last_end: Option<Instant>,
}

enum TrialPhase {
    Plain,
    Encoded { plain: Duration },
}

/// What follows from a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrialStep {
    /// The next push goes as this one.
    GoOn,
    /// From the next push on they are encoded.
    Encode,
    /// They stay as they are now, encoded or not.
    Keep {
        /// Median time of a push before.
        plain: Duration,
        /// Median time of one that was encoded; `None`: not tried.
        encoded: Option<Duration>,
    },
    /// They are sent as they are again.
    GiveUp {
        /// Median time of a push before.
        plain: Duration,
        /// Median time of one that was encoded.
        encoded: Duration,
    },
}

impl CodecTrial {
    pub(super) fn new(trained: u64) -> Self {
        Self { trained, phase: TrialPhase::Plain, pushes: Vec::new(), steps: Vec::new(), last_end: None }
    }

    /// A push that carried a gradient was acknowledged, now and after `took`.
    pub(super) fn observe(&mut self, took: Duration, now: Instant) -> TrialStep {
        let Some(before) = self.last_end.replace(now) else { return TrialStep::GoOn };
        self.pushes.push(took);
        self.steps.push(now.duration_since(before));
        if self.pushes.len() < PUSHES {
            return TrialStep::GoOn;
        }
        let (push, step) = (median(mem::take(&mut self.pushes)), median(mem::take(&mut self.steps)));
        match self.phase {
            TrialPhase::Plain if push < step.mul_f64(WORTH_TRYING) => {
                TrialStep::Keep { plain: push, encoded: None }
            }
            TrialPhase::Plain => {
                self.phase = TrialPhase::Encoded { plain: push };
                TrialStep::Encode
            }
            TrialPhase::Encoded { plain } if push <= plain.mul_f64(WORTH_KEEPING) => {
                TrialStep::Keep { plain, encoded: Some(push) }
            }
            TrialPhase::Encoded { plain } => TrialStep::GiveUp { plain, encoded: push },
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// What follows from pushes that take so long, in steps of 100 ms; the first one of all only begins a
    /// step.
    fn all(trial: &mut CodecTrial, took_ms: [u64; PUSHES]) -> TrialStep {
        let start = Instant::now();
        let mut at = trial.last_end.unwrap_or_else(|| {
            assert_eq!(trial.observe(ms(1), start), TrialStep::GoOn);
            start
        });
        let mut last = TrialStep::GoOn;
        for took in took_ms {
            assert_eq!(last, TrialStep::GoOn);
            at += ms(100);
            last = trial.observe(ms(took), at);
        }
        last
    }

    #[test]
    fn short_pushes_are_left_as_they_are_and_long_ones_encoded_only_where_that_is_faster() {
        let keep = |plain, encoded| TrialStep::Keep { plain: ms(plain), encoded: Some(ms(encoded)) };
        let give_up = |plain, encoded| TrialStep::GiveUp { plain: ms(plain), encoded: ms(encoded) };
        #[rustfmt::skip]
        let table = [
            // plain ms, encoded ms, what follows
            ( 9,  0, TrialStep::Keep { plain: ms(9), encoded: None }),
            (10,  7, keep(10, 7)),
            (10,  8, give_up(10, 8)),
            (80, 20, keep(80, 20)),
            (80, 60, keep(80, 60)),
            (80, 61, give_up(80, 61)),
        ];
        for (plain, encoded, expected) in table {
            let mut trial = CodecTrial::new(1);
            let mut step = all(&mut trial, [plain; PUSHES]);
            if step == TrialStep::Encode {
                step = all(&mut trial, [encoded; PUSHES]);
            }
            assert_eq!(step, expected, "{plain} ms, encoded {encoded} ms");
        }
    }

    #[test]
    fn a_few_pushes_that_hang_decide_nothing() {
        let last = all(&mut CodecTrial::new(1), [5, 5, 900, 5, 5, 5, 900, 5]);
        assert_eq!(last, TrialStep::Keep { plain: ms(5), encoded: None });
    }
}
