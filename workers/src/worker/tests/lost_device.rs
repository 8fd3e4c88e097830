//! A worker whose device fails.

use syncline_runtime::BackendError;

use super::*;

/// How the executor ends, and what it reports of one iteration whose computation fails by the device, which a
/// trial then finds like this.
fn end_after_failure(trial: Option<&'static str>) -> (End, Vec<Outcome>) {
    let rig = Rig::start();
    let mut context = rig.context(1);
    context.device = DeviceWatch::with_trial(Device::Cuda(0), move || trial.map(str::to_owned));
    let it = It { superstep: 0, seq: 1, range: range(0, 4), gradient: GradientUse::JoinRound };
    let (given, tracker) = (rig.iteration(1, it), TaskTracker::default());
    let (give, tasks) = mpsc::channel();
    let (finish, mut finished) = async_mpsc::unbounded_channel();
    tracker.queue(&given.key);
    give.send(given).unwrap();
    drop(give);
    let fails = |_: &JobId| -> Result<JobSetup, _> {
        Err(BackendError::Run { reason: "CUDA failure 700: an illegal memory access".into() }.into())
    };
    let end = execute(&context, &tasks, &finish, &tracker, fails);
    drop(finish);
    (end, std::iter::from_fn(|| finished.blocking_recv()).map(|done| done.outcome).collect())
}

#[test]
fn a_lost_device_ends_the_executor_with_no_word_against_the_task() {
    let (end, reported) = end_after_failure(Some("CUDA failure 700"));
    assert_eq!((end, reported.len()), (End::DeviceLost, 0));
}

#[test]
fn a_device_that_computes_on_after_a_failure_fails_the_task_alone() {
    let (end, reported) = end_after_failure(None);
    assert_eq!(end, End::Stopped);
    assert!(matches!(&reported[..], [Outcome::Failed { code, .. }] if *code == "E327"), "{reported:?}");
}
