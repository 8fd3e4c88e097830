//! A job graph as a user writes it in a TOML file. Paths in it are relative to the file.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, de::Error};
use syncline_autodiff::{Loss, LossOptions};
use syncline_rpc::input;
use syncline_scheduler::spec::DataSpec;

use super::{
    SubmitError,
    graph::{GraphNode, JobGraph, NODE_RETRIES, NodeWork},
    model::Model,
    paths::absolute,
    training::{ParamList, Settings, Training},
};
use crate::data::is_url;

/// A job file is written by hand.
const MAX_BYTES: u64 = 4 << 20;

/// The file's form; docs/job-file.md lists its fields.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobFile {
    id: String,
    node: Vec<FileNode>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileNode {
    name: String,
    #[serde(default)]
    after: Vec<String>,
    r#do: NodeAction,
    model: Option<FileModel>,
    data: Option<DataSpec>,
    settings: Option<Settings>,
    #[serde(default = "node_retries")]
    retries: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum NodeAction {
    Train,
    Evaluate,
    Snapshot,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum FileModel {
    Forward {
        onnx: PathBuf,
        #[serde(deserialize_with = "loss")]
        loss: Loss,
        #[serde(default)]
        loss_options: LossOptions,
        output: Option<String>,
        weights: Option<PathBuf>,
    },
    Ready {
        onnx: PathBuf,
        weights: Option<PathBuf>,
    },
}

impl JobFile {
    /// Reads a job file.
    pub fn load(path: &Path) -> Result<JobGraph, SubmitError> {
        let text = input::read_text(path, MAX_BYTES)
            .map_err(|source| SubmitError::Read { path: path.to_owned(), source })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Self::parse(&text, folder).map_err(|cause| SubmitError::File { path: path.to_owned(), cause })
    }

    fn parse(text: &str, folder: &Path) -> Result<JobGraph, String> {
        let file: Self = toml::from_str(text).map_err(|e| without_rust_types(&e.to_string()))?;
        let written: toml::Table = toml::from_str(text).map_err(|e| e.to_string())?;
        if let Some((path, number)) = first_overflow(&toml::Value::Table(written)) {
            let most = f32::MAX;
            return Err(format!("{path} = {number:e} is too large, numbers go up to {most:.1e}"));
        }
        let nodes = file.node.into_iter().map(|node| node.resolve(folder)).collect::<Result<_, _>>()?;
        Ok(JobGraph::of_nodes(file.id, nodes))
    }
}

/// A message of the reader, which names types of Rust, in words for whoever wrote the file.
fn without_rust_types(message: &str) -> String {
    let words = [
        ("expected u8", "expected a whole number from 0 to 255"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u64", "expected a whole number from 0"),
        ("expected i64", "expected a whole number"),
        ("expected f32", "expected a number"),
    ];
    words.iter().fold(message.to_owned(), |message, (ty, words)| message.replace(ty, words))
}

/// The first number that would become infinite as float32, and where it stands: what is wrong with it is said in the words
/// of whoever wrote it.
fn first_overflow(value: &toml::Value) -> Option<(String, f64)> {
    let below = |name: String, value| {
        let (path, number) = first_overflow(value)?;
        Some((if path.is_empty() { name } else { format!("{name}.{path}") }, number))
    };
    match value {
        toml::Value::Float(number) => {
            (number.is_finite() && (*number as f32).is_infinite()).then(|| (String::new(), *number))
        }
        toml::Value::Array(items) => {
            (1..).zip(items).find_map(|(n, item): (usize, _)| below(n.to_string(), item))
        }
        toml::Value::Table(table) => table.iter().find_map(|(name, item)| below(name.clone(), item)),
        _ => None,
    }
}

impl FileNode {
    fn resolve(self, folder: &Path) -> Result<GraphNode, String> {
        let Self { name, after, r#do, model, data, settings, retries } = self;
        let work = match (r#do, model, data, settings) {
            (NodeAction::Train, Some(model), Some(data), settings) => NodeWork::Train(Box::new(Training {
                model: model.resolve(folder),
                data: resolve_data(data, folder),
                settings: resolve_settings(settings.unwrap_or_default(), folder),
            })),
            (NodeAction::Train, ..) => {
                return Err(format!("node `{name}` trains: it needs `model` and `data`"));
            }
            (NodeAction::Evaluate, None, None, None) => NodeWork::Evaluate,
            (NodeAction::Snapshot, None, None, None) => NodeWork::Snapshot,
            _ => return Err(format!("node `{name}` does not train: it takes no model, data or settings")),
        };
        Ok(GraphNode { name, after, retries, work })
    }
}

impl FileModel {
    fn resolve(self, folder: &Path) -> Model {
        let path = |onnx: PathBuf| match onnx.to_str().is_some_and(is_url) {
            true => onnx,
            false => folder.join(onnx),
        };
        let first = |weights: Option<PathBuf>| weights.map(|weights| path(weights).into());
        match self {
            Self::Forward { onnx, loss, loss_options: options, output, weights } => {
                let (onnx, weights) = (path(onnx).into(), first(weights));
                Model::Forward { onnx, loss, options, output, weights }
            }
            Self::Ready { onnx, weights } => {
                Model::Ready { onnx: path(onnx).into(), weights: first(weights), misplaced: Vec::new() }
            }
        }
    }
}

fn node_retries() -> u32 {
    NODE_RETRIES
}

fn loss<'de, D: Deserializer<'de>>(from: D) -> Result<Loss, D::Error> {
    String::deserialize(from)?.parse().map_err(Error::custom)
}

fn resolve_data(mut data: DataSpec, folder: &Path) -> DataSpec {
    for path in data.paths_mut().into_iter().filter(|path| !is_url(path)) {
        *path = absolute(&folder.join(&*path)).to_string_lossy().into_owned();
    }
    data
}

fn resolve_settings(mut settings: Settings, folder: &Path) -> Settings {
    if let Some(ParamList::File(path)) = &mut settings.params {
        *path = folder.join(&*path);
    }
    if let Some(path) = &mut settings.resume {
        *path = folder.join(&*path);
    }
    settings
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_mistake_is_named() {
        #[rustfmt::skip]
        let cases = [
            ("no id",            "node = []",                                                        "missing field `id`"),
            ("unknown verb",     "id = 'a'\n[[node]]\nname = 'n'\ndo = 'fly'",                       "unknown variant `fly`"),
            ("train needs data", "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'",                     "needs `model` and `data`"),
            ("misspelt field",   "id = 'a'\n[[node]]\nname = 'n'\ndo = 'evaluate'\naftr = []",       "unknown field `aftr`"),
            ("bad policy",       "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nsettings.policy = 'x'", "E003"),
            ("bad precision",    "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nsettings.precision = 'fp8'", "unknown variant `fp8`"),
            ("too much",         "id = 'a'\n[[node]]\nname = 'n'\ndo = 'snapshot'\nsettings = {}",   "takes no model"),
        ];
        for (name, text, want) in cases {
            let error = JobFile::parse(text, Path::new("/")).unwrap_err();
            assert!(error.contains(want), "{name}: {error}");
        }
    }

    #[test]
    fn a_number_that_float32_cannot_hold_is_named_as_it_was_written() {
        let settings = ["learning_rate = 1e308", "optimizer = { sgd = { weight_decay = -2.5e40 } }"];
        let said = settings.map(|settings| {
            let head = "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel = { ready = { onnx = 'm' } }\n";
            let data = "data = { source = { csv = { path = 'a.csv' } } }\n";
            JobFile::parse(&format!("{head}{data}settings = {{ {settings} }}"), Path::new("/")).unwrap_err()
        });
        assert_eq!(said[0], "node.1.settings.learning_rate = 1e308 is too large, numbers go up to 3.4e38");
        assert!(said[1].starts_with("node.1.settings.optimizer.sgd.weight_decay = -2.5e40 "), "{}", said[1]);
    }

    #[test]
    fn a_number_that_is_none_is_answered_without_the_types_of_a_programming_language() {
        #[rustfmt::skip]
        let cases = [
            ("epochs = -1",                    "invalid value: integer `-1`, expected a whole number from 0 to 4294967295"),
            ("batch = 'many'",                 "invalid type: string \"many\", expected a whole number from 0 to 4294967295"),
            ("seed = 1.5",                     "expected a whole number from 0\n"),
            ("checkpoint = { every_s = -60 }", "expected a whole number from 0 to 4294967295"),
            ("warmup = 'long'",                "expected a number\n"),
        ];
        for (settings, words) in cases {
            let text = format!("id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nsettings = {{ {settings} }}");
            let error = JobFile::parse(&text, Path::new("/")).unwrap_err();
            assert!(error.contains(words), "{settings}: {error}");
        }
    }

    #[test]
    fn a_key_of_several_words_is_also_read_as_it_was_spelt_before() {
        let head = "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel = { ready = { onnx = 'm' } }\n";
        for split in ["test_every = 5", "test_last_percent = 10"] {
            let [new, old] = [split.to_owned(), split.replace('_', "-")].map(|split| {
                let data =
                    format!("data = {{ source = {{ csv = {{ path = 'a.csv' }} }}, split = {{ {split} }} }}");
                let graph = JobFile::parse(&format!("{head}{data}"), Path::new("/")).unwrap();
                let NodeWork::Train(training) = &graph.nodes[0].work else { unreachable!("it trains") };
                training.data.split
            });
            assert_eq!(new, old, "{split}");
        }
    }

    #[test]
    fn every_source_in_the_documentation_is_read() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/data.md");
        let page = fs::read_to_string(page).unwrap();
        let head = "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel = { ready = { onnx = 'm' } }\n";
        let snippets: Vec<_> =
            page.split("```toml\n[node.data]").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert_eq!(snippets.len(), 7);
        for snippet in snippets {
            let graph = JobFile::parse(&format!("{head}[node.data]{snippet}"), Path::new("/data")).unwrap();
            let NodeWork::Train(training) = &graph.nodes[0].work else { unreachable!("it trains") };
            assert!(training.data.paths().iter().all(|path| path.starts_with("/data/")), "{snippet}");
            assert!(training.data.has_test() && !training.data.paths().is_empty(), "{snippet}");
        }
    }
}
