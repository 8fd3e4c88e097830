//! Reads an export, line by line.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;
use syncline_rpc::{
    StreamCursor, StreamEntry, input,
    status::{Entry, EvaluationPoint, JobEvent, JobView, MetricsPoint, mark_best},
};
use syncline_scheduler::{
    core::{BarrierExplanation, TaskExplanation},
    graph::TaskId,
    ids::{JobId, Superstep},
    tasks::{TaskIndex, TaskQuery, TaskState, TaskView},
};

use super::{
    ExportError,
    line::{End, Header, Line, MARK, MAX_EDGE_BYTES, MAX_LINE_BYTES, VERSION, Version},
};

/// Most events, points or evaluations that are taken from a file: far more than the engine keeps of a job.
const MAX_ENTRIES: usize = 10_000;

/// An export whose first and last line are sound.
#[derive(Debug)]
pub(crate) struct Export {
    path: PathBuf,
    header: Header,
    file: File,
    /// Where the lines behind the first one begin, and where the last one does.
    body: std::ops::Range<u64>,
}

impl Export {
    /// Opens the export of a job, or of whichever it is where none is named. Reads no more than its first and
    /// its last line.
    pub(crate) fn open(path: &Path, job: Option<&JobId>) -> Result<Self, ExportError> {
        let export = Self::open_any(path)?;
        if let Some(job) = job.filter(|job| export.job() != *job) {
            let (held, asked) = (export.header.job, job.to_string());
            return Err(ExportError::OtherJob { path: path.to_owned(), held, asked });
        }
        Ok(export)
    }

