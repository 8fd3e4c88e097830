//! One step of an optimizer along a slice.

use syncline_scheduler::spec::Optimizer;

use super::{OptimizerState, kernels};

/// What of a step follows from its number and its learning rate, and is the same for all elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepFactors {
    /// What the direction is multiplied by: the learning rate, for Adam over `1 - beta1^t`.
    pub rate: f32,
    /// `1 / sqrt(1 - beta2^t)` for Adam, else 1.
    pub root: f32,
    /// What is left of a weight before the step: below 1 for decoupled decay.
    pub shrink: f32,
}

impl StepFactors {
    /// Of step `t`, counted from 1.
    pub fn of(rule: &Optimizer, t: u64, learning_rate: f32) -> Self {
        let Optimizer::Adam { beta1, beta2, weight_decay, decoupled, .. } = *rule else {
            return Self { rate: learning_rate, root: 1.0, shrink: 1.0 };
        };
        let t = t.min(i32::MAX as u64) as i32;
        let corrected = |beta: f32| 1.0 - f64::from(beta).powi(t);
        Self {
            rate: (f64::from(learning_rate) / corrected(beta1)) as f32,
            root: (1.0 / corrected(beta2).sqrt()) as f32,
            shrink: if decoupled { 1.0 - learning_rate * weight_decay } else { 1.0 },
        }
    }
}

/// One step: moves `values` along `scale * gradient`. All slices have the length that `state` was made for.
///
/// # Panics
/// If the lengths differ: the caller cuts all of them by the same layout.
pub fn step(
    rule: &Optimizer,
    values: &mut [f32],
    state: &mut OptimizerState,
    gradient: &[f32],
    learning_rate: f32,
    scale: f32,
) {
    assert!(state.first.is_empty() || values.len() == state.first.len(), "state was made for this slice");
    StepKernel::of(rule, state.count(), learning_rate, scale).run(values, state, 0, gradient);
}

/// One step with everything that is the same for all elements, to be taken by some of a slice.
///
/// What takes no part is left as it is, its moments included: the lazy form of momentum and Adam. The bias
/// correction is that of the steps of the slice, as in PyTorch's `SparseAdam`.
pub(super) enum StepKernel {
    Sgd { learning_rate: f32, scale: f32, decay: f32 },
    Momentum { nesterov: bool, learning_rate: f32, scale: f32, momentum: f32, decay: f32 },
    Adam(kernels::AdamStep),
    RmsProp { centered: bool, step: kernels::RmsStep },
}

impl StepKernel {
    /// Step `t` of a slice, counted from 1.
    pub(super) fn of(rule: &Optimizer, t: u64, learning_rate: f32, scale: f32) -> Self {
        match *rule {
            Optimizer::Sgd { weight_decay: decay } => Self::Sgd { learning_rate, scale, decay },
            Optimizer::Momentum { momentum, nesterov, weight_decay: decay } => {
                Self::Momentum { nesterov, learning_rate, scale, momentum, decay }
            }
            Optimizer::Adam { beta1, beta2, epsilon, weight_decay, decoupled } => {
                let StepFactors { rate, root, shrink } = StepFactors::of(rule, t, learning_rate);
                Self::Adam(kernels::AdamStep {
                    beta1,
                    beta2,
                    keep1: (1.0 - f64::from(beta1)) as f32,
                    keep2: (1.0 - f64::from(beta2)) as f32,
                    rate,
                    root,
                    epsilon,
                    scale,
                    // Coupled decay joins the gradient, decoupled decay shrinks the weight.
                    coupled: if decoupled { 0.0 } else { weight_decay },
                    shrink,
                })
            }
            Optimizer::RmsProp { alpha, epsilon, momentum, centered, weight_decay: decay } => {
                let keep = (1.0 - f64::from(alpha)) as f32;
                let lr = learning_rate;
                Self::RmsProp {
                    centered,
                    step: kernels::RmsStep { alpha, keep, epsilon, momentum, lr, scale, decay },
                }
            }
        }
    }

    /// Takes the step with `values`, which begin at element `start` of the slice that `state` was made for.
    pub(super) fn run(&self, values: &mut [f32], state: &mut OptimizerState, start: usize, gradient: &[f32]) {
        assert_eq!(values.len(), gradient.len(), "parameters and gradient are cut by the same layout");
        let at = start..start + values.len();
        match *self {
            Self::Sgd { learning_rate, scale, decay } => {
                kernels::sgd(values, gradient, learning_rate, scale, decay);
            }
            Self::Momentum { nesterov, learning_rate, scale, momentum, decay } => {
                let run = if nesterov { kernels::nesterov } else { kernels::momentum };
                run(values, &mut state.first[at], gradient, learning_rate, scale, momentum, decay);
            }
            Self::Adam(step) => {
                kernels::adam(values, &mut state.first[at.clone()], &mut state.second[at], gradient, step);
            }
            Self::RmsProp { centered: false, step } if step.momentum == 0.0 => {
                kernels::rmsprop(values, &mut state.first[at], gradient, step);
            }
            Self::RmsProp { centered, step } => {
                let run = if centered { kernels::rmsprop_centered } else { kernels::rmsprop_momentum };
                run(values, &mut state.first[at.clone()], &mut state.second[at], gradient, step);
            }
        }
    }
}

