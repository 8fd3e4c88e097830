//! All shards of one job, as one worker sees them.

use std::{
    io,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use syncline_rpc::{ShardPosition, Token};
use syncline_scheduler::{
    ids::{Incarnation, RunId},
    spec::ElementRange,
};

use super::{
    Addresses, CancelToken, GradientArea, Link, LinkError,
    codec_trial::{self, CodecTrial, TrialStep},
    encoder::PushEncoder,
    lending::{LendRequest, LentValues},
    pull::Requested,
    retry::RetryBudget,
    route::Route,
    transport_upgrade::{self, ConnectOptions},
};
use crate::{
    PsError,
    codec::Codec,
    error::unreached,
    rows::RowTables,
    transport::{Transport, TransportChoice},
    wire::SessionKey,
};

/// Before a faster transport is tried again that failed; twice as long each further time, up to an hour.
const UPGRADE_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_UPGRADE_PAUSE: Duration = Duration::from_secs(3_600);

/// How a client behaves when connections break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientOptions {
    /// A shard that cannot be reached for this long is an error.
    pub retry_limit: Duration,
    /// A shard that says nothing for this long, while it owes an answer, is connected to again. Shards that
    /// wait for others say so every second.
    pub silence_limit: Duration,
    /// How the bytes travel.
    pub transport: TransportChoice,
    /// Shards on this machine lend their parameters and take gradients where they lie, see
    /// [`ShardSet::pull_in_place`] and [`ShardSet::gradient_area`].
    pub in_place: bool,
    /// Whether they are offered memory for gradients then. A shard counts it, whether anything is pushed
    /// from there or not.
    pub offers_gradients: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            retry_limit: Duration::from_secs(10),
            silence_limit: Duration::from_secs(5),
            transport: TransportChoice::Auto,
            in_place: false,
            offers_gradients: true,
        }
    }
}

/// Connections of one incarnation to all shards of one run of a job.
///
/// Not shared between threads; [`ShardSet::cancel_token`] ends its calls from outside.
pub struct ShardSet {
    pub(super) session: SessionKey,
    pub(super) elements: u64,
    pub(super) conns: Vec<ShardConn>,
    pub(super) options: ClientOptions,
    pub(super) cancel_token: CancelToken,
    /// How parameters are pulled.
    pub(super) pull_codec: Codec,
    /// Elements of the whole job that the optimizer moves, where pulls are compressed.
    pub(super) pull_trained: u64,
    /// One chunk as it travels; empty until one comes.
    pub(super) encoded: Vec<u8>,
    /// Where it is measured whether to compress.
    trial: Option<CodecTrial>,
    /// Elements of the whole job that the optimizer moves, where it is to be measured whether to compress: what
    /// was found out holds for the routes that it was measured on.
    measures_codec: Option<u64>,
    /// A shard was reached another way than before since the last push that was observed.
    route_changed: bool,
    /// Where only rows of some parameters travel.
    pub(super) tables: Option<RowTables>,
    /// Made when the first shard may take it.
    pub(super) area: OnceLock<Option<Arc<GradientArea>>>,
    pub(super) addresses: Addresses,
    token: Token,
}

/// One shard's address and range, connected or not.
pub(super) struct ShardConn {
    pub address: String,
    pub range: ElementRange,
    pub link: Option<Link>,
    /// How it was reached last: a connection that is only opened again is as fast as the one before.
    route: Option<Route>,
    /// How long the next attempt to connect may take, after one that failed.
    attempt_limit: Option<Duration>,
    /// When `link` is to be opened anew, because it could not go over to a faster transport.
    upgrade_at: Option<Instant>,
    /// So long after it has failed.
    upgrade_pause: Duration,
    /// The pull whose answer is still to come over `link`.
    pub requested: Option<Requested>,
    /// What the shard lends, until the next push or pull.
    pub lent: Option<LentValues>,
    /// Where pushes are compressed.
    pub encoder: Option<PushEncoder>,
}

impl ShardConn {
    /// One that is not connected yet.
    fn new(address: String, range: ElementRange) -> Self {
        Self {
            address,
            range,
            link: None,
            route: None,
            attempt_limit: None,
            upgrade_at: None,
            upgrade_pause: UPGRADE_PAUSE,
            requested: None,
            lent: None,
            encoder: None,
        }
    }
}

impl ShardSet {
    /// Connects to the shards at `addresses`, in order, that hold `elements` parameters together.
    pub fn connect(
        addresses: &[String],
        token: Token,
        run: RunId,
        incarnation: Incarnation,
        elements: u64,
    ) -> Result<Self, PsError> {
        let session = SessionKey { run, incarnation };
        let (options, cancel_token) = (ClientOptions::default(), CancelToken::default());
        Self::connect_with(&addresses.into(), token, session, elements, options, cancel_token)
    }