    /// The same, whatever job it is of.
    pub(crate) fn open_any(path: &Path) -> Result<Self, ExportError> {
        let unreadable = |source| ExportError::Read { path: path.to_owned(), source };
        let damaged = |what: &str| ExportError::Damaged { path: path.to_owned(), what: what.to_owned() };
        let not_an_export = || ExportError::NotAnExport { path: path.to_owned() };
        let file = input::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => not_an_export(),
            _ => unreadable(error),
        })?;
        let bytes = file.metadata().map_err(unreadable)?.len();
        let mut first = Vec::new();
        BufReader::new((&file).take(MAX_EDGE_BYTES)).read_until(b'\n', &mut first).map_err(unreadable)?;
        if !first.starts_with(MARK.as_bytes()) {
            return Err(not_an_export());
        }
        if first.last() != Some(&b'\n') {
            return Err(damaged("its first line has no end"));
        }
        let Version { syncline_export: theirs } =
            serde_json::from_slice(&first).map_err(|_| not_an_export())?;
        if theirs != VERSION {
            return Err(ExportError::Version { path: path.to_owned(), theirs });
        }
        let header: Header =
            serde_json::from_slice(&first).map_err(|cause| damaged(&format!("its first line: {cause}")))?;
        let last = last_line(&file, bytes).map_err(unreadable)?;
        let Some((at, End { bytes: said })) = last else { return Err(damaged("its last line is missing")) };
        if at != said {
            return Err(damaged(&format!("{at} bytes stand before its last line, and {said} were written")));
        }
        Ok(Self { path: path.to_owned(), header, file, body: first.len() as u64..at })
    }

    /// The job that it is of.
    pub(crate) fn job(&self) -> &JobId {
        &self.header.job
    }

    /// When the engine was asked.
    pub(crate) fn exported_ms(&self) -> u64 {
        self.header.exported_ms
    }

    /// The job with its workers.
    pub(crate) fn status(&self) -> Result<JobView, ExportError> {
        match self.lines()?.next().transpose()? {
            Some(Line::Job(record)) => {
                JobView::read(&record).map_err(|cause| self.damaged(cause.to_string()))
            }
            _ => Err(self.damaged("the job does not come first".to_owned())),
        }
    }

    /// What happened to the job after an event of it, oldest first.
    pub(crate) fn events(&self, after: Option<StreamCursor>) -> Result<Vec<Entry<JobEvent>>, ExportError> {
        let event = |line| if let Line::Event(entry) = line { Some(entry) } else { None };
        let mut events = self.entries(event)?;
        events.retain(|entry| after.is_none_or(|after| entry.cursor > after));
        Ok(events)
    }

    /// The loss curve of a training, oldest first.
    pub(crate) fn metrics(&self) -> Result<Vec<Entry<MetricsPoint>>, ExportError> {
        self.entries(|line| if let Line::Point(entry) = line { Some(entry) } else { None })
    }

    /// Its evaluations, oldest first, the best one always among them.
    pub(crate) fn evaluations(&self) -> Result<Vec<Entry<EvaluationPoint>>, ExportError> {
        let mut points =
            self.entries(|line| if let Line::Evaluation(entry) = line { Some(entry) } else { None })?;
        mark_best(&mut points, &self.status()?.job, true);
        Ok(points)
    }

    /// Entries of one kind, which stand in front of all that a job has many of.
    fn entries<T: DeserializeOwned>(
        &self,
        kind: impl Fn(Line) -> Option<StreamEntry>,
    ) -> Result<Vec<Entry<T>>, ExportError> {
        let mut entries = Vec::new();
        for line in self.lines()?.skip(1) {
            let line = line?;
            if !matches!(line, Line::Event(_) | Line::Point(_) | Line::Evaluation(_)) {
                break;
            }
            let Some(entry) = kind(line) else { continue };
            if entries.len() == MAX_ENTRIES {
                return Err(self.damaged(format!("it has more than {MAX_ENTRIES} entries of a kind")));
            }
            // As for those that the engine tells, one that somebody else has added does not hide the rest.
            entries.extend(Entry::read(&entry).ok());
        }
        Ok(entries)
    }

    /// The general tasks that a query asks for, in their order.
    pub(crate) fn tasks(&self, query: &TaskQuery) -> Result<Vec<TaskView>, ExportError> {
        let wanted = |view: &TaskView| {
            view.task >= query.first
                && query.state.is_none_or(|state| view.state == state)
                && (query.name.is_none() || view.name == query.name)
        };
        let tasks = self.lines()?.filter_map(|line| match line {
            Ok(Line::Task(view)) => wanted(&view).then_some(Ok(view)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        });
        tasks.take(query.limit as usize).collect()
    }

    /// The states of some general tasks.
    pub(crate) fn states_of(
        &self,
        tasks: &[TaskIndex],
    ) -> Result<BTreeMap<TaskIndex, TaskState>, ExportError> {
        let mut states = BTreeMap::new();
        for line in self.lines()? {
            if states.len() == tasks.len() {
                break;
            }
            if let Line::Task(view) = line?
                && tasks.contains(&view.task)
            {
                states.insert(view.task, view.state);
            }
        }
        Ok(states)
    }

    /// The explanation of a barrier of a training.
    pub(crate) fn explain_barrier(&self, barrier: Superstep) -> Result<BarrierExplanation, ExportError> {
        let (mut first, mut last) = (None, None);
        for line in self.lines()? {
            match line? {
                Line::Barrier(kept) if kept.barrier == barrier => return Ok(kept),
                Line::Barrier(kept) => {
                    first.get_or_insert(kept.barrier);
                    last = Some(kept.barrier);
                }
                _ => {}
            }
        }
        let there = first.zip(last).map(|(first, last)| format!(" (barriers {first} to {last} are)"));
        Err(self.lacks(format!("barrier {barrier}{}", there.unwrap_or_default())))
    }

    /// The explanation of a task of a training.
    pub(crate) fn explain_task(&self, task: &TaskId) -> Result<TaskExplanation, ExportError> {
        for line in self.lines()? {
            match line? {
                Line::Node(kept) if kept.task == *task => return Ok(kept),
                _ => {}
            }
        }
        Err(self.lacks(format!("task {task}")))
    }

    /// What is said of something that is not in it.
    pub(crate) fn lacks(&self, what: String) -> ExportError {
        ExportError::NotInIt { path: self.path.clone(), job: self.header.job.clone(), what }
    }

    fn damaged(&self, what: String) -> ExportError {
        ExportError::Damaged { path: self.path.clone(), what }
    }

    /// The lines between the first and the last.
    fn lines(&self) -> Result<Lines<'_>, ExportError> {
        (&self.file).seek(SeekFrom::Start(self.body.start)).map_err(|source| self.unreadable(source))?;
        Ok(Lines { of: self, from: BufReader::new(&self.file), at: self.body.start })
    }

    fn unreadable(&self, source: io::Error) -> ExportError {
        ExportError::Read { path: self.path.clone(), source }
    }
}

