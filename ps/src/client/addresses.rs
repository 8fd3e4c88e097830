//! Addresses of the shards, which may change while a worker trains.

use std::{
    collections::BTreeMap,
    fmt::Display,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use syncline_rpc::{UnreachedShard, threads::lock};
use syncline_scheduler::ids::{JobId, ShardIndex};
use tracing::{info, warn};

use super::Link;
use crate::{
    PsError,
    transport::{Socket, Transport},
};

/// How long it holds that others hear of all shards.
const HEARD_FOR: Duration = Duration::from_secs(3);
/// Whoever has not tried to reach a shard for so long has nothing to do there, and does not know whether it
/// is reached by now.
const TRIED_FOR: Duration = Duration::from_secs(60);

/// Addresses of all shards, in order. Clones share them: when a shard has moved, the new address is set here,
/// and a connection that breaks is opened again at that address.
#[derive(Debug, Clone, Default)]
pub struct Addresses(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    addresses: Vec<String>,
    connections: BTreeMap<usize, Connection>,
    /// Shards that a caller has lost and not reached again.
    unreachable: BTreeMap<usize, LostLink>,
    /// `None` if the last word of others was that they do not hear of all shards.
    heard: Option<Heard>,
    /// What shards have lent is being read where it lies: who loses the connection would write there.
    reads_lent: bool,
    /// Pushes are encoded, because that was found to be faster.
    encodes: bool,
}

/// Others say that they hear of all shards.
#[derive(Debug)]
struct Heard {
    /// Without another word in between, or a time in which they said nothing.
    since: Instant,
    last: Instant,
}

/// A shard that a caller has lost.
#[derive(Debug)]
struct LostLink {
    address: String,
    /// Whose call tried it last.
    job: JobId,
    since: Instant,
    tried: Instant,
}

/// An open connection, and the address that it leads to.
#[derive(Debug)]
struct Connection {
    address: String,
    socket: Socket,
    transport: Transport,
}

impl Addresses {
    fn lock(&self) -> MutexGuard<'_, Known> {
        lock(&self.0)
    }

    /// As they are known now.
    pub fn get(&self) -> Vec<String> {
        self.lock().addresses.clone()
    }

    /// Replaces the addresses. A connection to a shard that is elsewhere now is cut: whoever is still there
    /// may keep a caller waiting forever. One who reads what was lent waits for nobody: it is cut with
    /// the next call. Whether a shard is reached where it is now is to be found out.
    pub fn set(&self, addresses: Vec<String>) {
        let mut known = self.lock();
        known.addresses = addresses;
        let Known { addresses, unreachable, .. } = &mut *known;
        unreachable.retain(|index, lost| addresses.get(*index).is_none_or(|now| *now == lost.address));
        if !known.reads_lent {
            known.cut_moved();
        }
    }

    /// A caller goes on to read what these shards have lent. False: one of them has moved just now, and got
    /// it back with the connection.
    pub(super) fn begin_reading(&self, mut lenders: impl Iterator<Item = usize>) -> bool {
        let mut known = self.lock();
        known.reads_lent = lenders.all(|index| known.connections.contains_key(&index));
        known.reads_lent
    }

    /// It is done with that.
    pub(super) fn end_reading(&self) {
        let mut known = self.lock();
        if std::mem::take(&mut known.reads_lent) {
            known.cut_moved();
        }
    }

    /// Whether others, who would know if a shard were gone, hear of all of them now.
    pub fn set_heard(&self, heard: bool) {
        let now = Instant::now();
        let mut known = self.lock();
        let before = known.heard.take().filter(|before| now - before.last < HEARD_FOR);
        known.heard = heard.then(|| Heard { since: before.map_or(now, |before| before.since), last: now });
    }

    /// Since when others say, and have just said, that they hear of all shards: one that is not reached from
    /// here is there.
    pub(super) fn heard_since(&self) -> Option<Instant> {
        let known = self.lock();
        known.heard.as_ref().filter(|heard| heard.last.elapsed() < HEARD_FOR).map(|heard| heard.since)
    }

    /// A connection to a shard was opened, or there is none any more.
    pub(super) fn register(&self, index: usize, connection: Option<(&str, &Link)>) {
        let mut known = self.lock();
        match connection {
            Some((address, link)) => {
                let (address, socket, transport) =
                    (address.to_owned(), link.socket().clone(), link.transport());
                known.connections.insert(index, Connection { address, socket, transport });
                if let Some(lost) = known.unreachable.remove(&index) {
                    info!(shard = index, address = lost.address, "the shard answers again");
                }
            }
            None => drop(known.connections.remove(&index)),
        }
    }

    /// How the bytes travel to each shard that a caller is connected to, in order.
    pub fn transports(&self) -> Vec<Transport> {
        self.lock().connections.values().map(|connection| connection.transport).collect()
    }

    /// The same in words: `shm` if it is the same for all, `shm,tcp` else, with ` (pushes as int8)` behind it
    /// where it was found out that this is faster; `None` without any connection.
    pub fn transport_words(&self) -> Option<String> {
        let each = self.transports();
        let first = each.first()?;
        let is_same = each.iter().all(|transport| transport == first);
        let told = if is_same { &each[..1] } else { &each };
        let words = told.iter().map(Transport::to_string).collect::<Vec<_>>().join(",");
        Some(if self.lock().encodes { words + " (pushes as int8)" } else { words })
    }

    /// A shard that a caller tries to reach in vain, in words.
    pub fn unreachable(&self) -> Option<String> {
        let known = self.lock();
        let (index, lost) = known.unreachable.first_key_value()?;
        Some(format!("shard s{index}, which does not answer at {}", lost.address))
    }

    /// All such shards that were tried lately, in order, as the engine is told.
    pub fn unreached(&self) -> Vec<UnreachedShard> {
        let ms_ago = |then: Instant| then.elapsed().as_millis() as u64;
        let told = |(index, lost): (&usize, &LostLink)| UnreachedShard {
            shard: ShardIndex(*index as u32),
            address: lost.address.clone(),
            job: lost.job.clone(),
            lost_ms: ms_ago(lost.since),
            tried_ms: ms_ago(lost.tried),
        };
        let known = self.lock();
        known.unreachable.iter().filter(|(_, lost)| lost.tried.elapsed() < TRIED_FOR).map(told).collect()
    }

    /// A job could not be opened, perhaps because a shard is not reached.
    pub fn note_unreached(&self, error: &PsError, job: &JobId) {
        let PsError::Unreachable { address, .. } = error else { return };
        let index = self.lock().addresses.iter().position(|known| known == address);
        if let Some(index) = index {
            self.mark_unreachable(index, address, job, error);
        }
    }

    /// The address of one shard, if there is one.
    pub(super) fn of(&self, index: usize) -> Option<String> {
        self.lock().addresses.get(index).cloned()
    }

    /// Whether pushes are encoded because that is faster.
    pub(super) fn set_encodes(&self, encodes: bool) {
        self.lock().encodes = encodes;
    }

    /// A shard was tried at an address in vain. Where it is elsewhere by now, that says nothing about it.
    pub(super) fn mark_unreachable(&self, index: usize, address: &str, job: &JobId, cause: &dyn Display) {
        let mut known = self.lock();
        if known.addresses.get(index).is_some_and(|now| now != address) {
            return;
        }
        let tried = Instant::now();
        let before = known.unreachable.remove(&index).filter(|before| before.address == address);
        if before.is_none() {
            warn!(shard = index, address, %cause, "the connection to a shard failed and is tried again");
        }
        let since = before.map_or(tried, |before| before.since);
        known
            .unreachable
            .insert(index, LostLink { address: address.to_owned(), job: job.clone(), since, tried });
    }
}

