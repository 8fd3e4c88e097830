//! Classifies images in batches: one task per batch, which runs a trained model.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
};

use flate2::read::GzDecoder;
use syncline::{OnnxModel, RUN_MODEL, TaskGraph, TaskHandle, Tensor, TensorError};

use crate::files;

const PIXELS: usize = 64;
/// Images of one task.
const BATCH: usize = 50;

/// A task that gives the scores of one batch: rows of ten, in a list of one tensor.
pub type Scores = TaskHandle<Vec<Tensor>>;

/// Handwritten digits, and what they are.
#[derive(Debug)]
pub struct Images {
    /// 64 pixels of each, from 0 to 1.
    pub pixels: Vec<f32>,
    /// The digit that each is, 0 to 9.
    pub labels: Vec<usize>,
}

/// The images that the example [`digits`](crate::digits) does not train on: every fifth.
pub fn test_images() -> io::Result<Images> {
    let file = BufReader::new(GzDecoder::new(File::open(files::samples("digits.csv.gz"))?));
    let mut images = Images { pixels: Vec::new(), labels: Vec::new() };
    for line in file.lines().step_by(5) {
        let line = line?;
        let numbers: Result<Vec<u8>, _> = line.split(',').map(str::parse).collect();
        let numbers = numbers.map_err(io::Error::other)?;
        let [pixels @ .., label] = &numbers[..] else { continue };
        images.pixels.extend(pixels.iter().map(|pixel| f32::from(*pixel) / 16.0));
        images.labels.push((*label).into());
    }
    Ok(images)
}

/// The graph, and the tasks of its batches.
pub fn graph(id: &str, model: OnnxModel, images: &Images) -> Result<(TaskGraph, Vec<Scores>), TensorError> {
    let mut graph = TaskGraph::new(id);
    let mut scores = Vec::new();
    for pixels in images.pixels.chunks(BATCH * PIXELS) {
        let batch = Tensor::new([pixels.len() / PIXELS, PIXELS], pixels.to_vec())?;
        scores.push(graph.call(RUN_MODEL, (model, vec![batch])));
    }
    Ok((graph, scores))
}

/// The class with the highest score in each row.
pub fn classes(scores: &Tensor) -> Result<Vec<usize>, TensorError> {
    let width = scores.shape().last().copied().unwrap_or(1).max(1);
    let highest = |row: &[f32]| (0..width).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap_or(0);
    Ok(scores.values()?.chunks(width).map(highest).collect())
}
