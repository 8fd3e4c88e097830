use std::ptr::NonNull;

use ort::memory::MemoryType;

use super::*;
use crate::onnxruntime::runtime;
use crate::page_locks::tests::{floats, locks};
use crate::pinned::{Sent, host_memory};
use syncline_onnx::{ElementType, GraphBuilder};

/// shape = Shape(a), count = Size(a), total = a + b.
fn adder() -> Vec<u8> {
    let mut graph = GraphBuilder::new("adder");
    let a = graph.input("a", ElementType::F32, &["rows".into(), 2.into()]);
    let b = graph.input("b", ElementType::F32, &[2.into()]);
    graph.named("shape", "Shape", &[&a], &[]);
    graph.named("total", "Add", &[&a, &b], &[]);
    graph.output("shape");
    graph.output("total");
    graph.finish().to_bytes()
}

/// As on a device, in ordinary memory.
fn pinned() -> Executable {
    let mut executable = Executable::new(&runtime(), &adder(), &ExecOptions::default()).unwrap();
    executable.pinned = Some(Pinned::new(&executable.session, &ExecOptions::default(), None).unwrap());
    executable
}

fn total(
    executable: &mut Executable,
    a: &[f32],
    b: &[f32],
    changed: &[&str],
) -> Result<Vec<f32>, BackendError> {
    let rows = [a.len() / 2, 2];
    let a = TensorView::F32 { shape: &rows, data: a };
    let b = TensorView::F32 { shape: &[2], data: b };
    let outputs = executable.run_changed(&[("b", b), ("a", a)], |name| changed.contains(&name))?;
    assert_eq!(outputs.i64("shape")?, rows.map(|n| n as i64));
    assert_eq!(outputs.shape("total")?, rows);
    assert_eq!(outputs.f32_at(1)?, outputs.f32("total")?);
    Ok(outputs.f32("total")?.to_vec())
}

#[test]
fn a_device_gets_what_is_new_and_keeps_the_rest() {
    let mut on_device = pinned();
    #[rustfmt::skip]
    let runs = [
        (vec![1.0, 2.0],           [10.0, 20.0], vec!["a", "b"], vec![11.0, 22.0]),
        (vec![3.0, 4.0],           [50.0, 60.0], vec!["a"],      vec![13.0, 24.0]),
        (vec![1.0, 2.0, 3.0, 4.0], [50.0, 60.0], vec!["a", "b"], vec![51.0, 62.0, 53.0, 64.0]),
        (vec![9.0, 9.0, 9.0, 9.0], [50.0, 60.0], vec![],         vec![51.0, 62.0, 53.0, 64.0]),
        (vec![5.0, 6.0],           [50.0, 60.0], vec!["a"],      vec![55.0, 66.0]),
    ];
    for (a, b, changed, want) in runs {
        assert_eq!(total(&mut on_device, &a, &b, &changed).unwrap(), want);
    }
}

#[test]
fn a_device_reads_locked_memory_where_it_lies_and_other_memory_from_a_copy() {
    let runtime = runtime().tried_on(Device::Cpu, Some(locks()));
    let mut executable = Executable::new(&runtime, &adder(), &ExecOptions::default()).unwrap();
    let pinned =
        Pinned::new(&executable.session, &ExecOptions::default(), runtime.page_locks().cloned()).unwrap();
    executable.pinned = Some(pinned);
    let (first, second) = (floats(vec![1.0, 2.0, 3.0, 4.0], true), floats(vec![5.0, 6.0], true));
    let lock = runtime.lock_pages(first.clone()).unwrap();
    let _other = runtime.lock_pages(second.clone()).unwrap();
    let sent = |executable: &Executable| {
        let inputs = &executable.pinned.as_ref().unwrap().inputs;
        inputs.iter().map(|sent| matches!(sent, Some(Sent::InPlace))).collect::<Vec<_>>()
    };
    let b = [10.0, 20.0];
    assert_eq!(total(&mut executable, &first.floats[2..], &b, &[]).unwrap(), [13.0, 24.0]);
    assert_eq!(sent(&executable), [true, false]);
    // Where it lay it may be gone: what reads it where it lies is told again, whatever is said to have
    // changed.
    assert_eq!(total(&mut executable, second.floats, &b, &[]).unwrap(), [15.0, 26.0]);
    drop(lock);
    assert_eq!(total(&mut executable, &first.floats[..2], &b, &["a"]).unwrap(), [11.0, 22.0]);
    assert_eq!(sent(&executable), [false, false]);
}

#[test]
fn the_first_run_sends_everything_whatever_is_said() {
    assert_eq!(total(&mut pinned(), &[1.0, 2.0], &[3.0, 4.0], &[]).unwrap(), [4.0, 6.0]);
}

