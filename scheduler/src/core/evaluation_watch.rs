//! What the evaluations of a training say of it: which was the best, and whether it still becomes better.
//!
//! Pure. In: one evaluation after the other. Out: which was the best so far, and whether training is to stop.
//! The best is the first of those that none exceeds, by however little; `min_delta` counts only for the
//! patience, as in Keras and Lightning: an evaluation is an improvement when it exceeds the last improvement
//! by more than that.

use serde::{Deserialize, Serialize};

use super::evaluation::Evaluation;
use crate::spec::{EvaluateSpec, EvaluationsBefore, LearningRate, TrainSpec};

/// An evaluation, and after how many samples it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SeenEvaluation {
    pub samples: u64,
    pub evaluation: Evaluation,
    /// When it was known, since the epoch of Unix; 0 for one of another job, which this one goes on with.
    #[serde(default)]
    pub at_ms: u64,
}

/// What the evaluations so far have shown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct EvaluationWatch {
    /// The best one; `None` as long as none had a figure that is a number.
    pub best: Option<SeenEvaluation>,
    pub newest: Option<SeenEvaluation>,
    /// The figure of the last improvement.
    improved: Option<f64>,
    /// Evaluations since, one of which is the newest.
    waited: u32,
    /// Evaluations since that or since the last reduction of the learning rate.
    #[serde(default)]
    stalled: u32,
    /// What the learning rate is multiplied by because nothing became better; `None` where it never was.
    #[serde(default)]
    pub multiplier: Option<f64>,
    /// How often it was reduced, in a job that was stored when there was no multiplier.
    #[serde(default, skip_serializing_if = "is_none")]
    reductions: u32,
}

/// Whether there are none.
fn is_none(reductions: &u32) -> bool {
    *reductions == 0
}

impl EvaluationWatch {
    /// That of a training that goes on where the evaluations of another one had shown this.
    pub fn going_on(before: &EvaluationsBefore) -> Self {
        let evaluation = Evaluation::of_figure(before.monitor, before.best);
        let best = Some(SeenEvaluation { samples: before.best_samples, evaluation, at_ms: 0 });
        let &EvaluationsBefore { improved, waited, stalled, .. } = before;
        Self { best, improved: Some(improved), waited, stalled, ..Self::default() }
    }

    /// What another training that goes on from here is told; `None` as long as none had a figure that is a
    /// number. Where the parameters of the best are is not known here.
    pub fn told_on(&self, train: &TrainSpec) -> Option<EvaluationsBefore> {
        let (monitor, best) = (train.evaluate?.monitor, self.best.as_ref()?);
        Some(EvaluationsBefore {
            monitor,
            on_validation: train.data.has_validation(),
            best: best.evaluation.figure(monitor)?,
            best_samples: best.samples,
            best_checkpoint: None,
            improved: self.improved?,
            waited: self.waited,
            stalled: self.stalled,
            graph: Some(train.model.evaluation_graph),
            data: train.data.digest,
        })
    }

    /// What the learning rate of a training that is evaluated like this is multiplied by; `None` where it was
    /// never reduced.
    pub fn reduced_by(&self, spec: Option<&EvaluateSpec>) -> Option<f64> {
        let of_before = || {
            let reduce = spec?.reduce_on_plateau.filter(|_| self.reductions > 0)?;
            Some(f64::from(reduce.factor).powi(i32::try_from(self.reductions).unwrap_or(i32::MAX)))
        };
        self.multiplier.or_else(of_before)
    }

    /// Takes one more evaluation in, which may reduce the learning rate. Whether training is to stop: it has
    /// not become better for as long as it may.
    pub fn see(&mut self, spec: &EvaluateSpec, rate: &LearningRate, seen: SeenEvaluation) -> bool {
        let (monitor, figure) = (spec.monitor, seen.evaluation.figure(spec.monitor));
        let before = self.best.as_ref().and_then(|best| best.evaluation.figure(monitor));
        let exceeds = |other: Option<f64>, by: f64| {
            figure.is_some_and(|figure| other.is_none_or(|other| monitor.gain(figure, other) > by))
        };
        let min_delta = spec.early_stopping.map_or(0.0, |stop| stop.min_delta);
        if exceeds(self.improved, min_delta) {
            (self.improved, self.waited, self.stalled) = (figure, 0, 0);
        } else {
            (self.waited, self.stalled) = (self.waited.saturating_add(1), self.stalled.saturating_add(1));
        }
        if exceeds(before, 0.0) {
            self.best = Some(seen.clone());
        }
        self.newest = Some(seen);
        let stops = spec.early_stopping.is_some_and(|stop| self.waited >= stop.patience);
        let is_plateau = |patience| !stops && self.stalled >= patience;
        if let Some(reduce) = spec.reduce_on_plateau.filter(|reduce| is_plateau(reduce.patience)) {
            let reached = self.reduced_by(Some(spec)).unwrap_or(1.0);
            self.multiplier = Some(reduce.reduce(reached, rate.base));
            (self.stalled, self.reductions) = (0, 0);
        }
        stops
    }

