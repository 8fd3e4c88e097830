//! A worker that may train for several jobs at a time.
//!
//! Each training slot registers, polls, computes and pushes on its own, under an incarnation of its own: so
//! no barrier of one job waits for a pull of another, and what becomes of one training touches no other. To
//! the engine it is a worker that shares a process; the first slot has the general tasks as well.

use std::panic::resume_unwind;

use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
};

use super::{
    WorkerOptions,
    control::{run_slot, stopped},
    error::WorkerError,
};

/// One of the training slots of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TrainingSlot {
    /// Drawn by the process, and the same for all slots of it: host, name and pid may be those of another
    /// machine's worker, too.
    pub process: u64,
    /// From 1.
    pub number: u32,
}

impl TrainingSlot {
    /// Those of a worker with these settings: one if it does not train.
    fn all(options: &WorkerOptions) -> impl Iterator<Item = Self> + use<> {
        let count = if options.runtime.is_some() { options.trainings.max(1) } else { 1 };
        let process = rand::random::<u64>().max(1);
        (1..=count).map(move |number| Self { process, number })
    }

    /// Whether it has the general tasks of the process.
    pub(super) fn has_general_tasks(self) -> bool {
        self.number == 1
    }
}

/// Works until `stop` becomes true. Returns early only if the engine turns this worker away for good, a step
/// hangs, or the GPU is lost to this process.
///
/// # Errors
/// E350 if an engine turns it away, E354 if a task still hangs after it should have ended, E652 if the GPU
/// computes nothing more, E447 if a function has the name of that which runs models.
pub async fn run(options: WorkerOptions, mut stop: watch::Receiver<bool>) -> Result<(), WorkerError> {
    let (end, ended) = watch::channel(false);
    let mut slots = JoinSet::new();
    for slot in TrainingSlot::all(&options) {
        slots.spawn(run_slot(options.clone(), slot, ended.clone()));
    }
    let mut outcome = Ok(());
    loop {
        tokio::select! {
            over = slots.join_next() => match over {
                None => return outcome,
                // What ends one slot for good ends the process; the others stop cleanly.
                Some(over) => {
                    outcome = outcome.and(over.unwrap_or_else(go_on_panicking));
                    end.send_replace(true);
                }
            },
            () = stopped(&mut stop), if !*end.borrow() => drop(end.send_replace(true)),
        }
    }
}

/// A panic of a slot goes on here, as if it had run here.
fn go_on_panicking(error: JoinError) -> Result<(), WorkerError> {
    match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(canceled) => Err(WorkerError::Executor { cause: canceled.to_string() }),
    }
}
