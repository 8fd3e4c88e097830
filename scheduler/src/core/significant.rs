//! Losses and metrics as text.

/// Digits that are always written: all that a float32 tells apart.
const DIGITS: i32 = 7;
/// Digits behind the point that are always written, so that figures of the same size stand below each other.
const DECIMALS: i32 = 6;
/// From here on a figure is written by its power of ten: it has diverged.
const LARGE: f64 = 1e9;
/// Below this, too: it would be zeros for the most part.
const SMALL: f64 = 1e-5;

/// A loss, or a metric, for people and for programs: seven significant digits, whatever its size, such as
/// `0.250000`, `0.00001234567` and `1.448724e28`.
pub fn significant(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 {
        return format!("{:.*}", DECIMALS as usize, 0.0);
    }
    if !value.is_finite() {
        return value.to_string();
    }
    if !(SMALL..LARGE).contains(&magnitude) {
        let text = format!("{value:.*e}", DIGITS as usize - 1);
        return match text.split_once('e') {
            Some((digits, power)) if digits.contains('.') => {
                format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.'))
            }
            _ => text,
        };
    }
    let decimals = (DIGITS - 1 - magnitude.log10().floor() as i32).max(DECIMALS);
    let mut text = format!("{value:.*}", decimals as usize);
    let zeros = text.len() - text.trim_end_matches('0').len();
    text.truncate(text.len() - zeros.min((decimals - DECIMALS) as usize));
    text
}

#[cfg(test)]
mod tests {
    use super::significant;

    #[test]
    fn a_figure_of_any_size_has_seven_digits_and_reads_back() {
        #[rustfmt::skip]
        let cases = [
            (0.0,              "0.000000"),
            (-0.0,             "0.000000"),
            (0.25,             "0.250000"),
            (0.123_456_78,     "0.1234568"),
            (1.234_567_8,      "1.234568"),
            (0.012_345_678,    "0.01234568"),
            (0.012_5,          "0.012500"),
            (0.000_012_345_67, "0.00001234567"),
            (0.000_01,         "0.000010"),
            (5.64e-6,          "5.64e-6"),
            (-1e-9,            "-1e-9"),
            (1e-40,            "1e-40"),
            (12_345.678_9,     "12345.678900"),
            (999_999_999.0,    "999999999.000000"),
            (1.448_724e28,     "1.448724e28"),
            (-3.4e37,          "-3.4e37"),
            (f64::NAN,         "NaN"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in cases {
            assert_eq!(significant(value), text);
            let back: f64 = text.parse().unwrap();
            assert!(value.is_nan() || back == value || (back - value).abs() <= value.abs() * 5e-7, "{text}");
        }
    }

    #[test]
    fn losses_that_are_a_millionth_apart_are_told_apart() {
        for loss in [3e-7, 1.5e-5, 0.03, 0.7, 42.0, 1e12] {
            assert_ne!(significant(loss), significant(loss * (1.0 + 1.1e-6)));
        }
    }
}
