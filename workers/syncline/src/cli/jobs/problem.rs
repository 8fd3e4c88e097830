//! What commands that follow a job say while they cannot see it.

use crate::cli::{Failure, say};

/// What is wrong right now, which is said once.
#[derive(Debug, Default)]
pub(super) struct Problem(Option<String>);

impl Problem {
    /// In one line. The job may still run, so watching goes on until the user ends it.
    pub(super) fn line(failure: &Failure) -> String {
        format!("cannot see the job, still watching: {failure}")
    }

    /// Says it, unless it was the last that was said.
    pub(super) fn say(&mut self, failure: &Failure) {
        self.say_line(Self::line(failure));
    }

    /// The same in these words.
    pub(super) fn say_line(&mut self, line: String) {
        if self.0.as_ref() != Some(&line) {
            say(&line);
            self.0 = Some(line);
        }
    }

    /// It has passed, which is said if it was; whether it was.
    pub(super) fn passed(&mut self) -> bool {
        self.passed_with("the job is seen again")
    }

    /// The same in these words.
    pub(super) fn passed_with(&mut self, line: &str) -> bool {
        let was_there = self.0.take().is_some();
        if was_there {
            say(line);
        }
        was_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Exit;

    #[test]
    fn what_passes_may_come_back() {
        let mut problem = Problem::default();
        assert!(!problem.passed());
        problem.say(&Failure::new(Exit::Unreachable, "[E300] away", ""));
        problem.say(&Failure::new(Exit::Unreachable, "[E300] away", ""));
        assert!(problem.0.as_ref().unwrap().ends_with("still watching: [E300] away"));
        assert!(problem.passed() && !problem.passed());
    }
}
