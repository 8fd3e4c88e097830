//! The schedule of the learning rate: a pure function of the samples seen.
//!
//! Never of pushes: with n workers these come n times as often under ASP as under BSP, and the published
//! comparisons went wrong there. Never of time or of the rate before, so that a training that goes on from a
//! checkpoint, or is brought back to one, has the rate that it would have had.

use serde::{Deserialize, Serialize};

/// Learning rate as a function of the samples applied so far.
///
/// All of its points are shares of the training, from 0 at its first sample to 1 behind its last: they mean
/// the same with any batch and any number of workers, and a training of twice the epochs is the same one at
/// half the speed. One of 5 epochs out of 90 is 5 / 90.
///
/// ```
/// # use syncline_scheduler::spec::{Decay, LearningRate};
/// let rate = LearningRate { warmup: 0.1, decay: Decay::Linear, min: 0.02, ..LearningRate::constant(0.2) };
/// assert_eq!([0, 50, 100, 550, 1000].map(|samples| rate.at(samples, 1000)), [0.0, 0.1, 0.2, 0.11, 0.02]);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearningRate {
    /// The rate behind the warmup, above 0.
    pub base: f32,
    /// How it goes down from there.
    #[serde(default)]
    pub decay: Decay,
    /// Share of the training over which it rises in a straight line from 0 to `base`, 0 to below 1; 0: not
    /// at all. The decay begins behind it.
    /// Source: Goyal et al., Accurate, Large Minibatch SGD, 2017, section 2.2, arXiv:1706.02677.
    #[serde(default)]
    pub warmup: f32,
    /// The rate at which a decay ends that is not of steps, 0 to `base`. No bound of the warmup.
    #[serde(default)]
    pub min: f32,
}

/// Shape of the decay behind the warmup. Below, p is the share of what follows the warmup that is done:
/// (share of the training - warmup) / (1 - warmup).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decay {
    /// None: `base` until the last sample.
    #[default]
    Constant,
    /// Half a cosine from `base` to `min`: `min + (base - min) * (1 + cos(pi * p)) / 2`.
    /// Source: Loshchilov and Hutter, SGDR, 2017, equation 5 without restarts, arXiv:1608.03983.
    Cosine,
    /// A straight line from `base` to `min`: `base - (base - min) * p`.
    Linear,
    /// From each share of the training on, the rate is multiplied by the factor beside it, by all of them in
    /// the end: `[(0.5, 0.1), (0.75, 0.1)]` is `base`, then a tenth of it, then a hundredth. The shares
    /// ascend, and lie behind the warmup; the factors are above 0, and 1 at most.
    Steps(Vec<(f32, f32)>),
    /// By the same factor from each sample to the next, from `base` to `min`, which is above 0: `base * (min
    /// / base)^p`.
    Exponential,
    /// As [`Cosine`](Self::Cosine), behind a warmup that is half a cosine, too, from a 25th of `base`.
    /// Source: Smith and Topin, Super-Convergence, 2018, arXiv:1708.07120, in the form of fast.ai and of
    /// PyTorch's OneCycleLR.
    OneCycle,
}

/// What part of its highest rate a [`Decay::OneCycle`] begins with is 1 in so many, as in PyTorch.
const ONE_CYCLE_RISE: f64 = 25.0;

/// Half a cosine from `from` to `to` while `done` goes from 0 to 1.
fn half_cosine(from: f64, to: f64, done: f64) -> f64 {
    to + (from - to) * 0.5 * (1.0 + (std::f64::consts::PI * done).cos())
}

impl LearningRate {
    /// `base` from the first sample to the last.
    pub fn constant(base: f32) -> Self {
        Self { base, decay: Decay::Constant, warmup: 0.0, min: 0.0 }
    }

