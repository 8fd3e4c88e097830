//! Calls whose large values a shard does not take or give for a while.

use std::time::Instant;

use syncline_rpc::hello::HelloError;
use syncline_scheduler::{ids::ContentDigest, tasks::Progress};

use super::{super::patient_store::PatientStore, *};
use crate::functions::{CallFault, ProgressCell, StopFlag, Urgency};

const FETCH: Function<(bool,), u64> = Function::new("fetch");

fn away() -> PsError {
    PsError::Unreachable { address: "a:1".into(), after_ms: 0, cause: "refused".into() }
}

fn disk_full() -> PsError {
    PsError::Refused { fault: ShardFault::Io { what: "cannot write".into(), cause: "no space".into() } }
}

/// As while the parts of a cluster are exchanged one after the other.
fn other_release() -> PsError {
    PsError::Greeting { address: "a:1".into(), source: HelloError::Version { theirs: 1 } }
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
    registry.register(ADD, |a: u64, b: u64| a + b).unwrap();
    (registry, runs)
}

fn fill(n: u8) -> OrderArg {
    OrderArg::One(OneArg::Value(Value::Inline(vec![n].into())))
}

#[test]
fn a_result_that_a_shard_does_not_take_yet_is_offered_again_and_the_function_is_not_run_again() {
    let (registry, runs) = counting();
    let rig = rig(registry, 1);
    *rig.store.1.lock().unwrap() = vec![disk_full(), other_release(), away()];
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
    let runtime = Runtime::new().unwrap();
    let runtime = runtime.handle();
    let patient = PatientStore { store: &store, stop: &stop, progress: &progress, runtime };
    patient.put(Salt::default(), &[1]).unwrap();
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
    let blob = rig.store.put(Salt::default(), &[1], &CancelToken::default(), &|_| {}).unwrap();
    let arg = OrderArg::One(OneArg::Value(Value::Blob(blob)));
    for (number, error) in (0..).zip([away(), other_release(), disk_full()]) {
        let code = error.code();
        *rig.store.1.lock().unwrap() = vec![error];
        rig.order(SIZE.id(), vec![task(number, vec![arg.clone(), is(2)])]);
        assert_eq!(rig.ends(1)[0].outcome, Outcome::NotBegun, "{code}");
        assert_eq!(rig.pool.begun(), [], "{code}: its worker may leave, and no attempt counts");
    }
}

#[test]
fn a_call_whose_argument_is_lost_has_not_begun() {
    let (registry, _) = counting();
    let rig = rig(registry, 1);
    let lost = BlobValue { digest: ContentDigest::LOWEST, bytes: 1 };
    rig.order(SIZE.id(), vec![task(0, vec![OrderArg::One(OneArg::Value(Value::Blob(lost))), is(2)])]);
    assert!(matches!(rig.ends(1)[0].outcome, Outcome::ArgumentsLost(_)));
    assert_eq!(rig.pool.begun(), [], "its worker may leave, and no attempt counts");
}

#[test]
fn a_call_whose_model_is_out_of_reach_is_given_back_and_one_whose_model_is_gone_fails() {
    let mut registry = Registry::new();
    let fetch = |_: &Context, (is_gone,): (bool,)| -> Result<u64, CallFault> {
        let gone = ShardFault::MissingBlob { digest: ContentDigest::LOWEST };
        Err(CallFault::Store(if is_gone { gone.into() } else { away() }))
    };
    registry.register_own(FETCH, fetch).unwrap();
    let rig = rig(registry, 1);
    rig.order(FETCH.id(), vec![task(0, vec![fill(0)])]);
    assert_eq!(rig.ends(1)[0].outcome, Outcome::NotBegun);
    rig.order(FETCH.id(), vec![task(1, vec![fill(1)])]);
    assert_eq!(failure(&rig.ends(1)[0]), (FailureCause::Worker, FaultCode::new("E404")));
}

/// A shard that owes its answer until its caller is canceled, and says when it is asked.
#[derive(Clone)]
struct Silent(mpsc::Sender<()>);

impl Silent {
    fn owe<T>(&self, cancel_token: &CancelToken) -> Result<T, PsError> {
        self.0.send(()).unwrap();
        while !cancel_token.is_canceled() {
            thread::yield_now();
        }
        Err(PsError::Canceled)
    }
}

impl ValueStore for Silent {
    fn put(
        &self,
        _: Salt,
        _: &[u8],
        cancel_token: &CancelToken,
        told: &dyn Fn(&str),
    ) -> Result<BlobValue, PsError> {
        told("a:1");
        self.owe(cancel_token)
    }

    fn get(&self, _: &BlobValue, cancel_token: &CancelToken) -> Result<Bytes, PsError> {
        self.owe(cancel_token)
    }
}

#[test]
fn a_call_that_is_told_to_stop_lets_go_of_a_shard_that_says_nothing() {
    let blob = BlobValue { digest: ContentDigest::LOWEST, bytes: 1 };
    let fetches = (SIZE, vec![OrderArg::One(OneArg::Value(Value::Blob(blob))), is(2)]);
    let stores = (LARGE, vec![fill(7)]);
    for (function, args) in [(fetches.0.id(), fetches.1), (stores.0.id(), stores.1)] {
        let (ask, asked) = mpsc::channel();
        let (registry, _) = counting();
        let rig = rig_with(Silent(ask), registry, 1, GivenUp::default());
        rig.order(function.clone(), vec![task(0, args)]);
        asked.recv().unwrap();
        rig.pool.take(vec![stopping::stop(&[0])], None);
        assert_eq!(rig.ends(1)[0].outcome, Outcome::Stopped, "{function}");
        rig.order(ADD.id(), vec![task(1, vec![is(1), is(1)])]);
        assert_eq!(rig.number(1), 2, "its thread is free");
    }
}

