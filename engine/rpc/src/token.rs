//! The secret that every process of one cluster knows.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    str::FromStr,
    sync::Once,
};

use rand::Rng;
use subtle::ConstantTimeEq;
use tracing::warn;

use super::folder;

/// The bit of a file's mode.
const READABLE_BY_ALL: u32 = 0o004;

/// 256 random bits, kept in a file that only its owner may read. Never printed.
#[derive(Clone)]
pub struct Token([u8; Token::BYTES]);

/// Why a text is not a token; the text itself is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("[E120] the token is not 64 hexadecimal digits")]
pub struct InvalidToken;

impl InvalidToken {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        "E120"
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        Some("name the file that `syncline up` printed; it holds 64 hexadecimal digits".to_owned())
    }
}

impl Token {
    /// Length.
    pub const BYTES: usize = 32;

    /// A new token from the system's randomness.
    pub fn generate() -> Self {
        let mut bytes = [0; Self::BYTES];
        rand::rng().fill_bytes(&mut bytes);
        Self(bytes)
    }

    /// Reads the token kept at `path`.
    ///
    /// # Errors
    /// What the system says; E120 as its cause if the file holds no token, E129 if somebody else may have put
    /// it there: the cluster would be theirs. That everybody may read it is in the log, once.
    pub fn load(path: &Path) -> io::Result<Self> {
        // Whose it is explains why it cannot be opened.
        let open = File::open(path).map_err(|error| folder::check_ours(path).err().unwrap_or(error));
        Self::read(path, open?)
    }

    /// What is read was looked at, whatever has taken its name meanwhile.
    fn read(path: &Path, open: File) -> io::Result<Self> {
        let there = open.metadata()?;
        folder::check_ours_as(path, &there)?;
        let token = io::read_to_string(open)?.trim().parse().map_err(io::Error::other)?;
        if there.mode() & READABLE_BY_ALL != 0 {
            static WARNED: Once = Once::new();
            let mended_by = format!("chmod 600 {}", path.display());
            WARNED.call_once(|| warn!(mended_by, "every user of this machine may read the token file"));
        }
        Ok(token)
    }

    /// Reads the token kept at `path`, or makes one and keeps it there with mode 0600. The file is there as a
    /// whole or not at all. An empty one is refused like any other that holds no token: whoever has a
    /// copy of what stood there would be locked out.
    ///
    /// # Errors
    /// As [`Token::load`], and what writing the file meets.
    pub fn load_or_create(path: &Path) -> io::Result<Self> {
        match Self::load(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            there => return there,
        }
        let token = Self::generate();
        let unfinished = path.with_added_extension(format!("{:016x}.new", rand::random::<u64>()));
        let kept = token.write(&unfinished).and_then(|()| place(&unfinished, path));
        let _ = fs::remove_file(&unfinished);
        match kept {
            Ok(()) => Ok(token),
            // Somebody else made it between our two looks.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Self::load(path),
            Err(e) => Err(e),
        }
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(self.to_hex().as_bytes())?;
        file.sync_all()
    }

    /// From its bytes.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Its bytes, which key the proofs of a greeting. They go over no wire.
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Tells one cluster from another without telling the secret: 64 bits derived from it, in hexadecimal
    /// digits.
    pub fn fingerprint(&self) -> String {
        let derived = blake3::derive_key("syncline fingerprint of a cluster", &self.0);
        hex(&derived[..8])
    }

    /// Whether both are the same, in constant time.
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// As its file holds it. Goes into no log, no argument and no answer.
    pub(crate) fn to_hex(&self) -> String {
        hex(&self.0)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Gives a file its name, which nobody else must have taken.
fn place(unfinished: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(unfinished, path) {
        // The file system has no such links.
        Err(_) if !path.try_exists()? => fs::rename(unfinished, path),
        placed => placed,
    }
}

impl FromStr for Token {
    type Err = InvalidToken;

    fn from_str(hex: &str) -> Result<Self, InvalidToken> {
        if hex.len() != 2 * Self::BYTES || !hex.is_ascii() {
            return Err(InvalidToken);
        }
        let mut bytes = [0; Self::BYTES];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| InvalidToken)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| InvalidToken)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_file_and_never_shows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let made = Token::load_or_create(&path).unwrap();
        assert!(made.matches(&Token::load_or_create(&path).unwrap()));
        assert!(!made.matches(&Token::generate()));
        assert_eq!(format!("{made:?}"), "Token(***)");
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_others_may_write_is_refused_also_if_another_takes_its_name_once_it_is_open() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let [path, sound] = ["token", "sound"].map(|name| dir.path().join(name));
        let token = Token::load_or_create(&sound).unwrap();
        Token::generate().write(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let open = File::open(&path).unwrap();
        fs::rename(&sound, &path).unwrap();
        let refused = Token::read(&path, open).unwrap_err();
        assert!(folder::NotOurs::is_behind(&refused), "{refused}");
        assert!(token.matches(&Token::load(&path).unwrap()));
    }

    #[test]
    fn a_file_that_is_there_is_not_replaced_and_nothing_unfinished_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, "").unwrap();
        let refused = Token::load_or_create(&path).unwrap_err();
        assert!(refused.to_string().contains("[E120]") && fs::read(&path).unwrap().is_empty(), "{refused}");
        fs::remove_file(&path).unwrap();
        let made = Token::load_or_create(&path).unwrap();
        let unfinished = dir.path().join("unfinished");
        Token::generate().write(&unfinished).unwrap();
        assert_eq!(place(&unfinished, &path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(made.matches(&Token::load_or_create(&path).unwrap()));
        fs::remove_file(unfinished).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let nowhere = dir.path().join("no/folder/token");
        assert_eq!(Token::load_or_create(&nowhere).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn those_who_make_it_at_the_same_time_have_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let all: Vec<Token> = std::thread::scope(|threads| {
            let making: Vec<_> =
                (0..8).map(|_| threads.spawn(|| Token::load_or_create(&path).unwrap())).collect();
            making.into_iter().map(|made| made.join().unwrap()).collect()
        });
        assert!(all.iter().all(|token| token.matches(&all[0])));
    }

    #[test]
    fn a_damaged_token_is_refused_without_being_repeated() {
        for bad in ["", "abc", &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(bad.parse::<Token>().unwrap_err(), InvalidToken);
        }
    }
}
