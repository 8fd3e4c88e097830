//! How many channels ONNX Runtime's nchwc_op kernels keep side by side on this machine.

use std::sync::OnceLock;

use syncline_onnx::proto::OperatorSetIdProto;
use syncline_onnx::{ElementType, GraphBuilder};

use super::DOMAIN;
use crate::error::BackendError;
use crate::runtime::Runtime;
use crate::session::{ExecOptions, Optimize, compile};
use syncline_onnx::TensorView;

use crate::view::bind;

/// Channels of the image that is tried: no processor has registers as narrow.
const CHANNELS: usize = 4;

/// Channels in a block, 8 or 16; `None` where there are no nchwc_op kernels.
///
/// Found once per process by running one node: it fills an image of few channels up to a block.
pub(crate) fn lanes(runtime: &Runtime) -> Option<i64> {
    static FOUND: OnceLock<Option<i64>> = OnceLock::new();
    *FOUND.get_or_init(|| measure(runtime).ok().filter(|lanes| *lanes > CHANNELS as i64))
}

fn measure(runtime: &Runtime) -> Result<i64, BackendError> {
    let mut graph = GraphBuilder::new("lanes");
    let x = graph.input("x", ElementType::F32, &[1.into(), CHANNELS.into(), 1.into(), 1.into()]);
    let y = graph.op("ReorderInput", &[&x], &[]);
    graph.output(&y);
    let mut model = graph.finish();
    model.opset_import.push(OperatorSetIdProto { domain: DOMAIN.to_owned(), version: 1 });
    for node in model.graph.iter_mut().flat_map(|graph| &mut graph.node) {
        DOMAIN.clone_into(&mut node.domain);
    }
    let options = ExecOptions { optimize: Optimize::Off, ..ExecOptions::default() };
    let mut session = compile(runtime, model, &options, Ok)?;
    let data = [0.0; CHANNELS];
    let x = bind(TensorView::F32 { shape: &[1, CHANNELS, 1, 1], data: &data }, "x")?;
    let outputs = session.run([x]).map_err(|source| BackendError::Run { reason: source.to_string() })?;
    let channels = outputs[0].dtype().tensor_shape().and_then(|shape| shape.get(1).copied());
    channels.ok_or_else(|| BackendError::Run { reason: "an image without channels".to_owned() })
}
