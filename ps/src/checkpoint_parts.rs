//! Checkpoints as shards left them on their disks, for whoever has nothing else: no cluster is asked, and the
//! Redis that knew them may be lost.
//!
//! A part says of which job it is, its number, and where its numbers lie among the parameters. How far the
//! training was stands in Redis alone: what is made of parts is weights, with which another training begins.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufReader, Write},
    path::{Path, PathBuf},
    time::SystemTime,
};

use syncline_scheduler::{
    ids::{Generation, JobId, RunId},
    spec::{ElementRange, Layout},
};

use crate::{
    server::{folder_name, number_of_file, read_checked},
    shard::CheckpointPart,
    tensor_header::weights_header,
};

/// More shards than clusters have: how many there were is found by trying.
const MOST_SHARDS: u32 = 1_024;

/// What lies in some folders.
#[derive(Debug, Default)]
pub struct FoundCheckpoints {
    /// By job, those of its newest submission last, and by number.
    pub checkpoints: Vec<FoundCheckpoint>,
    /// Parts that are damaged, and what cannot be read, each with the reason.
    pub unusable: Vec<(PathBuf, io::Error)>,
}

/// One checkpoint, or what there is of it.
#[derive(Debug)]
pub struct FoundCheckpoint {
    /// The job whose parameters it has.
    pub job: JobId,
    /// Its number among those of the job.
    pub number: u64,
    /// When its newest part was written.
    pub written_at: SystemTime,
    nonce: u32,
    layout: Layout,
    elements: u64,
    /// By first and last element, each once: two processes of a shard have the same.
    parts: BTreeMap<(u64, u64), PathBuf>,
    /// One that says to belong to it, and cannot.
    misfit: Option<PathBuf>,
}

/// Over how many shards a checkpoint was cut, and which of their parts are not here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardParts {
    /// All shards.
    pub count: u32,
    /// Those whose part is missing.
    pub missing: Vec<u32>,
}

/// Why weights could not be written.
#[derive(Debug)]
pub enum WriteFault {
    /// This part cannot be read any more.
    Part(PathBuf, io::Error),
    /// What is written to takes no more.
    Out(io::Error),
}

/// Looks for the parts of one job, or of all, in folders and all below them: state directories of shards,
/// that of `up`, or copies of them. Cost: reads each of these parts.
pub fn find_checkpoints(folders: &[PathBuf], job: Option<&JobId>) -> FoundCheckpoints {
    let mut search = Search { job, found: BTreeMap::new(), unusable: Vec::new() };
    folders.iter().for_each(|folder| search.look_into(folder));
    let mut checkpoints: Vec<_> = search.found.into_values().collect();
    // Nonces are random: of two submissions the newer one has written last.
    let mut last_written: BTreeMap<(JobId, u32), SystemTime> = BTreeMap::new();
    for found in &checkpoints {
        let last = last_written.entry((found.job.clone(), found.nonce)).or_insert(found.written_at);
        *last = found.written_at.max(*last);
    }
    checkpoints.sort_by_cached_key(|found| {
        let submission = (found.job.clone(), found.nonce);
        (found.job.clone(), last_written[&submission], submission, found.number)
    });
    FoundCheckpoints { checkpoints, unusable: search.unusable }
}

struct Search<'a> {
    job: Option<&'a JobId>,
    /// By job, submission and number.
    found: BTreeMap<(JobId, u32, u64), FoundCheckpoint>,
    unusable: Vec<(PathBuf, io::Error)>,
}

