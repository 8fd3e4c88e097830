//! A worker with two functions, and an engine that gives it tasks and takes their ends as a test says.

use std::{
    collections::VecDeque,
    io,
    net::Ipv4Addr,
    sync::{Arc, Mutex, mpsc},
    thread,
};

use syncline_ps::{PsError, client::CancelToken};
use syncline_rpc::{
    EndedTasks, EngineAddresses, JobSetup, RegisterReply, Token, WorkerHello, WorkerKey, WorkerService,
    WorkerServiceClient, accept, answer_calls, channel, hello::Role, threads::lock,
};
use syncline_scheduler::{
    core::{Outcome, TaskReport},
    ids::{Incarnation, JobId, SubmissionId},
    sim::training,
    tasks::{Attempts, BlobValue, Bytes, FunctionId, OrderGroup, ReportGroup, TaskIndex, TaskOrder},
};
use tarpc::{context::Context, server::Channel};
use tokio::{
    net::TcpListener,
    runtime::Handle,
    sync::{Notify, mpsc as async_mpsc},
    task::JoinHandle,
};

use super::*;
use crate::{
    client::Client,
    functions::{Function, Registry, Salt, ValueStore},
    worker::{
        calls::{CallEnvironment, GivenUp},
        report::{Finished, tests::key},
        session::Link,
        task_tracker::TaskTracker,
    },
};

/// Longer than anything takes that a test waits for.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
const SHORT: Function<(), u64> = Function::new("short");
/// Ends when the test says so.
const LONG: Function<(), u64> = Function::new("long");

/// What the engine heard: the tasks whose ends came with a poll, or beside one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Heard {
    Poll(Vec<u32>),
    Finished(Vec<u32>),
    /// The end of a step.
    Step,
}

impl Heard {
    fn ends(&self) -> &[u32] {
        match self {
            Self::Poll(ends) | Self::Finished(ends) => ends,
            Self::Step => &[],
        }
    }
}

type Setups = Arc<Mutex<VecDeque<Result<JobSetup, EngineFault>>>>;

#[derive(Clone)]
struct Engine {
    /// What the first poll is answered with.
    orders: Arc<Mutex<Vec<Order>>>,
    /// So often ends are not taken.
    refusals: Arc<Mutex<u32>>,
    /// What is said of a job.
    setups: Setups,
    heard: async_mpsc::UnboundedSender<Heard>,
    /// It drops the worker.
    drops: Arc<Notify>,
}

impl Engine {
    fn hear(&self, heard: Heard) -> bool {
        let has_ends = !heard.ends().is_empty();
        let _ = self.heard.send(heard);
        let mut refusals = lock(&self.refusals);
        let refused = has_ends && *refusals > 0;
        *refusals -= u32::from(refused);
        !refused
    }
}

fn numbers(groups: &[ReportGroup]) -> Vec<u32> {
    groups.iter().flat_map(|group| &group.ended).map(|end| end.task.0).collect()
}

impl WorkerService for Engine {
    async fn register(self, _: Context, _: WorkerHello) -> Result<RegisterReply, EngineFault> {
        Err(EngineFault::Dropped)
    }

    /// With nothing to say it waits until it drops the worker, if it may.
    async fn poll(
        self,
        _: Context,
        _: WorkerKey,
        _: Activity,
        _: OrderCursor,
        ended: EndedTasks,
        wait_ms: u64,
    ) -> Result<PollReply, EngineFault> {
        let ends_taken = self.hear(Heard::Poll(numbers(&ended.groups)));
        let orders = std::mem::take(&mut *lock(&self.orders));
        if ends_taken && orders.is_empty() && wait_ms > 0 {
            self.drops.notified().await;
            return Err(EngineFault::Dropped);
        }
        let (epoch, assignments, revoked, shards) = (EngineEpoch(1), Vec::new(), Vec::new(), Vec::new());
        Ok(PollReply {
            epoch,
            assignments,
            revoked,
            shards,
            shards_heard: true,
            lead_expired: false,
            orders: Orders { first: 0, count: orders.len() as u64, retold: 0, orders },
            ends_taken,
        })
    }

    async fn finished(self, _: Context, _: WorkerKey, ended: EndedTasks) -> Result<EngineEpoch, EngineFault> {
        match self.hear(Heard::Finished(numbers(&ended.groups))) {
            true => Ok(EngineEpoch(1)),
            false => Err(EngineFault::Store { cause: "a test".into() }),
        }
    }

    async fn report(self, _: Context, _: WorkerKey, _: Vec<TaskReport>) -> Result<EngineEpoch, EngineFault> {
        self.hear(Heard::Step);
        Ok(EngineEpoch(1))
    }

    async fn setup(self, _: Context, _: JobId) -> Result<JobSetup, EngineFault> {
        lock(&self.setups).pop_front().unwrap_or(Err(EngineFault::Dropped))
    }

    async fn leave(self, _: Context, _: WorkerKey, _: Vec<Attempts>) -> Result<(), EngineFault> {
        self.drops.notify_one();
        Ok(())
    }
}

