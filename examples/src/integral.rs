//! Integrates a function by adaptive quadrature: each task halves its interval until it is exact enough, so
//! the graph grows where the function bends. How many tasks there will be, nobody knows before.

use syncline::{
    ArgumentError, Function, TaskGraph, TaskHandle,
    worker::{Context, Next},
};

/// The integral of [`curve`] from the first number to the second, with an error of about the third.
pub const INTEGRATE: Function<(f64, f64, f64), f64> = Function::new("integral.integrate");
/// The sum of two numbers.
pub const ADD: Function<(f64, f64), f64> = Function::new("integral.add");

/// What is integrated: steep at 0, and flat elsewhere.
pub fn curve(x: f64) -> f64 {
    x.sqrt()
}

/// What [`INTEGRATE`] does: a value where Simpson's rule on the whole and on the halves agrees, else the sum
/// of both halves, which two new tasks find and a third adds up.
pub fn integrate(context: &Context, from: f64, to: f64, tolerance: f64) -> Result<Next<f64>, ArgumentError> {
    let middle = f64::midpoint(from, to);
    let halves = simpson(from, middle) + simpson(middle, to);
    if (halves - simpson(from, to)).abs() <= 15.0 * tolerance {
        return Ok(Next::Value(halves));
    }
    let left = context.call(INTEGRATE, (from, middle, tolerance / 2.0))?;
    let right = context.call(INTEGRATE, (middle, to, tolerance / 2.0))?;
    Ok(Next::Of(context.call(ADD, (left, right))?))
}

/// What [`ADD`] does.
pub fn add(a: f64, b: f64) -> f64 {
    a + b
}

/// The graph: one task, to begin with.
pub fn graph(id: &str, from: f64, to: f64, tolerance: f64) -> (TaskGraph, TaskHandle<f64>) {
    let mut graph = TaskGraph::new(id);
    let integral = graph.call(INTEGRATE, (from, to, tolerance));
    (graph, integral)
}

fn simpson(from: f64, to: f64) -> f64 {
    (to - from) / 6.0 * (curve(from) + 4.0 * curve(f64::midpoint(from, to)) + curve(to))
}
