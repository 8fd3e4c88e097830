//! Values of a field that a sweep tries: `settings.batch=16,32,64`, or a range for random ones,
//! `settings.learning_rate=1e-4..0.1:log`. Pure.

use std::str::FromStr;

use syncline_onnx::SplitMix64;

use crate::cli::CliError;

/// Significant digits of a number that was drawn: enough to try, and few enough to read.
const DRAWN_DIGITS: usize = 4;

/// A field of the job file, and what it may be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    /// As `submit --set` takes it: `settings.batch`.
    pub key: String,
    pub choices: Choices,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Choices {
    /// As they were given, at least one.
    List(Vec<String>),
    Range(Range),
}

/// Numbers from `low` to `high`, both included, `low` below `high`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Range {
    low: f64,
    high: f64,
    /// Uniform in the logarithm instead of the number.
    is_log: bool,
    /// Whole numbers alone.
    is_whole: bool,
}

impl FromStr for Axis {
    type Err = CliError;

    /// Commas separate values, outside of quotes and of brackets of any kind; `LOW..HIGH`, of two numbers, is
    /// a range.
    fn from_str(text: &str) -> Result<Self, CliError> {
        let refused = |why: &str| CliError::Setting { what: format!("--set {text}: {why}") };
        let (key, given) =
            text.split_once('=').ok_or_else(|| refused("expected KEY=VALUE,VALUE,... or KEY=LOW..HIGH"))?;
        let values = split_at_commas(given);
        let values: Vec<String> = values.iter().map(|value| value.trim().to_owned()).collect();
        if values.iter().any(String::is_empty) {
            return Err(refused("a value is empty; an empty text is ''"));
        }
        for (number, value) in (1..).zip(&values) {
            if values.iter().take(number - 1).any(|before| before == value) {
                return Err(refused(&format!("`{value}` is there twice")));
            }
        }
        let choices = match Range::read(&values[0]).map_err(|why| refused(&why))? {
            Some(_) if values.len() > 1 => {
                return Err(refused("a range stands alone: no other values beside it"));
            }
            Some(range) => Choices::Range(range),
            None => Choices::List(values),
        };
        Ok(Self { key: key.trim().to_owned(), choices })
    }
}

impl Axis {
    /// How many values it has; `None`: more than can be counted.
    pub(super) fn count(&self) -> Option<u64> {
        match &self.choices {
            Choices::List(values) => Some(values.len() as u64),
            Choices::Range(range) => range.count(),
        }
    }

    /// One of its values, at random.
    pub(super) fn draw(&self, random: &mut SplitMix64) -> String {
        match &self.choices {
            Choices::List(values) => {
                let place = (random.uniform() * values.len() as f64) as usize;
                values[place.min(values.len() - 1)].clone()
            }
            Choices::Range(range) => range.draw(random),
        }
    }
}

impl Range {
    /// `None`: the text is no range.
    fn read(text: &str) -> Result<Option<Self>, String> {
        let Some((low_text, rest)) = text.split_once("..") else { return Ok(None) };
        let (high_text, kind) = match rest.split_once(':') {
            Some((high, kind)) => (high, Some(kind)),
            None => (rest, None),
        };
        let (Ok(low), Ok(high)) = (low_text.trim().parse::<f64>(), high_text.trim().parse::<f64>()) else {
            return Ok(None);
        };
        let is_log = match kind.map(str::trim) {
            None => false,
            Some("log") => true,
            Some(other) => return Err(format!("`{other}` after a range is not known; there is `:log`")),
        };
        if !(low.is_finite() && high.is_finite() && low < high) {
            return Err("a range goes up, from one number to another".to_owned());
        }
        if is_log && low <= 0.0 {
            return Err("a range with `:log` begins above 0".to_owned());
        }
        let is_whole = [low_text, high_text].iter().all(|end| end.trim().parse::<i64>().is_ok());
        Ok(Some(Self { low, high, is_log, is_whole }))
    }

    fn count(&self) -> Option<u64> {
        self.is_whole.then(|| (self.high - self.low) as u64 + 1)
    }

    fn draw(&self, random: &mut SplitMix64) -> String {
        let Self { low, high, is_log, is_whole } = *self;
        // Each whole number has a stretch of its own: half of one below and above.
        let margin = if is_whole { 0.5 } else { 0.0 };
        let (from, to) = (low - margin, high + margin);
        let share = random.uniform();
        let number = match is_log {
            true => (from.ln() + share * (to.ln() - from.ln())).exp(),
            false => from + share * (to - from),
        };
        if is_whole {
            return format!("{}", number.round().clamp(low, high));
        }
        let short = format!("{number:.*e}", DRAWN_DIGITS - 1).parse().unwrap_or(number);
        decimal(short.clamp(low, high))
    }
}

