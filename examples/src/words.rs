//! Counts the words of many files: one task per file, and tasks that add up counts, eight at a time.

use std::{collections::BTreeMap, fs};

use syncline::{CallOptions, Function, TaskGraph, TaskHandle};

/// How often each word occurs.
pub type Counts = BTreeMap<String, u64>;

/// The counts of one file, which the worker reads.
pub const COUNT: Function<(String,), Counts> = Function::new("words.count");
/// The sum of counts.
pub const ADD_UP: Function<(Vec<Counts>,), Counts> = Function::new("words.add-up");

/// Counts that one task adds up.
const FAN_IN: usize = 8;

/// What [`COUNT`] does. A file that cannot be read fails the task.
pub fn count(path: String) -> Result<Counts, String> {
    let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
    let mut counts = Counts::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        *counts.entry(word.to_lowercase()).or_default() += 1;
    }
    Ok(counts)
}

/// What [`ADD_UP`] does.
pub fn add_up(all: Vec<Counts>) -> Counts {
    all.into_iter().flatten().fold(Counts::new(), |mut sum, (word, n)| {
        *sum.entry(word).or_default() += n;
        sum
    })
}

/// The graph for these files, and the task that gives the counts of all. A file that cannot be read is tried
/// twice more.
pub fn graph(id: &str, files: &[String]) -> (TaskGraph, TaskHandle<Counts>) {
    let mut graph = TaskGraph::new(id);
    let thrice = CallOptions::new().retries(2);
    let mut counts = graph.map_with(&thrice, COUNT, files.iter().map(|file| (file.clone(),)));
    while counts.len() > FAN_IN {
        counts = counts.chunks(FAN_IN).map(|some| graph.call(ADD_UP, (some,))).collect();
    }
    let all = graph.call(ADD_UP, (&counts,));
    (graph, all)
}
