//! `syncline checkpoint --from`: checkpoints on the disks of shards, where no cluster knows them any more.

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::Serialize;
use serde_json::json;
use syncline_ps::checkpoint_parts::{
    FoundCheckpoint, FoundCheckpoints, ShardParts, WriteFault, find_checkpoints,
};
use syncline_scheduler::ids::JobId;

use super::events::moment;
use crate::cli::{Exit, Failure, print, print_json, say, table, whole_file::WholeFile};

/// Why no weights can be had from what lies on disks.
#[derive(Debug, thiserror::Error)]
enum PartsError {
    #[error("[E643] there is no {what} in {folders}")]
    NoneThere { what: String, folders: String },
    #[error("[E644] checkpoint {number} of job {job} cannot be used: {why}")]
    Unusable { job: JobId, number: u64, why: String },
    #[error("[E645] cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl From<PartsError> for Failure {
    fn from(error: PartsError) -> Self {
        let (exit, hint) = match &error {
            PartsError::NoneThere { .. } => (
                Exit::JobFailed,
                "name the state directory of each shard, or its folder `checkpoints`; without JOB all that is there is listed",
            ),
            PartsError::Unusable { .. } => (
                Exit::JobFailed,
                "name the folders of all shards, and of standbys if there were any; --number takes an older one, and without FILE all are listed",
            ),
            PartsError::Read { .. } => {
                (Exit::Usage, "name a folder that is there and that you may read; shards write as their user")
            }
        };
        Self::new(exit, error, hint)
    }
}

/// What is searched, and for what.
pub(super) struct Search<'a> {
    pub folders: &'a [PathBuf],
    pub job: Option<&'a JobId>,
    /// The newest that can be used without one.
    pub number: Option<u64>,
}

/// What lies in the folders.
#[derive(Debug, Serialize)]
struct Parts {
    checkpoints: Vec<Listed>,
    unusable: Vec<Unread>,
}

/// A damaged part, or what cannot be read.
#[derive(Debug, Serialize)]
struct Unread {
    path: PathBuf,
    cause: String,
}

fn epoch_ms(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// One checkpoint of the list.
#[derive(Debug, Serialize)]
struct Listed {
    job: String,
    /// The folder that the shards have for its submission.
    folder: String,
    number: u64,
    /// When its newest part was written.
    written_ms: u64,
    /// Numbers in it.
    parameters: u64,
    /// Over how many shards it was cut; `None` where its parts do not say.
    shards: Option<u32>,
    /// Shards whose part is not there.
    missing: Vec<u32>,
    /// Why its weights cannot be had; `None` if they can.
    problem: Option<String>,
    /// Its parts.
    files: Vec<PathBuf>,
}

impl Listed {
    fn of(found: &FoundCheckpoint) -> Self {
        let shards = found.shards();
        Self {
            job: found.job.to_string(),
            folder: found.folder_name(),
            number: found.number,
            written_ms: epoch_ms(found.written_at),
            parameters: found.elements(),
            shards: shards.as_ref().map(|ShardParts { count, .. }| *count),
            missing: shards.map(|ShardParts { missing, .. }| missing).unwrap_or_default(),
            problem: found.fault(),
            files: found.files().map(Path::to_owned).collect(),
        }
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.job.clone(),
            self.folder.clone(),
            self.number.to_string(),
            moment(self.written_ms),
            self.shards.map_or_else(|| "?".to_owned(), |shards| shards.to_string()),
            self.problem.clone().unwrap_or_else(|| "complete".to_owned()),
        ]
    }
}

/// Warns where there are other jobs of the name than the one that is taken, each with its newest date.
fn say_of_others(taken: &FoundCheckpoint, all: &[FoundCheckpoint]) {
    let of = |found: &FoundCheckpoint| (found.folder_name(), moment(epoch_ms(found.written_at)));
    let (folder, date) = of(taken);
    let of_name = all.iter().filter(|other| other.job == taken.job).map(of);
    let others: BTreeMap<String, String> = of_name.filter(|(other, _)| *other != folder).collect();
    if others.is_empty() {
        return;
    }
    let others: Vec<_> = others.iter().map(|(folder, date)| format!("{folder} of {date}")).collect();
    say(&format!(
        "warning: there are several jobs of this name: {folder} of {date} is taken, by the dates of its files; name the folder itself for {}",
        others.join(", ")
    ));
}

