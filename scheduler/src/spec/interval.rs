//! Intervals of time, of epochs, or of both, whichever is over first.

/// What is wrong with such an interval, in words.
pub(super) fn fault(every_s: Option<u32>, every_epochs: Option<u32>) -> Option<String> {
    if every_s.is_none() && every_epochs.is_none() {
        return Some("it says neither `every_s` nor `every_epochs`, such as { every_epochs = 1 }".into());
    }
    below_one("every_s", every_s).or_else(|| below_one("every_epochs", every_epochs))
}

/// What is wrong with a number that has to be 1 at least, in words.
pub(super) fn below_one(name: &str, number: Option<u32>) -> Option<String> {
    (number == Some(0)).then(|| format!("{name} is 0, expected a whole number from 1"))
}

/// Whether it is over.
pub(super) fn is_over(every_s: Option<u32>, every_epochs: Option<u32>, elapsed_us: u64, epochs: u32) -> bool {
    every_s.is_some_and(|every| elapsed_us >= u64::from(every) * 1_000_000)
        || every_epochs.is_some_and(|every| epochs >= every)
}
