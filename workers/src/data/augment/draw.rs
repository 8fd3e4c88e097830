//! What becomes of one sample in one epoch.

use syncline_scheduler::samples::{draw_below, splitmix64};

/// A pass over the training samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// That of the job.
    pub seed: u64,
    /// From 0.
    pub epoch: u32,
}

/// What is done to all images of a data set, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) flip: bool,
    /// On each side.
    pub(super) padding: usize,
    /// Side of the square that is covered.
    pub(super) square: usize,
}

/// A cut of the size of the image, and what is done to it then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Draw {
    /// Where the cut begins in the padded image.
    pub(super) top: usize,
    pub(super) left: usize,
    pub(super) mirrored: bool,
    /// Row and column of the middle of the square that is covered.
    pub(super) middle: (usize, usize),
}

/// Makes what is drawn here other numbers than those that the order of the samples is drawn with.
const AUGMENT: u64 = 0x61_7567_6d65_6e74;

impl Draw {
    /// For the sample of this row of the data set. All is drawn whatever is asked for: a setting changes
    /// nothing of what the others do.
    pub(super) fn of(rule: Rule, pass: Pass, row: u32) -> Self {
        let key = [pass.seed ^ AUGMENT, pass.epoch.into(), row.into()];
        let mut state = key.into_iter().fold(0, |mut mixed, number| {
            mixed ^= number;
            splitmix64(&mut mixed)
        });
        let mut below = |bound: usize| draw_below(&mut state, bound as u64) as usize;
        let places = 2 * rule.padding + 1;
        Self {
            mirrored: below(2) == 1 && rule.flip,
            top: below(places),
            left: below(places),
            middle: (below(rule.height), below(rule.width)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Rule = Rule { height: 32, width: 24, flip: true, padding: 4, square: 8 };
    const SAMPLES: u32 = 20_000;

    fn draws(rule: Rule, pass: Pass) -> Vec<Draw> {
        (0..SAMPLES).map(|row| Draw::of(rule, pass, row)).collect()
    }

    /// How often each value comes, and whether all come about as often: within five deviations of a binomial
    /// distribution.
    fn assert_uniform(name: &str, values: impl Iterator<Item = usize>, count: usize) {
        let mut found = vec![0f64; count];
        values.for_each(|value| found[value] += 1.0);
        let (n, p) = (f64::from(SAMPLES), 1.0 / count as f64);
        let bound = 5.0 * (n * p * (1.0 - p)).sqrt();
        assert!(found.iter().all(|times| (times - n * p).abs() < bound), "{name}: {found:?}");
    }

    #[test]
    fn half_of_the_samples_are_mirrored_and_all_places_come_equally_often_in_every_pass() {
        for pass in [Pass { seed: 0, epoch: 0 }, Pass { seed: 0, epoch: 1 }, Pass { seed: 7, epoch: 99 }] {
            let draws = draws(ALL, pass);
            let of = |value: fn(&Draw) -> usize| draws.iter().map(value);
            assert_uniform("mirrored", of(|draw| draw.mirrored.into()), 2);
            assert_uniform("top", of(|draw| draw.top), 9);
            assert_uniform("left", of(|draw| draw.left), 9);
            assert_uniform("middle row", of(|draw| draw.middle.0), ALL.height);
            assert_uniform("middle column", of(|draw| draw.middle.1), ALL.width);
            // They depend on each other no more than on the sample.
            assert_uniform("top and left", of(|draw| draw.top * 9 + draw.left), 81);
            assert_uniform("mirrored and left", of(|draw| draw.left * 2 + usize::from(draw.mirrored)), 18);
        }
    }

    #[test]
    fn seed_epoch_and_row_decide_and_each_of_them_makes_another_image() {
        let pass = Pass { seed: 3, epoch: 5 };
        assert_eq!(draws(ALL, pass), draws(ALL, pass));
        let others = [Pass { seed: 4, epoch: 5 }, Pass { seed: 3, epoch: 6 }];
        let first = draws(ALL, pass);
        for other in others.map(|pass| draws(ALL, pass)) {
            let same = first.iter().zip(&other).filter(|(a, b)| (a.top, a.left) == (b.top, b.left)).count();
            // One in 81.
            assert!((150..350).contains(&same), "{same} of {SAMPLES}");
        }
    }

    #[test]
    fn a_setting_changes_nothing_of_what_the_others_do() {
        let pass = Pass { seed: 1, epoch: 2 };
        let plain = draws(Rule { flip: false, ..ALL }, pass);
        assert!(plain.iter().all(|draw| !draw.mirrored));
        for (draw, plain) in draws(ALL, pass).into_iter().zip(plain) {
            assert_eq!(Draw { mirrored: false, ..draw }, plain);
        }
        let unpadded = Rule { padding: 0, square: 0, ..ALL };
        for row in 0..100 {
            let (draw, cropped) = (Draw::of(unpadded, pass, row), Draw::of(ALL, pass, row));
            assert_eq!((draw.top, draw.left), (0, 0));
            assert_eq!((draw.mirrored, draw.middle), (cropped.mirrored, cropped.middle));
        }
    }

    #[test]
    fn what_is_drawn_is_what_every_release_draws() {
        let drawn = |row| Draw::of(ALL, Pass { seed: 7, epoch: 3 }, row);
        let drawn = [drawn(0), drawn(1), drawn(49_999)];
        let draw = |mirrored, top, left, middle| Draw { top, left, mirrored, middle };
        // Computed apart, in Python.
        let want = [draw(true, 6, 8, (22, 12)), draw(true, 0, 6, (13, 11)), draw(false, 3, 4, (7, 5))];
        assert_eq!(drawn, want);
    }
}
