//! How a file of a shard begins: what it is, and a head that says how many numbers follow.
//!
//! ```text
//! magic [8] | head length u64 le | head (postcard) | numbers
//! ```

use std::io::{self, Read, Write};

use serde::{Serialize, de::DeserializeOwned};

/// Longest head that is read; one of a million workers and parameters stays far below.
const MAX_HEAD_BYTES: u64 = 1 << 30;

/// Eight bytes that say what a file is, in which version.
pub(super) type Magic = [u8; 8];

pub(super) fn write_head(out: &mut impl Write, magic: Magic, head: &impl Serialize) -> io::Result<()> {
    let head = postcard::to_stdvec(head).map_err(io::Error::other)?;
    out.write_all(&magic)?;
    out.write_all(&(head.len() as u64).to_le_bytes())?;
    out.write_all(&head)
}

/// Reads what [`write_head`] wrote. `what` it should be is said if it is something else.
pub(super) fn read_head<T: DeserializeOwned>(
    from: &mut impl Read,
    magic: Magic,
    what: &str,
) -> io::Result<T> {
    let mut start = [0; 16];
    from.read_exact(&mut start)?;
    let (found, length) = start.split_at(magic.len());
    if found != magic {
        return Err(damaged(&format!("it is no {what}, or was written by another release")));
    }
    let length = u64::from_le_bytes(length.try_into().unwrap_or_default());
    if length > MAX_HEAD_BYTES {
        return Err(damaged("its head is too long"));
    }
    let mut head = Vec::new();
    if from.take(length).read_to_end(&mut head)? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    postcard::from_bytes(&head).map_err(|e| damaged(&e.to_string()))
}

/// Numbers as they lie in memory.
pub(super) fn read_numbers(count: usize, from: &mut impl Read) -> io::Result<Vec<f32>> {
    let mut numbers = Vec::new();
    numbers.try_reserve_exact(count).map_err(io::Error::other)?;
    numbers.resize(count, 0.0f32);
    from.read_exact(bytemuck::cast_slice_mut(&mut numbers))?;
    Ok(numbers)
}

pub(super) fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}