/// A number as TOML reads it as one with a fraction, whatever its size.
pub(super) fn decimal(number: f64) -> String {
    // `1e-7` for what has many zeros, `0.01` for the rest; a whole one needs its `.0`.
    format!("{number:?}")
}

/// The parts of a text between commas, but for those inside of quotes and of brackets.
fn split_at_commas(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut depth, mut quote) = (Vec::new(), 0, 0usize, None);
    for (place, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) => quote = (c != open).then_some(open),
            (None, '\'' | '"') => quote = Some(c),
            (None, '[' | '{' | '(') => depth += 1,
            (None, ']' | '}' | ')') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(&text[begin..place]);
                begin = place + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<String> {
        match text.parse::<Axis>().unwrap().choices {
            Choices::List(values) => values,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn commas_separate_values_outside_of_quotes_and_brackets_table() {
        #[rustfmt::skip]
        let cases: [(&str, &[&str]); 8] = [
            ("settings.batch=16,32, 64",                        &["16", "32", "64"]),
            ("settings.batch=16",                               &["16"]),
            ("settings.policy=bsp,ssp:3,elastic-bsp:15+slack=0.1", &["bsp", "ssp:3", "elastic-bsp:15+slack=0.1"]),
            ("settings.train=['a', 'b'],['c']",                 &["['a', 'b']", "['c']"]),
            ("settings.decay=cosine,{ steps = [[0.5, 0.1], [0.8, 0.1]] }", &["cosine", "{ steps = [[0.5, 0.1], [0.8, 0.1]] }"]),
            ("settings.params='a,b.txt',\"it's, too\"",         &["'a,b.txt'", "\"it's, too\""]),
            ("data.source.csv.path=../data/a.csv,../data/b.csv", &["../data/a.csv", "../data/b.csv"]),
            ("settings.policy='1..2'",                          &["'1..2'"]),
        ];
        for (text, want) in cases {
            assert_eq!(list(text), want, "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_reason_table() {
        #[rustfmt::skip]
        let cases = [
            ("settings.batch",                 "expected KEY=VALUE,VALUE"),
            ("settings.batch=",                "a value is empty"),
            ("settings.batch=16,,32",          "a value is empty"),
            ("settings.batch=16,32,16",        "`16` is there twice"),
            ("settings.learning_rate=1..0.1",  "a range goes up"),
            ("settings.learning_rate=0..1:log", "begins above 0"),
            ("settings.learning_rate=1..2:lin", "`lin` after a range is not known"),
            ("settings.learning_rate=1..2,3",  "a range stands alone"),
        ];
        for (text, want) in cases {
            let error = text.parse::<Axis>().unwrap_err().to_string();
            assert!(error.contains(want) && error.contains(text), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_drawn_lies_in_the_range_is_short_and_reaches_all_of_it() {
        let mut random = SplitMix64::new(7);
        let mut draw = |text: &str| -> Vec<String> {
            let axis: Axis = text.parse().unwrap();
            (0..2_000).map(|_| axis.draw(&mut random)).collect()
        };
        let numbers =
            |drawn: &[String]| drawn.iter().map(|one| one.parse::<f64>().unwrap()).collect::<Vec<_>>();
        let below = |drawn: &[f64], limit: f64| drawn.iter().filter(|one| **one < limit).count();

        let log = draw("settings.learning_rate=1e-4..1e-1:log");
        let drawn = numbers(&log);
        assert!(drawn.iter().all(|one| (1e-4..=1e-1).contains(one)));
        let low = below(&drawn, 1e-3);
        assert!((560..780).contains(&low), "a third of the range by its logarithm: {low}");
        assert!(log.iter().all(|text| text.len() <= 9 && text.parse::<i64>().is_err()), "{:?}", &log[..5]);

        let linear = numbers(&draw("settings.warmup=0..0.5"));
        assert!(linear.iter().all(|one| (0.0..=0.5).contains(one)));
        let low = below(&linear, 0.25);
        assert!((900..1_100).contains(&low), "{low}");

        for text in ["settings.batch=1..4", "settings.batch=1..4:log"] {
            let whole = draw(text);
            for want in ["1", "2", "3", "4"] {
                let count = whole.iter().filter(|one| *one == want).count();
                assert!(count > 200, "{text}: {want} came {count} times");
            }
            assert!(whole.iter().all(|one| ["1", "2", "3", "4"].contains(&one.as_str())));
        }
        let listed = draw("settings.policy=bsp,asp");
        assert!((900..1_100).contains(&listed.iter().filter(|one| *one == "asp").count()));
    }

    #[test]
    fn a_number_that_was_drawn_is_one_with_a_fraction() {
        for (number, want) in [(1.0, "1.0"), (0.012, "0.012"), (1e-7, "1e-7"), (1e20, "1e20")] {
            assert_eq!(decimal(number), want);
            assert!(
                toml::from_str::<toml::Table>(&format!("a = {}", decimal(number))).unwrap()["a"].is_float()
            );
        }
    }
}
