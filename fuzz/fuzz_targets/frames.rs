//! Reads what a hostile peer could send to a shard, a worker or a client, and what could lie in a checkpoint file.

#![no_main]

#[path = "../../ps/tests/support/hostile_bytes.rs"]
mod hostile_bytes;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| hostile_bytes::read(bytes));
