//! What a device does with local steps, compared with what this process does: on the CPU, by the bindings of
//! a device.

use syncline_autodiff::{DeriveOptions, GRAD_SUFFIX, LOSS, LOSS_WEIGHT, Loss, NEXT_SUFFIX, derive};
use syncline_onnx::{ElementType, GraphBuilder, ModelProto, SplitMix64, mlp};
use syncline_ps::transport::TransportChoice;
use syncline_rpc::Token;
use syncline_runtime::{Device, ExecOptions, TensorView};
use syncline_scheduler::{
    core::GradientUse,
    graph::TaskId,
    ids::{Generation, Incarnation, RunId},
    samples::SampleRange,
    spec::{ElementRange, StepSettings, TrainSpec},
};

use super::{on_device::MAX_UNFIT, *};
use crate::onnxruntime::runtime;
use crate::worker::{
    Throttle,
    device_watch::DeviceWatch,
    draws::DrawStream,
    job::WorkerContext,
    parameters::Tensor,
    replicas::{BatchCut, Inputs, Replicas},
    step_health::StepHealth,
};

const DRAWS: DrawStream = DrawStream { seed: 0, worker: 0, part: 0 };

fn rules() -> Vec<Optimizer> {
    let mut rules = vec![Optimizer::sgd(), Optimizer::Sgd { weight_decay: 0.1 }];
    for flag in [false, true] {
        for weight_decay in [0.0, 0.1] {
            rules.push(Optimizer::Momentum { momentum: 0.9, nesterov: flag, weight_decay });
            let (beta1, beta2, epsilon) = (0.8, 0.95, 1e-6);
            rules.push(Optimizer::Adam { beta1, beta2, epsilon, weight_decay, decoupled: flag });
            let momentum = if flag { 0.0 } else { 0.9 };
            rules.push(Optimizer::RmsProp {
                alpha: 0.9,
                epsilon: 0.01,
                momentum,
                centered: flag,
                weight_decay,
            });
        }
    }
    rules
}

/// One step as a graph gives it: whatever one likes.
#[derive(Clone)]
struct Given {
    loss: f32,
    weight: f32,
    gradients: [Vec<f32>; 2],
    buffer: Vec<f32>,
}

impl Given {
    fn random(random: &mut SplitMix64) -> Self {
        let mut numbers = |count| (0..count).map(|_| random.normal() as f32).collect::<Vec<_>>();
        Self { loss: 0.5, weight: 4.0, gradients: [numbers(6), numbers(1)], buffer: numbers(2) }
    }

    fn pushed(&self) -> [&[f32]; 3] {
        [&self.gradients[0], &self.gradients[1], &self.buffer]
    }

    fn health(&self) -> StepHealth {
        let squares = |values: &[&[f32]]| gradient_norm(values).powi(2);
        let [w, b, buffer] = self.pushed();
        StepHealth::of_squares(self.loss, self.weight, squares(&[w, b]), squares(&[buffer]))
    }

    fn samples(&self) -> Inputs<'_> {
        let number =
            |name, number| (name, TensorView::F32 { shape: &[], data: std::slice::from_ref(number) });
        vec![
            number("given loss", &self.loss),
            number("given weight", &self.weight),
            ("given w.grad", TensorView::F32 { shape: &[6], data: &self.gradients[0] }),
            ("given b.grad", TensorView::F32 { shape: &[], data: &self.gradients[1] }),
            ("given m.new", TensorView::F32 { shape: &[2], data: &self.buffer }),
        ]
    }
}

/// w (2, 3), b without axes, and the buffer m (2). The gradient of w comes as six numbers in a row.
fn params() -> Parameters {
    let tensor = |name: &str, shape: &[usize], start, end| {
        let range = ElementRange { start, end };
        Tensor { name: name.to_owned(), shape: shape.to_vec(), range }
    };
    let tensors = vec![tensor("w", &[2, 3], 0, 6), tensor("b", &[], 6, 7), tensor("m", &[2], 7, 9)];
    Parameters { values: vec![0.5; 9], tensors, trained: 2, settings: vec![StepSettings::default(); 2] }
}

