//! Counts the words of files on the cluster that is running: `words FILE...` prints the most frequent ones.
//!
//! The files are read by the workers, `task-worker`, under the same paths.

use std::{env, path::Path};

use anyhow::Context;
use syncline::Client;
use syncline_examples::words;

const SHOWN: usize = 10;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let path = |file: String| Ok(Path::new(&file).canonicalize().context(file)?.display().to_string());
    let files = env::args().skip(1).map(path).collect::<anyhow::Result<Vec<String>>>()?;
    anyhow::ensure!(!files.is_empty(), "files, please: words FILE...");
    let (graph, all) = words::graph("words", &files);

    let client = Client::find()?;
    let id = client.replace_tasks(&graph).await?;
    client
        .wait(&id, |view| {
            let tasks = view.job.tasks.unwrap_or_default();
            eprintln!("{} of {} tasks", tasks.ended(), tasks.total);
        })
        .await?;
    let counts = client.get(&id, &all).await?;

    let mut ranking: Vec<_> = counts.iter().collect();
    ranking.sort_by_key(|(word, n)| (std::cmp::Reverse(*n), *word));
    ranking.iter().take(SHOWN).for_each(|(word, n)| println!("{n:>8} {word}"));
    Ok(())
}
