//! What computing on an NVIDIA GPU needs: the driver, a build of ONNX Runtime that can, and NVIDIA's
//! libraries.
//!
//! In: a device and a [`Search`]. Out: the library to load, and those to load before it, by path: so they are
//! found wherever they lie, in a Python environment above all. Which ones is read from the execution provider
//! itself, since it depends on the build: releases for CUDA 12 and for CUDA 13 both do. Nothing is loaded
//! here.

use crate::{Device, Found, KitError, Search, elf};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The execution provider; ONNX Runtime loads it from its own folder.
pub(super) const PROVIDER: &str = "libonnxruntime_providers_cuda.so";
/// Comes with the driver, never with anything else.
const DRIVER: &str = "libcuda.so.1";
/// Loaded by the provider itself when a convolution, a pool or a normalization asks for it.
const CUDNN: &str = "libcudnn.so.9";

/// Loaded by cuDNN itself, from its own folder or where the dynamic loader finds them, when the first
/// operator of a kind runs.
const OF_CUDNN: [&str; 7] = [
    "libcudnn_graph.so.9",
    "libcudnn_ops.so.9",
    "libcudnn_cnn.so.9",
    "libcudnn_adv.so.9",
    "libcudnn_engines_precompiled.so.9",
    "libcudnn_engines_runtime_compiled.so.9",
    "libcudnn_heuristic.so.9",
];

/// Where distributions and container images keep libraries; the dynamic loader does not know all of them.
const USUAL_DIRS: [&str; 6] = [
    "/usr/local/cuda/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
];

/// What a process loads to compute on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceParts {
    /// ONNX Runtime itself, loaded after `preload`; for a GPU, a build with the CUDA execution provider.
    pub onnxruntime: Found,
    /// Libraries to load first, in this order. Empty for the CPU.
    pub preload: Vec<PathBuf>,
}

/// ONNX Runtime for `device`, and the libraries that it needs there. `say` hears, one line each, what takes
/// time or is passed over.
///
/// Blocks: it may run Python, and fetch 24 MB, or 256 MB for a GPU. NVIDIA's libraries are never fetched.
pub fn for_device(device: Device, say: &dyn Fn(&str)) -> Result<DeviceParts, KitError> {
    Search::from_env().for_device(device, say)
}

impl Search {
    /// See [`for_device`].
    pub fn for_device(&self, device: Device, say: &dyn Fn(&str)) -> Result<DeviceParts, KitError> {
        if device == Device::Cpu {
            return Ok(DeviceParts { onnxruntime: self.onnxruntime(say)?, preload: Vec::new() });
        }
        // First, so that a machine without a GPU fetches nothing.
        let driver = self.library(DRIVER).ok_or(KitError::NoDriver { device, library: DRIVER })?;
        let onnxruntime = self.onnxruntime_cuda(say)?;
        let mut preload = vec![driver];
        if onnxruntime.path.is_absolute() {
            preload.extend(self.cuda_libraries(device, &provider(&onnxruntime.path))?);
        }
        Ok(DeviceParts { onnxruntime, preload })
    }

    /// Where the libraries lie that `provider` asks for, in the order in which it does, and cuDNN.
    fn cuda_libraries(&self, device: Device, provider: &Path) -> Result<Vec<PathBuf>, KitError> {
        let mut names = elf::needed(provider).map_err(KitError::io("read", provider))?;
        // The system's own libraries are always there.
        names.retain(|name| name.starts_with("libcu") && name != DRIVER);
        names.push(CUDNN.to_owned());

        let mut packages = None;
        let mut find = |name: &String| {
            let in_package = || {
                let dirs: &Vec<PathBuf> = packages.get_or_insert_with(|| self.nvidia_packages());
                find_in(dirs, name)
            };
            self.library(name).or_else(in_package).ok_or_else(|| name.clone())
        };
        let (found, missing): (Vec<_>, Vec<_>) = names.iter().map(&mut find).partition(Result::is_ok);
        let mut missing: Vec<String> = missing.into_iter().filter_map(Result::err).collect();
        let is_cudnn = |path: &&PathBuf| path.file_name().is_some_and(|name| name == CUDNN);
        if let Some(cudnn) = found.iter().flatten().find(is_cudnn) {
            // A link may lead to where the others are.
            let file = cudnn.canonicalize().unwrap_or_else(|_| cudnn.clone());
            let beside = |name: &str| [cudnn, &file].iter().any(|cudnn| cudnn.with_file_name(name).is_file());
            let absent = OF_CUDNN.iter().filter(|name| !beside(name) && self.library(name).is_none());
            missing.extend(absent.map(|name| (*name).to_owned()));
        }
        if !missing.is_empty() {
            let by_hand = by_hand(&names, &missing);
            return Err(KitError::MissingCuda { device, missing, by_hand });
        }
        // The compiler that some kernels call at run time; those that do not need it run without.
        let compiler = format!("libnvrtc.so.{}", cuda_major(&names));
        Ok(found.into_iter().flatten().chain(find(&compiler).ok()).collect())
    }

    fn library(&self, name: &str) -> Option<PathBuf> {
        find_in(&self.library_dirs, name)
    }

    /// The library folders of NVIDIA's Python packages, such as `site-packages/nvidia/cu13/lib`.
    fn nvidia_packages(&self) -> Vec<PathBuf> {
        let roots = self.python_package("nvidia");
        let mut dirs: Vec<PathBuf> = roots
            .iter()
            .flat_map(|root| root.read_dir().into_iter().flatten().flatten())
            .map(|package| package.path().join("lib"))
            .filter(|dir| dir.is_dir())
            .collect();
        dirs.sort();
        dirs
    }
}

