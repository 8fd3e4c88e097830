//! Progress that a function reports, on its way to those who look at its task.

use std::sync::Mutex;

use syncline_rpc::{cut, threads::lock};
use syncline_scheduler::tasks::Progress;

/// What the function of one attempt has said last. A report replaces the one before: the worker tells of it
/// about once a second, however many there are.
#[derive(Debug, Default)]
pub(crate) struct ProgressCell(Mutex<Option<Progress>>);

impl ProgressCell {
    pub(crate) fn set(&self, done: u64, total: u64, text: &str) {
        let mut cell = lock(&self.0);
        let progress = cell.get_or_insert_default();
        (progress.done, progress.total) = (done, total);
        // The memory of the last text is used again.
        progress.text.clear();
        progress.text.extend(text.chars().take(Progress::MAX_TEXT_CHARS + 1));
        cut(&mut progress.text, Progress::MAX_TEXT_CHARS);
    }

    /// Says something else of what is done.
    pub(crate) fn set_text(&self, text: &str) {
        let before = self.get().unwrap_or_default();
        self.set(before.done, before.total, text);
    }

    pub(crate) fn get(&self) -> Option<Progress> {
        lock(&self.0).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_report_counts_and_a_long_text_is_cut() {
        let cell = ProgressCell::default();
        assert_eq!(cell.get(), None);
        cell.set(1, 3, &"x".repeat(1 << 20));
        assert_eq!(cell.get().unwrap().text.chars().count(), Progress::MAX_TEXT_CHARS);
        cell.set(2, 3, "");
        assert_eq!(cell.get(), Some(Progress { done: 2, total: 3, text: String::new() }));
    }
}
