//! The loaded library.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ort::LoadDynamicError;
use ort::environment::Environment;
use ort::logging::LogLevel;
use syncline_kit::Device;

use crate::error::BackendError;
use crate::page_locks::PageLocks;

/// ONNX Runtime, loaded. A process has one; copies are handles to it.
#[derive(Debug, Clone)]
pub struct Runtime {
    environment: Environment,
    path: PathBuf,
    device: Device,
    page_locks: Option<Arc<PageLocks>>,
}

static LOADED: Mutex<Option<Runtime>> = Mutex::new(None);

impl Runtime {
    /// Loads `libonnxruntime` from a file, once per process: loading the same file again gives the same
    /// runtime. A name without a folder, of which there is no file here, is left to the dynamic loader.
    ///
    /// Sends no telemetry. Fails if the file is missing, is no ONNX Runtime or too old a one, or if the
    /// process has already loaded another file.
    ///
    /// # Errors
    /// E320 if there is no such file, E321 if it is no ONNX Runtime that can be used, E322 if another one is
    /// loaded.
    pub fn load(path: &Path) -> Result<Self, BackendError> {
        let path = match path.canonicalize() {
            Ok(path) => path,
            Err(_) if is_bare(path) => path.to_owned(),
            Err(_) => return Err(BackendError::NotFound { path: path.to_owned() }),
        };
        // A panic while loading leaves `None` behind, which is as good as never having tried.
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        match loaded.as_ref() {
            Some(runtime) if runtime.path == path => return Ok(runtime.clone()),
            Some(runtime) => {
                return Err(BackendError::AlreadyLoaded { loaded: runtime.path.clone(), asked: path });
            }
            None => {}
        }
        let refused = |reason: String| BackendError::Load { path: path.clone(), reason };
        let environment = ort::init_from(&path)
            .map_err(|source| refused(why_not_loaded(&source)))?
            .with_telemetry(false)
            .build()
            .map_err(|source| refused(source.to_string()))?;
        // Its warnings speak of our generated graphs to people who cannot act on them; errors are returned.
        environment.set_log_level(LogLevel::Error);
        Ok(loaded.insert(Self { environment, path, device: Device::Cpu, page_locks: None }).clone())
    }

    /// The file that was loaded, or the name under which the dynamic loader knows it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The device that it was tried on; the CPU, which it always has, where none was named.
    pub fn device(&self) -> Device {
        self.device
    }

    pub(super) fn tried_on(self, device: Device, page_locks: Option<PageLocks>) -> Self {
        Self { device, page_locks: page_locks.map(Arc::new), ..self }
    }

    pub(super) fn page_locks(&self) -> Option<&Arc<PageLocks>> {
        self.page_locks.as_ref()
    }

    pub(super) fn environment(&self) -> &Environment {
        &self.environment
    }
}

/// What the dynamic loader says, which is behind an error that says only that it failed.
fn why_not_loaded(error: &LoadDynamicError) -> String {
    match error {
        LoadDynamicError::Dlopen { error, .. } => {
            error.source().map_or_else(|| error.to_string(), ToString::to_string)
        }
        error => error.to_string(),
    }
}

/// Whether a path is a name alone.
fn is_bare(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == path.as_os_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_loaded_is_refused_with_what_the_loader_says() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let error = ort::util::preload_dylib(&path).unwrap_err();
        let said = why_not_loaded(&LoadDynamicError::Dlopen { error, path: path.clone() });
        assert!(said.contains("file too short") && said.contains(&*path.to_string_lossy()), "{said}");
        let said = why_not_loaded(&LoadDynamicError::MissingApi { path });
        assert!(said.ends_with("does not export `OrtGetApiBase`"), "{said}");
    }
}
