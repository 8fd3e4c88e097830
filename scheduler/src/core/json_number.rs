//! Numbers that may not be finite, as they are stored: JSON has no word for them, and a field without one
//! could not be read back.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Stored {
    Number(f64),
    Word(String),
    /// What earlier releases wrote for what is not finite.
    Nothing(()),
}

impl Stored {
    fn of(value: f64) -> Self {
        if value.is_finite() { Self::Number(value) } else { Self::Word(value.to_string()) }
    }

    fn value<E: serde::de::Error>(self) -> Result<f64, E> {
        match self {
            Self::Number(value) => Ok(value),
            Self::Word(word) => match word.as_str() {
                "NaN" => Ok(f64::NAN),
                "inf" => Ok(f64::INFINITY),
                "-inf" => Ok(f64::NEG_INFINITY),
                _ => Err(E::custom(format!("`{word}` is no number"))),
            },
            Self::Nothing(()) => Ok(f64::NAN),
        }
    }
}

/// For `#[serde(with)]`. In formats that are not for people it is the number as it is.
pub(super) fn serialize<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
    if to.is_human_readable() { Stored::of(*value).serialize(to) } else { value.serialize(to) }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    if from.is_human_readable() { Stored::deserialize(from)?.value() } else { f64::deserialize(from) }
}

/// Numbers that may not be there.
pub(super) mod option {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Stored;

    pub(in crate::core) fn serialize<S: Serializer>(value: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() { value.map(Stored::of).serialize(to) } else { value.serialize(to) }
    }

    pub(in crate::core) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
        if from.is_human_readable() {
            Option::<Stored>::deserialize(from)?.map(Stored::value).transpose()
        } else {
            Option::deserialize(from)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::core::Evaluation;

    fn evaluation(loss: f64, perplexity: Option<f64>) -> Evaluation {
        Evaluation { loss, perplexity, samples: 3, ..Evaluation::default() }
    }

    #[test]
    fn what_is_not_finite_comes_back_as_it_was() {
        for (loss, perplexity) in [
            (1.25, Some(3.5)),
            (f64::INFINITY, Some(f64::INFINITY)),
            (f64::NEG_INFINITY, None),
            (f64::NAN, Some(f64::NAN)),
        ] {
            let given = evaluation(loss, perplexity);
            let json = serde_json::to_string(&given).unwrap();
            let read: Evaluation = serde_json::from_str(&json).unwrap();
            assert_eq!(format!("{read:?}"), format!("{given:?}"), "{json}");
            let read: Evaluation = postcard::from_bytes(&postcard::to_allocvec(&given).unwrap()).unwrap();
            assert_eq!(format!("{read:?}"), format!("{given:?}"));
        }
    }

    #[test]
    fn what_earlier_releases_stored_of_it_is_read() {
        let read: Evaluation =
            serde_json::from_str(r#"{"loss":null,"accuracy":null,"perplexity":null,"samples":3}"#).unwrap();
        assert!(read.loss.is_nan() && read.perplexity.is_none());
        assert!(serde_json::from_str::<Evaluation>(r#"{"loss":"much","accuracy":1,"samples":3}"#).is_err());
    }
}
