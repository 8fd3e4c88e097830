//! Digests of files that are pinned.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::Path,
};

/// What a file must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    pub(crate) kind: DigestKind,
    /// Lower-case.
    pub(crate) hex: &'static str,
}

/// How it is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DigestKind {
    Sha256,
    Blake3,
}

impl fmt::Display for DigestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha256 => "sha256",
            Self::Blake3 => "blake3",
        })
    }
}

impl DigestKind {
    /// The digest of a file, in lower-case hex.
    pub(crate) fn of(self, path: &Path) -> io::Result<String> {
        let mut file = File::open(path)?;
        match self {
            Self::Blake3 => {
                let mut hasher = blake3::Hasher::new();
                hasher.update_reader(file)?;
                Ok(hasher.finalize().to_hex().to_string())
            }
            Self::Sha256 => {
                let mut hash = hmac_sha256::Hash::new();
                let mut buffer = vec![0; 256 * 1024];
                loop {
                    match file.read(&mut buffer)? {
                        0 => break,
                        read => hash.update(&buffer[..read]),
                    }
                }
                Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_that_everybody_computes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        let want = [
            (DigestKind::Sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (DigestKind::Blake3, "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
        ];
        for (kind, hex) in want {
            assert_eq!(kind.of(&path).unwrap(), hex, "{kind}");
        }
    }
}
