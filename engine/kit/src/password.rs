//! The password of a server of our own.

use std::{
    fmt::{self, Write as _},
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rand::Rng;

const BYTES: usize = 32;

/// Kept in a file that only its owner may read. Never printed.
#[derive(Clone)]
pub(super) struct Password(String);

impl Password {
    /// Reads the password kept at `path`, or makes one of 256 random bits and keeps it there with mode 0600. The file is there
    /// as a whole or not at all; an empty one, which an earlier release left where the disk was full, counts as none. The
    /// caller holds the lock of the folder.
    pub(super) fn load_or_create(path: &Path) -> io::Result<Self> {
        match fs::read_to_string(path) {
            Ok(kept) if !kept.is_empty() => return Self::parse(kept.trim()),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let mut bytes = [0u8; BYTES];
        rand::rng().fill_bytes(&mut bytes);
        let mut hex = String::with_capacity(2 * BYTES);
        for byte in bytes {
            let _ = write!(hex, "{byte:02x}");
        }
        let unfinished = path.with_added_extension("new");
        let kept = write(&unfinished, &hex).and_then(|()| fs::rename(&unfinished, path));
        kept.inspect_err(|_| drop(fs::remove_file(&unfinished)))?;
        Ok(Self(hex))
    }

    /// What a configuration file and a URL may hold as it is.
    fn parse(kept: &str) -> io::Result<Self> {
        match kept.len() == 2 * BYTES && kept.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            true => Ok(Self(kept.to_owned())),
            false => Err(io::Error::other("the password is not 64 hexadecimal digits")),
        }
    }

    /// As its file holds it. Goes into no log and no argument.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    // What a start left that was killed may be open to others.
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(***)")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_password_survives_its_file_and_never_shows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        let made = Password::load_or_create(&path).unwrap();
        assert_eq!(made.reveal(), Password::load_or_create(&path).unwrap().reveal());
        assert_eq!(format!("{made:?}"), "Password(***)");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn an_empty_file_counts_as_none_and_nothing_unfinished_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        fs::write(&path, "").unwrap();
        fs::write(dir.path().join("password.new"), "abc").unwrap();
        let made = Password::load_or_create(&path).unwrap();
        assert_eq!(made.reveal(), fs::read_to_string(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_password_is_refused_before_it_reaches_a_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        let injected = format!("{}\nbind 0.0.0.0", "a".repeat(64));
        for bad in ["abc", &"g".repeat(64), &injected] {
            fs::write(&path, bad).unwrap();
            assert!(Password::load_or_create(&path).is_err(), "{bad:?}");
        }
    }
}
