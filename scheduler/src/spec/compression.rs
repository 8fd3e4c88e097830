//! How the gradients of a training travel from its workers to the shards.

use serde::{Deserialize, Serialize};

/// Largest share of a gradient that may be kept: beyond it, indices and values take as much as bytes as all
/// values do in 16 bits.
const MAX_TOP_K: f32 = 0.5;

/// What becomes of a gradient on its way. What an encoding loses, the worker adds to its next push (error
/// feedback).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// Sent as it is: float32.
    #[default]
    None,
    /// 16 bits each, with the range of float32.
    Bf16,
    /// 16 bits each, with more digits; what is beyond 65,504 waits for the next push.
    Fp16,
    /// 8 bits each, and a scale for every 256 of them.
    Int8,
    /// This share of the gradient: the largest values, each with its place.
    TopK(f32),
    /// Each worker tries 8 bits once and keeps to what is faster over its own link.
    Auto,
}

/// In how many bytes a worker pulls the parameters that it computes on; the shards keep float32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PullCompression {
    /// As they are: float32.
    #[default]
    None,
    /// 16 bits each, with the range of float32.
    Bf16,
    /// 16 bits each, with more digits; a parameter beyond 65,504 is computed on as that.
    Fp16,
}

impl std::fmt::Display for PullCompression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
        })
    }
}

impl Compression {
    /// What is wrong with it, in words.
    pub(super) fn fault(self) -> Option<String> {
        match self {
            Self::TopK(share) if !(share > 0.0 && share <= MAX_TOP_K) => {
                Some(format!("top-k {share}, expected a share above 0 and up to {MAX_TOP_K}"))
            }
            _ => None,
        }
    }
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Bf16 => f.write_str("bf16"),
            Self::Fp16 => f.write_str("fp16"),
            Self::Int8 => f.write_str("int8"),
            Self::TopK(share) => write!(f, "top-k:{share}"),
            Self::Auto => f.write_str("auto"),
        }
    }
}
