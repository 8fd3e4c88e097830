//! Blocks of pixels to channels and back (SpaceToDepth, DepthToSpace): each undoes the other.
//!
//! SpaceToDepth knows one order of channels, [block row, block column, channel]. For mode CRD of
//! DepthToSpace, which has the channel first, the channels are put in that order afterwards.

use syncline_onnx::{attr_int, attr_string};

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

/// Most channels; the rule writes a constant with a number for each.
const MOST_CHANNELS: i64 = 1 << 24;

/// Gradient of DepthToSpace.
pub(super) fn to_space(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let block = n.node.int("blocksize", 1);
    let dx = n.emitter.op("SpaceToDepth", &[dy], &[attr_int("blocksize", block)]);
    if n.node.string("mode", "DCR") == "DCR" {
        return Ok(vec![Some(dx)]);
    }
    let channels = n.dims(n.output())?.get(1).and_then(|dim| i64::try_from(dim.fixed()?).ok());
    let channels = channels.ok_or_else(|| n.refuse("the number of channels is open".to_owned()))?;
    let cells = block.saturating_mul(block);
    if cells.saturating_mul(channels) > MOST_CHANNELS {
        return Err(n.refuse(format!("it takes {cells} times {channels} channels apart")));
    }
    let order: Vec<i64> =
        (0..channels).flat_map(|channel| (0..cells).map(move |cell| cell * channels + channel)).collect();
    let order = n.emitter.ints(&order);
    Ok(vec![Some(n.emitter.op("Gather", &[&dx, &order], &[attr_int("axis", 1)]))])
}

/// Gradient of SpaceToDepth.
pub(super) fn to_depth(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let attributes = [attr_int("blocksize", n.node.int("blocksize", 1)), attr_string("mode", "DCR")];
    Ok(vec![Some(n.emitter.op("DepthToSpace", &[dy], &attributes))])
}