/// A training graph whose outputs are fed.
fn as_given() -> Vec<u8> {
    let mut graph = GraphBuilder::new("given");
    for (name, shape) in [("w", vec![2.into(), 3.into()]), ("b", vec![]), ("m", vec![2.into()])] {
        graph.input(name, ElementType::F32, &shape);
    }
    let outputs = [(LOSS, 0), (LOSS_WEIGHT, 0), ("w.grad", 6), ("b.grad", 0), ("m.new", 2)];
    let fed = ["given loss", "given weight", "given w.grad", "given b.grad", "given m.new"];
    for ((output, size), fed) in outputs.into_iter().zip(fed) {
        let shape = if size == 0 { vec![] } else { vec![size.into()] };
        graph.input(fed, ElementType::F32, &shape);
        graph.named(output, "Identity", &[fed], &[]);
        graph.output(output);
    }
    let onnx = graph.finish().to_bytes();
    assert_eq!([GRAD_SUFFIX, NEXT_SUFFIX], [".grad", ".new"]);
    onnx
}

fn on_device(train_onnx: &[u8], params: &Parameters, rule: Optimizer, clip: Option<f32>) -> LocalSteps {
    let exec = ExecOptions::default();
    let device = StepsOnDevice::load(&runtime(), train_onnx, &exec, params, rule, clip).unwrap();
    LocalSteps::new(rule, Some(device))
}

fn context(resident_rounds: bool) -> WorkerContext {
    WorkerContext {
        incarnation: Incarnation(1),
        token: Token::generate(),
        runtime: runtime(),
        exec: ExecOptions::default(),
        device: DeviceWatch::new(&runtime(), Device::Cpu),
        split_batch: false,
        throttle: Throttle::default(),
        transport: TransportChoice::Auto,
        max_batch: None,
        resident_rounds,
        unfit: UnfitJobs::default(),
    }
}

fn training(policy: &str) -> TrainSpec {
    syncline_scheduler::sim::training(policy.parse().unwrap(), 64, 8)
}

fn iteration(seq: u64, first: u64, last: u64, learning_rate: f32) -> Iteration {
    let range = SampleRange { epoch: 0, start: 0, len: 4 };
    let gradient = GradientUse::LocalStep { first, last };
    Iteration { task: TaskId::Iteration { worker: Incarnation(1), seq }, seq, range, learning_rate, gradient }
}

fn assert_close(got: &[f32], want: &[f32], case: &str) {
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-6 * b.abs().max(1.0) || a == b;
    assert!(got.len() == want.len() && got.iter().zip(want).all(close), "{case}: {got:?}, expected {want:?}");
}

/// The same job on a device and in this process.
struct Both {
    device: LocalSteps,
    host: LocalSteps,
    params: [Parameters; 2],
    clip: Option<f32>,
}

impl Both {
    fn new(rule: Optimizer, clip: Option<f32>) -> Self {
        Self::with(rule, clip, params)
    }

    fn with(rule: Optimizer, clip: Option<f32>, params: impl Fn() -> Parameters) -> Self {
        let device = on_device(&as_given(), &params(), rule, clip);
        Self { device, host: LocalSteps::new(rule, None), params: [params(), params()], clip }
    }

    fn begin(&mut self, first: u64) {
        self.device.begin(first, &self.params[0]).unwrap();
        self.host.begin(first, &self.params[1]).unwrap();
    }

    /// Takes a step; at the end of the round both have come to the same, and begin the next one there.
    fn step(&mut self, it: &Iteration, given: &Given, case: &str) -> Option<bool> {
        let [on_device, in_host] = &mut self.params;
        let health = self.device.compute(it, &given.samples()).unwrap().unwrap();
        let (got, want) = (health.header(it, self.clip, false), given.health().header(it, self.clip, false));
        assert_eq!((got.skip, got.weight), (want.skip, want.weight), "{case}");
        assert!((got.scale - want.scale).abs() < 1e-6, "{case}");
        let before = on_device.values.clone();
        let got = self.device.follow(it, on_device, &[], &got).unwrap();
        let want = self.host.follow(it, in_host, &given.pushed(), &want).unwrap();
        assert_eq!(got.is_some(), want.is_some(), "{case}");
        let Some((got, want)) = got.zip(want) else {
            assert_eq!(on_device.values, before, "nothing comes before the round is over");
            return None;
        };
        assert_eq!(got.norm.is_finite(), want.norm.is_finite(), "{case}");
        assert_eq!((got.covers, got.weight), (want.covers, want.weight), "{case}");
        if got.norm.is_finite() {
            assert_close(got.values[0], want.values[0], case);
            assert_close(&on_device.values, &in_host.values, case);
        }
        Some(got.norm.is_finite())
    }
}

