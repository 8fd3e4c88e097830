//! Looks for the best learning rate for the digits, on the cluster that is running: `sweep RATE...`.
//!
//! `syncline up` trains, and `task-worker` has the functions that decide which trainings go on.

use clap::Parser;
use syncline::{Client, OnNan, TaskState, Training};
use syncline_examples::{Run, digits, sweep};

/// Looks for the best learning rate for the digits, on the cluster that is running and with the functions of
/// a `task-worker`.
#[derive(Parser)]
struct Args {
    /// Learning rates to try, such as 0.001 0.01 0.1 1.
    #[arg(required = true, value_name = "RATE")]
    rates: Vec<f32>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Args { rates } = Args::parse();

    let client = Client::find()?;
    let run = Run { id: "sweep", policy: "bsp".parse()?, epochs: 1, seed: 0, workers: 1 };
    let mut job = digits::job(&run);
    let settings = |training: &mut Training| {
        // Each takes one worker, so that as many train at the same time as there are workers.
        training.settings.max_workers = Some(1);
        // A rate that is far too high ends last, and fails nobody.
        training.settings.on_nan = OnNan::Skip;
    };
    job.trainings_mut().for_each(settings);
    let training = client.prepare_training(&job).await?;

    let (graph, best) = sweep::graph("sweep", &training, &rates);
    let run = client.replace_tasks(&graph).await?;
    let mut told = String::new();
    run.wait(|view| {
        let tasks = view.job.tasks.unwrap_or_default();
        let waits = view.job.waiting_for.iter().map(|what| format!(", waits for {what}")).collect::<String>();
        let training = tasks.of(TaskState::Training);
        let line = format!("{} of {} tasks, {training} train{waits}", tasks.ended(), tasks.total);
        if line != told {
            eprintln!("{line}");
            told = line;
        }
    })
    .await?;
    let (rate, trained) = run.get(&best).await?;
    let accuracy = trained.evaluation.and_then(|evaluation| evaluation.accuracy).unwrap_or_default();
    println!("{rate}: accuracy {accuracy:.4}, weights of job {}", trained.job);
    Ok(())
}
