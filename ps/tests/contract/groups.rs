//! Parameters with settings of their own: each steps as it would in a job of its own, whatever cuts it and
//! whatever becomes of processes.

use syncline_ps::{
    codec::Codec,
    optim::{OptimizerState, step},
    shard::{PushHeader, ReadCondition},
};
use syncline_rpc::OpenJob;
use syncline_scheduler::{
    ids::Generation,
    spec::{Layout, Optimizer, Parameter, StepSettings},
};

use super::rig::{EPOCH, FIRST, ROUND, Rig, UNIT, barrier, look, run};

const SECOND: Generation = Generation(2);
const ADAMW: Optimizer =
    Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.1, decoupled: true };
const RATE: PushHeader = PushHeader { learning_rate: 0.1, scale: 0.5, ..UNIT };

/// Small tensors and such as lie in several chunks, on up to three shards.
fn layout() -> Layout {
    let own = |name: &str, elements, weight_decay, learning_rate_factor| {
        let settings = StepSettings { weight_decay, learning_rate_factor };
        Parameter { settings, ..Parameter::trained(name, vec![elements]) }
    };
    Layout(vec![
        own("scale", 3, Some(0.0), 1.0),
        Parameter::trained("first", vec![65_530]),
        own("first.bias", 40, Some(0.0), 0.5),
        own("body", 150_000, None, 0.1),
        Parameter::trained("head", vec![70_001]),
        own("head.bias", 7, Some(0.0), 1.0),
    ])
}

fn elements() -> u64 {
    layout().elements().unwrap()
}

fn gradient(n: u64) -> Vec<f32> {
    (0..elements()).map(|i| ((i * 31 + n * 17) % 97) as f32 / 50.0 - 1.0).collect()
}

fn open(rig: &Rig, generation: Generation, checkpoint: Option<u64>) {
    let initial = rig.blob(&gradient(0));
    for shard in 0..rig.shards.len() as u32 {
        let order = rig.order(shard, elements(), &initial);
        let order = OpenJob { run: run(generation), layout: layout(), optimizer: ADAMW, checkpoint, ..order };
        rig.open_one(EPOCH, order).unwrap();
    }
}

fn push(rig: &Rig, generation: Generation, worker: u64, seq: u64, header: PushHeader, values: &[f32]) {
    let mut worker = rig.worker_of(generation, worker, elements());
    worker.compress_pushes(Codec::Plain, elements());
    worker.push(seq, header, &[values]).unwrap();
}

/// Steps along these gradients with these scales, tensor by tensor.
fn expected(steps: &[(Vec<f32>, f32)]) -> Vec<f32> {
    let mut values = gradient(0);
    for (parameter, range) in layout().ranges() {
        let range = range.start as usize..range.end as usize;
        let rule = parameter.settings.optimizer(&ADAMW);
        let rate = parameter.settings.learning_rate(0.1);
        let mut state = OptimizerState::new(&rule, range.len());
        for (gradient, scale) in steps {
            step(&rule, &mut values[range.clone()], &mut state, &gradient[range.clone()], rate, *scale);
        }
    }
    values
}

#[test]
fn pushes_and_rounds_step_each_parameter_as_a_job_of_its_own_also_over_a_stop() {
    let sum: Vec<f32> = gradient(3).iter().zip(gradient(4)).map(|(a, b)| 3.0 * a + b).collect();
    let want = expected(&[(gradient(1), 0.5), (gradient(2), 0.5), (sum, 0.25)]);
    for (shards, stops) in [(1, false), (2, true), (3, false)] {
        let mut rig = Rig::start(shards);
        open(&rig, FIRST, None);
        push(&rig, FIRST, 1, 1, RATE, &gradient(1));
        if stops {
            rig.restart();
        }
        push(&rig, FIRST, 1, 2, RATE, &gradient(2));
        push(&rig, FIRST, 2, 1, PushHeader { weight: 3.0, ..ROUND }, &gradient(3));
        push(&rig, FIRST, 1, 3, ROUND, &gradient(4));
        if stops {
            rig.restart();
        }
        let mut order = barrier(0, 0, &[(1, 3), (2, 1)]);
        order.learning_rate = 0.1;
        (0..shards as usize).for_each(|shard| rig.give(shard, EPOCH, order.clone()).unwrap());
        assert!(look(&rig, elements()) == want, "{shards} shards, stops: {stops}");
    }
}

#[test]
fn a_job_that_goes_back_to_a_checkpoint_keeps_its_groups() {
    let mut rig = Rig::start(2);
    open(&rig, FIRST, None);
    push(&rig, FIRST, 1, 1, RATE, &gradient(1));
    for shard in 0..2 {
        rig.pin_checkpoint(shard, 1).unwrap();
        rig.write_checkpoint(shard, 1).unwrap();
    }
    push(&rig, FIRST, 1, 2, RATE, &gradient(9));
    rig.restart();
    open(&rig, SECOND, Some(1));
    push(&rig, SECOND, 1, 1, RATE, &gradient(2));
    let mut values = vec![f32::NAN; elements() as usize];
    rig.worker_of(SECOND, 9, elements()).pull(ReadCondition::version(0), &mut values).unwrap();
    assert!(values == expected(&[(gradient(1), 0.5), (gradient(2), 0.5)]));
}
