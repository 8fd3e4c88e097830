//! A worker for general tasks that does what a test says, and the graphs that it is given.

use syncline_rpc::{
    Activity, ClientServiceClient, EndedTasks, OrderCursor, Orders, PollReply, WorkerHello, WorkerKey,
    WorkerServiceClient, within,
};
use syncline_scheduler::{
    core::IfTaken,
    ids::{JobId, SubmissionId},
    tasks::{
        Arg, Capacity, ClassIndex, FunctionId, GraphDigest, GraphSpec, NewTask, Order, Outcome, ReportGroup,
        TaskClass, TaskEnd, TaskIndex, TaskOrder, TaskRef, Value,
    },
};

use super::rig::{Rig, TEST_TIMEOUT, hello};

/// Every submission here is drawn with this number.
pub const NONCE: u32 = 7;

fn function() -> FunctionId {
    FunctionId { name: "add".parse().unwrap(), signature: 1, types: String::new() }
}

/// A task that is called with one value.
pub fn call(value: &[u8]) -> NewTask {
    let args = vec![Arg::Value(value.to_vec().into())];
    NewTask { class: ClassIndex(0), args, after: Vec::new(), name: None }
}

/// A task that takes what others give.
pub fn take(inputs: &[u32]) -> NewTask {
    let args = inputs.iter().map(|n| Arg::Output(TaskRef::Task(TaskIndex(*n)))).collect();
    NewTask { class: ClassIndex(0), args, after: Vec::new(), name: None }
}

pub fn graph(id: &str, tasks: Vec<NewTask>) -> GraphSpec {
    let classes = vec![TaskClass::call(function())];
    GraphSpec { id: id.parse().unwrap(), digest: GraphDigest::default(), classes, tasks, complete: true }
}

pub async fn submit(client: &ClientServiceClient, spec: GraphSpec) -> JobId {
    let id = spec.id.clone();
    client.submit_graph(within(TEST_TIMEOUT), spec, NONCE, IfTaken::Refuse).await.unwrap().unwrap();
    id
}

pub fn inline(bytes: &[u8]) -> Value {
    Value::Inline(bytes.to_vec().into())
}

/// One worker with one connection.
pub struct ScriptedWorker {
    pub calls: WorkerServiceClient,
    pub who: WorkerKey,
    pub cursor: OrderCursor,
    /// How many tasks it says that it holds.
    pub holding: u32,
}

impl ScriptedWorker {
    pub async fn register(rig: &Rig, slots: u32) -> Self {
        let calls = rig.worker().await;
        let capacity = Capacity { slots, functions: [function()].into(), ..Capacity::default() };
        let hello = WorkerHello { capacity, ..hello() };
        let registered = calls.register(within(TEST_TIMEOUT), hello).await.unwrap().unwrap();
        let cursor = OrderCursor { epoch: registered.epoch, next: 0 };
        Self { calls, who: registered.who, cursor, holding: 0 }
    }

    /// Asks without taking note of the answer, as if it were lost.
    pub async fn ask(&self, wait_ms: u64) -> PollReply {
        let activity = Activity { tasks: self.holding, ..Activity::default() };
        let poll = self.calls.poll(
            within(TEST_TIMEOUT),
            self.who,
            activity,
            self.cursor,
            EndedTasks::default(),
            wait_ms,
        );
        poll.await.unwrap().unwrap()
    }

    /// Asks, and says that a task has ended at its first attempt.
    pub async fn ask_and_finish(&self, job: &JobId, ended: (u32, &[u8])) -> PollReply {
        let ended = self.ended(job, vec![end(&ended)]);
        let poll =
            self.calls.poll(within(TEST_TIMEOUT), self.who, Activity::default(), self.cursor, ended, 0);
        poll.await.unwrap().unwrap()
    }

    fn ended(&self, job: &JobId, ended: Vec<TaskEnd>) -> EndedTasks {
        let groups = vec![ReportGroup { submission: SubmissionId { job: job.clone(), nonce: NONCE }, ended }];
        EndedTasks { under: self.cursor.epoch, groups }
    }

    /// Waits for orders.
    pub async fn orders(&mut self) -> Vec<Order> {
        let PollReply { epoch, orders: Orders { first, orders, .. }, .. } = self.ask(20_000).await;
        self.cursor = OrderCursor { epoch, next: first + orders.len() as u64 };
        orders
    }

    /// Waits for tasks to run.
    pub async fn tasks(&mut self) -> Vec<TaskOrder> {
        tasks(self.orders().await)
    }

    /// Reports that tasks have ended at their first attempt, each with a value.
    pub async fn finish(&self, job: &JobId, ended: &[(u32, &[u8])]) {
        self.report(job, ended.iter().map(end).collect()).await;
    }

    /// The same, of one task whose value looks like this.
    pub async fn finish_shown(&self, job: &JobId, task: TaskIndex, value: &[u8], shown: String) {
        let preview = Some(shown.into());
        self.report(job, vec![TaskEnd { preview, ..end(&(task.0, value)) }]).await;
    }

    pub async fn report(&self, job: &JobId, ended: Vec<TaskEnd>) {
        let ended = self.ended(job, ended);
        self.calls.finished(within(TEST_TIMEOUT), self.who, ended).await.unwrap().unwrap();
    }
}

/// The end of a first attempt.
fn end((task, value): &(u32, &[u8])) -> TaskEnd {
    let outcome = Outcome::Value(inline(value));
    TaskEnd { task: TaskIndex(*task), attempt: 1, run_us: 10, outcome, preview: None }
}

/// The tasks of orders that are all to run something.
pub fn tasks(orders: Vec<Order>) -> Vec<TaskOrder> {
    let of = |order| match order {
        Order::Run(group) => group.tasks,
        Order::Recall(attempts) | Order::Stop(attempts) | Order::GiveBack(attempts) => panic!("{attempts:?}"),
    };
    orders.into_iter().flat_map(of).collect()
}

/// Numbers and attempts.
pub fn attempts(tasks: &[TaskOrder]) -> Vec<(u32, u16)> {
    tasks.iter().map(|task| (task.task.0, task.attempt)).collect()
}
