//! What is ordered runs once what it waits for is here, and is reported once.

use super::*;
use syncline_scheduler::ids::ContentDigest;

#[test]
fn a_task_waits_for_those_that_are_held_and_takes_what_they_gave() {
    let rig = rig(usual(), 2);
    // Children first: they wait all the same, if the parents are there.
    rig.order(ADD.id(), vec![task(0, vec![is(1), is(2)]), task(1, vec![held(0), is(10)])]);
    rig.order(SUM.id(), vec![task(2, vec![OrderArg::List(vec![held_arg(0), number_arg(100), held_arg(1)])])]);
    rig.order(ADD.id(), vec![after(task(3, vec![is(4), is(5)]), &[2])]);
    let ends = rig.ends(4);
    let given: Vec<(u32, u64)> = ends.iter().map(|end| (end.task.0, number(end))).collect();
    assert_eq!(given, [(0, 3), (1, 13), (2, 116), (3, 9)]);
    // What they gave is kept until no order can refer to it: a poll that began after the end was taken is the
    // last.
    let poll = rig.pool.poll_begins();
    rig.order(ADD.id(), vec![task(4, vec![held(2), held(2)])]);
    rig.pool.poll_answered(poll);
    assert_eq!(rig.number(4), 232);
    rig.order(ADD.id(), vec![task(5, vec![held(2), is(0)])]);
    assert_eq!(failure(&rig.ends(1)[0]), (FailureCause::Worker, FaultCode::new("E446")));
}

#[test]
fn a_list_of_many_is_put_together_as_postcard_writes_it() {
    let rig = rig(usual(), 1);
    rig.order(SUM.id(), vec![task(0, vec![OrderArg::List((0..300).map(number_arg).collect())])]);
    assert_eq!(rig.number(0), 299 * 300 / 2);
}

#[test]
fn what_waits_for_a_task_that_gives_nothing_is_dropped_without_a_word_and_can_come_again() {
    let rig = rig(usual(), 1);
    for (place, function) in [(0, FAIL.id()), (10, SKIP.id())] {
        let tasks =
            vec![task(place + 1, vec![held(place), is(1)]), task(place + 2, vec![held(place + 1), is(1)])];
        rig.pool.take(vec![group(function, vec![task(place, vec![])]), group(ADD.id(), tasks)], None);
        assert_eq!(rig.ends(1)[0].task, TaskIndex(place));
        // The engine may not have known.
        rig.order(ADD.id(), vec![task(place + 3, vec![held(place + 2), is(1)])]);
        rig.order(ADD.id(), vec![after(task(place + 4, vec![is(1), is(1)]), &[place])]);
        rig.order(ADD.id(), vec![task(place + 2, vec![is(7), is(1)])]);
        assert_eq!(rig.number(place + 2), 8);
    }
    // One that is continued by a task that it adds gives nothing here, either.
    let tasks = vec![task(21, vec![held(20), is(1)])];
    rig.pool.take(vec![group(CHILD.id(), vec![task(20, vec![is(0)])]), group(ADD.id(), tasks)], None);
    let [end] = &rig.ends(1)[..] else { unreachable!() };
    let Outcome::Spawned(spawned) = &end.outcome else { panic!("{end:?}") };
    let Spawned { classes, tasks, gives } = &**spawned;
    assert_eq!((classes.len(), tasks.len(), gives), (1, 1, &Gives::New(0)));
    let syncline_scheduler::tasks::Arg::Blob(large) = &tasks[0].args[0] else { panic!("{tasks:?}") };
    assert!(rig.store.get(large, &CancelToken::default()).unwrap().len() > MAX_INLINE_BYTES);
    rig.order(ADD.id(), vec![task(22, vec![is(1), is(1)])]);
    assert_eq!(rig.number(22), 2);
}

#[test]
fn one_that_adds_tasks_and_gives_a_value_lets_others_go_on() {
    let rig = rig(usual(), 1);
    let tasks = vec![task(1, vec![held(0), is(1)])];
    rig.pool.take(vec![group(CHILD.id(), vec![task(0, vec![is(5)])]), group(ADD.id(), tasks)], None);
    let ends = rig.ends(2);
    let Outcome::Spawned(spawned) = &ends[0].outcome else { panic!("{ends:?}") };
    assert_eq!(spawned.gives, Gives::Value(Value::Inline(vec![5].into())));
    assert_eq!(number(&ends[1]), 6);
}

#[test]
fn large_values_lie_in_the_store_and_are_at_hand_for_those_that_wait_here() {
    let rig = rig(usual(), 1);
    rig.pool.take(
        vec![
            group(
                LARGE.id(),
                vec![task(0, vec![OrderArg::One(OneArg::Value(Value::Inline(vec![7].into())))])],
            ),
            group(SIZE.id(), vec![task(1, vec![held(0), is(1)])]),
        ],
        None,
    );
    let ends = rig.ends(2);
    let Outcome::Value(Value::Blob(blob)) = &ends[0].outcome else { panic!("{ends:?}") };
    assert_eq!(number(&ends[1]), MAX_INLINE_BYTES as u64 + 2);
    assert_eq!(rig.store.0.lock().unwrap()[&blob.digest].0, task_salt(NONCE, TaskIndex(0), 1));
    // Another worker fetches it.
    rig.order(SIZE.id(), vec![task(2, vec![OrderArg::One(OneArg::Value(Value::Blob(blob.clone()))), is(2)])]);
    assert_eq!(rig.number(2), MAX_INLINE_BYTES as u64 + 3);
    let gone =
        OrderArg::One(OneArg::Value(Value::Blob(BlobValue { digest: ContentDigest::LOWEST, bytes: 1 })));
    rig.order(SIZE.id(), vec![task(3, vec![gone, is(2)])]);
    assert_eq!(failure(&rig.ends(1)[0]).0, FailureCause::Worker);
}

