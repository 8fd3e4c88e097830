//! The settings of a training by their names: one list, which `status`, `submit --dry-run` and `metrics`
//! show.

use super::{
    CheckpointSpec, Compression, Decay, EarlyStopping, EvaluateSpec, LearningRate, Metric, OnNan, Optimizer,
    PullCompression, ReduceOnPlateau, Setting, SettingList, TrainSpec, setting_value as value,
};

/// What of the settings that only the submission knows stands behind the precision.
const BEHIND_PRECISION: [&str; 2] = ["settings.recompute", "settings.check"];

impl TrainSpec {
    /// Its settings as a job file has them, those of the model, of the data, and of the training. What is the
    /// default is left out, but for optimizer, learning rate, policy, batch, epochs and seed.
    ///
    /// Cost O(length of the settings), with an allocation for each: once for a job, not for each commit.
    pub fn setting_list(&self) -> SettingList {
        // Without `..`: a setting that is added is told, too, or left out on purpose.
        let Self {
            model: _,
            data,
            optimizer,
            learning_rate: LearningRate { base, decay, warmup, min },
            policy,
            batch,
            micro_batch,
            epochs,
            drop_last,
            shuffle,
            seed,
            on_nan,
            clip_norm,
            min_workers,
            max_workers,
            ahead,
            queue_limit_ms,
            checkpoint,
            evaluate,
            resume,
            compression,
            pull_compression,
            // A value of `precision`.
            tf32: _,
            precision,
            submitted,
        } = self;
        let mut list = SettingList::default();
        let submitted = |list: &mut SettingList, is_wanted: &dyn Fn(&str) -> bool| {
            let wanted = submitted.0.iter().filter(|Setting { name, .. }| is_wanted(name));
            wanted.for_each(|Setting { name, value }| list.push(name, value));
        };
        let is_behind = |name: &str| BEHIND_PRECISION.contains(&name);
        submitted(&mut list, &|name| name.starts_with("model."));
        data.list_settings(&mut list);
        list.push_known([
            ("settings.optimizer", Some(optimizer.setting())),
            ("settings.learning_rate", Some(value::number(*base))),
            ("settings.warmup", (*warmup != 0.0).then(|| value::number(*warmup))),
            ("settings.decay", decay.setting()),
            ("settings.min_learning_rate", (*min != 0.0).then(|| value::number(*min))),
            ("settings.policy", Some(policy.to_string())),
            ("settings.batch", Some(batch.to_string())),
            ("settings.micro_batch", micro_batch.map(|most| most.to_string())),
            ("settings.epochs", Some(epochs.to_string())),
            ("settings.drop_last", drop_last.then(|| true.to_string())),
            ("settings.shuffle", (!shuffle).then(|| false.to_string())),
            ("settings.seed", Some(seed.to_string())),
            ("settings.on_nan", (*on_nan == OnNan::Skip).then(|| "skip".to_owned())),
            ("settings.clip_norm", clip_norm.map(value::number)),
            ("settings.min_workers", (*min_workers != 1).then(|| min_workers.to_string())),
            ("settings.max_workers", (*max_workers != u32::MAX).then(|| max_workers.to_string())),
            ("settings.queue_limit_s", queue_limit_ms.map(|ms| value::number(ms as f64 / 1e3))),
            ("settings.ahead", ahead.map(|ahead| ahead.to_string())),
        ]);
        match checkpoint {
            None => list.push("settings.checkpoint", "none"),
            Some(checkpoint) if *checkpoint == CheckpointSpec::default() => {}
            Some(checkpoint) => checkpoint.list_settings(&mut list),
        }
        evaluate.iter().for_each(|evaluate| evaluate.list_settings(&mut list));
        list.push_known([
            ("settings.resume", resume.as_ref().map(|from| format!("{}/{}", from.job, from.checkpoint))),
            ("settings.compression", compression.setting()),
            (
                "settings.pull_compression",
                (*pull_compression != PullCompression::None).then(|| pull_compression.to_string()),
            ),
        ]);
        submitted(&mut list, &|name| name.starts_with("settings.") && !is_behind(name));
        let is_usual = precision.is_empty() || precision == "f32";
        list.push_known([("settings.precision", (!is_usual).then(|| precision.clone()))]);
        submitted(&mut list, &is_behind);
        list
    }
}

