//! What a worker was told of general tasks, in order, until it says that it knows.

use std::{collections::VecDeque, mem};

use syncline_rpc::Orders;
use syncline_scheduler::tasks::{Attempt, Attempts, Order, OrderArg, OrderGroup, TaskOrder};

/// Most that one answer carries, unless a single task has more.
const MAX_ANSWER: MessageSize = MessageSize { tasks: 4_096, bytes: 4 << 20 };
/// Bytes of a task without its arguments, as a frame holds them.
const HEADER_BYTES: usize = 8;

/// How much an order takes of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct MessageSize {
    tasks: usize,
    bytes: usize,
}

impl MessageSize {
    fn plus(self, other: Self) -> Self {
        Self { tasks: self.tasks + other.tasks, bytes: self.bytes + other.bytes }
    }

    fn fits(self) -> bool {
        self.tasks <= MAX_ANSWER.tasks && self.bytes <= MAX_ANSWER.bytes
    }

    fn of_task(task: &TaskOrder) -> Self {
        let args: usize = task.args.iter().map(OrderArg::wire_bytes).sum();
        Self { tasks: 1, bytes: HEADER_BYTES * (1 + task.after.len()) + args }
    }
}

/// Orders of one engine to one worker, numbered from 0.
#[derive(Default)]
pub(super) struct OrderLog {
    /// Number of the first entry.
    first: u64,
    entries: VecDeque<(Order, MessageSize)>,
    /// How many tell what the worker had before this engine led.
    retold: u64,
    /// How many some answer carried, though that may not have arrived.
    told: u64,
    /// Nothing more is told.
    is_closed: bool,
}

impl OrderLog {
    /// Adds an order, in parts if it is more than one answer carries.
    pub(super) fn push(&mut self, order: Order) {
        match order {
            Order::Run(group) => self.push_group(group),
            Order::Recall(ref attempts) | Order::Stop(ref attempts) | Order::GiveBack(ref attempts) => {
                let load = MessageSize { tasks: 0, bytes: HEADER_BYTES * (1 + attempts.tasks.len()) };
                self.entries.push_back((order, load));
            }
        }
    }

    fn push_group(&mut self, mut group: OrderGroup) {
        let whole =
            group.tasks.iter().map(MessageSize::of_task).fold(MessageSize::default(), MessageSize::plus);
        if whole.fits() {
            self.entries.push_back((Order::Run(group), whole));
            return;
        }
        let (mut part, mut load) = (Vec::new(), MessageSize::default());
        for task in mem::take(&mut group.tasks) {
            let more = load.plus(MessageSize::of_task(&task));
            if !more.fits() && !part.is_empty() {
                let tasks = mem::take(&mut part);
                self.entries.push_back((Order::Run(OrderGroup { tasks, ..group.clone() }), load));
                load = MessageSize::of_task(&task);
            } else {
                load = more;
            }
            part.push(task);
        }
        self.entries.push_back((Order::Run(OrderGroup { tasks: part, ..group }), load));
    }

    /// The orders so far tell what the worker had before this engine led; all that follow give something new.
    pub(super) fn mark_retold(&mut self) {
        self.retold = self.count();
    }

