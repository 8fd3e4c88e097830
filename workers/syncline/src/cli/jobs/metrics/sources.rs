//! Who tells of which training: files of `syncline export` of those that are in one, the engine of all
//! others.

use std::{collections::BTreeSet, time::Duration};

use syncline_scheduler::ids::JobId;
use syncline_workers::client::{Client, ClientError, Patience};

use super::{MetricsArgs, Training};
use crate::cli::{
    CliError, EngineClock, Failure,
    exported::{Export, ExportError},
    jobs::source::Source,
};

pub(super) struct Sources {
    shown: Vec<Shown>,
    /// In the order of the command line.
    files: Vec<Source>,
    engine: Option<Source>,
}

/// A training that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    job: JobId,
    /// Which file tells of it; `None`: the engine.
    file: Option<usize>,
    name: String,
}

impl Sources {
    /// Opens all files, and connects if a job is in none of them. Every file has to be that of a job that is
    /// asked for, where jobs are.
    pub(super) async fn open(args: &MetricsArgs) -> Result<Self, Failure> {
        let (mut files, mut held) = (Vec::new(), Vec::new());
        for path in &args.from {
            let export = Export::open_any(path)?;
            let job = export.job().clone();
            if !args.jobs.is_empty() && !args.jobs.contains(&job) {
                let named: BTreeSet<&str> = args.jobs.iter().map(JobId::as_str).collect();
                let asked = Vec::from_iter(named).join(", ");
                return Err(ExportError::OtherJob { path: path.clone(), held: job, asked }.into());
            }
            let name = path.display().to_string();
            if held.iter().any(|(_, other)| *other == name) {
                let what = format!("{name} is named twice");
                return Err(CliError::Setting { what }.into());
            }
            held.push((job, name));
            files.push(Source::File(export));
        }
        let shown = all_shown(&args.jobs, &held)?;
        if shown.iter().all(|one| one.file.is_some()) {
            return Ok(Self { shown, files, engine: None });
        }
        let (client, about) = Client::connect(&args.connection.find()?).await?;
        // Whoever follows says at once what is wrong, and asks again.
        let client = if args.follow { client.with_patience(Patience::all(Duration::ZERO)) } else { client };
        let engine = Source::Engine { client, clock: EngineClock::of(&about), redis: about.redis };
        Ok(Self { shown, files, engine: Some(engine) })
    }

    /// What the trainings are called that are shown, each otherwise, in their order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.shown.iter().map(|one| one.name.as_str())
    }

    /// The training of one of these names.
    pub(super) async fn load(&self, name: &str) -> Result<Training, Failure> {
        let Shown { job, file, .. } =
            self.shown.iter().find(|one| one.name == name).expect("it is one of the names");
        let source = file.map_or(self.engine.as_ref(), |file| self.files.get(file));
        let source = source.expect("a cluster was connected to where a job is in no file");
        Training::load(source, job, name.to_owned()).await
    }

    /// Whether a training that was loaded so long ago may be there all the same: an engine that has just taken
    /// the lead may have found another Redis, for a while.
    pub(super) async fn may_come_back(&self, failure: &Failure, seen_ago: Duration) -> bool {
        match (&self.engine, failure.error_as::<ClientError>()) {
            (Some(Source::Engine { client, .. }), Some(error)) => client.may_come_back(error, seen_ago).await,
            _ => false,
        }
    }
}

/// What is shown of the jobs that are named, all of the files where none is. `files`: the job that each
/// holds, and what the file is called. A job that is in a file comes from there; named twice, from the engine
/// as well.
fn all_shown(named: &[JobId], files: &[(JobId, String)]) -> Result<Vec<Shown>, CliError> {
    let jobs: Vec<&JobId> =
        if named.is_empty() { files.iter().map(|(job, _)| job).collect() } else { named.iter().collect() };
    let (mut shown, mut seen) = (Vec::new(), BTreeSet::new());
    for job in jobs {
        if !seen.insert(job) {
            continue;
        }
        let times = named.iter().filter(|other| *other == job).count();
        let of_it = || files.iter().enumerate().filter(|(_, (held, _))| held == job);
        let in_files = of_it().count();
        if times > 1 + usize::from(in_files > 0) {
            let what = format!(
                "job {job} is named {times} times: twice is for the one of the cluster beside that of a file (--from FILE)"
            );
            return Err(CliError::Setting { what });
        }
        let is_live = in_files == 0 || times == 2;
        if is_live {
            shown.push(Shown { job: job.clone(), file: None, name: job.to_string() });
        }
        shown.extend(of_it().map(|(file, (_, path))| {
            let name = if is_live || in_files > 1 { format!("{job} ({path})") } else { job.to_string() };
            Shown { job: job.clone(), file: Some(file), name }
        }));
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_from_its_file_and_beside_it_if_it_is_named_twice() {
        #[rustfmt::skip]
        let cases: [(&str, &str, Result<&str, &str>); 9] = [
            // named, in files, names of what is shown
            ("a b",     "",      Ok("a, b")),
            ("b a",     "a",     Ok("b, a=0")),
            ("a a",     "a",     Ok("a, a (0)=0")),
            ("a b a",   "a",     Ok("a, a (0)=0, b")),
            ("",        "a b",   Ok("a=0, b=1")),
            ("",        "a a",   Ok("a (0)=0, a (1)=1")),
            ("a",       "a a",   Ok("a (0)=0, a (1)=1")),
            ("a a",     "",      Err("job a is named 2 times")),
            ("a a a",   "a",     Err("job a is named 3 times")),
        ];
        let words =
            |text: &str| -> Vec<JobId> { text.split_whitespace().map(|id| id.parse().unwrap()).collect() };
        for (named, files, want) in cases {
            let files: Vec<_> = words(files).into_iter().zip((0..).map(|n: u32| n.to_string())).collect();
            let name = |one: &Shown| one.file.map_or(one.name.clone(), |file| format!("{}={file}", one.name));
            let got = all_shown(&words(named), &files);
            let got = got.map(|shown| shown.iter().map(name).collect::<Vec<_>>().join(", "));
            match (got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want),
                (got, want) => {
                    let text = got.unwrap_err().to_string();
                    assert!(text.contains(want.unwrap_err()), "{text}");
                }
            }
        }
    }
}