/// All values are small here.
struct NoStore;

impl ValueStore for NoStore {
    fn put(&self, _: Salt, _: &[u8], _: &CancelToken, _: &dyn Fn(&str)) -> Result<BlobValue, PsError> {
        Err(PsError::Canceled)
    }

    fn get(&self, _: &BlobValue, _: &CancelToken) -> Result<Bytes, PsError> {
        Err(PsError::Canceled)
    }
}

fn run(function: FunctionId, task: u32) -> Order {
    let task =
        TaskOrder { task: TaskIndex(task), attempt: 1, args: Vec::new(), after: Vec::new(), is_shown: false };
    let submission = SubmissionId { job: "tasks".parse().unwrap(), nonce: 1 };
    Order::Run(OrderGroup { submission, function, slots: 1, run_limit_ms: None, tasks: vec![task] })
}

/// A worker that polls, and what one sees of it.
struct Rig {
    session: Arc<Session>,
    polls: JoinHandle<()>,
    drops: Arc<Notify>,
    setups: Setups,
    pool: Pool,
    heard: async_mpsc::UnboundedReceiver<Heard>,
    end_long: mpsc::Sender<()>,
}

impl Rig {
    async fn start(orders: Vec<Order>, refusals: u32) -> Self {
        let token = Token::generate();
        Self::start_with(orders, refusals, [token.clone(), token]).await
    }

    /// The same with a token of the engine, and one of the worker.
    async fn start_with(orders: Vec<Order>, refusals: u32, [of_engine, of_worker]: [Token; 2]) -> Self {
        let (hear, heard) = async_mpsc::unbounded_channel();
        let (orders, refusals) = (Arc::new(Mutex::new(orders)), Arc::new(Mutex::new(refusals)));
        let drops = Arc::<Notify>::default();
        let setups = Setups::default();
        let engine = Engine { orders, refusals, setups: setups.clone(), heard: hear, drops: drops.clone() };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address: EngineAddresses = listener.local_addr().unwrap().to_string().parse().unwrap();
        let serve = move |_, stream| answer_calls(channel(stream).execute(engine.clone().serve()));
        tokio::spawn(accept(listener, of_engine, &[Role::Worker], serve));
        let open = |transport| WorkerServiceClient::new(tarpc::client::Config::default(), transport).spawn();
        let link = Link::new(address, Role::Worker, of_worker, open);

        let (end_long, ended) = mpsc::channel();
        let ended = Mutex::new(ended);
        let mut registry = Registry::new();
        registry.register(SHORT, || 1u64).unwrap();
        let long = move || lock(&ended).recv().map_or(0, |()| 2u64);
        registry.register(LONG, long).unwrap();
        let nowhere = "127.0.0.1:1".parse::<EngineAddresses>().unwrap();
        let client = Client::new(nowhere, Token::generate());
        let pool = Pool::start(
            registry,
            2,
            CallEnvironment::new(NoStore, client, Handle::current()),
            GivenUp::default(),
        )
        .unwrap();
        let registered =
            RegisterReply { epoch: EngineEpoch(1), who: WorkerKey::draw(Incarnation(1)), silence_ms: 1 };
        let session =
            Arc::new(Session::new(link, &registered, Arc::<TaskTracker>::default(), Some(pool.clone())));
        let assignments = TaskSender::new(mpsc::channel().0);
        let polling = session.clone();
        let polls = tokio::spawn(async move { polling.poll(&assignments).await });
        Self { session, polls, drops, setups, pool, heard, end_long }
    }

    /// The next call that is as `wanted`.
    async fn until(&mut self, wanted: impl Fn(&Heard) -> bool) -> Heard {
        let calls = async {
            loop {
                let heard = self.heard.recv().await.unwrap();
                if wanted(&heard) {
                    return heard;
                }
            }
        };
        timeout(TEST_TIMEOUT, calls).await.unwrap()
    }
}