impl Known {
    /// Cuts the connections to shards that are elsewhere by now.
    fn cut_moved(&mut self) {
        let Self { addresses, connections, .. } = self;
        connections.retain(|index, connection| {
            let stays = addresses.get(*index).is_none_or(|now| *now == connection.address);
            if !stays {
                connection.socket.shut_down();
            }
            stays
        });
    }
}

impl From<&[String]> for Addresses {
    fn from(addresses: &[String]) -> Self {
        let known = Known { addresses: addresses.to_vec(), ..Known::default() };
        Self(Arc::new(Mutex::new(known)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_lost_since_the_first_call_that_failed_at_its_address_and_until_it_has_another() {
        let addresses = Addresses::from(&["a:1".to_owned(), "b:1".to_owned()][..]);
        let (first, second) = (job("first"), job("second"));
        let told = || addresses.unreached().into_iter().map(|lost| (lost.shard.0, lost.address, lost.job));
        let away = |address: &str| PsError::Unreachable {
            address: address.into(),
            after_ms: 9,
            cause: "cut".into(),
        };
        addresses.note_unreached(&PsError::Canceled, &first);
        addresses.note_unreached(&away("c:1"), &first);
        addresses.mark_unreachable(0, "old:1", &first, &"cut");
        assert_eq!(told().count(), 0, "it is elsewhere");
        addresses.note_unreached(&away("b:1"), &first);
        let since = addresses.lock().unreachable[&1].since;
        addresses.mark_unreachable(1, "b:1", &second, &"cut");
        assert_eq!(addresses.lock().unreachable[&1].since, since);
        assert_eq!(told().collect::<Vec<_>>(), [(1, "b:1".to_owned(), second)], "who tried it last");
        addresses.set(vec!["c:1".into(), "b:1".into()]);
        assert_eq!(told().count(), 1);
        let tried = addresses.lock().unreachable[&1].tried;
        addresses.lock().unreachable.get_mut(&1).unwrap().tried = tried.checked_sub(TRIED_FOR).unwrap();
        assert_eq!(told().count(), 0, "nobody has tried for a minute");
        addresses.mark_unreachable(1, "b:1", &first, &"cut");
        assert_eq!(told().count(), 1);
        addresses.set(vec!["c:1".into(), "d:1".into()]);
        assert_eq!(told().count(), 0);
    }

    fn job(name: &str) -> JobId {
        name.parse().unwrap()
    }

    #[test]
    fn shards_are_heard_since_the_first_word_of_those_without_another_or_a_silence_between_them() {
        let addresses = Addresses::default();
        let tell = |heard| {
            addresses.set_heard(heard);
            addresses.heard_since()
        };
        let first = tell(true);
        assert!(first.is_some());
        assert_eq!(tell(true), first);
        assert_eq!(tell(false), None);
        let second = tell(true);
        assert!(second > first);
        let silent = |known: &mut Known| {
            let heard = known.heard.as_mut().unwrap();
            heard.last = heard.last.checked_sub(HEARD_FOR).unwrap();
        };
        silent(&mut addresses.lock());
        assert_eq!(addresses.heard_since(), None);
        assert!(tell(true) > second);
    }

    #[test]
    fn a_connection_to_a_shard_that_has_moved_is_cut_once_nobody_reads_what_it_lends() {
        for reads_lent in [false, true] {
            let addresses = Addresses::from(&["a:1".to_owned(), "b:1".to_owned()][..]);
            for (index, address) in ["a:1", "b:1"].into_iter().enumerate() {
                let (socket, _) = Socket::with_peer();
                let transport = socket.transport();
                let connection = Connection { address: address.into(), socket, transport };
                addresses.lock().connections.insert(index, connection);
            }
            assert!(!reads_lent || addresses.begin_reading(0..2));
            addresses.set(vec!["a:1".into(), "c:1".into()]);
            assert_eq!(addresses.transports().len(), 1 + usize::from(reads_lent));
            addresses.end_reading();
            assert_eq!(addresses.lock().connections.keys().collect::<Vec<_>>(), [&0]);
            assert!(!addresses.begin_reading(0..2), "what the second one lent it has taken back");
        }
    }
}
