//! How much room the disk of the state directory has.

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
};

use syncline_rpc::folder;

use crate::shard::lock;

/// The disk, as it was when it was last looked at: whoever tells others does not wait for it.
pub(super) struct Disk {
    dir: PathBuf,
    free_bytes: Mutex<Option<u64>>,
}

impl Disk {
    pub(super) fn of(state_dir: &Path) -> Self {
        let disk = Self { dir: state_dir.to_owned(), free_bytes: Mutex::default() };
        disk.look();
        disk
    }

    /// Looks how much is free. May block as long as the disk does.
    pub(super) fn look(&self) {
        let free_bytes = folder::free_bytes(&self.dir);
        *lock(&self.free_bytes) = free_bytes;
    }

    /// `None`: the system does not tell.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        *lock(&self.free_bytes)
    }
}
