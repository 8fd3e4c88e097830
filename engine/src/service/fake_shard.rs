//! A shard for tests: it answers the engine's calls over a real connection with what a closure says.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use syncline_kit::{RedisOptions, RedisServer};
use syncline_rpc::{
    ShardHello, ShardRequest, ShardResponse, Token, accept, answer_calls, channel, hello::Role,
};
use syncline_scheduler::{
    core::Input,
    ids::{EngineEpoch, ShardIndex},
};
use tarpc::server::{self, Channel};
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};

use super::{
    clock::Clock,
    context::ServiceContext,
    lead::Lead,
    message::Message,
    options::Limits,
    queue::{DecisionInbox, decision_queue},
    role_log::RoleLog,
    sessions::Sessions,
    shard_control::ShardControl,
    shards::ShardDirectory,
};
use crate::store::{Beyond, LeaderAt, RedisStore, RoleNote};

/// Longer than anything takes that a test waits for.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) const EPOCH: EngineEpoch = EngineEpoch(3);

pub(super) fn token() -> Token {
    "0123456789abcdef".repeat(4).parse().unwrap()
}

/// A Redis that notes everything.
pub(super) struct Noted;

impl RoleLog for Noted {
    async fn note(&self, _shard: ShardIndex, _note: RoleNote) -> bool {
        true
    }
}

/// Starts a shard that closes its first `lost` connections after the greeting, and returns how it announces
/// itself.
pub(super) async fn start(
    lost: u32,
    answer: impl Fn(ShardRequest) -> ShardResponse + Clone + Send + 'static,
) -> ShardHello {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connections = Arc::new(AtomicU32::new(0));
    let serve = move |_: Role, stream: TcpStream| {
        let (answer, number) = (answer.clone(), connections.fetch_add(1, Ordering::Relaxed));
        async move {
            if number < lost {
                return;
            }
            let respond = move |_, request| async move { Ok(answer(request)) };
            answer_calls(channel(stream).execute(server::serve(respond))).await;
        }
    };
    tokio::spawn(accept(listener, token(), &[Role::Control], serve));
    ShardHello::alone(ShardIndex(0), 1, address, 1)
}

/// Receives what the decision loop would.
pub(super) struct Inbox(DecisionInbox);

impl Inbox {
    pub(super) async fn next(&mut self) -> Message {
        timeout(TEST_TIMEOUT, self.0.recv()).await.unwrap().unwrap()
    }

    pub(super) async fn input(&mut self) -> Input {
        match self.next().await {
            Message::Input(input) | Message::Request { input, .. } => input,
            Message::Query { .. } => panic!("somebody only looks"),
            Message::Deposed => panic!("the engine was deposed"),
        }
    }
}

/// What an engine that leads shares, without shards.
pub(super) fn lead() -> (Lead, Inbox) {
    let (queue, inbox) = decision_queue();
    let shards = ShardDirectory::new(1, token());
    (Lead::new(EPOCH, Sessions::default(), shards, queue, Clock::start()), Inbox(inbox))
}

/// An engine that leads, without shards, and its Redis server.
pub(super) struct LeadingEngine {
    pub context: ServiceContext,
    pub lead: Lead,
    pub inbox: Inbox,
    _redis: RedisServer,
    _dir: TempDir,
}

/// Starts one. It decides nothing.
pub(super) async fn leading_engine() -> LeadingEngine {
    let dir = tempfile::tempdir().unwrap();
    let program = syncline_kit::redis_server(&|_| {}).unwrap().path;
    let redis = RedisServer::start(&program, RedisOptions::new(dir.path().join("redis"))).unwrap();
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let (lead, inbox) = lead();
    let (_, active) = watch::channel(Ok(lead.clone()));
    let (shards, limits, about) = (lead.shards.clone(), Limits::default(), Arc::default());
    let context = ServiceContext { active, store, shards, limits, about };
    LeadingEngine { context, lead, inbox, _redis: redis, _dir: dir }
}

/// Takes the lead for another engine than those of these tests; `None`: one of them has it.
pub(super) async fn take_lead(store: &RedisStore) -> Option<EngineEpoch> {
    let at = LeaderAt { address: "127.0.0.1:1", cluster: "" };
    let beyond = Beyond { epoch: EPOCH, ..Beyond::default() };
    store.take_lead("next", Duration::from_secs(3), at, beyond).await.unwrap()
}

/// What gives orders to shards, of which there are none.
pub(super) fn shard_control() -> (ShardControl, Inbox) {
    let (lead, inbox) = lead();
    (lead.control, inbox)
}

/// What gives orders to one shard, which answers so.
pub(super) async fn control_with(
    lost: u32,
    answer: impl Fn(ShardRequest) -> ShardResponse + Clone + Send + 'static,
) -> (ShardControl, Inbox) {
    let (control, inbox) = shard_control();
    control.shards.announce(start(lost, answer).await, EPOCH, &Noted).await;
    (control, inbox)
}
