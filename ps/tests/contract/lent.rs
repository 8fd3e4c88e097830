//! Parameters that are read, and gradients that are pushed, where they lie. Over transports that lend nothing
//! the same holds.

use std::{io::Write, time::Duration};

use super::rig::{ROUND, Rig, UNIT, client_options, look, session};
use proptest::prelude::*;
use syncline_ps::{
    client::{CancelToken, ClientOptions, GradientArea, ShardSet, connect},
    shard::{PushHeader, ReadCondition},
    transport::{Channel, Transport, TransportChoice},
    wire::{Reply, Request},
};
use syncline_scheduler::{ids::ContentDigest, spec::ElementRange};

/// Three chunks and a bit.
const ELEMENTS: u64 = 3 * 65_536 + 1000;
const NOW: ReadCondition = ReadCondition::version(0);

/// All of it in tensors of which some lie on two shards.
fn tensors() -> Vec<ElementRange> {
    let cuts = [0, 10, 70_000, 70_001, 150_000, ELEMENTS];
    cuts.windows(2).map(|cut| ElementRange { start: cut[0], end: cut[1] }).collect()
}

/// A worker with what it computes on.
struct InPlace {
    shards: ShardSet,
    own: Vec<f32>,
}

impl InPlace {
    fn new(rig: &Rig, incarnation: u64) -> Self {
        Self { shards: rig.exact_worker(incarnation, ELEMENTS), own: vec![f32::NAN; ELEMENTS as usize] }
    }

    fn pull(&mut self, condition: ReadCondition) -> u64 {
        self.shards.pull_in_place(condition, &mut self.own, tensors()).unwrap().pushes
    }

    /// What a graph would be given now.
    fn values(&self) -> Vec<f32> {
        tensors().into_iter().flat_map(|range| self.shards.values(range, &self.own).to_vec()).collect()
    }

    /// Pushes a gradient of so many everywhere, from where shards read it if they do.
    fn push(&mut self, seq: u64, header: PushHeader, gradient: f32) {
        let area = self.shards.gradient_area();
        let ones = match &area {
            Some(area) => fill(area, gradient),
            None => &vec![gradient; ELEMENTS as usize],
        };
        let (first, rest) = ones.split_at(70_000);
        self.shards.push(seq, header, &[first, &[], rest]).unwrap();
    }
}

/// Writes to the area as ONNX Runtime does.
#[expect(unsafe_code, reason = "an area is written through a pointer")]
fn fill(area: &GradientArea, gradient: f32) -> &[f32] {
    // SAFETY: no push is under way, and the only slice is this one.
    unsafe {
        let all = std::slice::from_raw_parts_mut(area.base().as_ptr(), area.elements());
        all.fill(gradient);
        all
    }
}

fn lends() -> bool {
    super::super::IN_PLACE
}

#[test]
fn what_was_pulled_stays_as_it_was_while_others_push() {
    let rig = Rig::with_job(2, ELEMENTS);
    let (mut a, mut b) = (InPlace::new(&rig, 1), InPlace::new(&rig, 2));
    assert_eq!(a.pull(NOW), 0);
    for seq in 1..=5 {
        b.push(seq, UNIT, 1.0);
        assert_eq!(b.pull(NOW), seq);
        assert!(b.values().iter().all(|x| *x == -(seq as f32)));
        assert!(a.values().iter().all(|x| *x == 0.0), "after {seq} pushes of the other");
    }
    a.push(1, UNIT, 1.0);
    assert_eq!(a.pull(NOW), 6);
    assert!(a.values().iter().all(|x| *x == -6.0) && b.values().iter().all(|x| *x == -5.0));
    assert!(look(&rig, ELEMENTS).iter().all(|x| *x == -6.0));
}

#[test]
fn shards_lend_and_take_where_memory_is_shared_and_nowhere_else() {
    let rig = Rig::with_job(2, ELEMENTS);
    let mut worker = InPlace::new(&rig, 1);
    assert_eq!(worker.shards.gradient_area().is_some(), lends());
    worker.pull(NOW);
    // A tensor on one shard stays there, one on two of them is put together.
    let borrowed = |range: &ElementRange| {
        !worker.own.as_ptr_range().contains(&worker.shards.values(*range, &worker.own).as_ptr())
    };
    let in_place: Vec<bool> = tensors().iter().map(borrowed).collect();
    assert_eq!(in_place, if lends() { [true, true, true, false, true] } else { [false; 5] });
}