    /// The newest one, if it was of exactly these samples.
    pub fn after(&self, samples: u64) -> Option<&Evaluation> {
        self.newest.as_ref().filter(|newest| newest.samples == samples).map(|newest| &newest.evaluation)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        sim::training,
        spec::{EarlyStopping, Metric, ReduceOnPlateau},
    };

    fn spec(monitor: Metric, patience: u32, min_delta: f64) -> EvaluateSpec {
        let early_stopping = Some(EarlyStopping { patience, min_delta });
        EvaluateSpec { monitor, early_stopping, ..EvaluateSpec::every_epochs(1) }
    }

    fn of(monitor: Metric, figure: f64) -> Evaluation {
        Evaluation::of_figure(monitor, figure)
    }

    fn seen(evaluation: Evaluation, samples: u64) -> SeenEvaluation {
        SeenEvaluation { samples, evaluation, at_ms: 0 }
    }

    fn rate() -> LearningRate {
        LearningRate::constant(1.0)
    }

    /// Which evaluation is the best in the end, from 1, and the one at which training stops.
    fn watch(spec: &EvaluateSpec, figures: &[f64]) -> (Option<u64>, Option<u64>) {
        let mut watch = EvaluationWatch::default();
        let stop = (1..).zip(figures).find_map(|(n, figure)| {
            watch.see(spec, &rate(), seen(of(spec.monitor, *figure), n)).then_some(n)
        });
        (watch.best.map(|best| best.samples), stop)
    }

