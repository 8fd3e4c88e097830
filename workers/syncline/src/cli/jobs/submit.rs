//! `syncline submit`: a job from a file.

use std::{
    env,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Mutex,
    time::{Duration, Instant},
};

use serde_json::json;
use syncline_rpc::{
    EngineFault, InactiveReason,
    status::{EngineStatus, JobPhase, JobStatus},
    threads::lock,
};
use syncline_scheduler::ids::JobId;
use syncline_workers::{
    blocking,
    client::{Client, ClientError, Cluster, FetchError, Patience, Submitted},
    submit::{FieldChange, JobFile, JobGraph, PreparedJob, SubmitError, prepare},
};

use tempfile::TempDir;
use tokio::time::sleep;

use super::{
    preview::{Preview, classes_in_words, mib, separated_in_words, upload_bytes, weights_in_words},
    watch::follow,
};
use crate::cli::{
    CliError, ConnectionArgs, EngineClock, Failure, block_on_until_stopped, block_on_until_told_to_stop,
    log_as_command, one_line, print, print_json, said_while_slow, say, support::native::models,
};

#[derive(Debug, clap::Args)]
pub struct SubmitArgs {
    /// Job file; examples/jobs/digits.toml is one
    #[arg(value_name = "JOB.toml")]
    file: PathBuf,
    /// Id of the job, instead of the one in the file
    #[arg(long, value_name = "NAME")]
    id: Option<String>,
    /// Give a field of the file another value: `settings.batch=64`, `data.split={test_every=4}`, in a file
    /// with nodes also `test.retries=5`. The key begins with a field of the training node, or with a
    /// node; the value is one of TOML. May be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Replace a job of the same id that is over; one that runs is not touched
    #[arg(long)]
    replace: bool,
    /// Submit a new job in any case: if the id is taken, under the first one that is free of ID-2, ID-3, ...
    #[arg(long, conflicts_with = "replace")]
    new: bool,
    /// Check all that submission checks and show what would be submitted; submit nothing. Needs no cluster:
    /// if there is one, it is asked who has the id, and whether its workers could compute the job
    #[arg(long, conflicts_with = "watch")]
    dry_run: bool,
    /// Do not compare the gradients with a difference of the loss first
    #[arg(long)]
    no_check: bool,
    /// Go on from the checkpoint in this file, or from the newest one of this job, with any number of shards
    /// and workers
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
    /// Which it is, where it was fetched from the cluster.
    name: Option<String>,
    /// What is said once it is used then.
    what: Option<String>,
    /// Removed when this is dropped, where it was fetched.
    _folder: Option<TempDir>,
}

impl CheckpointFile {
    /// The file of this name.
    fn named(path: &str) -> Self {
        Self { path: path.into(), name: None, what: None, _folder: None }
    }

