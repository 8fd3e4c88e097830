//! Registered functions as a worker calls them: every form, and everything that can go wrong.

use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use syncline_scheduler::{
    fault_code::FaultCode,
    ids::SubmissionId,
    tasks::{Arg, Failure, FailureCause, Outcome, TaskIndex, TaskOrder, TaskRef},
};

use super::{
    ArgumentError, CallFault, CallOptions, Context, Function, FunctionError, GraphParts, Next, OwnCluster,
    RegisteredTwice, Registry, StopFlag, TaskGraph, Urgency, registry::CallOutput,
};

const ADD: Function<(u64, u64), u64> = Function::new("add");

fn context() -> Context {
    let key = SubmissionId { job: "job".parse().unwrap(), nonce: 7 };
    Context::new(
        Arc::new(key),
        &order(false),
        Arc::default(),
        Arc::default(),
        Arc::new(OwnCluster::nowhere()),
    )
}

fn order(is_shown: bool) -> TaskOrder {
    TaskOrder { task: TaskIndex(3), attempt: 2, args: Vec::new(), after: Vec::new(), is_shown }
}

/// Calls the only function of a registry with an input, and what it added.
fn call_with(registry: &Registry, context: &Context, input: &[u8]) -> Result<CallOutput, CallFault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let id = registry.ids().pop_first().unwrap();
    let given = registry.get(&id).unwrap().call(context, input, runtime.handle());
    given.map(|given| given.expect("nobody asked it to stop"))
}

fn call(registry: &Registry, input: &impl Serialize) -> Result<CallOutput, CallFault> {
    call_with(registry, &context(), &postcard::to_stdvec(input).unwrap())
}

/// What a registry with one function gives for an input.
macro_rules! given {
    ($types:ty => $out:ty, $register:ident, $function:expr, $input:expr) => {{
        let mut registry = Registry::new();
        registry.$register(Function::<$types, $out>::new("f"), $function).unwrap();
        call(&registry, &$input)
    }};
}

fn value<T: Serialize>(value: T) -> CallOutput {
    CallOutput::Value(postcard::to_stdvec(&value).unwrap(), None)
}

fn add(a: u64, b: u64) -> u64 {
    a + b
}

fn add_here(context: &Context, a: u64, b: u64) -> u64 {
    a + b + u64::from(context.attempt()) * 1_000
}

async fn add_later(a: u64, b: u64) -> u64 {
    tokio::task::yield_now().await;
    a + b
}

async fn add_later_here(context: &Context, a: u64, b: u64) -> Result<u64, String> {
    tokio::task::yield_now().await;
    if context.canceled() { Err("canceled".into()) } else { Ok(a + b) }
}

#[test]
fn functions_of_every_number_of_parameters_are_called() {
    assert_eq!(given!(() => u8, register, || 1u8, ()).unwrap(), value(1u8));
    assert_eq!(given!((u8,) => u8, register, |a: u8| a, (1u8,)).unwrap(), value(1u8));
    assert_eq!(given!((u64, u64) => u64, register, add, (1u64, 2u64)).unwrap(), value(3u64));
    let three = |a: String, b: Vec<u32>, c: Option<bool>| format!("{a}{b:?}{c:?}");
    let input = ("a".to_owned(), vec![1u32, 300], Some(true));
    let text = "a[1, 300]Some(true)".to_owned();
    assert_eq!(
        given!((String, Vec<u32>, Option<bool>) => String, register, three, input).unwrap(),
        value(text)
    );
    let four = |a: u8, b: u8, c: u8, d: u8| [a, b, c, d];
    assert_eq!(
        given!((u8, u8, u8, u8) => [u8; 4], register, four, (1u8, 2u8, 3u8, 4u8)).unwrap(),
        value([1u8, 2, 3, 4])
    );
    let five = |a: u8, b: u8, c: u8, d: u8, e: u8| a + b + c + d + e;
    assert_eq!(
        given!((u8, u8, u8, u8, u8) => u8, register, five, (1u8, 2u8, 3u8, 4u8, 5u8)).unwrap(),
        value(15u8)
    );
    let six = |a: u8, b: u8, c: u8, d: u8, e: u8, f: u8| a + b + c + d + e + f;
    assert_eq!(given!((u8, u8, u8, u8, u8, u8) => u8, register, six, [1u8; 6]).unwrap(), value(6u8));
}

