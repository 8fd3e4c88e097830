//! Values that are too large to travel through the engine: blobs on the parameter server.

use std::time::{Duration, Instant};

use syncline_ps::{
    PsError,
    client::{Addresses, BlobClient, CancelToken, ValueClient},
};
use syncline_rpc::{ShardFault, Token};
use syncline_scheduler::{
    ids::ContentDigest,
    tasks::{Arg, BlobValue, Bytes, MAX_INLINE_BYTES, NewTask},
};

#[cfg(feature = "worker")]
use super::StopFlag;

/// The first bytes of a blob: no other has the same.
pub(crate) type Salt = [u8; BlobValue::SALT_BYTES];

/// Where values lie that are too large to travel. Its calls block until the token is canceled.
pub(crate) trait ValueStore: Send + Sync {
    /// Keeps a value. `told` hears to which shard it goes, before it is sent there.
    fn put(
        &self,
        salt: Salt,
        value: &[u8],
        cancel_token: &CancelToken,
        told: &dyn Fn(&str),
    ) -> Result<BlobValue, PsError>;

    /// Fetches a value.
    fn get(&self, blob: &BlobValue, cancel_token: &CancelToken) -> Result<Bytes, PsError>;
}

/// Stores the large constants among the arguments of new tasks with `put`. After an error those before it are
/// blobs already.
pub(crate) fn move_large_constants<E>(
    tasks: &mut [NewTask],
    put: impl Fn(Salt, &[u8]) -> Result<BlobValue, E>,
) -> Result<(), E> {
    for arg in tasks.iter_mut().flat_map(|task| &mut task.args) {
        if let Arg::Value(value) = arg
            && value.len() > MAX_INLINE_BYTES
        {
            *arg = Arg::Blob(put(rand::random(), value)?);
        }
    }
    Ok(())
}

/// Whether all shards were asked for a value and none has it whole.
pub(crate) fn is_lost(error: &PsError) -> bool {
    matches!(error, PsError::Damaged { .. } | PsError::Refused { fault: ShardFault::MissingBlob { .. } })
}

/// How long a call waits for shards that cannot do it for now, or that the engine has not named yet.
const SHARDS_TIMEOUT: Duration = Duration::from_secs(10);
/// From one try to the next, which is twice as long each time: where a disk is full each may send much.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(50);
const LONGEST_RETRY_DELAY: Duration = Duration::from_millis(500);

/// The shards of the parameter server as such a store. A value lies on the shard that its digest says.
#[derive(Debug, Clone)]
pub(crate) struct ShardValues {
    blobs: BlobClient,
    values: ValueClient,
    shards: Addresses,
}

impl ShardValues {
    pub(crate) fn new(token: Token, shards: Addresses) -> Self {
        Self { blobs: BlobClient::new(token.clone()), values: ValueClient::new(token), shards }
    }

    /// Keeps a blob as it is, and gives its digest. Sends nothing if it is there already.
    pub(crate) fn put_blob(&self, blob: &[u8]) -> Result<ContentDigest, PsError> {
        self.with_shards(&CancelToken::default(), |shards| self.blobs.put_by_digest(shards, blob))
    }

    /// Fetches a blob as it is, as long as nobody asks to stop.
    #[cfg(feature = "worker")]
    pub(crate) fn get_blob(&self, digest: ContentDigest, stop: &StopFlag) -> Result<Vec<u8>, PsError> {
        stop.cancelable(|cancel_token| {
            let blobs = self.blobs.clone().under(cancel_token.clone());
            self.with_shards(cancel_token, |shards| blobs.get_by_digest(shards, digest))
        })
    }

    /// Makes a call with the addresses of all shards, again while what prevents it may pass. A shard says
    /// itself for how long its second process is waited for.
    fn with_shards<T>(
        &self,
        cancel_token: &CancelToken,
        call: impl Fn(&[String]) -> Result<T, PsError>,
    ) -> Result<T, PsError> {
        let (give_up, mut delay) = (Instant::now() + SHARDS_TIMEOUT, FIRST_RETRY_DELAY);
        loop {
            cancel_token.check()?;
            let shards = self.shards.get();
            let is_last = Instant::now() >= give_up;
            match call(&shards) {
                Err(PsError::Refused { fault: ShardFault::SecondAway { .. } }) => {}
                Err(error) if error.may_pass() && !is_last => {}
                Err(_) if shards.is_empty() && !is_last => {}
                // Nobody can be asked yet: that says nothing of the value.
                Err(_) if shards.is_empty() => {
                    return Err(PsError::Unreachable {
                        address: "(none is named yet)".to_owned(),
                        after_ms: SHARDS_TIMEOUT.as_millis() as u64,
                        cause: "the engine does not hear of all shards".into(),
                    });
                }
                done => return done,
            }
            std::thread::sleep(delay);
            delay = (2 * delay).min(LONGEST_RETRY_DELAY);
        }
    }
}

impl ValueStore for ShardValues {
    fn put(
        &self,
        salt: Salt,
        value: &[u8],
        cancel_token: &CancelToken,
        told: &dyn Fn(&str),
    ) -> Result<BlobValue, PsError> {
        let digest = ValueClient::digest([&salt, value]);
        self.with_shards(cancel_token, |shards| {
            ValueClient::home(shards, digest).into_iter().for_each(|address| told(address));
            self.values.put(shards, digest, [&salt, value], cancel_token)
        })?;
        Ok(BlobValue { digest, bytes: value.len() as u64 })
    }

