//! Who tells of which training: files of `syncline export` of those that are in one, the engine of all others.

use std::{collections::BTreeMap, time::Duration};

use syncline_scheduler::ids::JobId;
use syncline_workers::client::{Client, Patience};

use super::MetricsArgs;
use crate::cli::{
    CliError, EngineClock, Failure,
    exported::{Export, ExportError},
    jobs::source::Source,
};

pub(super) struct Sources {
    files: BTreeMap<JobId, Source>,
    engine: Option<Source>,
}

impl Sources {
    /// Opens all files, and connects if a job is in none of them. Every file has to be that of a job that is asked for.
    pub(super) async fn open(args: &MetricsArgs) -> Result<Self, Failure> {
        let mut files = BTreeMap::new();
        for path in &args.from {
            let export = Export::open_any(path)?;
            let held = export.job().clone();
            if !args.jobs.contains(&held) {
                let asked = args.jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                return Err(ExportError::OtherJob { path: path.clone(), held, asked }.into());
            }
            if files.contains_key(&held) {
                let what = format!("two files are of job {held}, {} is the second", path.display());
                return Err(CliError::Setting { what }.into());
            }
            files.insert(held, Source::File(export));
        }
        if args.jobs.iter().all(|job| files.contains_key(job)) {
            return Ok(Self { files, engine: None });
        }
        let (client, about) = Client::connect(&args.connection.find()?).await?;
        // Who follows says at once what is wrong, and asks again.
        let client = if args.follow { client.with_patience(Patience::all(Duration::ZERO)) } else { client };
        let engine = Source::Engine { client, clock: EngineClock::of(&about), redis: about.redis };
        Ok(Self { files, engine: Some(engine) })
    }

    /// Who tells of a job.
    pub(super) fn of(&self, job: &JobId) -> &Source {
        let source = self.files.get(job).or(self.engine.as_ref());
        source.expect("a cluster was connected to where a job is in no file")
    }
}
