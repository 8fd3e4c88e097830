//! The threads that run general tasks.

use std::sync::Arc;

use syncline_rpc::threads::{self, NoThread};

use super::{
    attempt,
    pool::{NextStep, Pool},
};
use crate::functions::StopFlag;

/// Arguments that are put together for one call leave their memory to the next one up to this size.
const MAX_KEPT_BYTES: usize = 1 << 20;

/// Of a thread that runs functions, as a program's main thread has. One that overflows it ends the process.
const STACK_BYTES: usize = 8 << 20;

/// Starts one more thread. Nobody joins it: what it hangs in must not hang us.
pub(super) fn start(pool: Pool) -> Result<(), NoThread> {
    threads::spawn_with_stack("call", STACK_BYTES, move || work(&pool)).map(drop)
}

/// Runs attempts until the pool is closed or another thread has taken this one's place.
fn work(pool: &Pool) {
    let mut scratch = Vec::new();
    let mut stop = Arc::new(StopFlag::default());
    let mut turn = pool.next(&stop);
    while let NextStep::Run(attempt) = turn {
        let ended = attempt::run(&attempt, &stop, pool, &mut scratch);
        // An idle thread holds no memory that nobody counts.
        if scratch.capacity() > MAX_KEPT_BYTES {
            scratch = Vec::new();
        }
        turn = pool.end_and_next(&attempt, ended, &mut stop);
    }
}