    /// As [`ShardSet::connect`], with addresses that may change, with options, and only as long as nobody
    /// cancels.
    pub fn connect_with(
        addresses: &Addresses,
        token: Token,
        session: SessionKey,
        elements: u64,
        options: ClientOptions,
        cancel_token: CancelToken,
    ) -> Result<Self, PsError> {
        // What the client before has not reached, this one has to reach first.
        addresses.set_encodes(false);
        let now = addresses.get();
        let count = now.len() as u32;
        let conn = |(index, address)| ShardConn::new(address, ElementRange::of_shard(elements, index, count));
        let conns = (0..).zip(now).map(conn).collect();
        let mut shards = Self {
            session,
            elements,
            conns,
            options,
            cancel_token,
            pull_codec: Codec::Plain,
            pull_trained: elements,
            encoded: Vec::new(),
            trial: None,
            measures_codec: None,
            route_changed: false,
            tables: None,
            area: OnceLock::new(),
            addresses: addresses.clone(),
            token,
        };
        let mut retry = RetryBudget::new(options.retry_limit);
        for index in 0..shards.conns.len() {
            while let Err(error) = shards.link(index) {
                shards.recover(index, error, &mut retry)?;
            }
        }
        Ok(shards)
    }

    /// Compresses all pushes from here on. `trained`: how many elements the optimizer moves; those behind are
    /// sent as they are. What pushes have lost before comes with the next one, even where that is plain.
    pub fn compress_pushes(&mut self, codec: Codec, trained: u64) {
        (self.trial, self.measures_codec) = (None, None);
        self.encode_pushes(codec, trained);
    }

    fn encode_pushes(&mut self, codec: Codec, trained: u64) {
        for conn in &mut self.conns {
            conn.encoder.take_if(|encoder| encoder.is_unused());
            match &mut conn.encoder {
                Some(encoder) => encoder.set_next_codec(codec),
                None if codec == Codec::Plain => {}
                None => conn.encoder = Some(PushEncoder::new(codec, conn.range, trained)),
            }
        }
    }

    /// Drops what compressed pushes have lost: those from here on are in another unit, as gradients and
    /// changes of parameters are.
    pub fn forget_residuals(&mut self) {
        self.conns.iter_mut().filter_map(|conn| conn.encoder.as_mut()).for_each(PushEncoder::forget_residual);
    }

    /// Pulls parameters in fewer bytes from here on, where they travel and are not lent; of what is pinned
    /// always every bit. `trained`: how many elements the optimizer moves; those behind come as they are.
    pub fn compress_pulls(&mut self, codec: Codec, trained: u64) {
        self.drop_requested();
        (self.pull_codec, self.pull_trained) = (codec, trained);
    }

    /// Compresses pushes where that is worth it: measures some as they are, and, over TCP and where they take
    /// a tenth of the time, some in 8 bits; these stay if they take at most three quarters as long. Measured
    /// anew, from plain pushes on, when a shard is reached over another transport or at another machine.
    pub fn compress_if_faster(&mut self, trained: u64) {
        (self.trial, self.measures_codec) = (Some(CodecTrial::new(trained)), Some(trained));
    }

    /// Begins to measure whether to compress as if nothing was known.
    fn measure_codec_anew(&mut self, trained: u64) {
        self.addresses.set_encodes(false);
        self.encode_pushes(Codec::Plain, trained);
        self.compress_if_faster(trained);
    }

    /// A push that carried a gradient was acknowledged: what follows for the next ones.
    pub(super) fn observe_push(&mut self, took: Duration) {
        // Here, where no push is on its way that is encoded in part.
        if std::mem::take(&mut self.route_changed)
            && let Some(trained) = self.measures_codec
        {
            return self.measure_codec_anew(trained);
        }
        let Some(trial) = &mut self.trial else { return };
        let (trained, job) = (trial.trained, &self.session.run.job);
        match trial.observe(took, Instant::now()) {
            TrialStep::GoOn => {}
            TrialStep::Encode if self.addresses.transports().contains(&Transport::Tcp) => {
                self.encode_pushes(codec_trial::TRIED, trained);
            }
            TrialStep::Encode => self.trial = None,
            TrialStep::Keep { plain, encoded } => {
                if let Some(encoded) = encoded {
                    self.addresses.set_encodes(true);
                    tracing::info!(%job, ?plain, ?encoded, "pushes are faster in 8 bits and stay so");
                }
                self.trial = None;
            }
            TrialStep::GiveUp { plain, encoded } => {
                tracing::info!(%job, ?plain, ?encoded, "pushes are hardly faster in 8 bits and go as they are");
                self.encode_pushes(Codec::Plain, trained);
                self.trial = None;
            }
        }
    }

    /// Ends blocked calls from another thread, for good.
    pub fn cancel_token(&self) -> CancelToken {
        self.cancel_token.clone()
    }

