//! A remark on a node: what a gradient of convolution weights is made of.

use serde::{Deserialize, Serialize};

use crate::proto::{NodeProto, StringStringEntryProto};

/// Name of the remark on the node that makes a gradient of weights.
const REMARK: &str = "syncline.weight_gradient";
/// What a gradient of weights is made of: a remark on its last node, whose ordinary nodes say the same at length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightGradient {
    /// Value of shape `[batch, channels per group, height, width]`.
    pub image: String,
    /// Value of shape `[batch, channels, height of the output, width of the output]`.
    pub signal: String,
    /// Shape of the weights, `[channels, channels per group, kernel...]`.
    pub weights: [i64; 4],
    pub group: i64,
    /// Height and width.
    pub axes: [Extent; 2],
}

/// The window along one axis, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Zeros in front of the image.
    pub begin: i64,
    /// Zeros behind the image that windows touch; negative if they leave some of the image out.
    pub end: i64,
    pub output: i64,
    pub stride: i64,
    pub dilation: i64,
}

impl WeightGradient {
    /// The remark to put on the node.
    pub fn remark(&self) -> Vec<StringStringEntryProto> {
        let value = serde_json::to_string(self).ok();
        value.map(|value| StringStringEntryProto { key: REMARK.to_owned(), value }).into_iter().collect()
    }

    /// What the remark of a node says.
    pub fn of(node: &NodeProto) -> Option<Self> {
        let remark = node.metadata_props.iter().find(|remark| remark.key == REMARK)?;
        serde_json::from_str(&remark.value).ok()
    }
}
