//! Numbers with a unit, and times, on the command line: what is none is refused with the unit and an example;
//! and so many of something in words.

use std::{str::FromStr, time::Duration};

/// Named as an example of a time where it is allowed.
const SHORT: Duration = Duration::from_millis(500);

/// Reads a number; `expected` names its unit, and an example of it.
pub(crate) fn number<T: FromStr>(
    expected: &'static str,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    move |text| text.parse().map_err(|_| format!("expected {expected}"))
}

/// The unit of a time that is a number alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeUnit {
    Milliseconds,
    Seconds,
}

impl TimeUnit {
    fn times(self, number: u64) -> Duration {
        match self {
            Self::Milliseconds => Duration::from_millis(number),
            Self::Seconds => Duration::from_secs(number),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Milliseconds => "milliseconds",
            Self::Seconds => "seconds",
        }
    }
}

/// Reads a time from `least`, such as `500ms`, `30s` or `1h 30m`; a number alone is of this unit.
pub(crate) fn time_from(
    least: Duration,
    unit: TimeUnit,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    move |text| {
        let time = match text.parse() {
            Ok(number) => Some(unit.times(number)),
            Err(_) => humantime::parse_duration(text).ok(),
        };
        time.filter(|time| *time >= least).ok_or_else(|| {
            let from = match least.is_zero() {
                true => String::new(),
                false => format!(" from {}", humantime::format_duration(least)),
            };
            let short = if least <= SHORT { "500ms, " } else { "" };
            format!("expected a time{from}, such as {short}30s or 5m; a number alone is {}", unit.word())
        })
    }
}

/// Reads a time; a number alone is of this unit.
pub(crate) fn time(unit: TimeUnit) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    time_from(Duration::ZERO, unit)
}

/// So many of something, in words.
pub(crate) fn count(number: impl Into<u64>, what: &str) -> String {
    let number = number.into();
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_refused_with_the_unit_and_an_example() {
        let read = number::<u32>("whole samples, such as 32");
        assert_eq!(
            (read("64"), read("a lot")),
            (Ok(64), Err("expected whole samples, such as 32".to_owned()))
        );
    }

    #[test]
    fn a_time_has_a_unit_or_is_a_number_of_the_usual_one_table() {
        use TimeUnit::{Milliseconds, Seconds};
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        #[rustfmt::skip]
        let cases = [
            ("5000",   Milliseconds, Some(s(5))),
            ("5000",   Seconds,      Some(s(5_000))),
            ("250ms",  Seconds,      Some(ms(250))),
            ("5m",     Milliseconds, Some(s(300))),
            ("1h 30m", Seconds,      Some(s(5_400))),
            ("99",     Milliseconds, None),
            ("99ms",   Seconds,      None),
            ("-5",     Seconds,      None),
            ("0.5",    Seconds,      None),
            ("soon",   Seconds,      None),
            ("",       Seconds,      None),
        ];
        for (text, unit, want) in cases {
            let said = "expected a time from 100ms, such as 500ms, 30s or 5m; a number alone is ";
            let want = want.ok_or_else(|| format!("{said}{}", unit.word()));
            assert_eq!(time_from(ms(100), unit)(text), want, "{text}");
        }
        let said = "expected a time from 3s, such as 30s or 5m; a number alone is seconds";
        assert_eq!(time_from(s(3), Seconds)("500ms"), Err(said.to_owned()), "every example is allowed");
    }
}
