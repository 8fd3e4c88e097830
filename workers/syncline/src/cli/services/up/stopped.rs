//! Children that stand still because somebody stopped them (SIGSTOP, Ctrl-Z, a debugger): they look as if
//! they ran and do nothing.

use std::collections::BTreeMap;

/// Children that stood still at the last look, with their process numbers.
#[derive(Default)]
pub(super) struct StoppedChildren(BTreeMap<String, u32>);

impl StoppedChildren {
    /// What to say of the children that were stopped since the last look, and of those that go on. One that
    /// has ended, or was started anew, is told of by others.
    pub(super) fn look(
        &mut self,
        children: &BTreeMap<String, u32>,
        is_stopped: impl Fn(u32) -> bool,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        self.0.retain(|name, pid| {
            let stands_still = children.get(name) == Some(pid) && is_stopped(*pid);
            if !stands_still && children.get(name) == Some(pid) {
                lines.push(format!("{name} (process {pid}) goes on"));
            }
            stands_still
        });
        for (name, pid) in children {
            if !self.0.contains_key(name) && is_stopped(*pid) {
                lines.push(format!(
                    "{name} (process {pid}) was stopped from outside and does nothing; `kill -CONT {pid}` lets it go on"
                ));
                self.0.insert(name.clone(), *pid);
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_that_a_child_was_stopped_and_that_it_goes_on() {
        let worker = |pid: u32| BTreeMap::from([("worker-0".to_owned(), pid)]);
        let stopped =
            "worker-0 (process 7) was stopped from outside and does nothing; `kill -CONT 7` lets it go on";
        #[rustfmt::skip]
        let looks: [(&str, u32, bool, &[&str]); 7] = [
            ("it runs",            7, false, &[]),
            ("it was stopped",     7, true,  &[stopped]),
            ("it is still",        7, true,  &[]),
            ("it goes on",         7, false, &["worker-0 (process 7) goes on"]),
            ("it runs",            7, false, &[]),
            ("it is stopped again", 7, true, &[stopped]),
            ("another has come",   8, false, &[]),
        ];
        let mut children = StoppedChildren::default();
        for (what, pid, is_stopped, said) in looks {
            assert_eq!(children.look(&worker(pid), |_| is_stopped), said, "{what}");
        }
    }
}