/// Where the last line begins, and what it says; `None` if it is not the last one of an export.
fn last_line(mut file: &File, bytes: u64) -> io::Result<Option<(u64, End)>> {
    let from = bytes.saturating_sub(MAX_EDGE_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    file.take(MAX_EDGE_BYTES).read_to_end(&mut tail)?;
    let Some(lines) = tail.strip_suffix(b"\n") else { return Ok(None) };
    let begin = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    Ok(match parse(&lines[begin..]) {
        Ok(Line::End(end)) => Some((from + begin as u64, end)),
        _ => None,
    })
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(line)
}

/// Lines as they are read; nothing comes behind an error.
struct Lines<'a> {
    of: &'a Export,
    from: BufReader<&'a File>,
    at: u64,
}

impl Lines<'_> {
    fn read(&mut self) -> Result<Line, ExportError> {
        let left = self.of.body.end - self.at;
        let mut line = Vec::new();
        let limit = left.min(MAX_LINE_BYTES);
        let read = (&mut self.from).take(limit).read_until(b'\n', &mut line);
        read.map_err(|source| self.of.unreadable(source))?;
        let at = self.at;
        self.at += line.len() as u64;
        if line.last() != Some(&b'\n') {
            let what = format!("the line at byte {at} has no end, or more than {MAX_LINE_BYTES} bytes");
            return Err(self.of.damaged(what));
        }
        parse(&line).map_err(|cause| self.of.damaged(format!("the line at byte {at}: {cause}")))
    }
}

