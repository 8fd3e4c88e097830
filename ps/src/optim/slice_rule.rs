//! An optimizer for a slice of parameters of which some have settings of their own.
//!
//! A slice may hold many small tensors, and a tensor may go on in the next slice: what counts is how long the
//! runs of elements are that step alike. Each run costs a call, each kind of run a [`StepKernel`]; a slice
//! that steps alike throughout costs what it would cost without any of this.

use syncline_scheduler::spec::{Optimizer, StepSettings};

use super::{OptimizerState, step::StepKernel};

/// How the elements of a slice step.
#[derive(Debug, Clone)]
pub(crate) struct SliceRule {
    /// That of the first run.
    first: Kind,
    /// Those that other runs have.
    others: Vec<Kind>,
    /// One behind the other up to the end of the slice; empty where all of it is one.
    runs: Vec<Run>,
}

/// Elements that step alike.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// The first element behind them.
    end: usize,
    /// 0: the first kind; else one more than the place among the others.
    kind: usize,
}

/// The optimizer with the weight decay of a run, and the factor on the learning rate.
type Kind = (Optimizer, f32);

impl SliceRule {
    /// All elements step as the optimizer has it.
    pub(crate) fn usual(optimizer: &Optimizer) -> Self {
        Self { first: (*optimizer, 1.0), others: Vec::new(), runs: Vec::new() }
    }

    /// `runs`: lengths and settings of consecutive elements, up to the end of the slice.
    pub(crate) fn of_runs(
        optimizer: &Optimizer,
        runs: impl IntoIterator<Item = (usize, StepSettings)>,
    ) -> Self {
        let mut runs = runs.into_iter().filter(|(elements, _)| *elements > 0);
        let Some((mut end, settings)) = runs.next() else { return Self::usual(optimizer) };
        let kind = |settings: StepSettings| (settings.optimizer(optimizer), settings.learning_rate_factor);
        let mut rule = Self { first: kind(settings), others: Vec::new(), runs: vec![Run { end, kind: 0 }] };
        for (elements, settings) in runs {
            end += elements;
            let kind = rule.place_of(kind(settings));
            match rule.runs.last_mut().filter(|run| run.kind == kind) {
                Some(run) => run.end = end,
                None => rule.runs.push(Run { end, kind }),
            }
        }
        if rule.others.is_empty() {
            rule.runs.clear();
        }
        rule
    }

    fn place_of(&mut self, kind: Kind) -> usize {
        if self.first == kind {
            return 0;
        }
        let known = self.others.iter().position(|other| *other == kind);
        known.unwrap_or_else(|| {
            self.others.push(kind);
            self.others.len() - 1
        }) + 1
    }

    /// Counts the next step of the slice.
    pub(crate) fn next(&self, state: &mut OptimizerState, learning_rate: f32, scale: f32) -> SliceStep<'_> {
        let t = state.count();
        let kernel = |(rule, factor): &Kind| StepKernel::of(rule, t, learning_rate * factor, scale);
        SliceStep {
            first: kernel(&self.first),
            others: self.others.iter().map(kernel).collect(),
            runs: &self.runs,
        }
    }
}

/// One step, to be taken by some of a slice.
pub(crate) struct SliceStep<'a> {
    first: StepKernel,
    others: Vec<StepKernel>,
    runs: &'a [Run],
}