/// Where the provider of this `libonnxruntime.so` must lie: beside the file itself, not beside a link to it.
pub(super) fn provider(onnxruntime: &Path) -> PathBuf {
    let file = onnxruntime.canonicalize().unwrap_or_else(|_| onnxruntime.to_owned());
    file.with_file_name(PROVIDER)
}

/// The folders that the environment and the dynamic loader's files name, and the usual ones.
pub(super) fn library_dirs() -> Vec<PathBuf> {
    let listed = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let homes = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(env::var_os);
    let conda = env::var_os("CONDA_PREFIX").map(|prefix| PathBuf::from(prefix).join("lib"));
    let listed: Vec<PathBuf> = env::split_paths(&listed).collect();
    let mut dirs: Vec<PathBuf> = listed
        .into_iter()
        .chain(homes.map(|home| PathBuf::from(home).join("lib64")))
        .chain(conda)
        .chain(loader_dirs(Path::new("/etc/ld.so.conf.d")))
        .chain(USUAL_DIRS.iter().map(PathBuf::from))
        .filter(|dir| dir.is_absolute())
        .collect();
    let mut seen = std::collections::HashSet::new();
    dirs.retain(|dir| seen.insert(dir.clone()));
    dirs
}

/// The folders that the files in `conf_dir` name, one per line, files in order of their names.
fn loader_dirs(conf_dir: &Path) -> Vec<PathBuf> {
    let files = conf_dir.read_dir().into_iter().flatten().flatten().map(|file| file.path());
    let mut files: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|e| e == "conf")).collect();
    files.sort();
    let texts: String = files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
    texts.lines().map(str::trim).filter(|line| line.starts_with('/')).map(PathBuf::from).collect()
}

/// The first library of this name that this machine can load.
fn find_in(dirs: &[PathBuf], name: &str) -> Option<PathBuf> {
    dirs.iter().map(|dir| dir.join(name)).find(|file| elf::is_of_this_machine(file))
}

/// The release of CUDA whose runtime is among these libraries; the pinned build's if none is.
fn cuda_major(needed: &[String]) -> &str {
    needed.iter().find_map(|name| name.strip_prefix("libcudart.so.")).unwrap_or("13")
}

/// How to get what is missing with pip, of the release of CUDA that `needed` belongs to.
fn by_hand(needed: &[String], missing: &[String]) -> String {
    let number = |name: &String| name.rsplit_once(".so.").map_or("", |(_, number)| number).to_owned();
    let cuda = cuda_major(needed);
    let package = |name: &String| {
        let stem = match name.split(".so").next()? {
            "libcublas" | "libcublasLt" => "cublas",
            "libcudart" => "cuda-runtime",
            "libcurand" => "curand",
            "libcufft" => "cufft",
            // cuDNN's package always says for which CUDA it is; the others' stopped with CUDA 13.
            stem if stem.starts_with("libcudnn") => {
                return Some(format!("'nvidia-cudnn-cu{cuda}=={}.*'", number(name)));
            }
            _ => return None,
        };
        let suffix = if cuda == "12" { "-cu12" } else { "" };
        Some(format!("'nvidia-{stem}{suffix}=={}.*'", number(name)))
    };
    let mut packages: Vec<String> = missing.iter().filter_map(package).collect();
    packages.dedup();
    format!(
        "(1) python3 -m pip install {} (all of them are about 1.1 GB), into the Python that `python3` on PATH starts; \
         (2) or install CUDA {cuda} and cuDNN 9 and name their library folders in LD_LIBRARY_PATH",
        packages.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pip_command_names_packages_of_the_same_cuda() {
        let names = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        #[rustfmt::skip]
        let cases = [
            ("libcublasLt.so.13 libcublas.so.13 libcurand.so.10 libcudart.so.13 libcudnn.so.9",
             "'nvidia-cublas==13.*' 'nvidia-curand==10.*' 'nvidia-cuda-runtime==13.*' 'nvidia-cudnn-cu13==9.*' ("),
            ("libcublas.so.12 libcufft.so.11 libcudart.so.12 libcudnn.so.9",
             "'nvidia-cublas-cu12==12.*' 'nvidia-cufft-cu12==11.*' 'nvidia-cuda-runtime-cu12==12.*' 'nvidia-cudnn-cu12==9.*' ("),
        ];
        for (needed, want) in cases {
            let hint = by_hand(&names(needed), &names(needed));
            assert!(hint.contains(&format!("pip install {want}")), "{hint}");
        }
        let only = by_hand(&names("libcudart.so.12 libcudnn.so.9"), &names("libcudnn.so.9"));
        assert!(only.contains("pip install 'nvidia-cudnn-cu12==9.*' ("), "{only}");
    }

    #[test]
    fn folders_of_the_dynamic_loader_are_read_in_order() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("b.conf"), "# cuda\n/opt/b\n").unwrap();
        fs::write(dir.path().join("a.conf"), "/opt/a\n  /opt/a2\nnonsense\n").unwrap();
        fs::write(dir.path().join("old.bak"), "/opt/old\n").unwrap();
        assert_eq!(loader_dirs(dir.path()), ["/opt/a", "/opt/a2", "/opt/b"].map(PathBuf::from));
    }
}
