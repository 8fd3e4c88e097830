//! Derives training graphs of hostile files. Needs ONNX Runtime, which is found as the binary `syncline` finds it.

#![no_main]

#[path = "../../workers/autodiff/tests/support/hostile.rs"]
mod hostile;
#[path = "../../workers/autodiff/tests/support/mutation.rs"]
mod mutation;
#[path = "../../workers/tests/support/onnxruntime.rs"]
mod onnxruntime;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(
    init: {
        // The panics of `ort` are caught where it is called; libFuzzer would end the process at every one.
        let end = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !panic.location().is_some_and(|at| at.file().contains("/ort-2")) {
                end(panic);
            }
        }));
    },
    |bytes: &[u8]| hostile::transform(&onnxruntime::runtime(), bytes)
);

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutation::in_place(data, size, max_size, seed, fuzzer_mutate)
});
