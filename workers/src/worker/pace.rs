//! Emulates a slower machine by sleeping after compute.

use std::time::Duration;

/// Each iteration lasts at least `step * slowdown`; a zero step turns the emulation off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    pub step: Duration,
    pub slowdown: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { step: Duration::ZERO, slowdown: 1.0 }
    }
}

impl Pace {
    /// How long to sleep after `computed`.
    pub fn rest(&self, computed: Duration) -> Duration {
        if self.step.is_zero() {
            return Duration::ZERO;
        }
        self.step.mul_f64(self.slowdown.max(0.0)).saturating_sub(computed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_table() {
        let ms = Duration::from_millis;
        #[rustfmt::skip]
        let cases = [
            ("off",                    0,  2.5, 3,  0),
            ("fills up to the step",   10, 1.0, 3,  7),
            ("slower machine",         10, 2.5, 3,  22),
            ("compute took longer",    10, 1.0, 12, 0),
        ];
        for (name, step, slowdown, computed, rest) in cases {
            assert_eq!(Pace { step: ms(step), slowdown }.rest(ms(computed)), ms(rest), "{name}");
        }
    }
}
