//! Orders of the engine as a shard carries them out.

use std::{
    future::Future as _,
    pin::pin,
    sync::{Mutex, atomic::Ordering, mpsc},
    task::Waker,
    thread,
};

use syncline_rpc::{OpenJob, ReplicaRole, ShardHello, ShardPeer, threads::lock};
use syncline_scheduler::{
    ids::{ContentDigest, Generation, ShardIndex},
    spec::{ElementRange, Layout, Optimizer, Parameter},
    sync::PushMode,
};
use tokio::runtime::{Builder, Runtime};

use super::{
    super::{
        pull::tests::shard,
        rig::{Two, follow_orders},
        standby_files,
    },
    *,
};
use crate::{
    shard::{AsideJob, Batch, PushHeader},
    waiting::until,
};

const TERM: u64 = 7;

fn serve_beside(shared: &Arc<Shared>, peer: Option<ShardPeer>) {
    follow_orders(shared, ReplicaRole::Primary { term: 1 }, peer);
}

/// A shard that serves alone, and its job.
fn serving(dir: &std::path::Path) -> (Arc<Shared>, Arc<JobShard>) {
    let (shared, job) = (Shared::for_test(dir), Arc::new(shard(&[1.0, 2.0, 3.0])));
    serve_beside(&shared, None);
    shared.jobs.restore(job.clone());
    (shared, job)
}

/// A shard on whose only thread for orders an order waits for a standby of a job that is lost, and the job.
fn with_lost_standby(dir: &std::path::Path) -> (Control, Arc<JobShard>) {
    let (shared, job) = serving(dir);
    assert!(job.copy_for_standby(TERM, |_| std::io::Result::Ok(())).unwrap());
    assert!(job.set_standby_in_step(TERM) && job.lose_standby(TERM));
    (Control { shared, hang_up: Arc::default() }, job)
}

#[test]
fn orders_that_wait_for_a_lost_standby_leave_a_thread_to_what_frees_them_and_can_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let (control, job) = with_lost_standby(dir.path());
    let runtime = Builder::new_current_thread().max_blocking_threads(1).enable_time().build().unwrap();
    let run = job.run().clone();
    assert_eq!(run.generation, Generation(1));
    let seal = |worker| {
        control.clone().seal(tarpc::context::current(), EngineEpoch(1), run.clone(), Incarnation(worker))
    };
    let sealed = runtime.block_on(async {
        // Who asks gives up, and its thread has a turn that it has begun.
        let given_up = time::timeout(Duration::ZERO, seal(1)).await;
        assert!(given_up.is_err());
        let news = job.clone();
        let (first, again, freed) =
            tokio::join!(seal(1), seal(1), task::spawn_blocking(move || news.go_on_without_standby(TERM)),);
        freed.unwrap();
        [first.unwrap(), again.unwrap()]
    });
    assert_eq!(sealed[0], sealed[1]);
}

#[test]
fn what_was_set_aside_counts_for_nothing_and_has_no_standby_before_an_engine_asks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let saved = shard(&[0.0; 3]);
    Shared::for_test(dir.path()).saves.set_aside(&saved).unwrap();
    let shared = Shared::for_test(dir.path());
    shared.begin(|| Ok(())).unwrap();
    serve_beside(&shared, Some(ShardPeer { term: TERM, address: "127.0.0.1:1".into() }));
    let hello = ShardHello::alone(ShardIndex(0), 1, String::new(), 1);
    let jobs = || shared.role.complete_hello(&shared, &hello).jobs;
    assert_eq!((jobs(), shared.jobs.open_jobs().len()), (0, 0), "nor is it read");
    let runtime = Runtime::new().unwrap();
    let control = Control { shared: shared.clone(), hang_up: Arc::default() };
    let attach = control.attach(tarpc::context::current(), EngineEpoch(1), saved.run().clone());
    let attach = runtime.spawn(attach);
    let awaits_standby = |job: &Arc<JobShard>| !job.confirm(|| false);
    until("nobody is told before the standby, which may keep what the job was", || {
        shared.jobs.open_jobs().first().is_some_and(awaits_standby)
    });
    assert_eq!((jobs(), attach.is_finished()), (1, false));
    serve_beside(&shared, None);
    assert!(runtime.block_on(attach).unwrap().unwrap().is_some());
    shared.stopping.store(true, Ordering::SeqCst);
}

