//! How the numbers of an input of floats are normalized: for all such inputs alike, or for each by its own.

use serde::{Deserialize, Serialize};

use super::{DataSpec, setting_value as value};

/// What is done to each number of a float input after reading: `(number * scale - mean) / std`.
///
/// ```
/// # use syncline_scheduler::spec::{DataSpec, Normalization, Source};
/// let scaled = Normalization { scale: 1.0 / 255.0, ..Normalization::default() };
/// let standardized = Normalization { standardize: true, ..Normalization::default() };
/// let data = DataSpec::new(Source::npz("houses.npz"))
///     .normalize("image", scaled.clone())
///     .normalize("table", standardized);
/// assert_eq!(data.normalization_of("image"), scaled);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normalization {
    /// Each number is multiplied by this (1/16 for the digits, 1/255 for bytes).
    #[serde(default = "one")]
    pub scale: f32,
    /// Subtracted after scaling: a number for each channel of [`channel_axis`](Self::channel_axis), or one
    /// for all; empty: 0.
    #[serde(default)]
    pub mean: Vec<f64>,
    /// Divided by after that, in the same form; empty: 1.
    #[serde(default)]
    pub std: Vec<f64>,
    /// Whether [`mean`](Self::mean) and [`std`](Self::std) are those of the training set. The client fills
    /// them in.
    #[serde(default)]
    pub standardize: bool,
    /// Which axis of a sample has the channels that `mean`, `std` and `standardize` are of.
    #[serde(default)]
    pub channel_axis: ChannelAxis,
}

/// An axis of a sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChannelAxis {
    /// As images and signals of PyTorch have it: channels, height, width; channels, time. Of a table it is
    /// each column.
    #[default]
    First,
    /// As sequences have it: time, features.
    Last,
}

/// Numbers stay as they are.
impl Default for Normalization {
    fn default() -> Self {
        Self {
            scale: 1.0,
            mean: Vec::new(),
            std: Vec::new(),
            standardize: false,
            channel_axis: ChannelAxis::First,
        }
    }
}

impl Normalization {
    /// Whether mean and deviation are still to be computed from the training samples.
    pub fn is_to_be_standardized(&self) -> bool {
        self.standardize && self.mean.is_empty() && self.std.is_empty()
    }

    /// What has been done to a number `x`, such as `(x * 0.0625 - mean) / std`; `None` where nothing has.
    pub fn formula(&self) -> Option<String> {
        let scaled = if self.scale == 1.0 { "x".to_owned() } else { format!("x * {}", self.scale) };
        let centered = if self.mean.is_empty() { scaled } else { format!("{scaled} - mean") };
        let formula = match (self.std.is_empty(), self.mean.is_empty()) {
            (true, _) => centered,
            (false, true) => format!("{centered} / std"),
            (false, false) => format!("({centered}) / std"),
        };
        (formula != "x").then_some(formula)
    }

    /// What the first setting is called that differs from the default; `None` where numbers stay as they are.
    pub fn first_setting(&self) -> Option<&'static str> {
        self.settings().first().map(|(name, _)| *name)
    }

    /// Those settings that differ from the default, as a job file has them.
    pub(super) fn settings(&self) -> Vec<(&'static str, String)> {
        // Without `..`: what is added is told, too.
        let Self { scale, mean, std, standardize, channel_axis } = self;
        let all = [
            ("scale", (*scale != 1.0).then(|| value::number(*scale))),
            ("mean", (!mean.is_empty()).then(|| value::numbers(mean))),
            ("std", (!std.is_empty()).then(|| value::numbers(std))),
            ("standardize", standardize.then(|| true.to_string())),
            ("channel_axis", (*channel_axis == ChannelAxis::Last).then(|| "last".to_owned())),
        ];
        all.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
    }
}

impl DataSpec {
    /// This float input of the model has a normalization of its own.
    #[must_use]
    pub fn normalize(mut self, input: impl Into<String>, by: Normalization) -> Self {
        self.normalize.insert(input.into(), by);
        self
    }

    /// How the numbers of this float input are normalized: by its own normalization, or else by the one of
    /// all inputs that have none.
    pub fn normalization_of(&self, input: &str) -> Normalization {
        self.normalize.get(input).cloned().unwrap_or_else(|| self.shared_normalization())
    }

    /// That of all float inputs that have none of their own.
    pub fn shared_normalization(&self) -> Normalization {
        Normalization {
            scale: self.scale,
            mean: self.mean.clone(),
            std: self.std.clone(),
            standardize: self.standardize,
            channel_axis: self.channel_axis,
        }
    }

