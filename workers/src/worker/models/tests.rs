//! Models on a real ONNX Runtime, with files from memory.

use std::{collections::BTreeMap, thread};
use syncline_ps::content::digest_of;
use syncline_scheduler::ids::ContentDigest;

use syncline_onnx::{ElementType, GraphBuilder, ModelProto, attr_int};
use syncline_rpc::ShardFault;

use super::*;
use crate::onnxruntime::runtime;

/// total = a + b, for `a` of rows of two.
fn adder() -> ModelProto {
    let mut graph = GraphBuilder::new("adder");
    let a = graph.input("a", ElementType::F32, &["rows".into(), 2.into()]);
    let b = graph.input("b", ElementType::F32, &[2.into()]);
    let total = graph.named("total", "Add", &[&a, &b], &[]);
    graph.output(&total);
    graph.finish()
}

/// The input as another type, which is its only output.
fn cast(from: ElementType, to: ElementType) -> ModelProto {
    let mut graph = GraphBuilder::new("cast");
    let x = graph.input("x", from, &["n".into()]);
    let y = graph.named("y", "Cast", &[&x], &[attr_int("to", to.code().into())]);
    graph.output(&y);
    graph.finish()
}

/// A worker's models, and the files that the shards have.
struct Rig {
    models: Models,
    files: BTreeMap<ContentDigest, Vec<u8>>,
}

impl Rig {
    fn new() -> Self {
        Self::with(DeviceWatch::new(&runtime(), Device::Cpu))
    }

    fn with(device: DeviceWatch) -> Self {
        Self { models: Models::new(runtime(), ExecOptions::default(), device), files: BTreeMap::new() }
    }

    fn upload(&mut self, file: Vec<u8>) -> OnnxModel {
        let model = OnnxModel::new(digest_of(&file));
        self.files.insert(model.digest(), file);
        model
    }

    fn run(&self, model: &OnnxModel, inputs: &[Tensor]) -> Result<Vec<Tensor>, ModelFault> {
        self.models.run(model, inputs, &StopFlag::default(), |digest| {
            self.files
                .get(&digest)
                .cloned()
                .ok_or(PsError::Refused { fault: ShardFault::MissingBlob { digest } })
        })
    }

    /// How many sessions are loaded for a model, none of them in use.
    fn loaded(&self, model: &OnnxModel) -> usize {
        let entry = self.models.0.kept.entry(model);
        let taken: Vec<_> = std::iter::from_fn(|| entry.take()).collect();
        let count = taken.len();
        taken.into_iter().for_each(|loaded| self.models.0.kept.give_back(&entry, loaded));
        count
    }
}

fn floats(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::new(shape, values.to_vec()).unwrap()
}

#[test]
fn two_models_on_one_worker_are_each_loaded_once() {
    let mut rig = Rig::new();
    let adder = rig.upload(adder().to_bytes());
    let to_int = rig.upload(cast(ElementType::F32, ElementType::I64).to_bytes());
    for rows in [1, 3, 2] {
        let inputs = [floats(&[rows, 2], &vec![1.0; rows * 2]), floats(&[2], &[10.0, 20.0])];
        let total = rig.run(&adder, &inputs).unwrap();
        assert_eq!(total, [floats(&[rows, 2], &[11.0, 21.0].repeat(rows))]);
        let ints = rig.run(&to_int, &[floats(&[2], &[1.5, -2.5])]).unwrap();
        assert_eq!(ints, [Tensor::new([2], vec![1i64, -2]).unwrap()]);
    }
    assert_eq!((rig.loaded(&adder), rig.loaded(&to_int)), (1, 1));
}

#[test]
fn a_model_is_loaded_at_most_once_for_each_task_at_a_time() {
    let mut rig = Rig::new();
    let model = rig.upload(adder().to_bytes());
    let inputs = [floats(&[1, 2], &[1.0, 2.0]), floats(&[2], &[3.0, 4.0])];
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(rig.run(&model, &inputs).unwrap(), [floats(&[1, 2], &[4.0, 6.0])]);
                }
            });
        }
    });
    assert!((1..=3).contains(&rig.loaded(&model)));
}

#[test]
fn tensors_of_every_type_go_in_and_come_out() {
    let mut rig = Rig::new();
    let floats = floats(&[2], &[0.0, 1.0]);
    let others = [
        Tensor::new([2], vec![0.0f64, 1.0]).unwrap(),
        Tensor::new([2], vec![0i32, 1]).unwrap(),
        Tensor::new([2], vec![0i64, 1]).unwrap(),
        Tensor::new([2], vec![0u8, 1]).unwrap(),
        Tensor::new([2], vec![false, true]).unwrap(),
    ];
    for other in others {
        let there = rig.upload(cast(ElementType::F32, other.element()).to_bytes());
        let back = rig.upload(cast(other.element(), ElementType::F32).to_bytes());
        assert_eq!(rig.run(&there, std::slice::from_ref(&floats)).unwrap(), std::slice::from_ref(&other));
        assert_eq!(rig.run(&back, &[other]).unwrap(), std::slice::from_ref(&floats));
    }
}

