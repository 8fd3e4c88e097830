//! ONNX models as tasks: their name, and the function that runs them.

use std::fmt;

use serde::{Deserialize, Serialize};
use syncline_scheduler::ids::ContentDigest;

use super::{Function, Tensor};

/// Runs an ONNX model. Every worker with ONNX Runtime has this function.
///
/// The tensors are in the order of the model's inputs, what it gives in that of its outputs: both are printed
/// by `syncline model show`. In order, rather than by name, what other tasks give can stand for them:
/// `(model, &vec![a, b])` where both give a [`Tensor`], or `(model, c)` where the task gives all of them.
///
/// ```no_run
/// # use syncline_workers::{client::Client, functions::{RUN_MODEL, TaskGraph, Tensor}};
/// # async fn example(client: Client, batches: Vec<Tensor>) -> Result<(), Box<dyn std::error::Error>> {
/// let model = client.upload_model(std::path::Path::new("digits.onnx")).await?;
/// let mut graph = TaskGraph::new("scores");
/// let scores = graph.map(RUN_MODEL, batches.into_iter().map(|batch| (model, vec![batch])));
/// # Ok(())
/// # }
/// ```
pub const RUN_MODEL: Function<(OnnxModel, Vec<Tensor>), Vec<Tensor>> =
    Function::new(syncline_rpc::status::RUN_MODEL);

/// A model that lies on the parameter server, named by its digest: an argument of a few bytes for any number
/// of tasks. [`Client::upload_model`](crate::client::Client::upload_model) makes it.
///
/// It stays as long as a job that is known names it, and for an hour after it was uploaded.
// Travels as text, even where bytes would do: by these digits the engine knows which blobs are still named.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OnnxModel(ContentDigest);

impl OnnxModel {
    pub(crate) fn new(digest: ContentDigest) -> Self {
        Self(digest)
    }

    /// BLAKE3 of the file; as text what `b3sum` prints.
    pub fn digest(&self) -> ContentDigest {
        self.0
    }
}

impl fmt::Debug for OnnxModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OnnxModel({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_travels_as_the_digits_of_its_digest() {
        let model = OnnxModel::new(ContentDigest::from_bytes([0xab; 32]));
        let bytes = postcard::to_stdvec(&model).unwrap();
        assert_eq!((bytes[0], &bytes[1..]), (b'@', model.digest().to_string().as_bytes()));
        assert_eq!(postcard::from_bytes::<OnnxModel>(&bytes).unwrap(), model);
        assert!(postcard::from_bytes::<OnnxModel>(&bytes[..64]).is_err());
        assert!(postcard::from_bytes::<OnnxModel>(b"\x03abc").is_err());
    }
}