impl Iterator for Lines<'_> {
    type Item = Result<Line, ExportError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.of.body.end {
            return None;
        }
        let line = self.read();
        if line.is_err() {
            self.at = self.of.body.end;
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use syncline_rpc::JobRecord;
    use tempfile::TempDir;

    use super::*;
    use crate::cli::exported::Writer;

    fn view(task: u32) -> TaskView {
        TaskView {
            task: TaskIndex(task),
            name: None,
            function: "add".parse().unwrap(),
            state: TaskState::Ready,
            attempts: 0,
            worker: None,
            running_since_ms: None,
            progress: None,
            run_us: None,
            ended_ms: None,
            inputs: Vec::new(),
            inputs_total: 0,
            value: Some("7".to_owned().into()),
            value_bytes: Some(1),
            code: None,
            reason: "no worker is free".into(),
        }
    }

    fn id() -> JobId {
        "a".parse().unwrap()
    }

    /// A job of two tasks whose loss is not a number.
    fn written(dir: &TempDir) -> PathBuf {
        let path = dir.path().join("a.export");
        let mut writer = Writer::create(&path, false, &id(), 7_000).unwrap();
        let fields = [("id", "a"), ("state", "running"), ("loss", "NaN"), ("tasks_total", "2")];
        let job = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        writer.line(&Line::Job(JobRecord { job, ..JobRecord::default() })).unwrap();
        (0..2).for_each(|task| writer.line(&Line::Task(view(task))).unwrap());
        let bytes = writer.finish().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), bytes);
        path
    }

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let export = Export::open(&written(&dir), Some(&id())).unwrap();
        assert_eq!(export.exported_ms(), 7_000);
        assert_eq!(Export::open(&export.path, None).unwrap().job(), &id(), "whatever job it is of");
        assert!(export.status().unwrap().job.loss.unwrap().is_nan(), "JSON has no form for it");
        assert_eq!(export.tasks(&TaskQuery::default()).unwrap(), [view(0), view(1)]);
        let second = TaskQuery { first: TaskIndex(1), limit: 1, ..TaskQuery::default() };
        assert_eq!(export.tasks(&second).unwrap(), [view(1)]);
        assert_eq!(export.states_of(&[TaskIndex(1)]).unwrap(), [(TaskIndex(1), TaskState::Ready)].into());
        assert!(export.events(None).unwrap().is_empty());
    }

    #[test]
    fn a_file_that_was_cut_anywhere_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(&dir);
        let whole = fs::read(&path).unwrap();
        for kept in 0..whole.len() {
            fs::write(&path, &whole[..kept]).unwrap();
            let error = Export::open(&path, Some(&id())).unwrap_err();
            let begins = kept >= MARK.len();
            let told = matches!(
                (&error, begins),
                (ExportError::NotAnExport { .. }, false) | (ExportError::Damaged { .. }, true)
            );
            assert!(told, "{kept} of {} bytes: {error}", whole.len());
        }
        let twice = [&whole[..], &whole[..]].concat();
        let without_middle = [&whole[..whole.len() / 2], &whole[whole.len() / 2 + 1..]].concat();
        for other in [twice, without_middle] {
            fs::write(&path, other).unwrap();
            assert!(matches!(Export::open(&path, Some(&id())), Err(ExportError::Damaged { .. })));
        }
    }

    #[test]
    fn a_line_that_was_changed_is_refused_where_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(&dir);
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, whole.replace(r#"{"task":{"task":1"#, r#"{"task":{"task":x"#)).unwrap();
        let export = Export::open(&path, Some(&id())).unwrap();
        assert!(export.status().is_ok());
        let error = export.tasks(&TaskQuery::default()).unwrap_err();
        assert!(matches!(error, ExportError::Damaged { .. }), "{error}");
    }

    #[test]
    fn what_is_no_export_of_this_job_and_version_is_refused_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(&dir);
        assert!(matches!(
            Export::open(&path, Some(&"b".parse().unwrap())),
            Err(ExportError::OtherJob { .. })
        ));
        assert!(matches!(Export::open(dir.path(), Some(&id())), Err(ExportError::NotAnExport { .. })));
        assert!(matches!(Export::open(&dir.path().join("b"), Some(&id())), Err(ExportError::Read { .. })));
        // A later version may say something else behind its number.
        fs::write(&path, "{\"syncline_export\":4,\"of\":\"a\"}\n").unwrap();
        assert!(matches!(Export::open(&path, Some(&id())), Err(ExportError::Version { theirs: 4, .. })));
        fs::write(&path, [MARK.as_bytes(), &[b'1'; 5_000]].concat()).unwrap();
        assert!(matches!(Export::open(&path, Some(&id())), Err(ExportError::Damaged { .. })));
        fs::write(&path, [0; 5_000]).unwrap();
        assert!(matches!(Export::open(&path, Some(&id())), Err(ExportError::NotAnExport { .. })));
    }

    #[test]
    fn a_file_that_is_there_is_replaced_only_when_it_is_meant() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(&dir);
        let is_taken =
            |refused: Option<crate::cli::Failure>| refused.unwrap().to_string().starts_with("[E536]");
        assert!(is_taken(Writer::create(&path, false, &id(), 0).err()));
        let other = dir.path().join("other");
        let writer = Writer::create(&other, false, &id(), 0).unwrap();
        fs::write(&other, "came meanwhile").unwrap();
        assert!(is_taken(writer.finish().err()));
        assert_eq!(fs::read_to_string(&other).unwrap(), "came meanwhile");
        Writer::create(&path, true, &id(), 9_000).unwrap().finish().unwrap();
        assert_eq!(Export::open(&path, Some(&id())).unwrap().exported_ms(), 9_000);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing unfinished is left");
    }
}
