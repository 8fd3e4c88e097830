//! The functions that a worker has.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::Arc,
};

use serde::{Serialize, de::DeserializeOwned};
use syncline_rpc::threads::NoThread;
use syncline_scheduler::tasks::{FunctionId, Preview};
use tokio::runtime::Handle;

use super::{
    Context, Function, encoding,
    fault::CallFault,
    function::short_type_name,
    function_error::FunctionError,
    next::Next,
    panics::catch,
    preview::preview,
    task_function::{AsyncTaskFunction, TaskFunction},
};

/// A function was registered twice under one name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[E447] a function of the name {name} is registered twice")]
#[non_exhaustive]
pub struct RegisteredTwice {
    /// The name, which has to be free whatever the types are.
    pub name: String,
}

impl RegisteredTwice {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        "E447"
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        Some("give one of them another name".to_owned())
    }
}

/// What an attempt gives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CallOutput {
    /// postcard of the value, and what it looks like if people may look at it.
    Value(Vec<u8>, Option<Preview>),
    /// The value of the call that it added at this index.
    Added(u32),
    Nothing,
}

type Call = dyn Fn(&Context, &[u8]) -> Result<CallOutput, CallFault> + Send + Sync;
type AsyncCall = dyn Fn(&Context, &[u8], &Handle) -> Result<Option<CallOutput>, CallFault> + Send + Sync;

enum Body {
    Blocking(Box<Call>),
    /// Gives up, without a result, when it is asked to stop.
    Async(Box<AsyncCall>),
}

/// One function of a worker, its types erased.
pub(crate) struct RegisteredFunction {
    pub(crate) name: &'static str,
    body: Body,
}

impl fmt::Debug for RegisteredFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl RegisteredFunction {
    /// Calls it with the arguments as they travel, one behind the other. `None`: it was asked to stop and
    /// did. Async functions run on this thread, with the timers and sockets of `runtime`.
    pub(crate) fn call(
        &self,
        context: &Context,
        input: &[u8],
        runtime: &Handle,
    ) -> Result<Option<CallOutput>, CallFault> {
        let called = catch(|| match &self.body {
            Body::Blocking(call) => call(context, input).map(Some),
            Body::Async(call) => call(context, input, runtime),
        });
        called.unwrap_or_else(|caught| {
            let function = self.name.to_owned();
            if let Some(source) = caught.no_thread() {
                return Err(NoThread { what: function, source }.into());
            }
            let (location, message) = (caught.location, caught.message);
            Err(CallFault::Panicked { function, location, message })
        })
    }
}

/// The functions that a worker has.
///
/// ```
/// # use syncline_workers::functions::{Function, Registry};
/// const ADD: Function<(u64, u64), u64> = Function::new("add");
/// const HALF: Function<(u64,), u64> = Function::new("half");
///
/// fn add(a: u64, b: u64) -> u64 {
///     a + b
/// }
///
/// let mut registry = Registry::new();
/// registry.register(ADD, add)?;
/// registry.register(HALF, |n: u64| if n % 2 == 0 { Ok(n / 2) } else { Err("it is odd") })?;
/// # Ok::<(), syncline_workers::functions::RegisteredTwice>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Registry {
    functions: HashMap<FunctionId, Arc<RegisteredFunction>>,
}

impl Registry {
    /// One without functions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a function that does what `function` names. It runs on a thread of its own and may block. The
    /// fields of its types are read by their place, as [`Function`] says. One of other types does not
    /// compile:
    ///
    /// ```compile_fail
    /// # use syncline_workers::functions::{Function, Registry};
    /// const HALF: Function<(u64,), u64> = Function::new("half");
    /// Registry::new().register(HALF, |n: u64| n as f64 / 2.0)?;
    /// # Ok::<(), syncline_workers::functions::RegisteredTwice>(())
    /// ```
    ///
    /// # Errors
    /// E447 if there is one of that name.
    pub fn register<I, O, Shape, F>(&mut self, function: Function<I, O>, f: F) -> Result<(), RegisteredTwice>
    where
        I: DeserializeOwned,
        O: Serialize,
        F: TaskFunction<I, O, Shape>,
    {
        let name = function.name();
        let call = move |context: &Context, input: &[u8]| {
            let input = decode(name, input)?;
            given(name, context, f.call(context, input))
        };
        self.insert(function.id(), RegisteredFunction { name, body: Body::Blocking(Box::new(call)) })
    }

