//! Workers that are lost with several tasks: which of these pays for it.

use syncline_scheduler::{
    core::{Core, Input, Phase, StoredJob, TaskJob, WorkerInfo},
    fault_code::FaultCode,
    ids::{Incarnation, JobId},
    sim::{graph_submission, new_task, task_end, tasks_ended},
    tasks::{
        Capacity, FunctionId, Needs, Outcome, Rules, TaskClass, TaskQuery, TaskState, TaskView, Value, Work,
    },
};

use crate::cluster::stored::apply;

/// Longer than any pause between two attempts.
const STEP_US: u64 = 60_000_000;

/// A core whose workers die, one after the other.
struct Cluster {
    core: Core,
    now_us: u64,
    workers: u64,
}

fn function() -> FunctionId {
    FunctionId { name: "f".parse().unwrap(), signature: 1, types: String::new() }
}

fn id(name: &str) -> JobId {
    name.parse().unwrap()
}

impl Cluster {
    /// Jobs of one task each, which is tried again so often after its worker was lost.
    fn new(jobs: &[(&str, u16)]) -> Self {
        let mut core = Core::new(1);
        for (name, crashes) in jobs {
            let rules = Rules { crashes: *crashes, ..Rules::default() };
            let class = TaskClass { work: Work::Call(function()), rules };
            core.handle(
                1,
                Input::SubmitGraph(graph_submission(&id(name), 1, vec![class], vec![new_task(0)])),
            )
            .unwrap();
        }
        Self { core, now_us: 1, workers: 0 }
    }

    /// A job of so many tasks.
    fn submit(&mut self, job: &str, tasks: usize) {
        self.submit_of(job, tasks, 1);
    }

    /// The same of tasks that take so many slots each.
    fn submit_of(&mut self, job: &str, tasks: usize, slots: u32) {
        let rules = Rules { needs: Needs { slots, ..Needs::default() }, ..Rules::default() };
        let class = TaskClass { work: Work::Call(function()), rules };
        let graph = graph_submission(&id(job), 1, vec![class], vec![new_task(0); tasks]);
        self.core.handle(self.now_us, Input::SubmitGraph(graph)).unwrap();
    }

    fn pass(&mut self, us: u64) {
        self.now_us += us;
        self.core.handle(self.now_us, Input::Tick).unwrap();
    }