impl SliceStep<'_> {
    /// Takes the step with `values`, which begin at element `start` of the slice.
    pub(crate) fn run(
        &self,
        mut values: &mut [f32],
        state: &mut OptimizerState,
        start: usize,
        mut gradient: &[f32],
    ) {
        if self.runs.is_empty() {
            return self.first.run(values, state, start, gradient);
        }
        let mut at = start;
        let before = self.runs.partition_point(|run| run.end <= start);
        for run in &self.runs[before..] {
            let elements = values.len().min(run.end - at);
            let here = values.split_off_mut(..elements).zip(gradient.split_off(..elements));
            let Some((values, gradient)) = here.filter(|_| elements > 0) else { return };
            let kernel = run.kind.checked_sub(1).map_or(&self.first, |other| &self.others[other]);
            kernel.run(values, state, at, gradient);
            at += elements;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::step::tests::{Reference, rules},
        *,
    };

    const SETTINGS: [StepSettings; 4] = [
        StepSettings { weight_decay: None, learning_rate_factor: 1.0 },
        StepSettings { weight_decay: Some(0.0), learning_rate_factor: 1.0 },
        StepSettings { weight_decay: None, learning_rate_factor: 0.1 },
        StepSettings { weight_decay: Some(0.3), learning_rate_factor: 3.0 },
    ];

    #[test]
    fn runs_that_step_alike_are_one_and_a_slice_of_one_has_none() {
        let [usual, no_decay, slow, _] = SETTINGS;
        #[rustfmt::skip]
        let cases = [
            (vec![],                                            vec![]),
            (vec![(5, usual)],                                  vec![]),
            (vec![(5, slow), (3, slow)],                        vec![]),
            (vec![(5, usual), (0, slow), (3, usual)],           vec![]),
            (vec![(5, usual), (3, slow), (1, slow), (2, usual)], vec![(5, 0), (9, 1), (11, 0)]),
            (vec![(1, slow), (1, no_decay), (1, usual)],        vec![(1, 0), (2, 1), (3, 2)]),
        ];
        for (runs, want) in cases {
            let rule = SliceRule::of_runs(&Optimizer::adamw(), runs.iter().copied());
            let found: Vec<(usize, usize)> = rule.runs.iter().map(|run| (run.end, run.kind)).collect();
            assert_eq!(found, want, "{runs:?}");
        }
        let rule = SliceRule::of_runs(&Optimizer::sgd(), [(2, usual), (2, no_decay)]);
        assert!(rule.runs.is_empty(), "no decay is no difference where there is none");
    }

    proptest! {
        #[test]
        fn every_run_follows_the_f64_reference_with_its_own_settings(
            runs in prop::collection::vec((1usize..40, 0usize..4), 1..8),
            steps in prop::collection::vec((any::<u32>(), 0.001f32..0.1, 0.1f32..1.0), 1..8),
            cuts in prop::collection::vec(0usize..300, 0..4),
        ) {
            let len: usize = runs.iter().map(|(elements, _)| elements).sum();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % len).chain([0, len]).collect();
            cuts.sort_unstable();
            for optimizer in rules() {
                let own = runs.iter().map(|(elements, which)| (*elements, SETTINGS[*which]));
                let rule = SliceRule::of_runs(&optimizer, own.clone());
                let mut w: Vec<f32> = (0..len).map(|i| (i as f32).cos()).collect();
                let mut want: Vec<f64> = w.iter().map(|&x| f64::from(x)).collect();
                let mut state = OptimizerState::new(&optimizer, len);
                let mut references: Vec<Reference> = runs.iter().map(|_| Reference::default()).collect();
                for &(seed, lr, scale) in &steps {
                    let g: Vec<f32> = (0..len as u32)
                        .map(|i| (seed.wrapping_mul(i + 7) % 2001) as f32 / 1000.0 - 1.0)
                        .collect();
                    let step = rule.next(&mut state, lr, scale);
                    // In pieces, as a chunk is stepped block by block.
                    for cut in cuts.windows(2) {
                        step.run(&mut w[cut[0]..cut[1]], &mut state, cut[0], &g[cut[0]..cut[1]]);
                    }
                    let mut at = 0;
                    for ((elements, settings), reference) in own.clone().zip(&mut references) {
                        let here = at..at + elements;
                        let lr = settings.learning_rate(lr);
                        reference.step(&settings.optimizer(&optimizer), &mut want[here.clone()], &g[here], lr, scale);
                        at += elements;
                    }
                }
                for (got, want) in w.iter().zip(&want) {
                    prop_assert!((f64::from(*got) - want).abs() < 5e-5, "{optimizer:?}: {got} for {want}");
                }
                prop_assert_eq!(state.steps(), steps.len() as u64);
            }
        }
    }
}