#[test]
fn a_function_that_this_worker_has_not_is_the_workers_fault() {
    let rig = rig(usual(), 1);
    rig.order(UNKNOWN.id(), vec![task(0, vec![])]);
    assert_eq!(failure(&rig.ends(1)[0]), (FailureCause::Worker, FaultCode::new("E446")));
}

#[test]
fn an_order_that_comes_twice_is_done_once_and_another_attempt_is_done_anew() {
    let rig = rig(usual(), 1);
    let order = task(0, vec![is(1), is(2)]);
    rig.order(ADD.id(), vec![order.clone(), order.clone()]);
    assert_eq!(rig.number(0), 3);
    rig.order(ADD.id(), vec![order.clone()]);
    rig.order(ADD.id(), vec![again(order, 2)]);
    let ends = rig.ends(1);
    assert_eq!((ends[0].attempt, number(&ends[0])), (2, 3));
}

#[test]
fn tasks_take_as_many_slots_as_they_say() {
    const BOTH: Function<(), u32> = Function::new("both");
    let running = Arc::new(AtomicU32::new(0));
    let meet = Arc::new(Barrier::new(2));
    let mut registry = usual();
    let (count, wait) = (running.clone(), meet);
    let both = move || {
        let now = count.fetch_add(1, Ordering::SeqCst) + 1;
        wait.wait();
        count.fetch_sub(1, Ordering::SeqCst);
        now
    };
    registry.register(BOTH, both).unwrap();
    let alone = running.clone();
    registry.register(WAIT, move |_: u64| u64::from(alone.load(Ordering::SeqCst))).unwrap();
    let rig = rig(registry, 2);
    let wide = |n: u32| {
        let Order::Run(group) = group(WAIT.id(), vec![task(n, vec![is(0)])]) else { unreachable!() };
        // More than there are: all of them.
        Order::Run(OrderGroup { slots: n, ..group })
    };
    let pair = |n: u32| group(BOTH.id(), vec![task(n, vec![]), task(n + 1, vec![])]);
    rig.pool.take(vec![pair(10), wide(2), pair(20), wide(3), pair(30)], None);
    let ends = rig.ends(8);
    let wide: Vec<u64> = ends.iter().filter(|end| end.task.0 < 10).map(number).collect();
    assert_eq!(wide, [0, 0], "nothing runs beside them: {ends:?}");
}

#[test]
fn reports_are_grouped_by_job_in_their_order() {
    let mut reports = Reports::default();
    assert!(reports.take(EngineEpoch(1)).is_none());
    let mut push = |nonce: u32, task: u32, bytes: usize| {
        let submission = Arc::new(SubmissionId { nonce, ..submission() });
        let (task, outcome) = (TaskIndex(task), Outcome::Value(Value::Inline(vec![0; bytes].into())));
        let end = TaskEnd { task, attempt: 1, run_us: 0, outcome, preview: None };
        reports.push(EndedKey { submission, task, serial: OrderId::default() }, end)
    };
    let firsts = [push(1, 0, 1), push(1, 1, 1), push(2, 0, 1), push(1, 2, 4 << 20), push(1, 3, 1)];
    assert_eq!(firsts, [true, false, false, false, false]);
    let mut tasks = || {
        let groups = reports.take(EngineEpoch(1)).unwrap().ended_tasks.groups.into_iter();
        let tasks = |group: ReportGroup| group.ended.iter().map(|end| end.task.0).collect();
        groups.map(|group| (group.submission.nonce, tasks(group))).collect::<Vec<(u32, Vec<u32>)>>()
    };
    assert_eq!(tasks(), [(1, vec![0, 1]), (2, vec![0]), (1, vec![2])], "and no more bytes than fit");
    assert_eq!(tasks(), [(1, vec![3])]);
}

#[test]
fn of_a_call_that_runs_the_engine_is_told_since_when_and_what_it_says_of_its_progress() {
    const LONG: Function<(), ()> = Function::new("long");
    let (begun, go) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (begin, end, mut registry) = (begun.clone(), go.clone(), Registry::new());
    let long = move |context: &Context| {
        context.report_progress(1, 3, "first");
        context.report_progress(2, 3, "second");
        begin.wait();
        end.wait();
    };
    registry.register(LONG, long).unwrap();
    let rig = rig(registry, 1);
    rig.order(LONG.id(), vec![task(5, vec![])]);
    begun.wait();
    let [call] = &rig.pool.running()[..] else { panic!("{:?}", rig.pool.running()) };
    assert_eq!((&call.submission, call.task, call.attempt), (&submission(), TaskIndex(5), 1));
    assert_eq!(call.progress.as_ref().unwrap().to_string(), "2 of 3, second");
    go.wait();
    rig.ends(1);
    assert_eq!(rig.pool.running(), []);
}
