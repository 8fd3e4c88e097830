//! Which Rust functions can do what a [`Function`](super::Function) says.

use super::{
    Context, FunctionError,
    next::{IntoNext, Next},
};

/// A Rust function or closure of a worker: it takes what the tuple `I` holds, one by one, and gives an `O`. A
/// first parameter `&Context` may come before them. The parameters of a closure need their types.
///
/// `Shape` tells the forms apart and is found by the compiler.
#[diagnostic::on_unimplemented(
    message = "this does not take `{I}` and give `{O}`",
    label = "has other parameters, or returns something else",
    note = "a function for `Function<(A, B), O>` is `fn(A, B) -> R` or `fn(&Context, A, B) -> R`, where `R` is `O`, `Next<O>`, `Result<O, E>` or `Result<Next<O>, E>`",
    note = "the parameters of a closure need their types: `|a: u64, b: u64| a + b`",
    note = "an async function is registered with `register_async`"
)]
pub trait TaskFunction<I, O, Shape>: Send + Sync + 'static {
    /// Calls it.
    ///
    /// # Errors
    /// If the function returned one.
    fn call(&self, context: &Context, input: I) -> Result<Next<O>, FunctionError>;
}

/// As [`TaskFunction`], for an async function or closure.
#[diagnostic::on_unimplemented(
    message = "this is not an async function that takes `{I}` and gives `{O}`",
    label = "has other parameters, returns something else, or is not async",
    note = "a function for `Function<(A, B), O>` is `async fn(A, B) -> R` or `async fn(&Context, A, B) -> R`, where `R` is `O`, `Next<O>`, `Result<O, E>` or `Result<Next<O>, E>`"
)]
pub trait AsyncTaskFunction<I, O, Shape>: Send + Sync + 'static {
    /// Calls it.
    fn call(&self, context: &Context, input: I) -> impl Future<Output = Result<Next<O>, FunctionError>>;
}

/// Takes the arguments alone.
#[derive(Debug)]
pub struct Bare<Shape>(Shape);
/// Takes a `&Context` before them.
#[derive(Debug)]
pub struct WithContext<Shape>(Shape);

macro_rules! task_function {
    ($($type:ident $value:ident),*) => {
        impl<Fun, R, O, Shape, $($type),*> TaskFunction<($($type,)*), O, Bare<Shape>> for Fun
        where
            Fun: Fn($($type),*) -> R + Send + Sync + 'static,
            R: IntoNext<O, Shape>,
        {
            fn call(&self, _: &Context, ($($value,)*): ($($type,)*)) -> Result<Next<O>, FunctionError> {
                self($($value),*).into_next()
            }
        }

        impl<Fun, R, O, Shape, $($type),*> TaskFunction<($($type,)*), O, WithContext<Shape>> for Fun
        where
            Fun: Fn(&Context, $($type),*) -> R + Send + Sync + 'static,
            R: IntoNext<O, Shape>,
        {
            fn call(&self, context: &Context, ($($value,)*): ($($type,)*)) -> Result<Next<O>, FunctionError> {
                self(context, $($value),*).into_next()
            }
        }

        impl<Fun, R, O, Shape, $($type),*> AsyncTaskFunction<($($type,)*), O, Bare<Shape>> for Fun
        where
            Fun: AsyncFn($($type),*) -> R + Send + Sync + 'static,
            R: IntoNext<O, Shape>,
        {
            async fn call(&self, _: &Context, ($($value,)*): ($($type,)*)) -> Result<Next<O>, FunctionError> {
                self($($value),*).await.into_next()
            }
        }

        impl<Fun, R, O, Shape, $($type),*> AsyncTaskFunction<($($type,)*), O, WithContext<Shape>> for Fun
        where
            Fun: AsyncFn(&Context, $($type),*) -> R + Send + Sync + 'static,
            R: IntoNext<O, Shape>,
        {
            async fn call(&self, context: &Context, ($($value,)*): ($($type,)*)) -> Result<Next<O>, FunctionError> {
                self(context, $($value),*).await.into_next()
            }
        }
    };
}

task_function!();
task_function!(A a);
task_function!(A a, B b);
task_function!(A a, B b, C c);
task_function!(A a, B b, C c, D d);
task_function!(A a, B b, C c, D d, E e);
task_function!(A a, B b, C c, D d, E e, G g);
