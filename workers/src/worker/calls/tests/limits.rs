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

/// A shard that says when it is asked, and answers as it is told to.
#[derive(Clone)]
struct Slow {
    ask: mpsc::Sender<()>,
    answers: Arc<Mutex<mpsc::Receiver<PsError>>>,
}

impl ValueStore for Slow {
    fn put(&self, _: Salt, _: &[u8], _: &CancelToken, _: &dyn Fn(&str)) -> Result<BlobValue, PsError> {
        panic!("nothing is stored here")
    }

    fn get(&self, _: &BlobValue, _: &CancelToken) -> Result<Bytes, PsError> {
        self.ask.send(()).unwrap();
        Err(self.answers.lock().unwrap().recv().unwrap())
    }
}

#[test]
fn the_time_in_which_arguments_are_fetched_counts_for_no_run_limit() {
    let ((ask, asked), (answer, answers)) = (mpsc::channel(), mpsc::channel());
    let store = Slow { ask, answers: Arc::new(Mutex::new(answers)) };
    let rig = rig_with(store, usual(), 1, GivenUp::default());
    let blob = OneArg::Value(Value::Blob(BlobValue { digest: ContentDigest::LOWEST, bytes: 1 }));
    let args = vec![OrderArg::One(blob), is(2)];
    let Order::Run(limited) = group(SIZE.id(), vec![task(0, args)]) else { unreachable!() };
    rig.pool.take(vec![Order::Run(OrderGroup { run_limit_ms: Some(1), ..limited })], None);
    asked.recv().unwrap();
    rig.pool.expire(std::time::Instant::now() + Duration::from_secs(3_600), threads::start);
    let cause = "it is being started".to_owned();
    answer
        .send(PsError::Unreachable { address: "a:1".into(), after_ms: 10_000, cause: cause.into() })
        .unwrap();
    assert_eq!(rig.ends(1)[0].outcome, Outcome::NotBegun, "its function was never called");
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
