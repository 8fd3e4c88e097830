//! A small GPT that learns to write, one character after the other.

use std::{io, path::Path};

use syncline::{DataSpec, Decay, JobGraph, Loss, LossOptions, Model, Optimizer, Source, Split, Training};

use crate::{
    Run,
    files::{self, MissingData, Origin},
};

/// Characters that the model sees at once.
const CONTEXT: u32 = 64;
const BATCH: u32 = 16;
const ORIGIN: Origin = Origin {
    set: "any text in UTF-8 of at most 96 different characters as input.txt, such as `tiny shakespeare`,",
    home: "Andrej Karpathy's char-rnn (data/tinyshakespeare), or a book from Project Gutenberg,",
};

/// The text `input.txt` in `folder`, or the beginning of Moby-Dick that comes with the repository. The last
/// tenth tests.
pub fn data(folder: Option<&Path>) -> Result<DataSpec, MissingData> {
    let path = match folder {
        Some(folder) => ORIGIN.find(folder, "input.txt")?,
        None => files::samples("moby-dick.txt").to_string_lossy().into_owned(),
    };
    let source = Source::Text { path, context: CONTEXT, stride: CONTEXT / 2 };
    Ok(DataSpec { split: Split::TestLastPercent(10), ..DataSpec::new(source) })
}

/// Train, then test and save.
pub fn job(run: &Run<'_>, data: DataSpec) -> io::Result<JobGraph> {
    let loss = LossOptions { perplexity: true, ..LossOptions::default() };
    let model = Model::forward(files::model("chargpt")?, Loss::SoftmaxCrossEntropy).with_loss_options(loss);
    let training = Training::new(model, data).with(|s| {
        run.set(s, 4e-3);
        s.optimizer =
            Optimizer::Adam { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.01, decoupled: true };
        s.decay = Decay::Cosine;
        s.batch = BATCH;
        s.clip_norm = Some(1.0);
    });
    Ok(JobGraph::of_training(run.id, training))
}