    /// The file of this name, or the newest checkpoint of the job of this name.
    async fn find(client: &Client, from: &str) -> Result<Self, Failure> {
        let job = match JobId::from_str(from) {
            // A folder is no checkpoint, whatever it is called.
            Ok(job) if !Path::new(from).exists() || Path::new(from).is_dir() => job,
            _ => return Ok(Self::named(from)),
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
        let name = Some(format!("checkpoint {} of job {job}", saved.number));
        let what = format!("goes on from checkpoint {} of {job}, {} samples", saved.number, saved.samples);
        Ok(Self { path, name, what: Some(what), _folder: Some(folder) })
    }
}

pub(crate) fn run(args: &SubmitArgs) -> Result<(), Failure> {
    log_as_command();
    // What is cheap to refuse comes first, what has to be fetched or derived after the engine has answered.
    let graph = load(args)?;
    if args.dry_run {
        let cluster = args.connection.find_if_any()?;
        return block_on_until_stopped(dry_run(args, graph, cluster));
    }
    let cluster = args.connection.find()?;
    let stage = Mutex::new(Stage::default());
    let last_word = || say(&lock(&stage).in_words(&args.connection.to_repeat()));
    block_on_until_told_to_stop(submit(args, graph, cluster, &stage), last_word)
}

/// How far a submission is, for whoever stops it.
#[derive(Debug, Default)]
enum Stage {
    /// Nothing of the job is stored.
    #[default]
    Preparing,
    /// The engine may have the job; `None`: under an id that is chosen then.
    Sending(Option<JobId>),
    Submitted(JobId),
}

impl Stage {
    /// Whether the job was submitted, and how that is seen; `to_repeat`: the flags that name the cluster.
    fn in_words(&self, to_repeat: &str) -> String {
        match self {
            Self::Preparing => "stopped; nothing was submitted".to_owned(),
            Self::Sending(Some(id)) => format!(
                "stopped while job {id} was sent; `syncline status {id}{to_repeat}` says whether it is there, and to submit it again does no harm"
            ),
            Self::Sending(None) => {
                format!("stopped while the job was sent; `syncline jobs{to_repeat}` says whether it is there")
            }
            Self::Submitted(id) => format!(
                "job {id} was submitted and goes on; `syncline watch {id}{to_repeat}` follows it, `syncline cancel {id}{to_repeat}` ends it"
            ),
        }
    }
}

/// The job as the file and the command line say.
fn load(args: &SubmitArgs) -> Result<JobGraph, Failure> {
    let changes = args.set.iter().map(|text| text.parse()).collect::<Result<Vec<FieldChange>, _>>()?;
    let mut graph = JobFile::load_with(&args.file, &changes)?;
    if let Some(id) = &args.id {
        graph.id.clone_from(id);
    }
    if args.no_check {
        graph.trainings_mut().for_each(|training| training.settings.check = false);
    }
    Ok(graph)
}

/// Derives and checks. The second value says from which checkpoint it goes on, where that was fetched.
async fn prepare_job(
    args: &SubmitArgs,
    mut graph: JobGraph,
    client: Option<&Client>,
) -> Result<(PreparedJob, Option<String>), Failure> {
    let checkpoint = match (&args.resume, client) {
        (Some(from), Some(client)) => Some(CheckpointFile::find(client, from).await?),
        (Some(from), None) => Some(CheckpointFile::named(from)),
        (None, _) => None,
    };
    let resume = checkpoint.as_ref().map(|checkpoint| checkpoint.path.clone());
    graph
        .trainings_mut()
        .for_each(|training| training.settings.resume = resume.clone().or(training.settings.resume.take()));
    let fetched = checkpoint.as_ref().and_then(|checkpoint| checkpoint.name.clone());
    // The name of the file says nothing to anybody, and it is gone by then.
    let named = move |error| match (error, fetched) {
        (SubmitError::Resume { what, .. }, Some(name)) => SubmitError::Resume { path: name.into(), what },
        (error, _) => error,
    };
    let preparing = blocking(move || prepare(models()?, &graph).map_err(|e| Failure::from(named(e))));
    let prepared = said_while_slow("reading the data and checking the model", preparing).await?;
    prepared.warnings.iter().for_each(|warning| say(&format!("warning: {warning}")));
    // The file has been read, and would fill a disk, or memory, for as long as the job is watched.
    Ok((prepared, checkpoint.and_then(|checkpoint| checkpoint.what)))
}

async fn dry_run(args: &SubmitArgs, graph: JobGraph, cluster: Option<Cluster>) -> Result<(), Failure> {
    let client = match &cluster {
        Some(cluster) => match Client::connect(cluster).await {
            Ok((client, _)) => Some(client),
            // A `syncline up` that was killed still names one, and nobody has asked for it.
            Err(error) if args.connection.engine.is_none() => {
                say(&format!("without the cluster that ran here: {error}"));
                None
            }
            Err(error) => return Err(error.into()),
        },
        None => None,
    };
    let (mut prepared, _) = prepare_job(args, graph, client.as_ref()).await?;
    let mut there = None;
    if let Some(client) = &client {
        if args.new {
            prepared.spec.id = client.free_id(&prepared.spec.id).await?;
        }
        there = client.check_prepared(&prepared).await?.map(|job| job.state.word());
    }
    let preview = blocking(move || Preview::measure(&prepared, &models()?, there)).await?;
    if args.json {
        print_json(&preview)?
    } else {
        print(&preview.text())?
    }
    match client {
        Some(_) => say("nothing was submitted"),
        None => say(
            "nothing was submitted; no cluster is known here, so nobody was asked about the id and the workers",
        ),
    }
    Ok(())
}

/// So long an engine is waited for, or its Redis: as long as each takes to be started again. A job may be
/// handed in by a script at night.
const ENGINE_AWAY_LIMIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(200);

/// A client that has as much patience with each call of the submission, too.
async fn connect(cluster: &Cluster) -> Result<(Client, EngineStatus), ClientError> {
    let until = Instant::now() + ENGINE_AWAY_LIMIT;
    loop {
        match Client::connect(cluster).await {
            Err(error) if may_come(&error) && Instant::now() < until => sleep(PAUSE).await,
            connected => {
                let (client, about) = connected?;
                return Ok((client.with_patience(Patience::all(ENGINE_AWAY_LIMIT)), about));
            }
        }
    }
}

/// Whether nobody answers, or no engine leads for want of its Redis or of what it still reads; not an address
/// that names a standby alone.
fn may_come(error: &ClientError) -> bool {
    use InactiveReason::{Loading, Store, StoreLoading};
    let comes = |why: &InactiveReason| matches!(why, Store { .. } | StoreLoading { .. } | Loading(_));
    match error {
        ClientError::Refused(EngineFault::NotActive { why }) => comes(why),
        error => error.is_passing(),
    }
}

async fn submit(
    args: &SubmitArgs,
    graph: JobGraph,
    cluster: Cluster,
    stage: &Mutex<Stage>,
) -> Result<(), Failure> {
    let (client, about) = said_while_slow("waiting for the engine", connect(&cluster)).await?;
    let clock = EngineClock::of(&about);
    let (prepared, goes_on_from) = prepare_job(args, graph, Some(&client)).await?;
    let classes = classes_in_words(&prepared.data.class_names);
    let weights = weights_in_words(&prepared.data.class_weights);
    let positive = weights_in_words(&prepared.data.pos_weight);
    let separated = separated_in_words(prepared.data.separator);
    let sends = format!("sending {} to the shards", mib(upload_bytes(&prepared)));
    *lock(stage) = Stage::Sending((!args.new).then(|| prepared.spec.id.clone()));
    let sending = async {
        match (args.new, args.replace) {
            (true, _) => client.submit_new_prepared(prepared).await,
            (_, true) => client.replace_prepared(prepared).await,
            _ => client.submit_prepared(prepared).await,
        }
    };
    let submitted = said_while_slow(&sends, sending).await?;
    let job = submitted.job_ref();
    let Submitted { id, is_new, .. } = submitted;
    *lock(stage) = Stage::Submitted(id.clone());
    if let Some(what) = goes_on_from.filter(|_| is_new) {
        say(&what);
    }
    if let Some(separated) = separated {
        say(&format!("columns: {separated}"));
    }
    if let Some(classes) = classes {
        say(&format!("classes: {}", one_line(&classes)));
    }
    if let Some(weights) = weights {
        say(&format!("class weights: {weights}"));
    }
    if let Some(positive) = positive {
        say(&format!("pos_weight: {positive}"));
    }
    if args.watch {
        // While nobody answers, whoever follows says so.
        if !is_new && let Ok(there) = client.status(&id).await {
            say(&said_before(&there.job, &args.connection.to_repeat()));
        }
        return follow(&client, clock, job, args.json).await;
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
    say(&said_before(&client.status(&id).await?.job, &args.connection.to_repeat()));
    Ok(())
}

/// That a job was there already.
fn said_before(there: &JobStatus, to_repeat: &str) -> String {
    match there.is_over() {
        true => over_before(there),
        false => {
            format!("the same job was submitted before; `syncline status {}{to_repeat}` shows it", there.id)
        }
    }
}

/// What may be done about a job that was submitted before and is over.
fn over_before(there: &JobStatus) -> String {
    let (id, state) = (&there.id, there.state);
    let choices = match there.checkpoint {
        Some(_) if state != JobPhase::Done => format!(
            "`--new --resume {id}` goes on from its newest checkpoint; --replace deletes its checkpoints and begins anew, --new begins beside it"
        ),
        _ => "--replace does it once more, --new beside it".to_owned(),
    };
    format!("the same job was submitted before and is {}; {choices}", state.word())
}

#[cfg(test)]
mod tests {
    use std::io;

    use syncline_rpc::{CallError, LoadedJobs, hello::HelloError};

    use super::*;
    use crate::cli::support::describe::tests::job;

    #[test]
    fn whoever_submits_a_job_again_is_told_what_would_delete_its_checkpoints() {
        #[rustfmt::skip]
        let cases = [
            ("failed",   "3", "`--new --resume a` goes on from its newest checkpoint; --replace deletes its checkpoints"),
            ("canceled", "3", "`--new --resume a` goes on from its newest checkpoint; --replace deletes its checkpoints"),
            ("failed",   "",  "--replace does it once more, --new beside it"),
            ("done",     "3", "--replace does it once more, --new beside it"),
        ];
        for (state, checkpoint, want) in cases {
            let told = over_before(&job(&[("state", state), ("checkpoint", checkpoint)]));
            let begin = format!("the same job was submitted before and is {state}; {want}");
            assert!(told.starts_with(&begin), "{told}");
        }
    }

    #[test]
    fn whoever_stops_a_submission_is_told_whether_the_job_is_there() {
        let id = || "a".parse::<JobId>().unwrap();
        #[rustfmt::skip]
        let cases = [
            (Stage::Preparing,           "nothing was submitted"),
            (Stage::Sending(Some(id())), "`syncline status a --state-dir s` says whether it is there"),
            (Stage::Sending(None),       "`syncline jobs --state-dir s` says whether it is there"),
            (Stage::Submitted(id()),     "job a was submitted and goes on; `syncline watch a --state-dir s` follows it"),
        ];
        for (stage, want) in cases {
            let told = stage.in_words(" --state-dir s");
            assert!(told.contains(want), "{told}");
        }
    }

    #[test]
    fn an_engine_is_waited_for_that_may_come_and_no_other_table() {
        let unreachable = |source: HelloError| ClientError::Unreachable {
            address: "a:1".into(),
            source: CallError::Hello(source),
        };
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let not_active = |why| ClientError::from(EngineFault::NotActive { why });
        let cause = || "it hangs".to_owned();
        #[rustfmt::skip]
        let cases = [
            ("nobody listens",                unreachable(refused().into()),                                true),
            ("Redis lets no engine lead",     not_active(InactiveReason::Store { cause: cause() }),         true),
            ("Redis reads its file",          not_active(InactiveReason::StoreLoading { loaded_bytes: 1, total_bytes: 2 }), true),
            ("the engine reads its jobs",     not_active(InactiveReason::Loading(LoadedJobs::default())),   true),
            ("Redis hangs",                   EngineFault::Store { cause: cause() }.into(),                 true),
            ("the token is another one",      unreachable(HelloError::Token),                               false),
            ("the release is another one",    unreachable(HelloError::Version { theirs: 1 }),               false),
            ("a standby alone is named",      not_active(InactiveReason::Standby { instance: "b".into(), address: "b:1".into() }), false),
        ];
        for (name, error, want) in cases {
            assert_eq!(may_come(&error), want, "{name}");
        }
    }
}
