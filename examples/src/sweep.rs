//! Looks for a learning rate by successive halving: many short trainings, then the better half of them goes
//! on for twice as long, until one is left. Every training is a task of one graph; which ones there are is
//! found out while it runs.

use syncline::{
    ArgumentError, CallOptions, Function, PreparedTraining, TaskGraph, TaskHandle, Trained, TrainingChanges,
    worker::{Context, Next},
};

/// A learning rate, and what it has brought so far.
pub type Trial = (f32, Trained);

/// Puts a learning rate beside what it has brought.
pub const TRIAL: Function<(f32, Trained), Trial> = Function::new("sweep.trial");
/// The best of these trials, once it has trained alone: the trials, what they train, and for how many epochs
/// next.
pub const HALVE: Function<(Vec<Trial>, PreparedTraining, u32), Trial> = Function::new("sweep.halve");

/// What [`TRIAL`] does.
pub fn trial(rate: f32, trained: Trained) -> Trial {
    (rate, trained)
}

/// What [`HALVE`] does: the better half goes on from where it is, and is halved again.
pub fn halve(
    context: &Context,
    mut trials: Vec<Trial>,
    training: PreparedTraining,
    epochs: u32,
) -> Result<Next<Trial>, ArgumentError> {
    trials.sort_by(|(_, a), (_, b)| loss(a).total_cmp(&loss(b)));
    if trials.len() < 2 {
        return Ok(trials.into_iter().next().map_or(Next::Skip, Next::Value));
    }
    trials.truncate(trials.len() / 2);
    let mut next = Vec::new();
    for (rate, so_far) in &trials {
        let changes = TrainingChanges::new().learning_rate(*rate).epochs(epochs).start_from(&so_far.weights);
        let trained = context.train(&training, changes)?;
        next.push(context.call(TRIAL, (*rate, trained))?);
    }
    Ok(Next::Of(context.call(HALVE, (&next, training, 2 * epochs))?))
}

/// Loss on the test samples; a training that came to nothing is the worst.
fn loss(trained: &Trained) -> f64 {
    let loss = trained.evaluation.as_ref().map_or(f64::INFINITY, |evaluation| evaluation.loss);
    if loss.is_nan() { f64::INFINITY } else { loss }
}

/// The graph for these learning rates, and the task that gives the best.
pub fn graph(id: &str, training: &PreparedTraining, rates: &[f32]) -> (TaskGraph, TaskHandle<Trial>) {
    let mut graph = TaskGraph::new(id);
    let mut trials = Vec::new();
    for (index, rate) in rates.iter().enumerate() {
        let options = CallOptions::new().name(format!("rate-{index}"));
        let changes = TrainingChanges::new().learning_rate(*rate).epochs(1);
        let trained = graph.train_with(&options, training, changes);
        trials.push(graph.call(TRIAL, (*rate, trained)));
    }
    let best = graph.call(HALVE, (&trials, training.clone(), 2));
    (graph, best)
}
