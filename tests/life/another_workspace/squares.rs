use std::{env, process::ExitCode};

use syncline::{Client, Function, TaskGraph, worker::Worker};

const SQUARE: Function<(u64,), u64> = Function::new("square");
const SUM: Function<(Vec<u64>,), u64> = Function::new("sum");

fn main() -> Result<ExitCode, syncline::Error> {
    if env::args().nth(1).is_some_and(|word| word == "worker") {
        let worker = Worker::builder().register(SQUARE, |n: u64| n * n);
        return Ok(worker.register(SUM, |all: Vec<u64>| all.iter().sum::<u64>()).main());
    }
    client()
}

#[tokio::main]
async fn client() -> Result<ExitCode, syncline::Error> {
    let mut graph = TaskGraph::new("squares");
    let squares = graph.map(SQUARE, (1..=1000).map(|n| (n,)));
    let total = graph.call(SUM, (&squares,));

    let client = Client::find()?;
    let run = client.replace_tasks(&graph).await?;
    println!("{}", run.get(&total).await?);
    Ok(ExitCode::SUCCESS)
}