#[test]
fn a_device_gets_no_tensor_whose_shape_is_wrong() {
    let short = TensorView::F32 { shape: &[3, 2], data: &[1.0] };
    let b = TensorView::F32 { shape: &[2], data: &[1.0, 2.0] };
    let error = pinned().run(&[("a", short), ("b", b)]).unwrap_err();
    assert_eq!(error.code(), "E326", "{error}");
    let wide = TensorView::F32 { shape: &[1, 3], data: &[1.0; 3] };
    let error = pinned().run(&[("a", wide), ("b", b)]).unwrap_err();
    assert_eq!(error.code(), "E327", "{error}");
}

#[test]
fn bytes_and_truth_values_go_to_a_device_and_come_back() {
    let mut graph = GraphBuilder::new("masked");
    let (pixels, mask) = (
        graph.input("pixels", ElementType::U8, &["n".into()]),
        graph.input("mask", ElementType::Bool, &["n".into()]),
    );
    for (name, op, input) in [("same", "Identity", &pixels), ("rest", "Not", &mask)] {
        let output = graph.named(name, op, &[input], &[]);
        graph.output(&output);
    }
    let onnx = graph.finish().to_bytes();
    let mut on_cpu = Executable::new(&runtime(), &onnx, &ExecOptions::default()).unwrap();
    let mut on_device = Executable::new(&runtime(), &onnx, &ExecOptions::default()).unwrap();
    on_device.pinned = Some(Pinned::new(&on_device.session, &ExecOptions::default(), None).unwrap());
    for executable in [&mut on_cpu, &mut on_device] {
        let pixels = TensorView::U8 { shape: &[3], data: &[0, 7, 255] };
        let mask = TensorView::Bool { shape: &[3], data: &[true, false, true] };
        let outputs = executable.run(&[("pixels", pixels), ("mask", mask)]).unwrap();
        let (mut shape, mut other) = (Vec::new(), Vec::new());
        let same = outputs.view_at(0, &mut shape).unwrap();
        assert!(matches!(same, TensorView::U8 { shape: [3], data: [0, 7, 255] }), "{same:?}");
        let rest = outputs.view_at(1, &mut other).unwrap();
        assert!(matches!(rest, TensorView::Bool { data: [false, true, false], .. }), "{rest:?}");
        assert_eq!(outputs.view_at(2, &mut Vec::new()).unwrap_err().code(), "E328");
    }
}

/// Floats that stay where they are.
#[derive(Debug)]
struct Fixed(NonNull<f32>, usize);

// SAFETY: made of leaked memory, which only the executable of one test writes.
#[expect(unsafe_code, reason = "a place for outputs")]
unsafe impl Send for Fixed {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a place for outputs")]
unsafe impl Sync for Fixed {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a place for outputs")]
unsafe impl OutputMemory for Fixed {
    fn base(&self) -> NonNull<f32> {
        self.0
    }