    fn count(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// The worker knows the orders in front of number `next`: they need not be repeated.
    pub(super) fn acknowledge(&mut self, next: u64) {
        let known = next.saturating_sub(self.first).min(self.entries.len() as u64);
        self.entries.drain(..known as usize);
        self.first += known;
    }

    /// As many orders as one answer carries of those that the worker does not know.
    pub(super) fn answer(&mut self) -> Orders {
        if self.is_closed {
            return Orders::default();
        }
        let mut sum = MessageSize::default();
        let fits = |(n, (order, load)): (usize, &(Order, MessageSize))| {
            sum = sum.plus(*load);
            (n == 0 || sum.fits()).then(|| order.clone())
        };
        let orders: Vec<Order> = self.entries.iter().enumerate().map_while(fits).collect();
        self.told = self.told.max(self.first + orders.len() as u64);
        Orders { first: self.first, count: self.count(), retold: self.retold, orders }
    }

    /// Tells nothing from now on, and gives the attempts that the worker was to begin and was never told of.
    pub(super) fn close(&mut self) -> Vec<Attempts> {
        self.is_closed = true;
        // What it had before this engine led, the engine before may have told it.
        let known = self.told.max(self.retold).saturating_sub(self.first);
        let untold = self.entries.iter().skip(known as usize);
        untold.filter_map(|(order, _)| attempts_to_begin(order)).collect()
    }
}

/// What a worker is to begin by an order.
pub(super) fn attempts_to_begin(order: &Order) -> Option<Attempts> {
    let Order::Run(OrderGroup { submission, tasks, .. }) = order else { return None };
    let attempt = |order: &TaskOrder| Attempt { task: order.task, attempt: order.attempt };
    Some(Attempts { submission: submission.clone(), tasks: tasks.iter().map(attempt).collect() })
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::{
        ids::SubmissionId,
        tasks::{FunctionId, OneArg, TaskIndex, Value},
    };

    use super::*;

    fn task(n: u32, value_bytes: usize) -> TaskOrder {
        let value = Value::Inline(vec![0; value_bytes].into());
        TaskOrder {
            task: TaskIndex(n),
            attempt: 1,
            args: vec![OrderArg::One(OneArg::Value(value))],
            after: Vec::new(),
            is_shown: false,
        }
    }

    fn run(tasks: Vec<TaskOrder>) -> Order {
        let function = FunctionId { name: "f".parse().unwrap(), signature: 1, types: String::new() };
        let submission = SubmissionId { job: "tasks".parse().unwrap(), nonce: 1 };
        Order::Run(OrderGroup { submission, function, slots: 1, run_limit_ms: None, tasks })
    }

    fn recall(n: u32) -> Order {
        let submission = SubmissionId { job: "tasks".parse().unwrap(), nonce: 1 };
        Order::Recall(Attempts { submission, tasks: vec![Attempt { task: TaskIndex(n), attempt: 1 }] })
    }

    /// The numbers of the tasks of each order.
    fn numbers(orders: &[Order]) -> Vec<Vec<u32>> {
        let of = |order: &Order| match order {
            Order::Run(group) => group.tasks.iter().map(|t| t.task.0).collect(),
            Order::Recall(attempts) | Order::Stop(attempts) | Order::GiveBack(attempts) => {
                attempts.tasks.iter().map(|of| of.task.0).collect()
            }
        };
        orders.iter().map(of).collect()
    }

    #[test]
    fn an_order_is_repeated_until_it_is_known() {
        let mut log = OrderLog::default();
        assert_eq!(log.answer(), Orders::default());
        [run(vec![task(0, 1)]), recall(0), run(vec![task(1, 1)])].into_iter().for_each(|o| log.push(o));
        for _ in 0..2 {
            let Orders { first, orders, .. } = log.answer();
            assert_eq!((first, numbers(&orders)), (0, vec![vec![0], vec![0], vec![1]]));
        }
        log.acknowledge(2);
        let Orders { first, orders, .. } = log.answer();
        assert_eq!((first, numbers(&orders)), (2, vec![vec![1]]));
        // An older poll that comes late, and one that claims to know what was never said.
        log.acknowledge(1);
        assert_eq!(log.answer().first, 2);
        log.acknowledge(99);
        assert_eq!(log.answer(), Orders { first: 3, count: 3, retold: 0, orders: Vec::new() });
        log.push(recall(1));
        assert_eq!(log.answer().first, 3);
    }

    #[test]
    fn one_that_is_closed_names_what_no_answer_carried_and_tells_nothing_more() {
        let mut log = OrderLog::default();
        log.push(run(vec![task(0, 1)]));
        log.mark_retold();
        let attempts = |log: &mut OrderLog| {
            let tasks = |attempts: Attempts| attempts.tasks.into_iter().map(|of| of.task.0);
            log.close().into_iter().flat_map(tasks).collect::<Vec<u32>>()
        };
        log.push(run(vec![task(1, 1)]));
        assert_eq!(attempts(&mut log), [1], "the engine before may have told it of 0");
        log.is_closed = false;
        log.answer();
        log.acknowledge(1);
        [run(vec![task(2, 1), task(3, 1)]), recall(1)].into_iter().for_each(|order| log.push(order));
        assert_eq!(attempts(&mut log), [2, 3], "nobody knows whether the answer with 1 arrived");
        assert_eq!(log.answer(), Orders::default());
    }

    #[test]
    fn an_answer_carries_so_many_tasks_and_the_next_one_the_rest() {
        let mut log = OrderLog::default();
        log.push(run((0..10_000).map(|n| task(n, 0)).collect()));
        let (mut seen, mut answers) = (Vec::new(), 0);
        loop {
            let Orders { first, orders, .. } = log.answer();
            if orders.is_empty() {
                break;
            }
            log.acknowledge(first + orders.len() as u64);
            answers += 1;
            seen.extend(numbers(&orders).into_iter().flatten());
        }
        assert_eq!((answers, seen), (3, (0..10_000).collect()));
    }

    #[test]
    fn an_answer_carries_so_many_bytes_and_a_task_with_more_comes_alone() {
        let mut log = OrderLog::default();
        let mib = 1 << 20;
        log.push(run(vec![task(0, mib), task(1, 2 * mib), task(2, 5 * mib), task(3, 1)]));
        log.push(run(vec![task(4, 1)]));
        let mut answers = Vec::new();
        for _ in 0..3 {
            let Orders { first, orders, .. } = log.answer();
            log.acknowledge(first + orders.len() as u64);
            answers.push(numbers(&orders));
        }
        assert_eq!(answers, [vec![vec![0, 1]], vec![vec![2]], vec![vec![3], vec![4]]]);
    }
}
