//! What a program that runs for long needs beside its work: logs on stderr, and to be told when it has to end.

mod logs;
mod stop;

pub use logs::{log_as_command, log_as_service};
pub use stop::{INTERRUPTED, SecondStop, StopSignal};
