//! Spans of time as people say them.

/// A span in the unit that suits it: `90 s`, `3 min`, `5 h`, `2 d`.
pub fn span(ms: u64) -> String {
    match ms as f64 / 1e3 {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3_600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_table() {
        for (ms, want) in [(5_000, "5 s"), (180_000, "3 min"), (7_200_000, "2 h"), (864_000_000, "10 d")] {
            assert_eq!(span(ms), want);
        }
    }
}
