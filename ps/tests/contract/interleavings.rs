//! Several workers, broken connections and seals in any order: each chunk holds exactly the pushes that were
//! counted, and at most one torn push per sealed worker.

use std::{sync::Barrier, thread};

use proptest::prelude::*;
use syncline_ps::{PsError, shard::PushHeader};
use syncline_rpc::ShardFault;
use syncline_scheduler::ids::Incarnation;

use super::rig::{Cut, Cutter, Rig, UNIT, look};

/// Two shards of two chunks each.
const ELEMENTS: u64 = 4 * 65_536 - 160;
const CHUNK: usize = 65_536;

#[derive(Debug, Clone)]
struct PushingWorker {
    pushes: u64,
    /// Iterations that each push stands for.
    covers: u32,
    /// Where its first connections to the first shard break.
    cuts: Vec<Cut>,
    /// Whether it is sealed while it pushes.
    sealed: bool,
}

fn pushing_worker() -> impl Strategy<Value = PushingWorker> {
    let cut = prop_oneof![(0..6 * ELEMENTS).prop_map(Cut::Up), (0u64..200).prop_map(Cut::Down)];
    let cuts = prop::collection::vec(cut, 0..3);
    (1u64..6, 1u32..4, cuts, any::<bool>()).prop_map(|(pushes, covers, cuts, sealed)| PushingWorker {
        pushes,
        covers,
        cuts,
        sealed,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_chunk_holds_exactly_the_pushes_that_count(all in prop::collection::vec(pushing_worker(), 1..5)) {
        let rig = Rig::with_job(2, ELEMENTS);
        let ones = vec![1.0; ELEMENTS as usize];
        let seals = all.iter().filter(|worker_spec| worker_spec.sealed).count();
        let started = Barrier::new(all.len() + 1);
        let (done, answers) = thread::scope(|scope| {
            let workers: Vec<_> = (1..).zip(&all).map(|(me, worker_spec)| {
                let (rig, started, ones) = (&rig, &started, &ones);
                scope.spawn(move || {
                    let cutter = Cutter::start(rig.shards[0].address(), &rig.token, worker_spec.cuts.clone());
                    let mut addresses = rig.addresses();
                    addresses[0] = cutter.address.clone();
                    let mut worker = rig.worker_at(&addresses, me, ELEMENTS);
                    started.wait();
                    for count in 1..=worker_spec.pushes {
                        let header = PushHeader { covers: worker_spec.covers, ..UNIT };
                        match worker.push(count * u64::from(worker_spec.covers), header, &[ones]) {
                            Ok(_) => {}
                            Err(PsError::Refused { fault: ShardFault::Sealed { .. } }) => return count - 1,
                            Err(other) => panic!("{other}"),
                        }
                    }
                    worker_spec.pushes
                })
            }).collect();
            started.wait();
            let seal = |(me, _): (u64, &PushingWorker)| (me, [rig.seal(0, me), rig.seal(1, me)]);
            let answers: Vec<_> = (1..).zip(&all).filter(|(_, worker_spec)| worker_spec.sealed).map(seal).collect();
            (workers.into_iter().map(|w| w.join().unwrap()).collect::<Vec<u64>>(), answers)
        });
        let values = look(&rig, ELEMENTS);
        let half = values.len() / 2;
        for (shard, part) in [&values[..half], &values[half..]].into_iter().enumerate() {
            let state = rig.state(shard);
            let pushes_of = |me: u64| {
                let watermark = state.progress.watermarks.get(&Incarnation(me)).copied().unwrap_or(0);
                watermark / u64::from(all[me as usize - 1].covers)
            };
            let counted: u64 = (1..=all.len() as u64).map(pushes_of).sum();
            prop_assert_eq!(counted, state.pushes);
            let mut torn_most = 0;
            for chunk in part.chunks(CHUNK) {
                prop_assert!(chunk.iter().all(|x| *x == chunk[0]), "a chunk is torn");
                let torn = -chunk[0] as u64 - counted;
                prop_assert!(torn as usize <= seals);
                torn_most = torn_most.max(torn);
            }
            let partial = answers.iter().filter(|(_, shards)| shards[shard].partial).count();
            prop_assert_eq!(torn_most, partial as u64);
            for (me, &acknowledged) in (1..).zip(&done) {
                let mark = pushes_of(me);
                // Acknowledged by all means in everywhere; one more may be in here, unknown to its worker.
                prop_assert!(mark == acknowledged || mark == acknowledged + 1 && all[me as usize - 1].sealed);
            }
            for (me, shards) in &answers {
                let mark = state.progress.watermarks.get(&Incarnation(*me)).copied().unwrap_or(0);
                prop_assert_eq!(shards[shard].watermark, mark);
            }
        }
    }
}
