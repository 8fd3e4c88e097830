//! What parent and child say to each other: postcard in frames with a length of eight bytes in front.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_bytes::ByteBuf;

use syncline_autodiff::{DeriveOptions, Estimate, Loss, Precision, TrainingGraph, derive};
use syncline_runtime::{Runtime, lacks_kernel};
use syncline_scheduler::fault_code::FaultCode;

use super::error::ModelError;
use crate::batch_axis::{BatchAxis, open_batch};
use crate::check::{CheckOptions, Checked, SampleShapes, Verdict, quick_check};

/// First argument of a child: what it starts may inherit the variable, and does not have this.
pub(super) const CHILD_ARGUMENT: &str = "syncline-model-process";
/// Environment variable of a child: the process id of the parent.
pub(super) const PARENT_PID_VARIABLE: &str = "SYNCLINE_MODEL_PROCESS";

/// What a child is to do with a model, which comes behind it in a frame of its own: it may be a gigabyte, and
/// is not copied for that.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// The ONNX Runtime to load.
    pub(super) library: std::path::PathBuf,
    pub(super) work: Work,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Work {
    /// Derive the training graph.
    Derive { loss: Loss, options: Box<DeriveOptions>, checks: ModelChecks },
    /// Take the model as a training graph, with these first values; look at its gradients if asked.
    Ready { weights: Option<ByteBuf>, check_gradients: bool },
    /// Compare all gradients; the model is a training graph, with these first values, if no loss is named.
    Check { loss: Option<(Loss, Box<DeriveOptions>)>, weights: Option<ByteBuf>, how: CheckOptions },
    /// Say what a run of a training graph costs on a batch of so many samples of these shapes.
    Cost { batch: usize, sample_shapes: SampleShapes },
    /// Load the first nodes.
    Load { nodes: usize },
    /// Load all of it, as a worker that runs it does.
    LoadWhole,
}

/// What a child says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Event {
    /// It begins something, as in "simplify the model".
    Stage(String),
    Done(Result<Answer, ChildError>),
}

/// What came of the work.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Graph(Box<Derived>),
    Checked(Checked),
    Cost(Estimate),
    Loaded,
}

/// What is refused besides what cannot be trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelChecks {
    /// A graph whose gradients are not those of its loss, see [`quick_check`].
    pub gradients: bool,
    /// A model that takes batches of one size only, see [`open_batch`].
    pub batch_axis: bool,
}

/// A model that was exported for batches of one size and takes any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DynamicBatch {
    /// Samples of a batch in the model as it was exported.
    pub exported_size: usize,
    /// The forward model with an open first axis, as bytes of a `.onnx` file.
    #[serde(with = "serde_bytes")]
    pub onnx: Vec<u8>,
}

/// A training graph that has been loaded and looked at.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Derived {
    /// Derived, or accepted as it was given.
    pub graph: TrainingGraph,
    /// The model that it was derived from, if that is another one than was given.
    pub dynamic_batch: Option<DynamicBatch>,
    /// Why the model takes batches of one size only, if it does.
    pub fixed_batch_reason: Option<String>,
    /// What the check of its gradients leaves in doubt.
    pub doubt: Option<String>,
    /// The operator that a CPU has no kernel for in the graph's precision, if there is one.
    pub missing_cpu_kernel: Option<String>,
}

impl Derived {
    /// Derives a graph and looks at it.
    pub(super) fn derive(
        runtime: &Runtime,
        model: &[u8],
        loss: Loss,
        options: &DeriveOptions,
        checks: ModelChecks,
    ) -> Result<Self, ModelError> {
        let (dynamic_batch, fixed_batch_reason) = match open_batch(runtime, model, options) {
            Ok(BatchAxis::Opened { from, onnx }) => (Some(DynamicBatch { exported_size: from, onnx }), None),
            Ok(BatchAxis::Open) => (None, None),
            Err(error) if checks.batch_axis => return Err(error.into()),
            Err(error) => (None, Some(error.to_string())),
        };
        let model = dynamic_batch.as_ref().map_or(model, |opened| &opened.onnx);
        let graph = derive(runtime, model, loss, options)?;
        let looked = Self::new(runtime, graph, options.precision, checks.gradients)?;
        Ok(Self { dynamic_batch, fixed_batch_reason, ..looked })
    }

    /// Looks at a graph of this precision: at its gradients if that is wanted, and at its kernels. Sums in 16
    /// bits are too coarse for differences.
    pub(super) fn new(
        runtime: &Runtime,
        graph: TrainingGraph,
        precision: Precision,
        check_gradients: bool,
    ) -> Result<Self, ModelError> {
        let missing_cpu_kernel =
            if precision.is_half() { lacks_kernel(runtime, &graph.train_onnx)? } else { None };
        let doubt = match check_gradients && !precision.is_half() {
            true => match quick_check(runtime, &graph)? {
                Verdict::Doubtful(doubt) => Some(doubt),
                Verdict::Right | Verdict::Unknown(_) => None,
            },
            false => None,
        };
        Ok(Self { graph, dynamic_batch: None, fixed_batch_reason: None, doubt, missing_cpu_kernel })
    }
}

/// An error that a child met: it stays what it is, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
#[non_exhaustive]
pub struct ChildError {
    /// Stable, the same as in `text`.
    pub code: FaultCode,
    /// Begins with the code.
    pub text: String,
    /// What the user can do about it, if there is something.
    pub hint: Option<String>,
}

impl ChildError {
    /// The stable code, as in the message.
    pub fn code(&self) -> FaultCode {
        self.code
    }

    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}

impl From<&ModelError> for ChildError {
    fn from(error: &ModelError) -> Self {
        Self { code: error.code(), text: error.to_string(), hint: error.hint() }
    }
}

/// Writes one frame.
pub(super) fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    send_bytes(to, &postcard::to_stdvec(message).map_err(io::Error::other)?)
}

/// Writes one frame that holds these bytes as they are.
pub(super) fn send_bytes(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&(bytes.len() as u64).to_le_bytes())?;
    to.write_all(bytes)?;
    to.flush()
}

/// Reads one frame; `None` at the end.
pub(super) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let bytes = receive_bytes(from)?;
    bytes.map(|bytes| postcard::from_bytes(&bytes).map_err(io::Error::other)).transpose()
}

/// Reads one frame as it is; `None` at the end.
pub(super) fn receive_bytes(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 8];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let mut bytes = Vec::new();
    let length = u64::from_le_bytes(length);
    let is_whole = from.take(length).read_to_end(&mut bytes)? as u64 == length;
    Ok(is_whole.then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_sent_and_a_cut_one_is_the_end() {
        let mut pipe = Vec::new();
        send(&mut pipe, &Event::Stage("load".to_owned())).unwrap();
        send(&mut pipe, &Event::Done(Ok(Answer::Loaded))).unwrap();
        let cut = &pipe[..pipe.len() - 1];
        for (bytes, whole) in [(pipe.as_slice(), true), (cut, false)] {
            let mut from = bytes;
            let first: Option<Event> = receive(&mut from).unwrap();
            assert!(matches!(first, Some(Event::Stage(stage)) if stage == "load"));
            let second: Option<Event> = receive(&mut from).unwrap();
            assert_eq!(matches!(second, Some(Event::Done(Ok(Answer::Loaded)))), whole);
        }
    }
}
