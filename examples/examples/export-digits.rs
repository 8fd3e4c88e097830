//! Writes the forward model that `examples/jobs/digits.toml` names.

use std::{fs, path::Path};

fn main() -> std::io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/digits.onnx");
    fs::write(&path, syncline::onnx::mlp(&[64, 256, 10], 0).to_bytes())?;
    println!("{}", path.display());
    Ok(())
}
