//! What is done to a hostile file: whatever it holds, this returns. Shared by the fuzz targets and an
//! ordinary test.

#![allow(dead_code, reason = "each of those who share it needs a part")]

use syncline_autodiff::{AutodiffError, DeriveOptions, Loss, accept_ready, derive, select};
use syncline_runtime::Runtime;

/// Reads the file; what was accepted once is accepted again, and unchanged.
pub fn load(bytes: &[u8]) {
    let Ok(model) = syncline_onnx::parse(bytes) else { return };
    let written = model.to_bytes();
    let again = syncline_onnx::parse(&written).expect("an accepted model is accepted again");
    assert!(again.to_bytes() == written, "reading changes an accepted model");
    let _ = select(&model, &DeriveOptions::default());
    for tensor in model.graph.iter().flat_map(|graph| &graph.initializer) {
        let _ = (tensor.to_f32(), tensor.to_i64());
    }
}

/// Derives a training graph, which has to be one, and takes the file itself for one. The file's bytes choose
/// loss and options, so that one file always means the same.
pub fn transform(runtime: &Runtime, bytes: &[u8]) {
    load(bytes);
    let choice = bytes.iter().fold(0u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let loss = Loss::ALL[(choice % Loss::ALL.len() as u64) as usize];
    let options = DeriveOptions {
        eval_mode: (choice & 0x100 != 0).into(),
        simplify: choice & 0x600 != 0,
        ..DeriveOptions::default()
    };
    match derive(runtime, bytes, loss, &options) {
        Ok(graph) => {
            let ready =
                accept_ready(runtime, &graph.with_first_values().expect("a derived graph is a model"), None)
                    .expect("a derived graph is a training graph");
            assert_eq!(ready.params.len(), graph.params.len());
        }
        Err(error) => check_error(&error),
    }
    if let Err(error) = accept_ready(runtime, bytes, None) {
        check_error(&error);
    }
}

/// Every refusal has its code in front, and no text as long as the file that provoked it could be.
fn check_error(error: &AutodiffError) {
    let text = error.to_string();
    assert!(text.contains(&format!("[{}]", error.code())), "{text}");
}
