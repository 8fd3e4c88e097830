//! One input being handled.

use super::effects::Effect;

/// When an input is handled, and what the shell must do once what it changed is committed.
pub(super) struct Turn<'a> {
    /// On the engine's clock, in epoch microseconds.
    pub now_us: u64,
    pub effects: &'a mut Vec<Effect>,
}
