//! Straggler to leader, played against machines of known speed: where it ends, and that it stays there.

use std::collections::BTreeMap;

use proptest::prelude::*;
use syncline_scheduler::{
    balance::{Bounds, RoundTime, Stepping},
    ids::Incarnation,
    samples::splitmix64,
};

const ANY: Bounds = Bounds { min: 1, max: u32::MAX };

/// µs of `batch` samples on worker i.
type Machine = Box<dyn Fn(u32) -> f64>;

fn processor(speed: f64) -> Machine {
    Box::new(move |batch| 1e3 * f64::from(batch) / speed)
}

/// A GPU as published with LBB, times `slowness`; linear between the measured batches and beyond.
fn gpu(slowness: f64) -> Machine {
    const MS: [(f64, f64); 5] = [(2.0, 14.6), (8.0, 17.0), (16.0, 25.1), (64.0, 72.7), (256.0, 265.5)];
    Box::new(move |batch| {
        let batch = f64::from(batch).max(2.0);
        let above = MS.iter().position(|&(x, _)| x >= batch).unwrap_or(4).max(1);
        let ((x0, y0), (x1, y1)) = (MS[above - 1], MS[above]);
        1e3 * slowness * (y0 + (y1 - y0) * (batch - x0) / (x1 - x0))
    })
}

/// The shortest longest time, by one sample after the other.
fn optimum_us(total: u64, machines: &[Machine], bounds: Bounds) -> f64 {
    let mut batches = vec![bounds.min; machines.len()];
    for _ in u64::from(bounds.min) * machines.len() as u64..total {
        let open = (0..machines.len()).filter(|&i| batches[i] < bounds.max);
        let next = open
            .min_by(|&a, &b| machines[a](batches[a] + 1).total_cmp(&machines[b](batches[b] + 1)))
            .unwrap();
        batches[next] += 1;
    }
    machines.iter().zip(batches).map(|(machine, batch)| machine(batch)).fold(0.0, f64::max)
}

/// A job whose rounds are played on `machines`.
struct Play {
    total: u64,
    stepping: Stepping,
    batches: BTreeMap<Incarnation, u32>,
    bounds: Bounds,
    jitter: f64,
    seed: u64,
}

impl Play {
    fn new(total: u64, bounds: Bounds) -> Self {
        let stepping = Stepping::new(total);
        Self { total, stepping, batches: BTreeMap::new(), bounds, jitter: 0.0, seed: 1 }
    }

