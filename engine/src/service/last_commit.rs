//! What Redis knows of a job, as far as the next commit depends on it.

use std::collections::HashMap;

use syncline_scheduler::core::Commit;

/// The last commit of a job.
#[derive(Debug, Default)]
pub(super) struct LastCommit {
    pub seq: u64,
    /// Fields of the summary; none if this engine has not written them.
    summary: HashMap<&'static str, String>,
}

impl LastCommit {
    /// As another engine left it.
    pub(super) fn up_to(seq: u64) -> Self {
        Self { seq, ..Self::default() }
    }

    /// Lets the next commit write the whole summary: somebody may have changed it in Redis.
    pub(super) fn forget_summary(&mut self) {
        self.summary.clear();
    }

    /// Leaves in the summary of the next commit only what differs: Redis pays for every field, and in a step
    /// of a general task two of twenty change.
    pub(super) fn retain_changed_fields(&mut self, commit: &mut Commit) {
        // A new job: nothing of an older one stays.
        if commit.spec.is_some() {
            self.forget_summary();
        }
        commit.summary.retain(|(field, value)| match self.summary.get_mut(field) {
            Some(known) if known == value => false,
            Some(known) => {
                known.clone_from(value);
                true
            }
            None => {
                self.summary.insert(field, value.clone());
                true
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(
        written: &mut LastCommit,
        spec: Option<&str>,
        fields: &[(&'static str, &str)],
    ) -> Vec<&'static str> {
        let summary = fields.iter().map(|(field, value)| (*field, (*value).to_owned())).collect();
        let mut commit = Commit { spec: spec.map(str::to_owned), summary, ..Commit::default() };
        written.retain_changed_fields(&mut commit);
        commit.summary.iter().map(|(field, _)| *field).collect()
    }

    #[test]
    fn only_fields_that_differ_are_written_again_and_all_of_a_new_job() {
        let mut written = LastCommit::up_to(7);
        let first = [("state", "running"), ("done", "1")];
        assert_eq!(left(&mut written, None, &first), ["state", "done"], "another engine wrote those before");
        assert!(left(&mut written, None, &first).is_empty());
        assert_eq!(left(&mut written, None, &[("state", "running"), ("done", "2")]), ["done"]);
        assert_eq!(left(&mut written, None, &[("state", "done"), ("code", "")]), ["state", "code"]);
        assert_eq!(left(&mut written, Some("{}"), &first), ["state", "done"]);
        written.forget_summary();
        assert_eq!(left(&mut written, None, &first), ["state", "done"]);
        assert_eq!(written.seq, 7);
    }
}
