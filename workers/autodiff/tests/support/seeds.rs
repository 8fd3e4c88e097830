//! Keeps the models of tests as seeds of the fuzz targets, see `fuzz/README.md`.

use std::path::Path;

use syncline_onnx::ModelProto;

/// Writes the model if the environment names a folder for it.
pub fn write_seed(name: &str, model: &ModelProto) {
    if let Some(folder) = std::env::var_os("SYNCLINE_WRITE_SEEDS") {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let file = format!("{}.onnx", name.chars().map(plain).collect::<String>());
        let path = Path::new(&folder).join(file);
        std::fs::write(&path, model.to_bytes()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}