    fn elements(&self) -> usize {
        self.1
    }
}

#[test]
fn an_output_is_written_where_it_was_placed_in_every_run_and_the_others_as_before() {
    let on_cpu = Executable::new(&runtime(), &adder(), &ExecOptions::default()).unwrap();
    writes_where_it_was_placed(on_cpu);
    writes_where_it_was_placed(pinned());
}

fn writes_where_it_was_placed(mut executable: Executable) {
    let floats = Box::leak(vec![7.0f32; 8].into_boxed_slice());
    let memory = Arc::new(Fixed(NonNull::from(&mut floats[0]), 8));
    let beyond = [OutputPlace { name: "total", shape: &[2, 2], start: 5 }];
    assert_eq!(executable.place_outputs(memory.clone(), &beyond).unwrap_err().code(), "E327");
    let place = [OutputPlace { name: "total", shape: &[2, 2], start: 3 }];
    executable.place_outputs(memory.clone(), &place).unwrap();
    for step in [0.0, 10.0, 20.0] {
        let a = TensorView::F32 { shape: &[2, 2], data: &[1.0, 2.0, 3.0, 4.0] };
        let b = TensorView::F32 { shape: &[2], data: &[step, 0.5] };
        let outputs = executable.run(&[("a", a), ("b", b)]).unwrap();
        let total = outputs.f32("total").unwrap();
        assert_eq!(
            (total, total.as_ptr()),
            (&[1.0 + step, 2.5, 3.0 + step, 4.5][..], memory.0.as_ptr().wrapping_add(3).cast_const())
        );
        assert_eq!(outputs.i64("shape").unwrap(), [2, 2]);
        assert_eq!(outputs.f32_at(1).unwrap(), outputs.f32("total").unwrap(), "outputs stay in order");
    }
    let a = TensorView::F32 { shape: &[1, 2], data: &[1.0, 2.0] };
    let b = TensorView::F32 { shape: &[2], data: &[0.0, 0.0] };
    assert_eq!(executable.run(&[("a", a), ("b", b)]).unwrap_err().code(), "E327", "another shape");
}

#[test]
fn this_process_can_read_what_a_device_writes() {
    let _runtime = runtime();
    for device in [Device::Cpu, Device::Cuda(1)] {
        for ty in [MemoryType::CPUInput, MemoryType::CPUOutput] {
            assert!(host_memory(device, ty).unwrap().is_cpu_accessible(), "{device} {ty:?}");
        }
    }
}

#[test]
fn every_node_is_placed_and_counted() {
    let executable = Executable::new(&runtime(), &adder(), &ExecOptions::default()).unwrap();
    assert_eq!(executable.placement().to_string(), "2 nodes on CPUExecutionProvider");
}

#[test]
fn a_gpu_that_cannot_be_used_is_refused() {
    let options = ExecOptions { device: Device::Cuda(255), ..ExecOptions::default() };
    let error = Executable::new(&runtime(), &adder(), &options).unwrap_err();
    assert_eq!(error.code(), "E494", "{error}");
    assert!(error.to_string().starts_with("[E494] cannot compute on cuda:255: "), "{error}");
}

#[test]
fn inputs_are_found_in_whatever_order_they_come_and_were_found_before() {
    let mut executable = Executable::new(&runtime(), &adder(), &ExecOptions::default()).unwrap();
    let (shape, a, b) = ([1, 2], [1.0, 2.0], [10.0, 20.0]);
    let a = ("a", TensorView::F32 { shape: &shape, data: &a });
    let b = ("b", TensorView::F32 { shape: &shape[1..], data: &b });
    for inputs in [[a, b], [b, a], [b, a], [a, b]] {
        assert_eq!(executable.run(&inputs).unwrap().f32("total").unwrap(), [11.0, 22.0]);
    }
    for (inputs, code) in [(vec![b], "E325"), (vec![b, a, a], "E325"), (vec![], "E325")] {
        assert_eq!(executable.run(&inputs).unwrap_err().code(), code);
    }
    assert!(executable.run(&[b, a]).is_ok());
}

/// A field of a protobuf message that is a message or a text, of fewer than 128 bytes.
fn field(number: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    assert!(number < 32 && content.len() < 128);
    let key = u16::from(number) << 3 | 2;
    let key = if key < 128 { vec![key as u8] } else { vec![key as u8 | 128, (key >> 7) as u8] };
    [key, vec![content.len() as u8], content.to_vec()].concat()
}

#[test]
fn a_sparse_tensor_that_names_a_file_is_refused_wherever_it_lies() {
    let place = [field(1, "location"), field(2, "etc/passwd")].concat();
    let (bytes_of_4, uint8, external) = ([0x08, 4], [0x10, 2], [0x70, 1]);
    let values = [&bytes_of_4[..], &uint8, &field(13, place), &external].concat();
    let sparse = field(1, values);
    let attribute = |of: u8| [field(1, "sparse_value"), field(of, &sparse)].concat();
    let constant = |of: u8| [field(2, "leak"), field(4, "Constant"), field(5, attribute(of))].concat();
    let in_graph = |part: Vec<u8>| field(7, part);
    let cases = [
        ("a constant", in_graph(field(1, constant(22)))),
        ("a list", in_graph(field(1, constant(23)))),
        ("an initializer", in_graph(field(15, &sparse))),
        ("a function", field(25, field(7, constant(22)))),
    ];
    for (name, part) in cases {
        // Two halves of one message are read as one.
        let onnx = [adder(), part].concat();
        let error = Executable::new(&runtime(), &onnx, &ExecOptions::default()).unwrap_err();
        assert_eq!(error.code(), "E615", "{name}: {error}");
    }
}

#[test]
fn onnx_runtime_sees_only_what_was_read() {
    let onnx = [adder(), field(6, "documentation, which nobody reads")].concat();
    let executable = Executable::new(&runtime(), &onnx, &ExecOptions::default()).unwrap();
    assert_eq!(executable.session.metadata().unwrap().description().unwrap_or_default(), "");
}

#[test]
fn sequences_that_a_model_declares_are_loaded() {
    let mut graph = GraphBuilder::new("sequence");
    let x = graph.input("x", ElementType::F32, &[2.into()]);
    let both = graph.op("SequenceConstruct", &[&x, &x], &[]);
    let joined = graph.op("ConcatFromSequence", &[&both], &[syncline_onnx::attr_int("axis", 0)]);
    graph.output(&joined);
    let tensor = field(1, [0x08, 1]);
    let ty = field(4, field(1, tensor));
    let info = [field(1, &both), field(2, ty)].concat();
    let onnx = [graph.finish().to_bytes(), field(7, field(13, info))].concat();
    let mut executable = Executable::new(&runtime(), &onnx, &ExecOptions::default()).unwrap();
    let x = TensorView::F32 { shape: &[2], data: &[1.0, 2.0] };
    assert_eq!(executable.run(&[("x", x)]).unwrap().f32(&joined).unwrap(), [1.0, 2.0, 1.0, 2.0]);
}
