//! Telling the engine that this shard is there, for ever, unless the engine will never have it.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use syncline_engine::rpc::{
    EngineFault, ShardHello, ShardRegistryClient, ShardRegistryRequest, ShardRegistryResponse, connect,
    hello::{HelloError, Role},
    within,
};
use syncline_scheduler::ids::ShardIndex;
use tarpc::client;
use tracing::{debug, info, warn};

use super::{Options, Shared};
use crate::PsError;

/// Time between two signs of life.
const BEAT: Duration = Duration::from_millis(500);
/// An engine that has not answered by then is connected to again: the connection may be half open.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A trouble that stays the same is said again after this long.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// What the engine is told.
pub(super) fn hello(options: &Options, bound: SocketAddr) -> ShardHello {
    ShardHello {
        index: ShardIndex(options.index),
        count: options.count,
        address: options.advertise.clone().unwrap_or_else(|| bound.to_string()),
        boot: rand::random(),
    }
}

/// Connects to the engine, announces, and starts again whenever that fails. Returns when waiting cannot help: the engine
/// was never heard, and what is wrong is what we were told at the start.
pub(super) async fn keep_announcing(shared: Arc<Shared>, engine: String, hello: ShardHello) -> PsError {
    let mut announcer = Announcer { shared, engine, hello, heard: false, said: None };
    let mut pause = FIRST_PAUSE;
    loop {
        let before = announcer.heard;
        let trouble = announcer.announce().await;
        if trouble.is_final() && (!announcer.heard || matches!(trouble, PsError::Taken { .. })) {
            return trouble;
        }
        announcer.say(&trouble);
        if announcer.heard && !before {
            pause = FIRST_PAUSE;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

struct Announcer {
    shared: Arc<Shared>,
    engine: String,
    hello: ShardHello,
    /// The engine has taken an announcement.
    heard: bool,
    /// The last trouble that was said, and when.
    said: Option<(String, Instant)>,
}

impl Announcer {
    /// Announces over one connection until there is trouble.
    async fn announce(&mut self) -> PsError {
        let away = |cause: String| PsError::EngineAway { engine: self.engine.clone(), cause };
        let connected = connect::<ShardRegistryRequest, ShardRegistryResponse>(
            &self.engine,
            Role::Shard,
            &self.shared.token,
        );
        let transport = match connected.await {
            Ok(transport) => transport,
            Err(HelloError::Io(cause)) => return away(cause.to_string()),
            Err(source) => return PsError::EngineRefuses { engine: self.engine.clone(), source },
        };
        let client = ShardRegistryClient::new(client::Config::default(), transport).spawn();
        let mut fresh = true;
        loop {
            match client.announce(within(ANSWERS_WITHIN), self.hello.clone()).await {
                Ok(Ok(epoch)) => {
                    if fresh {
                        info!(%epoch, engine = %self.engine, address = %self.hello.address, "announced");
                    }
                    (fresh, self.heard, self.said) = (false, true, None);
                    // An engine of a past term may still answer; its epoch changes nothing.
                    let _ = self.shared.house.fence().check(epoch);
                }
                Ok(Err(fault)) => return self.refused(fault),
                Err(error) => return away(error.to_string()),
            }
            tokio::time::sleep(BEAT).await;
        }
    }

    fn refused(&self, fault: EngineFault) -> PsError {
        let (engine, index) = (self.engine.clone(), self.hello.index.0);
        match fault {
            // This call is answered so only where the numbers differ.
            EngineFault::MissingShards { expected, .. } => {
                PsError::WrongPlace { engine, index, count: self.hello.count, expected }
            }
            EngineFault::ShardTaken { address, .. } => PsError::Taken { engine, index, address },
            fault => PsError::EngineAway { engine, cause: fault.to_string() },
        }
    }

    /// Says what is wrong: at once, and again now and then as long as it is.
    fn say(&mut self, trouble: &PsError) {
        let text = trouble.to_string();
        let again = |(said, at): &(String, Instant)| *said != text || at.elapsed() >= SAY_AGAIN;
        if self.said.as_ref().is_none_or(again) {
            warn!(error = %text, hint = trouble.hint(), "not announced");
            self.said = Some((text, Instant::now()));
        } else {
            debug!(error = %text, "still not announced");
        }
    }
}