#[test]
fn wrong_inputs_are_refused_by_name_and_the_model_stays_usable() {
    let mut rig = Rig::new();
    let model = rig.upload(adder().to_bytes());
    let (a, b) = (floats(&[1, 2], &[1.0, 2.0]), floats(&[2], &[3.0, 4.0]));
    let ints = Tensor::new([2], vec![3i64, 4]).unwrap();
    #[rustfmt::skip]
    let cases = [
        ("none",       vec![],                             "[E450] the model has 2 inputs (a, b), it is given 0"),
        ("too many",   vec![a.clone(), b.clone(), b.clone()], "[E450] the model has 2 inputs (a, b), it is given 3"),
        ("other type", vec![a.clone(), ints],              "[E451] input `b` of the model is float32 [2], it is given int64 [2]"),
        ("other size", vec![floats(&[1, 3], &[0.0; 3]), b.clone()],
                       "[E451] input `a` of the model is float32 [rows, 2], it is given float32 [1, 3]"),
        ("other rank", vec![b.clone(), b.clone()],         "[E451] input `a` of the model is float32 [rows, 2], it is given float32 [2]"),
    ];
    for (name, inputs, message) in cases {
        let fault = rig.run(&model, &inputs).unwrap_err();
        assert!(
            fault.to_string().starts_with(message) && message.contains(&fault.code().to_string()),
            "{name}: {fault}"
        );
    }
    assert!(rig.run(&model, &[a, b]).is_ok());
    assert_eq!(rig.loaded(&model), 1);
}

#[test]
fn what_is_no_model_and_what_gives_no_tensors_has_a_code() {
    let mut rig = Rig::new();
    let mut unknown = adder();
    unknown.graph.as_mut().unwrap().node[0].op_type = "NoSuchOperator".into();
    let cases = [
        (rig.upload(b"no model".to_vec()), vec![], "E302"),
        (rig.upload(unknown.to_bytes()), vec![], "E323"),
        (rig.upload(cast(ElementType::F32, ElementType::F16).to_bytes()), vec![floats(&[1], &[1.0])], "E449"),
        (OnnxModel::new(digest_of(b"nowhere")), vec![], "E404"),
    ];
    for (model, inputs, code) in cases {
        let fault = rig.run(&model, &inputs).unwrap_err();
        assert_eq!(fault.code().to_string(), code, "{fault}");
        assert!(fault.to_string().contains(&format!("[{code}]")), "{fault}");
    }
}

#[test]
fn a_model_that_fails_in_the_words_of_a_device_has_that_tried() {
    let mut graph = GraphBuilder::new("gather");
    let x = graph.input("x", ElementType::F32, &["n".into()]);
    let ids = graph.input("ids", ElementType::I64, &["k".into()]);
    let y = graph.named("y", "Gather", &[&x, &ids], &[]);
    graph.output(&y);
    let mut model = graph.finish();
    // ONNX Runtime names the node of a failed run.
    model.graph.as_mut().unwrap().node[0].name = "CUDA failure 700".into();
    let (tried, trials) = std::sync::mpsc::channel();
    let mut rig = Rig::with(DeviceWatch::with_trial(Device::Cuda(0), move || {
        tried.send(()).unwrap();
        None
    }));
    let model = rig.upload(model.to_bytes());
    let run =
        |index: i64| rig.run(&model, &[floats(&[2], &[1.0, 2.0]), Tensor::new([1], vec![index]).unwrap()]);
    assert_eq!(run(1).unwrap(), [floats(&[1], &[2.0])]);
    assert!(trials.try_recv().is_err(), "nothing has failed");
    assert_eq!(run(9).unwrap_err().code(), "E327");
    assert_eq!(trials.try_iter().count(), 1);
}

#[cfg(feature = "train")]
#[test]
fn what_a_cpu_refuses_in_a_trial_may_run_on_a_gpu_and_what_ends_the_process_may_not() {
    use syncline_scheduler::fault_code::FaultCode;

    use crate::isolation::ChildError;

    let refused = |code| {
        let text = format!("[{code}] words");
        Err(ModelError::Child(ChildError { code: FaultCode::new(code), text, hint: None }))
    };
    let crashed = || ModelError::Crashed {
        model: "m".into(),
        how: "signal 11 (SIGSEGV)".into(),
        stage: "load".into(),
        node: String::new(),
        words: String::new(),
    };
    #[rustfmt::skip]
    let cases = [
        (Device::Cuda(0), Ok(()),          None),
        (Device::Cuda(0), refused("E323"), None),
        (Device::Cpu,     refused("E323"), Some("E323")),
        (Device::Cuda(0), refused("E302"), Some("E302")),
        (Device::Cuda(0), refused("E498"), Some("E498")),
        (Device::Cuda(0), Err(crashed()),  Some("E254")),
    ];
    for (device, tried, want) in cases {
        let error = said_for(device, tried).err().map(|error| error.code().to_string());
        assert_eq!(error.as_deref(), want, "{device}");
    }
}
