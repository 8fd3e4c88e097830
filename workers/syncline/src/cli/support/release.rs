//! Which release this is, and what it speaks: another binary works with it if that is the same.

use std::sync::LazyLock;

use syncline_engine::store::keys::SCHEMA;
use syncline_rpc::hello::PROTOCOL_VERSION;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What `syncline --version` prints behind the name.
pub(crate) static LONG_VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{VERSION}\nprotocol     {PROTOCOL_VERSION}\nredis schema {SCHEMA}"));

/// The same in one line.
pub(crate) fn release() -> String {
    format!("{VERSION}, protocol {PROTOCOL_VERSION}, redis schema {SCHEMA}")
}
