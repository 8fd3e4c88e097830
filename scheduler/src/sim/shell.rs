//! What surrounds a core that is driven in virtual time.

use crate::core::{Core, Effect, Input};

/// Hands inputs to the core, and does with the changes what it likes.
pub trait Shell {
    /// Handles one input. The effects are carried out at once.
    fn handle(&mut self, core: &mut Core, now_us: u64, input: Input) -> Vec<Effect>;
}

/// Inputs after which the changes are dropped.
const TURN: u32 = 256;

/// Stores nothing.
#[derive(Debug, Clone, Default)]
pub struct NoStore {
    inputs: u32,
}

impl Shell for NoStore {
    fn handle(&mut self, core: &mut Core, now_us: u64, input: Input) -> Vec<Effect> {
        self.inputs += 1;
        if self.inputs.is_multiple_of(TURN) {
            core.discard_changes();
        }
        // No user's command is ever refused here: there is one job, and it is valid.
        core.handle(now_us, input).unwrap_or_default()
    }
}