#[test]
fn who_sends_gradients_is_lent_parameters_and_has_no_memory_counted_for_gradients() {
    let rig = Rig::with_job(2, ELEMENTS);
    let options = ClientOptions { offers_gradients: false, ..client_options() };
    let (addresses, token) = (rig.addresses()[..].into(), rig.token.clone());
    let mut shards =
        ShardSet::connect_with(&addresses, token, session(1), ELEMENTS, options, CancelToken::default())
            .unwrap();
    shards.pull_in_place(NOW, &mut vec![0.0; ELEMENTS as usize], tensors()).unwrap();
    assert_eq!(shards.lent_memory().count(), if lends() { 2 } else { 0 });
    assert!(shards.gradient_area().is_none());
}

#[test]
fn what_is_lent_lies_in_memory_that_a_device_can_be_told_of() {
    let mut rig = Rig::with_job(2, ELEMENTS);
    let mut worker = InPlace::new(&rig, 1);
    for _ in 0..2 {
        worker.pull(NOW);
        let memory: Vec<_> = worker.shards.lent_memory().collect();
        assert_eq!(memory.len(), if lends() { 2 } else { 0 });
        for range in tensors().into_iter().filter(|_| lends()) {
            let values = worker.shards.values(range, &worker.own).as_ptr_range();
            let lent = memory.iter().any(|memory| {
                let first = memory.base().as_ptr().cast_const();
                first <= values.start.cast() && values.end.cast() <= first.wrapping_add(memory.bytes())
            });
            assert_eq!(lent, !worker.own.as_ptr_range().contains(&values.start), "{range:?}");
        }
        // Mapped anew.
        rig.restart();
    }
}

#[test]
fn a_barrier_shows_everybody_the_same_and_a_pinned_version_is_received() {
    let rig = Rig::with_job(1, ELEMENTS);
    rig.barrier(0, 0, &[(1, 1), (2, 1)], true);
    let mut workers = [InPlace::new(&rig, 1), InPlace::new(&rig, 2)];
    for (worker, gradient) in workers.iter_mut().zip([1.0, 3.0]) {
        worker.pull(NOW);
        worker.push(1, ROUND, gradient);
    }
    for worker in &mut workers {
        worker.pull(ReadCondition::version(1));
        assert!(worker.values().iter().all(|x| *x == -2.0));
    }
    let [first, _] = &mut workers;
    first.push(2, UNIT, 1.0);
    first.pull(ReadCondition::Pinned(1));
    assert!(first.values().iter().all(|x| *x == -2.0));
    first.pull(ReadCondition::version(1));
    assert!(first.values().iter().all(|x| *x == -3.0));
}

#[test]
fn a_shard_that_starts_again_lends_and_takes_again() {
    let mut rig = Rig::with_job(2, ELEMENTS);
    let mut worker = InPlace::new(&rig, 1);
    for seq in 1..=3 {
        worker.pull(NOW);
        worker.push(seq, UNIT, 1.0);
        rig.restart();
    }
    worker.pull(NOW);
    assert!(worker.values().iter().all(|x| *x == -3.0));
    assert_eq!(worker.shards.gradient_area().is_some(), lends());
}

#[test]
fn a_job_that_was_set_aside_and_came_back_lends_and_takes_again_over_connections_that_stayed() {
    let rig = Rig::with_job(2, ELEMENTS);
    let mut worker = InPlace::new(&rig, 1);
    for seq in 1..=3 {
        worker.pull(NOW);
        worker.push(seq, UNIT, 1.0);
        rig.set_aside();
        // An engine that knows it asks for it.
        (0..2).for_each(|shard| assert_eq!(rig.state(shard).pushes, seq));
    }
    worker.pull(NOW);
    assert!(worker.values().iter().all(|x| *x == -3.0));
    assert_eq!(worker.shards.gradient_area().is_some(), lends());
}

#[test]
fn who_only_reads_is_lent_parameters_again_of_a_job_that_was_set_aside_and_came_back() {
    let rig = Rig::with_job(2, ELEMENTS);
    let mut worker = InPlace::new(&rig, 1);
    for _ in 0..2 {
        worker.pull(NOW);
        let first = ElementRange { start: 0, end: 10 };
        let lent = worker.shards.values(first, &worker.own).as_ptr() != worker.own.as_ptr();
        assert_eq!(lent, lends());
        rig.set_aside();
        (0..2).for_each(|shard| assert_eq!(rig.state(shard).pushes, 0));
    }
}

