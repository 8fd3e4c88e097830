//! Intervals of time, of epochs, or of both, whichever is over first.

use std::num::NonZeroU32;

/// What is wrong with such an interval, in words.
pub(super) fn fault(every_s: Option<NonZeroU32>, every_epochs: Option<NonZeroU32>) -> Option<&'static str> {
    (every_s.is_none() && every_epochs.is_none())
        .then_some("it says neither `every_s` nor `every_epochs`, such as { every_epochs = 1 }")
}

/// Whether it is over.
pub(super) fn is_over(
    every_s: Option<NonZeroU32>,
    every_epochs: Option<NonZeroU32>,
    elapsed_us: u64,
    epochs: u32,
) -> bool {
    every_s.is_some_and(|every| elapsed_us >= u64::from(every.get()) * 1_000_000)
        || every_epochs.is_some_and(|every| epochs >= every.get())
}
