//! What is recalled, and what another engine says.

use super::*;

#[test]
fn what_is_recalled_is_not_begun_or_not_reported() {
    let Gate { registry, begun, go } = gate();
    let rig = rig(registry, 1);
    let tasks = (0..3).map(|n| task(n, vec![is(u64::from(n))])).collect();
    rig.order(WAIT.id(), tasks);
    assert_eq!(begun.recv().unwrap(), 0);
    // Another attempt than the one that is held is none of its business.
    rig.pool.take(vec![recall(&[(0, 1), (1, 1), (2, 2)])], None);
    go.send(()).unwrap();
    assert_eq!(begun.recv().unwrap(), 2);
    go.send(()).unwrap();
    assert_eq!(rig.number(2), 2);
}

#[test]
fn another_engine_says_what_is_still_to_be_done_and_what_has_ended_is_still_reported() {
    let Gate { registry, begun, go } = gate();
    let rig = rig(registry, 2);
    rig.order(ADD.id(), vec![task(0, vec![is(1), is(1)])]);
    let taken = rig.runtime.block_on(rig.pool.next_reports());
    rig.order(WAIT.id(), (1..=4).map(|n| task(n, vec![is(u64::from(n))])).collect());
    let mut running = [begun.recv().unwrap(), begun.recv().unwrap()];
    running.sort_unstable();
    assert_eq!(running, [1, 2]);
    // It has restored the first two and the last; the first was reported to the other engine.
    let restored = vec![group(WAIT.id(), [0, 1, 4].map(|n| task(n, vec![is(u64::from(n))])).into())];
    let mut named = Retelling::of(1);
    named.note(&restored);
    rig.pool.take(restored, Some((EngineEpoch(2), named)));
    for _ in 0..3 {
        go.send(()).unwrap();
    }
    assert_eq!(begun.recv().unwrap(), 4);
    let mut ends: Vec<u32> = rig.ends(2).iter().map(|end| end.task.0).collect();
    ends.sort_unstable();
    assert_eq!((taken.ended_tasks.groups[0].ended[0].task, ends), (TaskIndex(0), vec![1, 4]));
    assert!(!rig.pool.is_done(), "the first end was never acknowledged");
    rig.pool.acknowledge(taken);
    assert!(rig.pool.is_done());
}

#[test]
fn what_an_engine_took_and_its_store_forgot_runs_again_for_the_next_engine() {
    let rig = rig(usual(), 1);
    let order = || vec![group(ADD.id(), vec![task(0, vec![is(1), is(2)])])];
    rig.pool.take(order(), None);
    assert_eq!(rig.number(0), 3);
    // The same engine may name it to those that take what it gave; the next one has never heard of the end.
    rig.pool.take(order(), None);
    rig.pool.engine_changed();
    let mut named = Retelling::of(1);
    named.note(&order());
    rig.pool.take(order(), Some((EngineEpoch(2), named)));
    assert_eq!(rig.number(0), 3);
    // What has ended and was not taken is reported to that one, and not run twice.
    rig.order(ADD.id(), vec![task(1, vec![is(1), is(3)])]);
    let untaken = rig.runtime.block_on(rig.pool.next_reports());
    rig.pool.engine_changed();
    rig.order(ADD.id(), vec![task(1, vec![is(1), is(3)]), task(2, vec![is(1), is(4)])]);
    assert_eq!((untaken.ended_tasks.groups[0].ended[0].task, rig.number(2)), (TaskIndex(1), 5));
}

#[test]
fn the_next_engine_may_give_the_number_of_what_has_ended_to_another_call() {
    let Gate { registry, begun, go } = gate();
    let rig = rig(registry, 1);
    rig.pool.take(Vec::new(), Some((EngineEpoch(1), Retelling::of(0))));
    rig.order(ADD.id(), vec![task(0, vec![is(1), is(2)])]);
    let on_its_way = rig.runtime.block_on(rig.pool.next_reports());
    rig.order(WAIT.id(), vec![task(1, vec![is(1)])]);
    begun.recv().unwrap();
    rig.order(ADD.id(), vec![task(2, vec![is(1), is(3)])]);
    let Order::Recall(asked) = recall(&[(2, 1)]) else { unreachable!() };
    rig.pool.take(vec![Order::GiveBack(asked)], None);
    // It knows of none of them, and gives two of the numbers to other calls.
    rig.pool.engine_changed();
    rig.pool.take(Vec::new(), Some((EngineEpoch(2), Retelling::of(0))));
    rig.order(ADD.id(), vec![task(0, vec![is(5), is(6)]), task(2, vec![is(7), is(8)])]);
    go.send(()).unwrap();
    let given: Vec<_> = rig.ends(2).iter().map(|end| (end.task.0, number(end))).collect();
    assert_eq!(given, [(0, 11), (2, 15)]);
    assert_eq!(on_its_way.ended_tasks.under, EngineEpoch(1));
    rig.order(ADD.id(), vec![task(3, vec![is(1), is(1)])]);
    assert_eq!(rig.runtime.block_on(rig.pool.next_reports()).ended_tasks.under, EngineEpoch(2));
}
