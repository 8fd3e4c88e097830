//! A named Redis server that holds the jobs of another cluster.

use std::fs;

use syncline_kit::{RedisOptions, RedisServer, redis_server};

use crate::{
    job::write_job,
    rig::{Up, folder, syncline},
};

#[test]
fn a_cluster_begins_on_a_redis_that_holds_jobs_of_another_only_where_it_is_told_to_take_them_over() {
    let dir = folder();
    let options = RedisOptions::new(dir.path().join("redis"));
    let server = RedisServer::start(&redis_server(&|_| {}).unwrap().path, options).unwrap();
    let password = fs::read_to_string(server.password_file()).unwrap();
    let url = format!("redis://:{}@127.0.0.1:{}/0", password.trim(), server.port());
    let flags = ["--workers", "0", "--shards", "1", "--redis", &url];
    let state = |name: &str| dir.path().join(name);
    let path = |name: &str| state(name).to_str().unwrap().to_owned();
    let refused = |name: &str, code: &str| {
        let up = ["up", "--state-dir", &path(name), "--listen", "127.0.0.1:0"];
        syncline(&[&up[..], &flags].concat()).refused(2, code)
    };

    // An empty Redis belongs to nobody, whichever clusters used it before.
    drop(Up::start_in(&state("earlier"), &flags));
    let first = Up::start_in(&state("first"), &flags);
    write_job(dir.path(), 1);
    let file = dir.path().join("points.toml");
    syncline(&["submit", file.to_str().unwrap(), "--state-dir", &path("first")]).ok();
    let engine = first.about["engine"].as_str().unwrap().to_owned();
    drop(first);

    let said = refused("second", "E641").err;
    let holds = "holds 1 job (points) of another cluster, whose engine up-";
    assert!(said.contains(holds) && said.contains(&format!("at {engine} led last")), "{said}");
    assert!(said.contains("--take-over") && !said.contains(password.trim()), "{said}");
    assert!(!state("second").join("logs/engine.log").exists(), "something was started: {said}");

    // A cluster is known by its state directory, wherever that lies.
    fs::rename(state("first"), state("moved")).unwrap();
    drop(Up::start_in(&state("moved"), &flags));

    let second = Up::start_in(&state("second"), &[&flags[..], &["--take-over"]].concat());
    let jobs = syncline(&["jobs", "--state-dir", &path("second")]).ok().out;
    assert!(jobs.contains("points"), "{jobs}");
    drop(second);
    drop(Up::start_in(&state("second"), &flags));
    refused("moved", "E641");
}