    /// Parameters of the whole job.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// How the bytes travel to each shard that there is a connection to.
    pub fn transports(&self) -> Vec<Transport> {
        self.addresses.transports()
    }

    /// The connection to shard `index`, opened if need be; the flag says whether it is new.
    pub(super) fn link(&mut self, index: usize) -> Result<(&mut Link, bool), LinkError> {
        let shard = ShardPosition { index: index as u32, count: self.conns.len() as u32 };
        let conn = &mut self.conns[index];
        let fresh = conn.link.is_none();
        let link = match conn.link.take() {
            Some(link) => link,
            None => {
                // It may be elsewhere by now.
                if let Some(address) = self.addresses.of(index) {
                    conn.address = address;
                }
                let ClientOptions { silence_limit, transport: choice, in_place, offers_gradients, .. } =
                    self.options;
                let limit = conn.attempt_limit.take().map_or(silence_limit, |left| left.min(silence_limit));
                let (session, area) = (&self.session, offers_gradients.then_some(&self.area));
                let lending = (in_place && !conn.range.is_empty()).then_some(LendRequest {
                    session,
                    elements: self.elements,
                    area,
                });
                let bytes = conn.range.len() * 4;
                let cancel_token = &self.cancel_token;
                let options = ConnectOptions {
                    shard: Some(shard),
                    token: &self.token,
                    limit,
                    choice,
                    bytes,
                    lending,
                    connected: &|socket| cancel_token.register(index, Some(socket)),
                };
                let mut link = transport_upgrade::open(&conn.address, options)
                    .inspect_err(|_| cancel_token.register(index, None))?;
                // What was left bounds the attempt alone.
                link.set_write_limit(silence_limit)?;
                self.cancel_token.register(index, Some(link.socket()));
                self.addresses.register(index, Some((&conn.address, &link)));
                let route = Route::of(&conn.address, &link);
                self.route_changed |= conn.route.as_ref().is_some_and(|before| *before != route);
                conn.route = Some(route);
                conn.upgrade_at = link.upgrade_failed.then(|| Instant::now() + conn.upgrade_pause);
                conn.upgrade_pause = match link.upgrade_failed {
                    true => (conn.upgrade_pause * 2).min(LONGEST_UPGRADE_PAUSE),
                    false => UPGRADE_PAUSE,
                };
                link
            }
        };
        Ok((conn.link.insert(link), fresh))
    }

    /// Closes connections that are due for another try of a faster transport, while nothing is on its way
    /// over them: that of before may have had too little time.
    pub(super) fn retry_upgrades(&mut self, now: Instant) {
        for index in 0..self.conns.len() {
            if self.conns[index].upgrade_at.is_some_and(|at| at <= now) {
                self.drop_link(index);
            }
        }
    }

    /// Closes the connection to shard `index`, which is out of step.
    pub(super) fn drop_link(&mut self, index: usize) {
        (self.conns[index].requested, self.conns[index].upgrade_at) = (None, None);
        if self.conns[index].link.take().is_some() {
            self.cancel_token.register(index, None);
            self.addresses.register(index, None);
        }
    }

    /// Drops the answers to pulls that [`ShardSet::push_and_request`] asked for, with the connections they
    /// come on.
    pub fn drop_requested(&mut self) {
        (0..self.conns.len()).for_each(|index| self.drop_if_requested(index));
    }

    /// The same of one shard.
    pub(super) fn drop_if_requested(&mut self, index: usize) {
        if self.conns[index].requested.is_some() {
            self.drop_link(index);
        }
    }

    /// Decides after an error with shard `index`: pause and try again (`Ok`), or give up.
    pub(super) fn recover(
        &mut self,
        index: usize,
        error: LinkError,
        retry: &mut RetryBudget,
    ) -> Result<(), PsError> {
        let was_open = self.conns[index].link.is_some();
        self.drop_link(index);
        self.cancel_token.check()?;
        let address = &self.conns[index].address;
        let LinkError::Broken(cause) = error else { return Err(error.into_error(address)) };
        self.addresses.mark_unreachable(index, address, &self.session.run.job, &cause);
        // It has been silent for at least so long, while everybody who trains with this worker may have
        // waited.
        if was_open && cause.kind() == io::ErrorKind::TimedOut {
            retry.count_silence(self.options.silence_limit);
        }
        tracing::debug!(%address, %cause, job = %self.session.run.job, "connection to a shard broke");
        if self.addresses.of(index).is_some_and(|now| now != *address) {
            // Where it is by now nobody has tried to reach it.
            retry.progress();
        }
        let heard_since = self.addresses.heard_since();
        let left = retry.pause_unless_heard(heard_since).map_err(|after_ms| {
            let mut cause = unreached(&cause);
            if heard_since.is_some() {
                cause.reason.push_str("; the engine hears of it");
            }
            PsError::Unreachable { address: address.clone(), after_ms, cause }
        })?;
        self.conns[index].attempt_limit = Some(left);
        // It may have been started again elsewhere.
        if let Some(address) = self.addresses.of(index) {
            self.conns[index].address = address;
        }
        self.cancel_token.check()
    }
}

