//! Which libraries a shared library asks the dynamic loader for, and whether a machine can load it.
//!
//! In: a 64-bit little-endian ELF file with section headers. Out: its `DT_NEEDED` names in order. Reads a few
//! kilobytes, wherever they lie in the file. Format: System V ABI, chapters 4 and 5.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A 64-bit little-endian file.
const MAGIC: [u8; 6] = *b"\x7fELF\x02\x01";
/// `e_machine` of this program.
const THIS_MACHINE: u16 = if cfg!(target_arch = "aarch64") { 0xb7 } else { 0x3e };
const SHT_DYNAMIC: u32 = 6;
const DT_NEEDED: u64 = 1;
const SECTION_BYTES: u64 = 64;
/// One dynamic entry: tag and value.
const ENTRY_BYTES: usize = 16;
/// No library has more; what says so is damaged.
const MOST_ENTRIES: u64 = 10_000;
const LONGEST_NAME: usize = 256;

/// Whether a file is a library of this machine's kind. The dynamic loader passes over those of another class
/// or processor while it searches, such as 32-bit ones; one that is named by its path it refuses.
pub(super) fn is_of_this_machine(library: &Path) -> bool {
    let header = File::open(library).and_then(|file| read::<20>(&file, 0));
    header.is_ok_and(|header| {
        header[..6] == MAGIC && u16::from_le_bytes([header[18], header[19]]) == THIS_MACHINE
    })
}

/// The names that `library` needs, in the order in which they are loaded.
pub(super) fn needed(library: &Path) -> io::Result<Vec<String>> {
    let file = File::open(library)?;
    let header: [u8; 64] = read(&file, 0)?;
    if header[..6] != MAGIC {
        return Err(damaged("it is no 64-bit little-endian ELF file"));
    }
    let (sections, count) = (u64_at(&header, 0x28), u16::from_le_bytes([header[0x3c], header[0x3d]]));
    let section = |index: u64| -> io::Result<[u8; SECTION_BYTES as usize]> {
        let offset = index.checked_mul(SECTION_BYTES).and_then(|o| o.checked_add(sections));
        read(&file, offset.ok_or_else(|| damaged("its section table lies nowhere"))?)
    };
    for index in 0..u64::from(count) {
        let dynamic = section(index)?;
        if u32_at(&dynamic, 4) != SHT_DYNAMIC {
            continue;
        }
        let (offset, entries) = (u64_at(&dynamic, 0x18), u64_at(&dynamic, 0x20) / ENTRY_BYTES as u64);
        let names = u64_at(&section(u64::from(u32_at(&dynamic, 0x28)))?, 0x18);
        if entries > MOST_ENTRIES {
            return Err(damaged("its dynamic section is too long"));
        }
        let mut bytes = vec![0; entries as usize * ENTRY_BYTES];
        file.read_exact_at(&mut bytes, offset)?;
        let needed = bytes.chunks_exact(ENTRY_BYTES).filter(|entry| u64_at(entry, 0) == DT_NEEDED);
        return needed.map(|entry| name(&file, names.saturating_add(u64_at(entry, 8)))).collect();
    }
    Err(damaged("it has no dynamic section"))
}

/// The text at `offset`, up to its zero byte.
fn name(file: &File, offset: u64) -> io::Result<String> {
    let mut bytes = vec![0; LONGEST_NAME];
    let read = file.read_at(&mut bytes, offset)?;
    let end = bytes[..read].iter().position(|&byte| byte == 0);
    let end = end.ok_or_else(|| damaged("a name in it has no end"))?;
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

fn read<const N: usize>(file: &File, offset: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_needs_the_c_library() {
        let needed = needed(&std::env::current_exe().unwrap()).unwrap();
        assert!(needed.iter().any(|name| name == "libc.so.6"), "{needed:?}");
    }

    #[test]
    fn what_is_no_library_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lib.so");
        let mut torn = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        torn.truncate(4096);
        for bytes in [b"".to_vec(), b"\x7fELF".to_vec(), vec![b'x'; 100], torn] {
            std::fs::write(&path, bytes).unwrap();
            needed(&path).unwrap_err();
        }
    }

    #[test]
    fn a_library_of_another_class_or_processor_is_not_of_this_machine() {
        let this = std::fs::read(std::env::current_exe().unwrap()).unwrap()[..64].to_vec();
        let changed = |at: usize, to: u8| {
            let mut header = this.clone();
            header[at] = to;
            header
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lib.so");
        for (header, want) in [
            (this.clone(), true),
            (changed(4, 1), false),
            (changed(5, 2), false),
            (changed(18, 3), false),
            (this[..19].to_vec(), false),
            (b"INPUT ( libother.so.1 ) and more".to_vec(), false),
        ] {
            std::fs::write(&path, &header).unwrap();
            assert_eq!(is_of_this_machine(&path), want, "{header:?}");
        }
        assert!(!is_of_this_machine(dir.path()) && !is_of_this_machine(&dir.path().join("nowhere")));
    }
}
