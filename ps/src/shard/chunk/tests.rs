use std::sync::Arc;

use super::*;
use crate::transport::{Access, Mapping, Pages, sealed_memory};

const SGD: Optimizer = Optimizer::Sgd { weight_decay: 0.0 };

fn header(mode: PushMode, weight: f32) -> PushHeader {
    PushHeader { learning_rate: 1.0, weight, scale: 1.0, skip: false, mode, covers: 1 }
}

fn into_round(weight: f32) -> PushHeader {
    header(PushMode::Accumulate, weight)
}

#[test]
fn a_round_steps_once_along_the_weighted_mean_and_leaves_nothing_behind() {
    let mut chunk = Chunk::new(vec![0.0; 3], 3, &SGD);
    for round in 1..=2 {
        chunk.apply_push(&SliceRule::usual(&SGD), &into_round(3.0), 1.0, None, &[1.0; 3]).unwrap();
        chunk.apply_push(&SliceRule::usual(&SGD), &into_round(1.0), 1.0, None, &[5.0; 3]).unwrap();
        chunk.close_round(&SliceRule::usual(&SGD), RoundRule::Optimizer, 0.5, 1.0, None);
        assert_eq!(chunk.values(), [-(round as f32); 3]);
        assert_eq!(chunk.optimizer_state.steps(), round);
    }
}

#[test]
fn an_averaged_round_moves_the_values_to_the_mean_and_no_optimizer_hears_of_it() {
    let adam =
        Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.1, decoupled: true };
    let mut chunk = Chunk::new(vec![8.0, -2.0], 2, &adam);
    let before = chunk.optimizer_state.clone();
    // Two workers ended at (4, 0) and (6, 6), the second after three times the weight.
    chunk.apply_push(&SliceRule::usual(&adam), &into_round(1.0), 1.0, None, &[4.0, -2.0]).unwrap();
    chunk.apply_push(&SliceRule::usual(&adam), &into_round(3.0), 1.0, None, &[2.0, -8.0]).unwrap();
    chunk.close_round(&SliceRule::usual(&adam), RoundRule::Average, 0.0, 1.0, None);
    assert_eq!(chunk.values(), [(4.0 + 3.0 * 6.0) / 4.0, (0.0 + 3.0 * 6.0) / 4.0]);
    assert_eq!(chunk.optimizer_state, before);
}

#[test]
fn the_optimizer_begins_anew_behind_an_averaged_round() {
    let adam =
        Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0, decoupled: true };
    let rule = SliceRule::usual(&adam);
    let mut chunk = Chunk::new(vec![0.0; 2], 2, &adam);
    let step = |chunk: &mut Chunk| {
        let before = chunk.values().to_vec();
        chunk.apply_push(&rule, &header(PushMode::Apply, 1.0), 1.0, None, &[1.0, -3.0]).unwrap();
        chunk.values().iter().zip(before).map(|(now, before)| now - before).collect::<Vec<_>>()
    };
    let first = step(&mut chunk);
    chunk.apply_push(&rule, &header(PushMode::Apply, 1.0), 1.0, None, &[-50.0, 50.0]).unwrap();
    let back = chunk.values().to_vec();
    chunk.apply_push(&rule, &into_round(1.0), 1.0, None, &back).unwrap();
    chunk.close_round(&rule, RoundRule::Average, 0.0, 1.0, None);
    assert_eq!(chunk.values(), [0.0; 2]);
    assert_eq!((step(&mut chunk), chunk.optimizer_state.steps()), (first, 1));
}

#[test]
fn a_round_without_weight_is_no_step() {
    let mut chunk = Chunk::new(vec![7.0], 1, &SGD);
    chunk.apply_push(&SliceRule::usual(&SGD), &into_round(0.0), 1.0, None, &[f32::NAN]).unwrap();
    chunk
        .apply_push(
            &SliceRule::usual(&SGD),
            &PushHeader { skip: true, ..into_round(1.0) },
            1.0,
            None,
            &[f32::NAN],
        )
        .unwrap();
    for rule in [RoundRule::Optimizer, RoundRule::Average] {
        chunk.close_round(&SliceRule::usual(&SGD), rule, 1.0, 1.0, None);
    }
    assert_eq!(chunk.values(), [7.0]);
    assert_eq!(chunk.optimizer_state.steps(), 0);
}

