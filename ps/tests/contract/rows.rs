//! Tables of which only rows travel: the same values as if all of them did, whatever becomes of connections
//! and processes.

use std::io::Write;

use proptest::prelude::*;
use syncline_ps::{
    client::ShardSet,
    optim::{OptimizerState, step},
    rows::RowSelection,
    shard::{PushHeader, ReadCondition},
    wire::{Reply, Request},
};
use syncline_rpc::OpenJob;
use syncline_scheduler::{
    ids::{ContentDigest, Incarnation},
    samples::splitmix64,
    spec::{Layout, Optimizer, Parameter, ParameterKind},
};

use super::rig::{Cut, Cutter, EPOCH, FIRST, ROUND, Rig, UNIT, look, run, session};

const NOW: ReadCondition = ReadCondition::version(0);
/// Rows of the tables of group 0, whose second one is shorter, and of group 1.
const USERS: u32 = 3000;
const ITEMS: u32 = 1500;

/// Several chunks on one shard, rows over the ends of chunks and shards, and a buffer.
fn layout() -> Layout {
    Layout(vec![
        Parameter::trained("first", vec![100]),
        Parameter::rows("users", vec![u64::from(USERS) + 100, 50], 0),
        Parameter::rows("users.bias", vec![u64::from(USERS)], 0),
        Parameter::trained("head", vec![3000]),
        Parameter::rows("items", vec![u64::from(ITEMS), 33], 1),
        Parameter::buffer("mean", vec![5]),
    ])
}

fn elements() -> u64 {
    layout().elements().unwrap()
}

fn open(rig: &Rig, optimizer: Optimizer, clip_norm: Option<f32>) {
    let initial: Vec<f32> = (0..elements()).map(|n| (n % 11) as f32).collect();
    let initial = rig.blob(&initial);
    for shard in 0..rig.shards.len() as u32 {
        let order = rig.order(shard, elements(), &initial);
        rig.open_one(EPOCH, OpenJob { layout: layout(), optimizer, clip_norm, ..order }).unwrap();
    }
}

fn worker_at(rig: &Rig, addresses: &[String], incarnation: u64) -> ShardSet {
    let mut worker = rig.worker_at(addresses, incarnation, elements());
    worker.compress_pushes(syncline_ps::codec::Codec::Plain, elements());
    worker.set_tables(&layout());
    worker
}

fn worker(rig: &Rig, incarnation: u64) -> ShardSet {
    worker_at(rig, &rig.addresses(), incarnation)
}

/// The rows of a batch and its gradient, another for each `seed`.
fn batch(seed: u64) -> (RowSelection, Vec<f32>) {
    let mut random = seed;
    let mut ids = |rows: u32, count: usize| {
        let mut ids: Vec<u32> = (0..count).map(|_| splitmix64(&mut random) as u32 % rows).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    };
    let ids = vec![ids(USERS, 40), ids(ITEMS, seed as usize % 7)];
    let selected = selected(&ids);
    let number = |_: &u64| (splitmix64(&mut random) >> 40) as f32 / (1 << 23) as f32 - 1.0;
    let gradient = selected.iter().map(number).collect();
    (RowSelection::new(ids).unwrap(), gradient)
}

/// Places of what is selected in the flat array.
fn selected(ids: &[Vec<u32>]) -> Vec<u64> {
    let layout = layout();
    let places = layout.ranges().flat_map(|(parameter, range)| match parameter.kind {
        ParameterKind::Rows { group } => {
            let width = range.len() / parameter.shape[0];
            let start = move |id: &u32| range.start + u64::from(*id) * width;
            ids[group as usize].iter().flat_map(|id| start(id)..start(id) + width).collect()
        }
        _ => (range.start..range.end).collect::<Vec<u64>>(),
    });
    places.collect()
}

