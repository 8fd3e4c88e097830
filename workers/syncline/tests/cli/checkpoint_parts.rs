//! What is left where Redis is lost: the weights of checkpoints, on the disks of the shards.

use std::fs;

use crate::{
    job::write_job,
    json::Page,
    rig::{Up, folder, syncline, wait_until},
};

#[test]
fn where_redis_is_lost_another_job_begins_with_the_weights_of_a_checkpoint() {
    let (dir, page) = (folder(), Page::read());
    let cluster = ["--workers", "1", "--shards", "2", "--step-ms", "20"];
    let up = Up::start(&dir, &cluster);
    let state = dir.path().to_str().unwrap();
    write_job(dir.path(), 100_000);
    let file = dir.path().join("points.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("epochs =", "checkpoint = { every_epochs = 1 }, epochs =")).unwrap();
    syncline(&["submit", file.to_str().unwrap(), "--state-dir", state]).ok();
    wait_until("it has a checkpoint", || {
        let status = syncline(&["status", "points", "--state-dir", state, "--json"]).ok().json();
        !status["job"]["checkpoint"].is_null()
    });
    drop(up);
    fs::remove_dir_all(dir.path().join("redis")).unwrap();
    let refused = syncline(&["up", "--state-dir", state, "--listen", "127.0.0.1:0"]).refused(2, "E580");
    assert!(refused.err.contains(&format!("`syncline checkpoint --from {state}`")), "{refused:#?}");

    let listed = syncline(&["checkpoint", "--json", "--from", state]).ok();
    page.holds("checkpoint --from DIR", &listed);
    let checkpoints = listed.json()["checkpoints"].as_array().unwrap().clone();
    let complete = checkpoints.iter().rev().find(|found| found["problem"].is_null()).unwrap();
    assert_eq!((&complete["shards"], &complete["parameters"]), (&2.into(), &42.into()), "{complete:#}");
    let words = syncline(&["checkpoint", "points", "--from", state]).ok().out;
    assert!(words.lines().any(|line| line.starts_with("points ") && line.ends_with("complete")), "{words}");

    let weights = dir.path().join("points.safetensors");
    let write = ["checkpoint", "points", weights.to_str().unwrap(), "--from"];
    let [first, second] = ["shard-0", "shard-1"].map(|shard| format!("{state}/{shard}/checkpoints"));
    let halved = syncline(&[&write[..], &[&first]].concat()).refused(1, "E644");
    assert!(halved.err.contains("no part of shard 1/2 is here"), "{halved:#?}");
    syncline(&["checkpoint", "nobody", "--from", state]).refused(1, "E643");
    syncline(&["checkpoint", "--from", "/nowhere"]).refused(2, "E645");
    assert!(!weights.exists());
    let written = syncline(&[&write[..], &[&first, &second, "--json"]].concat()).ok();
    page.holds("checkpoint JOB FILE --from DIR", &written);
    assert_eq!(written.json()["checkpoint"], complete["number"]);
    syncline(&[&write[..], &[state]].concat()).refused(2, "E536");

    let next = folder();
    let _up = Up::start(&next, &cluster);
    write_job(next.path(), 1);
    let file = next.path().join("points.toml");
    let with_weights = format!("loss = \"softmax-cross-entropy\", weights = \"{}\"", weights.display());
    let text = fs::read_to_string(&file).unwrap().replace("loss = \"softmax-cross-entropy\"", &with_weights);
    let text = text.replace("epochs =", "checkpoint = { every_epochs = 1 }, epochs =");
    fs::write(&file, text).unwrap();
    let later = next.path().to_str().unwrap();
    syncline(&["submit", file.to_str().unwrap(), "--watch", "--state-dir", later]).ok();
    let newest = next.path().join("newest.safetensors");
    let both = ["checkpoint", "points", newest.to_str().unwrap(), "--from", later, state];
    assert!(syncline(&both).ok().err.contains("several jobs of this name"));
}