impl SettingList {
    /// Adds those that have a value.
    pub fn push_known<'a>(&mut self, settings: impl IntoIterator<Item = (&'a str, Option<String>)>) {
        for (name, value) in settings {
            value.iter().for_each(|value| self.push(name, value));
        }
    }
}

impl Optimizer {
    /// Its name where that says all, or a table with what it does not say.
    fn setting(&self) -> String {
        let named =
            [Self::sgd(), Self::momentum(), Self::nesterov(), Self::adam(), Self::adamw(), Self::rmsprop()];
        if named.contains(self) {
            return self.name().to_owned();
        }
        let number = |name, own: f32, usual: f32| (own != usual).then(|| (name, value::number(own)));
        let flag = |name, is: bool| is.then(|| (name, true.to_string()));
        let (rule, fields) = match *self {
            Self::Sgd { weight_decay } => ("sgd", vec![number("weight_decay", weight_decay, 0.0)]),
            Self::Momentum { momentum, nesterov, weight_decay } => (
                "momentum",
                vec![
                    Some(("momentum", value::number(momentum))),
                    flag("nesterov", nesterov),
                    number("weight_decay", weight_decay, 0.0),
                ],
            ),
            Self::Adam { beta1, beta2, epsilon, weight_decay, decoupled } => (
                "adam",
                vec![
                    number("beta1", beta1, 0.9),
                    number("beta2", beta2, 0.999),
                    number("epsilon", epsilon, 1e-8),
                    number("weight_decay", weight_decay, 0.0),
                    flag("decoupled", decoupled),
                ],
            ),
            Self::RmsProp { alpha, epsilon, momentum, centered, weight_decay } => (
                "rmsprop",
                vec![
                    number("alpha", alpha, 0.99),
                    number("epsilon", epsilon, 1e-8),
                    number("momentum", momentum, 0.0),
                    flag("centered", centered),
                    number("weight_decay", weight_decay, 0.0),
                ],
            ),
        };
        value::table([(rule, value::table(fields.into_iter().flatten()))])
    }
}

impl Decay {
    fn setting(&self) -> Option<String> {
        match self {
            Self::Constant => None,
            Self::Cosine => Some("cosine".to_owned()),
            Self::Linear => Some("linear".to_owned()),
            Self::Exponential => Some("exponential".to_owned()),
            Self::OneCycle => Some("one-cycle".to_owned()),
            Self::Steps(steps) => {
                let steps = steps.iter().map(|(share, factor)| value::numbers(&[*share, *factor]));
                Some(value::table([("steps", value::list(steps))]))
            }
        }
    }
}

impl Compression {
    fn setting(self) -> Option<String> {
        match self {
            Self::None => None,
            Self::TopK(share) => Some(value::table([("top_k", value::number(share))])),
            named => Some(named.to_string()),
        }
    }
}

impl CheckpointSpec {
    fn list_settings(&self, to: &mut SettingList) {
        let Self { every_s, every_epochs, keep, until_done } = self;
        to.push_known([
            ("settings.checkpoint.every_s", every_s.map(|seconds| seconds.to_string())),
            ("settings.checkpoint.every_epochs", every_epochs.map(|epochs| epochs.to_string())),
            ("settings.checkpoint.keep", (*keep != 2).then(|| keep.to_string())),
            ("settings.checkpoint.until_done", until_done.then(|| true.to_string())),
        ]);
    }
}