/// The same gradient for all parameters, zero where nothing is selected.
fn dense(seed: u64) -> Vec<f32> {
    let (rows, gradient) = batch(seed);
    let mut flat = vec![0.0; elements() as usize];
    let ids = [rows.ids(0).to_vec(), rows.ids(1).to_vec()];
    selected(&ids).iter().zip(gradient).for_each(|(at, g)| flat[*at as usize] = g);
    flat
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

const RATE: PushHeader = PushHeader { learning_rate: 0.1, scale: 0.5, ..UNIT };

#[test]
fn rows_are_what_all_parameters_would_be_under_sgd_bit_for_bit() {
    for shards in 1..=3 {
        let rig = Rig::start(shards);
        open(&rig, Optimizer::sgd(), None);
        let mut worker = worker(&rig, 1);
        let mut want: Vec<f32> = (0..elements()).map(|n| (n % 11) as f32).collect();
        let trained = layout().trained_elements() as usize;
        let mut state = OptimizerState::new(&Optimizer::sgd(), trained);
        for seq in 1..=20 {
            let (rows, gradient) = batch(seq);
            worker.push_rows(seq, RATE, &rows, &[&gradient], None).unwrap();
            let all = dense(seq);
            step(&Optimizer::sgd(), &mut want[..trained], &mut state, &all[..trained], 0.1, 0.5);
            want[trained..].copy_from_slice(&all[trained..]);
            let mut pulled = vec![f32::NAN; gradient.len()];
            worker.pull_rows(NOW, &rows, &mut pulled).unwrap();
            let ids = [rows.ids(0).to_vec(), rows.ids(1).to_vec()];
            let of_batch: Vec<f32> = selected(&ids).iter().map(|at| want[*at as usize]).collect();
            assert_eq!(bits(&pulled), bits(&of_batch), "{shards} shards, push {seq}");
        }
        assert!(bits(&look(&rig, elements())) == bits(&want), "{shards} shards");
    }
}

#[test]
fn a_row_that_no_batch_reads_stays_as_it_is_under_adam_and_one_that_returns_takes_the_step_of_the_job() {
    let rig = Rig::start(2);
    open(&rig, Optimizer::adam(), None);
    let mut worker = worker(&rig, 1);
    let pick = |user: u32| RowSelection::new(vec![vec![user], vec![]]).unwrap();
    let before = look(&rig, elements());
    for (seq, user) in (1..).zip([7, 7, 9, 9, 9, 7]) {
        let rows = pick(user);
        let gradient = vec![1.0; selected(&[vec![user], vec![]]).len()];
        worker.push_rows(seq, RATE, &rows, &[&gradient], None).unwrap();
    }
    let after = look(&rig, elements());
    let row = |user: usize| 100 + user * 50..100 + (user + 1) * 50;
    assert_eq!(before[row(8)], after[row(8)]);
    // Adam's moments of row 7 after three steps, the last of which is the sixth of the job.
    let (mut m, mut v, mut w) = (0.0f64, 0.0f64, f64::from(before[row(7).start]));
    for t in [1, 2, 6] {
        m = 0.9 * m + 0.1 * 0.5;
        v = 0.999 * v + 0.001 * 0.25;
        w -= 0.1 * (m / (1.0 - 0.9f64.powi(t))) / ((v / (1.0 - 0.999f64.powi(t))).sqrt() + 1e-8);
    }
    assert!((f64::from(after[row(7).start]) - w).abs() < 1e-5);
}

#[test]
fn a_round_is_the_mean_over_all_pushes_and_clipped_as_one_of_all_parameters_is() {
    for clip in [None, Some(0.5)] {
        let mut both = Vec::new();
        for by_rows in [true, false] {
            let rig = Rig::start(2);
            if by_rows {
                open(&rig, Optimizer::sgd(), clip);
            } else {
                let initial: Vec<f32> = (0..elements()).map(|n| (n % 11) as f32).collect();
                let initial = rig.blob(&initial);
                let mut layout = layout();
                layout.0.iter_mut().filter(|p| p.is_trained()).for_each(|p| p.kind = ParameterKind::Trained);
                for shard in 0..2 {
                    let order = rig.order(shard, elements(), &initial);
                    let order = OpenJob { layout: layout.clone(), clip_norm: clip, ..order };
                    rig.open_one(EPOCH, order).unwrap();
                }
            }
            for superstep in 0..3 {
                for who in 1..=2 {
                    let (rows, gradient) = batch(10 * superstep + who);
                    let push = PushHeader { weight: who as f32, ..ROUND };
                    if by_rows {
                        worker(&rig, who).push_rows(superstep + 1, push, &rows, &[&gradient], None).unwrap();
                    } else {
                        let all = dense(10 * superstep + who);
                        rig.exact_worker(who, elements()).push(superstep + 1, push, &[&all]).unwrap();
                    }
                }
                rig.barrier(superstep, 0, &[(1, superstep + 1), (2, superstep + 1)], false);
                let mut whole = vec![0.0; elements() as usize];
                let closed = ReadCondition::version(superstep + 1);
                rig.exact_worker(9, elements()).pull(closed, &mut whole).unwrap();
            }
            both.push(look(&rig, elements()));
        }
        let off = both[0].iter().zip(&both[1]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        // The norm adds up in another order.
        assert!(off <= if clip.is_some() { 1e-6 } else { 0.0 }, "{clip:?}: {off}");
    }
}

#[test]
fn a_round_of_which_a_shard_gets_nothing_leaves_no_weight_for_the_next() {
    let rig = Rig::start(2);
    let layout = Layout(vec![Parameter::rows("users", vec![2000, 64], 0)]);
    let elements = layout.elements().unwrap();
    let initial = rig.blob(&vec![0.0; elements as usize]);
    for shard in 0..2 {
        let order = rig.order(shard, elements, &initial);
        rig.open_one(EPOCH, OpenJob { layout: layout.clone(), ..order }).unwrap();
    }
    let mut worker = rig.exact_worker(1, elements);
    worker.set_tables(&layout);
    // The first row is on the first shard, the last one on the second.
    for (seq, row, weight) in [(1, 0, 3.0), (2, 1999, 1.0)] {
        let rows = RowSelection::new(vec![vec![row]]).unwrap();
        worker.push_rows(seq, PushHeader { weight, ..ROUND }, &rows, &[&[1.0; 64]], None).unwrap();
        rig.barrier(seq - 1, 0, &[(1, seq)], false);
        let mut moved = [0.0; 64];
        worker.pull_rows(ReadCondition::version(seq), &rows, &mut moved).unwrap();
        assert_eq!(moved, [-1.0; 64]);
    }
}

#[test]
fn what_a_shard_knows_of_rows_outlives_its_stop_in_the_middle_of_a_round() {
    let run = |restart: bool| {
        let mut rig = Rig::start(2);
        open(&rig, Optimizer::adam(), None);
        let mut seq = 0;
        for superstep in 0..4 {
            for _ in 0..2 {
                seq += 1;
                let (rows, gradient) = batch(seq);
                worker(&rig, 1).push_rows(seq, ROUND, &rows, &[&gradient], None).unwrap();
                if restart {
                    rig.restart();
                }
            }
            rig.barrier(superstep, 0, &[(1, seq)], true);
            let mut all = vec![0.0; elements() as usize];
            worker(&rig, 2).pull(ReadCondition::version(superstep + 1), &mut all).unwrap();
        }
        look(&rig, elements())
    };
    assert!(bits(&run(true)) == bits(&run(false)));
}

#[test]
fn a_checkpoint_knows_how_many_steps_the_job_has_taken() {
    let run = |checkpoint: bool| {
        let rig = Rig::start(2);
        open(&rig, Optimizer::adam(), None);
        let mut first = worker(&rig, 1);
        for seq in 1..=5 {
            let (rows, gradient) = batch(seq);
            first.push_rows(seq, RATE, &rows, &[&gradient], None).unwrap();
        }
        let mut worker = first;
        let mut seq = 5;
        if checkpoint {
            for shard in 0..2 {
                rig.pin_checkpoint(shard, 1).unwrap();
                rig.write_checkpoint(shard, 1).unwrap();
            }
            let next = syncline_scheduler::ids::Generation(FIRST.0 + 1);
            for shard in 0..2 {
                let order = rig.order(shard, elements(), &ContentDigest::LOWEST);
                let (layout, optimizer) = (layout(), Optimizer::adam());
                let order = OpenJob { run: run(next), layout, optimizer, checkpoint: Some(1), ..order };
                rig.open_one(EPOCH, order).unwrap();
            }
            worker = rig.worker_of(next, 2, elements());
            worker.compress_pushes(syncline_ps::codec::Codec::Plain, elements());
            worker.set_tables(&layout());
            seq = 0;
        }
        for n in 6..=9 {
            let (rows, gradient) = batch(n);
            seq += 1;
            worker.push_rows(seq, RATE, &rows, &[&gradient], None).unwrap();
        }
        let mut all = vec![0.0; elements() as usize];
        worker.pull(NOW, &mut all).unwrap();
        all
    };
    assert!(bits(&run(true)) == bits(&run(false)));
}

#[test]
fn rows_of_a_kept_version_are_those_of_that_version() {
    let rig = Rig::start(2);
    open(&rig, Optimizer::sgd(), None);
    let mut worker = worker(&rig, 1);
    let (rows, gradient) = batch(3);
    worker.push_rows(1, ROUND, &rows, &[&gradient], None).unwrap();
    rig.barrier(0, 0, &[(1, 1)], true);
    let (mut kept, mut now, mut then) = (gradient.clone(), gradient.clone(), gradient.clone());
    worker.pull_rows(ReadCondition::version(1), &rows, &mut then).unwrap();
    worker.push_rows(2, UNIT, &rows, &[&gradient], None).unwrap();
    worker.pull_rows(ReadCondition::Pinned(1), &rows, &mut kept).unwrap();
    worker.pull_rows(NOW, &rows, &mut now).unwrap();
    assert!(kept == then && now != then);
}

#[test]
fn rows_asked_for_with_a_push_contain_it_and_are_those_of_the_next_batch() {
    let rig = Rig::start(2);
    open(&rig, Optimizer::sgd(), None);
    let mut worker = worker(&rig, 1);
    for seq in 1..=4 {
        let ((rows, gradient), (next, of_next)) = (batch(seq), batch(seq + 1));
        worker.push_rows(seq, UNIT, &rows, &[&gradient], Some((NOW, &next))).unwrap();
        // Every other time, what was asked for is not what is wanted.
        let (wanted, mut into) = if seq % 2 == 0 { (next, of_next) } else { (rows, gradient) };
        assert_eq!(worker.pull_rows(NOW, &wanted, &mut into).unwrap().pushes, seq);
        let mut again = into.clone();
        worker.pull_rows(NOW, &wanted, &mut again).unwrap();
        assert_eq!(into, again);
    }
}

#[test]
fn a_push_that_is_skipped_or_sent_twice_counts_once_and_changes_nothing_more() {
    let rig = Rig::start(2);
    open(&rig, Optimizer::sgd(), None);
    let (rows, gradient) = batch(1);
    let mut first = worker(&rig, 1);
    first.push_rows(1, UNIT, &rows, &[&gradient], None).unwrap();
    let after = look(&rig, elements());
    assert_eq!(first.push_rows(1, UNIT, &rows, &[&gradient], None).unwrap().pushes, 1);
    assert_eq!(worker(&rig, 1).push_rows(1, UNIT, &rows, &[&gradient], None).unwrap().pushes, 1);
    first.push_rows(2, PushHeader { skip: true, ..UNIT }, &rows, &[], None).unwrap();
    first.push_rows(3, PushHeader { weight: 0.0, ..UNIT }, &rows, &[&gradient], None).unwrap();
    assert!(look(&rig, elements()) == after);
    assert_eq!(first.push_rows(9, UNIT, &rows, &[&gradient], None).unwrap_err().code(), "E405");
    first.push_rows(4, UNIT, &rows, &[&gradient], None).unwrap();
}

#[test]
fn a_push_of_all_rows_is_refused_where_rows_are_expected_and_the_other_way_round() {
    let rig = Rig::start(1);
    open(&rig, Optimizer::sgd(), None);
    let mut worker = worker(&rig, 1);
    let all = vec![1.0; elements() as usize];
    assert_eq!(worker.push(1, UNIT, &[&all]).unwrap_err().code(), "E405");
    let (rows, gradient) = batch(1);
    assert_eq!(worker.push_rows(1, UNIT, &rows, &[&gradient[1..]], None).unwrap_err().code(), "E414");
    worker.push_rows(1, UNIT, &rows, &[&gradient], None).unwrap();
    let dense = Rig::with_job(1, elements());
    let mut other = worker_at(&dense, &dense.addresses(), 1);
    assert_eq!(other.push_rows(1, UNIT, &rows, &[&gradient], None).unwrap_err().code(), "E405");
    let beyond = RowSelection::new(vec![vec![USERS], vec![]]).unwrap();
    assert_eq!(other.pull_rows(NOW, &beyond, &mut []).unwrap_err().code(), "E405");
}

#[test]
fn rows_that_cannot_be_meant_are_refused_and_the_connection_goes_on() {
    let rig = Rig::start(1);
    open(&rig, Optimizer::sgd(), None);
    let mut stream = rig.channel(0);
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let bodies = [
        words(&[]),
        words(&[1]),
        words(&[u32::MAX, 0]),
        words(&[2, 5, 4, 0]),
        words(&[2, 5, 5, 0]),
        words(&[1, USERS, 0]),
        words(&[0, 1, ITEMS]),
    ];
    for body in &bodies {
        let push = Request::PushRows { session: session(1), seq: 1, first_chunk: 0, header: UNIT };
        let pull = Request::PullRows { session: session(1), condition: NOW };
        for request in [push, pull] {
            let mut out = Vec::new();
            request.encode(body.len() as u64, &mut out);
            stream.write_all(&out).unwrap();
            stream.write_all(body).unwrap();
            let reply = Reply::read(&mut stream, &mut out).unwrap().0;
            assert!(matches!(reply, Reply::Fault(_)), "{body:?}: {reply:?}");
        }
    }
    let state = rig.state(0);
    assert_eq!((state.pushes, state.progress.watermarks.get(&Incarnation(1))), (0, None));
    let (rows, gradient) = batch(1);
    worker(&rig, 1).push_rows(1, UNIT, &rows, &[&gradient], None).unwrap();
}

#[test]
fn a_push_whose_values_are_not_as_many_as_its_rows_is_hung_up_on() {
    let rig = Rig::start(1);
    open(&rig, Optimizer::sgd(), None);
    for more in [0, 4, 1 << 30] {
        let (mut stream, mut out) = (rig.channel(0), Vec::new());
        let push = Request::PushRows { session: session(1), seq: 1, first_chunk: 0, header: UNIT };
        push.encode(8 + more, &mut out);
        stream.write_all(&out).unwrap();
        stream.write_all(&[0; 8]).unwrap();
        let reply = Reply::read(&mut stream, &mut out).unwrap().0;
        assert!(matches!(reply, Reply::Fault(_)), "{more} bytes: {reply:?}");
    }
    assert_eq!(rig.state(0).pushes, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Bit for bit what comes of connections that hold.
    #[test]
    fn pushes_of_rows_cut_anywhere_count_once(
        cuts in prop::collection::vec(
            prop_oneof![(0u64..60_000).prop_map(Cut::Up), (0u64..120).prop_map(Cut::Down)],
            1..5,
        ),
        shards in 1u32..4,
    ) {
        let run = |cuts: Vec<Cut>| {
            let rig = Rig::start(shards);
            open(&rig, Optimizer::adam(), None);
            let cutter = Cutter::start(rig.shards[0].address(), &rig.token, cuts);
            let mut addresses = rig.addresses();
            addresses[0] = cutter.address.clone();
            let mut worker = worker_at(&rig, &addresses, 1);
            for seq in 1..=4 {
                let (rows, gradient) = batch(seq);
                let mut values = vec![0.0; gradient.len()];
                worker.pull_rows(NOW, &rows, &mut values).unwrap();
                assert_eq!(worker.push_rows(seq, RATE, &rows, &[&gradient], None).unwrap().pushes, seq);
            }
            look(&rig, elements())
        };
        prop_assert!(bits(&run(cuts)) == bits(&run(Vec::new())));
    }
}
