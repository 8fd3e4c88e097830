//! Following a job to its end, over more events than are kept.

use syncline::{EventStream, JobNews, TaskGraph};

use crate::{cluster::Cluster, graphs::STEP};

/// What a job keeps.
const KEPT: usize = 200;

/// The words for what happened next.
async fn next(events: &mut EventStream) -> Option<String> {
    Some(match events.next().await.unwrap()? {
        JobNews::Event(entry) => {
            serde_json::to_value(&entry.value).unwrap()["what"].as_str().unwrap().to_owned()
        }
        _ => "missed".to_owned(),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_follows_a_job_gets_every_event_or_is_told_that_some_are_missing() {
    let cluster = Cluster::start(1, 0, "").await;
    let client = cluster.client();
    let mut graph = TaskGraph::new("waits");
    graph.call(STEP, (1,));
    let job = client.submit_tasks(&graph).await.unwrap();
    let mut events = client.watch(job.id(), None);
    for first in ["job_submitted", "started"] {
        assert_eq!(next(&mut events).await.unwrap(), first);
    }
    let mut told = vec![];
    for _ in 0..3 {
        client.pause(job.id()).await.unwrap();
        client.resume(job.id()).await.unwrap();
    }
    while told.len() < 6 {
        told.push(next(&mut events).await.unwrap());
    }
    assert!(told.chunks(2).all(|two| two == ["paused", "resumed"]), "{told:?}");

    let cursor = events.cursor();
    for _ in 0..=KEPT / 2 {
        client.pause(job.id()).await.unwrap();
        client.resume(job.id()).await.unwrap();
    }
    job.cancel().await.unwrap();
    let mut events = client.watch(job.id(), cursor);
    assert_eq!(next(&mut events).await.unwrap(), "missed");
    let mut told = vec![];
    while let Some(what) = next(&mut events).await {
        told.push(what);
    }
    assert_eq!((told.len(), told.last().unwrap().as_str()), (KEPT, "job_ended"));
    assert_eq!(events.next().await.unwrap(), None);
}
