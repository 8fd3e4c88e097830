//! What a program that runs for long needs beside its work: logs on stderr, and to be told when it has to
//! end.

mod end;
mod file_size_limit;
mod hangup;
mod logs;
mod open_files_limit;
mod stop;

pub use end::{INTERRUPTED, end_at_once};
pub use file_size_limit::outlive_file_size_limit;
pub use hangup::hangup_is_ignored;
pub use logs::{log_as_command, log_as_service};
pub use open_files_limit::open_as_many_files_as_allowed;
pub use stop::{SecondStop, StopSignal};
