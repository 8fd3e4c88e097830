//! An annotation of a node: what a gradient of convolution weights is made of.

use serde::{Deserialize, Serialize};

use crate::proto::{NodeProto, StringStringEntryProto, metadata};

/// Key of the annotation of the node that makes a gradient of weights.
const KEY: &str = "syncline.weight_gradient";
/// What a gradient of weights is made of: an annotation of its last node, whose ordinary nodes say the same
/// at length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightGradient {
    /// Value of shape `[batch, channels per group, height, width]`.
    pub image: String,
    /// Value of shape `[batch, channels, height of the output, width of the output]`.
    pub signal: String,
    /// Shape of the weights, `[channels, channels per group, kernel...]`.
    pub weights: [i64; 4],
    /// Groups of channels of the convolution: 1, or as many as channels if it is depthwise.
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
    /// Positions of the window: the size of the output.
    pub output: i64,
    /// How far one position is from the next.
    pub stride: i64,
    /// How far one tap of the kernel is from the next.
    pub dilation: i64,
}

impl WeightGradient {
    /// The metadata to put on the node.
    pub fn metadata(&self) -> Vec<StringStringEntryProto> {
        let value = serde_json::to_string(self).ok();
        value.map(|value| StringStringEntryProto { key: KEY.to_owned(), value }).into_iter().collect()
    }

    /// What the annotation of a node says.
    pub fn of(node: &NodeProto) -> Option<Self> {
        serde_json::from_str(metadata(&node.metadata_props, KEY)?).ok()
    }
}
