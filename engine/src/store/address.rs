//! Where a Redis server is, and the password with which it lets us in.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use redis::{Client, IntoConnectionInfo, io::tcp::TcpSettings};
use syncline_rpc::input;

use super::StoreError;

/// Longest file with a password.
const MAX_PASSWORD_BYTES: u64 = 4096;

/// What stands in place of a secret.
const HIDDEN: &str = "***";

/// Address of a Redis server. Shows no password.
#[derive(Clone)]
pub struct RedisAddress {
    url: String,
    password_file: Option<PathBuf>,
}

impl RedisAddress {
    /// Takes the password from a file, which is read again whenever the server refuses what it held before: a
    /// server of `syncline up` has another one after each start.
    #[must_use]
    pub fn with_password_file(self, password_file: Option<PathBuf>) -> Self {
        Self { password_file, ..self }
    }

    pub(super) fn password_file(&self) -> Option<&Path> {
        self.password_file.as_deref()
    }

    /// With the password as it is now. Connects to nobody.
    pub(super) fn client(&self) -> Result<Client, StoreError> {
        let address = |source| StoreError::Address { url: self.to_string(), source };
        // The end of a large commit must not wait until its beginning is acknowledged.
        let at_once = TcpSettings::default().set_nodelay(true);
        let mut info = self.url.as_str().into_connection_info().map_err(address)?.set_tcp_settings(at_once);
        if let Some(file) = &self.password_file {
            let password =
                password(file).map_err(|source| StoreError::PasswordFile { path: file.clone(), source })?;
            let settings = info.redis_settings().clone().set_password(&password);
            info = info.set_redis_settings(settings);
        }
        Client::open(info).map_err(address)
    }
}

/// What stands in the file. A pipe is not waited for: whoever waits holds the connection of all.
fn password(file: &Path) -> io::Result<String> {
    let password = input::read_text(file, MAX_PASSWORD_BYTES)?.trim().to_owned();
    match password.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::InvalidData, "it holds no password")),
        false => Ok(password),
    }
}

impl<T: Into<String>> From<T> for RedisAddress {
    fn from(url: T) -> Self {
        Self { url: url.into(), password_file: None }
    }
}

impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = redacted(&self.url);
        match self.password_file.is_some() && !shown.contains(HIDDEN) {
            // Whoever reads it must know that there is one.
            true => f.write_str(&shown.replacen("://", &format!("://{HIDDEN}@"), 1)),
            false => f.write_str(&shown),
        }
    }
}

impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisAddress({self})")
    }
}

/// The address without user name and password, in whatever way they were written, even where the address is
/// none.
pub fn redacted(url: &str) -> String {
    let is_scheme = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => (format!("{scheme}://"), rest),
        _ => (String::new(), url),
    };
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    let shown = match (query, place.rsplit_once('@')) {
        // Whether a password holds the question mark, or what is behind it holds an `@`, nobody can tell.
        (Some(query), _) if query.contains('@') => HIDDEN.to_owned(),
        (Some(_), Some((_, host))) => format!("{HIDDEN}@{host}?{HIDDEN}"),
        (Some(_), None) => format!("{place}?{HIDDEN}"),
        (None, Some((_, host))) => format!("{HIDDEN}@{host}"),
        (None, None) => place.to_owned(),
    };
    scheme + &shown
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

    #[test]
    fn whoever_asks_for_tls_is_told_what_to_do_without() {
        for (url, hint) in
            [("rediss://host:6379/", "TLS is not spoken"), ("no-address", "see whether a Redis")]
        {
            let refused = RedisAddress::from(url).client().unwrap_err();
            assert_eq!(refused.code(), "E200", "{url}");
            assert!(refused.hint().unwrap().starts_with(hint), "{url}");
        }
    }

    #[test]
    fn a_password_is_the_text_of_a_small_file_and_nothing_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("good"), " secret \n").unwrap();
        fs::write(path("empty"), "\n").unwrap();
        fs::write(path("large"), vec![b'x'; 5000]).unwrap();
        assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        assert_eq!(password(&path("good")).unwrap(), "secret");
        for (file, cause) in [
            (path("empty"), "it holds no password"),
            (path("large"), "it has more than 4096 bytes"),
            (path("pipe"), "it is a pipe, not a file"),
            ("/dev/zero".into(), "it is a device, not a file"),
        ] {
            assert_eq!(password(&file).unwrap_err().to_string(), cause);
        }
    }

    #[test]
    fn a_password_never_shows_in_an_address() {
        for (url, shown) in [
            ("redis://user:secret@host:6379/0", "redis://***@host:6379/0"),
            ("redis://127.0.0.1:6379/", "redis://127.0.0.1:6379/"),
            ("user:secret@host:6379", "***@host:6379"),
            ("redis+unix:///run/redis.sock?pass=secret", "redis+unix:///run/redis.sock?***"),
            ("redis+unix:///run/redis.sock?user=u&pass=sec@ret", "redis+unix://***"),
            ("redis://:sec?ret@host/", "redis://***"),
            ("redis://:sec@ret@host/?protocol=resp3", "redis://***@host/?***"),
            ("user:sec://ret@host", "***@host"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }

    #[test]
    fn an_address_takes_the_password_that_its_file_holds_now_and_says_that_there_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        let address =
            RedisAddress::from("redis://trainer@host:6379/3").with_password_file(Some(file.clone()));
        assert!(address.client().unwrap_err().to_string().starts_with("[E208]"));
        for password in ["first", "second"] {
            fs::write(&file, format!("{password}\n")).unwrap();
            let client = address.client().unwrap();
            let settings = client.get_connection_info().redis_settings();
            assert_eq!((settings.username(), settings.password()), (Some("trainer"), Some(password)));
            assert_eq!(settings.db(), 3);
        }
        assert_eq!(address.to_string(), "redis://***@host:6379/3");
        let bare = RedisAddress::from("redis://host:6379/").with_password_file(Some(file));
        assert_eq!(format!("{bare:?}"), "RedisAddress(redis://***@host:6379/)");
    }
}