    /// Notes what the training samples of this input are like, where its normalization stands.
    pub fn set_mean_and_std(&mut self, input: &str, mean: Vec<f64>, std: Vec<f64>) {
        match self.normalize.get_mut(input) {
            Some(own) => (own.mean, own.std) = (mean, std),
            None => (self.mean, self.std) = (mean, std),
        }
    }

    /// What a setting of this input's normalization is called below `data`: `normalize.image.scale`, or
    /// `scale` where the one of all inputs holds for it.
    pub fn normalization_setting(&self, input: &str, name: &str) -> String {
        match self.normalize.contains_key(input) {
            true => format!("{}.{name}", normalization_name(input)),
            false => name.to_owned(),
        }
    }
}

/// What the normalization that is an input's own is called below `data`: `normalize.image`.
pub(super) fn normalization_name(input: &str) -> String {
    format!("normalize.{}", value::key(input))
}

fn one() -> f32 {
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Source;

    fn shared() -> DataSpec {
        DataSpec::new(Source::npz("a.npz")).with(|d| {
            (d.scale, d.mean, d.std) = (0.5, vec![1.0], vec![2.0]);
            (d.standardize, d.channel_axis) = (true, ChannelAxis::Last);
        })
    }

    #[test]
    fn an_input_has_its_own_normalization_as_a_whole_or_the_shared_one_table() {
        let all = Normalization {
            scale: 0.5,
            mean: vec![1.0],
            std: vec![2.0],
            standardize: true,
            channel_axis: ChannelAxis::Last,
        };
        let scaled = Normalization { scale: 0.25, ..Normalization::default() };
        let plain = DataSpec::new(Source::npz("a.npz"));
        #[rustfmt::skip]
        let cases = [
            ("nothing set",         plain.clone(),                                       Normalization::default(), "scale"),
            ("shared",              shared(),                                            all.clone(),              "scale"),
            ("its own",             plain.normalize("image", scaled.clone()),            scaled.clone(),           "normalize.image.scale"),
            // Nothing of the shared one stands beside what is its own.
            ("its own over shared", shared().normalize("image", scaled.clone()),         scaled.clone(),           "normalize.image.scale"),
            ("its own, as it is",   shared().normalize("image", Default::default()),     Normalization::default(), "normalize.image.scale"),
            ("that of another",     shared().normalize("table", scaled),                 all,                      "scale"),
        ];
        for (name, data, want, called) in cases {
            assert_eq!(data.normalization_of("image"), want, "{name}");
            assert_eq!(data.normalization_setting("image", "scale"), called, "{name}");
        }
        let named = shared().normalize("x.1", Normalization::default());
        assert_eq!(named.normalization_setting("x.1", "std"), "normalize.'x.1'.std");
    }

    #[test]
    fn mean_and_deviation_are_noted_where_the_normalization_stands() {
        let mut data = shared().normalize("table", Normalization::default());
        data.set_mean_and_std("table", vec![3.0], vec![4.0]);
        assert_eq!((data.mean.as_slice(), data.std.as_slice()), (&[1.0][..], &[2.0][..]));
        let own = data.normalization_of("table");
        assert_eq!((own.mean.as_slice(), own.std.as_slice()), (&[3.0][..], &[4.0][..]));
        data.set_mean_and_std("image", vec![5.0], vec![6.0]);
        assert_eq!((data.mean.as_slice(), data.std.as_slice()), (&[5.0][..], &[6.0][..]));
        assert_eq!(data.normalization_of("table"), own);
    }

    #[test]
    fn what_is_to_be_standardized_has_neither_mean_nor_deviation_yet_table() {
        for (standardize, mean, std, want) in [
            (true, vec![], vec![], true),
            (true, vec![1.0], vec![], false),
            (true, vec![], vec![1.0], false),
            (false, vec![], vec![], false),
        ] {
            let by = Normalization { standardize, mean, std, ..Normalization::default() };
            assert_eq!(by.is_to_be_standardized(), want, "{by:?}");
        }
    }

    #[test]
    fn a_record_of_before_inputs_had_their_own_is_read() {
        let mut record = serde_json::to_value(shared()).unwrap();
        record.as_object_mut().unwrap().remove("normalize").unwrap();
        assert_eq!(serde_json::from_value::<DataSpec>(record).unwrap(), shared());
        let own = shared().normalize("table", Normalization::default());
        let bytes = postcard::to_stdvec(&own).unwrap();
        assert_eq!(postcard::from_bytes::<DataSpec>(&bytes).unwrap(), own);
    }
}
