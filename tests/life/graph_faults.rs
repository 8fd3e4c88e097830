//! General tasks through faults of single parts: workers that hang or are cut off, a Redis that is full,
//! forgets scripts, closes connections, or lost its last moment, and a leader that slept while another led.

use std::{fs, path::Path, time::Instant};

use syncline::{CallOptions, GraphRun, TaskGraph, TaskHandle};
use syncline_engine::store::keys::JobKeys;
use syncline_rpc::{
    ClientServiceClient, ClientServiceRequest, ClientServiceResponse, connect, hello::Role, within,
};
use syncline_scheduler::{
    core::IfTaken,
    tasks::{ClassIndex, GraphDigest, GraphSpec, NewTask, TaskClass},
};

use crate::{
    cluster::{Cluster, PATIENCE, eventually, number},
    graphs::{ATTEMPT, Expected, HOLD, STEP, STEPS, SUM, function_worker, function_worker_of},
    network::Network,
    store::cut_tail,
};

/// Returns when there is this file.
pub async fn until_written(file: &Path) {
    eventually(&format!("{} is there", file.display()), async || file.exists()).await;
}

/// One that waits behind something else is given back, and has another number where it begins.
const NEXT_ATTEMPTS: u64 = 9;

/// A task that tells which attempt counts, with a folder of its own, and one that takes this and waits for
/// the end of the test.
struct Attempted {
    job: GraphRun,
    folder: std::path::PathBuf,
    sum: TaskHandle<u64>,
}

impl Attempted {
    async fn submit(cluster: &Cluster, id: &str) -> Self {
        let folder = cluster.dir.path().join(id);
        fs::create_dir(&folder).unwrap();
        let place = folder.display().to_string();
        let mut graph = TaskGraph::new(id);
        // It takes the whole of a worker, so that the one that has it has nothing else.
        let all = CallOptions::new().slots(2).crash_retries(100);
        let attempt = graph.call_with(&all, ATTEMPT, (place.clone(),));
        let last = graph.call_with(&CallOptions::new().after(&attempt), HOLD, (place, 0));
        let sum = graph.call(SUM, (&vec![attempt, last],));
        let job = cluster.client().submit_tasks(&graph).await.unwrap();
        Self { job, folder, sum }
    }

    async fn until_begun(&self, attempt: u16) {
        until_written(&self.folder.join(format!("began-{attempt}"))).await;
    }

    fn end(&self, attempt: u16) {
        fs::write(self.folder.join(format!("end-{attempt}")), "").unwrap();
    }

