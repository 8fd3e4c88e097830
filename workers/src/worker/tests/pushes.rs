//! Pushes that are steps, or parts of a round.

use super::*;

#[test]
fn a_push_of_its_own_is_a_step_scaled_by_its_share_in_parts_in_pieces_or_whole() {
    for (threads, micro_batch) in [(1, None), (2, None), (3, None), (1, Some(1)), (1, Some(3)), (2, Some(2))]
    {
        let mut rig = Rig::start();
        (rig.threads, rig.train.micro_batch) = (threads, micro_batch);
        let it = It {
            superstep: 0,
            seq: 1,
            range: range(8, 4),
            gradient: GradientUse::ApplyOnArrival { scale: 0.5 },
        };
        let start = rig.parameters(0);
        assert_eq!(seqs(&rig.execute(1, &[it], &[])), [1]);
        let gradient = rig.gradient(&start, it.range);
        let want: Vec<f32> = start.iter().zip(gradient).map(|(x, g)| x - RATE * 0.5 * g).collect();
        assert_close(&rig.parameters(0), &want);
    }
}

#[test]
fn supersteps_may_change_from_steps_to_rounds() {
    let rig = Rig::start();
    let step =
        It { superstep: 0, seq: 1, range: range(0, 4), gradient: GradientUse::ApplyOnArrival { scale: 1.0 } };
    let joined = It { superstep: 1, seq: 2, range: range(4, 4), gradient: GradientUse::JoinRound };
    rig.barrier(0, &[(1, 1)]);
    let start = rig.parameters(0);
    assert_eq!(seqs(&rig.execute(1, &[step, joined], &[])), [1, 2]);
    let before = rig.parameters(1);
    let first = rig.gradient(&start, step.range);
    assert_close(&before, &start.iter().zip(first).map(|(x, g)| x - RATE * g).collect::<Vec<_>>());
    // This barrier averages: it takes the gradient for a change, as it is. A round is clipped by the shards
    // if at all.
    rig.barrier(1, &[(1, 2)]);
    let second = rig.whole_gradient(&before, joined.range);
    assert_close(&rig.parameters(2), &before.iter().zip(second).map(|(x, g)| x - g).collect::<Vec<_>>());
}
