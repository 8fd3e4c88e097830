//! The end of an append-only file after a power cut.
//!
//! A file system may have written how long a file has become, and not yet what was appended: ext4 does so, with
//! its default options, when another file is synced within the second between two syncs of this one. Zeros
//! are read there. A server takes a file whose last record is cut, and refuses one with zeros behind it.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::Path,
};

use crate::{KitError, log_file::open_log};

/// Read at a time, from the end.
const BLOCK_BYTES: u64 = 64 << 10;

/// Cuts zeros off the end of the newest file of changes, where a power cut has left some, and says so in the
/// server's log. A record ends with CR LF: zeros at the end are those of one that is cut anyway.
pub(crate) fn cut_zeros_of_changes(changes: &Path, log: &Path) -> Result<(), KitError> {
    let cut = match cut_zeros(changes) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        cut => cut.map_err(KitError::io("mend", changes))?,
    };
    if cut > 0 {
        let changes = changes.display();
        open_log(log)
            .and_then(|mut log| {
                writeln!(log, "{cut} zeros at the end of {changes} are cut off: a power cut left them")
            })
            .map_err(KitError::io("write", log))?;
    }
    Ok(())
}

/// Cuts zeros off the end of a file, and returns how many there were.
fn cut_zeros(path: &Path) -> io::Result<u64> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let bytes = file.metadata()?.len();
    let kept = length_without_zeros(&file, bytes)?;
    if kept < bytes {
        file.set_len(kept)?;
        file.sync_all()?;
    }
    Ok(bytes - kept)
}

/// Where the last byte that is not zero ends.
fn length_without_zeros(file: &File, mut bytes: u64) -> io::Result<u64> {
    let mut block = Vec::new();
    while bytes > 0 {
        let begin = (bytes - 1) / BLOCK_BYTES * BLOCK_BYTES;
        block.resize((bytes - begin) as usize, 0);
        file.read_exact_at(&mut block, begin)?;
        if let Some(last) = block.iter().rposition(|byte| *byte != 0) {
            return Ok(begin + last as u64 + 1);
        }
        bytes = begin;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn zeros_at_the_end_go_however_many_and_no_other_byte_table() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("appendonly.aof.1.incr.aof");
        let block = BLOCK_BYTES as usize;
        for kept in [0, 1, 7, block - 1, block, block + 1, 2 * block] {
            for zeros in [0, 1, 9, block - 1, block, 2 * block + 1] {
                let mut data = vec![0; kept];
                data.iter_mut().rev().take(3).for_each(|byte| *byte = b'\n');
                let whole = [&data[..], &vec![0; zeros]].concat();
                fs::write(&path, &whole).unwrap();
                assert_eq!(cut_zeros(&path).unwrap(), zeros as u64, "{kept} and {zeros}");
                assert_eq!(fs::read(&path).unwrap(), data, "{kept} and {zeros}");
            }
        }
    }
}
