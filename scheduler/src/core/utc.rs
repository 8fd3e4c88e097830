//! A moment as people read it.

/// A moment in epoch µs as `2026-11-29 00:44 UTC`.
///
/// Source: `civil_from_days` of H. Hinnant, "chrono-Compatible Low-Level Date Algorithms". Years begin in March there, so that
/// the leap day is the last of its year, and 400 of them, an era, have 146,097 days.
pub(super) fn utc(at_us: u64) -> String {
    let minutes = at_us / 60_000_000;
    let (days, minute) = (minutes / 1_440 + 719_468, minutes % 1_440);
    let (era, day) = (days / 146_097, days % 146_097);
    let year_of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = 400 * era + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", minute / 60, minute % 60)
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
