//! How many threads a session may have, at a limit on processes.

use std::{
    io,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
};

use tracing::warn;

/// As many of the `wanted` threads as the system gives now, the calling one included.
///
/// ONNX Runtime starts the threads of a session one after the other, and where a later one is refused it
/// waits forever for the end of those that are there. So as many are there at the same time before: some 20
/// us each.
pub(super) fn given_threads(wanted: usize) -> usize {
    let given = given(wanted, |work| thread::Builder::new().name("onnxruntime".to_owned()).spawn(work));
    if given < wanted {
        warn!(
            wanted,
            given,
            "the system gives no more threads to a model: raise the limit on processes and threads of this user or container \
             (`ulimit -u`, pids.max, TasksMax), or ask for fewer (`--threads`)"
        );
    }
    given
}

fn given(
    wanted: usize,
    mut spawn: impl FnMut(Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>,
) -> usize {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock();
    let waiting: Vec<_> = (1..wanted)
        .map_while(|_| {
            let gate = gate.clone();
            spawn(Box::new(move || drop(gate.lock()))).ok()
        })
        .collect();
    drop(closed);
    let given = 1 + waiting.len();
    waiting.into_iter().for_each(|thread| drop(thread.join()));
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_the_threads_that_the_system_gives_and_its_callers() {
        let system = |limit: usize| {
            let mut there = 0;
            move |work: Box<dyn FnOnce() + Send>| {
                there += 1;
                if there > limit { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(thread::spawn(work)) }
            }
        };
        for (wanted, limit, threads) in [(4, 8, 4), (4, 2, 3), (4, 0, 1), (1, 0, 1), (0, 0, 1)] {
            assert_eq!(given(wanted, system(limit)), threads, "{wanted} of {limit}");
        }
        assert_eq!(given_threads(3), 3);
    }
}