#[test]
fn functions_may_ask_for_their_context() {
    assert_eq!(given!((u64, u64) => u64, register, add_here, (1u64, 2u64)).unwrap(), value(2_003u64));
    let name = |context: &Context| format!("{context:?}");
    let text = "task 3 of job job, attempt 2".to_owned();
    assert_eq!(given!(() => String, register, name, ()).unwrap(), value(text));
    let six = |context: &Context, a: u8, _: u8, _: u8, _: u8, _: u8, f: u8| a + f + context.attempt() as u8;
    assert_eq!(given!((u8, u8, u8, u8, u8, u8) => u8, register, six, [1u8; 6]).unwrap(), value(4u8));
}

#[test]
fn a_function_is_called_in_a_unit_test_without_a_cluster() {
    let context = Context::for_test();
    assert_eq!(format!("{context:?}"), "task 0 of job test, attempt 1");
    assert_eq!((add_here(&context, 1, 2), context.canceled()), (1_003, false));
    assert!(context.call(ADD, (1, 2)).is_ok());
    let mut graph = TaskGraph::new("a");
    graph.call(ADD, (1, 2));
    assert_eq!(context.submit_tasks(&graph).unwrap_err().code(), FaultCode::new("E300"));
}

#[test]
fn functions_may_be_async() {
    assert_eq!(given!((u64, u64) => u64, register_async, add_later, (1u64, 2u64)).unwrap(), value(3u64));
    assert_eq!(given!((u64, u64) => u64, register_async, add_later_here, (1u64, 2u64)).unwrap(), value(3u64));
    let closure = async |a: u8| Next::Value(a + 1);
    assert_eq!(given!((u8,) => u8, register_async, closure, (1u8,)).unwrap(), value(2u8));
    let closure = async |context: &Context| context.attempt();
    assert_eq!(given!(() => u16, register_async, closure, ()).unwrap(), value(2u16));
}

