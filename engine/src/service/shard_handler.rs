//! Answers the announcements of shards.

use syncline_rpc::{EngineFault, ReplicaRole, ShardHello, ShardOrders, ShardRegistry, StoppingShard};
use syncline_scheduler::ids::EngineEpoch;
use tarpc::context::Context;
use tracing::{info, warn};

use super::{context::ServiceContext, lead::Lead, role_log::RedisRoleLog, shards::Announcement};

/// The orders of an engine that may not decide now: all stays as it is.
fn stays(epoch: EngineEpoch, present: Option<ReplicaRole>) -> ShardOrders {
    let role = present.unwrap_or(ReplicaRole::Undecided);
    ShardOrders { epoch, role, peer: None, lead_expired: true }
}

/// Serves one shard's connection.
#[derive(Clone)]
pub(super) struct ShardHandler {
    pub context: ServiceContext,
}

impl ShardRegistry for ShardHandler {
    async fn announce(self, _: Context, hello: ShardHello) -> Result<ShardOrders, EngineFault> {
        let expected = self.context.shards.count();
        if hello.count != expected || hello.index.0 >= expected {
            return Err(EngineFault::MissingShards { present: hello.count, expected });
        }
        // Only the active engine keeps track of shards, and this one may be on standby.
        let lead = self.context.lead()?;
        // Another engine may lead, and decide otherwise.
        if lead.store_outage.lead_expired() {
            self.context.shards.note_alive(&hello);
            return Ok(stays(lead.epoch, hello.role));
        }
        // To its end, even where the caller has given up: what follows from a takeover is done nowhere else.
        let decided = tokio::spawn(async move { self.decide(&lead, hello).await });
        decided.await.unwrap_or_else(|ended| std::panic::resume_unwind(ended.into_panic()))
    }

    async fn stopping(self, _: Context, shard: StoppingShard) -> Result<(), EngineFault> {
        self.context.lead()?;
        self.context.shards.note_stopping(shard);
        Ok(())
    }
}

