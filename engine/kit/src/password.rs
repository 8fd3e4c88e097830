//! The password of a server of our own.

use std::{
    fmt::{self, Write as _},
    io,
    path::Path,
};

use rand::Rng;

use crate::private_file::write_private;

const BYTES: usize = 32;

/// That of one start of a server. Never printed.
#[derive(Clone)]
pub(super) struct Password(String);

impl Password {
    /// 256 random bits, in digits that a configuration file and a URL may hold as they are.
    pub(super) fn generate() -> Self {
        let mut bytes = [0u8; BYTES];
        rand::rng().fill_bytes(&mut bytes);
        let mut hex = String::with_capacity(2 * BYTES);
        for byte in bytes {
            let _ = write!(hex, "{byte:02x}");
        }
        Self(hex)
    }

    /// Keeps it in a file of mode 0600, in place of an earlier one.
    pub(super) fn keep(&self, path: &Path) -> io::Result<()> {
        write_private(path, &self.0)
    }

    /// As its file holds it. Goes into no log and no argument.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(***)")
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_password_takes_the_place_of_an_earlier_one_and_never_shows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        for left in [&path, &dir.path().join("password.new")] {
            fs::write(left, "abc").unwrap();
            fs::set_permissions(left, fs::Permissions::from_mode(0o644)).unwrap();
        }
        let made = Password::generate();
        made.keep(&path).unwrap();
        assert_eq!(made.reveal(), fs::read_to_string(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(format!("{made:?}"), "Password(***)");
        assert_ne!(made.reveal(), Password::generate().reveal());
    }
}
