//! Workers that are lost with several tasks: which of these pays for it.

use syncline_scheduler::{
    core::{Core, Input, Phase, WorkerInfo},
    fault_code::FaultCode,
    ids::{Incarnation, JobId},
    sim::{graph_submission, new_task, task_end, tasks_ended},
    tasks::{Capacity, FunctionId, Outcome, Rules, TaskClass, TaskQuery, TaskState, TaskView, Value, Work},
};

/// Longer than any pause between two attempts.
const STEP_US: u64 = 60_000_000;

/// A core whose workers die, one after the other.
struct Cluster {
    core: Core,
    now_us: u64,
    workers: u64,
}

fn function() -> FunctionId {
    FunctionId { name: "f".parse().unwrap(), signature: 1 }
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

    /// A worker of four slots comes; the jobs of which it gets the task.
    fn join(&mut self, jobs: &[&'static str]) -> Vec<&'static str> {
        self.now_us += STEP_US;
        self.workers += 1;
        let capacity = Capacity { slots: 4, functions: [function()].into(), ..Capacity::default() };
        let about = WorkerInfo { trains: false, capacity, ..WorkerInfo::default() };
        self.core.handle(self.now_us, Input::Tick).unwrap();
        self.core
            .handle(self.now_us, Input::WorkerJoined { worker: Incarnation(self.workers), about })
            .unwrap();
        jobs.iter().copied().filter(|job| self.view(job).state == TaskState::Leased).collect()
    }

    fn lose(&mut self) {
        let (worker, reason) = (Incarnation(self.workers), "it is silent".to_owned());
        self.core.handle(self.now_us, Input::WorkerGone { worker, reason }).unwrap();
    }

    fn view(&self, job: &str) -> TaskView {
        self.core.task_views(&id(job), &TaskQuery::default(), self.now_us).unwrap().remove(0)
    }

    fn finish(&mut self, job: &str) {
        let ended = vec![task_end(0, self.view(job).attempts, Outcome::Value(Value::default()))];
        self.core.handle(self.now_us, tasks_ended(Incarnation(self.workers), &id(job), 1, ended)).unwrap();
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
    assert!(reason.contains("was lost, where no other task was"), "{reason}");
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
