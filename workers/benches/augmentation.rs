//! What it takes to gather a batch of images as they are, and as they train with `augment`.
//!
//! All cases run in turn in every round, and medians are shown. `cargo bench -p syncline-workers --bench
//! augmentation -- --rounds 51`

use std::{env, error::Error, fs, hint::black_box, time::Instant};

use clap::Parser;
use syncline_scheduler::spec::{Augment, DataElement, DataSpec, Source};
use syncline_workers::data::{Dataset, InputSignature, ModelSignature, Pass};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Images of the size of CIFAR-10, more than caches hold.
const SAMPLES: u32 = 10_000;
const SHAPE: [usize; 3] = [3, 32, 32];
const PIXELS: usize = 3 * 32 * 32;

#[derive(Parser)]
#[command(name = "augmentation")]
struct Flags {
    /// Samples of a batch
    #[arg(long, default_value_t = 32)]
    batch: usize,
    /// Rounds in which every case runs
    #[arg(long, default_value_t = 51)]
    rounds: usize,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Outcome<()> {
    // `cargo test --all-targets` only wants to know that this compiles.
    if env::args().len() < 2 {
        return Ok(());
    }
    let flags = Flags::parse();
    let dir = tempfile::tempdir()?;
    let off = Augment::default();
    let cases = [
        ("as they are", off),
        ("flip", Augment { flip: true, ..off }),
        ("crop 4", Augment { crop: 4, ..off }),
        ("flip, crop 4", Augment { flip: true, crop: 4, ..off }),
        ("flip, crop 4, cutout 8", Augment { flip: true, crop: 4, cutout: 8 }),
    ];
    for (stored, is_bytes) in [("bytes", true), ("floats", false)] {
        let path = dir.path().join(stored);
        write(&path, is_bytes)?;
        let sets = cases.map(|(_, augment)| open(&path, augment));
        let mut us = cases.map(|_| Vec::with_capacity(flags.rounds));
        for round in 0..flags.rounds {
            for (set, us) in sets.iter().zip(&mut us) {
                us.push(gathering(set.as_ref().map_err(ToString::to_string)?, flags.batch, round as u32)?);
            }
        }
        for ((name, _), us) in cases.iter().zip(&mut us) {
            us.sort_by(f64::total_cmp);
            println!("{stored:<7} {name:<24} {:>8.1} us a batch of {}", us[us.len() / 2], flags.batch);
        }
    }
    Ok(())
}

fn write(path: &std::path::Path, is_bytes: bool) -> Outcome<()> {
    let bytes: Vec<u8> = (0..SAMPLES as usize * PIXELS).map(|at| (at * at / 7) as u8).collect();
    let floats: Vec<u8> = match is_bytes {
        true => Vec::new(),
        false => bytes.iter().flat_map(|&byte| f32::from(byte).to_le_bytes()).collect(),
    };
    let (dtype, data) =
        if is_bytes { (safetensors::Dtype::U8, &bytes) } else { (safetensors::Dtype::F32, &floats) };
    let shape = [&[SAMPLES as usize], &SHAPE[..]].concat();
    let view = safetensors::tensor::TensorView::new(dtype, shape, data)?;
    Ok(fs::write(path, safetensors::serialize([("x", view)], None)?)?)
}

fn open(path: &std::path::Path, augment: Augment) -> Outcome<Dataset> {
    let spec = DataSpec::new(Source::safetensors(path)).with(|d| {
        (d.scale, d.augment) = (1.0 / 255.0, augment);
        (d.mean, d.std) = (vec![0.4914, 0.4822, 0.4465], vec![0.2470, 0.2435, 0.2616]);
    });
    let shape = SHAPE.map(Some).to_vec();
    let input = InputSignature { name: "x".to_owned(), element: DataElement::F32, shape, rows: Vec::new() };
    Ok(Dataset::open(&spec, &ModelSignature { inputs: vec![input], label: None })?)
}

/// Microseconds for a batch, over some batches of samples that lie apart.
fn gathering(set: &Dataset, size: usize, epoch: u32) -> Outcome<f64> {
    const BATCHES: usize = 20;
    let mut batch = set.batch();
    let rows =
        |n: usize| (0..size).map(move |at| ((n * size + at) * 7_919 % SAMPLES as usize) as u32).collect();
    let batches: Vec<Vec<u32>> = (0..=BATCHES).map(rows).collect();
    // The first one allocates.
    set.gather_to_train(&batches[0], Pass { seed: 0, epoch }, &mut batch)?;
    let began = Instant::now();
    for rows in &batches[1..] {
        set.gather_to_train(rows, Pass { seed: 0, epoch }, &mut batch)?;
        black_box(&batch);
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / BATCHES as f64)
}
