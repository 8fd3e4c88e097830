//! How long it takes to derive a training graph, by depth: `cargo bench -p syncline-autodiff --bench derive`.
//!
//! Chains of Gemm and Relu, two parameters a layer. Time in ONNX Runtime is left out: its answers are
//! remembered from a first derivation. So twice the layers should take twice the time. That first one takes
//! minutes for the long chains, whose loads in ONNX Runtime take a time that grows with the square of the
//! nodes.

use std::cell::{LazyCell, RefCell};
use std::collections::HashMap;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use syncline_autodiff::{DeriveOptions, Loss, Precision, derive};
use syncline_onnx::{CompileError, Compiler, Types, mlp};
use syncline_runtime::Runtime;

const LAYERS: [usize; 4] = [500, 1000, 2000, 4000];
/// Of the graphs that are rewritten once more, which have several times the nodes.
const FEWER_LAYERS: [usize; 3] = [250, 500, 1000];
/// Small, so that numbers cost nothing beside nodes.
const WIDTH: usize = 2;

/// Answers a question that was asked before from memory.
struct Remembering {
    runtime: Runtime,
    interfaces: RefCell<HashMap<Vec<u8>, Types>>,
    folded: RefCell<HashMap<Vec<u8>, Types>>,
    simplified: RefCell<HashMap<Vec<u8>, Vec<u8>>>,
}

fn remembered<T: Clone>(
    answers: &RefCell<HashMap<Vec<u8>, T>>,
    model: &[u8],
    ask: impl FnOnce() -> Result<T, CompileError>,
) -> Result<T, CompileError> {
    if let Some(answer) = answers.borrow().get(model) {
        return Ok(answer.clone());
    }
    let answer = ask()?;
    answers.borrow_mut().insert(model.to_vec(), answer.clone());
    Ok(answer)
}

impl Compiler for Remembering {
    fn interface_types(&self, model: &[u8]) -> Result<Types, CompileError> {
        remembered(&self.interfaces, model, || self.runtime.interface_types(model))
    }

    fn folded_interface_types(&self, model: &[u8]) -> Result<Types, CompileError> {
        remembered(&self.folded, model, || self.runtime.folded_interface_types(model))
    }

    fn simplify(&self, model: &[u8]) -> Result<Vec<u8>, CompileError> {
        remembered(&self.simplified, model, || self.runtime.simplify(model))
    }
}

fn chains(criterion: &mut Criterion) {
    let library =
        syncline_kit::onnxruntime(&|line| eprintln!("{line}")).expect("ONNX Runtime is found or fetched");
    let plain = DeriveOptions::default();
    let settings = [
        ("plain", plain.clone(), LAYERS.as_slice()),
        ("fp16", DeriveOptions { precision: Precision::Fp16, ..plain.clone() }, &FEWER_LAYERS),
        ("recompute", DeriveOptions { recompute: true, ..plain }, &FEWER_LAYERS),
    ];
    for (name, options, sizes) in &settings {
        let mut group = criterion.benchmark_group(format!("derive/{name}"));
        group.sample_size(10);
        for &layers in *sizes {
            let model = mlp(&vec![WIDTH; layers + 1], 0).to_bytes();
            let run = |compiler: &Remembering| {
                derive(compiler, &model, Loss::SoftmaxCrossEntropy, options).expect("a chain has a gradient")
            };
            // Only for what the command line asks for.
            let compiler = LazyCell::new(|| {
                let compiler = Remembering {
                    runtime: Runtime::load(&library.path).expect("ONNX Runtime loads"),
                    interfaces: RefCell::default(),
                    folded: RefCell::default(),
                    simplified: RefCell::default(),
                };
                run(&compiler);
                compiler
            });
            group.bench_function(BenchmarkId::from_parameter(layers), |bencher| {
                bencher.iter(|| black_box(run(&compiler)));
            });
        }
    }
}

criterion_group!(benches, chains);
criterion_main!(benches);