#[test]
fn an_async_function_that_waits_is_dropped_when_it_is_to_stop() {
    let mut registry = Registry::new();
    registry
        .register_async(Function::<(), u8>::new("f"), async || std::future::pending::<u8>().await)
        .unwrap();
    let stop = Arc::new(StopFlag::default());
    let key = SubmissionId { job: "job".parse().unwrap(), nonce: 7 };
    let context = Context::new(
        Arc::new(key),
        &order(false),
        stop.clone(),
        Arc::default(),
        Arc::new(OwnCluster::nowhere()),
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let function = registry.get(&registry.ids().pop_first().unwrap()).unwrap();
    std::thread::scope(|threads| {
        let called = threads.spawn(|| function.call(&context, &[], runtime.handle()).unwrap());
        stop.ask(Urgency::Now);
        assert_eq!(called.join().unwrap(), None);
    });
}

#[test]
fn what_functions_return_table() {
    let half = |n: u64| if n.is_multiple_of(2) { Ok(n / 2) } else { Err(format!("{n} is odd")) };
    assert_eq!(given!((u64,) => u64, register, half, (4u64,)).unwrap(), value(2u64));
    let odd = given!((u64,) => u64, register, half, (5u64,)).unwrap_err();
    assert_eq!(odd.to_string(), "[E440] f failed: 5 is odd");
    let result = |n: u64| -> Result<u64, String> { Ok(n) };
    assert_eq!(
        given!((u64,) => Result<u64, String>, register, result, (4u64,)).unwrap(),
        value(Ok::<u64, String>(4))
    );
    assert_eq!(given!(() => u64, register, || Next::Value(1u64), ()).unwrap(), value(1u64));
    assert_eq!(given!(() => u64, register, || Next::<u64>::Skip, ()).unwrap(), CallOutput::Nothing);
    let child = |context: &Context, n: u64| -> Result<Next<u64>, ArgumentError> {
        context.call(ADD, (n, 1))?;
        Ok(Next::Of(context.call(ADD, (n, 2))?))
    };
    assert_eq!(given!((u64,) => u64, register, child, (4u64,)).unwrap(), CallOutput::Added(1));
    let failed: fn() -> Result<Next<u64>, &'static str> = || Err("no");
    assert_eq!(given!(() => u64, register, failed, ()).unwrap_err().to_string(), "[E440] f failed: no");
}

#[test]
fn a_result_that_people_may_look_at_has_a_preview_unless_it_is_nothing() {
    let key = Arc::new(SubmissionId { job: "job".parse().unwrap(), nonce: 7 });
    let shown = |registry: &Registry| {
        let context = Context::new(
            key.clone(),
            &order(true),
            Arc::default(),
            Arc::default(),
            Arc::new(OwnCluster::nowhere()),
        );
        match call_with(registry, &context, &[]).unwrap() {
            CallOutput::Value(_, preview) => preview.map(|preview| preview.to_string()),
            other => panic!("{other:?}"),
        }
    };
    let mut registry = Registry::new();
    registry.register(Function::<(), Vec<u8>>::new("f"), || vec![1, 2]).unwrap();
    assert_eq!(shown(&registry).as_deref(), Some("[1,2]"));
    let mut registry = Registry::new();
    registry.register(Function::<(), ()>::new("f"), || {}).unwrap();
    assert_eq!(shown(&registry), None);
}

#[test]
fn an_error_is_reported_with_its_causes() {
    let failed = || -> Result<u64, anyhow_like::Error> { Err(anyhow_like::Error) };
    let fault = given!(() => u64, register, failed, ()).unwrap_err();
    let Outcome::Failed(Failure { cause, code, reason }) = fault.into() else {
        panic!("it may be tried again")
    };
    assert_eq!(
        (cause, code.to_string().as_str(), reason.as_str()),
        (FailureCause::Function, "E440", "[E440] f failed: a: b")
    );
}

#[test]
fn only_an_error_that_says_so_ends_a_task_for_good() {
    let parsed = |text: String| -> Result<u64, FunctionError> {
        let n: u64 = text.parse().map_err(FunctionError::no_retry)?;
        if n == 0 {
            Err("it is 0")?
        }
        Ok(n)
    };
    let failed = |text: &str| {
        let fault = given!((String,) => u64, register, parsed, (text.to_owned(),)).unwrap_err();
        Outcome::from(fault)
    };
    let Outcome::FailedForGood(failure) = failed("x") else { panic!("another attempt parses the same text") };
    assert_eq!(failure.reason, "[E440] f failed: invalid digit found in string");
    let Outcome::Failed(failure) = failed("0") else { panic!("only what `no_retry` has made is final") };
    assert_eq!(failure.reason, "[E440] f failed: it is 0");
    assert_eq!(given!((String,) => u64, register, parsed, ("7".to_owned(),)).unwrap(), value(7u64));
    let later = async || -> Result<Next<u64>, FunctionError> { Err(FunctionError::no_retry("no")) };
    let fault = given!(() => u64, register_async, later, ()).unwrap_err();
    assert!(matches!(Outcome::from(fault), Outcome::FailedForGood(_)));
}

/// As `anyhow` does: causes in the long form alone.
mod anyhow_like {
    use std::fmt;

    pub(super) struct Error;

    impl fmt::Display for Error {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(if f.alternate() { "a: b" } else { "a" })
        }
    }
}

