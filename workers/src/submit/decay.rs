//! How the learning rate goes down, as people write it: a name, or `{ steps = [[SHARE, FACTOR], ...] }`.

use std::fmt;

use serde::de::{Error, MapAccess};
use syncline_scheduler::spec::Decay;

use super::name_or_table::NameOrTable;

const EXAMPLE: &str = "{ steps = [[0.5, 0.1], [0.75, 0.1]] }";

impl NameOrTable for Decay {
    const KEYS: &[&str] = &["steps"];
    const BESIDE: &str = "; `warmup` and `min_learning_rate` stand beside it";

    fn expecting(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "constant, cosine, linear, exponential or one-cycle, or steps such as {EXAMPLE}")
    }

    fn by_name(name: &str) -> Option<Self> {
        match name {
            "constant" => Some(Self::Constant),
            "cosine" => Some(Self::Cosine),
            "linear" => Some(Self::Linear),
            "exponential" => Some(Self::Exponential),
            "one-cycle" => Some(Self::OneCycle),
            _ => None,
        }
    }

    fn what_is_missing(key: &str) -> String {
        format!("`{key}` needs shares of the training with factors: {EXAMPLE}")
    }

    fn behind_key<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Self, A::Error> {
        // Of pairs that have other lengths, the reader would speak of tuples.
        let steps: Vec<Vec<f32>> = map.next_value()?;
        let pairs = steps.iter().map(|step| match step[..] {
            [share, factor] => Some((share, factor)),
            _ => None,
        });
        let pairs = pairs.collect::<Option<_>>().ok_or_else(|| {
            A::Error::custom(format!("each of `steps` is a share of the training and a factor: {EXAMPLE}"))
        });
        pairs.map(Self::Steps)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::submit::name_or_table::name_or_table;

    #[derive(Debug, Deserialize)]
    struct Has {
        #[serde(deserialize_with = "name_or_table")]
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