#[test]
fn every_optimizer_steps_on_a_device_as_in_this_process() {
    let mut random = SplitMix64::new(5);
    let own = [
        StepSettings { weight_decay: Some(0.3), learning_rate_factor: 0.5 },
        StepSettings { weight_decay: Some(0.0), learning_rate_factor: 2.0 },
    ];
    let usual = [StepSettings::default(); 2];
    let settings = [usual, own, [own[0], usual[0]], [usual[0], own[1]], [own[1], own[1]]];
    let cases = rules().into_iter().flat_map(|rule| settings.map(|settings| (rule, settings)));
    for ((rule, settings), clip) in cases.flat_map(|case| [(case, None), (case, Some(1.5))]) {
        let mut both = Both::with(rule, clip, || Parameters { settings: settings.to_vec(), ..params() });
        // Rounds of 3, 1 and 4 steps.
        for (first, last) in [(1, 3), (4, 4), (5, 8)] {
            both.begin(first);
            for seq in first..=last {
                let it = iteration(seq, first, last, 0.1 / seq as f32);
                let case = format!("{rule:?}, {settings:?}, clip {clip:?}, iteration {seq}");
                assert_eq!(both.step(&it, &Given::random(&mut random), &case), (seq == last).then_some(true));
            }
        }
    }
}

#[test]
fn a_step_that_counts_nowhere_moves_nothing_on_a_device_either() {
    type Spoil = fn(&mut Given);
    let random = &mut SplitMix64::new(6);
    let spoil: [(&str, Spoil); 7] = [
        ("loss", |given| given.loss = f32::INFINITY),
        ("weight", |given| given.weight = f32::NAN),
        ("no weight", |given| given.weight = 0.0),
        ("gradient", |given| given.gradients[0][4] = f32::NAN),
        ("another gradient", |given| given.gradients[1][0] = f32::NEG_INFINITY),
        ("running statistic", |given| given.buffer[1] = f32::NAN),
        ("all", |given| *given = Given { loss: f32::NAN, weight: f32::NAN, ..given.clone() }),
    ];
    for (case, spoil) in spoil {
        // The first step, one in the middle, the last, all of a round; what follows finds slots and
        // parameters as they were.
        for spoiled in [&[1][..], &[2], &[3], &[1, 2, 3], &[4]] {
            let mut both = Both::new(Optimizer::adam(), Some(1.0));
            for (first, last) in [(1, 3), (4, 4), (5, 6)] {
                both.begin(first);
                for seq in first..=last {
                    let mut given = Given::random(random);
                    if spoiled.contains(&seq) {
                        spoil(&mut given);
                    }
                    both.step(&iteration(seq, first, last, 0.1), &given, &format!("{case} at {spoiled:?}"));
                }
            }
        }
    }
}

#[test]
fn a_round_that_is_given_up_leaves_its_slots_and_the_next_one_begins_with_what_was_pulled() {
    let random = &mut SplitMix64::new(7);
    let mut both = Both::new(Optimizer::momentum(), None);
    both.begin(1);
    for seq in 1..=2 {
        both.step(&iteration(seq, 1, 4, 0.1), &Given::random(random), "given up");
    }
    both.device.abandon();
    both.host.abandon();
    for params in &mut both.params {
        params.values = vec![2.0; 9];
    }
    both.begin(3);
    for seq in 3..=4 {
        both.step(&iteration(seq, 3, 4, 0.1), &Given::random(random), "anew");
    }
}

#[test]
fn a_step_that_fails_leaves_the_one_before() {
    let random = &mut SplitMix64::new(8);
    let mut both = Both::new(Optimizer::adam(), None);
    both.begin(1);
    both.step(&iteration(1, 1, 2, 0.1), &Given::random(random), "before");
    let wide = Given { gradients: [vec![1.0; 5], vec![1.0]], ..Given::random(random) };
    let mut samples = wide.samples();
    samples[2].1 = TensorView::F32 { shape: &[5], data: &wide.gradients[0] };
    let failed = both.device.compute(&iteration(2, 1, 2, 0.1), &samples);
    assert_eq!(failed.unwrap_err().code(), "E327");
    assert!(both.device.device_failed());
    both.step(&iteration(2, 1, 2, 0.1), &Given::random(random), "behind");
}

#[test]
fn a_device_that_cannot_warm_up_leaves_them_to_this_process() {
    let random = &mut SplitMix64::new(10);
    let mut both = Both::new(Optimizer::adam(), None);
    let given = Given::random(random);
    assert!(both.device.warm_up(both.params[0].inputs(), &given.samples()).unwrap());
    // It counted nowhere.
    both.begin(1);
    both.step(&iteration(1, 1, 1, 0.1), &Given::random(random), "warmed up");
    let mut samples = given.samples();
    samples[2].1 = TensorView::F32 { shape: &[5], data: &given.gradients[0][..5] };
    assert!(!both.device.warm_up(both.params[0].inputs(), &samples).unwrap());
    assert!(both.device.device.is_none() && both.device.device_failed());
    assert!(!both.device.warm_up(both.params[0].inputs(), &given.samples()).unwrap());
}

