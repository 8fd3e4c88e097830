//! CIFAR-10: 32x32 color images of ten kinds of things, ResNet-20.

use std::{io, path::Path};

use syncline::{DataSpec, Decay, JobGraph, Loss, Model, Optimizer, Source, Training};

use crate::{
    Run,
    files::{self, MissingData, Origin},
};

const BATCH: u32 = 32;
const BATCHES: [&str; 5] =
    ["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"];
const ORIGIN: Origin = Origin {
    set: "CIFAR-10 in its binary version (data_batch_1.bin to data_batch_5.bin, or some of them, and test_batch.bin)",
    home: "Alex Krizhevsky's page `The CIFAR-10 dataset`",
};

/// CIFAR-10 as it lies in `folder`, or the 200 samples that come with the repository. Of the five training
/// files, those that are there.
pub fn data(folder: Option<&Path>) -> Result<DataSpec, MissingData> {
    let folder = folder.map_or_else(|| files::samples("cifar10"), Path::to_owned);
    let first = ORIGIN.find(&folder, BATCHES[0])?;
    let more = BATCHES[1..].iter().filter_map(|file| ORIGIN.find(&folder, file).ok());
    let train = Source::cifar10([first].into_iter().chain(more));
    let test = Source::cifar10([ORIGIN.find(&folder, "test_batch.bin")?]);
    Ok(DataSpec {
        test: Some(test),
        scale: 1.0 / 255.0,
        // Of the training images.
        mean: vec![0.4914, 0.4822, 0.4465],
        std: vec![0.2470, 0.2435, 0.2616],
        ..DataSpec::new(train)
    })
}

/// Train, then test and save.
pub fn job(run: &Run<'_>, data: DataSpec) -> io::Result<JobGraph> {
    let model = Model::forward(files::model("resnet20")?, Loss::SoftmaxCrossEntropy);
    let training = Training::new(model, data).with(|s| {
        run.set(s, 0.03);
        s.optimizer = Optimizer::Momentum { momentum: 0.9, nesterov: false, weight_decay: 1e-4 };
        s.decay = Decay::Cosine;
        s.batch = BATCH;
    });
    Ok(JobGraph::of_training(run.id, training))
}
