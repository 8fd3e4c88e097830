//! Numbers with a unit on the command line: what is none is refused with the unit and an example; and so many of something
//! in words.

use std::str::FromStr;

/// Reads a number; `expected` names its unit, and an example of it.
pub(crate) fn number<T: FromStr>(
    expected: &'static str,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    move |text| text.parse().map_err(|_| format!("expected {expected}"))
}

/// Reads a number from `least`.
pub(crate) fn number_from<T: FromStr + PartialOrd + Copy + Send + Sync>(
    least: T,
    expected: &'static str,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    let read = number(expected);
    move |text| match read(text)? {
        small if small < least => Err(format!("expected {expected}")),
        large => Ok(large),
    }
}

/// So many of something, in words.
pub(crate) fn count(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_refused_with_the_unit_and_an_example() {
        let said = Err("expected whole milliseconds from 100, such as 5000".to_owned());
        let read = number_from(100_u64, "whole milliseconds from 100, such as 5000");
        for bad in ["5s", "10ms", "", "99", "0.5"] {
            assert_eq!(read(bad), said, "{bad}");
        }
        assert_eq!(read("100"), Ok(100));
    }
}
