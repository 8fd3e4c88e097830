//! A second machine that lacks what the first one has. Machines are mount namespaces, which need rights;
//! where those are missing the tests say so and do nothing.

use std::{
    io::{self, Write},
    process::Command,
};

use syncline::EventKind;

use crate::{
    cluster::{Cluster, Process, number},
    jobs::{check_next_job_runs, submit, with_data},
};

/// What starts a program on a machine on which the folder `$1` is empty.
const ELSEWHERE: &str = "mount -t tmpfs none \"$1\" && shift && exec \"$@\"";

/// What starts a program with mounts of its own, which `script` makes: root may have them, and others where
/// the system lets them be root among themselves. Nothing where neither is allowed.
pub fn with_own_mounts(script: &str) -> Option<[&str; 6]> {
    let may = |flags: &&str| {
        let tried =
            Command::new("unshare").args([flags, "sh", "-c", ELSEWHERE, "sh", "/mnt", "true"]).output();
        tried.is_ok_and(|done| done.status.success())
    };
    let Some(flags) = ["-m", "-rm"].into_iter().find(may) else {
        // What `eprintln!` says is shown of tests that fail only.
        let text = "SKIPPED: nobody may have mounts of his own here (`unshare -rm` fails)\n";
        io::stderr().write_all(text.as_bytes()).unwrap();
        return None;
    };
    Some(["unshare", flags, "sh", "-c", script, "sh"])
}

fn worker_elsewhere(cluster: &Cluster, starter: &[&str], hidden: &std::path::Path, flags: &str) -> Process {
    cluster.spawn_worker_by(&[starter, &[hidden.to_str().unwrap()]].concat(), flags)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_lacks_the_data_is_excluded_and_the_others_go_on() {
    let Some(starter) = with_own_mounts(ELSEWHERE) else { return };
    let mut cluster = Cluster::start(1, 1, "--name here --step-ms 5 --slowdown 1").await;
    let folder = cluster.dir.path().join("data");
    std::fs::create_dir(&folder).unwrap();
    let job = submit(&cluster, with_data("partial", &folder.join("d.csv"), 60)).await;
    cluster.until(&job, |s| number(s, "samples_applied") > 100).await;
    // It joins while the job runs.
    let elsewhere = worker_elsewhere(&cluster, &starter, &folder, "--name elsewhere");
    cluster.workers.push(elsewhere);
    let excluded = |s: &std::collections::BTreeMap<String, String>| {
        s.get("excluded").is_some_and(|e| e.contains("elsewhere on ") && e.contains("[E330]"))
    };
    cluster.until(&job, excluded).await;
    for command in ["workers", "status partial"] {
        let printed = cluster.print(command);
        assert!(printed.contains("elsewhere on ") && printed.contains("[E330]"), "{command}:\n{printed}");
    }
    let summary = cluster.until_over(&job).await;
    assert_eq!(summary["state"], "done", "{summary:?}");
    assert_eq!(number(&summary, "samples_applied"), number(&summary, "samples_total"));
    // It never took part, so that no shard was asked how far its pushes came.
    let events = cluster.client().events(&job, None).await.unwrap();
    assert!(events.iter().all(|event| event.value.what != EventKind::WorkerSealed), "{events:?}");
    // It is excluded from that job only.
    check_next_job_runs(&cluster, "next").await;
    let workers = cluster.client().status(&"next".parse().unwrap()).await.unwrap().workers;
    assert!(workers.iter().any(|worker| worker.name == "elsewhere"), "{workers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_no_worker_can_run_fails_with_the_reason_and_the_next_one_runs() {
    let cluster = Cluster::start(1, 2, "").await;
    let data = cluster.dir.path().join("d.csv");
    let prepared = with_data("nobody", &data, 1);
    std::fs::remove_file(&data).unwrap();
    let job = submit(&cluster, prepared).await;
    let summary = cluster.until_over(&job).await;
    assert_eq!((summary["state"].as_str(), summary["code"].as_str()), ("failed", "E330"), "{summary:?}");
    assert!(summary["reason"].contains("d.csv"), "{summary:?}");
    check_next_job_runs(&cluster, "next").await;
}
