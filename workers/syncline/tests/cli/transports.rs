//! Which way parameters take between workers and shards, and how one sees it.

use std::fs;

use crate::{
    job::write_job,
    rig::{Ended, Up, command, folder, syncline, wait_until},
};

#[test]
fn workers_share_memory_with_shards_here_unless_they_are_told_otherwise() {
    for (flags, used) in
        [(&[][..], "shm"), (&["--transport", "unix"], "unix"), (&["--transport", "tcp"], "tcp")]
    {
        let dir = folder();
        let state = dir.path().to_str().unwrap();
        let _up = Up::start(&dir, &[&["--workers", "1", "--shards", "2"], flags].concat());
        write_job(dir.path(), 1_000_000);
        let file = dir.path().join("points.toml");
        syncline(&["submit", file.to_str().unwrap(), "--state-dir", state]).ok();
        let shows =
            |command: &[&str]| syncline(&[command, &["--state-dir", state]].concat()).ok().out.contains(used);
        wait_until("people see the transport", || shows(&["workers"]) && shows(&["status", "points"]));
        let log = fs::read_to_string(dir.path().join("logs/worker-0.log")).unwrap();
        assert!(log.contains(&format!("transport=\"{used}\"")), "{log}");
        let doctor = syncline(&["doctor", "--state-dir", state]).ok();
        assert!(doctor.out.contains("shm to s0, shm to s1"), "{doctor:#?}");
        let told =
            command(&["doctor", "--state-dir", state]).env("SYNCLINE_TRANSPORT", used).output().unwrap();
        let told = Ended::from(told).ok();
        assert!(told.out.contains(&format!("{used} to s0, {used} to s1")), "{told:#?}");
    }
}

#[test]
fn a_transport_that_is_none_is_refused() {
    let refused = syncline(&["worker", "--transport", "udp"]).refused(2, "E437");
    assert!(refused.err.contains("`udp` is no transport"), "{refused:#?}");
    for name in ["doctor", "worker", "up"] {
        let told = command(&[name]).env("SYNCLINE_TRANSPORT", "udp").output().unwrap();
        let refused = Ended::from(told).refused(2, "E437");
        assert!(refused.err.contains("`udp` is no transport"), "{name}: {refused:#?}");
    }
}