    fn get(&self, blob: &BlobValue, cancel_token: &CancelToken) -> Result<Bytes, PsError> {
        let bytes = blob.bytes.saturating_add(BlobValue::SALT_BYTES as u64);
        let get = |shards: &[String]| self.values.get(shards, blob.digest, bytes, cancel_token);
        let whole = self.with_shards(cancel_token, get)?;
        Ok(whole.get(BlobValue::SALT_BYTES..).unwrap_or_default().into())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::{Cell, RefCell},
        collections::BTreeMap,
        io::Read as _,
        net::{SocketAddr, TcpListener},
        thread,
    };

    use syncline_ps::server::{self, Options};
    use syncline_rpc::hello::{self, HelloError, Role};
    use syncline_scheduler::tasks::ClassIndex;

    use super::*;
    use crate::functions::Urgency;

    fn nobody() -> CancelToken {
        CancelToken::default()
    }

    #[test]
    fn who_waits_for_shards_that_are_away_or_not_named_yet_is_let_go_when_it_is_canceled() {
        for addresses in [&["a:1".to_owned()][..], &[]] {
            let store = ShardValues::new(Token::generate(), Addresses::from(addresses));
            let (cancel_token, calls) = (nobody(), Cell::new(0));
            let ended = store.with_shards(&cancel_token, |_| -> Result<(), PsError> {
                calls.set(calls.get() + 1);
                cancel_token.cancel();
                Err(PsError::Unreachable { address: "a:1".into(), after_ms: 0, cause: "refused".into() })
            });
            assert!(matches!(ended, Err(PsError::Canceled)), "{ended:?}");
            assert_eq!(calls.get(), 1, "{addresses:?}");
        }
    }

    #[test]
    fn a_value_that_only_a_process_which_is_away_may_have_is_waited_for() {
        let store = ShardValues::new(Token::generate(), Addresses::from(&["a:1".to_owned()][..]));
        let (digest, cause) = (ContentDigest::LOWEST, "it has not come back".to_owned());
        let away = PsError::from(ShardFault::SecondAway { digest, cause });
        let answers = RefCell::new(vec![Ok(b"value".to_vec()), Err(away)]);
        let got = store.with_shards(&nobody(), |_| answers.borrow_mut().pop().unwrap());
        assert_eq!(got.unwrap(), b"value");
    }

    #[test]
    fn a_shard_that_speaks_another_release_or_cannot_read_its_disk_for_a_moment_is_asked_again() {
        let store = ShardValues::new(Token::generate(), Addresses::from(&["a:1".to_owned()][..]));
        let release = HelloError::Version { theirs: 1 };
        let disk = ShardFault::Io { what: "cannot open".to_owned(), cause: "too many open files".to_owned() };
        let prevented = [PsError::Greeting { address: "a:1".to_owned(), source: release }, disk.into()];
        let prevented = RefCell::new(prevented.into_iter());
        let got = store.with_shards(&nobody(), |_| prevented.borrow_mut().next().map_or(Ok(7), Err));
        assert_eq!(got.unwrap(), 7);
    }

    #[test]
    fn a_fetch_ends_when_it_is_asked_to_while_a_shard_owes_the_answer() {
        let (listener, token) = (TcpListener::bind("127.0.0.1:0").unwrap(), Token::generate());
        let address = listener.local_addr().unwrap().to_string();
        let (store, stop) =
            (ShardValues::new(token.clone(), Addresses::from(&[address][..])), StopFlag::default());
        thread::scope(|scope| {
            let shard = scope.spawn(|| {
                let mut caller = listener.accept().unwrap().0;
                hello::receive_blocking(&mut caller, &token, &[Role::Tensor], None).unwrap();
                caller.read_exact(&mut [0]).unwrap();
                stop.ask(Urgency::Now);
                caller
            });
            let got = store.get_blob(ContentDigest::LOWEST, &stop);
            assert!(matches!(got, Err(PsError::Canceled)), "{got:?}");
            drop(shard.join());
        });
    }

    #[test]
    fn large_values_spread_over_shards_and_come_back_without_their_salt() {
        let (dir, token) = (tempfile::tempdir().unwrap(), Token::generate());
        let start = |index: u32| {
            let options = Options {
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                token: token.clone(),
                state_dir: dir.path().join(index.to_string()),
                index,
                count: 2,
                engine: None,
                advertise: None,
                replicas: 1,
            };
            server::start(options).unwrap()
        };
        let shards = [start(0), start(1)];
        let addresses = shards.each_ref().map(|shard| shard.address().to_string());
        let store = ShardValues::new(token.clone(), Addresses::from(&addresses[..]));
        let blobs = BlobClient::new(token);
        let mut homes = BTreeMap::<usize, u32>::new();
        for task in 0..16 {
            let large = vec![7u8; MAX_INLINE_BYTES + 1];
            let blob = store.put([task; BlobValue::SALT_BYTES], &large, &nobody(), &|_| {}).unwrap();
            let fetched = store.get(&blob, &nobody()).unwrap();
            assert_eq!((blob.bytes, &fetched[..]), (large.len() as u64, &large[..]));
            let home = addresses.iter().position(|a| blobs.has(a, blob.digest).unwrap()).unwrap();
            *homes.entry(home).or_default() += 1;
        }
        assert_eq!(homes.len(), 2, "{homes:?}");

        let args = vec![Arg::Value(vec![1].into()), Arg::Value(vec![2; MAX_INLINE_BYTES + 1].into())];
        let (after, name) = (Vec::new(), None);
        let mut tasks = [NewTask { class: ClassIndex(0), args, after, name }];
        move_large_constants(&mut tasks, |salt, value| store.put(salt, value, &nobody(), &|_| {})).unwrap();
        let [Arg::Value(small), Arg::Blob(large)] = &tasks[0].args[..] else { panic!("{tasks:?}") };
        let large = store.get(large, &nobody()).unwrap();
        assert_eq!((&small[..], &large[..]), (&[1][..], &[2; MAX_INLINE_BYTES + 1][..]));
    }
}
