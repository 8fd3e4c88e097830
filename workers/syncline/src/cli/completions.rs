//! `syncline completions`: what a shell completes behind `syncline`.

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use super::{Failure, print};

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell that reads it
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(args.shell, &mut crate::Line::command(), "syncline", &mut script);
    print(String::from_utf8_lossy(&script).trim_end())
}