impl Search<'_> {
    /// Lists what is there.
    pub(super) fn list(&self, as_json: bool) -> Result<(), Failure> {
        let FoundCheckpoints { mut checkpoints, unusable } = self.find()?;
        checkpoints.retain(|found| self.is_asked_for(found));
        if checkpoints.is_empty() {
            return Err(self.none_there().into());
        }
        let listed: Vec<Listed> = checkpoints.iter().map(Listed::of).collect();
        if as_json {
            let unusable =
                unusable.into_iter().map(|(path, cause)| Unread { path, cause: cause.to_string() });
            return print_json(&Parts { checkpoints: listed, unusable: unusable.collect() });
        }
        let rows: Vec<_> = listed.iter().map(Listed::row).collect();
        print(&table(&["job", "folder", ">number", "written", ">shards", "state"], &rows))
    }

    /// Writes the weights of one as safetensors.
    pub(super) fn write(&self, file: &Path, replaces: bool, as_json: bool) -> Result<(), Failure> {
        let checkpoints = self.find()?.checkpoints;
        let mut faults = Vec::new();
        let usable = checkpoints.iter().rev().filter(|found| self.is_asked_for(found)).find(|found| {
            let unusable = |why| PartsError::Unusable { job: found.job.clone(), number: found.number, why };
            let fault = found.fault().map(unusable);
            let is_usable = fault.is_none();
            faults.extend(fault);
            is_usable
        });
        let Some(found) = usable else {
            return Err(faults.into_iter().next().unwrap_or_else(|| self.none_there()).into());
        };
        faults.iter().for_each(|newer| say(&format!("warning: passed over: {newer}")));
        say_of_others(found, &checkpoints);
        let mut out = WholeFile::create(file, replaces, Permissions::from_mode(0o600))?;
        found.write_weights(out.writer()).map_err(|fault| match fault {
            WriteFault::Part(path, source) => Failure::from(PartsError::Read { path, source }),
            WriteFault::Out(source) => out.failed(source).into(),
        })?;
        let file = out.finish()?;
        let (job, number, parameters) = (&found.job, found.number, found.elements());
        let file = file.display();
        if as_json {
            return print_json(&json!({
                "job": job, "checkpoint": number, "parameters": parameters, "file": file.to_string(),
            }));
        }
        print(&format!(
            "the weights of checkpoint {number} of {job}, {parameters} numbers, in {file}\n\
             a job begins with them: weights = \"{file}\" below [model.forward]; optimizer and place in the data begin anew"
        ))
    }

    fn is_asked_for(&self, found: &FoundCheckpoint) -> bool {
        self.number.is_none_or(|number| found.number == number)
    }

    /// What is there of the job; what cannot be used is said.
    fn find(&self) -> Result<FoundCheckpoints, PartsError> {
        for folder in self.folders {
            // A folder that was spelt wrong must not look like one in which nothing lies.
            fs::read_dir(folder).map_err(|source| PartsError::Read { path: folder.clone(), source })?;
        }
        let found = find_checkpoints(self.folders, self.job);
        for (path, cause) in &found.unusable {
            say(&format!("warning: {} cannot be used: {cause}", path.display()));
        }
        Ok(found)
    }

    fn none_there(&self) -> PartsError {
        let number = self.number.map(|number| format!(" {number}")).unwrap_or_default();
        let of_job = self.job.map(|job| format!(" of job {job}")).unwrap_or_default();
        let folders: Vec<String> = self.folders.iter().map(|dir| dir.display().to_string()).collect();
        PartsError::NoneThere { what: format!("checkpoint{number}{of_job}"), folders: folders.join(", ") }
    }
}