#[test]
fn a_call_that_still_fetches_when_its_worker_is_stopped_is_given_back_at_once_and_has_not_begun() {
    let blob = BlobValue { digest: ContentDigest::LOWEST, bytes: 1 };
    let (ask, asked) = mpsc::channel();
    let (registry, _) = counting();
    let rig = rig_with(Silent(ask), registry, 1, GivenUp::default());
    rig.order(SIZE.id(), vec![task(0, vec![OrderArg::One(OneArg::Value(Value::Blob(blob))), is(2)])]);
    asked.recv().unwrap();
    assert_eq!(rig.pool.begun(), [], "while it fetches");
    rig.pool.close();
    assert_eq!(rig.ends(1)[0].outcome, Outcome::GivenBack);
    assert_eq!(rig.pool.begun(), []);
    assert!(rig.pool.is_done());
}

/// A shard whose answer is under way already, whoever is canceled, and comes when the test lets it.
#[derive(Clone)]
struct Late {
    asked: mpsc::Sender<()>,
    go: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl ValueStore for Late {
    fn put(&self, _: Salt, _: &[u8], _: &CancelToken, _: &dyn Fn(&str)) -> Result<BlobValue, PsError> {
        panic!("nothing is stored here")
    }

    fn get(&self, _: &BlobValue, _: &CancelToken) -> Result<Bytes, PsError> {
        self.asked.send(()).unwrap();
        self.go.lock().unwrap().recv().unwrap();
        Ok(vec![0].into())
    }
}

#[test]
fn a_call_whose_argument_comes_once_its_worker_has_said_what_has_begun_is_not_called() {
    let blob = BlobValue { digest: ContentDigest::LOWEST, bytes: 1 };
    for closes in [false, true] {
        let ((ask, asked), (go, gone)) = (mpsc::channel(), mpsc::channel());
        let (registry, _) = counting();
        let late = Late { asked: ask, go: Arc::new(Mutex::new(gone)) };
        let rig = rig_with(late, registry, 1, GivenUp::default());
        rig.order(
            SIZE.id(),
            vec![task(0, vec![OrderArg::One(OneArg::Value(Value::Blob(blob.clone()))), is(2)])],
        );
        asked.recv().unwrap();
        if closes {
            rig.pool.close();
        }
        go.send(()).unwrap();
        if closes {
            assert_eq!(rig.ends(1)[0].outcome, Outcome::GivenBack);
            assert_eq!(rig.pool.begun(), []);
        } else {
            assert_eq!(rig.number(0), 2);
            assert_eq!(rig.pool.begun()[0].tasks, [Attempt { task: TaskIndex(0), attempt: 1 }]);
        }
    }
}

/// A shard that takes nothing, and tells what people are told once a value is on its way to it.
struct TakesNothing<'a>(&'a ProgressCell, mpsc::Sender<String>);

impl ValueStore for TakesNothing<'_> {
    fn put(&self, _: Salt, _: &[u8], _: &CancelToken, told: &dyn Fn(&str)) -> Result<BlobValue, PsError> {
        told("a:1");
        self.1.send(self.0.get().unwrap().text).unwrap();
        Err(away())
    }

    fn get(&self, _: &BlobValue, _: &CancelToken) -> Result<Bytes, PsError> {
        panic!("nothing is asked for here")
    }
}

#[test]
fn why_a_large_value_waits_stays_to_be_seen_while_it_is_tried_again() {
    let (stop, progress) = (StopFlag::default(), ProgressCell::default());
    let (tell, told) = mpsc::channel();
    let store = TakesNothing(&progress, tell);
    let runtime = Runtime::new().unwrap();
    let patient = PatientStore { store: &store, stop: &stop, progress: &progress, runtime: runtime.handle() };
    let large = vec![0; 16 << 20];
    thread::scope(|scope| {
        let waits = scope.spawn(|| patient.put(Salt::default(), &large));
        assert_eq!(told.recv().unwrap(), "it sends its value: 16 MiB to the parameter shard at a:1");
        assert_eq!(told.recv().unwrap(), Progress::unstored(away()));
        stop.ask(Urgency::Now);
        assert!(waits.join().unwrap().is_err());
    });
}

#[test]
fn of_a_large_value_it_is_said_that_it_is_sent_and_a_worker_that_ends_does_not_wait_for_it() {
    let (ask, asked) = mpsc::channel();
    let (store, stop, progress) = (Silent(ask), StopFlag::default(), ProgressCell::default());
    let runtime = Runtime::new().unwrap();
    let runtime = runtime.handle();
    let patient = PatientStore { store: &store, stop: &stop, progress: &progress, runtime };
    // Nobody touches it.
    let large = vec![0; 1 << 30];
    let begun = Instant::now();
    thread::scope(|scope| {
        let sending = scope.spawn(|| patient.put(Salt::default(), &large));
        asked.recv().unwrap();
        let said = progress.get().unwrap().text;
        assert_eq!(said, "it sends its value: 1 GiB to the parameter shard at a:1");
        // Its job ends: what comes within the grace counts. Then nothing counts any more.
        stop.ask(Urgency::Soon);
        stop.ask(Urgency::Now);
        assert!(matches!(sending.join().unwrap(), Err(PsError::Canceled)));
    });
    assert!(begun.elapsed() < Duration::from_secs(30), "as long as all of it may take");
}