    #[test]
    fn what_is_best_and_when_training_stops() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        let (loss, accuracy) = (Metric::Loss, Metric::Accuracy);
        let (top_k, perplexity) = (Metric::TopKAccuracy, Metric::Perplexity);
        type Case<'a> = (&'a str, Metric, u32, f64, &'a [f64], Option<u64>, Option<u64>);
        #[rustfmt::skip]
        let cases: &[Case<'_>] = &[
            ("falls all the time",             loss,     1, 0.0, &[4.0, 3.0, 2.0, 1.0],           Some(4), None),
            ("one that is worse is enough",    loss,     1, 0.0, &[4.0, 3.0, 3.5],                Some(2), Some(3)),
            ("as good is no better",           loss,     2, 0.0, &[4.0, 4.0, 4.0],                Some(1), Some(3)),
            ("what is better counts anew",     loss,     2, 0.0, &[4.0, 5.0, 3.0, 4.0, 4.0],      Some(3), Some(5)),
            ("too little is no better",        loss,     2, 0.5, &[4.0, 3.8, 3.6],                Some(3), Some(3)),
            ("little by little is enough",     loss,     3, 0.5, &[4.0, 3.8, 3.6, 3.4, 3.4, 3.4], Some(4), None),
            ("exactly the delta is too little", loss,    1, 0.5, &[4.0, 3.5],                     Some(2), Some(2)),
            ("no number is never better",      loss,     2, 0.0, &[nan, nan],                     None,    Some(2)),
            ("a number is better than none",   loss,     2, 0.0, &[inf, 9.0, nan, nan],           Some(2), Some(4)),
            ("accuracy rises",                 accuracy, 1, 0.0, &[0.5, 0.6, 0.7],                Some(3), None),
            ("accuracy falls",                 accuracy, 2, 0.0, &[0.5, 0.4, 0.3],                Some(1), Some(3)),
            ("top-k accuracy falls",           top_k,    1, 0.0, &[0.5, 0.6, 0.4],                Some(2), Some(3)),
            ("perplexity rises",               perplexity, 1, 0.0, &[9.0, 8.0, 8.5],              Some(2), Some(3)),
        ];
        for (name, monitor, patience, min_delta, figures, best, stop) in cases {
            let got = watch(&spec(*monitor, *patience, *min_delta), figures);
            assert_eq!(got, (*best, *stop), "{name}");
        }
    }

    #[test]
    fn the_rate_falls_at_each_plateau_unless_training_stops_there() {
        type Case<'a> = (&'a str, u32, Option<u32>, &'a [f64], &'a [f64]);
        #[rustfmt::skip]
        let cases: &[Case<'_>] = &[
            // Patience, that of early stopping, losses; what the rate is multiplied by after each.
            ("falls all the time",              1, None,    &[4.0, 3.0, 2.0],                &[1.0, 1.0, 1.0]),
            ("one that is worse is enough",     1, None,    &[4.0, 4.0, 3.0, 5.0],           &[1.0, 0.5, 0.5, 0.25]),
            ("again as long after it fell",     2, None,    &[4.0, 4.0, 4.0, 4.0, 4.0],      &[1.0, 1.0, 0.5, 0.5, 0.25]),
            ("what is better counts anew",      2, None,    &[4.0, 5.0, 3.0, 3.0, 3.0],      &[1.0, 1.0, 1.0, 1.0, 0.5]),
            ("training stops at the second",    1, Some(2), &[4.0, 4.0, 4.0],                &[1.0, 0.5, 0.5]),
        ];
        for (name, patience, stop, losses, want) in cases {
            let spec = EvaluateSpec {
                early_stopping: stop.map(EarlyStopping::patience),
                ..EvaluateSpec::every_epochs(1)
                    .reduce_on_plateau(ReduceOnPlateau::patience(*patience).factor(0.5))
            };
            let mut watch = EvaluationWatch::default();
            let got = (1..).zip(*losses).map(|(n, loss)| {
                watch.see(&spec, &rate(), seen(of(Metric::Loss, *loss), n));
                // Another job that goes on from here counts on.
                let train = training("bsp".parse().unwrap(), 10, 1);
                let train = TrainSpec { evaluate: Some(spec), ..train };
                let told = watch.told_on(&train).unwrap();
                let other = EvaluationWatch::going_on(&told);
                assert_eq!(other.stalled, watch.stalled, "{name}");
                watch.reduced_by(Some(&spec)).unwrap_or(1.0)
            });
            assert_eq!(got.collect::<Vec<_>>(), *want, "{name}");
        }
    }

    #[test]
    fn what_was_stored_as_a_number_of_reductions_goes_on_from_there() {
        let reduce = ReduceOnPlateau::patience(1).factor(0.5);
        let spec = EvaluateSpec::every_epochs(1).reduce_on_plateau(reduce);
        let stored = r#"{ "best": null, "newest": null, "improved": 1.0, "waited": 0, "reductions": 2 }"#;
        let mut watch: EvaluationWatch = serde_json::from_str(stored).unwrap();
        assert_eq!(watch.reduced_by(Some(&spec)), Some(0.25));
        watch.see(&spec, &rate(), seen(of(Metric::Loss, 1.0), 1));
        assert_eq!((watch.multiplier, watch.reductions), (Some(0.125), 0));
    }

    #[test]
    fn a_metric_that_is_not_computed_is_never_better() {
        let spec = spec(Metric::Accuracy, 1, 0.0);
        let mut watch = EvaluationWatch::default();
        assert!(watch.see(&spec, &rate(), seen(of(Metric::Loss, 1.0), 1)));
        assert_eq!(watch.best, None);
    }

    proptest! {
        /// Looks at all evaluations at once, as the definition does.
        #[test]
        fn it_stops_at_the_first_run_of_evaluations_none_of_which_improves(
            figures in prop::collection::vec((0u8..8).prop_map(|n| f64::from(n) / 4.0), 1..30),
            patience in 1u32..5,
            delta in (0u8..3).prop_map(|n| f64::from(n) / 4.0),
            is_accuracy: bool,
        ) {
            let monitor = if is_accuracy { Metric::Accuracy } else { Metric::Loss };
            let (best, stop) = watch(&spec(monitor, patience, delta), &figures);
            let mut improvements = vec![0];
            for n in 1..figures.len() {
                let last = figures[*improvements.last().unwrap()];
                if monitor.gain(figures[n], last) > delta {
                    improvements.push(n);
                }
            }
            let ends = improvements.iter().skip(1).copied().chain([figures.len()]);
            let stopped = improvements.iter().zip(ends).find(|(begin, end)| end - *begin > patience as usize);
            let stopped = stopped.map(|(begin, _)| (*begin + 1) as u64 + u64::from(patience));
            prop_assert_eq!(stop, stopped);
            let seen = &figures[..stop.map_or(figures.len(), |stop| stop as usize)];
            let first_best = (0..seen.len()).find(|&n| seen.iter().all(|other| monitor.gain(*other, seen[n]) <= 0.0));
            prop_assert_eq!(best, first_best.map(|n| n as u64 + 1));
        }

        #[test]
        fn with_more_patience_it_never_stops_earlier(
            figures in prop::collection::vec(0f64..2.0, 1..30), patience in 1u32..5
        ) {
            let stop = |patience| watch(&spec(Metric::Loss, patience, 0.0), &figures).1.unwrap_or(u64::MAX);
            prop_assert!(stop(patience) < stop(patience + 1) || stop(patience) == u64::MAX);
        }
    }
}
