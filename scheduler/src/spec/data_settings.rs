//! The settings of the data by their names.

use super::{
    Augment, AxisOrder, CsvSource, DataSpec, Files, SettingList, Source, Split,
    normalization::normalization_name, setting_value as value,
};

impl DataSpec {
    /// Adds what differs from the default to a list, and the digest, in the order of docs/job-file.md.
    pub(super) fn list_settings(&self, to: &mut SettingList) {
        // Without `..`: what is added to the data is told, too, or left out on purpose.
        let Self {
            source,
            test,
            validation,
            inputs,
            validation_percent,
            hold_out_seed,
            scale: _,
            mean: _,
            std: _,
            standardize: _,
            channel_axis: _,
            normalize,
            split,
            sample_shape,
            layout,
            augment: Augment { flip, crop, cutout },
            digest,
            file_digests: _,
            train_samples: _,
            class_names: _,
        } = self;
        let parts = [("source", Some(source)), ("test", test.as_ref()), ("validation", validation.as_ref())];
        for (part, source) in parts {
            source.iter().for_each(|source| source.list_settings(part, to));
        }
        for (input, columns) in inputs {
            to.push(&format!("data.inputs.{}", value::key(input)), value::texts(columns));
        }
        let split = match split {
            Split::All => None,
            Split::TestEvery(every) => Some(("test_every", every)),
            Split::TestPercent(percent) => Some(("test_percent", percent)),
            Split::TestLastPercent(percent) => Some(("test_last_percent", percent)),
        };
        to.push_known([
            ("data.validation_percent", validation_percent.map(|percent| percent.to_string())),
            ("data.hold_out_seed", hold_out_seed.map(|seed| seed.to_string())),
        ]);
        for (name, text) in self.shared_normalization().settings() {
            to.push(&format!("data.{name}"), text);
        }
        for (input, own) in normalize {
            let (place, settings) = (format!("data.{}", normalization_name(input)), own.settings());
            // That nothing is done to it says something, too: the shared one does not hold for it.
            if settings.is_empty() {
                to.push(&place, value::table([]));
            }
            settings.into_iter().for_each(|(name, text)| to.push(&format!("{place}.{name}"), text));
        }
        to.push_known([
            ("data.split", split.map(|(name, number)| value::table([(name, number.to_string())]))),
            ("data.sample_shape", (!sample_shape.is_empty()).then(|| value::list(sample_shape))),
            ("data.layout", layout.map(|AxisOrder::Nhwc| "nhwc".to_owned())),
            ("data.augment.flip", flip.then(|| true.to_string())),
            ("data.augment.crop", (*crop != 0).then(|| crop.to_string())),
            ("data.augment.cutout", (*cutout != 0).then(|| cutout.to_string())),
            ("data.digest", digest.map(|digest| digest.to_string())),
        ]);
    }
}

impl Source {
    /// Adds what says where the samples of a part are.
    fn list_settings(&self, part: &str, to: &mut SettingList) {
        let texts = |list: &[String]| (!list.is_empty()).then(|| value::texts(list));
        let (format, fields) = match self {
            Self::Csv(CsvSource { path, label_columns, label_names, skip_lines, separator }) => (
                "csv",
                vec![
                    ("path", Some(files(path))),
                    ("label_columns", (*label_columns != 1).then(|| label_columns.to_string())),
                    ("label_names", texts(label_names)),
                    ("skip_lines", (*skip_lines != 0).then(|| skip_lines.to_string())),
                    ("separator", separator.map(|separator| separator.name().to_owned())),
                ],
            ),
            Self::Idx { images, labels } => {
                ("idx", vec![("images", Some(files(images))), ("labels", Some(files(labels)))])
            }
            Self::Cifar10 { paths } => {
                let paths: Vec<String> = paths.iter().map(value::path).collect();
                ("cifar10", vec![("paths", Some(value::texts(&paths)))])
            }
            Self::Text { path, context, stride } => (
                "text",
                vec![
                    ("path", Some(value::path(path))),
                    ("context", Some(context.to_string())),
                    ("stride", (*stride != 0).then(|| stride.to_string())),
                ],
            ),
            Self::Safetensors { path } => ("safetensors", vec![("path", Some(files(path)))]),
            Self::Npz { path } => ("npz", vec![("path", Some(files(path)))]),
            Self::Npy { samples, labels } => {
                ("npy", vec![("samples", Some(files(samples))), ("labels", Some(files(labels)))])
            }
        };
        for (name, text) in fields {
            text.iter().for_each(|text| to.push(&format!("data.{part}.{format}.{name}"), text));
        }
    }
}

/// One path as it is, several as a list.
fn files(files: &Files) -> String {
    match files.0.as_slice() {
        [path] => value::path(path),
        paths => value::texts(&paths.iter().map(|path| value::path(path)).collect::<Vec<_>>()),
    }
}