async fn until_done(pool: &Pool) {
    let looks = async {
        while !pool.is_done() {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, looks).await.unwrap();
}

#[tokio::test]
async fn ends_are_repeated_until_they_are_taken() {
    let mut rig = Rig::start(vec![run(SHORT.id(), 0)], 2).await;
    for _ in 0..3 {
        let heard = rig.until(|heard| !heard.ends().is_empty()).await;
        assert_eq!(heard.ends(), [0]);
    }
}

#[tokio::test]
async fn a_worker_whose_token_no_engine_takes_polls_no_more() {
    let rig = Rig::start_with(Vec::new(), 0, [Token::generate(), Token::generate()]).await;
    timeout(TEST_TIMEOUT, rig.polls).await.unwrap().unwrap();
}

#[tokio::test]
async fn what_ends_while_a_poll_waits_is_reported_beside_it() {
    let mut rig = Rig::start(vec![run(LONG.id(), 0), run(SHORT.id(), 1)], 0).await;
    let first = rig.until(|heard| !heard.ends().is_empty()).await;
    assert_eq!(first.ends(), [1]);
    // The engine has nothing more to say, and a poll waits forever: on a busy machine it does already.
    if matches!(first, Heard::Poll(_)) {
        rig.until(|heard| *heard == Heard::Poll(Vec::new())).await;
    }
    rig.end_long.send(()).unwrap();
    assert_eq!(rig.until(|heard| !heard.ends().is_empty()).await, Heard::Finished(vec![0]));
}

#[tokio::test]
async fn a_worker_that_is_to_stop_hears_at_once_that_its_last_end_is_taken() {
    let mut rig = Rig::start(vec![run(SHORT.id(), 0)], 0).await;
    rig.until(|heard| !heard.ends().is_empty()).await;
    rig.pool.close();
    until_done(&rig.pool).await;
}

#[tokio::test]
async fn what_another_engine_says_in_parts_is_over_only_once_it_has_said_everything() {
    let rig = Rig::start(Vec::new(), 0).await;
    let mut polls = Polls::default();
    let mut hear = |epoch, first, retold, tasks: &[u32]| {
        let orders = tasks.iter().map(|task| run(LONG.id(), *task)).collect();
        take_orders(&rig.pool, &mut polls, EngineEpoch(epoch), Orders { first, count: 4, retold, orders });
        rig.pool.count()
    };
    assert_eq!(hear(1, 0, 0, &[0, 1, 2, 3]), 4);
    assert_eq!(hear(2, 0, 3, &[3]), 4, "of the others it has said nothing yet");
    assert_eq!(hear(2, 0, 3, &[3]), 4, "an answer that comes again");
    assert_eq!(hear(2, 1, 3, &[0]), 4);
    assert_eq!(hear(2, 2, 3, &[1]), 3, "2 was not among the three that are told again");
    assert_eq!(hear(2, 3, 3, &[4]), 4);
    // And one that has nothing for this worker.
    assert_eq!(hear(3, 0, 0, &[]), 0);
}

#[tokio::test]
async fn the_first_answer_of_another_engine_lets_what_the_one_before_had_taken_run_again() {
    let mut rig = Rig::start(Vec::new(), 0).await;
    // Its poll waits: ends go beside it.
    rig.until(|heard| *heard == Heard::Poll(Vec::new())).await;
    let (pool, mut polls) = (rig.pool.clone(), Polls::default());
    let mut hear = |epoch| {
        let orders = vec![run(SHORT.id(), 0)];
        take_orders(&pool, &mut polls, EngineEpoch(epoch), Orders { first: 0, count: 1, retold: 1, orders });
    };
    hear(1);
    rig.until(|heard| heard.ends() == [0]).await;
    until_done(&rig.pool).await;
    hear(2);
    rig.until(|heard| heard.ends() == [0]).await;
}

/// The lines of a log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn being_dropped_is_a_warning_unless_the_worker_has_left() {
    for (has_left, warnings) in [(false, 1), (true, 0)] {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber =
            tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
        // Everything here runs on this thread.
        let _guard = tracing::subscriber::set_default(subscriber);
        let rig = Rig::start(Vec::new(), 0).await;
        match has_left {
            true => rig.session.leave().await,
            false => rig.drops.notify_one(),
        }
        rig.polls.await.unwrap();
        let log = String::from_utf8(lock(&lines.0).clone()).unwrap();
        assert_eq!(log.matches("dropped by the engine").count(), warnings, "{log}");
    }
}

#[tokio::test]
async fn what_is_said_of_a_job_counts_once_the_engine_that_leads_has_said_it() {
    let rig = Rig::start(Vec::new(), 0).await;
    let train = || training("bsp".parse().unwrap(), 64, 32);
    let of = |epoch| Ok(JobSetup { epoch: EngineEpoch(epoch), nonce: 0, train: train(), shards: Vec::new() });
    let away = Err(EngineFault::Store { cause: "a test".into() });
    *lock(&rig.setups) = [away, of(1), of(2)].into();
    assert!(rig.session.is_current(EngineEpoch(2)));
    let setup = rig.session.setup_unless_canceled(&"digits".parse().unwrap()).await.unwrap();
    assert_eq!(setup.epoch, EngineEpoch(2));
}

#[tokio::test]
async fn who_is_told_to_stop_has_reported_the_step_in_hand_before_it_leaves() {
    let mut rig = Rig::start(Vec::new(), 0).await;
    let (give, tasks) = mpsc::channel();
    let (finish, finished) = async_mpsc::unbounded_channel();
    let executor = thread::spawn(move || {
        assert!(tasks.recv().is_err(), "nothing more is to come");
        finish.send(Finished { key: key(1), ended: Instant::now(), outcome: Outcome::Prepared }).is_ok()
    });
    let reporting = rig.session.clone();
    tokio::spawn(async move { reporting.report(finished).await });
    rig.session.finish_step(&TaskSender::new(give), TEST_TIMEOUT).await;
    assert!(executor.join().unwrap());
    let heard: Vec<Heard> = std::iter::from_fn(|| rig.heard.try_recv().ok()).collect();
    assert!(heard.contains(&Heard::Step), "{heard:?}");
}
