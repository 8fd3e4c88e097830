//! How far a job is, while it trains.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use syncline_engine::rpc::JobFields;

/// A bar on a terminal, nothing elsewhere.
pub(super) struct Progress(Option<ProgressBar>);

impl Progress {
    /// `quiet`: nothing on a terminal either.
    pub(super) fn new(quiet: bool) -> Self {
        if quiet || !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let style =
            ProgressStyle::with_template("{bar:30} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(Some(ProgressBar::new(1).with_style(style)))
    }

    pub(super) fn show(&self, job: &JobFields) {
        let Some(bar) = &self.0 else { return };
        let text = |field: &str| job.get(field).map_or("", |s| s.as_str());
        let number = |field: &str| text(field).parse::<u64>().unwrap_or(0);
        bar.set_length(number("samples_total").max(1));
        bar.set_position(number("samples_applied"));
        bar.set_message(format!(
            "epoch {}/{}  {} samples/s  loss {}  barrier {}",
            text("epoch"),
            text("epochs"),
            text("samples_per_s"),
            text("loss"),
            text("next_barrier")
        ));
    }

    pub(super) fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
