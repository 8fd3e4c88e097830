//! Tasks of a job that is to end: each is heard of once more.

use std::{cell::Cell, future::pending, io, time::Instant};

use syncline_rpc::threads::NoThread;

use super::*;

pub(super) fn stop(tasks: &[u32]) -> Order {
    let tasks = tasks.iter().map(|task| Attempt { task: TaskIndex(*task), attempt: 1 }).collect();
    Order::Stop(Attempts { submission: submission(), tasks })
}

#[test]
fn what_is_told_to_stop_is_reported_begun_or_not() {
    let Gate { registry, begun, go } = gate();
    let rig = rig(registry, 1);
    let waits = task(2, vec![held(1)]);
    rig.order(WAIT.id(), vec![task(0, vec![is(0)]), task(1, vec![is(1)]), waits]);
    assert_eq!(begun.recv().unwrap(), 0);
    assert_eq!(rig.pool.stopping(), 0);
    // An order may be repeated.
    rig.pool.take(vec![stop(&[0, 1, 2]), stop(&[0, 1, 2])], None);
    let ends = rig.ends(2);
    assert!(ends.iter().all(|end| end.outcome == Outcome::Stopped), "{ends:?}");
    assert_eq!(ends.iter().map(|end| end.task.0).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(rig.pool.stopping(), 1, "a function that does not look goes on");
    assert_eq!(rig.pool.stopping_functions(), [WAIT.id().name]);
    go.send(()).unwrap();
    assert_eq!(rig.number(0), 0, "and what it gives is heard");
    assert_eq!(rig.pool.stopping(), 0);
    rig.order(ADD.id(), vec![task(3, vec![is(1), is(1)])]);
    assert_eq!(rig.number(3), 2, "its thread is free");
}

#[test]
fn what_is_asked_back_and_has_not_begun_is_given_back_and_what_runs_goes_on() {
    let Gate { registry, begun, go } = gate();
    let rig = rig(registry, 1);
    rig.order(WAIT.id(), vec![task(0, vec![is(0)]), task(1, vec![is(1)]), task(2, vec![is(2)])]);
    assert_eq!(begun.recv().unwrap(), 0);
    let Order::Stop(asked) = stop(&[0, 1]) else { unreachable!() };
    rig.pool.take(vec![Order::GiveBack(asked.clone()), Order::GiveBack(asked)], None);
    let begun_here =
        || -> Vec<u32> { rig.pool.begun()[0].tasks.iter().map(|attempt| attempt.task.0).collect() };
    assert_eq!(begun_here(), [0], "a worker that leaves now has not begun what it was asked for");
    let [end] = &rig.ends(1)[..] else { unreachable!() };
    assert_eq!((end.task, &end.outcome), (TaskIndex(1), &Outcome::GivenBack));
    go.send(()).unwrap();
    assert_eq!(rig.number(0), 0);
    assert_eq!(begun.recv().unwrap(), 2, "it was not asked back, and that one never begins here");
    assert!(begun_here().contains(&2), "{:?}", begun_here());
    go.send(()).unwrap();
    assert_eq!(rig.number(2), 2);
}

#[test]
fn an_async_function_is_dropped_where_it_waits_and_says_that_it_stopped() {
    const NEVER: Function<(), u64> = Function::new("never");
    let (begin, begun) = mpsc::channel();
    let mut registry = usual();
    let never = async move || {
        begin.send(()).unwrap();
        pending::<u64>().await
    };
    registry.register_async(NEVER, never).unwrap();
    let rig = rig(registry, 1);
    rig.order(NEVER.id(), vec![task(0, vec![])]);
    begun.recv().unwrap();
    rig.pool.take(vec![stop(&[0])], None);
    assert_eq!(rig.ends(1)[0].outcome, Outcome::Stopped);
}

#[test]
fn what_was_told_to_stop_and_is_recalled_is_given_up() {
    let Gate { registry, begun, go } = gate();
    let rig = rig(registry, 1);
    rig.order(WAIT.id(), vec![task(0, vec![is(0)])]);
    assert_eq!(begun.recv().unwrap(), 0);
    rig.pool.take(vec![stop(&[0]), recall(&[(0, 1)])], None);
    rig.order(ADD.id(), vec![task(1, vec![is(1), is(1)])]);
    assert_eq!(rig.number(1), 2, "another thread has its place");
    assert_eq!(rig.pool.stopping(), 1, "it is still there");
    go.send(()).unwrap();
}

#[test]
fn a_slot_is_not_lost_where_no_thread_takes_the_place_of_one_that_hangs() {
    // It returns after all, or a thread starts the next time.
    for returns in [true, false] {
        let Gate { registry, begun, go } = gate();
        let rig = rig_without_limits(registry, 1);
        rig.order(WAIT.id(), vec![task(0, vec![is(0)])]);
        begun.recv().unwrap();
        rig.pool.take(vec![recall(&[(0, 1)])], None);
        let refused = Cell::new(0);
        let refuse = |_: Pool| {
            refused.set(refused.get() + 1);
            Err(NoThread { what: "call".into(), source: io::ErrorKind::WouldBlock.into() })
        };
        let in_a_while = |seconds| Instant::now() + Duration::from_secs(seconds);
        rig.pool.expire(in_a_while(10), refuse);
        rig.pool.expire(in_a_while(20), refuse);
        assert_eq!(refused.get(), 2);
        rig.order(ADD.id(), vec![task(1, vec![is(1), is(1)])]);
        match returns {
            true => go.send(()).unwrap(),
            false => rig.pool.expire(in_a_while(30), threads::start),
        }
        assert_eq!(rig.number(1), 2, "{returns}");
        // Its thread ends if another has its place, and there is one slot again.
        drop(go);
        rig.order(ADD.id(), vec![task(2, vec![is(2), is(1)])]);
        assert_eq!(rig.number(2), 3);
    }
}

#[test]
fn what_runs_on_from_an_earlier_session_counts_beside_the_pool_of_the_next() {
    let given_up = GivenUp::default();
    let (before, next) = (gate(), gate());
    let hung = |gate: Gate, given_up: GivenUp| {
        let rig = rig_beside(gate.registry, 1, given_up);
        rig.order(WAIT.id(), vec![task(0, vec![is(0)])]);
        gate.begun.recv().unwrap();
        (rig, gate.go)
    };
    let (ended, old_goes) = hung(before, given_up.clone());
    ended.pool.abandon();
    ended.runtime.block_on(ended.pool.give_way());
    let (rig, new_goes) = hung(next, given_up);
    rig.pool.take(vec![recall(&[(0, 1)])], None);
    let later = Instant::now() + Duration::from_secs(10);
    rig.pool.expire(later, |_| panic!("as many threads are given up as there are slots"));
    old_goes.send(()).unwrap();
    new_goes.send(()).unwrap();
}