#[test]
fn what_is_set_aside_the_standby_keeps_on_its_disk_until_the_job_goes_on_or_is_deleted() {
    let two = Two::new(|_| {});
    let (primary, standby, epoch) = (&two.first, &two.second, EngineEpoch(1));
    follow_orders(standby, ReplicaRole::Standby { term: TERM }, None);
    serve_beside(primary, Some(ShardPeer { term: TERM, address: two.address.clone() }));
    let job = Arc::new(shard(&[1.0, 2.0, 3.0]));
    let run = job.run().clone();
    primary.jobs.restore(job.clone());
    replication::start_if_followed(primary, &job);
    let runtime = Runtime::new().unwrap();
    let order = |shared: &Arc<Shared>| {
        (Control { shared: shared.clone(), hang_up: Arc::default() }, tarpc::context::current(), run.clone())
    };
    let attach = |shared: &Arc<Shared>| {
        let (control, context, run) = order(shared);
        runtime.block_on(control.attach(context, epoch, run)).unwrap()
    };
    let path = standby.state_dir.join("jobs/digits-00000000.forgotten");
    let set_aside = || {
        until("the standby follows", || standby.followed.in_step() == 1);
        let (control, context, run) = order(primary);
        runtime.block_on(control.set_aside(context, epoch, run)).unwrap();
        let kept = HeldJob { run: job.run().clone(), closed: false };
        until("the standby keeps it", || standby.jobs.held(epoch).unwrap().contains(&kept));
        assert!(path.is_file() && standby.followed.in_step() == 0);
    };
    set_aside();
    assert!(attach(primary).is_some());
    assert!(!path.exists() && standby.jobs.held(epoch).unwrap().is_empty(), "it goes on");
    set_aside();
    let (control, context, run) = order(standby);
    runtime.block_on(control.discard(context, epoch, run)).unwrap();
    assert!(!path.exists(), "it is deleted");
    assert!(attach(primary).is_some());
    set_aside();
    // The machine of the primary is gone.
    assert_eq!(role_change::promote(standby, epoch, TERM + 1), Ok(0));
    assert!(attach(standby).is_some());
    assert_eq!(standby.jobs.find(job.run()).unwrap().copy_values().unwrap(), [1.0, 2.0, 3.0]);
    assert!(!path.exists());
}

/// An engine that has just begun may give the standby another term.
#[test]
fn a_job_that_is_set_aside_while_its_standby_is_given_a_copy_waits_for_that() {
    let two = Two::new(|_| {});
    let (primary, standby, epoch) = (&two.first, &two.second, EngineEpoch(1));
    serve_beside(primary, Some(ShardPeer { term: TERM, address: two.address.clone() }));
    let job = Arc::new(shard(&[1.0, 2.0, 3.0]));
    primary.jobs.restore(job.clone());
    let runtime = Runtime::new().unwrap();
    let control = Control { shared: primary.clone(), hang_up: Arc::default() };
    let set_aside = runtime.spawn(control.set_aside(tarpc::context::current(), epoch, job.run().clone()));
    until("it is on the disk of the primary", || primary.unclaimed.is_set_aside(job.run()));
    assert!(!set_aside.is_finished() && job.is_frozen());
    serve_beside(primary, None);
    serve_beside(primary, Some(ShardPeer { term: TERM + 1, address: two.address.clone() }));
    follow_orders(standby, ReplicaRole::Standby { term: TERM + 1 }, None);
    runtime.block_on(set_aside).unwrap().unwrap();
    assert!(primary.jobs.open_jobs().is_empty());
    until("the standby keeps it", || standby.unclaimed.is_set_aside(job.run()));
}

