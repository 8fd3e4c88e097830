//! Reads hostile files.

#![no_main]

#[path = "../../workers/autodiff/tests/support/hostile.rs"]
mod hostile;
#[path = "../../workers/autodiff/tests/support/mutation.rs"]
mod mutation;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|bytes: &[u8]| hostile::load(bytes));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutation::in_place(data, size, max_size, seed, fuzzer_mutate)
});
