//! The parameters of a job on one worker.

use syncline_onnx::TensorView;
use syncline_scheduler::spec::{ElementRange, ParameterKind, TrainSpec};

/// The parameters to compute on: one flat array and the tensors in it.
pub(super) struct Parameters {
    pub values: Vec<f32>,
    pub tensors: Vec<(String, Vec<usize>, ElementRange)>,
    /// How many of the tensors an optimizer moves; those behind are buffers.
    pub trained: usize,
}

impl Parameters {
    /// All zero, as the job's layout has them.
    pub(super) fn new(train: &TrainSpec) -> Self {
        let shape = |dims: &[u64]| dims.iter().map(|&d| d as usize).collect();
        let tensors: Vec<(String, Vec<usize>, ElementRange)> =
            train.model.layout.ranges().map(|(p, range)| (p.name.clone(), shape(&p.shape), range)).collect();
        let elements = tensors.last().map_or(0, |(.., range)| range.end);
        let trained = train.model.layout.0.iter().filter(|p| p.kind == ParameterKind::Trained).count();
        Self { values: vec![0.0; elements as usize], tensors, trained }
    }

    /// Elements in front of the buffers.
    pub(super) fn trained_elements(&self) -> usize {
        self.tensors[..self.trained].last().map_or(0, |(.., range)| range.end as usize)
    }

    /// All of them as inputs of a graph. Nothing is copied.
    pub(super) fn inputs(&self) -> impl Iterator<Item = (&str, TensorView<'_>)> {
        self.tensors.iter().map(|(name, shape, range)| {
            let data = &self.values[range.start as usize..range.end as usize];
            (name.as_str(), TensorView::F32 { shape, data })
        })
    }

    /// Whether a value of this name is one of them.
    pub(super) fn holds(&self, name: &str) -> bool {
        self.tensors.iter().any(|(parameter, ..)| parameter == name)
    }
}
