//! Which Redis server a cluster used, so that the next start sees whether it is the same.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Port and database where an address names none.
const DEFAULT_PORT: &str = "6379";
const DEFAULT_DATABASE: &str = "0";

/// Which Redis server it was; without user, password and parameters, which may change and are no secret of
/// this file's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SavedRedis {
    /// The one that `up` starts.
    Own,
    /// One that was named: `HOST:PORT/DATABASE`, or the path of a socket.
    At(String),
}

impl SavedRedis {
    /// Of an address as `--redis` takes it; `None`: of our own.
    pub(crate) fn of(url: Option<&str>) -> Self {
        url.map_or(Self::Own, |url| Self::At(place(url)))
    }
}

impl fmt::Display for SavedRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("the Redis of its own"),
            Self::At(place) => write!(f, "the Redis at {place}"),
        }
    }
}

/// What stays the same where the same server and database are meant. A password may hold `?`, `/` and `@`:
/// what stands in front of the last `@` is left out whatever it is, but for a socket, which has its password
/// behind the `?`.
fn place(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    let without_parameters = |rest: &str| rest.split(['?', '#']).next().unwrap_or_default().to_owned();
    if scheme.contains("unix") {
        return format!("{scheme}://{}", without_parameters(rest));
    }
    let rest = &without_parameters(rest.rsplit_once('@').map_or(rest, |(_, host)| host));
    let (host, database) = rest.split_once('/').unwrap_or((rest, ""));
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let port = if has_port { String::new() } else { format!(":{DEFAULT_PORT}") };
    let database = Some(database.trim_end_matches('/')).filter(|d| !d.is_empty()).unwrap_or(DEFAULT_DATABASE);
    format!("{scheme}://{}{port}/{database}", host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_server_and_database_is_the_same_place_table() {
        #[rustfmt::skip]
        let cases = [
            ("redis://db",                          "redis://db:6379/0"),
            ("redis://DB:6379/",                    "redis://db:6379/0"),
            ("redis://me:se/c@r?et@db:6379/0",      "redis://db:6379/0"),
            ("redis://:secret@db:7000/2?protocol=3", "redis://db:7000/2"),
            ("rediss://[::1]/1",                    "rediss://[::1]:6379/1"),
            ("rediss://[::1]:7/1#insecure",         "rediss://[::1]:7/1"),
            ("redis+unix:///run/redis.sock?pass=x", "redis+unix:///run/redis.sock"),
            ("redis+unix:///run/redis.sock?user=u&pass=sec@ret", "redis+unix:///run/redis.sock"),
        ];
        for (url, want) in cases {
            assert_eq!(SavedRedis::of(Some(url)), SavedRedis::At(want.to_owned()), "{url}");
        }
        assert_eq!(serde_json::to_string(&SavedRedis::of(None)).unwrap(), r#""own""#);
    }
}
