//! A shard that was started wrongly says so at once, and ends where waiting cannot help.

use std::{fs, process::Stdio};

use syncline_rpc::Token;

use crate::{
    cluster::Cluster,
    rig::{Ended, Killed, command, folder, kill, wait_until},
};

#[tokio::test(flavor = "multi_thread")]
async fn what_waiting_cannot_change_ends_a_shard_with_its_code_and_a_hint() {
    let cluster = Cluster::start(2, 0, "").await;
    cluster.client().shards().await.unwrap();
    let good = cluster.dir.path().join("token");
    let dir = folder();
    let other = dir.path().join("token");
    Token::load_or_create(&other).unwrap();
    let cases = [
        ("a wrong token", &other, "0/2", "E423"),
        ("a wrong count", &good, "0/3", "E424"),
        ("a place that is taken", &good, "1/2", "E425"),
    ];
    for (what, token, index, code) in cases {
        let state = dir.path().join(code);
        let args = [
            "ps",
            "--engine",
            &cluster.engine_address,
            "--token-file",
            token.to_str().unwrap(),
            "--state-dir",
            state.to_str().unwrap(),
            "--shard",
            index,
        ];
        let ended = tokio::task::block_in_place(|| Ended::from(command(&args).output().unwrap()));
        assert!(ended.code != 0 && ended.err.contains(&format!("[{code}]")), "{what}: {ended:#?}");
        assert!(ended.err.lines().last().unwrap().starts_with("hint: "), "{what}: {ended:#?}");
        assert!(!ended.err.contains("panicked"), "{what}: {ended:#?}");
    }
    // Those who have the places still do.
    assert_eq!(cluster.client().shards().await.unwrap().len(), 2);
}

#[test]
fn an_engine_that_is_not_there_is_named_at_once_and_waited_for() {
    let dir = folder();
    let said = dir.path().join("said");
    let state = dir.path().join("state");
    let args = ["ps", "--engine", "127.0.0.1:1", "--state-dir", state.to_str().unwrap()];
    let stderr = fs::File::create(&said).unwrap();
    let mut child = Killed::start(command(&args).stdout(Stdio::null()).stderr(stderr));
    let text = || fs::read_to_string(&said).unwrap();
    wait_until("it says what is wrong", || text().contains("[E426]"));
    assert!(text().contains("127.0.0.1:1") && text().contains("hint="), "{}", text());
    assert!(child.try_wait().unwrap().is_none(), "the engine may come");
    kill("TERM", child.id());
    assert!(child.wait().unwrap().success(), "{}", text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_says_soon_that_its_engine_is_away_and_when_it_is_back() {
    let mut cluster = Cluster::start(1, 0, "").await;
    cluster.kill_engine();
    let said = cluster.dir.path().join("said");
    let token = cluster.dir.path().join("token");
    let args = ["worker", "--engine", &cluster.engine_address, "--token-file", token.to_str().unwrap()];
    let stderr = fs::File::create(&said).unwrap();
    let mut worker = Killed::start(command(&args).stdout(Stdio::null()).stderr(stderr));
    let text = || fs::read_to_string(&said).unwrap();
    wait_until("it says what is wrong", || text().contains("[E355]"));
    let cores = std::thread::available_parallelism().unwrap();
    assert!(
        text().contains(&format!("computes on {cores} threads, the cores of this machine")),
        "{}",
        text()
    );
    let line = text().lines().find(|line| line.contains("[E355]")).unwrap().to_owned();
    assert!(line.contains(&cluster.engine_address) && line.contains("hint="), "{line}");
    cluster.start_engine();
    wait_until("it says that the engine is back", || text().contains("the engine is there again"));
    wait_until("it is registered", || text().contains("registered"));
    kill("TERM", worker.id());
    assert!(worker.wait().unwrap().success(), "{}", text());
}
