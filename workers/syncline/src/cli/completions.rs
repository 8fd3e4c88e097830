//! `syncline completions`: what a shell completes behind `syncline`.

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};

use super::{Failure, print};

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell that reads it
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(args.shell, &mut shown(&crate::Line::command()), "syncline", &mut script);
    print(String::from_utf8_lossy(&script).trim_end())
}

/// The command line without the commands that `--help` does not show: scripts would offer them.
fn shown(line: &Command) -> Command {
    let commands = line.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let shown = Command::new("syncline").version(env!("CARGO_PKG_VERSION"));
    shown.args(line.get_arguments().cloned()).subcommands(commands)
}
