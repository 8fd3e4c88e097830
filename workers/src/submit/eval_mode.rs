//! What trains as it evaluates, as people write it: all, nothing, or patterns.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Unexpected, Visitor, value::SeqAccessDeserializer},
};
use syncline_autodiff::EvalMode;

/// Reads `true`, `false`, or a list of names and patterns.
pub(super) fn eval_mode<'de, D: Deserializer<'de>>(from: D) -> Result<EvalMode, D::Error> {
    from.deserialize_any(AllOrParts)
}

struct AllOrParts;

impl<'de> Visitor<'de> for AllOrParts {
    type Value = EvalMode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, or a list of patterns such as [\"body.*\"]")
    }

    fn visit_bool<E: Error>(self, whole: bool) -> Result<EvalMode, E> {
        Ok(whole.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<EvalMode, A::Error> {
        let patterns = Vec::<String>::deserialize(SeqAccessDeserializer::new(list))?;
        Ok(if patterns.is_empty() { EvalMode::Nothing } else { EvalMode::Parts(patterns) })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<EvalMode, E> {
        Err(E::invalid_type(Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
#[cfg(feature = "job-file")]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Settings {
        #[serde(deserialize_with = "eval_mode")]
        eval_mode: EvalMode,
    }

    #[test]
    fn all_nothing_or_parts() {
        let parts = |names: &[&str]| EvalMode::Parts(names.iter().map(|&name| name.to_owned()).collect());
        #[rustfmt::skip]
        let cases = [
            ("true",               Ok(EvalMode::Whole)),
            ("false",              Ok(EvalMode::Nothing)),
            ("[]",                 Ok(EvalMode::Nothing)),
            ("['body.*', 'neck']", Ok(parts(&["body.*", "neck"]))),
            ("'body.*'",           Err("invalid type: string \"body.*\", expected true, false, or a list of patterns such as [\"body.*\"]")),
            ("3",                  Err("invalid type: integer `3`, expected true, false, or a list of patterns")),
            ("['body', 3]",        Err("invalid type: integer `3`, expected a string")),
        ];
        for (text, want) in cases {
            let read = toml::from_str::<Settings>(&format!("eval_mode = {text}"));
            match (read, want) {
                (Ok(read), Ok(want)) => assert_eq!(read.eval_mode, want, "{text}"),
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{text}: {error}"),
                (read, want) => panic!("{text}: {read:?}, wanted {want:?}"),
            }
        }
    }
}
