//! A preference for meeting soon: a window a little wider than the narrowest, if it ends earlier.
//!
//! The narrowest window may lie many iterations ahead of one that is hardly wider. The papers leave this
//! choice open (the authors' own code weighs the span against lateness by an unpublished formula); the rule
//! here has one setting, the width that is given up.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{Points, Window, narrowest_window, skipping::SkippingSearch};

/// How much wider than the narrowest window may a window be, as a share of it: 0.1 allows a tenth more.
///
/// From 0 to 1000, in billionths, so that `0.1` is a tenth and equal settings compare equal. Text and serde
/// form: the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Slack {
    billionths: u64,
}

const BILLION: u64 = 1_000_000_000;
const MAX_SLACK: f64 = 1000.0;

/// Why a number is no [`Slack`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[E561] `{0}` is not a number from 0 to {MAX_SLACK}")]
pub struct InvalidSlack(String);

impl InvalidSlack {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        "E561"
    }

    /// What the user can do about it: the text says all there is.
    pub fn hint(&self) -> Option<String> {
        None
    }
}

impl Slack {
    /// The widest span that is accepted where `span_us` is the narrowest: (1 + ε) · span, rounded down.
    pub fn limit_us(self, span_us: u64) -> u64 {
        let extra = u128::from(span_us) * u128::from(self.billionths) / u128::from(BILLION);
        span_us.saturating_add(u64::try_from(extra).unwrap_or(u64::MAX))
    }
}

impl TryFrom<f64> for Slack {
    type Error = InvalidSlack;

    fn try_from(share: f64) -> Result<Self, InvalidSlack> {
        match (0.0..=MAX_SLACK).contains(&share) {
            true => Ok(Self { billionths: (share * BILLION as f64).round() as u64 }),
            false => Err(InvalidSlack(share.to_string())),
        }
    }
}

impl From<Slack> for f64 {
    fn from(slack: Slack) -> Self {
        slack.billionths as f64 / BILLION as f64
    }
}

impl FromStr for Slack {
    type Err = InvalidSlack;

    fn from_str(text: &str) -> Result<Self, InvalidSlack> {
        let invalid = || InvalidSlack(text.chars().take(80).collect());
        Self::try_from(text.parse::<f64>().map_err(|_| invalid())?).map_err(|_| invalid())
    }
}

impl fmt::Display for Slack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f64::from(*self).fmt(f)
    }
}

/// The earliest window that is at most (1 + `slack`) times as wide as the narrowest. Without slack that is
/// [`narrowest_window`] itself.
///
/// Exact: no window that ends earlier is narrow enough. Costs a search for the narrowest window, and a second
/// pass that stops where it finds the answer, at the latest where the first one did.
///
/// ```
/// use syncline_scheduler::sync::search::{earliest_within, narrowest_window};
/// let rows = [vec![10, 50], vec![12, 51]]; // 10..12 is twice as wide as 50..51
/// assert_eq!(narrowest_window(&rows).unwrap().sync_at_us, 51);
/// assert_eq!(earliest_within(&rows, "1.0".parse().unwrap()).unwrap().sync_at_us, 12);
/// ```
pub fn earliest_within<P: Points>(rows: &[P], slack: Slack) -> Option<Window> {
    let narrowest = narrowest_window(rows)?;
    let limit_us = slack.limit_us(narrowest.span_us);
    if limit_us == narrowest.span_us {
        return Some(narrowest);
    }
    let mut search = SkippingSearch::new(rows)?;
    loop {
        let span_us = search.narrowest_here();
        if span_us <= limit_us {
            return Window::ending_at(rows, span_us, search.sync_at_us);
        }
        if !search.skip_to_next(limit_us) {
            return Some(narrowest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_decimal_share_that_was_asked_for() {
        #[rustfmt::skip]
        let cases = [
            ("nothing",         10,       "0",     10),
            ("three tenths",    10,       "0.3",   13),
            ("rounded down",    9,        "0.3",   11),
            ("twice as much",   10,       "1",     20),
            ("a billionth",     BILLION,  "1e-9",  BILLION + 1),
            ("the most",        10,       "1000",  10_010),
            ("beyond all time", u64::MAX, "0.1",   u64::MAX),
        ];
        for (name, span_us, slack, want) in cases {
            assert_eq!(slack.parse::<Slack>().unwrap().limit_us(span_us), want, "{name}");
        }
    }

    #[test]
    fn only_numbers_from_0_to_1000_are_slack() {
        for refused in ["-0.1", "1000.1", "NaN", "inf", "", "a tenth"] {
            assert!(refused.parse::<Slack>().is_err(), "{refused}");
        }
        let slack: Slack = "0.3".parse().unwrap();
        assert_eq!(serde_json::to_string(&slack).unwrap(), "0.3");
        assert_eq!(serde_json::from_str::<Slack>("0.3").unwrap(), slack);
    }

    #[test]
    fn a_wider_window_is_taken_only_if_it_is_allowed() {
        // 10        50         a
        //    12         51     b      2 wide, later 1
        let rows = [vec![10, 50], vec![12, 51]];
        for (slack, sync_at_us) in [("0", 51), ("0.9", 51), ("1", 12), ("9", 12)] {
            let window = earliest_within(&rows, slack.parse().unwrap());
            assert_eq!(window.map(|w| w.sync_at_us), Some(sync_at_us), "{slack}");
        }
    }
}
