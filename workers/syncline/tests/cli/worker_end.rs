//! The end of a worker.

use std::{fs, process::Stdio};

use crate::rig::{Killed, command, folder, kill, wait_until};

/// As glibc tells of its dynamic loader, in a file for each process: `exit` runs the destructors of what it
/// has loaded.
#[test]
fn a_worker_that_is_told_to_end_while_it_loads_onnx_runtime_does_not_take_it_down() {
    let dir = folder();
    let (token, loader) = (dir.path().join("token"), dir.path().join("loader"));
    fs::write(&token, "5a".repeat(32)).unwrap();
    let args = ["worker", "--threads", "1", "--engine", "127.0.0.1:1", "--token-file"];
    let mut worker = command(&[&args[..], &[token.to_str().unwrap()]].concat());
    worker.env("LD_DEBUG", "files").env("LD_DEBUG_OUTPUT", &loader);
    let worker = Killed::start(worker.stdout(Stdio::null()).stderr(Stdio::null()));
    let log = loader.with_extension(worker.id().to_string());
    let told = || fs::read_to_string(&log).unwrap_or_default();
    let begins = |line: &str| line.contains("calling init: ") && line.contains("libonnxruntime");
    wait_until("ONNX Runtime is loaded", || told().lines().any(begins));
    kill("TERM", worker.id());
    assert_eq!(worker.ended().code, 0);
    assert!(!told().contains("calling fini: "), "{}", told());
}
