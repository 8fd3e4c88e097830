//! Where the engines of one cluster listen.

use std::{fmt, iter, net::SocketAddr, str::FromStr};

/// Addresses of the engines of one cluster, of which one leads: at least one, each HOST:PORT. As text with
/// commas between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineAddresses {
    first: String,
    others: Vec<String>,
}

/// Why a text names no engines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[E127] `{given}` is no address: expected HOST:PORT, with several engines HOST:PORT,HOST:PORT")]
pub struct InvalidAddress {
    given: String,
}

impl InvalidAddress {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        "E127"
    }

    /// What the user can do about it: the text says all there is.
    pub fn hint(&self) -> Option<String> {
        None
    }
}

impl EngineAddresses {
    /// How many there are, never 0.
    pub fn count(&self) -> usize {
        1 + self.others.len()
    }

    /// These and one more.
    #[must_use]
    pub fn and(mut self, other: SocketAddr) -> Self {
        self.others.push(other.to_string());
        self
    }

    /// In the order in which they were named.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        iter::once(&self.first).chain(&self.others).map(String::as_str)
    }

    /// Each alone.
    pub fn each(&self) -> impl Iterator<Item = Self> {
        self.iter().map(|address| Self { first: address.to_owned(), others: Vec::new() })
    }

    /// Address number `turn`, counted round and round.
    pub(super) fn round_robin(&self, turn: usize) -> &str {
        match turn % self.count() {
            0 => &self.first,
            n => &self.others[n - 1],
        }
    }
}

impl FromStr for EngineAddresses {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let mut each = text.split(',').map(str::trim).map(|address| match is_address(address) {
            true => Ok(address.to_owned()),
            false => Err(InvalidAddress { given: address.to_owned() }),
        });
        // A split text has at least one part.
        let first = each.next().unwrap_or_else(|| Err(InvalidAddress { given: text.to_owned() }))?;
        Ok(Self { first, others: each.collect::<Result<_, _>>()? })
    }
}

/// Whether it stands for all addresses of a machine (0.0.0.0), and so for another machine to everybody else.
pub fn is_of_every_machine(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_unspecified())
}

/// Whether it is a name or an IP address, IPv6 in brackets, and a port to connect to.
fn is_address(text: &str) -> bool {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return address.port() != 0;
    }
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let named = host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
    !host.is_empty() && named && port.parse::<u16>().is_ok_and(|port| port != 0)
}

impl fmt::Display for EngineAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iter().collect::<Vec<_>>().join(","))
    }
}

impl From<SocketAddr> for EngineAddresses {
    fn from(address: SocketAddr) -> Self {
        Self { first: address.to_string(), others: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_table() {
        for good in ["a:1", "10.0.0.1:7461", "[::1]:7461", "engine-1.example.org:65535", "a:1,b:2,a:3"] {
            let read: EngineAddresses = good.parse().unwrap();
            assert_eq!(read.to_string(), good);
            assert_eq!(read.count(), good.split(',').count());
        }
        assert_eq!("a:1, b:2".parse::<EngineAddresses>().unwrap().to_string(), "a:1,b:2");
        for bad in [
            "",
            "nonsense",
            "a:",
            ":1",
            "a:0",
            "a:65536",
            "a:1,",
            "a:1,,b:2",
            "http://a:1",
            "::1:80",
            "a b:1",
        ] {
            let error = bad.parse::<EngineAddresses>().unwrap_err().to_string();
            assert!(error.starts_with("[E127] "), "{bad}: {error}");
        }
    }

    #[test]
    fn turns_go_round() {
        let addresses: EngineAddresses = "a:1,b:2".parse().unwrap();
        let turns: Vec<&str> = (0..4).map(|turn| addresses.round_robin(turn)).collect();
        assert_eq!(turns, ["a:1", "b:2", "a:1", "b:2"]);
    }
}