#[test]
fn a_job_that_goes_on_while_the_standby_writes_down_what_it_was_is_not_kept_there() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, job) = (Shared::for_test(dir.path()), Arc::new(shard(&[0.0; 3])));
    let busy = lock(&shared.checkpoint_files);
    standby_files::hand_over(
        &shared,
        &job,
        StandbyOp::RetainCheckpoints(Retention::Thin { keep: Vec::new(), through: 0 }),
    );
    standby_files::hand_over(&shared, &job, StandbyOp::SetAside);
    standby_aside::give_up(&shared, job.run()).unwrap();
    drop(busy);
    until("nothing waits", || standby_files::is_idle(&shared));
    assert!(
        shared.jobs.held(EngineEpoch(1)).unwrap().is_empty() && !shared.unclaimed.is_set_aside(job.run())
    );
    assert_eq!(std::fs::read_dir(dir.path().join("jobs")).unwrap().count(), 0);
}

#[test]
fn the_other_shards_are_asked_for_the_norms_of_a_job_once_an_engine_asks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let order = OpenJob {
        run: RunId { job: "digits".parse().unwrap(), generation: Generation(1) },
        shard: ShardIndex(0),
        shards: vec![String::new(), "127.0.0.1:1".into()],
        layout: Layout(vec![Parameter::trained("w", vec![2])]),
        optimizer: Optimizer::Sgd { weight_decay: 0.0 },
        clip_norm: Some(0.5),
        initial: ContentDigest::LOWEST,
        resumed: None,
        checkpoint: None,
        known_through: None,
    };
    let range = ElementRange { start: 0, end: 1 };
    let job = JobShard::read(&order, range, EngineEpoch(1), &mut [0; 4].as_slice()).unwrap();
    let (shared, job) = (Shared::for_test(dir.path()), Arc::new(job));
    serve_beside(&shared, None);
    // As one that was read for the order that comes with the claim.
    shared.jobs.restore(job.clone());
    claim(&shared, job.run()).unwrap();
    assert!(job.set_follows_peers(true), "it does already");
    shared.stopping.store(true, Ordering::SeqCst);
}

#[test]
fn a_job_that_is_set_aside_is_held_here_and_by_the_standby_until_it_is_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, job) = serving(dir.path());
    assert!(job.copy_for_standby(TERM, |_| std::io::Result::Ok(())).unwrap());
    assert!(job.set_standby_in_step(TERM));
    job.lent_memory().unwrap().unwrap();
    let runtime = Runtime::new().unwrap();
    let control = || Control { shared: shared.clone(), hang_up: Arc::default() };
    let set_aside = || {
        let order = control().set_aside(tarpc::context::current(), EngineEpoch(1), job.run().clone());
        runtime.block_on(order)
    };
    let is_open = || {
        let held = runtime.block_on(control().list_jobs(tarpc::context::current(), EngineEpoch(1)));
        assert_eq!(held.unwrap(), [HeldJob { run: job.run().clone(), closed: false }]);
        !shared.jobs.open_jobs().is_empty()
    };
    let is_told = || matches!(job.next_for_standby(TERM, Duration::ZERO), Batch::Entries(_));
    // How its copy ends.
    is_told();
    // A folder in the place of the file: no rename succeeds, as on a disk that is full.
    let path = dir.path().join("jobs/digits-00000000.forgotten");
    std::fs::create_dir(&path).unwrap();
    for _ in 0..2 {
        assert_eq!(set_aside().unwrap_err().code(), "E406");
        assert_eq!((is_open(), is_told()), (true, false));
    }
    let seal = || job.seal(EngineEpoch(1), Incarnation(1));
    assert_eq!(seal().unwrap_err().code(), "E409");
    claim(&shared, job.run()).unwrap();
    assert!(seal().is_ok() && is_told(), "an engine asks for it after all");
    assert!(job.lend().is_some(), "and it lends its parameters as before");
    std::fs::remove_dir(&path).unwrap();
    set_aside().unwrap();
    assert_eq!((is_open(), is_told(), path.is_file()), (false, true, true));
}

/// It would end the job in a Redis that knows it, for what another engine has done with it.
#[test]
fn an_engine_that_waits_for_barriers_of_a_job_that_the_next_one_sets_aside_is_told_of_that_one() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, job) = serving(dir.path());
    let runtime = Runtime::new().unwrap();
    let control = || Control { shared: shared.clone(), hang_up: Arc::default() };
    let held = Arc::strong_count(&job);
    let (context, run) = (tarpc::context::current(), job.run().clone());
    let waits = runtime.spawn(control().await_closed(context, EngineEpoch(1), run.clone(), 0, 60_000));
    until("it waits", || Arc::strong_count(&job) > held);
    runtime.block_on(control().set_aside(context, EngineEpoch(2), run)).unwrap();
    assert_eq!(runtime.block_on(waits).unwrap().unwrap_err().code(), "E401");
}

