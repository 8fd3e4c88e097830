//! Settings of a training in a few words, by which people tell jobs apart.

use std::fmt;

use super::{Decay, LearningRate, Optimizer};

impl Optimizer {
    /// The name by which a job asks for it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Sgd { .. } => "sgd",
            Self::Momentum { nesterov: false, .. } => "momentum",
            Self::Momentum { nesterov: true, .. } => "nesterov",
            Self::Adam { decoupled: false, .. } => "adam",
            Self::Adam { decoupled: true, .. } => "adamw",
            Self::RmsProp { .. } => "rmsprop",
        }
    }

    /// Its numbers, by name.
    fn numbers(&self) -> Vec<(&'static str, f32)> {
        match *self {
            Self::Sgd { weight_decay } => vec![("weight_decay", weight_decay)],
            Self::Momentum { momentum, weight_decay, .. } => {
                vec![("momentum", momentum), ("weight_decay", weight_decay)]
            }
            Self::Adam { beta1, beta2, epsilon, weight_decay, .. } => {
                vec![("beta1", beta1), ("beta2", beta2), ("epsilon", epsilon), ("weight_decay", weight_decay)]
            }
            Self::RmsProp { alpha, epsilon, momentum, centered: _, weight_decay } => {
                vec![
                    ("alpha", alpha),
                    ("epsilon", epsilon),
                    ("momentum", momentum),
                    ("weight_decay", weight_decay),
                ]
            }
        }
    }

    /// The one that its name alone stands for.
    fn plain(&self) -> Self {
        match self {
            Self::Sgd { .. } => Self::sgd(),
            Self::Momentum { nesterov: false, .. } => Self::momentum(),
            Self::Momentum { nesterov: true, .. } => Self::nesterov(),
            Self::Adam { decoupled: false, .. } => Self::adam(),
            Self::Adam { decoupled: true, .. } => Self::adamw(),
            Self::RmsProp { .. } => Self::rmsprop(),
        }
    }
}

/// Its name, and its numbers where they are others than the name stands for: `adam, weight_decay 0.1`.
impl fmt::Display for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let numbers = self.numbers().into_iter().zip(self.plain().numbers());
        for ((name, number), _) in numbers.filter(|(own, plain)| own != plain) {
            write!(f, ", {name} {number}")?;
        }
        if let Self::RmsProp { centered: true, .. } = self {
            f.write_str(", centered")?;
        }
        Ok(())
    }
}

impl LearningRate {
    /// How the rate goes on from its base, such as `cosine to 0, warmup 0.1`; `None` if it stays what it is.
    pub fn schedule(&self) -> Option<String> {
        let Self { decay, warmup, min, .. } = self;
        let decay = match decay {
            Decay::Constant => None,
            Decay::Cosine => Some(format!("cosine to {min}")),
            Decay::Linear => Some(format!("linear to {min}")),
            Decay::Exponential => Some(format!("exponential to {min}")),
            Decay::OneCycle => Some(format!("one-cycle to {min}")),
            Decay::Steps(steps) => {
                let steps: Vec<String> =
                    steps.iter().map(|(share, factor)| format!("{factor} at {share}")).collect();
                Some(format!("times {}", steps.join(", ")))
            }
        };
        let warmup = (*warmup > 0.0).then(|| format!("warmup {warmup}"));
        let said: Vec<String> = decay.into_iter().chain(warmup).collect();
        (!said.is_empty()).then(|| said.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_optimizer_says_what_its_name_does_not() {
        use Optimizer as O;
        let decayed = O::Adam { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.1, decoupled: false };
        let centered =
            O::RmsProp { alpha: 0.9, epsilon: 1e-8, momentum: 0.0, centered: true, weight_decay: 0.0 };
        #[rustfmt::skip]
        let cases = [
            (O::sgd(),                                "sgd"),
            (O::nesterov(),                           "nesterov"),
            (O::adamw(),                              "adamw"),
            (O::Sgd { weight_decay: 5e-4 },           "sgd, weight_decay 0.0005"),
            (decayed,                                 "adam, beta2 0.99, weight_decay 0.1"),
            (O::rmsprop(),                            "rmsprop"),
            (centered,                                "rmsprop, alpha 0.9, centered"),
        ];
        for (optimizer, text) in cases {
            assert_eq!(optimizer.to_string(), text);
        }
    }

    #[test]
    fn a_schedule_is_told_unless_the_rate_stays_what_it_is() {
        let constant = LearningRate::constant(0.1);
        assert_eq!(constant.schedule(), None);
        let with = |decay, warmup, min| LearningRate { decay, warmup, min, ..constant.clone() }.schedule();
        assert_eq!(with(Decay::Constant, 0.25, 0.0).as_deref(), Some("warmup 0.25"));
        assert_eq!(with(Decay::Cosine, 0.5, 0.01).as_deref(), Some("cosine to 0.01, warmup 0.5"));
        assert_eq!(with(Decay::Exponential, 0.0, 0.01).as_deref(), Some("exponential to 0.01"));
        assert_eq!(with(Decay::OneCycle, 0.3, 0.0).as_deref(), Some("one-cycle to 0, warmup 0.3"));
        let steps = Decay::Steps(vec![(0.5, 0.1), (0.75, 0.2)]);
        assert_eq!(with(steps, 0.0, 0.0).as_deref(), Some("times 0.1 at 0.5, 0.2 at 0.75"));
    }
}
