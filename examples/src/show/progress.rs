//! How far a job is, while it trains.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use syncline::JobStatus;

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

    pub(super) fn show(&self, job: &JobStatus) {
        let Some(bar) = &self.0 else { return };
        bar.set_length(job.samples_total.max(1));
        bar.set_position(job.samples_applied);
        let loss = job.loss.map(|loss| format!("  loss {loss:.6}")).unwrap_or_default();
        let barrier = job.next_barrier.as_ref().map(|next| format!("  barrier {next}")).unwrap_or_default();
        bar.set_message(format!(
            "epoch {}/{}  {:.1} samples/s{loss}{barrier}",
            job.epoch, job.epochs, job.samples_per_s
        ));
    }

    pub(super) fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
