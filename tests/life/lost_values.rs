//! Large values of a graph that a shard's disk has lost, while nobody holds them in memory any more: they are
//! made again.

use std::fs;

use syncline::{CallOptions, TaskGraph};

use crate::{
    cluster::Cluster,
    graph_faults::until_written,
    graphs::{COUNT_UP, HOLD, INCREASE, SUM, function_worker},
};

const LENGTH: u64 = 10_000;

#[tokio::test(flavor = "multi_thread")]
async fn values_that_a_disk_has_lost_are_made_again_with_what_they_were_made_of_also_in_the_next_job() {
    let mut cluster = Cluster::start(1, 0, "").await;
    let blobs = cluster.shard_folder(0).join("blobs");
    for id in ["first", "next"] {
        let folder = cluster.dir.path().join(id);
        fs::create_dir(&folder).unwrap();
        let mut worker = function_worker(&cluster);
        let mut graph = TaskGraph::new(id);
        let counted = graph.call(COUNT_UP, (LENGTH,));
        // The numbers before are removed when this has ended.
        let increased = graph.call(INCREASE, (&counted,));
        let behind = CallOptions::new().after(&increased).crash_retries(100);
        let gate = graph.call_with(&behind, HOLD, (folder.display().to_string(), 0));
        let sum = graph.call_with(&CallOptions::new().after(&gate), SUM, (&increased,));
        let run = cluster.client().submit_tasks(&graph).await.unwrap();
        until_written(&folder.join("began-0")).await;
        worker.kill();
        cluster.restart_shard(0, || fs::remove_dir_all(&blobs).unwrap());
        fs::write(folder.join("go"), "").unwrap();
        let mut worker = function_worker(&cluster);
        assert_eq!(run.get(&sum).await.unwrap(), LENGTH * (LENGTH + 1) / 2, "{id}");
        for task in [counted.index(), increased.index()] {
            // More than twice where the engine did not know yet that the worker of the job before was dead.
            let attempts = cluster.client().task(run.id(), task).await.unwrap().attempts;
            assert!(attempts >= 2, "{id}: task {task} was tried {attempts} times");
        }
        worker.kill();
    }
}
