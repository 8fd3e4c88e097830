//! Once a seal has answered, nothing of that incarnation comes in.

use std::thread;

use syncline_ps::{
    PsError,
    shard::{PushHeader, ReadCondition},
};
use syncline_rpc::ShardFault;
use syncline_scheduler::ids::Incarnation;

use super::rig::{Rig, UNIT, look};

/// Eight chunks on one shard.
const ELEMENTS: u64 = 8 * 65_536;

#[test]
fn a_seal_in_the_middle_of_pushing_answers_exactly_what_is_in() {
    for (stop_after, covers) in [(1, 1), (2, 3), (5, 1)] {
        let rig = Rig::with_job(1, ELEMENTS);
        let ones = vec![1.0; ELEMENTS as usize];
        let (sender, receiver) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            let mut worker = rig.worker(1, ELEMENTS);
            let pushing = scope.spawn(move || {
                for count in 1.. {
                    let header = PushHeader { covers, ..UNIT };
                    if let Err(error) = worker.push(count * u64::from(covers), header, &[&ones]) {
                        return (count, error);
                    }
                    let _ = sender.send(count);
                }
                unreachable!()
            });
            while receiver.recv().unwrap() < stop_after {}
            let answer = rig.seal(0, 1);
            // What is there now must never change again.
            let at_seal = look(&rig, ELEMENTS);
            let (refused, error) = pushing.join().unwrap();
            assert!(
                matches!(
                    error,
                    PsError::Refused { fault: ShardFault::Sealed { worker: Incarnation(1), .. } }
                ),
                "{error}"
            );
            assert_eq!(answer.watermark % u64::from(covers), 0);
            let counted = answer.watermark / u64::from(covers);
            assert_eq!(refused, counted + 1);
            assert_eq!(look(&rig, ELEMENTS), at_seal);
            let whole = -(counted as f32);
            let torn = at_seal.iter().filter(|x| **x == whole - 1.0).count();
            assert_eq!(torn > 0, answer.partial);
            assert!(at_seal.iter().all(|x| *x == whole || *x == whole - 1.0));
            assert_eq!(rig.state(0).pushes, counted);
            assert_eq!(rig.seal(0, 1), answer, "asked again, it answers the same");
        });
    }
}

#[test]
fn an_incarnation_sealed_before_its_first_push_never_gets_in() {
    let rig = Rig::with_job(1, 100);
    rig.seal(0, 5);
    let mut worker = rig.worker(5, 100);
    assert!(matches!(
        worker.push(1, UNIT, &[&[1.0; 100]]),
        Err(PsError::Refused { fault: ShardFault::Sealed { .. } })
    ));
    assert!(matches!(
        worker.pull(ReadCondition::version(0), &mut [0.0; 100]),
        Err(PsError::Refused { fault: ShardFault::Sealed { .. } })
    ));
    rig.worker(6, 100).push(1, UNIT, &[&[1.0; 100]]).unwrap();
    assert_eq!(look(&rig, 100), [-1.0; 100]);
}

#[test]
fn many_that_come_and_go_are_all_refused_later_and_take_no_room() {
    let rig = Rig::with_job(1, 100);
    for worker in 1..=600 {
        rig.worker(worker, 100).push(1, UNIT, &[&[1.0; 100]]).unwrap();
        assert_eq!(rig.seal(0, worker).watermark, 1);
    }
    assert!(rig.state(0).progress.watermarks.len() <= 300, "{}", rig.state(0).progress.watermarks.len());
    assert_eq!(rig.state(0).pushes, 600);
    for worker in [1, 300, 600] {
        let mut late = rig.worker(worker, 100);
        assert!(matches!(
            late.push(2, UNIT, &[&[1.0; 100]]),
            Err(PsError::Refused { fault: ShardFault::Sealed { .. } })
        ));
        assert!(matches!(
            late.pull(ReadCondition::version(0), &mut [0.0; 100]),
            Err(PsError::Refused { fault: ShardFault::Sealed { .. } })
        ));
    }
    assert_eq!(look(&rig, 100), [-600.0; 100]);
}
