//! A machine that lacks something: `doctor` and whoever needs it name it, with what to do.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    process::Stdio,
};

use super::rig::{Killed, command_by, wait_until};

/// What starts a program that may have few files and connections open.
const FEW_FILES: [&str; 4] = ["sh", "-c", "ulimit -n 64; exec \"$@\"", "sh"];
/// More connections than that, for much longer than a shard waits for each to greet.
const CALLERS: usize = 400;

#[test]
fn a_shard_without_a_descriptor_says_so_and_serves_again_when_it_has_one() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let text = || fs::read_to_string(&log).unwrap();
    let state = dir.path().to_str().unwrap();
    let args =
        ["ps", "--engine", "127.0.0.1:1", "--state-dir", state, "--listen", "127.0.0.1:0", "--shard", "0/1"];
    let mut shard = command_by(&FEW_FILES, &args);
    shard.env("SYNCLINE_LOG", "debug").stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
    let mut shard = Killed::start(&mut shard);
    let mut line = String::new();
    BufReader::new(shard.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening ").unwrap().to_owned();
    let callers: Vec<TcpStream> = (0..CALLERS).map(|_| TcpStream::connect(&address).unwrap()).collect();
    // The one that accepts, and the one that calls the engine.
    for whose in ["callers wait until a connection ends", "still waiting"] {
        let told = |line: &str| line.contains(whose) && line.contains("[E665]");
        wait_until(whose, || text().lines().any(told));
        let line = text().lines().find(|line| told(line)).unwrap().to_owned();
        assert!(line.contains("this process may have 64 open") && !line.contains("[E426]"), "{line}");
    }
    drop(callers);
    // A greeting of another program is refused as such, which takes a connection.
    wait_until("it serves again", || {
        let mut caller = TcpStream::connect(&address).unwrap();
        let _ = caller.write_all(&[b'x'; 512]);
        text().contains("caller refused")
    });
}
