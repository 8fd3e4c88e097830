//! The ONNX Runtime that tests run on.

use syncline_engine::kit;
use syncline_workers::backend::Runtime;

/// Finds the library (fetching it if need be) and loads it, once per test process.
pub fn runtime() -> Runtime {
    let found = kit::onnxruntime(&|line| eprintln!("{line}"));
    let found = found.unwrap_or_else(|error| panic!("{error}\nhint: {}", error.hint()));
    Runtime::load(&found.path)
        .unwrap_or_else(|error| panic!("{error}\nhint: {}", error.hint().unwrap_or("none")))
}
