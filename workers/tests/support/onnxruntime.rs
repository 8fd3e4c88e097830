//! The ONNX Runtime that tests run on.

use std::sync::OnceLock;

use syncline_runtime::Runtime;

/// Finds the library (fetching it if need be) and loads it, once per test process.
pub fn runtime() -> Runtime {
    static LOADED: OnceLock<Runtime> = OnceLock::new();
    LOADED.get_or_init(load).clone()
}

fn load() -> Runtime {
    let found = syncline_kit::onnxruntime(&|line| eprintln!("{line}"));
    let found = found.unwrap_or_else(|error| panic!("{error}\nhint: {}", error.hint().unwrap_or_default()));
    Runtime::load(&found.path)
        .unwrap_or_else(|error| panic!("{error}\nhint: {}", error.hint().unwrap_or_default()))
}