#[cfg(test)]
pub(in crate::optim) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The rules as their papers write them, in f64.
    #[derive(Default)]
    pub(in crate::optim) struct Reference {
        m: Vec<f64>,
        v: Vec<f64>,
        t: i32,
    }

    impl Reference {
        pub(in crate::optim) fn step(
            &mut self,
            rule: &Optimizer,
            w: &mut [f64],
            g: &[f32],
            lr: f32,
            scale: f32,
        ) {
            self.t += 1;
            self.m.resize(w.len(), 0.0);
            self.v.resize(w.len(), 0.0);
            let lr = f64::from(lr);
            for i in 0..w.len() {
                let g = f64::from(g[i]) * f64::from(scale);
                match *rule {
                    Optimizer::Sgd { weight_decay } => w[i] -= lr * (g + f64::from(weight_decay) * w[i]),
                    Optimizer::Momentum { momentum, nesterov, weight_decay } => {
                        let (mu, g) = (f64::from(momentum), g + f64::from(weight_decay) * w[i]);
                        self.m[i] = mu * self.m[i] + g;
                        w[i] -= lr * if nesterov { g + mu * self.m[i] } else { self.m[i] };
                    }
                    Optimizer::Adam { beta1, beta2, epsilon, weight_decay, decoupled } => {
                        let (b1, b2, wd) = (f64::from(beta1), f64::from(beta2), f64::from(weight_decay));
                        let g = if decoupled { g } else { g + wd * w[i] };
                        if decoupled {
                            w[i] -= lr * wd * w[i];
                        }
                        self.m[i] = b1 * self.m[i] + (1.0 - b1) * g;
                        self.v[i] = b2 * self.v[i] + (1.0 - b2) * g * g;
                        let m = self.m[i] / (1.0 - b1.powi(self.t));
                        let v = self.v[i] / (1.0 - b2.powi(self.t));
                        w[i] -= lr * m / (v.sqrt() + f64::from(epsilon));
                    }
                    Optimizer::RmsProp { alpha, epsilon, momentum, centered, weight_decay } => {
                        let (alpha, g) = (f64::from(alpha), g + f64::from(weight_decay) * w[i]);
                        self.v[i] = alpha * self.v[i] + (1.0 - alpha) * g * g;
                        let square = if centered {
                            self.m[i] = alpha * self.m[i] + (1.0 - alpha) * g;
                            self.v[i] - self.m[i] * self.m[i]
                        } else {
                            self.v[i]
                        };
                        let step = g / (square.max(0.0).sqrt() + f64::from(epsilon));
                        if momentum > 0.0 {
                            self.m[i] = f64::from(momentum) * self.m[i] + step;
                        }
                        w[i] -= lr * if momentum > 0.0 { self.m[i] } else { step };
                    }
                }
            }
        }
    }

    pub(in crate::optim) fn rules() -> Vec<Optimizer> {
        let mut rules = vec![Optimizer::Sgd { weight_decay: 0.0 }, Optimizer::Sgd { weight_decay: 0.01 }];
        for flag in [false, true] {
            rules.push(Optimizer::Momentum { momentum: 0.9, nesterov: flag, weight_decay: 0.01 });
            rules.push(Optimizer::Adam {
                beta1: 0.9,
                beta2: 0.999,
                epsilon: 1e-8,
                weight_decay: 0.01,
                decoupled: flag,
            });
            // A larger epsilon than usual: the first centered steps divide by a difference of numbers that
            // are alike.
            let momentum = if flag { 0.0 } else { 0.5 };
            rules.push(Optimizer::RmsProp {
                alpha: 0.9,
                epsilon: 0.1,
                momentum,
                centered: flag,
                weight_decay: 0.01,
            });
        }
        let epsilon = 0.1;
        rules.push(Optimizer::RmsProp {
            alpha: 0.99,
            epsilon,
            momentum: 0.0,
            centered: false,
            weight_decay: 0.0,
        });
        rules
    }

    #[test]
    fn rmsprop_steps_as_by_hand() {
        // alpha 0.5, epsilon 1, rate 1, gradients 2 and 4, from a weight of 10. Mean squares: 0.5 * 0 + 0.5 *
        // 4 = 2, then 0.5 * 2 + 0.5 * 16 = 9. Mean gradients: 1, then 2.5; variances: 2 - 1 = 1, then
        // 9 - 6.25 = 2.75.
        let plain = [10.0 - 2.0 / (2f64.sqrt() + 1.0), 10.0 - 2.0 / (2f64.sqrt() + 1.0) - 4.0 / 4.0];
        let centered = [10.0 - 2.0 / 2.0, 9.0 - 4.0 / (2.75f64.sqrt() + 1.0)];
        // With a momentum of 0.5 the second step has half of the first quotient as well.
        let moved = [plain[0], plain[1] - 0.5 * 2.0 / (2f64.sqrt() + 1.0)];
        // A decay of 0.25 makes the first gradient 2 + 2.5 = 4.5, whose mean square is 10.125; the second is
        // 4 + 0.25 w.
        let first = 10.0 - 4.5 / (10.125f64.sqrt() + 1.0);
        let second = 4.0 + 0.25 * first;
        let decayed = [first, first - second / ((5.0625 + 0.5 * second * second).sqrt() + 1.0)];
        let rule = |momentum, centered, weight_decay| Optimizer::RmsProp {
            alpha: 0.5,
            epsilon: 1.0,
            momentum,
            centered,
            weight_decay,
        };
        for (rule, want) in [
            (rule(0.0, false, 0.0), plain),
            (rule(0.0, true, 0.0), centered),
            (rule(0.5, false, 0.0), moved),
            (rule(0.0, false, 0.25), decayed),
        ] {
            // More than one vector, and a rest.
            let mut w = vec![10.0; 19];
            let mut state = OptimizerState::new(&rule, w.len());
            for (gradient, want) in [1.0, 2.0].into_iter().zip(want) {
                // `scale` comes before anything else.
                step(&rule, &mut w, &mut state, &[gradient; 19], 1.0, 2.0);
                assert!(w.iter().all(|w| (f64::from(*w) - want).abs() < 1e-5), "{rule:?}: {w:?} for {want}");
            }
        }
    }

    #[test]
    fn a_centered_step_along_gradients_that_are_all_alike_is_finite() {
        let rule = Optimizer::RmsProp {
            alpha: 0.9,
            epsilon: 1e-8,
            momentum: 0.0,
            centered: true,
            weight_decay: 0.0,
        };
        let mut w = vec![0.5; 64];
        let mut state = OptimizerState::new(&rule, w.len());
        let gradient: Vec<f32> = (0..64u8).map(|n| 0.1 + 0.37 * f32::from(n)).collect();
        for _ in 0..2000 {
            step(&rule, &mut w, &mut state, &gradient, 1e-12, 1.0);
        }
        assert!(w.iter().all(|w| w.is_finite()), "{w:?}");
    }

    #[test]
    fn the_factors_of_a_step_follow_from_its_number_for_adam_alone() {
        let adam = |decoupled| Optimizer::Adam {
            beta1: 0.5,
            beta2: 0.75,
            epsilon: 1.0,
            weight_decay: 0.25,
            decoupled,
        };
        #[rustfmt::skip]
        let cases = [
            // rule, step, rate, root, shrink at a learning rate of 0.5
            (Optimizer::sgd(),      1, 0.5, 1.0, 1.0),
            (Optimizer::nesterov(), 9, 0.5, 1.0, 1.0),
            (adam(false),           1, 1.0, 2.0, 1.0),
            (adam(true),            1, 1.0, 2.0, 0.875),
            (adam(true),     u64::MAX, 0.5, 1.0, 0.875),
        ];
        for (rule, t, rate, root, shrink) in cases {
            assert_eq!(
                StepFactors::of(&rule, t, 0.5),
                StepFactors { rate, root, shrink },
                "{rule:?}, step {t}"
            );
        }
    }

    proptest! {
        #[test]
        fn every_rule_follows_its_f64_reference(
            start in prop::collection::vec(-2.0f32..2.0, 1..67),
            steps in prop::collection::vec((any::<u32>(), 0.001f32..0.1, 0.1f32..1.0), 1..20),
        ) {
            for rule in rules() {
                let mut w = start.clone();
                let mut state = OptimizerState::new(&rule, w.len());
                let mut want: Vec<f64> = start.iter().map(|&x| f64::from(x)).collect();
                let mut reference = Reference::default();
                for &(seed, lr, scale) in &steps {
                    let g: Vec<f32> = (0..w.len() as u32)
                        .map(|i| (seed.wrapping_mul(i + 7) % 2001) as f32 / 1000.0 - 1.0)
                        .collect();
                    step(&rule, &mut w, &mut state, &g, lr, scale);
                    reference.step(&rule, &mut want, &g, lr, scale);
                }
                for (got, want) in w.iter().zip(&want) {
                    prop_assert!((f64::from(*got) - want).abs() < 2e-5, "{rule:?}: {got} for {want}");
                }
                prop_assert_eq!(state.steps(), steps.len() as u64);
            }
        }

        #[test]
        fn a_cut_changes_no_bit(len in 2usize..200, at in 1usize..199) {
            let at = at.min(len - 1);
            let g: Vec<f32> = (0..len).map(|i| (i as f32).sin()).collect();
            for rule in rules() {
                let mut whole = vec![0.5; len];
                let (mut left, mut right) = (vec![0.5; at], vec![0.5; len - at]);
                let mut state = OptimizerState::new(&rule, len);
                let (mut a, mut b) = (OptimizerState::new(&rule, at), OptimizerState::new(&rule, len - at));
                for _ in 0..3 {
                    step(&rule, &mut whole, &mut state, &g, 0.1, 0.7);
                    step(&rule, &mut left, &mut a, &g[..at], 0.1, 0.7);
                    step(&rule, &mut right, &mut b, &g[at..], 0.1, 0.7);
                }
                prop_assert_eq!(&whole, &[left, right].concat());
            }
        }
    }
}