/// Workers go on by themselves when a shard has started again, before an engine asks for their job.
#[test]
fn what_is_pushed_until_a_saved_job_is_set_aside_or_closed_is_on_disk() {
    let (worker, mode) = (Incarnation(1), PushMode::Apply);
    let skipped = PushHeader { learning_rate: 1.0, weight: 1.0, scale: 1.0, skip: true, mode, covers: 1 };
    for (was_aside, closes) in [(false, false), (true, false), (false, true), (true, true)] {
        let dir = tempfile::tempdir().unwrap();
        let (shared, job) = serving(dir.path());
        let file = was_aside.then(|| shared.saves.set_aside(&job).unwrap());
        shared.unclaimed.add(job.run(), file);
        let runtime = Runtime::new().unwrap();
        let (control, context) =
            (Control { shared: shared.clone(), hang_up: Arc::default() }, tarpc::context::current());
        let acknowledged = thread::scope(|scope| {
            let (pushed, pushes) = mpsc::channel();
            let job = &job;
            let push = move |seq: &u64| {
                let is_in = job.complete(worker, *seq, &skipped).is_ok();
                let _ = pushed.send(());
                is_in
            };
            let pushing = scope.spawn(move || (1..).take_while(push).last());
            pushes.recv().unwrap();
            match closes {
                true => runtime.block_on(control.close(context, EngineEpoch(1), job.run().clone())),
                false => runtime.block_on(control.set_aside(context, EngineEpoch(1), job.run().clone())),
            }
            .unwrap();
            pushing.join().unwrap().unwrap()
        });
        let started = Shared::for_test(dir.path());
        started.begin(|| Ok(())).unwrap();
        let cursor = started.jobs.find(job.run()).unwrap().push_cursor(worker).unwrap();
        assert_eq!(cursor.watermark, acknowledged, "{was_aside} {closes}");
    }
}

#[test]
fn of_a_job_that_is_deleted_nothing_stays_whenever_it_was_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs/digits-00000000.forgotten");
    let runtime = Runtime::new().unwrap();
    let discard = |shared: &Arc<Shared>, run: &RunId| {
        let control = Control { shared: shared.clone(), hang_up: Arc::default() };
        let set_aside = control.clone().set_aside(tarpc::context::current(), EngineEpoch(1), run.clone());
        runtime.block_on(set_aside).unwrap();
        assert!(path.is_file());
        let discard = control.clone().discard(tarpc::context::current(), EngineEpoch(1), run.clone());
        runtime.block_on(discard).unwrap();
        assert!(!path.exists());
        runtime.block_on(control.list_jobs(tarpc::context::current(), EngineEpoch(1))).unwrap()
    };
    let (served, job) = serving(dir.path());
    let closed = HeldJob { run: job.run().clone(), closed: true };
    assert_eq!(discard(&served, job.run()), std::slice::from_ref(&closed));
    served.saves.set_aside(&shard(&[1.0, 2.0, 3.0])).unwrap();
    let started = Shared::for_test(dir.path());
    started.begin(|| Ok(())).unwrap();
    serve_beside(&started, None);
    assert_eq!(discard(&started, job.run()), [closed]);
}

