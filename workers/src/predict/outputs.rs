//! What a forward model gives for each sample of a batch.

use syncline_onnx::{TensorView, proto::ValueInfoProto};
use syncline_runtime::Outputs;

/// One output, for some samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Name in the model.
    pub name: String,
    /// Sizes of a sample's axes.
    pub shape: Vec<usize>,
    /// Whether the model gives float32, as losses look at.
    pub is_float32: bool,
    /// All numbers, sample by sample; integers and float64 as float32.
    pub values: Vec<f32>,
}

/// A model with one of its inner values as one more output, behind the others; `None` if it has no such
/// value, or gives it already.
pub(super) fn with_inner_value(onnx: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut model = syncline_onnx::parse(onnx).ok()?;
    let graph = model.graph.as_mut()?;
    let is_made = graph.node.iter().any(|node| node.output.iter().any(|output| output == name));
    let is_given = graph.output.iter().any(|output| output.name == name);
    if !is_made || is_given {
        return None;
    }
    graph.output.push(ValueInfoProto::untyped(name.to_owned()));
    Some(model.to_bytes())
}

impl Output {
    /// The output at a place of the model, if it is numbers with a row for each sample; the rows behind the
    /// first `wanted` are left out.
    pub(super) fn of(
        found: &Outputs<'_>,
        at: usize,
        name: &str,
        samples: usize,
        wanted: usize,
    ) -> Option<Self> {
        let mut dims = Vec::new();
        let view = found.view_at(at, &mut dims).ok()?;
        let (&rows, shape) = view.shape().split_first()?;
        let width: usize = shape.iter().product();
        if rows != samples || width == 0 {
            return None;
        }
        let taken = wanted * width;
        let values: Vec<f32> = match view {
            TensorView::F32 { data, .. } => data[..taken].to_vec(),
            TensorView::F64 { data, .. } => data[..taken].iter().map(|&number| number as f32).collect(),
            TensorView::I32 { data, .. } => data[..taken].iter().map(|&number| number as f32).collect(),
            TensorView::I64 { data, .. } => data[..taken].iter().map(|&number| number as f32).collect(),
            TensorView::U8 { data, .. } => data[..taken].iter().map(|&number| f32::from(number)).collect(),
            TensorView::Bool { data, .. } => {
                data[..taken].iter().map(|&is| f32::from(u8::from(is))).collect()
            }
        };
        let is_float32 = matches!(view, TensorView::F32 { .. });
        let (name, shape) = (name.to_owned(), shape.to_vec());
        Some(Self { name, shape, is_float32, values })
    }

    /// The one that a loss looks at: of this name, or else the first of float32.
    pub(super) fn of_loss<'a>(outputs: &'a [Self], name: Option<&str>) -> Option<&'a Self> {
        outputs.iter().find(|output| name.map_or(output.is_float32, |name| name == output.name))
    }

    /// How many samples have a number that is none.
    pub(super) fn nan_samples(&self) -> u64 {
        let is_nan = |sample: &&[f32]| sample.iter().any(|number| number.is_nan());
        self.values.chunks(self.width().max(1)).filter(is_nan).count() as u64
    }

    /// Numbers of a sample.
    pub fn width(&self) -> usize {
        self.shape.iter().product()
    }
}