    /// The rate at `samples` of `total` planned samples. Cost O(steps of the decay).
    pub fn at(&self, samples: u64, total: u64) -> f32 {
        let done = samples.min(total) as f64 / total.max(1) as f64;
        let (base, min, warmup) = (f64::from(self.base), f64::from(self.min), f64::from(self.warmup));
        if done < warmup {
            let rate = match &self.decay {
                Decay::OneCycle => half_cosine(base / ONE_CYCLE_RISE, base, done / warmup),
                _ => base * done / warmup,
            };
            return rate as f32;
        }
        let decayed = (done - warmup) / (1.0 - warmup);
        let rate = match &self.decay {
            Decay::Constant => return self.base,
            Decay::Cosine | Decay::OneCycle => half_cosine(base, min, decayed),
            Decay::Linear => base - (base - min) * decayed,
            Decay::Exponential => base * (min / base).powf(decayed),
            Decay::Steps(steps) => {
                // With the digits that the share was given with: a tenth is reached with the sample number
                // 100 of 1000.
                let reached = steps.iter().take_while(|(share, _)| done as f32 >= *share);
                reached.fold(base, |rate, (_, factor)| rate * f64::from(*factor))
            }
        };
        rate as f32
    }

    /// The first of its numbers that lies outside its range, with the range, if any.
    pub(super) fn fault(&self) -> Option<String> {
        let Self { base, decay, warmup, min } = self;
        if !(base.is_finite() && *base > 0.0) {
            return Some(format!("learning rate {base}, expected a positive number"));
        }
        if !(0.0..1.0).contains(warmup) {
            return Some(format!("warmup {warmup}, expected a share of the training, from 0 to below 1"));
        }
        if !(0.0..=*base).contains(min) {
            return Some(format!(
                "min_learning_rate {min}, expected a number from 0 to the learning rate {base}"
            ));
        }
        match decay {
            Decay::Constant | Decay::Steps(_) if *min > 0.0 => {
                Some(format!("min_learning_rate {min} goes with a decay `cosine`, `linear`, `exponential` or `one-cycle` only"))
            }
            Decay::Exponential if *min == 0.0 => Some(
                "min_learning_rate 0, expected the rate above 0 at which the decay `exponential` ends".into(),
            ),
            Decay::OneCycle if *warmup == 0.0 => {
                Some("warmup 0, expected the share of the training, such as 0.3, in which the decay `one-cycle` rises".into())
            }
            Decay::Constant | Decay::Cosine | Decay::Linear | Decay::Exponential | Decay::OneCycle => None,
            Decay::Steps(steps) => {
                steps_fault(steps, *warmup).map(|what| format!("steps of the decay: {what}"))
            }
        }
    }
}