#[test]
fn checkpoints_of_a_job_that_was_set_aside_are_removed_and_the_job_is_not_read_for_that() {
    let dir = tempfile::tempdir().unwrap();
    let saved = shard(&[0.0; 3]);
    Shared::for_test(dir.path()).saves.set_aside(&saved).unwrap();
    let checkpoints = dir.path().join("checkpoints/digits-00000000");
    std::fs::create_dir_all(&checkpoints).unwrap();
    (1..=2).for_each(|number| std::fs::write(checkpoints.join(format!("{number}.checkpoint")), "").unwrap());
    let shared = Shared::for_test(dir.path());
    shared.begin(|| Ok(())).unwrap();
    serve_beside(&shared, None);
    let control = Control { shared: shared.clone(), hang_up: Arc::default() };
    let runtime = Runtime::new().unwrap();
    let orders =
        [(Retention::Thin { keep: vec![2], through: 2 }, 1), (Retention::Last { keep: Vec::new() }, 0)];
    for (retention, left) in orders {
        let (epoch, run) = (EngineEpoch(1), saved.run().clone());
        let retain = control.clone().retain_checkpoints(tarpc::context::current(), epoch, run, retention);
        runtime.block_on(retain).unwrap();
        let files = std::fs::read_dir(&checkpoints).map_or(0, Iterator::count);
        assert_eq!((files, shared.jobs.open_jobs().len()), (left, 0));
    }
}

#[test]
fn whoever_waits_for_barriers_of_a_job_that_is_read_first_holds_up_no_other_order() {
    let dir = tempfile::tempdir().unwrap();
    let shared = Shared::for_test(dir.path());
    serve_beside(&shared, None);
    let (run, epoch) = (shard(&[0.0; 3]).run().clone(), EngineEpoch(1));
    let read_by = Arc::new(Mutex::new(None));
    let noted = read_by.clone();
    let read = Arc::new(move || {
        *noted.lock().unwrap() = Some(thread::current().id());
        Ok(Some(shard(&[0.0; 3])))
    });
    shared.jobs.add_aside(AsideJob { run: run.clone(), epoch, written_at: SystemTime::now(), read });
    let control = Control { shared, hang_up: Arc::default() };
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let closed = runtime.block_on(control.await_closed(tarpc::context::current(), epoch, run, 0, 0));
    assert_eq!(closed, Ok(Vec::new()));
    let read_by = read_by.lock().unwrap().expect("it was read");
    assert_ne!(read_by, thread::current().id(), "the thread that serves all orders");
}

#[test]
fn an_order_of_an_earlier_engine_freezes_nothing_that_a_later_one_has_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, job) = serving(dir.path());
    job.freeze(EngineEpoch(1)).unwrap();
    assert!(job.has_ended() && !job.is_over(), "who copies it goes on");
    let control = Control { shared: shared.clone(), hang_up: Arc::default() };
    let attach = control.attach(tarpc::context::current(), EngineEpoch(2), job.run().clone());
    Runtime::new().unwrap().block_on(attach).unwrap();
    assert_eq!(job.freeze(EngineEpoch(1)).unwrap_err().code(), "E401");
    assert!(!job.has_ended());
    let late = shared.unclaimed.set_aside(&shared.saves, EngineEpoch(1), &job);
    assert_eq!(late.unwrap_err().code(), "E401");
    assert!(!dir.path().join("jobs/digits-00000000.forgotten").exists());
    assert!(!shared.unclaimed.is_set_aside(job.run()));
}

/// An engine tells to set it aside, and asks for another job of the name, at once.
#[test]
fn two_orders_that_set_a_job_aside_leave_it_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, job) = serving(dir.path());
    let epoch = EngineEpoch(1);
    let aside = write_aside(&shared, epoch, &job).unwrap().unwrap();
    let_go(&shared, epoch, aside).unwrap();
    assert!(write_aside(&shared, epoch, &job).unwrap().is_none(), "the other one had found it open");
    assert!(dir.path().join("jobs/digits-00000000.forgotten").exists());
    assert!(shared.unclaimed.is_set_aside(job.run()));
}

#[test]
fn an_order_that_a_stop_has_cancelled_answers_nothing_and_one_that_panics_is_a_fault() {
    let runtime = Runtime::new().unwrap();
    let panicked =
        runtime.block_on(async { answer_of::<()>(task::spawn_blocking(|| panic!("on purpose"))).await });
    assert_eq!(panicked.unwrap_err().code(), "E405");
    let handle = runtime.handle().clone();
    runtime.shutdown_background();
    let cancelled = handle.spawn_blocking(|| Ok(()));
    let answer = pin!(answer_of(cancelled)).poll(&mut std::task::Context::from_waker(Waker::noop()));
    assert!(answer.is_pending());
}
