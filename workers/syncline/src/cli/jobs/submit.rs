//! `syncline submit`: a job from a file.

use std::path::PathBuf;

use serde_json::json;
use syncline_workers::{
    blocking,
    client::Client,
    submit::{JobFile, prepare},
};

use super::watch::follow;
use crate::cli::{
    ConnectionArgs, Failure, block_on, log_as_command, print, print_json, say, support::native::models,
};

#[derive(Debug, clap::Args)]
pub struct SubmitArgs {
    /// Job file; examples/jobs/digits.toml is one
    #[arg(value_name = "JOB.toml")]
    file: PathBuf,
    /// Id of the job, instead of the one in the file
    #[arg(long, value_name = "NAME")]
    id: Option<String>,
    /// Replace a job of the same id that is over; one that runs is not touched
    #[arg(long)]
    replace: bool,
    /// Do not compare the gradients with a difference of the loss first
    #[arg(long)]
    no_check: bool,
    /// Follow the job until it is over
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// One JSON object on stdout; with --watch the job when it is over
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &SubmitArgs) -> Result<(), Failure> {
    log_as_command();
    // What is cheap to refuse comes first, what has to be fetched or derived after the engine has answered.
    let mut graph = JobFile::load(&args.file)?;
    if let Some(id) = &args.id {
        graph.id.clone_from(id);
    }
    if args.no_check {
        graph.trainings_mut().for_each(|training| training.settings.check = false);
    }
    let cluster = args.connection.find()?;
    block_on(async {
        let (client, _) = Client::connect(&cluster).await?;
        let prepared = blocking(move || prepare(models()?, &graph).map_err(Failure::from)).await?;
        prepared.warnings.iter().for_each(|warning| say(&format!("warning: {warning}")));
        let id = prepared.spec.id.clone();
        let submitted = match args.replace {
            true => client.replace_prepared(prepared).await,
            false => client.submit_prepared(prepared).await,
        };
        let is_new = submitted?.is_new;
        if args.watch {
            return follow(&client, &id, args.json).await;
        }
        if args.json {
            return print_json(&json!({ "id": id, "is_new": is_new }));
        }
        print(id.as_str())?;
        if is_new {
            say(&format!("submitted; follow it with `syncline watch {id}`"));
            return Ok(());
        }
        let there = client.status(&id).await?.job.state;
        say(&match there.is_over() {
            true => format!(
                "the same job was submitted before and is {}; --replace does it once more",
                there.word()
            ),
            false => format!("the same job was submitted before; `syncline status {id}` shows it"),
        });
        Ok(())
    })
}
