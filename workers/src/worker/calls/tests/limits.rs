//! Tasks that run too long, and slots that are lost.

use super::*;

#[test]
fn one_that_runs_too_long_fails_and_its_thread_is_replaced() {
    let Gate { registry, begun, go } = gate();
    let rig = rig(registry, 1);
    let Order::Run(limited) = group(WAIT.id(), vec![task(0, vec![is(0)])]) else { unreachable!() };
    rig.pool.take(vec![Order::Run(OrderGroup { run_limit_ms: Some(1), ..limited })], None);
    begun.recv().unwrap();
    let ends = rig.ends(1);
    assert_eq!(failure(&ends[0]), (FailureCause::Function, FaultCode::new("E443")));
    // The function never returns, and others run.
    rig.order(ADD.id(), vec![task(1, vec![is(1), is(1)])]);
    assert_eq!(rig.number(1), 2);
    // What it says at last is not heard, and its thread ends.
    go.send(()).unwrap();
    rig.order(ADD.id(), vec![task(2, vec![is(1), is(1)])]);
    assert_eq!(rig.number(2), 2);
}

#[test]
fn a_worker_of_which_a_slot_is_lost_for_good_says_so_and_no_earlier() {
    let Gate { registry, begun, go } = gate();
    let rig = rig_without_limits(registry, 1);
    let Order::Run(limited) = group(WAIT.id(), vec![task(0, vec![is(0)]), task(1, vec![is(0)])]) else {
        unreachable!()
    };
    rig.pool.take(vec![Order::Run(OrderGroup { run_limit_ms: Some(1), ..limited })], None);
    begun.recv().unwrap();
    let mut now = std::time::Instant::now() + Duration::from_secs(3_600);
    let mut pass = |times: u32| {
        for _ in 0..times {
            now += Duration::from_secs(2);
            rig.pool.expire(now, threads::start);
        }
    };
    // The first is told and given up, the second told, and cannot be given up as well.
    pass(2);
    begun.recv().unwrap();
    pass(1 + MORE_CHANCES - 1);
    assert_eq!(rig.pool.stuck(), None);
    pass(1);
    assert_eq!(rig.pool.stuck().as_deref(), Some("wait"));
    go.send(()).unwrap();
    go.send(()).unwrap();
}

#[test]
fn a_function_that_looks_whether_it_is_to_stop_keeps_its_thread() {
    const PATIENT: Function<(), u64> = Function::new("patient");
    let mut registry = usual();
    let patient = |context: &Context| {
        while !context.canceled() {
            thread::sleep(Duration::from_millis(1));
        }
        7u64
    };
    registry.register(PATIENT, patient).unwrap();
    let rig = rig(registry, 1);
    let Order::Run(limited) = group(PATIENT.id(), vec![task(0, vec![])]) else { unreachable!() };
    rig.pool.take(vec![Order::Run(OrderGroup { run_limit_ms: Some(1), ..limited })], None);
    rig.order(ADD.id(), vec![task(1, vec![is(1), is(1)])]);
    let ends = rig.ends(2);
    assert_eq!((failure(&ends[0]).1, number(&ends[1])), (FaultCode::new("E443"), 2));
}

#[test]
fn a_closed_pool_ends_what_runs_and_begins_nothing() {
    let Gate { registry, begun, go } = gate();
    let rig = rig(registry, 1);
    rig.order(WAIT.id(), vec![task(0, vec![is(0)]), task(1, vec![is(1)])]);
    begun.recv().unwrap();
    rig.pool.close();
    assert!(!rig.pool.is_done());
    go.send(()).unwrap();
    assert_eq!(rig.number(0), 0);
    assert!(rig.pool.is_done() && begun.try_recv().is_err());
}