#[test]
fn a_panic_fails_the_attempt_and_names_its_place() {
    let line = line!() + 1;
    let fault = given!((u64,) => u64, register, |n: u64| -> u64 { panic!("no {n}") }, (4u64,)).unwrap_err();
    assert_eq!(fault.to_string(), format!("[E441] f panicked at {}:{line}: no 4", file!()));
    let later = async || -> u64 { panic!("later") };
    let fault = given!(() => u64, register_async, later, ()).unwrap_err();
    assert!(fault.to_string().ends_with(": later"), "{fault}");
}

#[test]
fn an_input_of_other_types_is_refused() {
    let mut registry = Registry::new();
    registry.register(ADD, add).unwrap();
    for bad in [&[1][..], &[1, 2, 3]] {
        let fault = call_with(&registry, &context(), bad).unwrap_err();
        let expected =
            "[E442] add cannot read its arguments as the (u64, u64) that this worker was built with: ";
        assert!(fault.to_string().starts_with(expected), "{fault}");
    }
}

/// A struct as another build knows it.
mod other_build {
    #[derive(serde::Serialize)]
    pub struct Size {
        pub width: u32,
    }
}

#[derive(Deserialize)]
struct Size {
    width: u32,
    height: u32,
}

#[test]
fn a_struct_that_has_other_fields_in_another_build_is_refused_by_its_name() {
    const AREA: Function<(Size,), u32> = Function::new("area");
    let mut registry = Registry::new();
    registry.register(AREA, |size: Size| size.width * size.height).unwrap();
    let written = postcard::to_stdvec(&(other_build::Size { width: 2 },)).unwrap();
    let fault = call_with(&registry, &context(), &written).unwrap_err();
    let expected = "[E442] area cannot read its arguments as the (Size,) that this worker was built with: ";
    assert!(fault.to_string().starts_with(expected), "{fault}");
}

#[test]
fn a_function_that_is_given_no_thread_fails_for_its_worker_and_not_for_itself() {
    let starved = || -> u64 { panic!("OS can't spawn worker thread: it is not to be had") };
    let fault = given!(() => u64, register, starved, ()).unwrap_err();
    assert_eq!(fault.to_string(), "[E595] no thread for f: it is not to be had");
    let Outcome::Failed(failure) = fault.into() else { unreachable!("it may be tried again") };
    assert_eq!((failure.cause, failure.code), (FailureCause::Worker, FaultCode::new("E595")));
}

#[derive(Deserialize)]
struct Unspeakable;

impl Serialize for Unspeakable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("unspeakable"))
    }
}

#[test]
fn a_value_that_cannot_be_encoded_fails_the_attempt() {
    let fault = given!(() => Unspeakable, register, || Unspeakable, ()).unwrap_err();
    assert!(fault.to_string().starts_with("[E444] "), "{fault}");
}

#[test]
fn a_task_of_another_graph_cannot_be_continued_with() {
    let foreign = GraphParts::default().add(ADD, (1, 2), &CallOptions::new()).unwrap();
    let fault = given!(() => u64, register, move || Next::Of(foreign), ()).unwrap_err();
    assert_eq!(fault.to_string(), "[E445] f gives what a task gives that it did not add");
}

#[test]
fn a_name_is_registered_once() {
    let mut registry = Registry::new();
    registry.register(ADD, add).unwrap();
    let again = registry.register(Function::<(u64,), u64>::new("add"), |n: u64| n);
    assert_eq!(again, Err(RegisteredTwice { name: "add".into() }));
    assert_eq!(registry.ids().len(), 1);
}

#[test]
fn calls_that_a_function_adds_go_with_its_end() {
    let context = context();
    let squares = context.map(ADD, (1..=3).map(|n| (n, n))).unwrap();
    let options = CallOptions::new().priority(2).name("last");
    context.call_with(&options, ADD, (squares[2], 1)).unwrap();
    let added = context.into_added().unwrap();
    assert_eq!((added.tasks.len(), added.classes.len()), (4, 2));
    assert_eq!(added.tasks[3].args[0], Arg::Output(TaskRef::New(2)));
}
