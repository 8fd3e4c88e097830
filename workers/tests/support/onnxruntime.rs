//! The ONNX Runtime that tests run on.

use std::path::PathBuf;

use syncline_workers::backend::Runtime;

/// Loads the library, once per test process.
pub fn runtime() -> Runtime {
    let path = PathBuf::from(std::env::var_os("ORT_DYLIB_PATH").expect("ORT_DYLIB_PATH names libonnxruntime.so"));
    Runtime::load(&path).unwrap_or_else(|error| panic!("{error}\nhint: {}", error.hint().unwrap_or("none")))
}
