//! How the learning rate goes down, as people write it: a name, or a table of steps.

use std::fmt;

use serde::{
    Deserializer,
    de::{Error, MapAccess, Unexpected, Visitor},
};
use syncline_scheduler::spec::Decay;

const STEPS: &str = "steps";
const EXAMPLE: &str = "{ steps = [[0.5, 0.1], [0.75, 0.1]] }";

/// The names that stand alone.
fn by_name(name: &str) -> Option<Decay> {
    match name {
        "constant" => Some(Decay::Constant),
        "cosine" => Some(Decay::Cosine),
        "linear" => Some(Decay::Linear),
        "exponential" => Some(Decay::Exponential),
        "one-cycle" => Some(Decay::OneCycle),
        _ => None,
    }
}

/// Reads a name, or `{ steps = [[SHARE, FACTOR], ...] }`.
pub(super) fn decay<'de, D: Deserializer<'de>>(from: D) -> Result<Decay, D::Error> {
    from.deserialize_any(NameOrSteps)
}

struct NameOrSteps;

impl<'de> Visitor<'de> for NameOrSteps {
    type Value = Decay;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "constant, cosine, linear, exponential or one-cycle, or steps such as {EXAMPLE}")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Decay, E> {
        match name {
            STEPS => Err(E::custom(format!("`steps` needs shares of the training with factors: {EXAMPLE}"))),
            _ => by_name(name).ok_or_else(|| E::invalid_value(Unexpected::Str(name), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Decay, A::Error> {
        let name = map.next_key::<String>()?.unwrap_or_default();
        if name == STEPS {
            // Of pairs that have other lengths, the reader would speak of tuples.
            let steps: Vec<Vec<f32>> = map.next_value()?;
            let pairs = steps.iter().map(|step| match step[..] {
                [share, factor] => Some((share, factor)),
                _ => None,
            });
            let pairs = pairs.collect::<Option<Vec<_>>>().ok_or_else(|| {
                A::Error::custom(format!(
                    "each of `steps` is a share of the training and a factor: {EXAMPLE}"
                ))
            })?;
            return match map.next_key::<String>()? {
                None => Ok(Decay::Steps(pairs)),
                Some(more) => Err(A::Error::custom(format!("`{more}` does not go with `steps`"))),
            };
        }
        match by_name(&name) {
            Some(_) => Err(A::Error::custom(format!(
                "`{name}` has no settings: write \"{name}\" in its place; `warmup` and `min_learning_rate` stand beside it"
            ))),
            None => Err(A::Error::invalid_value(Unexpected::Str(&name), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Has {
        #[serde(deserialize_with = "decay")]
        decay: Decay,
    }

    fn read(text: &str) -> Result<Decay, String> {
        toml::from_str::<Has>(&format!("decay = {text}"))
            .map(|has| has.decay)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_shape_is_read() {
        assert_eq!(read("'constant'"), Ok(Decay::Constant));
        assert_eq!(read("'cosine'"), Ok(Decay::Cosine));
        assert_eq!(read("'linear'"), Ok(Decay::Linear));
        assert_eq!(read("'exponential'"), Ok(Decay::Exponential));
        assert_eq!(read("'one-cycle'"), Ok(Decay::OneCycle));
        let steps = Decay::Steps(vec![(0.5, 0.1), (0.75, 1.0)]);
        assert_eq!(read("{ steps = [[0.5, 0.1], [0.75, 1]] }"), Ok(steps));
    }

    #[test]
    fn what_is_none_is_answered_with_what_to_write() {
        #[rustfmt::skip]
        let cases = [
            ("'step'",                        "invalid value: string \"step\", expected constant, cosine, linear, exponential or one-cycle, or steps such as { steps"),
            ("'steps'",                       "`steps` needs shares of the training with factors: { steps = [[0.5, 0.1], "),
            ("{ steps = [[0.5]] }",           "each of `steps` is a share of the training and a factor"),
            ("{ steps = [[0.5, 0.1, 2.0]] }", "each of `steps` is a share of the training and a factor"),
            ("{ cosine = { min = 0.1 } }",    "`cosine` has no settings: write \"cosine\" in its place; `warmup` and `min_learning_rate`"),
            ("{ gamma = 0.1 }",               "invalid value: string \"gamma\", expected constant"),
            ("{ steps = [], times = 1 }",     "`times` does not go with `steps`"),
        ];
        for (written, words) in cases {
            let error = read(written).unwrap_err();
            assert!(error.contains(words), "{written}: {error}");
        }
    }
}
