//! Tasks that wait on a worker behind long ones, while another worker is idle, and when theirs leaves.

use std::{fs, path::PathBuf};

use syncline::{CallOptions, EventKind, GraphRun, TaskGraph};

use crate::{
    cluster::{Cluster, number},
    graph_faults::until_written,
    graphs::{HOLD, function_worker},
};

/// Calls that end at once when they begin.
const SHORT: u64 = 20;

/// Two tasks that fill the worker of a cluster, and short ones that it has taken ahead behind them.
struct Crowd {
    job: GraphRun,
    folder: PathBuf,
}

impl Crowd {
    /// The one worker of the cluster has the functions.
    async fn submit(cluster: &Cluster) -> Self {
        let folder = |name: &str| {
            let folder = cluster.dir.path().join(name);
            fs::create_dir(&folder).unwrap();
            folder
        };
        let (quick, long) = (folder("quick"), folder("long"));
        fs::write(quick.join("go"), "").unwrap();
        let place = |folder: &PathBuf| folder.display().to_string();
        let once = CallOptions::new().crash_retries(1);
        let mut graph = TaskGraph::new("crowd");
        // Such a task is short, as far as anybody knows.
        let first = graph.call_with(&once, HOLD, (place(&quick), 0));
        let behind = once.after(&first);
        for number in 0..2 {
            graph.call_with(&behind, HOLD, (place(&long), number));
        }
        for number in 1..=SHORT {
            graph.call_with(&behind, HOLD, (place(&quick), number));
        }
        let job = cluster.client().submit_tasks(&graph).await.unwrap();
        for number in 0..2 {
            until_written(&long.join(format!("began-{number}"))).await;
        }
        // All of them, unless this machine was so busy that the first one took long.
        cluster.until(job.id(), |summary| number(summary, "tasks_leased") > 2).await;
        Self { job, folder: long }
    }

    async fn end(&self, cluster: &Cluster) {
        fs::write(self.folder.join("go"), "").unwrap();
        assert_eq!(cluster.until_over(self.job.id()).await["state"], "done");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_comes_begins_what_waits_elsewhere_behind_long_tasks() {
    let cluster = Cluster::start(1, 0, "").await;
    let _busy = function_worker(&cluster);
    let crowd = Crowd::submit(&cluster).await;
    let _idle = function_worker(&cluster);
    let all_short = |summary: &_| number(summary, "tasks_done") == 1 + SHORT;
    let summary = cluster.until(crowd.job.id(), all_short).await;
    assert_eq!(number(&summary, "tasks_leased"), 2, "the long ones run where they ran");
    crowd.end(&cluster).await;
    let events = cluster.client().events(crowd.job.id(), None).await.unwrap();
    let failed = events.iter().filter(|event| event.value.what == EventKind::AttemptFailed).count();
    assert_eq!(failed, 0, "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_told_to_end_costs_what_it_had_no_attempt_begun_or_not() {
    let cluster = Cluster::start(1, 0, "").await;
    let leaves = function_worker(&cluster);
    let crowd = Crowd::submit(&cluster).await;
    leaves.signal("TERM");
    let client = cluster.client();
    cluster.until_there(<[String]>::is_empty).await;
    let _next = function_worker(&cluster);
    crowd.end(&cluster).await;
    let events = client.events(crowd.job.id(), None).await.unwrap();
    let failed: Vec<_> = events.iter().filter(|event| event.value.what == EventKind::AttemptFailed).collect();
    assert!(failed.is_empty(), "{failed:?}");
}
