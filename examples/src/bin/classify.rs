//! Classifies images with the model that a job on the running cluster has trained: `classify JOB`.
//!
//! ```sh
//! syncline up                                              # in another terminal
//! syncline submit --replace examples/jobs/digits.toml
//! syncline watch digits
//! classify digits
//! ```

use anyhow::Context;
use clap::Parser;
use syncline::{Client, JobId};
use syncline_examples::classify;

/// Classifies images with the model that a job on the running cluster has trained.
#[derive(Parser)]
struct Args {
    /// The job that has trained digits, such as that of `examples/jobs/digits.toml`.
    job: JobId,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Args { job } = Args::parse();
    let client = Client::find()?;
    let trained = client.trained_model(&job).await?;
    let model = client.upload_model(trained.onnx).await?;

    let images = classify::test_images()?;
    let (graph, batches) = classify::graph("classify", model, &images)?;
    let run = client.replace_tasks(&graph).await?;
    let mut classes = Vec::new();
    for batch in &batches {
        let outputs = run.get(batch).await?;
        let scores = outputs.first().context("the model gives nothing")?;
        classes.extend(classify::classes(scores)?);
    }

    let right = classes.iter().zip(&images.labels).filter(|(class, label)| class == label).count();
    let (all, tasks) = (images.labels.len(), batches.len());
    println!("{right} of {all} images are classified right, by {tasks} tasks");
    Ok(())
}
