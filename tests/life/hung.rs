//! What hangs does not take others with it.

use std::{
    fs,
    io::Write,
    net::TcpStream,
    process::Stdio,
    time::{Duration, Instant},
};

use syncline_ps::wire::Request;
use syncline_rpc::hello::{self, Role};
use syncline_workers::submit;

use crate::{
    cluster::{Cluster, runtime},
    counting,
    rig::{Killed, command, kill, wait_until},
};

struct Worker(Killed);

impl Worker {
    fn start(cluster: &Cluster, flags: &[&str]) -> Self {
        let token = cluster.dir.path().join("token");
        let args = [
            "worker",
            "--threads",
            "1",
            "--engine",
            &cluster.engine_address,
            "--token-file",
            token.to_str().unwrap(),
        ];
        Self(Killed::start(command(&args).args(flags).stdout(Stdio::null()).stderr(Stdio::null())))
    }

    fn threads(&self) -> String {
        threads(self.0.id())
    }
}

/// Names of a process's threads.
fn threads(pid: u32) -> String {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return String::new() };
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.flatten().map(name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_in_a_step_that_does_not_end_stops_when_told_even_after_a_cancel() {
    let cluster = Cluster::start(1, 0, "").await;
    let graph = counting::job("hung", "asp".parse().unwrap(), 1000, 10, 1, 0);
    let prepared = submit::prepare(&runtime(), &graph).unwrap();
    let job = prepared.spec.id.clone();
    let client = cluster.client();
    client.shards().await.unwrap();
    client.submit_prepared(prepared).await.unwrap();
    // Ten minutes in which nothing can interrupt its executor, as in a file system that hangs.
    let mut worker = Worker::start(&cluster, &["--step-ms", "600000"]);
    wait_until("the worker opens the job", || worker.threads().contains("executor-"));
    cluster.until(&job, |s| s["state"] == "running").await;
    client.cancel(&job).await.unwrap();
    cluster.until_over(&job).await;
    kill("TERM", worker.0.id());
    let told = Instant::now();
    wait_until("the worker ends", || worker.0.try_wait().unwrap().is_some());
    assert!(told.elapsed() < Duration::from_secs(60), "{:?}", told.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stops_reading_costs_a_shard_its_thread_for_seconds_only() {
    let cluster = Cluster::start(1, 0, "").await;
    let graph = counting::job("counting", "asp".parse().unwrap(), 1000, 10, 1, 0);
    let prepared = submit::prepare(&runtime(), &graph).unwrap();
    let digest = *prepared.blobs.iter().max_by_key(|(_, bytes)| bytes.len()).unwrap().0;
    let client = cluster.client();
    let shard = client.shards().await.unwrap().remove(0);
    client.submit_prepared(prepared).await.unwrap();
    let pid: u32 = {
        let port: u16 = shard.rsplit(':').next().unwrap().parse().unwrap();
        listener(port)
    };
    let count = || threads(pid).matches("ps-tensor").count();
    wait_until("the upload's connections have ended", || count() == 0);
    let mut stalled = TcpStream::connect(&shard).unwrap();
    hello::greet_blocking(&mut stalled, Role::Tensor, None, &cluster.token).unwrap();
    // Asks again and again for megabytes, and takes none of them.
    let mut ask = Vec::new();
    Request::GetBlob { digest, offset: 0, length: u64::MAX }.encode(0, &mut ask);
    stalled.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let stuck = (0..10_000_000).any(|_| stalled.write_all(&ask).is_err());
    assert_eq!(count(), 1);
    // The shard has stopped taking questions, because nobody takes its answers.
    assert!(stuck, "a megabyte of questions was taken");
    wait_until("its thread is free again", || count() == 0);
    drop(stalled);
}

/// The process of ours that listens on a port: the one child with that socket.
fn listener(port: u16) -> u32 {
    let wanted = format!(":{port:04X} ");
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let inode = |line: &str| line.split_whitespace().nth(9).map(str::to_owned);
    let inode = table.lines().filter(|l| l.contains(&wanted) && l.contains(" 0A ")).find_map(inode).unwrap();
    let socket = format!("socket:[{inode}]");
    let holds = |pid: &u32| {
        let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        files.flatten().any(|f| fs::read_link(f.path()).is_ok_and(|to| to.as_os_str() == socket.as_str()))
    };
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(holds).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_who_never_greet_do_not_keep_a_worker_out() {
    let cluster = Cluster::start(1, 1, "--step-ms 2 --slowdown 1").await;
    let client = cluster.client();
    let shard = client.shards().await.unwrap().remove(0);
    let _strangers: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(&shard).unwrap()).collect();
    let graph = counting::job("counting", "asp".parse().unwrap(), 1000, 10, 1, 0);
    let prepared = submit::prepare(&runtime(), &graph).unwrap();
    let job = prepared.spec.id.clone();
    client.submit_prepared(prepared).await.unwrap();
    assert_eq!(cluster.until_over(&job).await["state"], "done");
}
