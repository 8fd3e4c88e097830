//! Derives the training graph of an ONNX model: `cargo run -p syncline-autodiff --example derive --
//! MODEL.onnx OUT.onnx`.
//!
//! Without arguments it takes a small perceptron and writes nothing.

use std::{env, error::Error, fs};

use syncline_autodiff::{DeriveOptions, GRAD_SUFFIX, Loss, derive};
use syncline_runtime::Runtime;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let model = match args.next() {
        Some(path) => fs::read(path)?,
        None => syncline_onnx::mlp(&[784, 64, 10], 0).to_bytes(),
    };
    // Anything that implements `syncline_onnx::Compiler` does; here it is ONNX Runtime, found or fetched.
    let library = syncline_kit::onnxruntime(&|line| eprintln!("{line}"))?;
    let compiler = Runtime::load(&library.path)?;

    let graph = derive(&compiler, &model, Loss::SoftmaxCrossEntropy, &DeriveOptions::default())?;
    for input in graph.data_inputs.iter().chain(&graph.label) {
        println!("input  {} {:?}", input.name, input.dims);
    }
    for param in &graph.params {
        println!("output {}{GRAD_SUFFIX} {:?}", param.name, param.shape);
    }
    if let Some(path) = args.next() {
        fs::write(path, graph.with_first_values()?)?;
    }
    Ok(())
}