fn steps_fault(steps: &[(f32, f32)], warmup: f32) -> Option<String> {
    if steps.is_empty() {
        return Some("there is none, expected pairs such as [0.5, 0.1]".into());
    }
    let mut before = None;
    for (share, factor) in steps {
        if !(*share > 0.0 && *share < 1.0) {
            return Some(format!("one at {share}, expected a share of the training between 0 and 1"));
        }
        if before.is_some_and(|before| *share <= before) {
            return Some(format!(
                "one at {share} after a later one, expected ascending shares of the training"
            ));
        }
        if *share < warmup {
            return Some(format!("one at {share}, before the end of the warmup at {warmup}"));
        }
        if !(*factor > 0.0 && *factor <= 1.0) {
            return Some(format!("a factor {factor}, expected one above 0 and up to 1"));
        }
        before = Some(*share);
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOTAL: u64 = 1000;

    fn rate(base: f32, warmup: f32, decay: Decay, min: f32) -> LearningRate {
        LearningRate { base, decay, warmup, min }
    }

    #[test]
    fn the_rate_is_what_a_hand_draws() {
        use Decay::{Constant, Cosine, Linear};
        let steps = || Decay::Steps(vec![(0.5, 0.1), (0.75, 0.5)]);
        // At these samples of 1000; behind the last one it stays.
        let samples = [0, 50, 100, 325, 499, 500, 550, 749, 750, 1000, 2000];
        #[rustfmt::skip]
        let cases = [
            //                                      0    50   100  325     499     500    550   749     750     1000  2000
            (rate(0.4, 0.0, Constant, 0.0),   [0.4, 0.4, 0.4, 0.4,    0.4,    0.4,   0.4,  0.4,    0.4,    0.4,  0.4]),
            (rate(0.4, 0.1, Constant, 0.0),   [0.0, 0.2, 0.4, 0.4,    0.4,    0.4,   0.4,  0.4,    0.4,    0.4,  0.4]),
            (rate(0.4, 0.0, Linear,   0.0),   [0.4, 0.38, 0.36, 0.27, 0.2004, 0.2,   0.18, 0.1004, 0.1,    0.0,  0.0]),
            (rate(0.4, 0.1, Linear,   0.04),  [0.0, 0.2, 0.4, 0.31,   0.2404, 0.24,  0.22, 0.1404, 0.14,   0.04, 0.04]),
            (rate(0.4, 0.0, steps(),  0.0),   [0.4, 0.4, 0.4, 0.4,    0.4,    0.04,  0.04, 0.04,   0.02,   0.02, 0.02]),
            (rate(0.4, 0.1, steps(),  0.0),   [0.0, 0.2, 0.4, 0.4,    0.4,    0.04,  0.04, 0.04,   0.02,   0.02, 0.02]),
            // cos(pi / 4) = 0.70711 at a quarter of what follows the warmup, 0 in the middle.
            (rate(0.4, 0.1, Cosine,   0.04),  [0.0, 0.2, 0.4, 0.34728, 0.25188, 0.25126, 0.22, 0.10478, 0.1043, 0.04, 0.04]),
        ];
        for (rate, wanted) in cases {
            for (samples, wanted) in samples.into_iter().zip(wanted) {
                let found = rate.at(samples, TOTAL);
                assert!((found - wanted).abs() < 1e-5, "{rate:?} at {samples}: {found}, expected {wanted}");
            }
        }
    }

    /// Values of PyTorch 2: `OneCycleLR(max_lr=0.4, div_factor=25)` of 1001 steps, and `ExponentialLR` behind
    /// a `LinearLR`, as rates in front of these steps.
    #[test]
    fn the_rate_is_what_pytorch_computes() {
        use Decay::{Exponential, OneCycle};
        let samples = [0, 50, 100, 325, 499, 500, 550, 749, 750, 1000];
        #[rustfmt::skip]
        let cases = [
            //                                      0      50        100       325       499       500       550       749       750       1000
            (rate(0.4, 0.3, OneCycle,    0.04), [0.016, 0.041723, 0.112,    0.398868, 0.332859, 0.332228, 0.298099, 0.14263,  0.141901, 0.04]),
            (rate(0.4, 0.1, OneCycle,    0.0),  [0.016, 0.208,    0.4,      0.341421, 0.235417, 0.23473,  0.2,      0.071978, 0.071442, 0.0]),
            (rate(0.4, 0.0, Exponential, 0.04), [0.4,   0.3565,   0.317731, 0.189261, 0.126783, 0.126491, 0.112735, 0.071295, 0.071131, 0.04]),
            (rate(0.4, 0.1, Exponential, 0.04), [0.0,   0.2,      0.4,      0.224937, 0.144121, 0.143753, 0.126491, 0.076024, 0.075829, 0.04]),
        ];
        for (rate, wanted) in cases {
            for (samples, wanted) in samples.into_iter().zip(wanted) {
                let found = rate.at(samples, TOTAL);
                assert!((found - wanted).abs() < 2e-6, "{rate:?} at {samples}: {found}, expected {wanted}");
            }
        }
    }

    #[test]
    fn cosine_starts_at_base_halves_in_the_middle_and_ends_at_zero() {
        let rate = rate(0.4, 0.0, Decay::Cosine, 0.0);
        for (samples, want) in [(0, 0.4), (500, 0.2), (1000, 0.0), (2000, 0.0)] {
            assert!((rate.at(samples, TOTAL) - want).abs() < 1e-6, "at {samples}");
        }
    }

    #[test]
    fn a_step_is_at_the_sample_that_its_share_names() {
        for tenth in 1..10_u64 {
            let decay = Decay::Steps(vec![(tenth as f32 / 10.0, 0.5)]);
            let rate = rate(1.0, 0.0, decay, 0.0);
            let samples = tenth * 100;
            assert_eq!([samples - 1, samples].map(|n| rate.at(n, TOTAL)), [1.0, 0.5], "{samples}");
        }
    }

    #[test]
    fn out_of_range_settings_are_named() {
        use Decay::{Constant, Cosine, Exponential, Linear, OneCycle};
        let steps = |steps: &[(f32, f32)]| Decay::Steps(steps.to_vec());
        #[rustfmt::skip]
        let cases = [
            (rate(f32::NAN, 0.0, Constant, 0.0),                          "learning rate NaN, expected a positive number"),
            (rate(0.0, 0.0, Constant, 0.0),                               "learning rate 0, expected a positive number"),
            (rate(0.1, 1.0, Linear, 0.0),                                 "warmup 1, expected a share of the training, from 0 to below 1"),
            (rate(0.1, -0.1, Linear, 0.0),                                "warmup -0.1, expected a share"),
            (rate(0.1, f32::NAN, Linear, 0.0),                            "warmup NaN, expected a share"),
            (rate(0.1, 0.0, Linear, 0.2),                                 "min_learning_rate 0.2, expected a number from 0 to the learning rate 0.1"),
            (rate(0.1, 0.0, Linear, f32::NAN),                            "min_learning_rate NaN"),
            (rate(0.1, 0.0, Constant, 0.01),                              "min_learning_rate 0.01 goes with a decay `cosine`, `linear`, `exponential` or `one-cycle` only"),
            (rate(0.1, 0.0, steps(&[(0.5, 0.1)]), 0.01),                  "goes with a decay `cosine`, "),
            (rate(0.1, 0.0, Exponential, 0.0),                            "min_learning_rate 0, expected the rate above 0"),
            (rate(0.1, 0.0, OneCycle, 0.0),                               "warmup 0, expected the share of the training, such as 0.3"),
            (rate(0.1, 0.0, steps(&[]), 0.0),                             "steps of the decay: there is none"),
            (rate(0.1, 0.0, steps(&[(30.0, 0.1)]), 0.0),                  "one at 30, expected a share of the training between 0 and 1"),
            (rate(0.1, 0.0, steps(&[(0.0, 0.1)]), 0.0),                   "one at 0, expected a share"),
            (rate(0.1, 0.0, steps(&[(f32::NAN, 0.1)]), 0.0),              "one at NaN, expected a share"),
            (rate(0.1, 0.0, steps(&[(0.5, 0.1), (0.5, 0.1)]), 0.0),       "one at 0.5 after a later one"),
            (rate(0.1, 0.2, steps(&[(0.1, 0.5)]), 0.0),                   "one at 0.1, before the end of the warmup at 0.2"),
            (rate(0.1, 0.0, steps(&[(0.5, 0.0)]), 0.0),                   "a factor 0, expected one above 0 and up to 1"),
            (rate(0.1, 0.0, steps(&[(0.5, 10.0)]), 0.0),                  "a factor 10, expected"),
        ];
        for (rate, words) in cases {
            let fault = rate.fault().unwrap();
            assert!(fault.contains(words), "{rate:?}: {fault}");
        }
        let good = [
            rate(0.1, 0.5, Linear, 0.1),
            rate(0.1, 0.0, Cosine, 0.0),
            rate(0.1, 0.0, Exponential, 1e-30),
            rate(0.1, 0.3, OneCycle, 0.0),
            rate(1e-30, 0.1, steps(&[(0.1, 0.1), (0.9, 1.0)]), 0.0),
        ];
        for rate in good {
            assert_eq!(rate.fault(), None, "{rate:?}");
        }
    }

    #[test]
    fn what_an_older_version_stored_is_the_same_schedule() {
        for (stored, decay) in [
            (r#"{"base":0.25}"#, Decay::Constant),
            (r#"{"base":0.25,"decay":"constant"}"#, Decay::Constant),
            (r#"{"base":0.25,"decay":"cosine"}"#, Decay::Cosine),
        ] {
            assert_eq!(serde_json::from_str::<LearningRate>(stored).unwrap(), rate(0.25, 0.0, decay, 0.0));
        }
    }

    fn decays() -> impl Strategy<Value = Decay> {
        let steps = prop::collection::btree_map(500..1000_u32, 0.01..=1.0_f32, 1..5);
        let steps =
            steps.prop_map(|steps| steps.into_iter().map(|(at, by)| (at as f32 / 1000.0, by)).collect());
        prop_oneof![
            Just(Decay::Constant),
            Just(Decay::Cosine),
            Just(Decay::Linear),
            Just(Decay::Exponential),
            Just(Decay::OneCycle),
            steps.prop_map(Decay::Steps)
        ]
    }

    prop_compose! {
        fn schedules()(
            base in 1e-6..10.0_f32,
            warmup in prop_oneof![Just(0.0_f32), 0.01..0.5_f32],
            share in 0.0..=1.0_f32,
            decay in decays(),
        ) -> LearningRate {
            let min = match decay {
                Decay::Cosine | Decay::Linear | Decay::OneCycle => base * share,
                Decay::Exponential => base * share.max(0.01),
                Decay::Constant | Decay::Steps(_) => 0.0,
            };
            let warmup = if decay == Decay::OneCycle { warmup.max(0.01) } else { warmup };
            LearningRate { base, decay, warmup, min }
        }
    }

    proptest! {
        #[test]
        fn a_schedule_rises_to_its_base_and_never_again(rate in schedules(), total in 1..5000_u64) {
            prop_assert_eq!(rate.fault(), None);
            let rates: Vec<f32> = (0..=total).map(|samples| rate.at(samples, total)).collect();
            let warm = |samples: usize| samples as f64 / total as f64 >= f64::from(rate.warmup);
            // The rounding of float32.
            let slack = rate.base * 1e-6;
            for (samples, value) in rates.iter().enumerate() {
                let least = if warm(samples) { rate.min } else { 0.0 };
                prop_assert!((least - slack..=rate.base + slack).contains(value), "{} at {}", value, samples);
            }
            for (samples, pair) in rates.windows(2).enumerate() {
                if !warm(samples + 1) {
                    prop_assert!(pair[1] >= pair[0], "it rises at {}", samples);
                } else if warm(samples) {
                    prop_assert!(pair[1] <= pair[0] + slack, "it falls at {}", samples);
                }
            }
        }

        /// No step from one sample to the next is longer than the steepest slope of its parts allows.
        #[test]
        fn but_for_steps_a_schedule_is_continuous(rate in schedules(), total in 1..5000_u64) {
            prop_assume!(!matches!(rate.decay, Decay::Steps(_)));
            let (base, warmup) = (f64::from(rate.base), f64::from(rate.warmup));
            let rise = if warmup > 0.0 { base * std::f64::consts::FRAC_PI_2 / warmup } else { 0.0 };
            // That of an exponential decay to a hundredth, the longest here, where it begins.
            let fall = base * 100_f64.ln() / (1.0 - warmup);
            let most = rise.max(fall) / total as f64 + base * 1e-6;
            for samples in 0..total {
                let (here, next) = (rate.at(samples, total), rate.at(samples + 1, total));
                prop_assert!(f64::from((next - here).abs()) <= most, "{} then {} at {}", here, next, samples);
            }
        }

        #[test]
        fn a_schedule_is_stored_and_loaded_as_it_is(rate in schedules()) {
            let stored = serde_json::to_string(&rate).unwrap();
            prop_assert_eq!(serde_json::from_str::<LearningRate>(&stored).unwrap(), rate);
        }
    }
}
