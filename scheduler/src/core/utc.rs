//! A moment as people read it.

use std::time::{Duration, UNIX_EPOCH};

/// The last second that has such a form.
const END_OF_9999_S: u64 = 253_402_300_799;

/// A moment in epoch µs as `2026-11-29 00:44 UTC`; one behind the year 9999 as the end of it.
pub(super) fn utc(at_us: u64) -> String {
    let at = UNIX_EPOCH + Duration::from_secs((at_us / 1_000_000).min(END_OF_9999_S));
    let text = humantime::format_rfc3339_seconds(at).to_string().replace('T', " ");
    // Without the seconds.
    format!("{} UTC", &text[.."2026-11-29 00:44".len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_table() {
        #[rustfmt::skip]
        let cases = [
            (0,             "1970-01-01 00:00 UTC"),
            (951_782_399,   "2000-02-28 23:59 UTC"),
            (951_782_400,   "2000-02-29 00:00 UTC"),
            (1_795_913_052, "2026-11-29 00:44 UTC"),
            (4_102_444_799, "2099-12-31 23:59 UTC"),
        ];
        for (at_s, want) in cases {
            assert_eq!(utc(at_s * 1_000_000), want);
        }
    }
}
