//! Which trials are stopped: successive halving by epochs, without waiting. Pure.
//!
//! In: the result of each trial at each rung, an epoch at which trials are compared. Out: who is stopped, and
//! as which of how many.
//!
//! Who failed, or was ended by somebody else, counts no longer.
//!
//! Of n trials `keep` × n, rounded down, go on beyond the first rung, `keep` of these beyond the second, and
//! so on, at least one. A trial is stopped as soon as so many others have done better at the newest rung that
//! it has reached itself. So nobody waits at a rung, and nobody is stopped there who is among the best of all
//! that will ever come to it; a trial that came early, and of which that is not known yet, trains on
//! meanwhile and is stopped when it is. The best of those at the highest rung is never stopped.
//!
//! Source: Jamieson and Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter Optimization,
//! AISTATS 2016, arXiv:1502.07943 (successive halving, with all trials waiting at each rung); Li et al., A
//! System for Massively Parallel Hyperparameter Tuning, MLSys 2020, arXiv:1810.05934 (ASHA: nobody waits).
//! ASHA lets a trial go on that is among the best of those that are at the rung by then; the number of trials
//! is known here, and so for how many there is room.

use std::{cmp::Ordering, str::FromStr};

/// A part of the trials, such as 1/3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    part: u64,
    of: u64,
}

impl Share {
    /// So many of these, rounded down, at least one.
    fn of(self, count: u64) -> u64 {
        let kept = u128::from(count) * u128::from(self.part) / u128::from(self.of);
        u64::try_from(kept).unwrap_or(count).max(1)
    }
}

impl FromStr for Share {
    type Err = String;

    /// `1/3`, or `0.25`.
    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || "expected a share between 0 and 1, such as 1/3 or 0.5".to_owned();
        let share = match text.split_once('/') {
            Some((part, of)) => part.parse().ok().zip(of.parse().ok()).map(|(part, of)| Self { part, of }),
            None => {
                let digits = text.strip_prefix("0.").filter(|digits| (1..=9).contains(&digits.len()));
                digits.and_then(|digits| {
                    let of = 10u64.checked_pow(digits.len().try_into().ok()?)?;
                    Some(Self { part: digits.parse().ok()?, of })
                })
            }
        };
        share.filter(|share| 0 < share.part && share.part < share.of).ok_or_else(refused)
    }
}

/// When trials are compared, and how many of them go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Halving {
    /// Epochs, ascending.
    pub rungs: Vec<u32>,
    pub keep: Share,
}

/// A trial as it stands among the others.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Contestant {
    /// What it measured at each rung that it has reached, the lower the better; NaN is the worst.
    pub at_rungs: Vec<Option<f64>>,
    /// Whether there is nothing to stop: it is over, or it has not begun.
    pub is_settled: bool,
    /// Whether it failed, or somebody else ended it: it takes no place from others.
    pub is_out: bool,
}

/// A trial that is to be stopped, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stop {
    /// Its place among the contestants.
    pub trial: usize,
    pub epoch: u32,
    /// From 1.
    pub rank: usize,
    /// Trials that have a result there.
    pub among: usize,
}

impl Halving {
    /// How many go on beyond each rung, of so many trials.
    pub(super) fn room(&self, trials: usize) -> Vec<u64> {
        let next = |room: &mut u64, _: &u32| {
            *room = self.keep.of(*room);
            Some(*room)
        };
        self.rungs.iter().scan(trials as u64, next).collect()
    }

    /// Those that are to be stopped now, of all trials of a sweep.
    pub(super) fn stopped(&self, trials: &[Contestant]) -> Vec<Stop> {
        let room = self.room(trials.len());
        let judged = trials.iter().enumerate().filter(|(_, trial)| !trial.is_settled);
        let stops = judged.filter_map(|(number, trial)| {
            let rung = trial.at_rungs.iter().rposition(Option::is_some)?;
            let (rank, among) = rank_at(trials, number, rung)?;
            (rank as u64 > room[rung]).then(|| Stop { trial: number, epoch: self.rungs[rung], rank, among })
        });
        stops.collect()
    }
}

/// As which of how many a trial stands at a rung; `None` where it has no result there.
pub(super) fn rank_at(trials: &[Contestant], trial: usize, rung: usize) -> Option<(usize, usize)> {
    let result = |number: usize| trials[number].at_rungs.get(rung).copied().flatten();
    let own = result(trial)?;
    let counts = |number: &usize| *number == trial || !trials[*number].is_out;
    let others = (0..trials.len()).filter(counts).filter_map(|number| Some((result(number)?, number)));
    let (mut better, mut among) = (0, 0);
    for (theirs, number) in others {
        among += 1;
        better += usize::from(order(theirs, own).then(number.cmp(&trial)) == Ordering::Less);
    }
    Some((better + 1, among))
}

