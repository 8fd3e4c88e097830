//! Integrates the square root on the cluster that is running: `integral FROM TO TOLERANCE`.

use std::env;

use anyhow::Context;
use syncline::Client;
use syncline_examples::integral;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let numbers = env::args().skip(1).map(|text| text.parse().context(text));
    let numbers: Vec<f64> = numbers.collect::<anyhow::Result<_>>()?;
    let [from, to, tolerance] = numbers[..] else { anyhow::bail!("FROM, TO and TOLERANCE, please") };
    let (graph, integral) = integral::graph("integral", from, to, tolerance);

    let client = Client::find()?;
    let id = client.replace_tasks(&graph).await?;
    let value = client.get(&id, &integral).await?;
    let tasks = client.wait(&id, |_| {}).await?.job.tasks.unwrap_or_default().total;
    println!("{value:.9} by {tasks} tasks");
    Ok(())
}
