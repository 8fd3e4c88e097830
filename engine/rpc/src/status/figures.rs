//! What evaluations measured, by metric. In Redis and in JSON each value is a field of its own, such as
//! `test_accuracy`.

use std::{collections::BTreeMap, ops::Index};

use serde::{Deserialize, Deserializer, Serializer, de, de::IgnoredAny, ser::SerializeMap};
use syncline_scheduler::spec::Metric;

/// What an evaluation measured: `figures[Metric::Accuracy]`, `None` where it is not known or its loss does
/// not compute it. Shares and scores are from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures([Option<f64>; Metric::ALL.len()]);

impl Index<Metric> for Figures {
    type Output = Option<f64>;

    fn index(&self, metric: Metric) -> &Option<f64> {
        &self.0[metric as usize]
    }
}

/// The functions for `#[serde(flatten, with)]` of figures whose fields begin with a word.
macro_rules! fields_that_begin_with {
    ($($prefix:ident)+) => {$(
        pub(super) mod $prefix {
            use super::{Deserializer, Figures, Serializer, read, write};

            pub(in crate::status) fn serialize<S: Serializer>(figures: &Figures, to: S) -> Result<S::Ok, S::Error> {
                write(stringify!($prefix), figures, to)
            }

            pub(in crate::status) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Figures, D::Error> {
                read(stringify!($prefix), from)
            }
        }
    )+};
}

fields_that_begin_with!(best validation test);

fn field(prefix: &str, metric: Metric) -> String {
    format!("{prefix}_{}", metric.field())
}

fn write<S: Serializer>(prefix: &str, figures: &Figures, to: S) -> Result<S::Ok, S::Error> {
    let mut to = to.serialize_map(None)?;
    for metric in Metric::ALL {
        to.serialize_entry(&field(prefix, metric), &figures[metric])?;
    }
    to.end()
}

/// A number in JSON, and text in Redis, where an empty one stands for none.
#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Number(f64),
    Text(String),
    Other(IgnoredAny),
}

fn read<'de, D: Deserializer<'de>>(prefix: &str, from: D) -> Result<Figures, D::Error> {
    let fields = BTreeMap::<String, Value>::deserialize(from)?;
    let mut figures = Figures::default();
    for metric in Metric::ALL {
        figures.0[metric as usize] = match fields.get(&field(prefix, metric)) {
            Some(Value::Number(value)) => Some(*value),
            Some(Value::Text(text)) if !text.is_empty() => {
                Some(text.parse().map_err(|_| de::Error::custom(format!("`{text}` is no number")))?)
            }
            Some(Value::Text(_) | Value::Other(IgnoredAny)) | None => None,
        };
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;
    use crate::status::text;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Told {
        id: String,
        #[serde(flatten, with = "super::validation")]
        validation: Figures,
        #[serde(flatten, with = "super::test")]
        test: Figures,
    }

    fn told(fields: &[(&str, &str)]) -> Result<Told, text::UnknownFields> {
        let fields = [("id", "a"), ("unknown", "{}")].iter().chain(fields);
        text::read("job a", &fields.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn every_metric_has_a_field_of_each_set_and_comes_back_from_text_and_json() {
        for metric in Metric::ALL {
            let name = format!("test_{}", metric.name().replace('-', "_"));
            let of_text = told(&[(&name, "0.25"), ("validation_loss", "")]).unwrap();
            let known: Vec<Metric> = Metric::ALL.into_iter().filter(|m| of_text.test[*m].is_some()).collect();
            assert_eq!((of_text.test[metric], known), (Some(0.25), vec![metric]));
            assert_eq!(of_text.validation, Figures::default());
            let json = serde_json::to_value(&of_text).unwrap();
            assert_eq!((&json[&name], &json["validation_loss"]), (&0.25.into(), &serde_json::Value::Null));
            assert_eq!(json.as_object().unwrap().len(), 1 + 2 * Metric::ALL.len());
            assert_eq!(serde_json::from_value::<Told>(json).unwrap(), of_text);
        }
    }

    #[test]
    fn what_is_not_finite_is_a_figure_and_a_word_is_refused() {
        let figures = told(&[("test_loss", "NaN"), ("test_perplexity", "inf")]).unwrap().test;
        assert!(figures[Metric::Loss].unwrap().is_nan());
        assert_eq!(figures[Metric::Perplexity], Some(f64::INFINITY));
        let refused = told(&[("test_loss", "much")]).unwrap_err().to_string();
        assert!(refused.ends_with("`much` is no number"), "{refused}");
    }
}
