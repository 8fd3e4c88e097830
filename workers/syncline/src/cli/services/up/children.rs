//! All children of `up`, and the order in which they stop.

use tokio::sync::mpsc;

use super::{
    child::{Event, Program, SupervisedChild},
    process::Process,
};

/// The children that were started.
pub(crate) struct Children {
    events: mpsc::UnboundedSender<Event>,
    running: Vec<(Process, SupervisedChild)>,
}

impl Children {
    pub(crate) fn new(events: mpsc::UnboundedSender<Event>) -> Self {
        Self { events, running: Vec::new() }
    }

    pub(crate) fn start(&mut self, program: Program) {
        self.running.push((program.process, SupervisedChild::start(program, self.events.clone())));
    }

    /// Workers sign off while engine and shards still run. Shards stop last: they save their jobs for the
    /// next start, and an engine that still ran would count them as lost meanwhile.
    ///
    /// Whether they ended cleanly. Once `at_once` returns, none is waited for any longer: each has a moment,
    /// and is killed.
    pub(crate) async fn stop(mut self, at_once: impl Future<Output = ()>) -> bool {
        tokio::pin!(at_once);
        // First those that need the others.
        let kinds: [fn(&Process) -> bool; 3] = [
            |process| matches!(process, Process::Worker(_)),
            |process| matches!(process, Process::Engine { .. }),
            |process| matches!(process, Process::Shard(_)),
        ];
        for is_next in kinds {
            let (these, others): (Vec<_>, Vec<_>) =
                self.running.into_iter().partition(|(process, _)| is_next(process));
            self.running = others;
            these.iter().for_each(|(_, child)| child.request_stop());
            let mut these: Vec<SupervisedChild> = these.into_iter().map(|(_, child)| child).collect();
            while let Some(child) = these.last_mut() {
                tokio::select! {
                    () = child.ended() => drop(these.pop()),
                    () = &mut at_once => {
                        these.extend(self.running.into_iter().map(|(_, child)| child));
                        these.iter().for_each(SupervisedChild::give_up);
                        for mut child in these {
                            child.ended().await;
                        }
                        return false;
                    }
                }
            }
        }
        true
    }
}
