//! Which predictor, as a user names it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::suggestion::did_you_mean;

/// A predictor with its settings; text form `last`, `ema:ALPHA`, `mean:K`, `median:K` or `narx`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PredictorSpec {
    /// As the last iteration: the papers' ElasticBSP.
    #[default]
    Last,
    /// Exponential moving average; the newest measurement weighs `alpha`.
    Ema {
        /// Above 0, at most 1.
        alpha: f64,
    },
    /// Mean of the last `count`.
    Mean {
        /// Measurements that are remembered, 1 to 1024.
        count: u32,
    },
    /// Median of the last `count`.
    Median {
        /// Measurements that are remembered, 1 to 1024.
        count: u32,
    },
    /// Network over past speeds and the machine's load: LB-BSP.
    Narx,
}

/// Longest memory of `mean` and `median`: it is stored with the worker at each report.
const MAX_COUNT: u32 = 1024;

/// The word in front of their settings.
const NAMES: [&str; 5] = ["last", "ema", "mean", "median", "narx"];

/// Why a text names no predictor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "[E004] `{0}` is not a predictor: expected last, ema:ALPHA with 0 < ALPHA <= 1, mean:K or median:K with K from 1 to {MAX_COUNT}, or narx{meant}",
    meant = did_you_mean(.0.split(':').next().unwrap_or_default(), NAMES)
)]
pub struct InvalidPredictor(pub String);

impl InvalidPredictor {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        "E004"
    }

    /// What the user can do about it: the text says all there is.
    pub fn hint(&self) -> Option<String> {
        None
    }
}

impl FromStr for PredictorSpec {
    type Err = InvalidPredictor;

    fn from_str(text: &str) -> Result<Self, InvalidPredictor> {
        let count = |k: &str| k.parse().ok().filter(|k| (1..=MAX_COUNT).contains(k));
        let alpha = |a: &str| a.parse().ok().filter(|a| *a > 0.0 && *a <= 1.0);
        let spec = match text.split_once(':') {
            None if text == "last" => Some(Self::Last),
            None if text == "narx" => Some(Self::Narx),
            Some(("ema", a)) => alpha(a).map(|alpha| Self::Ema { alpha }),
            Some(("mean", k)) => count(k).map(|count| Self::Mean { count }),
            Some(("median", k)) => count(k).map(|count| Self::Median { count }),
            _ => None,
        };
        spec.ok_or_else(|| InvalidPredictor(text.chars().take(80).collect()))
    }
}

impl fmt::Display for PredictorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last => f.write_str("last"),
            Self::Ema { alpha } => write!(f, "ema:{alpha}"),
            Self::Mean { count } => write!(f, "mean:{count}"),
            Self::Median { count } => write!(f, "median:{count}"),
            Self::Narx => f.write_str("narx"),
        }
    }
}

impl TryFrom<String> for PredictorSpec {
    type Error = InvalidPredictor;

    fn try_from(text: String) -> Result<Self, InvalidPredictor> {
        text.parse()
    }
}

impl From<PredictorSpec> for String {
    fn from(spec: PredictorSpec) -> Self {
        spec.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictors_table() {
        #[rustfmt::skip]
        let cases = [
            ("last",        Some("last")),
            ("ema:0.20",    Some("ema:0.2")),
            ("ema:1",       Some("ema:1")),
            ("mean:8",      Some("mean:8")),
            ("median:1024", Some("median:1024")),
            ("narx",        Some("narx")),
            ("ema:0",       None),
            ("ema:1.1",     None),
            ("ema:NaN",     None),
            ("ema",         None),
            ("mean:0",      None),
            ("median:1025", None),
            ("last:1",      None),
            ("LAST",        None),
            ("",            None),
        ];
        for (text, want) in cases {
            let parsed = text.parse::<PredictorSpec>().ok();
            assert_eq!(parsed.map(|p| p.to_string()).as_deref(), want, "{text}");
            let json = serde_json::from_value::<PredictorSpec>(text.into()).ok();
            assert_eq!(json, parsed, "{text}");
        }
    }
}