    /// An attempt that began elsewhere counts, whatever the first has said since.
    async fn check(&self, cluster: &Cluster) {
        fs::write(self.folder.join("go"), "").unwrap();
        let sum = self.job.get(&self.sum).await.unwrap();
        assert!((2 + 7..=NEXT_ATTEMPTS + 7).contains(&sum), "{sum}");
        assert_eq!(cluster.until_over(self.job.id()).await["state"], "done");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_had_that_hangs_or_is_cut_off_runs_elsewhere_and_its_late_report_changes_nothing() {
    let cluster = Cluster::start(1, 0, "").await;
    let network = Network::to(&cluster.engine_address.parse().unwrap()).await.unwrap();
    let hung = function_worker(&cluster);
    let of_hung = Attempted::submit(&cluster, "hung").await;
    of_hung.until_begun(1).await;
    let _behind = function_worker_of(&cluster, &network.engines.to_string());
    let of_cut = Attempted::submit(&cluster, "cut").await;
    of_cut.until_begun(1).await;
    // They are there before the accidents: a worker that is cut off and not yet missed could get the second
    // attempt otherwise.
    let _others = [function_worker(&cluster), function_worker(&cluster)];
    cluster.until_there(|ids| ids.len() == 4).await;

    hung.signal("STOP");
    let cut = network.cut();
    // The function behind the cut ends; the other one ends when its process goes on. The next attempts end at
    // once.
    for task in [&of_hung, &of_cut] {
        (1..=NEXT_ATTEMPTS as u16).for_each(|attempt| task.end(attempt));
    }
    for task in [&of_hung, &of_cut] {
        cluster.until(task.job.id(), |summary| number(summary, "tasks_done") == 1).await;
    }
    hung.signal("CONT");
    drop(cut);
    // Both have said what they had to say when they are there under another number.
    cluster.until_there(|ids| ids.len() == 4).await;
    for task in [&of_hung, &of_cut] {
        task.check(&cluster).await;
    }
    Expected::submit(&cluster, "next", None).await.check(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_full_forgets_scripts_closes_connections_or_lost_its_last_moment_costs_a_graph_nothing()
 {
    let mut cluster = Cluster::start(1, 0, "").await;
    let _functions = [function_worker(&cluster), function_worker(&cluster)];
    let ask = async |cluster: &Cluster, words: &[&str]| {
        // It may close our own connection as well.
        let _ = cluster.store.query::<String>("accident", words).await;
    };
    let graph = Expected::submit(&cluster, "full", None).await;
    let until_done = async |cluster: &Cluster, part: u64| {
        let enough = STEPS * part / 6;
        cluster.until(graph.job.id(), |summary| number(summary, "tasks_done") >= enough).await;
    };
    until_done(&cluster, 1).await;
    ask(&cluster, &["SCRIPT", "FLUSH"]).await;
    until_done(&cluster, 2).await;
    ask(&cluster, &["CLIENT", "KILL", "TYPE", "normal"]).await;
    until_done(&cluster, 3).await;

    ask(&cluster, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let client = cluster.client();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let notes = client.status(graph.job.id()).await.unwrap().notes;
        if notes.iter().any(|note| note.contains("OOM")) {
            break;
        }
        assert!(Instant::now() < deadline, "nobody says that Redis is full: {notes:?}");
    }
    ask(&cluster, &["CONFIG", "SET", "maxmemory", "0"]).await;
    until_done(&cluster, 4).await;

    // As a replica has it that takes over and lagged: first under an engine that lives, then under one that
    // knows nothing.
    cut_tail(&mut cluster);
    until_done(&cluster, 5).await;
    cluster.kill_engine();
    cut_tail(&mut cluster);
    cluster.start_engine();
    graph.check(&cluster).await;
    Expected::submit(&cluster, "next", None).await.check(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_slept_while_another_led_stores_no_job_and_no_end() {
    let cluster = Cluster::of(1, 0).standby_engine().default_shard_silence().start().await;
    let _function = function_worker(&cluster);
    let task = Attempted::submit(&cluster, "slept").await;
    task.until_begun(1).await;
    // A connection to this engine alone, which is open, so that what is asked lies there when the leader
    // wakes. A client would follow it to whom it names then.
    let open = connect::<ClientServiceRequest, ClientServiceResponse>(
        &cluster.engine_address,
        Role::Client,
        &cluster.token,
    );
    let old = ClientServiceClient::new(tarpc::client::Config::default(), open.await.unwrap()).spawn();
    old.describe_engine(within(PATIENCE)).await.unwrap().unwrap();
    let engine = cluster.engine.as_ref().unwrap();
    engine.signal("STOP");
    let call = NewTask { class: ClassIndex(0), args: Vec::new(), after: Vec::new(), name: None };
    let graph = GraphSpec {
        id: "stale".parse().unwrap(),
        digest: GraphDigest::default(),
        classes: vec![TaskClass::call(STEP.id())],
        tasks: vec![call],
        complete: true,
    };
    let submitted =
        tokio::spawn(async move { old.submit_graph(within(PATIENCE), graph, 1, IfTaken::Refuse).await });
    cluster.until_led_by("standby").await;
    task.end(1);
    engine.signal("CONT");
    let refused = submitted.await.unwrap().unwrap().unwrap_err().to_string();
    assert!(refused.contains("[E136]"), "{refused}");
    let stale = JobKeys::new(&"stale".parse().unwrap());
    assert!(cluster.store.hash("look", &stale.state).await.unwrap().is_empty(), "it stored a job");
    assert!(cluster.client().jobs().await.unwrap().iter().all(|job| job.id.as_str() != "stale"));
    fs::write(task.folder.join("go"), "").unwrap();
    assert_eq!(task.job.get(&task.sum).await.unwrap(), 1 + 7);
}
