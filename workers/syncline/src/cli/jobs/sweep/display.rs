//! What a sweep says on stderr while it goes on.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::cli::{Failure, jobs::problem::Problem, one_line, say};

/// Pause between two lines of a trial when nobody sits at a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// On a terminal a line for each trial that trains, which moves, below what has happened; elsewhere lines
/// that come one after the other; with `--json` nothing but what is wrong.
pub(super) struct Display {
    how: How,
    problem: Problem,
}

enum How {
    Silent,
    Bars { all: MultiProgress, of_trials: BTreeMap<usize, ProgressBar>, trouble: Option<ProgressBar> },
    Lines(BTreeMap<usize, (Instant, String)>),
}

impl Display {
    pub(super) fn new(json: bool) -> Self {
        let how = match (json, io::stderr().is_terminal()) {
            (true, _) => How::Silent,
            (false, true) => {
                How::Bars { all: MultiProgress::new(), of_trials: BTreeMap::new(), trouble: None }
            }
            (false, false) => How::Lines(BTreeMap::new()),
        };
        Self { how, problem: Problem::default() }
    }

    /// Something has happened; the line stays.
    pub(super) fn note(&self, text: &str) {
        match &self.how {
            How::Silent => {}
            // What cannot be said to a terminal that is gone is said to nobody.
            How::Bars { all, .. } => drop(all.println(one_line(text))),
            How::Lines(_) => say(text),
        }
    }

    /// How a trial stands.
    pub(super) fn show(&mut self, trial: usize, line: String) {
        match &mut self.how {
            How::Silent => {}
            How::Bars { all, of_trials, .. } => {
                of_trials.entry(trial).or_insert_with(|| bar(all)).set_message(one_line(&line).into_owned());
            }
            How::Lines(said) => {
                // That it begins was said a moment ago.
                let (at, before) = said.entry(trial).or_insert_with(|| (Instant::now(), String::new()));
                if *before != line && at.elapsed() >= LINE_INTERVAL {
                    say(&line);
                    (*at, *before) = (Instant::now(), line);
                }
            }
        }
    }

    /// A trial trains no more.
    pub(super) fn end(&mut self, trial: usize) {
        match &mut self.how {
            How::Silent => {}
            How::Bars { all, of_trials, .. } => {
                if let Some(bar) = of_trials.remove(&trial) {
                    bar.finish_and_clear();
                    all.remove(&bar);
                }
            }
            How::Lines(said) => drop(said.remove(&trial)),
        }
    }

    /// Says once what is wrong, for as long as it is.
    pub(super) fn problem(&mut self, failure: &Failure) {
        let line = format!("cannot go on for now, still trying: {failure}");
        match &mut self.how {
            How::Bars { all, trouble, .. } => {
                trouble.get_or_insert_with(|| bar(all)).set_message(one_line(&line).into_owned());
            }
            How::Silent | How::Lines(_) => self.problem.say_line(line),
        }
    }

    /// It has passed.
    pub(super) fn passed(&mut self) {
        if let How::Bars { all, trouble, .. } = &mut self.how
            && let Some(bar) = trouble.take()
        {
            bar.finish_and_clear();
            all.remove(&bar);
        }
        self.problem.passed_with("the cluster answers again");
    }

    /// Clears what moves.
    pub(super) fn close(&self) {
        if let How::Bars { all, .. } = &self.how {
            drop(all.clear());
        }
    }
}

/// A line that is cut where the terminal ends.
fn bar(all: &MultiProgress) -> ProgressBar {
    let bar = all.add(ProgressBar::new_spinner());
    // The template is fixed, so it cannot be wrong; without it the line would still be one.
    if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
        bar.set_style(style);
    }
    bar
}
