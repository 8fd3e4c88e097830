use syncline_onnx::{ElementType, GraphBuilder};

use super::*;
use crate::onnxruntime::runtime;

fn kept(name: &str, elements: usize) -> KeptValue {
    KeptValue { input: name.to_owned(), output: format!("{name}.next"), shape: vec![elements] }
}

/// sum' = sum + x[at], steps' = steps + sum, both of one element; reports sum' twice. An `at` outside of x
/// fails the run.
fn counter() -> Resident {
    let mut graph = GraphBuilder::new("counter");
    let sum = graph.input("sum", ElementType::F32, &[1.into()]);
    let steps = graph.input("steps", ElementType::F32, &[1.into()]);
    let x = graph.input("x", ElementType::F32, &["n".into()]);
    let at = graph.input("at", ElementType::I64, &[1.into()]);
    graph.named("steps.next", "Add", &[&steps, &sum], &[]);
    let x = graph.op("Gather", &[&x, &at], &[]);
    graph.named("sum.next", "Add", &[&sum, &x], &[]);
    graph.named("twice", "Add", &["sum.next", "sum.next"], &[]);
    ["steps.next", "sum.next", "twice"].iter().for_each(|output| graph.output(output));
    let kept = vec![kept("sum", 1), kept("steps", 1)];
    let reported = [ReportedValue { output: "twice".into(), shape: vec![1] }];
    let onnx = graph.finish().to_bytes();
    Resident::new(&runtime(), &onnx, &ExecOptions::default(), kept, &reported).unwrap()
}

fn set(resident: &mut Resident, index: usize, value: f32) {
    resident.set(index, TensorView::F32 { shape: &[1], data: &[value] }).unwrap();
}

fn begun(sum: f32) -> Resident {
    let mut resident = counter();
    set(&mut resident, 0, sum);
    resident.clear(1);
    resident
}

fn run(resident: &mut Resident, x: f32, fetch: usize) -> Result<f32, BackendError> {
    run_at(resident, &[x], 0, fetch)
}

fn run_at(resident: &mut Resident, x: &[f32], at: i64, fetch: usize) -> Result<f32, BackendError> {
    let (shape, at) = ([x.len()], [at]);
    let x = ("x", TensorView::F32 { shape: &shape, data: x });
    let at = ("at", TensorView::I64 { shape: &[1], data: &at });
    resident.run(&[x, at], fetch)?;
    Ok(resident.reported(0)?[0])
}

#[test]
fn what_a_committed_run_gives_the_next_one_reads() {
    let mut resident = begun(10.0);
    let places = |resident: &Resident| {
        let data = |n: usize| resident.kept[0].on_device[n].try_extract_tensor::<f32>().unwrap().1.as_ptr();
        [data(0), data(1)]
    };
    let before = places(&resident);
    for (x, want) in [(1.0, 11.0), (2.0, 13.0), (3.0, 16.0), (4.0, 20.0)] {
        assert_eq!(run(&mut resident, x, 0).unwrap(), 2.0 * want);
        resident.commit();
        let now = resident.kept[0].on_device[resident.current].try_extract_tensor::<f32>().unwrap().1[0];
        assert_eq!(now, want, "it lies where the next run reads");
    }
    assert_eq!(places(&resident), before, "two places take turns");
    run(&mut resident, 0.0, 2).unwrap();
    // 0 + 10 + 11 + 13 + 16 + 20
    assert_eq!((resident.fetched(0).unwrap(), resident.fetched(1).unwrap()), (&[20.0][..], &[70.0][..]));
}

#[test]
fn a_run_that_is_not_committed_never_was() {
    let mut resident = begun(10.0);
    for _ in 0..3 {
        assert_eq!(run(&mut resident, 1.0, 0).unwrap(), 22.0, "what was set is still to be read");
    }
    resident.commit();
    resident.commit();
    for _ in 0..3 {
        assert_eq!(run(&mut resident, 1.0, 1).unwrap(), 24.0);
        assert_eq!(resident.fetched(0).unwrap(), [12.0]);
    }
}

#[test]
fn a_run_that_fails_in_the_middle_leaves_the_state_as_it_was() {
    let mut resident = begun(10.0);
    assert_eq!(run_at(&mut resident, &[1.0], 5, 0).unwrap_err().code(), "E327");
    resident.commit();
    assert_eq!(run(&mut resident, 1.0, 0).unwrap(), 22.0);
    resident.commit();
    let error = run_at(&mut resident, &[7.0, 8.0], 5, 2).unwrap_err();
    assert_eq!(error.code(), "E327", "{error}");
    resident.commit();
    assert_eq!(run(&mut resident, 2.0, 2).unwrap(), 26.0);
    assert_eq!(resident.fetched(1).unwrap(), [21.0]);
}

#[test]
fn what_was_fetched_has_to_be_set_again_and_the_rest_goes_on() {
    let mut resident = begun(10.0);
    assert_eq!(run(&mut resident, 1.0, 1).unwrap(), 22.0);
    assert_eq!(resident.fetched(0).unwrap(), [11.0]);
    resident.commit();
    let error = run(&mut resident, 1.0, 1).unwrap_err();
    assert_eq!(error.to_string(), "[E325] input `sum` was given 0 times");
    set(&mut resident, 0, 100.0);
    assert_eq!(resident.fetched(0).unwrap(), [11.0], "what comes does not lie where what goes lies");
    assert_eq!(run(&mut resident, 1.0, 2).unwrap(), 202.0);
    assert_eq!(resident.fetched(1).unwrap(), [110.0]);
    resident.commit();
    set(&mut resident, 0, 1.0);
    resident.clear(1);
    run(&mut resident, 0.0, 2).unwrap();
    assert_eq!(resident.fetched(1).unwrap(), [1.0], "cleared");
}

#[test]
fn an_input_may_have_another_shape_in_every_run_and_must_be_given() {
    let mut resident = begun(0.0);
    for (x, at, want) in [(&[1.0][..], 0, 2.0), (&[1.0, 5.0], 1, 10.0), (&[7.0], 0, 14.0)] {
        assert_eq!(run_at(&mut resident, x, at, 0).unwrap(), want);
    }
    assert_eq!(resident.run(&[], 0).unwrap_err().code(), "E325");
    let short = ("x", TensorView::F32 { shape: &[2], data: &[1.0] });
    assert_eq!(resident.run(&[short], 0).unwrap_err().code(), "E326");
}

#[test]
fn a_kept_value_has_one_shape() {
    let mut resident = begun(0.0);
    let error = resident.set(0, TensorView::F32 { shape: &[2], data: &[1.0, 2.0] }).unwrap_err();
    assert!(error.to_string().contains("`sum` is kept in shape [1], and given as [2]"), "{error}");
    assert_eq!(resident.set(0, TensorView::F32 { shape: &[1], data: &[] }).unwrap_err().code(), "E326");
    assert_eq!(resident.fetched(0).unwrap_err().code(), "E328", "nothing was fetched yet");
    assert_eq!(resident.reported(1).unwrap_err().code(), "E328");
}

#[test]
fn state_for_which_there_is_no_memory_is_refused_when_the_model_is_loaded() {
    let mut graph = GraphBuilder::new("huge");
    let state = graph.input("state", ElementType::F32, &["n".into()]);
    graph.named("state.next", "Neg", &[&state], &[]);
    graph.output("state.next");
    let onnx = graph.finish().to_bytes();
    let loaded = Resident::new(&runtime(), &onnx, &ExecOptions::default(), vec![kept("state", 1 << 62)], &[]);
    assert_eq!(loaded.unwrap_err().code(), "E327");
}