impl Drop for ShardSet {
    fn drop(&mut self) {
        for (index, conn) in self.conns.iter().enumerate() {
            self.addresses.register(index, None);
            // The token outlives this set, and must not hold its connections open.
            if let Some(link) = &conn.link {
                self.cancel_token.forget(index, link.socket());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, path::Path};

    use syncline_scheduler::ids::Generation;

    use super::*;
    use crate::server;

    /// A shard that serves in `dir`, and a worker that is connected to it over TCP.
    fn connected(dir: &Path) -> (server::Handle, ShardSet) {
        let token = Token::generate();
        let shard = server::start(server::Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            token: token.clone(),
            state_dir: dir.to_owned(),
            index: 0,
            count: 1,
            replicas: 1,
            engine: None,
            advertise: None,
        })
        .unwrap();
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation::first(1) };
        let session = SessionKey { run, incarnation: Incarnation(1) };
        let addresses = [shard.address().to_string()].as_slice().into();
        let slow = ClientOptions { transport: TransportChoice::Only(Transport::Tcp), ..Default::default() };
        let shards = ShardSet::connect_with(&addresses, token, session, 4, slow, CancelToken::default());
        (shard, shards.unwrap())
    }

    #[test]
    fn a_shard_that_has_moved_while_it_was_tried_where_it_was_is_tried_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (_shard, mut shards) = connected(dir.path());
        let fail = |shards: &mut ShardSet| {
            let mut retry = RetryBudget::new(Duration::from_secs(60));
            retry.count_silence(Duration::from_secs(61));
            shards.recover(0, io::Error::from(io::ErrorKind::TimedOut).into(), &mut retry)
        };
        assert!(matches!(fail(&mut shards), Err(PsError::Unreachable { .. })));
        shards.addresses.set(vec!["127.0.0.1:1".into()]);
        fail(&mut shards).unwrap();
        assert_eq!(shards.conns[0].address, "127.0.0.1:1");
        assert!(fail(&mut shards).is_err());
    }

    #[test]
    fn a_connection_whose_upgrade_failed_is_opened_anew_once_that_is_due() {
        let dir = tempfile::tempdir().unwrap();
        let (_shard, mut shards) = connected(dir.path());
        shards.options.transport = TransportChoice::Auto;
        let now = Instant::now();
        for (due_in_s, transport) in [(1, Transport::Tcp), (0, Transport::Shm)] {
            shards.conns[0].upgrade_at = Some(now + Duration::from_secs(due_in_s));
            shards.retry_upgrades(now);
            shards.link(0).unwrap_or_else(|_| panic!("no connection"));
            assert_eq!(shards.transports(), [transport]);
        }
        assert_eq!(shards.conns[0].upgrade_at, None);
    }

    /// Pushes that were faster in 8 bits over a network are not over shared memory, and those that were not
    /// compressed beside a shard may be worth it once it is far away.
    #[test]
    fn whether_to_compress_is_measured_again_when_a_shard_is_reached_another_way_and_only_then() {
        let dir = tempfile::tempdir().unwrap();
        let (shard, mut shards) = connected(dir.path());
        shards.compress_if_faster(4);
        let found_out = |shards: &mut ShardSet| {
            shards.encode_pushes(Codec::Int8, 4);
            shards.addresses.set_encodes(true);
            shards.trial = None;
        };
        let is_measured_after_a_push = |shards: &mut ShardSet| {
            shards.drop_link(0);
            shards.link(0).unwrap();
            shards.observe_push(Duration::from_millis(1));
            let says_int8 = shards.addresses.transport_words().unwrap().contains("int8");
            assert_eq!(shards.trial.is_some(), !says_int8);
            shards.trial.is_some()
        };
        found_out(&mut shards);
        assert!(!is_measured_after_a_push(&mut shards), "the same way");
        shards.addresses.set(vec![format!("localhost:{}", shard.address().port())]);
        assert!(is_measured_after_a_push(&mut shards), "another host");
        found_out(&mut shards);
        shards.options.transport = TransportChoice::Only(Transport::Unix);
        assert!(is_measured_after_a_push(&mut shards), "another transport");
        // What a user has chosen stays.
        shards.compress_pushes(Codec::Int8, 4);
        shards.options.transport = TransportChoice::Only(Transport::Tcp);
        shards.drop_link(0);
        shards.link(0).unwrap();
        shards.observe_push(Duration::from_millis(1));
        assert!(shards.trial.is_none());
    }
}
