//! Tasks that take the outcomes of others, when a worker is killed for good and the engine after it.

use std::fs;

use syncline::{CallOptions, GraphRun, TaskGraph, TaskHandle};

use crate::{
    cluster::{Cluster, Process, number},
    graph_faults::until_written,
    graphs::{HOLD, STEP, SUM, TELL, function_worker},
};

/// A job whose first worker is dead, and who is told of it: that waits for the file `go`.
struct Bereaved {
    job: GraphRun,
    folder: std::path::PathBuf,
    told: TaskHandle<Vec<String>>,
}

impl Bereaved {
    /// `first` is the only worker; another one comes in its place.
    async fn submit(cluster: &Cluster, id: &str, mut first: Process) -> (Self, Process) {
        let folder = |name: &str| {
            let folder = cluster.dir.path().join(format!("{id}-{name}"));
            fs::create_dir(&folder).unwrap();
            folder
        };
        let (held, folder) = (folder("held"), folder("gate"));
        let mut graph = TaskGraph::new(id);
        let killed = CallOptions::new().slots(2).crash_retries(0);
        let killed = graph.call_with(&killed, HOLD, (held.display().to_string(), 0));
        let behind = graph.call(SUM, (&vec![killed],));
        // The engine is killed while this one holds up who is told.
        let again = CallOptions::new().after(&killed).crash_retries(100);
        let gate = graph.call_with(&again, HOLD, (folder.display().to_string(), 1));
        let fine = graph.call(STEP, (gate,));
        let told = graph.call(TELL, (&[killed.outcome(), behind.outcome(), fine.outcome()],));
        let job = cluster.client().submit_tasks(&graph).await.unwrap();
        until_written(&held.join("began-0")).await;
        first.kill();
        let second = function_worker(cluster);
        until_written(&folder.join("began-1")).await;
        (Self { job, folder, told }, second)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_told_of_one_whose_worker_was_killed_also_by_the_next_engine_and_in_the_next_job() {
    let mut cluster = Cluster::start(1, 0, "").await;
    let mut worker = function_worker(&cluster);
    for id in ["first", "next"] {
        let (bereaved, second) = Bereaved::submit(&cluster, id, worker).await;
        worker = second;
        let failed =
            |summary: &_| number(summary, "tasks_failed") == 1 && number(summary, "tasks_skipped") == 1;
        cluster.until(bereaved.job.id(), failed).await;
        cluster.kill_engine();
        cluster.start_engine();
        fs::write(bereaved.folder.join("go"), "").unwrap();
        let told = bereaved.job.get(&bereaved.told).await.unwrap();
        assert_eq!(told, ["E052 after 1", "E052 after 1", "8"]);
        assert_eq!(cluster.until_over(bereaved.job.id()).await["state"], "done");
    }
}
