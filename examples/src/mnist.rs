//! MNIST: 28x28 images of handwritten digits in IDX format, a perceptron or LeNet-5.

use std::{fmt, io, path::Path};

use syncline::{DataSpec, Decay, EvaluateSpec, JobGraph, Loss, Model, Optimizer, Source, Training};

use crate::{
    Run,
    files::{self, MissingData, Origin},
};

const BATCH: u32 = 32;
const ORIGIN: Origin = Origin {
    set: "the four files of MNIST (train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, \
          t10k-labels-idx1-ubyte; plain or .gz)",
    home: "`The MNIST database of handwritten digits` by Yann LeCun, Corinna Cortes and Christopher Burges",
};

/// Which model to train; `models/export_mnist.py` exports both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Net {
    /// A perceptron 784-300-100-10.
    Mlp,
    /// Two convolutions and three linear layers.
    Lenet,
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mlp => "mlp",
            Self::Lenet => "lenet",
        })
    }
}

/// MNIST as it lies in `folder`, or the 1,200 samples that come with the repository.
pub fn data(folder: Option<&Path>) -> Result<DataSpec, MissingData> {
    let folder = folder.map_or_else(|| files::samples("mnist"), Path::to_owned);
    let idx = |images, labels| -> Result<Source, MissingData> {
        Ok(Source::idx(ORIGIN.find(&folder, images)?, ORIGIN.find(&folder, labels)?))
    };
    let train = idx("train-images-idx3-ubyte", "train-labels-idx1-ubyte")?;
    let test = idx("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")?;
    // Mean and deviation of the training images.
    let (mean, std) = (vec![0.1307], vec![0.3081]);
    Ok(DataSpec { test: Some(test), scale: 1.0 / 255.0, mean, std, ..DataSpec::new(train) })
}

/// Train, then test and save.
pub fn job(run: &Run<'_>, net: Net, data: DataSpec) -> io::Result<JobGraph> {
    let model = Model::forward(files::model(&net.to_string())?, Loss::SoftmaxCrossEntropy);
    let training = Training::new(model, data).with(|s| {
        run.set(s, 0.05);
        s.optimizer = Optimizer::Momentum { momentum: 0.9, nesterov: false, weight_decay: 1e-4 };
        s.decay = Decay::Cosine;
        // Without it, several workers that step on their own now and then throw the first steps too far.
        s.clip_norm = Some(1.0);
        s.batch = BATCH;
        // Whoever watches sees the accuracy on test images after each epoch.
        s.evaluate = Some(EvaluateSpec::every_epochs(1));
    });
    Ok(JobGraph::of_training(run.id, training))
}
