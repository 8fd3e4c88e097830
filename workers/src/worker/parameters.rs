//! The parameters of a job on one worker.

use syncline_onnx::TensorView;
use syncline_ps::client::ShardSet;
use syncline_scheduler::spec::{ElementRange, Layout, Parameter, StepSettings};

use super::batch_rows::BatchRows;

/// A parameter or buffer.
#[derive(Clone)]
pub(super) struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
    /// Where its values lie among all.
    pub range: ElementRange,
}

/// The parameters to compute on: one flat array and the tensors in it.
pub(super) struct Parameters {
    /// What was received; what shards lend stays with them, see [`Parameters::inputs_lent`].
    pub values: Vec<f32>,
    pub tensors: Vec<Tensor>,
    /// How many of the tensors an optimizer moves; those behind are buffers.
    pub trained: usize,
    /// How the steps of each of these differ from those of the optimizer.
    pub settings: Vec<StepSettings>,
}

impl Parameters {
    /// All zero, as the job's layout has them; of a table without rows nothing, until [`Parameters::resize`]
    /// is told of some.
    pub(super) fn new(layout: &Layout, rows: Option<&BatchRows>) -> Self {
        let shape = |dims: &[u64]| dims.iter().map(|&d| d as usize).collect();
        let tensor =
            |(p, range): (&Parameter, _)| Tensor { name: p.name.clone(), shape: shape(&p.shape), range };
        let tensors: Vec<Tensor> = layout.ranges().map(tensor).collect();
        let settings: Vec<StepSettings> =
            layout.0.iter().filter(|p| p.is_trained()).map(|p| p.settings).collect();
        let mut params = Self { values: Vec::new(), tensors, trained: settings.len(), settings };
        match rows {
            Some(rows) => params.resize(layout, rows),
            // Without a pass over it: where shards lend all parameters, it is never touched.
            None => params.values = vec![0.0; params.elements()],
        }
        params
    }

    /// Makes room for the rows of a batch. What the values are then is to be pulled.
    pub(super) fn resize(&mut self, layout: &Layout, rows: &BatchRows) {
        let mut at = 0;
        for (parameter, Tensor { shape, range, .. }) in layout.0.iter().zip(&mut self.tensors) {
            if let (Some(group), Some(height)) = (parameter.row_group(), shape.first_mut()) {
                *height = rows.count(group);
            }
            let elements = shape.iter().product::<usize>() as u64;
            *range = ElementRange { start: at, end: at + elements };
            at = range.end;
        }
        self.values.resize(self.elements(), 0.0);
    }

    fn elements(&self) -> usize {
        self.tensors.last().map_or(0, |tensor| tensor.range.end as usize)
    }

    /// Elements in front of the buffers.
    pub(super) fn trained_elements(&self) -> usize {
        self.tensors[..self.trained].last().map_or(0, |tensor| tensor.range.end as usize)
    }

    /// All of them as inputs of a graph. Nothing is copied.
    pub(super) fn inputs(&self) -> impl Iterator<Item = (&str, TensorView<'_>)> {
        self.inputs_from(|range| &self.values[range.start as usize..range.end as usize])
    }

    /// The same; what `shards` lend is read where it lies.
    pub(super) fn inputs_lent<'a>(
        &'a self,
        shards: &'a ShardSet,
    ) -> impl Iterator<Item = (&'a str, TensorView<'a>)> {
        self.inputs_from(|range| shards.values(range, &self.values))
    }

    fn inputs_from<'a>(
        &'a self,
        values: impl Fn(ElementRange) -> &'a [f32],
    ) -> impl Iterator<Item = (&'a str, TensorView<'a>)> {
        self.tensors.iter().map(move |Tensor { name, shape, range }| {
            (name.as_str(), TensorView::F32 { shape, data: values(*range) })
        })
    }
}
