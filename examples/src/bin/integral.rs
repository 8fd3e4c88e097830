//! Integrates the square root on the cluster that is running: `integral FROM TO TOLERANCE`.

use clap::Parser;
use syncline::Client;
use syncline_examples::integral;

/// Integrates the square root on the cluster that is running, whose workers (`task-worker`) halve the
/// interval until it is exact enough.
#[derive(Parser)]
struct Args {
    /// Where the interval begins.
    #[arg(allow_negative_numbers = true)]
    from: f64,
    /// Where it ends.
    #[arg(allow_negative_numbers = true)]
    to: f64,
    /// How large the error may be, such as 1e-9.
    tolerance: f64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Args { from, to, tolerance } = Args::parse();
    let (graph, integral) = integral::graph("integral", from, to, tolerance);

    let client = Client::find()?;
    let run = client.replace_tasks(&graph).await?;
    let value = run.get(&integral).await?;
    let tasks = run.wait(|_| {}).await?.job.tasks.unwrap_or_default().total;
    println!("{value:.9} by {tasks} tasks");
    Ok(())
}