#[test]
fn a_worker_that_goes_gives_back_what_it_was_lent() {
    let rig = Rig::with_job(1, ELEMENTS);
    // More than there are slots.
    for incarnation in 1..=100 {
        let mut worker = InPlace::new(&rig, incarnation);
        worker.pull(NOW);
        worker.push(1, UNIT, 1.0);
        worker.pull(NOW);
        assert!(worker.values().iter().all(|x| *x == -(incarnation as f32)));
        let first = ElementRange { start: 0, end: 10 };
        let lent = worker.shards.values(first, &worker.own).as_ptr() != worker.own.as_ptr();
        assert_eq!(lent, lends(), "worker {incarnation}");
    }
}

#[test]
fn who_comes_when_every_slot_is_read_gets_the_values_sent() {
    let rig = Rig::with_job(1, ELEMENTS);
    let mut pusher = InPlace::new(&rig, 1000);
    let mut readers: Vec<InPlace> = Vec::new();
    for state in 0..40 {
        let mut reader = InPlace::new(&rig, state + 1);
        reader.pull(NOW);
        readers.push(reader);
        pusher.push(state + 1, UNIT, 1.0);
    }
    for (state, reader) in (0u16..).zip(&readers) {
        assert!(reader.values().iter().all(|x| *x == -f32::from(state)), "the one that came at {state}");
    }
    assert!(look(&rig, ELEMENTS).iter().all(|x| *x == -40.0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever happens in between, a worker goes on reading what it pulled, and that is what had been pushed.
    #[test]
    fn any_order_of_pushes_and_pulls_shows_each_worker_one_state(
        steps in prop::collection::vec((0usize..4, any::<bool>(), any::<bool>()), 1..40),
        shards in 1u32..3,
    ) {
        let rig = Rig::with_job(shards, ELEMENTS);
        let mut workers: Vec<InPlace> = (1..=4).map(|n| InPlace::new(&rig, n)).collect();
        let mut reads: [Option<f32>; 4] = [None; 4];
        let (mut seqs, mut pushes) = ([0; 4], 0);
        for (who, push, pull) in steps {
            if push {
                seqs[who] += 1;
                pushes += 1;
                workers[who].push(seqs[who], UNIT, 1.0);
                reads[who] = None;
            }
            if pull {
                prop_assert_eq!(workers[who].pull(NOW), pushes);
                reads[who] = Some(-(pushes as f32));
            }
            for (worker, want) in workers.iter().zip(reads) {
                if let Some(want) = want {
                    prop_assert!(worker.values().iter().all(|x| *x == want));
                }
            }
        }
    }
}

/// A connection that has lent and taken nothing.
fn over(transport: Transport, rig: &Rig) -> Channel {
    let (address, limit) = (rig.shards[0].address().to_string(), Duration::from_secs(5));
    connect(&address, None, &rig.token, limit, TransportChoice::Only(transport), 0).unwrap()
}

fn ask(channel: &mut Channel, request: &Request) -> Reply {
    let mut out = Vec::new();
    request.encode(0, &mut out);
    channel.write_all(&out).unwrap();
    Reply::read(channel, &mut out).unwrap().0
}

#[test]
fn a_push_from_memory_that_was_never_handed_over_is_refused_and_counts_nothing() {
    let rig = Rig::with_job(1, ELEMENTS);
    let push = Request::PushInPlace { session: session(1), seq: 1, first_chunk: 0, header: UNIT };
    for mut channel in [Transport::Tcp, Transport::Unix, Transport::Shm].map(|by| over(by, &rig)) {
        let answer = ask(&mut channel, &push);
        assert!(
            matches!(&answer, Reply::Fault(fault) if fault.to_string().contains("handed over")),
            "{answer:?}"
        );
        assert!(matches!(
            ask(&mut channel, &Request::StatBlob { digest: ContentDigest::LOWEST }),
            Reply::BlobStat { .. }
        ));
    }
    assert_eq!(rig.state(0).pushes, 0);
}

#[test]
fn nothing_is_lent_of_a_job_that_is_not_there_or_over_tcp() {
    let rig = Rig::start(1);
    let lend = Request::LendParameters { session: session(1) };
    assert!(matches!(ask(&mut over(Transport::Unix, &rig), &lend), Reply::Fault(_)));
    let rig = Rig::with_job(1, ELEMENTS);
    for transport in [Transport::Tcp, Transport::Shm] {
        assert!(matches!(ask(&mut over(transport, &rig), &lend), Reply::Fault(_)), "{transport}");
    }
}