    fn unit(&mut self) -> f64 {
        (splitmix64(&mut self.seed) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns the batches before each change.
    fn rounds(&mut self, count: u32, machines: &[(u64, &Machine)]) -> Vec<BTreeMap<Incarnation, u32>> {
        let mut changes = Vec::new();
        for _ in 0..count {
            let times: Vec<RoundTime> = machines
                .iter()
                .map(|(worker, machine)| {
                    let worker = Incarnation(*worker);
                    let batch = self.batches.get(&worker).copied().unwrap_or(1);
                    let noise = 1.0 + self.jitter * 3f64.sqrt() * (2.0 * self.unit() - 1.0);
                    RoundTime { worker, batch, us: (machine(batch) * noise) as u64, bounds: self.bounds }
                })
                .collect();
            let json = serde_json::to_string(&self.stepping).unwrap();
            self.stepping = serde_json::from_str(&json).unwrap();
            if let Some(batches) = self.stepping.round(&times) {
                let sum: u64 = batches.values().map(|&b| u64::from(b)).sum();
                assert_eq!(sum, self.total, "{batches:?}");
                changes.push(std::mem::replace(&mut self.batches, batches));
            }
        }
        changes
    }

    fn longest_us(&self, machines: &[Machine]) -> f64 {
        self.batches.values().zip(machines).map(|(&batch, machine)| machine(batch)).fold(0.0, f64::max)
    }
}

fn numbered(machines: &[Machine]) -> Vec<(u64, &Machine)> {
    (1..).zip(machines).collect()
}

#[test]
fn steps_end_within_a_twentieth_of_the_optimum_and_stay_there() {
    let capped = Bounds { min: 4, max: 70 };
    #[rustfmt::skip]
    let cases: [(&str, u64, Bounds, Vec<Machine>); 8] = [
        ("equal",             256,   ANY,    [1.0; 4].map(processor).into()),
        ("one at half speed", 256,   ANY,    [1.0, 1.0, 1.0, 0.5].map(processor).into()),
        ("all differ",        256,   ANY,    [1.0, 0.75, 0.5, 0.25].map(processor).into()),
        ("large batches",     40960, ANY,    [1.0, 0.9, 0.8, 0.7].map(processor).into()),
        ("two",               100,   ANY,    [3.0, 1.0].map(processor).into()),
        ("gpus",              256,   ANY,    [1.0, 1.0, 1.5, 2.5].map(gpu).into()),
        ("gpus, hardly busy", 40,    ANY,    [1.0, 1.0, 1.2, 1.4].map(gpu).into()),
        ("gpus, memory full", 200,   capped, [1.0, 1.0, 1.5, 2.5].map(gpu).into()),
    ];
    for (name, total, bounds, machines) in cases {
        let mut play = Play::new(total, bounds);
        let changes = play.rounds(1000, &numbered(&machines)).len();
        let ratio = play.longest_us(&machines) / optimum_us(total, &machines, bounds);
        assert!(ratio < 1.05, "{name}: {ratio} after {changes} changes, {:?}", play.batches);
        assert!(play.rounds(1000, &numbered(&machines)).is_empty(), "{name}");
    }
}

#[test]
fn jitter_does_not_keep_batches_moving() {
    let machines: Vec<Machine> = [1.0, 1.0, 1.0, 0.5].map(processor).into();
    for seed in 1..=10 {
        let mut play = Play { jitter: 0.05, seed, ..Play::new(256, ANY) };
        play.rounds(2000, &numbered(&machines));
        let ratio = play.longest_us(&machines) / optimum_us(256, &machines, ANY);
        let changes = play.rounds(2000, &numbered(&machines)).len();
        assert!(ratio < 1.1, "seed {seed}: {ratio}, {:?}", play.batches);
        assert!(changes <= 10, "seed {seed}: {changes}");
    }
}

#[test]
fn settled_batches_move_again_when_a_worker_slows_down() {
    let mut machines: Vec<Machine> = [1.0; 4].map(processor).into();
    let mut play = Play::new(256, ANY);
    play.rounds(200, &numbered(&machines));
    assert!(play.batches.values().all(|&batch| batch == 64), "{:?}", play.batches);
    machines[2] = processor(0.4);
    play.rounds(500, &numbered(&machines));
    let ratio = play.longest_us(&machines) / optimum_us(256, &machines, ANY);
    assert!(ratio < 1.05, "{ratio}, {:?}", play.batches);
}

#[test]
fn settled_batches_move_again_when_the_slow_worker_is_as_quick_as_the_others() {
    let bounds = Bounds { min: 16, max: u32::MAX };
    for (slow, total) in [(0.1, 64), (0.5, 256), (0.01, 1024)] {
        let mut machines: Vec<Machine> = [1.0, slow].map(processor).into();
        let mut play = Play::new(total, bounds);
        play.rounds(500, &numbered(&machines));
        machines[1] = processor(1.0);
        play.rounds(1000, &numbered(&machines));
        let ratio = play.longest_us(&machines) / optimum_us(total, &machines, bounds);
        assert!(ratio < 1.05, "{slow}: {ratio}, {:?}", play.batches);
    }
}

#[test]
fn a_new_worker_gets_the_mean_batch_and_a_lost_one_leaves_its_samples() {
    let machine = processor(1.0);
    let mut play = Play::new(240, ANY);
    play.rounds(1, &[(1, &machine), (2, &machine)]);
    assert_eq!(play.batches, [(Incarnation(1), 120), (Incarnation(2), 120)].into());
    play.rounds(1, &[(1, &machine), (2, &machine), (3, &machine)]);
    assert_eq!(play.batches.values().copied().collect::<Vec<_>>(), [80, 80, 80]);
    play.rounds(1, &[(1, &machine), (3, &machine)]);
    assert_eq!(play.batches, [(Incarnation(1), 120), (Incarnation(3), 120)].into());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn constant_speeds_always_settle_near_the_optimum(
        speeds in prop::collection::vec(0.2f64..2.0, 2..7), mean in 16u64..200
    ) {
        let total = mean * speeds.len() as u64;
        let machines: Vec<Machine> = speeds.into_iter().map(processor).collect();
        let mut play = Play::new(total, ANY);
        play.rounds(6000, &numbered(&machines));
        // A slow worker's last sample may be more than a twentieth of its batch.
        let slowest_us = machines.iter().map(|machine| machine(1)).fold(0.0, f64::max);
        let best_us = optimum_us(total, &machines, ANY);
        prop_assert!(play.longest_us(&machines) <= (1.05 * best_us).max(best_us + slowest_us), "{:?}", play.batches);
        prop_assert!(play.rounds(500, &numbered(&machines)).is_empty());
    }
}
