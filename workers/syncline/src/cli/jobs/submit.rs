//! `syncline submit`: a job from a file.

use std::{env, path::PathBuf, str::FromStr};

use serde_json::json;
use syncline_rpc::EngineFault;
use syncline_scheduler::ids::JobId;
use syncline_workers::{
    blocking,
    client::{Client, ClientError, FetchError},
    submit::{JobFile, prepare},
};

use tempfile::TempDir;

use super::watch::follow;
use crate::cli::{
    CliError, ConnectionArgs, EngineClock, Failure, block_on_until_stopped, log_as_command, print,
    print_json, say, support::native::models,
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
    /// Go on from the checkpoint in this file, or from the newest one of this job, with any number of shards and workers
    #[arg(long, value_name = "FILE|JOB")]
    resume: Option<String>,
    /// Follow the job until it is over
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// One JSON object on stdout; with --watch the job when it is over
    #[arg(long)]
    json: bool,
}

/// What a training is to go on from.
struct CheckpointFile {
    path: PathBuf,
    /// What is said once it is used, where it was fetched from the cluster.
    what: Option<String>,
    /// Removed when this is dropped, where it was fetched.
    _folder: Option<TempDir>,
}

impl CheckpointFile {
    /// The file of this name, or the newest checkpoint of the job of this name.
    async fn find(client: &Client, from: &str) -> Result<Self, Failure> {
        let path = PathBuf::from(from);
        let job = match JobId::from_str(from) {
            Ok(job) if !path.exists() => job,
            _ => return Ok(Self { path, what: None, _folder: None }),
        };
        let cannot_use = |source| CliError::Path { path: env::temp_dir(), source };
        let folder = tempfile::tempdir().map_err(cannot_use)?;
        let path = folder.path().join("checkpoint.safetensors");
        let saved = client.save_checkpoint(&job, None, &path).await.map_err(|error| match error {
            FetchError::Engine(ClientError::Refused(EngineFault::UnknownJob { .. })) => {
                let what = format!("--resume {from}: there is neither a file nor a job of this name");
                Failure::from(CliError::Setting { what })
            }
            other => other.into(),
        })?;
        let what = format!("goes on from checkpoint {} of {job}, {} samples", saved.number, saved.samples);
        Ok(Self { path, what: Some(what), _folder: Some(folder) })
    }
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
    block_on_until_stopped(async {
        let (client, about) = Client::connect(&cluster).await?;
        let clock = EngineClock::of(&about);
        let checkpoint = match &args.resume {
            Some(from) => Some(CheckpointFile::find(&client, from).await?),
            None => None,
        };
        let resume = checkpoint.as_ref().map(|checkpoint| checkpoint.path.clone());
        graph.trainings_mut().for_each(|training| {
            training.settings.resume = resume.clone().or(training.settings.resume.take())
        });
        let prepared = blocking(move || prepare(models()?, &graph).map_err(Failure::from)).await?;
        // The file has been read, and would fill a disk, or memory, for as long as the job is watched.
        let goes_on_from = checkpoint.and_then(|checkpoint| checkpoint.what);
        prepared.warnings.iter().for_each(|warning| say(&format!("warning: {warning}")));
        let id = prepared.spec.id.clone();
        let submitted = match args.replace {
            true => client.replace_prepared(prepared).await,
            false => client.submit_prepared(prepared).await,
        };
        let is_new = submitted?.is_new;
        if let Some(what) = goes_on_from.filter(|_| is_new) {
            say(&what);
        }
        if args.watch {
            return follow(&client, clock, &id, args.json).await;
        }
        if args.json {
            let state = client.status(&id).await?.job.state.word();
            return print_json(&json!({ "id": id, "is_new": is_new, "state": state }));
        }
        print(id.as_str())?;
        if is_new {
            say(&format!("submitted; follow it with `syncline watch {id}{}`", args.connection.to_repeat()));
            return Ok(());
        }
        let there = client.status(&id).await?.job.state;
        say(&match there.is_over() {
            true => format!(
                "the same job was submitted before and is {}; --replace does it once more",
                there.word()
            ),
            false => format!(
                "the same job was submitted before; `syncline status {id}{}` shows it",
                args.connection.to_repeat()
            ),
        });
        Ok(())
    })
}