#[test]
fn a_round_whose_first_step_does_not_fit_on_the_device_is_computed_in_this_process() {
    let random = &mut SplitMix64::new(11);
    // In front of the first step that counts, one may have counted nowhere.
    for skipped in [false, true] {
        let mut both = Both::new(Optimizer::adam(), None);
        both.begin(1);
        if skipped {
            let empty = Given { weight: 0.0, ..Given::random(random) };
            both.step(&iteration(1, 1, 4, 0.1), &empty, "skipped");
        }
        for seq in 1 + u64::from(skipped)..=4 {
            let (it, given) = (iteration(seq, 1, 4, 0.1), Given::random(random));
            let mut samples = given.samples();
            samples[2].1 = TensorView::F32 { shape: &[5], data: &given.gradients[0][..5] };
            assert_eq!(both.device.compute(&it, &samples).unwrap().map(|health| health.loss), None);
            let header = given.health().header(&it, None, false);
            let [left, host] = &mut both.params;
            let got = both.device.follow(&it, left, &given.pushed(), &header).unwrap();
            let want = both.host.follow(&it, host, &given.pushed(), &header).unwrap();
            assert_eq!(got.map(|delta| delta.values[0].to_vec()), want.map(|delta| delta.values[0].to_vec()));
            assert!(both.device.device_failed());
        }
        assert_eq!(both.params[0].values, both.params[1].values);
    }
}

#[test]
fn a_job_at_whose_steps_the_device_has_failed_takes_them_in_this_process_when_it_is_opened_anew() {
    let (context, train) = (context(true), training("local-sgd:4"));
    let run = |generation| RunId { job: "digits".parse().unwrap(), generation };
    let (first, other) = (Generation::first(7), Generation::first(8));
    context.unfit.note(&run(first));
    let suits = |generation| StepsOnDevice::suits(&context.clone(), &run(generation), &train, false);
    assert_eq!([first, first.next(), other].map(suits), [false, false, true]);
    (0..MAX_UNFIT as u32).for_each(|nonce| context.unfit.note(&run(Generation::first(100 + nonce))));
    assert!(suits(first), "the oldest are forgotten");
}

#[test]
fn slots_that_led_to_what_is_not_finite_are_forgotten_on_a_device_too() {
    let random = &mut SplitMix64::new(9);
    for rule in [Optimizer::momentum(), Optimizer::adam()] {
        let mut both = Both::new(rule, None);
        both.begin(1);
        let huge = Given { gradients: [vec![1e18; 6], vec![1e18]], ..Given::random(random) };
        assert_eq!(both.step(&iteration(1, 1, 1, f32::MAX), &huge, "far"), Some(false));
        for params in &mut both.params {
            params.values = vec![1.0; 9];
        }
        both.begin(2);
        let behind = both.step(&iteration(2, 2, 2, 0.1), &Given::random(random), &format!("{rule:?}"));
        assert_eq!(behind, Some(true));
    }
}

/// Batch normalization of the features before two classes.
fn normalized() -> ModelProto {
    let mut graph = GraphBuilder::new("normalized");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into()]);
    let inputs = [("scale", 1.0), ("bias", 0.5), ("mean", 0.0), ("variance", 1.0)]
        .map(|(name, first)| graph.weight(name, &[3], &[first; 3]));
    let [scale, bias, mean, variance] = &inputs;
    let y = graph.op("BatchNormalization", &[&x, scale, bias, mean, variance], &[]);
    let w = graph.weight("v", &[3, 2], &[0.1, -0.1, 0.2, 0.3, -0.4, 0.7]);
    let y = graph.op("MatMul", &[&y, &w], &[]);
    graph.output(&y);
    graph.finish()
}