impl ShardHandler {
    /// What a process is to do that announces itself.
    async fn decide(&self, lead: &Lead, hello: ShardHello) -> Result<ShardOrders, EngineFault> {
        let (index, address, present, epoch) = (hello.index, hello.address.clone(), hello.role, lead.epoch);
        let identity = hello.identity;
        let log = RedisRoleLog { store: &self.context.store, lead };
        match self.context.shards.announce(hello, epoch, &log).await {
            Announcement::Accepted { role, peer, new, taken_over } => {
                if let Some(by) = taken_over {
                    lead.control.shard_taken_over(index, by);
                }
                match role {
                    ReplicaRole::Primary { .. } if new => {
                        info!(shard = %index, address, "shard is there");
                        lead.control.shard_came(index);
                    }
                    ReplicaRole::Standby { .. } => {
                        if new {
                            info!(shard = %index, address, "a standby follows the shard");
                        }
                        if present == Some(role) {
                            lead.control.standby_follows(index, identity);
                        }
                    }
                    _ => {}
                }
                Ok(ShardOrders { epoch, role, peer, lead_expired: lead.store_outage.lead_expired() })
            }
            Announcement::Unconfirmed => Ok(stays(epoch, present)),
            Announcement::Taken(holder) => {
                warn!(shard = %index, address, holder, "a process announces the index of shards that answer");
                Err(EngineFault::ShardTaken { shard: index, address: holder })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
        },
        time::{Duration, Instant},
    };

    use syncline_rpc::{ShardRequest, ShardResponse};
    use syncline_scheduler::ids::ShardIndex;

    use super::*;
    use crate::{
        service::fake_shard::{EPOCH, LeadingEngine, leading_engine, start, take_lead},
        store::{RoleNote, RoleNotes},
    };

    /// The handler of an engine that leads shard 0.
    async fn handler() -> (ShardHandler, Lead, LeadingEngine) {
        let engine = leading_engine().await;
        (ShardHandler { context: engine.context.clone() }, engine.lead.clone(), engine)
    }

    /// A primary that was followed under term 8, which it has lost.
    async fn alone() -> ShardHello {
        let hello = start(0, |_| ShardResponse::ListJobs(Ok(Vec::new()))).await;
        let role = Some(ReplicaRole::Primary { term: 7 });
        ShardHello { replicas: 2, role, lost: Some(8), follower: Some(8), ..hello }
    }

    #[tokio::test]
    async fn an_engine_whose_lease_may_be_over_lets_no_shard_go_on_alone() {
        let (handler, lead, _engine) = handler().await;
        lead.store_outage.set_lead_until(Instant::now());
        let hello = alone().await;
        let orders = handler.clone().announce(Context::current(), hello.clone()).await.unwrap();
        assert!(orders.lead_expired);
        assert!(!lead.shards.are_heard(), "it was given a place");
        lead.store_outage.set_lead_until(Instant::now() + Duration::from_secs(3600));
        let orders = handler.announce(Context::current(), hello).await.unwrap();
        assert_eq!((orders.role, orders.lead_expired), (ReplicaRole::Primary { term: 7 }, false));
    }

    #[tokio::test]
    async fn who_leads_next_knows_which_standby_was_let_go_and_who_led_before_lets_none_go() {
        let (handler, lead, _engine) = handler().await;
        let store = handler.context.store.clone();
        let let_go = async || store.role_notes(lead.shards.indices()).await.unwrap().let_go;
        let hello = alone().await;
        handler.clone().announce(Context::current(), hello.clone()).await.unwrap();
        assert_eq!(let_go().await, [(ShardIndex(0), 8)].into());
        assert!(store.note_role(ShardIndex(0), RoleNote::LetGo(6), EPOCH).await.unwrap());
        assert_eq!(let_go().await, [(ShardIndex(0), 8)].into(), "the last one counts");
        // Terms are as large in a cluster of our time.
        let late = (1_795_000_000_000 << 20) + 1;
        for term in [late, late + 1, late] {
            assert!(store.note_role(ShardIndex(1), RoleNote::LetGo(term), EPOCH).await.unwrap());
        }
        let noted = store.role_notes([1, 2].map(ShardIndex).into_iter()).await.unwrap();
        assert_eq!(noted.let_go, [(ShardIndex(1), late + 1)].into());
        assert!(take_lead(&store).await.unwrap() > EPOCH);
        let later = ShardHello { lost: Some(9), follower: Some(9), ..hello };
        let orders = handler.announce(Context::current(), later).await.unwrap();
        assert!(orders.lead_expired);
        assert_eq!(let_go().await, [(ShardIndex(0), 8)].into());
    }

    #[tokio::test]
    async fn a_takeover_is_known_to_who_leads_next_and_who_led_before_lets_nobody_take_over() {
        let (handler, lead, _engine) = handler().await;
        let promotions = Arc::new(AtomicU32::new(0));
        let asked = promotions.clone();
        let serves = move |request| match request {
            ShardRequest::Promote { .. } => {
                asked.fetch_add(1, Ordering::Relaxed);
                ShardResponse::Promote(Ok(1))
            }
            _ => ShardResponse::ListJobs(Ok(Vec::new())),
        };
        let of_two = |hello: ShardHello, role| ShardHello { replicas: 2, jobs: 1, role: Some(role), ..hello };
        let primary = start(0, serves.clone()).await;
        let primary = of_two(primary, ReplicaRole::Primary { term: 7 });
        let primary = ShardHello { follower: Some(8), ..primary };
        let standby = ShardHello { boot: 2, ..start(0, serves).await };
        let standby = of_two(standby, ReplicaRole::Standby { term: 8 });
        let log = RedisRoleLog { store: &handler.context.store, lead: &lead };
        let announce = async |hello: &ShardHello| lead.shards.announce(hello.clone(), EPOCH, &log).await;
        let promote = async || lead.shards.promote(ShardIndex(0), EPOCH, &log).await;

        lead.shards.forget_all(EPOCH, RoleNotes::default());
        announce(&standby).await;
        announce(&primary).await;
        assert_eq!(promote().await.as_deref(), Some(&*standby.address));
        let notes = handler.context.store.role_notes(lead.shards.indices()).await.unwrap();
        assert!(notes.taken_over[&ShardIndex(0)] > 8 && notes == lead.shards.role_notes(), "{notes:?}");

        // The next engine hears of the one that served before first, and not at all of the other.
        lead.shards.forget_all(EPOCH, notes.clone());
        assert_eq!(announce(&primary).await, Announcement::Unconfirmed);
        assert!(!lead.shards.are_heard(), "it was given a place");
        // That one was never told to serve: nothing is lost.
        announce(&standby).await;
        assert!(matches!(announce(&primary).await, Announcement::Accepted { peer: Some(_), .. }));

        take_lead(&handler.context.store).await.unwrap();
        assert_eq!(promote().await, None);
        assert_eq!(promotions.load(Ordering::Relaxed), 1, "it was asked though nobody knows who leads");
        assert_eq!(handler.context.store.role_notes(lead.shards.indices()).await.unwrap(), notes);
    }
}