impl Search<'_> {
    fn look_into(&mut self, folder: &Path) {
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.unwrap_or_else(|cause| {
            self.unusable.push((folder.to_owned(), cause));
            Vec::new()
        });
        for entry in entries {
            let path = entry.path();
            match entry.file_type() {
                // What a link leads to may lie above.
                Ok(kind) if kind.is_dir() => self.look_into(&path),
                Ok(kind) if kind.is_file() && number_of_file(&path).is_some() => {
                    if let Err(cause) = self.add(&path) {
                        self.unusable.push((path, cause));
                    }
                }
                _ => {}
            }
        }
    }

    fn add(&mut self, path: &Path) -> io::Result<()> {
        let part = CheckpointPart::read(BufReader::new(File::open(path)?))?;
        if self.job.is_some_and(|job| job != part.job()) {
            return Ok(());
        }
        read_checked(path, |from| io::copy(from, &mut io::sink()))?;
        let written_at = fs::metadata(path)?.modified()?;
        let (job, nonce, number) = (part.job().clone(), part.nonce(), part.number());
        let found = self.found.entry((job.clone(), nonce, number)).or_insert_with(|| FoundCheckpoint {
            job,
            nonce,
            number,
            written_at,
            layout: part.layout().clone(),
            elements: part.layout().elements().unwrap_or(0),
            parts: BTreeMap::new(),
            misfit: None,
        });
        let ElementRange { start, end } = part.range();
        let overlaps = |&(from, to): &(u64, u64)| (from, to) != (start, end) && from < end && start < to;
        if found.layout != *part.layout() || found.parts.keys().any(overlaps) {
            found.misfit = Some(path.to_owned());
            return Ok(());
        }
        found.written_at = found.written_at.max(written_at);
        found.parts.entry((start, end)).or_insert_with(|| path.to_owned());
        Ok(())
    }
}

impl FoundCheckpoint {
    /// The folder that shards have for it: another submission of the job has another one.
    pub fn folder_name(&self) -> String {
        let generation = Generation::first(self.nonce);
        folder_name(&RunId { job: self.job.clone(), generation })
    }

    /// How many numbers its weights are.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// The files that make it up, in the order of the parameters.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.parts.values().map(PathBuf::as_path)
    }

    /// Why its weights cannot be had, in words; `None` if they can.
    pub fn fault(&self) -> Option<String> {
        if let Some(path) = &self.misfit {
            return Some(format!(
                "{} does not fit its other parts: it is of another model, or of another number of shards",
                path.display()
            ));
        }
        let mut at = 0;
        let follow_each_other =
            self.parts.keys().all(|&(start, end)| start == std::mem::replace(&mut at, end));
        if follow_each_other && at == self.elements {
            return None;
        }
        Some(match self.shards() {
            Some(ShardParts { count, missing }) => {
                let missing: Vec<String> = missing.iter().map(|index| format!("{index}/{count}")).collect();
                format!("no part of shard {} is here", missing.join(", "))
            }
            None => "its parts are not those of any number of shards".to_owned(),
        })
    }

    /// Over how many shards it was cut: as few as have such parts.
    pub fn shards(&self) -> Option<ShardParts> {
        (1..=MOST_SHARDS).find_map(|count| {
            let ranges: Vec<_> = (0..count)
                .map(|index| ElementRange::of_shard(self.elements, index, count))
                .map(|range| (range.start, range.end))
                .collect();
            let is_here = |range: &(u64, u64)| range.0 == range.1 || self.parts.contains_key(range);
            let missing = || (0..).zip(&ranges).filter(|(_, range)| !is_here(range)).map(|(index, _)| index);
            let fits = self.parts.keys().all(|part| ranges.contains(part));
            fits.then(|| ShardParts { count, missing: missing().collect() })
        })
    }

    /// Writes its weights as safetensors, each parameter under its name, from parts that make up the whole.
    pub fn write_weights(&self, out: &mut impl Write) -> Result<(), WriteFault> {
        let about = [("job", self.job.to_string()), ("checkpoint", self.number.to_string())];
        let header = weights_header(&about.into(), &self.layout).map_err(io::Error::other);
        header.and_then(|header| out.write_all(&header)).map_err(WriteFault::Out)?;
        for path in self.parts.values() {
            let mut out_failed = false;
            let copied = read_checked(path, |from| {
                let mut part = CheckpointPart::read(from)?;
                while let Some(chunk) = part.next_chunk()? {
                    let written = out.write_all(bytemuck::cast_slice(chunk.values()));
                    written.inspect_err(|_| out_failed = true)?;
                }
                Ok(())
            });
            copied.map_err(|cause| match out_failed {
                true => WriteFault::Out(cause),
                false => WriteFault::Part(path.clone(), cause),
            })?;
        }
        out.flush().map_err(WriteFault::Out)
    }
}