    /// Adds an async function. It takes up a slot while it runs, as any other, and is dropped where it waits
    /// when nobody wants its result any more.
    ///
    /// # Errors
    /// E447 if there is one of that name.
    pub fn register_async<I, O, Shape, F>(
        &mut self,
        function: Function<I, O>,
        f: F,
    ) -> Result<(), RegisteredTwice>
    where
        I: DeserializeOwned,
        O: Serialize,
        F: AsyncTaskFunction<I, O, Shape>,
    {
        let name = function.name();
        let call = move |context: &Context, input: &[u8], runtime: &Handle| {
            let input = decode(name, input)?;
            let returned = runtime.block_on(async {
                tokio::select! {
                    biased;
                    returned = f.call(context, input) => Some(returned),
                    () = context.stop.asked() => None,
                }
            });
            returned.map(|returned| given(name, context, returned)).transpose()
        };
        self.insert(function.id(), RegisteredFunction { name, body: Body::Async(Box::new(call)) })
    }

    /// Adds a function of our own, whose faults have codes.
    pub(crate) fn register_own<I, O>(
        &mut self,
        function: Function<I, O>,
        f: impl Fn(&Context, I) -> Result<O, CallFault> + Send + Sync + 'static,
    ) -> Result<(), RegisteredTwice>
    where
        I: DeserializeOwned,
        O: Serialize,
    {
        let name = function.name();
        let call = move |context: &Context, input: &[u8]| {
            let output = f(context, decode(name, input)?)?;
            given(name, context, Ok(Next::Value(output)))
        };
        self.insert(function.id(), RegisteredFunction { name, body: Body::Blocking(Box::new(call)) })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// How graphs call them.
    pub fn ids(&self) -> BTreeSet<FunctionId> {
        self.functions.keys().cloned().collect()
    }

    pub(crate) fn get(&self, id: &FunctionId) -> Option<&Arc<RegisteredFunction>> {
        self.functions.get(id)
    }

    fn insert(&mut self, id: FunctionId, function: RegisteredFunction) -> Result<(), RegisteredTwice> {
        if self.functions.keys().any(|known| known.name == id.name) {
            return Err(RegisteredTwice { name: function.name.to_owned() });
        }
        self.functions.insert(id, Arc::new(function));
        Ok(())
    }
}

/// A function's input.
fn decode<I: DeserializeOwned>(name: &str, input: &[u8]) -> Result<I, CallFault> {
    encoding::decode(input).map_err(|cause| {
        let (function, types) = (name.to_owned(), short_type_name::<I>());
        CallFault::Decode { function, types, cause }
    })
}

/// What a function returned, as bytes.
fn given<O: Serialize>(
    name: &str,
    context: &Context,
    returned: Result<Next<O>, FunctionError>,
) -> Result<CallOutput, CallFault> {
    let function = || name.to_owned();
    match returned {
        Ok(Next::Value(value)) => encoding::encode(&value)
            .map(|bytes| {
                let is_shown = context.is_shown && !bytes.is_empty();
                CallOutput::Value(bytes, is_shown.then(|| preview(&value)).flatten())
            })
            .map_err(|cause| CallFault::Encode { function: function(), cause }),
        Ok(Next::Of(handle)) => context
            .place_of(handle)
            .map(CallOutput::Added)
            .ok_or_else(|| CallFault::OtherGraph { function: function() }),
        Ok(Next::Skip) => Ok(CallOutput::Nothing),
        Err(FunctionError { reason, is_retryable }) => {
            Err(CallFault::Returned { function: function(), reason, is_retryable })
        }
    }
}
