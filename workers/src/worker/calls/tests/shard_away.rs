//! Calls whose large values a shard does not take or give for a while.

use super::{super::patient_store::PatientStore, *};
use crate::functions::{ProgressCell, StopFlag};

fn away() -> PsError {
    PsError::Unreachable { address: "a:1".into(), after_ms: 0, cause: "refused".into() }
}

fn disk_full() -> PsError {
    PsError::Refused { fault: ShardFault::Io { what: "cannot write".into(), cause: "no space".into() } }
}

/// `LARGE`, and how often it has run.
fn counting() -> (Registry, Arc<AtomicU32>) {
    let runs = Arc::new(AtomicU32::new(0));
    let (count, mut registry) = (runs.clone(), Registry::new());
    let large = move |fill: u8| {
        count.fetch_add(1, Ordering::SeqCst);
        vec![fill; MAX_INLINE_BYTES + 1]
    };
    registry.register(LARGE, large).unwrap();
    registry.register(SIZE, |bytes: Vec<u8>, more: u64| bytes.len() as u64 + more).unwrap();
    (registry, runs)
}

fn fill(n: u8) -> OrderArg {
    OrderArg::One(OneArg::Value(Value::Inline(vec![n].into())))
}

#[test]
fn a_result_that_a_shard_does_not_take_yet_is_offered_again_and_the_function_is_not_run_again() {
    let (registry, runs) = counting();
    let rig = rig(registry, 1);
    *rig.store.1.lock().unwrap() = vec![disk_full(), away()];
    rig.order(LARGE.id(), vec![task(0, vec![fill(7)])]);
    let ends = rig.ends(1);
    assert!(matches!(&ends[0].outcome, Outcome::Value(Value::Blob(_))), "{ends:?}");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[test]
fn whoever_looks_at_a_call_whose_value_waits_for_a_shard_is_told_why() {
    let store = Memory::default();
    *store.1.lock().unwrap() = vec![disk_full()];
    let (stop, progress) = (StopFlag::default(), ProgressCell::default());
    progress.set(3, 3, "all read");
    PatientStore { store: &store, stop: &stop, progress: &progress }.put(Salt::default(), &[1]).unwrap();
    assert_eq!(
        progress.get().unwrap().to_string(),
        "3 of 3, its value waits until a shard takes it: [E406] cannot write: no space"
    );
}

#[test]
fn a_result_that_no_try_will_store_fails_its_attempt() {
    let (registry, _) = counting();
    let rig = rig(registry, 1);
    *rig.store.1.lock().unwrap() =
        vec![PsError::Refused { fault: ShardFault::Invalid { what: "too long".into() } }];
    rig.order(LARGE.id(), vec![task(0, vec![fill(7)])]);
    assert_eq!(failure(&rig.ends(1)[0]), (FailureCause::Worker, FaultCode::new("E405")));
}

#[test]
fn a_call_whose_argument_is_out_of_reach_is_given_back_unbegun() {
    let (registry, _) = counting();
    let rig = rig(registry, 1);
    let blob = rig.store.put(Salt::default(), &[1]).unwrap();
    *rig.store.1.lock().unwrap() = vec![away()];
    let arg = OrderArg::One(OneArg::Value(Value::Blob(blob)));
    rig.order(SIZE.id(), vec![task(0, vec![arg, is(2)])]);
    assert_eq!(rig.ends(1)[0].outcome, Outcome::NotBegun);
}
