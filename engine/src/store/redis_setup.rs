//! What a Redis server is by its `INFO`, and how it is set up so that jobs may get lost.

use std::fmt;

use super::redis_info::{info_number, info_text};

/// What a server is, as far as an engine cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerKind {
    /// Or it does not tell.
    Single,
    /// What belongs together lies under keys that a cluster keeps apart.
    ClusterNode,
    /// It watches other servers.
    Sentinel,
    /// Whatever is written to it is refused, or gone when it copies the next time.
    Replica {
        /// The server that it copies, as `HOST:PORT`.
        master: String,
    },
}

impl ServerKind {
    pub(super) fn of_info(info: &str) -> Self {
        let text = |field| info_text(info, field);
        // Valkey calls it otherwise.
        match (text("redis_mode").or_else(|| text("server_mode")), text("role")) {
            (Some("sentinel"), _) => Self::Sentinel,
            _ if info_number(info, "cluster_enabled") == Some(1) => Self::ClusterNode,
            (_, Some("slave")) => {
                let (host, port) = (text("master_host"), text("master_port"));
                Self::Replica { master: format!("{}:{}", host.unwrap_or("?"), port.unwrap_or("?")) }
            }
            _ => Self::Single,
        }
    }
}

/// How a server is set up so that it may lose jobs. An engine leads on it all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedisRisk {
    /// Where its memory is short it makes room by itself.
    Evicts {
        /// The setting `maxmemory-policy`.
        policy: String,
        /// The setting `maxmemory`.
        limit_bytes: u64,
    },
    /// It has neither an append-only file nor a snapshot from time to time.
    KeepsNothing,
}

impl fmt::Display for RedisRisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Evicts { policy, limit_bytes } => {
                format!(
                    "at its limit of {limit_bytes} bytes it removes keys, as maxmemory-policy is {policy}"
                )
            }
            Self::KeepsNothing => "all when it stops, as appendonly is no and it never saves".to_owned(),
        };
        write!(f, "[E660] redis may lose jobs: {what}")
    }
}

impl RedisRisk {
    /// Reads the answer to `INFO` and the setting `save`; `None`: the server does not tell that.
    pub(super) fn of_info(info: &str, saves: Option<&str>) -> Vec<Self> {
        let (limit_bytes, policy) = (info_number(info, "maxmemory"), info_text(info, "maxmemory_policy"));
        let evicts =
            limit_bytes.filter(|&bytes| bytes > 0).zip(policy.filter(|&policy| policy != "noeviction"));
        // One that still reads its append-only file says that it writes none.
        let is_loading = info_number(info, "loading") == Some(1);
        let keeps_nothing = !is_loading && info_number(info, "aof_enabled") == Some(0) && saves == Some("");
        let evicts =
            evicts.map(|(limit_bytes, policy)| Self::Evicts { policy: policy.to_owned(), limit_bytes });
        evicts.into_iter().chain(keeps_nothing.then_some(Self::KeepsNothing)).collect()
    }

    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        "E660"
    }

    /// What the user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Evicts { .. } => {
                "`redis-cli CONFIG SET maxmemory-policy noeviction`, and the same in its configuration file: a full server then refuses what is new"
            }
            Self::KeepsNothing => {
                "`redis-cli CONFIG SET appendonly yes`, and the same in its configuration file"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_is_table() {
        let replica = |master: &str| ServerKind::Replica { master: master.to_owned() };
        #[rustfmt::skip]
        let cases = [
            ("redis_mode:standalone\r\nrole:master\r\ncluster_enabled:0\r\n",        ServerKind::Single),
            ("",                                                                     ServerKind::Single),
            ("redis_mode:cluster\r\nrole:slave\r\ncluster_enabled:1\r\n",            ServerKind::ClusterNode),
            ("redis_mode:sentinel\r\n",                                              ServerKind::Sentinel),
            ("server_mode:sentinel\r\n",                                             ServerKind::Sentinel),
            ("role:slave\r\nmaster_host:10.0.0.2\r\nmaster_port:6379\r\n",           replica("10.0.0.2:6379")),
            ("role:slave\r\n",                                                       replica("?:?")),
        ];
        for (info, want) in cases {
            assert_eq!(ServerKind::of_info(info), want, "{info}");
        }
    }

    #[test]
    fn what_may_lose_jobs_table() {
        let evicts = |policy: &str| RedisRisk::Evicts { policy: policy.to_owned(), limit_bytes: 9 };
        let nothing = RedisRisk::KeepsNothing;
        #[rustfmt::skip]
        let cases: [(&str, Option<&str>, &[RedisRisk]); 9] = [
            ("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:1\r\n",    Some(""),      &[]),
            ("maxmemory:9\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n",     Some(""),      &[]),
            ("maxmemory:9\r\nmaxmemory_policy:volatile-ttl\r\naof_enabled:1\r\n",   Some(""),      &[evicts("volatile-ttl")]),
            ("maxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:0\r\n",     Some("60 1"),  &[]),
            ("maxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:0\r\n",     Some(""),      std::slice::from_ref(&nothing)),
            ("maxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:0\r\n",     None,          &[]),
            ("maxmemory:9\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:0\r\n",    Some(""),      &[evicts("allkeys-lru"), nothing.clone()]),
            ("maxmemory:0\r\nloading:1\r\naof_enabled:0\r\n",                        Some(""),      &[]),
            ("",                                                                    Some(""),      &[]),
        ];
        for (info, saves, want) in cases {
            let found = RedisRisk::of_info(info, saves);
            assert_eq!(found, want, "{info}, save {saves:?}");
        }
    }
}
