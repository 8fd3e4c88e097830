//! Jobs that tasks start and that outlive them.

use std::{fs, path::Path};

use syncline::{CallOptions, EventKind, TaskGraph};

use crate::{
    cluster::Cluster,
    graph_faults::until_written,
    graphs::{DETACH, function_worker},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_task_whose_worker_dies_after_it_has_started_a_job_starts_no_second_one_and_the_job_outlives_it() {
    let cluster = Cluster::start(1, 0, "").await;
    let folder = cluster.dir.path().join("place");
    fs::create_dir(&folder).unwrap();
    let place = folder.display().to_string();
    let begun = |attempt: u32| folder.join(format!("began-{attempt}"));
    let client = cluster.client();

    let first = function_worker(&cluster);
    let mut graph = TaskGraph::new("starter");
    // It begins again while the job that it has started waits.
    let again = CallOptions::new().crash_retries(100);
    let started = graph.call_with(&again, DETACH, (place.clone(),));
    let starter = client.submit_tasks(&graph).await.unwrap();
    until_written(&begun(1)).await;
    let since_of = async || {
        let jobs = client.jobs().await.unwrap();
        let of = |id: &str| jobs.iter().find(|job| job.id.as_str() == id).map(|job| job.submitted_ms);
        assert_eq!(jobs.len(), 2, "{jobs:?}");
        of("detached").expect("it was started")
    };
    let since = since_of().await;
    drop(first);
    let _second = function_worker(&cluster);
    until_written(&begun(2)).await;
    assert_eq!(since_of().await, since, "it is the same job");

    fs::write(folder.join("end-2"), "").unwrap();
    let job = starter.get(&started).await.unwrap();
    cluster.until_over(starter.id()).await;
    client.delete(starter.id()).await.unwrap();
    fs::write(Path::new(&place).join("go"), "").unwrap();
    let job = job.parse().unwrap();
    assert_eq!(client.get_named::<u64>(&job, "last").await.unwrap(), 8);
    let events = client.events(&job, None).await.unwrap();
    let submissions = events.iter().filter(|event| event.value.what == EventKind::JobSubmitted).count();
    assert_eq!(submissions, 1, "{events:?}");
}
