//! What a worker does before it computes.

use super::*;

#[test]
fn what_a_worker_computes_to_prepare_itself_counts_nowhere() {
    let [memory, device] = Rig::both();
    for (rig, threads) in [(memory, 1), (Rig::start(), 2), (device, 1)] {
        let rig = Rig { threads, ..rig };
        let before = rig.parameters(0);
        let key = TaskKey { task: TaskId::Prepare(Incarnation(1)), ..rig.key(1, 1) };
        let prepare = Assignment { key, worker_number: 0, work: Work::Prepare { range: range(0, 4) } };
        let gradient = GradientUse::ApplyOnArrival { scale: 1.0 };
        let first = It { superstep: 0, seq: 1, range: range(4, 4), gradient };
        let reports = rig.execute_all(1, vec![prepare, rig.iteration(1, first)], &[]);
        assert_eq!(reports[0].outcome, Outcome::Prepared);
        assert!(matches!(reports[1].outcome, Outcome::Iterated(it) if it.range == range(4, 4)));
        let stepped = rig.gradient(&before, range(4, 4)).into_iter().zip(&before).map(|(g, w)| w - RATE * g);
        assert_close(&rig.parameters(0), &stepped.collect::<Vec<_>>());
    }
}

#[test]
fn a_gpu_that_cannot_share_memory_is_told_once_and_gets_copies() {
    let rig = Rig::start();
    let at = SessionKey { run: rig.run.clone(), incarnation: Incarnation(1) };
    let elements = rig.train.model.layout.elements().unwrap();
    let options = ClientOptions { in_place: true, ..ClientOptions::default() };
    let (addresses, token) = (rig.addresses()[..].into(), rig.token.clone());
    let mut shards =
        ShardSet::connect_with(&addresses, token, at, elements, options, CancelToken::default()).unwrap();
    shards.pull_in_place(ReadCondition::version(0), &mut vec![0.0; elements as usize], []).unwrap();
    assert!(shards.lent_memory().next().is_some());
    let area = shards.gradient_area().expect("shards on this machine share memory");
    // It was loaded for the CPU, so that nothing can be locked.
    let mut on_gpu = SharedPages::new(&rig.onnx, Device::Cuda(0));
    assert!(!on_gpu.take_gradients(&area));
    for _ in 0..2 {
        on_gpu.follow(&shards);
        assert_eq!(on_gpu.lent.len(), shards.lent_memory().count());
    }
    let mut on_cpu = SharedPages::new(&rig.onnx, Device::Cpu);
    assert!(on_cpu.take_gradients(&area));
    on_cpu.follow(&shards);
    assert!(on_cpu.lent.is_empty());
}