    /// Such jobs whose workers were lost with all of them twice.
    fn after_two_losses(jobs: [(&'static str, u16); 2]) -> Self {
        let (mut cluster, names) = (Self::new(&jobs), jobs.map(|(name, _)| name));
        for _ in 0..2 {
            assert_eq!(cluster.join(&names), names);
            cluster.lose();
        }
        cluster
    }

    /// A worker of four slots comes; its name.
    fn come(&mut self) -> String {
        self.workers += 1;
        let capacity = Capacity { slots: 4, functions: [function()].into(), ..Capacity::default() };
        let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
        let joined = Input::WorkerJoined { worker: Incarnation(self.workers), about };
        self.core.handle(self.now_us, joined).unwrap();
        format!("w{}", self.workers)
    }

    /// A worker comes later; the jobs of which it gets the task.
    fn join(&mut self, jobs: &[&'static str]) -> Vec<&'static str> {
        self.pass(STEP_US);
        self.come();
        jobs.iter().copied().filter(|job| self.view(job).state == TaskState::Leased).collect()
    }

    fn lose(&mut self) {
        let (worker, reason) = (Incarnation(self.workers), "it is silent".to_owned());
        self.core.handle(self.now_us, Input::WorkerGone { worker, reason, never_told: Vec::new() }).unwrap();
    }

    fn views(&self, job: &str) -> Vec<TaskView> {
        self.core.task_views(&id(job), &TaskQuery::default(), self.now_us).unwrap()
    }

    fn view(&self, job: &str) -> TaskView {
        self.views(job).remove(0)
    }

    /// Who has each of a job's tasks.
    fn holders(&self, job: &str) -> Vec<String> {
        self.views(job).into_iter().map(|view| view.worker.unwrap_or_default()).collect()
    }

    fn finish(&mut self, job: &str) {
        self.finish_task(job, 0);
    }

    fn finish_task(&mut self, job: &str, task: u32) {
        self.end_task(job, task, Outcome::Value(Value::default()));
    }

    fn end_task(&mut self, job: &str, task: u32, outcome: Outcome) {
        let view = self.views(job).remove(task as usize);
        let holder = Incarnation(view.worker.unwrap()[1..].parse().unwrap());
        let ended = vec![task_end(task, view.attempts, outcome)];
        self.core.handle(self.now_us, tasks_ended(holder, &id(job), 1, ended)).unwrap();
    }

    fn phase(&self, job: &str) -> &Phase {
        self.core.task_job(&id(job)).unwrap().phase()
    }
}

#[test]
fn a_task_outlives_another_that_kills_their_worker_again_and_again() {
    const BOTH: [&str; 2] = ["innocent", "poison"];
    let mut cluster = Cluster::new(&[("innocent", 3), ("poison", 3)]);
    for _ in 0..4 {
        assert_eq!(cluster.join(&BOTH), BOTH);
        cluster.lose();
    }
    // The next attempt of each is the only task of its worker.
    for _ in 0..2 {
        match cluster.join(&BOTH).as_slice() {
            ["innocent"] => {
                let waits = cluster.view("poison").reason;
                assert!(waits.contains("the only task of a worker"), "{waits}");
                cluster.finish("innocent");
                let ended = cluster.view("innocent");
                assert_eq!(ended.ended_ms, Some(cluster.now_us / 1000));
                assert_eq!(ended.worker, Some(format!("w{}", cluster.workers)));
                // It has the worker that is free now.
                assert_eq!(cluster.view("poison").state, TaskState::Leased);
                cluster.lose();
            }
            ["poison"] => cluster.lose(),
            [] => {}
            beside => panic!("{beside:?}"),
        }
    }
    assert_eq!(cluster.phase("innocent"), &Phase::Done);
    let Phase::Failed { code, reason } = cluster.phase("poison") else {
        panic!("{:?}", cluster.phase("poison"))
    };
    assert_eq!(*code, FaultCode::new("E052"));
    assert!(
        reason.contains("was lost, where no other task was, as were those that had it before: it may end"),
        "{reason}"
    );
}

#[test]
fn one_that_is_to_be_alone_has_one_worker_emptied_for_it_and_the_others_go_on() {
    let mut cluster = Cluster::after_two_losses([("suspect", 1), ("beside", 9)]);
    // While both wait for their next attempts, two workers come and get something long.
    let busy = [cluster.come(), cluster.come()];
    cluster.submit("long", 2);
    cluster.pass(STEP_US);
    assert_eq!(cluster.view("suspect").state, TaskState::Ready);
    assert_eq!(cluster.holders("long"), busy, "one each");
    assert_eq!(cluster.view("beside").state, TaskState::Leased, "it does not wait for the suspect");

    // One of them takes nothing more: the one that has least.
    let (few, many) = match cluster.view("beside").worker.unwrap().as_str() == busy[0] {
        true => (&busy[1], &busy[0]),
        false => (&busy[0], &busy[1]),
    };
    cluster.submit("later", 2);
    assert_eq!(cluster.holders("later"), [many.clone(), many.clone()]);
    let of_few = cluster.holders("long").iter().position(|holder| holder == few).unwrap();
    cluster.finish_task("long", of_few as u32);
    let view = cluster.view("suspect");
    assert_eq!((view.state, view.worker.as_ref()), (TaskState::Leased, Some(few)));
    cluster.submit("last", 2);
    assert_eq!(
        cluster.holders("last"),
        [""; 2],
        "four slots of the other are taken, and this one is for the suspect"
    );
    cluster.finish("suspect");
    assert_eq!(cluster.phase("suspect"), &Phase::Done);
    assert_eq!(cluster.holders("last"), [few.clone(), few.clone()]);
}

#[test]
fn the_worker_whose_tasks_end_is_emptied_and_another_one_once_it_stands() {
    for stands in [false, true] {
        let mut cluster = Cluster::after_two_losses([("suspect", 1), ("witness", 9)]);
        let [held, lively] = [cluster.come(), cluster.come()];
        cluster.submit_of("long", 1, 4);
        cluster.submit("short", 3);
        assert_eq!(cluster.holders("long").first(), Some(&held));
        assert_eq!(cluster.holders("short"), [lively.clone(), lively.clone(), lively.clone()]);
        cluster.pass(1_000);
        cluster.finish_task("short", 0);
        cluster.pass(STEP_US);
        assert_eq!(cluster.view("witness").state, TaskState::Ready, "{lively} has slots, and is emptied");
        if stands {
            cluster.pass(9_000_000);
            assert_eq!(cluster.view("witness").state, TaskState::Ready);
            cluster.pass(2_000_000);
            assert_eq!(cluster.view("witness").worker, Some(lively), "the other one is emptied now");
            cluster.finish("long");
            assert_eq!(cluster.view("suspect").worker, Some(held));
        } else {
            cluster.finish_task("short", 1);
            cluster.finish_task("short", 2);
            assert_eq!(cluster.view("suspect").worker, Some(lively), "though {held} had but one task");
        }
    }
}

#[test]
fn the_only_worker_is_emptied_by_turns_while_something_long_runs_there() {
    let mut cluster = Cluster::after_two_losses([("suspect", 1), ("witness", 9)]);
    let only = cluster.come();
    cluster.submit("long", 1);
    assert_eq!(cluster.holders("long").first(), Some(&only));
    cluster.pass(STEP_US);
    // It is emptied for ten seconds, takes what is short for as long, is emptied for twenty, and so on.
    let (begun_us, mut waiting) = (cluster.now_us, vec!["witness".to_owned()]);
    for (second, is_emptied) in [(9, true), (11, false), (20, false), (22, true), (41, true), (44, false)] {
        cluster.pass(begun_us + second * 1_000_000 - cluster.now_us);
        let short = format!("short-{second}");
        cluster.submit(&short, 1);
        let view = cluster.view(&short);
        assert_eq!(view.state == TaskState::Ready, is_emptied, "after {second} s");
        if is_emptied {
            let reason = "no slot is free for it: w3 has f (task 0 of long), and is being emptied for task 0 of suspect, which is to be alone";
            assert_eq!(view.reason, reason);
        }
        waiting.push(short);
        waiting.retain(|job| {
            let is_held = cluster.view(job).state == TaskState::Leased;
            if is_held {
                cluster.finish(job);
            }
            !is_held
        });
    }
    assert_eq!(waiting, Vec::<String>::new());
    cluster.finish("long");
    assert_eq!(cluster.view("suspect").worker, Some(only));
    cluster.submit("later", 1);
    let reason = "no slot is free for it: w3 has f (task 0 of suspect), which is to be alone there";
    assert_eq!(cluster.view("later").reason, reason);
}

#[test]
fn several_that_are_to_be_alone_have_a_worker_each() {
    let mut cluster = Cluster::after_two_losses([("first", 1), ("second", 1)]);
    let workers = [cluster.come(), cluster.come()];
    cluster.submit("short", 2);
    assert_eq!(cluster.holders("short"), workers);
    cluster.pass(STEP_US);
    cluster.finish_task("short", 0);
    assert_eq!(cluster.view("first").worker.as_ref(), Some(&workers[0]));
    cluster.submit("later", 1);
    assert_eq!(cluster.holders("later"), [""], "the other worker is emptied for the second");
    cluster.finish_task("short", 1);
    assert_eq!(cluster.view("second").worker.as_ref(), Some(&workers[1]));
}

#[test]
fn one_that_is_to_be_alone_has_no_worker_from_which_things_come_back_while_another_is_busy() {
    let mut cluster = Cluster::after_two_losses([("first", 1), ("second", 1)]);
    let [bad, good] = [cluster.come(), cluster.come()];
    cluster.submit("calls", 2);
    assert_eq!(cluster.holders("calls"), [bad, good.clone()]);
    cluster.end_task("calls", 0, Outcome::NotBegun);
    assert_eq!(cluster.holders("calls"), [good.clone(), good.clone()]);
    cluster.pass(STEP_US);
    assert_eq!(cluster.view("first").state, TaskState::Ready, "nobody else is idle");
    (0..2).for_each(|task| cluster.finish_task("calls", task));
    assert_eq!(cluster.view("first").worker.as_ref(), Some(&good));
    assert_eq!(cluster.view("second").state, TaskState::Ready, "it waits for the good one as well");
    cluster.finish("first");
    assert_eq!(cluster.view("second").worker, Some(good));
}

#[test]
fn a_task_that_was_never_beside_others_fails_with_its_budget_and_one_without_a_budget_at_once() {
    let mut alone = Cluster::new(&[("alone", 1)]);
    for left in [1, 0] {
        assert_eq!(alone.join(&["alone"]), ["alone"]);
        alone.lose();
        assert_eq!(matches!(alone.phase("alone"), Phase::Failed { .. }), left == 0);
    }
    let mut once = Cluster::new(&[("once", 0), ("other", 3)]);
    assert_eq!(once.join(&["once", "other"]), ["once", "other"]);
    once.lose();
    assert!(matches!(once.phase("once"), Phase::Failed { .. }), "it may have been begun");
    assert_eq!(once.phase("other"), &Phase::Running);
}

#[test]
fn another_engine_keeps_no_record_of_a_worker_that_has_nothing() {
    let mut cluster = Cluster::new(&[]);
    let workers = [cluster.come(), cluster.come()];
    cluster.submit_of("graph", 2, 4);
    assert_eq!(cluster.holders("graph"), workers);
    cluster.finish_task("graph", 0);
    let mut stored = StoredJob::default();
    apply(&mut stored, cluster.core.take_commits(cluster.now_us).remove(&id("graph")).unwrap());
    assert_eq!(stored.workers.keys().collect::<Vec<_>>(), ["w1", "w2"]);
    let mut next = Core::new(1);
    next.restore_tasks(TaskJob::load(&stored).unwrap());
    apply(&mut stored, next.take_commits(cluster.now_us).remove(&id("graph")).unwrap());
    assert_eq!(stored.workers.keys().collect::<Vec<_>>(), ["w2"]);
}

#[test]
fn limits_in_which_nothing_can_be_done_and_labels_without_a_name_are_refused() {
    let refused = |change: fn(&mut Rules)| {
        let mut rules = Rules::default();
        change(&mut rules);
        let class = TaskClass { work: Work::Call(function()), rules };
        let graph = graph_submission(&id("graph"), 1, vec![class], vec![new_task(0)]);
        Core::new(1).handle(1, Input::SubmitGraph(graph)).unwrap_err().to_string()
    };
    for (change, code) in [
        ((|rules| rules.needs.slots = 0) as fn(&mut Rules), "[E049]"),
        (|rules| rules.run_limit_ms = Some(0), "[E062] run_limit"),
        (|rules| rules.queue_limit_ms = Some(0), "[E062] queue_limit"),
        (|rules| drop(rules.needs.labels.insert(String::new(), "a".to_owned())), "[E063]"),
    ] {
        assert!(refused(change).contains(code), "{code}: {}", refused(change));
    }
}
