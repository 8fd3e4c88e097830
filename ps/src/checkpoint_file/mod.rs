//! A checkpoint as one file, for another job, another number of shards, or people: safetensors, in this
//! order.
//!
//! | tensors | what | how many |
//! |---|---|---|
//! | `NAME` | the parameters, in the order of the layout | all |
//! | `optimizer.first/NAME` | velocity, or first moment | of trained ones, with momentum and Adam |
//! | `optimizer.second/NAME` | second moment | of trained ones, with Adam |
//!
//! What else another training has to know is JSON under `syncline.checkpoint` in the file's metadata:
//! [`CheckpointAbout`]. It has the BLAKE3 of each of the three sections, and under
//! `syncline.checkpoint.digest` stands its own, so that no flipped bit becomes a weight or a sample that
//! counts twice. Who changes numbers on purpose takes `digests` out, and that entry.

mod sections;
mod write;

pub(crate) use sections::{Piece, Sections};
pub use write::write_checkpoint_file;

use std::io;

use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};
use syncline_scheduler::{
    ids::ContentDigest,
    spec::{DataSpec, Layout, Optimizer, ResumeSpec, Split},
};

use crate::content::digest_of;

/// Name of the entry in the metadata.
const ABOUT: &str = "syncline.checkpoint";
/// The entry with the digest of that one's text.
const ABOUT_DIGEST: &str = "syncline.checkpoint.digest";
/// Of the entry.
const FORMAT: u32 = 1;

/// In front of the names of the optimizer's moments.
const MOMENTS: [&str; 2] = ["optimizer.first/", "optimizer.second/"];

/// Whether a tensor of a checkpoint file is the optimizer's and no parameter.
pub fn is_moment(name: &str) -> bool {
    MOMENTS.iter().any(|moment| name.starts_with(moment))
}

/// What a checkpoint file says beside its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointAbout {
    format: u32,
    /// The rule whose state it is.
    pub optimizer: Optimizer,
    /// Names, shapes and kinds of all parameters, in the order of their numbers in the file.
    pub layout: Layout,
    /// Where that training stood: its samples, its iterations, and the steps of its optimizer.
    pub resume: ResumeSpec,
    /// Of which samples it learned; `None`: of a release that did not note it.
    #[serde(default)]
    pub samples: Option<CheckpointSamples>,
    /// Of the values, and of each of the optimizer's moments, in hex. Not checked where there are none.
    #[serde(default)]
    digests: Vec<ContentDigest>,
}

/// Which samples a training was given: by their number alone others are taken for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointSamples {
    /// BLAKE3 of all files of its data.
    pub digest: Option<ContentDigest>,
    /// Which of them test.
    pub split: Split,
    /// How many validate.
    pub validation_percent: Option<u32>,
    /// What chose these, where any were chosen.
    pub hold_out_seed: Option<u64>,
}

impl CheckpointSamples {
    /// Those of a training with this seed.
    pub fn of(data: &DataSpec, seed: u64) -> Self {
        let hold_out_seed = match (data.split, data.validation_percent) {
            (Split::TestPercent(_), _) => Some(data.hold_out_seed.unwrap_or_default()),
            (_, Some(_)) => Some(data.hold_out_seed.unwrap_or(seed)),
            _ => None,
        };
        let DataSpec { digest, split, validation_percent, .. } = data;
        Self { digest: *digest, split: *split, validation_percent: *validation_percent, hold_out_seed }
    }
}

impl CheckpointAbout {
    /// Reads and checks the head of a file, and that its numbers are those that were written. Cost: a pass
    /// over the file.
    ///
    /// # Errors
    /// Invalid data, with what is wrong in words.
    pub fn read(file: &[u8]) -> io::Result<Self> {
        let damaged = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let (header, metadata) = SafeTensors::read_metadata(file)
            .map_err(|e| damaged(format!("it is no safetensors file: {e}")))?;
        let entry = |name: &str| metadata.metadata().as_ref().and_then(|entries| entries.get(name));
        let Some(about) = entry(ABOUT) else {
            return Err(damaged("it holds weights and no checkpoint".into()));
        };
        if entry(ABOUT_DIGEST).is_some_and(|digest| *digest != digest_of(about.as_bytes()).to_string()) {
            return Err(damaged(
                "what it says of the training is not what was written: it was damaged or changed".into(),
            ));
        }
        let about: Self = serde_json::from_str(about)
            .map_err(|e| damaged(format!("it was written by another release, or changed: {e}")))?;
        if about.format != FORMAT {
            return Err(damaged(format!("it has format {}, this release reads {FORMAT}", about.format)));
        }
        let sections = Sections::new(8 + header as u64, &about.layout, &about.optimizer);
        let Some(sections) = sections.filter(|sections| sections.end() == file.len() as u64) else {
            return Err(damaged(format!("its parameters do not make up its {} bytes", file.len())));
        };
        let digest = |piece: Piece| {
            let (start, end) = (piece.offset as usize, (piece.offset + piece.bytes) as usize);
            digest_of(&file[start..end])
        };
        if !about.digests.is_empty() && !sections.whole().map(digest).eq(about.digests.iter().copied()) {
            return Err(damaged(
                "its numbers are not those that were written: it was damaged or changed".into(),
            ));
        }
        Ok(about)
    }
}
