//! Files of the examples: samples and models that come with the repository, and data sets that users fetch.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;

/// A file of a data set is not where the user said.
#[derive(Debug, thiserror::Error)]
#[error("[E486] there is no {file} in {}: fetch {set} from {home} and put it there", folder.display())]
pub struct MissingData {
    /// Where the user said that the data set lies.
    pub folder: PathBuf,
    /// Name of the file, which may have `.gz` behind it.
    pub file: &'static str,
    /// What the data set is called, and which of its files are needed.
    pub set: &'static str,
    /// Whose page has it.
    pub home: &'static str,
}

/// A data set that users fetch themselves.
pub(crate) struct Origin {
    pub set: &'static str,
    pub home: &'static str,
}

impl Origin {
    /// The path of a file in `folder`, as it is or packed with a name that ends in `.gz`.
    pub(crate) fn find(&self, folder: &Path, file: &'static str) -> Result<String, MissingData> {
        let paths = [folder.join(file), folder.join(format!("{file}.gz"))];
        let found = paths.into_iter().find(|path| path.is_file());
        let found = found.map(|path| path.to_string_lossy().into_owned());
        let (set, home) = (self.set, self.home);
        found.ok_or_else(|| MissingData { folder: folder.to_owned(), file, set, home })
    }
}

/// A folder of samples that comes with the repository.
pub(crate) fn samples(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
}

/// The forward model that a script in `models/` has exported.
pub fn model(name: &str) -> io::Result<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(format!("{name}.onnx.gz"));
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(path)?).read_to_end(&mut bytes)?;
    Ok(bytes)
}
