//! The models of `tests/models` as PyTorch exported them, and their training graphs: each is derived once,
//! because several tests look at the same ones and deriving takes longer than what they do with them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use syncline_autodiff::{DeriveOptions, Loss, LossOptions, Precision, TrainingGraph, derive};

use crate::onnxruntime;

/// What tells two training graphs of these models apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// The file in `tests/models`.
    pub file: String,
    pub precision: Precision,
    pub recompute: bool,
}

type Derived = Arc<OnceLock<Arc<TrainingGraph>>>;

static DERIVED: LazyLock<Mutex<HashMap<Wanted, Derived>>> = LazyLock::new(Mutex::default);

/// File names that end so, in the order of the alphabet.
pub fn files(ending: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(ending)).collect();
    names.sort_unstable();
    names
}

/// Whoever asks for one that is being derived waits for it.
pub fn derived(wanted: Wanted) -> Arc<TrainingGraph> {
    let graph = Arc::clone(DERIVED.lock().unwrap().entry(wanted.clone()).or_default());
    let derive = || {
        let Wanted { file, precision, recompute } = wanted;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models");
        let model = fs::read(folder.join(&file)).unwrap();
        let class_axis = file.starts_with("gpt2").then_some(-1);
        let loss = LossOptions { class_axis, ..LossOptions::default() };
        let options = DeriveOptions { loss, precision, recompute, ..DeriveOptions::default() };
        let derived = derive(&onnxruntime::runtime(), &model, Loss::SoftmaxCrossEntropy, &options);
        Arc::new(derived.unwrap_or_else(|error| panic!("{file}: {error}")))
    };
    Arc::clone(graph.get_or_init(derive))
}
