//! Counts the words of files on the cluster that is running: `words FILE...` prints the most frequent ones.
//!
//! The files are read by the workers, `task-worker`, under the same paths.

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use syncline::Client;
use syncline_examples::words;

const SHOWN: usize = 10;

/// Counts the words of files on the cluster that is running, and prints the most frequent ones.
#[derive(Parser)]
struct Args {
    /// Files, which the workers (`task-worker`) read under the same paths.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let path = |file: PathBuf| {
        let whole = file.canonicalize().with_context(|| file.display().to_string())?;
        Ok(whole.display().to_string())
    };
    let files = Args::parse().files.into_iter().map(path).collect::<anyhow::Result<Vec<String>>>()?;
    let (graph, all) = words::graph("words", &files);

    let client = Client::find()?;
    let run = client.replace_tasks(&graph).await?;
    run.wait(|view| {
        let tasks = view.job.tasks.unwrap_or_default();
        eprintln!("{} of {} tasks", tasks.ended(), tasks.total);
    })
    .await?;
    let counts = run.get(&all).await?;

    let mut ranking: Vec<_> = counts.iter().collect();
    ranking.sort_by_key(|(word, n)| (std::cmp::Reverse(*n), *word));
    ranking.iter().take(SHOWN).for_each(|(word, n)| println!("{n:>8} {word}"));
    Ok(())
}