#[test]
fn memory_for_a_round_is_taken_by_the_first_push_into_one() {
    let mut chunk = Chunk::new(vec![0.0], 1, &SGD);
    chunk.apply_push(&SliceRule::usual(&SGD), &header(PushMode::Apply, 1.0), 1.0, None, &[1.0]).unwrap();
    assert_eq!((chunk.values(), chunk.round.capacity()), (&[-1.0][..], 0));
    chunk.apply_push(&SliceRule::usual(&SGD), &into_round(1.0), 1.0, None, &[1.0]).unwrap();
    assert_eq!((chunk.values(), chunk.round.len()), (&[-1.0][..], 1));
}

#[test]
fn a_barrier_sets_buffers_to_the_weighted_mean_whatever_the_rule_and_the_scale() {
    let momentum = Optimizer::Momentum { momentum: 0.9, nesterov: true, weight_decay: 0.5 };
    for rule in [RoundRule::Optimizer, RoundRule::Average] {
        let mut chunk = Chunk::new(vec![1.0, 100.0, 200.0], 1, &momentum);
        for _ in 0..2 {
            let clipped = PushHeader { scale: 0.25, ..into_round(3.0) };
            chunk.apply_push(&SliceRule::usual(&momentum), &clipped, 1.0, None, &[0.0, 4.0, 8.0]).unwrap();
            chunk
                .apply_push(&SliceRule::usual(&momentum), &into_round(1.0), 1.0, None, &[0.0, 8.0, 0.0])
                .unwrap();
            chunk.close_round(&SliceRule::usual(&momentum), rule, 0.1, 0.5, None);
            assert_eq!(chunk.values()[1..], [5.0, 6.0], "{rule:?}");
        }
    }
}

#[test]
fn a_push_of_its_own_moves_buffers_by_its_share_and_never_beyond_what_it_brings() {
    let mut chunk = Chunk::new(vec![1.0, 8.0], 1, &SGD);
    let push = PushHeader { scale: 0.5, ..header(PushMode::Apply, 3.0) };
    chunk.apply_push(&SliceRule::usual(&SGD), &push, 0.25, None, &[1.0, 4.0]).unwrap();
    assert_eq!(chunk.values(), [0.5, 7.0]);
    chunk.apply_push(&SliceRule::usual(&SGD), &push, 1.0, None, &[0.0, 3.3]).unwrap();
    assert_eq!(chunk.values(), [0.5, 3.3], "one worker alone");
    chunk
        .apply_push(&SliceRule::usual(&SGD), &PushHeader { skip: true, ..push }, 1.0, None, &[9.0, 9.0])
        .unwrap();
    assert_eq!(chunk.values(), [0.5, 3.3]);
}

#[test]
fn values_that_move_between_slots_and_home_are_those_that_stay_and_leave_what_is_read() {
    let (elements, trained) = (10_000, 8000);
    let bytes = elements * size_of::<f32>();
    let memory = sealed_memory(2 * bytes).unwrap();
    let mapping = Arc::new(Mapping::new(&memory, 0..2 * bytes, Access::Write, Pages::Now).unwrap());
    let slot = |number| SlotPart::new(&mapping, number, number * bytes, elements);
    let start: Vec<f32> = (0..elements).map(|i| (i as f32).cos()).collect();
    let adam =
        Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.1, decoupled: true };
    for optimizer in [SGD, adam] {
        let mut stays = Chunk::new(start.clone(), trained, &optimizer);
        let mut moves = Chunk::new(start.clone(), trained, &optimizer);
        for (step, to) in
            [Some(0), Some(0), Some(1), None, None, Some(1), Some(0), None].into_iter().enumerate()
        {
            let pushed: Vec<f32> = (0..elements).map(|i| ((i * (step + 3)) as f32).sin()).collect();
            let before = (moves.slot(), moves.values().to_vec());
            for (chunk, to) in [(&mut stays, None), (&mut moves, to.map(slot))] {
                if step % 2 == 0 {
                    chunk
                        .apply_push(
                            &SliceRule::usual(&optimizer),
                            &header(PushMode::Apply, 1.0),
                            0.5,
                            to,
                            &pushed,
                        )
                        .unwrap();
                } else {
                    chunk
                        .apply_push(&SliceRule::usual(&optimizer), &into_round(2.0), 1.0, None, &pushed)
                        .unwrap();
                    chunk.close_round(&SliceRule::usual(&optimizer), RoundRule::Optimizer, 0.1, 1.0, to);
                }
            }
            assert_eq!(moves.slot(), to);
            assert!(stays.values() == moves.values(), "{optimizer:?}, step {step}");
            if let (Some(left), values) = before
                && to != Some(left)
            {
                assert!(slot(left).values() == values, "who reads where they were goes on reading them");
            }
        }
    }
}
