//! ONNX models as tasks, over the life of a cluster: workers come, die and come back, and so does the
//! cluster.

use std::{path::Path, process::Stdio};

use syncline::{Client, Cluster, JobId, LiveWorker, OnnxModel, RUN_MODEL, TaskError, TaskGraph, Tensor};
use syncline_onnx::mlp;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::rig::{Killed, Up, command, folder, kill, processes, syncline, wait_until};

/// One worker of `up` that can run models.
const FLAGS: [&str; 4] = ["--workers", "1", "--shards", "2"];

struct RunningCluster {
    up: Option<Up>,
    runtime: Runtime,
    /// Removed last: whoever still runs would write into it again.
    dir: TempDir,
}

impl RunningCluster {
    fn start() -> Self {
        let dir = folder();
        Self { up: Some(Up::start(&dir, &FLAGS)), runtime: Runtime::new().unwrap(), dir }
    }

    /// Stops the whole cluster and starts it again.
    fn next_day(&mut self) {
        self.up = None;
        self.up = Some(Up::start(&self.dir, &FLAGS));
    }

    fn client(&self) -> Client {
        let Cluster { engines, token } = Cluster::load(None, None, Some(self.dir.path())).unwrap();
        Client::new(engines, token)
    }

    fn upload(&self) -> OnnxModel {
        self.runtime.block_on(self.client().upload_model(mlp(&[3, 4, 2], 1).to_bytes())).unwrap()
    }

    /// Runs the model in so many tasks.
    fn run(&self, job: &str, model: OnnxModel, tasks: usize) -> Result<(), TaskError> {
        let mut graph = TaskGraph::new(job);
        let input = || vec![Tensor::new([1, 3], vec![1.0f32, 2.0, 3.0]).unwrap()];
        let outputs = graph.map(RUN_MODEL, (0..tasks).map(|_| (model, input())));
        self.runtime.block_on(async {
            let run = self.client().submit_tasks(&graph).await?;
            for output in &outputs {
                assert_eq!(run.get(output).await?[0].shape(), [1, 2]);
            }
            Ok(())
        })
    }

    fn workers(&self) -> Vec<LiveWorker> {
        self.runtime.block_on(self.client().workers()).unwrap()
    }

    /// Kills the worker of `up`, which starts another one in its place.
    fn kill_worker(&self) -> u32 {
        let mut all = processes(self.dir.path()).into_iter();
        let (_, pid) = all.find(|(name, _)| name.starts_with("worker")).unwrap();
        kill("KILL", pid);
        pid
    }

    /// Removes what no job names, however young.
    fn collect(&self) -> u64 {
        let dir = self.dir.path().to_str().unwrap();
        let printed = syncline(&["gc", "--older-than-s", "0", "--json", "--state-dir", dir]).ok();
        printed.json()["blobs"].as_u64().unwrap()
    }

    fn delete(&self, job: &str) {
        let id: JobId = job.parse().unwrap();
        self.runtime.block_on(self.client().delete(&id)).unwrap();
    }
}

#[test]
fn a_model_serves_workers_that_come_later_and_a_cluster_that_was_restarted() {
    let mut cluster = RunningCluster::start();
    let model = cluster.upload();
    cluster.run("first", model, 30).unwrap();

    let dir = cluster.dir.path().to_str().unwrap().to_owned();
    let mut other = command(&["worker", "--name", "other", "--slots", "2", "--state-dir", &dir]);
    let _other = Killed::start(other.stdout(Stdio::null()));
    wait_until("the other worker is there", || cluster.workers().iter().any(|worker| worker.name == "other"));
    // Whoever takes them: the other one never had the model, and the first one comes back without it.
    cluster.kill_worker();
    cluster.run("second", model, 30).unwrap();
    wait_until("both are there", || cluster.workers().len() == 2);
    cluster.run("third", model, 30).unwrap();

    cluster.next_day();
    cluster.run("fourth", model, 30).unwrap();
}

#[test]
fn a_model_stays_as_long_as_a_job_names_it() {
    let cluster = RunningCluster::start();
    let model = cluster.upload();
    cluster.run("only", model, 3).unwrap();
    assert_eq!(cluster.collect(), 0);
    cluster.delete("only");
    assert_eq!(cluster.collect(), 1);
    // A worker that has it does not need it; one that comes does.
    cluster.run("kept", model, 3).unwrap();
    let killed = cluster.kill_worker();
    let pids = || cluster.workers().into_iter().map(|worker| worker.pid).collect::<Vec<_>>();
    wait_until("another worker is there", || matches!(pids()[..], [pid] if pid != killed));
    let told = cluster.run("gone", model, 1).unwrap_err().to_string();
    assert!(told.contains("[E404]") && told.contains(&model.digest().to_string()), "{told}");
    assert_eq!(cluster.upload(), model);
    cluster.run("again", model, 3).unwrap();
}

#[test]
fn a_model_that_crashes_onnx_runtime_fails_its_task_and_no_worker() {
    let cluster = RunningCluster::start();
    let pids = || cluster.workers().into_iter().map(|worker| worker.pid).collect::<Vec<_>>();
    let before = pids();
    let bag = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/checks/embedding_bag.dynamo.onnx");
    let model = cluster.runtime.block_on(cluster.client().upload_model(bag)).unwrap();
    let told = cluster.run("crash", model, 1).unwrap_err().to_string();
    assert!(told.contains("[E254]") && told.contains("SIGSEGV") && told.contains("(Loop)"), "{told}");
    cluster.run("good", cluster.upload(), 3).unwrap();
    assert_eq!(pids(), before);
}
