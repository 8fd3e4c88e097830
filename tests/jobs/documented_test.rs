use syncline::worker::{Context, Worker, run};
use syncline::{Function, LocalCluster, LocalOptions, TaskGraph};

const ADD: Function<(u64, u64), u64> = Function::new("add");

fn add(context: &Context, a: u64, b: u64) -> Result<u64, &'static str> {
    // A value would count, also of a job that was canceled.
    if context.canceled() { Err("canceled") } else { Ok(a + b) }
}

#[test]
fn two_numbers_are_added() {
    assert_eq!(add(&Context::for_test(), 1, 2), Ok(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_sum_gives_goes_into_the_next() -> Result<(), syncline::Error> {
    let cluster = LocalCluster::start_with(LocalOptions::workers(0), |line| eprintln!("{line}")).await?;
    let worker = Worker::builder().register(ADD, add).options(cluster.cluster())?;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let worker = tokio::spawn(run(worker, stopped));

    let mut graph = TaskGraph::new("sums");
    let three = graph.call(ADD, (1, 2));
    let ten = graph.call(ADD, (three, 7));
    let sums = cluster.client().submit_tasks(&graph).await?;
    assert_eq!(sums.get(&ten).await?, 10);

    stop.send_replace(true);
    worker.await??;
    cluster.stop().await?;
    Ok(())
}
