//! Whom a standby has named as the engine that leads.

use std::{
    net::SocketAddr,
    sync::{Mutex, MutexGuard},
};

use super::threads::lock;

/// The engine to call next, and the one that was called last.
#[derive(Debug, Default)]
pub(super) struct LeaderHint(Mutex<Addresses>);

#[derive(Debug, Default)]
struct Addresses {
    hinted: Option<String>,
    called: String,
}

impl LeaderHint {
    /// The address that was hinted at, once.
    pub(super) fn take(&self) -> Option<String> {
        self.lock().hinted.take()
    }

    /// From now on the engine at this address is the one that was called last.
    pub(super) fn called(&self, address: &str) {
        address.clone_into(&mut self.lock().called);
    }

    /// Where that one was called.
    pub(super) fn last_called(&self) -> String {
        self.lock().called.clone()
    }

    /// The engine that was called last says that the one at this address leads. `false`: that leads nowhere.
    pub(super) fn note(&self, leader: &str) -> bool {
        let mut addresses = self.lock();
        let follows = leads_somewhere(leader, &addresses.called);
        addresses.hinted = follows.then(|| leader.to_owned());
        follows
    }

    pub(super) fn is_there(&self) -> bool {
        self.lock().hinted.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Addresses> {
        lock(&self.0)
    }
}

/// Whether an address can be called that the engine at `called` has named. An engine that listens everywhere
/// does not know how it is reached, and what is local for that engine is local for us only if we have called
/// it so: our token goes to nobody else.
fn leads_somewhere(leader: &str, called: &str) -> bool {
    let Ok(leader) = leader.parse::<SocketAddr>() else { return false };
    let is_local = match called.parse::<SocketAddr>() {
        Ok(called) => called.ip().is_loopback(),
        Err(_) => called.rsplit_once(':').is_some_and(|(host, _)| host == "localhost"),
    };
    let host = leader.ip().to_canonical();
    !host.is_unspecified() && leader.port() != 0 && (is_local || !host.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_table() {
        #[rustfmt::skip]
        let cases = [
            ("elsewhere",                 "10.0.0.2:7461",  "10.0.0.1:7461",  true),
            ("named by name",             "10.0.0.2:7461",  "engine-1:7461",  true),
            ("both here",                 "127.0.0.1:2",    "127.0.0.1:1",    true),
            ("both here, by name",        "127.0.0.1:2",    "localhost:1",    true),
            ("both here, of version 6",   "[::1]:2",        "127.0.0.1:1",    true),
            ("here for that machine",     "127.0.0.1:7461", "10.0.0.1:7461",  false),
            ("here for that name",        "[::1]:7461",     "engine-1:7461",  false),
            ("everywhere",                "0.0.0.0:7461",   "10.0.0.1:7461",  false),
            ("everywhere, of version 6",  "[::]:7461",      "127.0.0.1:7461", false),
            ("no port",                   "10.0.0.2:0",     "10.0.0.1:7461",  false),
            ("nothing",                   "",               "10.0.0.1:7461",  false),
        ];
        for (name, leader, called, follows) in cases {
            assert_eq!(leads_somewhere(leader, called), follows, "{name}");
        }
    }

    #[test]
    fn a_hint_is_followed_once() {
        let hint = LeaderHint::default();
        hint.called("10.0.0.1:1");
        assert_eq!(hint.take(), None);
        assert!(hint.note("10.0.0.2:2") && hint.is_there());
        assert_eq!(hint.take().as_deref(), Some("10.0.0.2:2"));
        assert!(!hint.is_there());
        assert!(hint.note("10.0.0.2:2") && !hint.note("0.0.0.0:2"), "the newer one counts");
        assert_eq!(hint.take(), None);
    }
}
