//! Following a job to its end, over more events than are kept.

use std::fs::{self, File};

use syncline::{EventStream, JobNews, TaskGraph};

use crate::{
    cluster::{Cluster, eventually},
    graphs::STEP,
    rig::{Killed, command},
};

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

#[tokio::test(flavor = "multi_thread")]
async fn events_that_are_followed_by_command_go_on_behind_an_engine_that_has_come_to_a_wrong_redis() {
    let mut cluster = Cluster::start(1, 0, "").await;
    let mut graph = TaskGraph::new("followed");
    graph.call(STEP, (1,));
    cluster.client().submit_tasks(&graph).await.unwrap();
    let (printed, said) = (cluster.dir.path().join("printed"), cluster.dir.path().join("said"));
    let token = cluster.dir.path().join("token");
    let named = ["--engine", &cluster.engines, "--token-file", token.to_str().unwrap()];
    let mut follow = command(&[&["events", "followed", "--follow"], &named[..]].concat());
    follow.stdout(File::create(&printed).unwrap()).stderr(File::create(&said).unwrap());
    let mut follower = Killed::start(&mut follow);
    let text = |path| fs::read_to_string(path).unwrap();
    eventually("it has seen the job", async || text(&printed).contains("started")).await;

    cluster.kill_engine();
    cluster.restart_redis(|dir| fs::rename(dir, dir.with_extension("aside")).unwrap());
    cluster.start_engine();
    eventually("it says that the job is not known", async || text(&said).contains("E131")).await;
    assert!(follower.try_wait().unwrap().is_none(), "{}", text(&said));

    cluster.kill_engine();
    cluster.restart_redis(|dir| {
        fs::rename(dir, dir.with_extension("wrong")).unwrap();
        fs::rename(dir.with_extension("aside"), dir).unwrap();
    });
    cluster.start_engine();
    eventually("the job is there again", async || {
        cluster.client().cancel(&"followed".parse().unwrap()).await.is_ok()
    })
    .await;
    let status = tokio::task::block_in_place(|| follower.wait().unwrap());
    assert!(status.success() && text(&printed).contains("job_ended"), "{}", text(&said));
}