#[test]
fn models_train_in_rounds_on_a_device_as_in_this_process() {
    for (model, optimizer) in
        [(mlp(&[3, 5, 2], 1), Optimizer::adamw()), (normalized(), Optimizer::nesterov())]
    {
        let options = DeriveOptions::default();
        let graph = derive(&runtime(), &model.to_bytes(), Loss::SoftmaxCrossEntropy, &options).unwrap();
        let trained = graph.params.len();
        let settings = vec![StepSettings::default(); trained];
        let mut params = Parameters { values: Vec::new(), tensors: Vec::new(), trained, settings };
        for param in graph.params.iter().chain(&graph.state) {
            let start = params.values.len() as u64;
            params.values.extend(&param.initial);
            let range = ElementRange { start, end: params.values.len() as u64 };
            let (name, shape) = (param.name.clone(), param.shape.clone());
            params.tensors.push(Tensor { name, shape, range });
        }
        let first_values = params.values.clone();
        let exec = ExecOptions::default();
        let mut replicas =
            Replicas::new(&runtime(), &graph.train_onnx, &exec, BatchCut::default(), &params, DRAWS).unwrap();
        let mut device = on_device(&graph.train_onnx, &params, optimizer, Some(0.8));
        let mut host = LocalSteps::new(optimizer, None);
        let mut own = Parameters {
            values: first_values.clone(),
            tensors: params.tensors.clone(),
            settings: params.settings.clone(),
            ..params
        };
        let mut random = SplitMix64::new(3);
        for seq in 1..=12u64 {
            // Rounds of four steps; the batch changes from round to round.
            let (first, rows) = ((seq - 1) / 4 * 4 + 1, 4 + (seq - 1) / 4);
            let x: Vec<f32> = (0..rows * 3).map(|_| random.normal() as f32).collect();
            let labels: Vec<i64> = (0..rows as usize).map(|row| i64::from(x[row * 3] > 0.0)).collect();
            let shapes = [vec![rows as usize, 3], vec![rows as usize]];
            let samples = vec![
                ("x", TensorView::F32 { shape: &shapes[0], data: &x }),
                ("label", TensorView::I64 { shape: &shapes[1], data: &labels }),
            ];
            let it = iteration(seq, first, first + 3, 0.05);
            if seq == first {
                device.begin(first, &own).unwrap();
                host.begin(first, &params).unwrap();
            }
            let health = device.compute(&it, &samples).unwrap().unwrap();
            device.follow(&it, &mut own, &[], &health.header(&it, Some(0.8), false)).unwrap();
            let step = replicas.run(&samples, &params.inputs().collect()).unwrap();
            let values = step.pushed().unwrap();
            let want = StepHealth::of(&step, &values, params.trained);
            host.follow(&it, &mut params, &values, &want.header(&it, Some(0.8), false)).unwrap();
            assert!((health.loss - want.loss).abs() < 1e-5, "{} for {}", health.loss, want.loss);
            if it.ends_round() {
                assert_close(&own.values, &params.values, &format!("iteration {seq}"));
            }
        }
        assert_ne!(own.values, first_values);
    }
}

#[test]
fn a_device_takes_the_steps_of_local_rounds_unless_the_loss_is_scaled() {
    #[rustfmt::skip]
    let cases = [
        // policy, a device, scaled, whether it suits
        ("local-sgd:4", true,  false, true),
        ("diloco:8",    true,  false, true),
        ("bsp",         true,  false, false),
        ("auto",        true,  false, false),
        ("local-sgd:4", false, false, false),
        ("local-sgd:4", true,  true,  false),
    ];
    for (policy, device, scaled, want) in cases {
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation(1) };
        assert_eq!(
            StepsOnDevice::suits(&context(device), &run, &training(policy), scaled),
            want,
            "{policy}, {device}, {scaled}"
        );
    }
}

#[test]
fn a_device_without_the_memory_leaves_local_steps_to_this_process() {
    let (exec, train) = (ExecOptions::default(), training("local-sgd:4"));
    let run = RunId { job: "digits".parse().unwrap(), generation: Generation(1) };
    let mut huge = params();
    huge.tensors[0].shape = vec![1 << 62];
    for (params, want) in [(params(), true), (huge, false)] {
        let opened = StepsOnDevice::open(&runtime(), &exec, &run, &train, &as_given(), &params, DRAWS);
        assert_eq!(opened.unwrap().is_some(), want);
    }
}

#[test]
fn a_graph_without_a_gradient_is_refused() {
    let mut params = params();
    params.tensors[0].name = "unknown".to_owned();
    let exec = ExecOptions::default();
    let loaded = StepsOnDevice::load(&runtime(), &as_given(), &exec, &params, Optimizer::sgd(), None);
    let error = loaded.err().unwrap();
    assert_eq!(
        error.to_string(),
        "[E352] the training graph does not fit the job: it has no output `unknown.grad`"
    );
}