/// The lower is first; NaN is last.
pub(super) fn order(a: f64, b: f64) -> Ordering {
    a.is_nan().cmp(&b.is_nan()).then(a.total_cmp(&b))
}

/// `1st`, `2nd`, `3rd`, `11th`.
pub(super) fn ordinal(number: usize) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line is a trial: what it measured at each rung, `-` where it is not yet; `!` in front of one that is
    /// over.
    fn trials(drawing: &str) -> Vec<Contestant> {
        let trial = |line: &str| {
            let (is_settled, line) = match line.trim().strip_prefix('!') {
                Some(rest) => (true, rest),
                None => (false, line),
            };
            let at_rungs = line.split_whitespace().map(|word| word.parse().ok()).collect();
            Contestant { at_rungs, is_settled, is_out: false }
        };
        drawing.trim().lines().map(trial).collect()
    }

    fn halving(rungs: &[u32], keep: &str) -> Halving {
        Halving { rungs: rungs.to_vec(), keep: keep.parse().unwrap() }
    }

    #[test]
    fn who_failed_or_was_canceled_by_somebody_takes_no_place_from_others() {
        let trial = |at: f64, is_out| Contestant { at_rungs: vec![Some(at)], is_settled: is_out, is_out };
        let halving = halving(&[2], "1/3");
        let stopped = |best_is_out| {
            let trials = [trial(0.1, best_is_out), trial(0.5, false), trial(0.9, false)];
            halving.stopped(&trials).iter().map(|stop| stop.trial).collect::<Vec<_>>()
        };
        assert_eq!((stopped(false), stopped(true)), (vec![1, 2], vec![2]));
    }

    #[test]
    fn so_many_go_on_beyond_each_rung_table() {
        #[rustfmt::skip]
        let cases: [(usize, &str, &[u64]); 7] = [
            (9,  "1/3",  &[3, 1, 1]),
            (27, "1/3",  &[9, 3, 1]),
            (10, "1/3",  &[3, 1, 1]),
            (4,  "1/2",  &[2, 1, 1]),
            (4,  "0.5",  &[2, 1, 1]),
            (10, "0.3",  &[3, 1, 1]),
            (1,  "1/4",  &[1, 1, 1]),
        ];
        for (count, keep, want) in cases {
            assert_eq!(halving(&[1, 3, 9], keep).room(count), want, "{count} {keep}");
        }
    }

    #[test]
    fn a_share_is_a_fraction_between_0_and_1_table() {
        for text in ["1/3", "2/3", "0.5", "0.25"] {
            assert!(text.parse::<Share>().is_ok(), "{text}");
        }
        for text in ["", "1", "0", "0.0", "1/1", "0/3", "3/2", "1/0", "-0.5", "0.", "1.5", "x", "1/3/2"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }

    #[test]
    fn who_is_stopped_table() {
        /// Trial, epoch, rank, among how many.
        type Told = (usize, u32, usize, usize);
        // Rungs at epochs 1 and 3, half of 4 go on, and then one.
        #[rustfmt::skip]
        let cases: [(&str, &str, &[Told]); 9] = [
            ("nobody has come to a rung",            "- -\n- -\n- -\n- -",             &[]),
            ("there is room for two",                "0.5 -\n0.9 -\n- -\n- -",         &[]),
            ("the third is one too many",            "0.5 -\n0.9 -\n0.7 -\n- -",       &[(1, 1, 3, 3)]),
            ("one that is over counts and stays",    "0.5 -\n!0.9 -\n0.7 -\n0.6 -",    &[(2, 1, 3, 4)]),
            ("NaN is the worst",       "NaN -\n0.9 -\n0.7 -\n- -",       &[(0, 1, 3, 3)]),
            ("of equal ones the first goes on",      "0.5 -\n0.5 -\n0.5 -\n- -",       &[(2, 1, 3, 3)]),
            ("at the second there is room for one",  "0.5 0.4\n0.6 0.3\n- -\n- -",     &[(0, 3, 2, 2)]),
            ("the newest rung alone counts",         "0.9 0.1\n0.5 -\n0.6 -\n- -",     &[]),
            ("both rungs at once",                   "0.9 0.1\n0.8 0.2\n0.5 -\n0.6 -", &[(1, 3, 2, 2)]),
        ];
        for (name, drawing, want) in cases {
            let stops = halving(&[1, 3], "1/2").stopped(&trials(drawing));
            let got: Vec<_> =
                stops.iter().map(|stop| (stop.trial, stop.epoch, stop.rank, stop.among)).collect();
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn an_ordinal_is_read_aloud_table() {
        let cases = [
            (1, "1st"),
            (2, "2nd"),
            (3, "3rd"),
            (4, "4th"),
            (11, "11th"),
            (13, "13th"),
            (22, "22nd"),
            (112, "112th"),
        ];
        for (number, want) in cases {
            assert_eq!(ordinal(number), want);
        }
    }

    /// A small generator, so that a failure can be seen again.
    struct Random(syncline_onnx::SplitMix64);

    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            (self.0.uniform() * limit as f64) as usize
        }
    }

    /// Trains all trials, some at a time, one epoch of one of them after the other, in random order.
    /// `curves`: what each measures after each rung. Returns how far each came, in rungs.
    fn train(halving: &Halving, curves: &[Vec<f64>], at_once: usize, random: &mut Random) -> Vec<usize> {
        let rungs = halving.rungs.len();
        let unborn = Contestant { at_rungs: vec![None; rungs], is_settled: false, is_out: false };
        let mut trials = vec![unborn; curves.len()];
        let (mut next, mut active): (usize, Vec<usize>) = (0, Vec::new());
        loop {
            while active.len() < at_once && next < curves.len() {
                active.push(next);
                next += 1;
            }
            if active.is_empty() {
                return trials.iter().map(|trial| trial.at_rungs.iter().flatten().count()).collect();
            }
            let place = random.below(active.len());
            let trial = active[place];
            match trials[trial].at_rungs.iter().position(Option::is_none) {
                Some(rung) => trials[trial].at_rungs[rung] = Some(curves[trial][rung]),
                None => {
                    trials[trial].is_settled = true;
                    active.remove(place);
                }
            }
            for stop in halving.stopped(&trials) {
                trials[stop.trial].is_settled = true;
                active.retain(|trial| *trial != stop.trial);
            }
        }
    }

    #[test]
    fn in_any_order_the_best_of_a_rung_go_on_and_one_comes_to_the_end() {
        for seed in 0..400 {
            let mut random = Random(syncline_onnx::SplitMix64::new(seed));
            let (count, at_once) = (1 + random.below(12), 1 + random.below(6));
            let halving = halving(&[1, 3, 9], ["1/2", "1/3", "2/3"][random.below(3)]);
            let curves: Vec<Vec<f64>> =
                (0..count).map(|_| (0..3).map(|_| random.below(50) as f64).collect()).collect();
            let reached = train(&halving, &curves, at_once, &mut random);
            assert!(reached.iter().all(|rungs| *rungs >= 1), "seed {seed}: all come to the first rung");
            assert!(reached.contains(&3), "seed {seed}: somebody comes to the end");
            // Brute force: whoever is among the best of all that ever came to a rung went beyond it, or
            // stands at a later one.
            for (rung, room) in halving.room(count).into_iter().enumerate().take(2) {
                let mut at: Vec<usize> = (0..count).filter(|trial| reached[*trial] > rung).collect();
                at.sort_by(|a, b| order(curves[*a][rung], curves[*b][rung]).then(a.cmp(b)));
                for trial in at.iter().take(room as usize) {
                    assert!(
                        reached[*trial] > rung + 1,
                        "seed {seed}: trial {trial} is among the best at rung {rung}"
                    );
                }
            }
        }
    }

    #[test]
    fn all_at_once_and_in_step_is_successive_halving() {
        for seed in 0..200 {
            let mut random = Random(syncline_onnx::SplitMix64::new(seed));
            let count = 1 + random.below(12);
            let halving = halving(&[1, 3], "1/2");
            let curves: Vec<Vec<f64>> =
                (0..count).map(|_| (0..2).map(|_| random.below(50) as f64).collect()).collect();
            let mut trials =
                vec![Contestant { at_rungs: vec![None; 2], is_settled: false, is_out: false }; count];
            let mut survivors: Vec<usize> = (0..count).collect();
            for (rung, room) in halving.room(count).into_iter().enumerate() {
                for trial in (0..count).filter(|trial| !trials[*trial].is_settled).collect::<Vec<_>>() {
                    trials[trial].at_rungs[rung] = Some(curves[trial][rung]);
                }
                for stop in halving.stopped(&trials) {
                    trials[stop.trial].is_settled = true;
                }
                survivors.sort_by(|a, b| order(curves[*a][rung], curves[*b][rung]).then(a.cmp(b)));
                survivors.truncate(room as usize);
                let mut going: Vec<usize> = (0..count).filter(|trial| !trials[*trial].is_settled).collect();
                going.sort_by_key(|trial| survivors.iter().position(|one| one == trial));
                assert_eq!(going, survivors, "seed {seed}, rung {rung}");
            }
        }
    }
}
