//! Mixed precision: the heavy part of a training graph in 16 bits, everything that decides about numbers in
//! 32.
//!
//! In: a finished training graph in float32. Out: the same interface (parameters, gradients, loss, metrics
//! and running statistics stay float32), inside
//!
//! | what | type |
//! |---|---|
//! | products and convolutions | 16 bits; their operands are cast, parameters too |
//! | element by element and by position, between products | 16 bits |
//! | reductions, normalization, softmax, loss, squares, powers, quotients, what leads to none of the above | float32 |
//!
//! A value that a residual connection adds up from an embedding on stays float32.
//!
//! `autocast` draws the line. float16 has few exponents, see `loss_scale`; bfloat16 has those of float32, but
//! fewer operators of the standard and of ONNX Runtime's CUDA provider know it (docs/OperatorKernels.md of
//! ONNX Runtime). Source: Micikevicius et al., Mixed precision training, ICLR 2018, arXiv:1710.03740.

mod autocast;
mod casts;
mod loss_scale;

pub use self::loss_scale::FIRST_LOSS_SCALE;
pub(crate) use self::loss_scale::{scale_loss, unscale};

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use syncline_onnx::proto::ModelProto;
use syncline_onnx::{ElementType, TensorType, Types};

use crate::error::AutodiffError;
use crate::training_graph::Param;
use autocast::{Table, low_nodes};
use casts::with_casts;

/// Element type of the heavy part of a training graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// float32 throughout: nothing is lowered.
    #[default]
    F32,
    /// float32 throughout, as above: the graph is the same. Where a device has tensor cores for it, products
    /// may round their factors to TensorFloat-32, with 10 bits of mantissa; that is up to the session
    /// that runs the graph.
    Tf32,
    /// bfloat16: the exponents of float32, so that the loss needs no scale.
    Bf16,
    /// float16: few exponents, so that the graph has an input [`LOSS_SCALE`](crate::LOSS_SCALE).
    Fp16,
}

impl Precision {
    /// The name that jobs and flags use.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
        }
    }

    /// Whether a graph of this precision has values of 16 bits.
    pub fn is_half(self) -> bool {
        matches!(self, Self::Bf16 | Self::Fp16)
    }
}

impl FromStr for Precision {
    type Err = AutodiffError;

    fn from_str(name: &str) -> Result<Self, AutodiffError> {
        let all = [Self::F32, Self::Tf32, Self::Bf16, Self::Fp16];
        let found = all.into_iter().find(|precision| precision.name() == name);
        found.ok_or_else(|| AutodiffError::UnknownPrecision { name: name.to_owned() })
    }
}

/// Lets the heavy part compute in 16 bits. `params`: inputs that may be rounded. Whatever the precision, the
/// type that is written is float16, which ONNX Runtime can check on every machine; see [`write_bf16`].
pub(crate) fn lower(
    model: &mut ModelProto,
    types: &Types,
    precision: Precision,
    params: &[Param],
) -> Result<(), AutodiffError> {
    let half = |ty: &TensorType| matches!(ty.element, ElementType::F16 | ElementType::Bf16);
    if let Some((value, _)) = types.iter().find(|(_, ty)| half(ty)) {
        return Err(AutodiffError::AlreadyHalf { value: value.clone() });
    }
    let table = Table { precision, opset: model.opset() };
    let graph = model.graph.take().unwrap_or_default();
    let low = low_nodes(&graph, types, &table, params);
    model.graph = Some(with_casts(graph, types, &low));
    Ok(())
}

/// Turns float16 into bfloat16, in a graph that [`lower`] wrote.
pub(crate) fn write_bf16(model: &mut ModelProto) {
    let (from, to) = (ElementType::F16.code(), ElementType::Bf16.code());
    let graph = model.graph.get_or_insert_default();
    let casts = graph.node.iter_mut().filter(|node| node.op_type == "Cast");
    for attribute in casts.flat_map(|node| &mut node.attribute) {
        if attribute.i == Some(from.into()) {
            attribute.i = Some(to.into());
        }
    }
    let declared = graph.value_info.iter_mut().filter_map(|info| info.r#type.as_mut()?.tensor_type.as_mut());
    declared.filter(|tensor| tensor.elem_type == from).for_each(|tensor| tensor.elem_type = to);
}
