//! Which rule decides when workers meet, as a user names it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A synchronisation policy with its settings; text form `bsp`, `asp`, `elastic-bsp` or `elastic-bsp:R`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PolicySpec {
    /// A barrier after every iteration of all workers; one update from the round's weighted mean.
    Bsp,
    /// No barriers; every push is an update.
    Asp,
    /// Barriers where ZipLine finds the narrowest window in `lookahead` predicted iterations per worker.
    ElasticBsp { lookahead: u32 },
}

/// Iterations predicted per worker unless the user says otherwise (the papers' smallest setting).
pub(crate) const DEFAULT_LOOKAHEAD: u32 = 15;
const MAX_LOOKAHEAD: u32 = 10_000;

/// Why a text names no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "[E003] `{0}` is not a policy: expected bsp, asp, elastic-bsp or elastic-bsp:R with R from 1 to {MAX_LOOKAHEAD}"
)]
pub struct InvalidPolicy(pub String);

impl FromStr for PolicySpec {
    type Err = InvalidPolicy;

    fn from_str(text: &str) -> Result<Self, InvalidPolicy> {
        let invalid = || InvalidPolicy(text.chars().take(80).collect());
        match text.split_once(':') {
            None if text == "bsp" => Ok(Self::Bsp),
            None if text == "asp" => Ok(Self::Asp),
            None if text == "elastic-bsp" => Ok(Self::ElasticBsp { lookahead: DEFAULT_LOOKAHEAD }),
            Some(("elastic-bsp", r)) => match r.parse() {
                Ok(lookahead) if (1..=MAX_LOOKAHEAD).contains(&lookahead) => {
                    Ok(Self::ElasticBsp { lookahead })
                }
                _ => Err(invalid()),
            },
            _ => Err(invalid()),
        }
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bsp => f.write_str("bsp"),
            Self::Asp => f.write_str("asp"),
            Self::ElasticBsp { lookahead } => write!(f, "elastic-bsp:{lookahead}"),
        }
    }
}

impl TryFrom<String> for PolicySpec {
    type Error = InvalidPolicy;

    fn try_from(text: String) -> Result<Self, InvalidPolicy> {
        text.parse()
    }
}

impl From<PolicySpec> for String {
    fn from(policy: PolicySpec) -> Self {
        policy.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_table() {
        #[rustfmt::skip]
        let cases = [
            ("bsp",                 Some("bsp")),
            ("asp",                 Some("asp")),
            ("elastic-bsp",         Some("elastic-bsp:15")),
            ("elastic-bsp:240",     Some("elastic-bsp:240")),
            ("elastic-bsp:0",       None),
            ("elastic-bsp:x",       None),
            ("elastic-bsp:1000000", None),
            ("BSP",                 None),
            ("",                    None),
        ];
        for (text, want) in cases {
            assert_eq!(text.parse::<PolicySpec>().ok().map(|p| p.to_string()).as_deref(), want, "{text}");
        }
    }
}
