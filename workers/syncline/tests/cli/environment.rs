//! The environment of a program under test: not that of whoever runs the tests.

use std::process::Command;

/// Where native parts lie; a test would fetch them again.
const KEPT: [&str; 2] = ["SYNCLINE_CACHE", "SYNCLINE_REDIS_SERVER"];

/// Takes what is meant for another cluster, as `SYNCLINE_ENGINE`, from the environment of a command.
pub fn forget_ours(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let is_ours =
            name.to_str().is_some_and(|name| name.starts_with("SYNCLINE_") && !KEPT.contains(&name));
        if is_ours {
            command.env_remove(name);
        }
    }
    command
}
