//! A checkpoint as one file, for another job, another number of shards, or people: safetensors, in this order.
//!
//! | tensors | what | how many |
//! |---|---|---|
//! | `NAME` | the parameters, in the order of the layout | all |
//! | `optimizer.first/NAME` | velocity, or first moment | of trained ones, with momentum and Adam |
//! | `optimizer.second/NAME` | second moment | of trained ones, with Adam |
//!
//! What else another training has to know is JSON under `syncline.checkpoint` in the file's metadata: [`CheckpointAbout`].

mod sections;
mod write;

pub(crate) use sections::{Piece, Sections};
pub use write::write_checkpoint_file;

use std::io;

use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};
use syncline_scheduler::spec::{Layout, Optimizer, ResumeSpec};

/// Name of the entry in the metadata.
const ABOUT: &str = "syncline.checkpoint";
/// Of the entry.
const FORMAT: u32 = 1;

/// What a checkpoint file says beside its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointAbout {
    format: u32,
    /// The rule whose state it is.
    pub optimizer: Optimizer,
    pub layout: Layout,
    pub resume: ResumeSpec,
}

impl CheckpointAbout {
    /// Reads and checks the head of a file, and that its numbers are there.
    ///
    /// # Errors
    /// Invalid data, with what is wrong in words.
    pub fn read(file: &[u8]) -> io::Result<Self> {
        let damaged = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let (header, metadata) = SafeTensors::read_metadata(file)
            .map_err(|e| damaged(format!("it is no safetensors file: {e}")))?;
        let about = metadata.metadata().as_ref().and_then(|entries| entries.get(ABOUT));
        let Some(about) = about else {
            return Err(damaged("it holds weights and no checkpoint".into()));
        };
        let about: Self = serde_json::from_str(about)
            .map_err(|e| damaged(format!("it was written by another release, or changed: {e}")))?;
        if about.format != FORMAT {
            return Err(damaged(format!("it has format {}, this release reads {FORMAT}", about.format)));
        }
        let sections = Sections::new(8 + header as u64, &about.layout, &about.optimizer);
        match sections.map(|sections| sections.end()) {
            Some(end) if end == file.len() as u64 => Ok(about),
            _ => Err(damaged(format!("its parameters do not make up its {} bytes", file.len()))),
        }
    }
}
