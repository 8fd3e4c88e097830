//! Notices who has fallen silent, and shows people who is alive.

use std::time::Duration;

use syncline_scheduler::{core::Input, ids::Incarnation};
use tracing::warn;

use super::{
    calls::{Desk, lost},
    message::Message,
};
use crate::store::keys;

/// How often silence is looked for.
const LOOK: Duration = Duration::from_millis(100);
/// A shard announces itself every half second; after this long without it counts as lost.
const SHARD_SILENCE: Duration = Duration::from_secs(10);
/// How often the registry in Redis is refreshed.
const REFRESH_EVERY_LOOKS: u32 = 10;

/// Looks for ever.
pub(super) async fn watch_silence(desk: Desk) {
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for n in 0u32.. {
        look.tick().await;
        let Ok(hands) = desk.hands() else { continue };
        let _ = hands.queue.send(Message::Input(Input::Tick));
        for seen in hands.sessions.all() {
            if seen.silent_for > desk.silence {
                let reason = format!("silent for {} ms", seen.silent_for.as_millis());
                drop_worker(&desk, seen.worker, &reason);
            }
        }
        for shard in desk.shards.all() {
            if shard.seen.elapsed() > SHARD_SILENCE {
                warn!(shard = %shard.hello.index, "shard is silent");
                desk.shards.forget(shard.hello.index);
                lost(&desk, shard.hello.index, "silent for too long");
            }
        }
        if n.is_multiple_of(REFRESH_EVERY_LOOKS) {
            refresh(&desk).await;
        }
    }
}

/// Drops a worker: its session ends at once, the core settles the rest.
pub(super) fn drop_worker(desk: &Desk, worker: Incarnation, reason: &str) {
    let Ok(hands) = desk.hands() else { return };
    warn!(%worker, reason, "worker dropped");
    hands.sessions.close(worker);
    let input = Input::WorkerGone { worker, reason: reason.to_owned() };
    let _ = hands.queue.send(Message::Input(input));
}

async fn refresh(desk: &Desk) {
    let Ok(hands) = desk.hands() else { return };
    let mut records = Vec::new();
    for seen in hands.sessions.all() {
        records.push((keys::worker(seen.worker), seen.fields()));
    }
    for shard in desk.shards.all() {
        let fields = vec![
            ("address", shard.hello.address.clone()),
            ("count", shard.hello.count.to_string()),
            ("silent_ms", shard.seen.elapsed().as_millis().to_string()),
        ];
        records.push((keys::shard(shard.hello.index), fields));
    }
    // Soft state: while Redis is away the loop says so, and the next refresh brings everything.
    let _ = desk.store.refresh(&records).await;
}