impl EvaluateSpec {
    fn list_settings(&self, to: &mut SettingList) {
        let Self { every_s, every_epochs, monitor, keep_best, early_stopping, reduce_on_plateau } = self;
        to.push_known([
            ("settings.evaluate.every_s", every_s.map(|seconds| seconds.to_string())),
            ("settings.evaluate.every_epochs", every_epochs.map(|epochs| epochs.to_string())),
            ("settings.evaluate.monitor", (*monitor != Metric::Loss).then(|| monitor.name().to_owned())),
            ("settings.evaluate.keep_best", keep_best.then(|| true.to_string())),
        ]);
        if let Some(EarlyStopping { patience, min_delta }) = early_stopping {
            to.push_known([
                ("settings.evaluate.early_stopping.patience", Some(patience.to_string())),
                (
                    "settings.evaluate.early_stopping.min_delta",
                    (*min_delta != 0.0).then(|| value::number(*min_delta)),
                ),
            ]);
        }
        if let Some(ReduceOnPlateau { patience, factor, min_learning_rate: min }) = reduce_on_plateau {
            to.push_known([
                ("settings.evaluate.reduce_on_plateau.patience", Some(patience.to_string())),
                ("settings.evaluate.reduce_on_plateau.factor", Some(value::number(*factor))),
                (
                    "settings.evaluate.reduce_on_plateau.min_learning_rate",
                    (*min != 0.0).then(|| value::number(*min)),
                ),
            ]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::ContentDigest,
        sim::training,
        spec::{Augment, ChannelAxis, Normalization, Source, Split},
    };

    fn listed(change: impl FnOnce(&mut TrainSpec)) -> Vec<String> {
        let mut train = training("bsp".parse().unwrap(), 64, 8);
        train.checkpoint = Some(CheckpointSpec::default());
        change(&mut train);
        train.setting_list().iter().map(|Setting { name, value }| format!("{name} = {value}")).collect()
    }

    const USUAL: [&str; 7] = [
        "data.source.csv.path = d.csv",
        "settings.optimizer = sgd",
        "settings.learning_rate = 0.1",
        "settings.policy = bsp",
        "settings.batch = 8",
        "settings.epochs = 1",
        "settings.seed = 0",
    ];

    #[test]
    fn of_a_training_with_no_settings_those_are_listed_that_every_training_has() {
        assert_eq!(listed(|_| ()), USUAL);
    }

    #[test]
    fn what_differs_from_the_default_is_listed_as_a_job_file_has_it() {
        type Change = fn(&mut TrainSpec);
        #[rustfmt::skip]
        let cases: [(Change, &[&str]); 22] = [
            (|t| t.data.augment = Augment { flip: true, crop: 4, cutout: 0 }, &["data.augment.flip = true", "data.augment.crop = 4"]),
            (|t| t.data.split = Split::TestEvery(5),                          &["data.split = { test_every = 5 }"]),
            (|t| t.data.split = Split::TestPercent(20),                       &["data.split = { test_percent = 20 }"]),
            (|t| t.data.test = Some(Source::text("t.txt", 8)),                &["data.test.text.path = t.txt", "data.test.text.context = 8"]),
            (|t| t.data.mean = vec![0.5, 0.25],                               &["data.mean = [0.5, 0.25]"]),
            (|t| t.data.standardize = true,                                   &["data.standardize = true"]),
            (|t| t.data.channel_axis = ChannelAxis::Last,                     &["data.channel_axis = last"]),
            (|t| { t.data.normalize.insert("x".into(), Normalization { scale: 0.5, std: vec![2.0], channel_axis: ChannelAxis::Last, ..Normalization::default() }); }, &["data.normalize.x.scale = 0.5", "data.normalize.x.std = [2]", "data.normalize.x.channel_axis = last"]),
            (|t| { t.data.normalize.insert("x.1".into(), Normalization::default()); }, &["data.normalize.'x.1' = {}"]),
            (|t| t.data.test = Some(Source::npz("a.npz")),                    &["data.test.npz.path = a.npz"]),
            (|t| t.data.digest = Some(ContentDigest::from_bytes([0xab; 32])),  &["data.digest = abababababababababababababababababababababababababababababababab"]),
            (|t| t.learning_rate.decay = Decay::Steps(vec![(0.5, 0.1)]),      &["settings.decay = { steps = [[0.5, 0.1]] }"]),
            (|t| t.clip_norm = Some(1.0),                                     &["settings.clip_norm = 1"]),
            (|t| t.queue_limit_ms = Some(600_000),                            &["settings.queue_limit_s = 600"]),
            (|t| t.checkpoint = Some(CheckpointSpec::every_s(60)),            &["settings.checkpoint.every_s = 60"]),
            (|t| t.checkpoint = None,                                         &["settings.checkpoint = none"]),
            (|t| t.evaluate = Some(EvaluateSpec::every_epochs(1).early_stopping(EarlyStopping::patience(5))), &["settings.evaluate.every_epochs = 1", "settings.evaluate.early_stopping.patience = 5"]),
            (|t| t.compression = Compression::TopK(0.01),                     &["settings.compression = { top_k = 0.01 }"]),
            (|t| t.on_nan = OnNan::Skip,                                      &["settings.on_nan = skip"]),
            (|t| t.drop_last = true,                                          &["settings.drop_last = true"]),
            (|t| t.shuffle = false,                                           &["settings.shuffle = false"]),
            (|t| t.precision = "bf16".into(),                                 &["settings.precision = bf16"]),
        ];
        for (change, want) in cases {
            let added: Vec<String> =
                listed(change).into_iter().filter(|said| !USUAL.contains(&said.as_str())).collect();
            assert_eq!(added, want);
        }
    }

    #[test]
    fn an_optimizer_is_a_name_or_a_table_of_what_its_rule_does_not_say() {
        use Optimizer as O;
        let adam = |weight_decay, decoupled| O::Adam {
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-8,
            weight_decay,
            decoupled,
        };
        #[rustfmt::skip]
        let cases = [
            (O::adamw(),                                                            "adamw"),
            (O::nesterov(),                                                         "nesterov"),
            (O::Sgd { weight_decay: 5e-4 },                                         "{ sgd = { weight_decay = 5e-4 } }"),
            (O::Momentum { momentum: 0.8, nesterov: true, weight_decay: 0.0 },      "{ momentum = { momentum = 0.8, nesterov = true } }"),
            (O::rmsprop(),                                                          "rmsprop"),
            (O::RmsProp { alpha: 0.9, epsilon: 1e-8, momentum: 0.5, centered: false, weight_decay: 0.0 }, "{ rmsprop = { alpha = 0.9, momentum = 0.5 } }"),
            (adam(0.0, false),                                                      "{ adam = { beta2 = 0.99 } }"),
            (adam(0.1, true),                                                       "{ adam = { beta2 = 0.99, weight_decay = 0.1, decoupled = true } }"),
        ];
        for (optimizer, text) in cases {
            assert_eq!(optimizer.setting(), text);
        }
    }

    #[test]
    fn what_only_the_submission_knows_stands_in_its_place_and_makes_no_other_job() {
        let plain = training("bsp".parse().unwrap(), 64, 8);
        let mut told = plain.clone();
        told.precision = "bf16".into();
        for (name, value) in
            [("model.forward.loss", "mse"), ("settings.freeze", "['a.*']"), ("settings.recompute", "true")]
        {
            told.submitted.0.push(name, value);
        }
        let names: Vec<String> = told.setting_list().iter().map(|setting| setting.name.clone()).collect();
        assert_eq!(names.first().map(String::as_str), Some("model.forward.loss"));
        assert_eq!(names[names.len() - 3..], ["settings.freeze", "settings.precision", "settings.recompute"]);
        told.precision = "f32".into();
        assert_eq!(told, plain);
    }
}
