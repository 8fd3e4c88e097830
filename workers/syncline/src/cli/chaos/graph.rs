//! Random graphs of calls whose values are known in advance.

use std::time::Duration;

use syncline::{PreparedTraining, Trained, TrainingChanges};
use syncline_scheduler::{samples::splitmix64, tasks::TaskIndex};
use syncline_workers::functions::{TaskGraph, TaskHandle};

use super::functions::{
    ATTEMPT, DIGEST, FLAKY, GROW, LARGE, MAX_ERRORS, MIX, digest, durable, grown, large, mix,
};

/// Tasks take the values of those that were added so much earlier, at most.
const REACH: u64 = 40;

/// A graph, and what must come of it.
pub(super) struct KnownGraph {
    pub graph: TaskGraph,
    /// Every call but those that make large values.
    pub expected: Vec<(TaskHandle<u64>, u64)>,
    /// Calls that give the number of the attempt that was made at them.
    pub attempts: Vec<(TaskIndex, TaskHandle<u64>)>,
    pub training: Option<TaskHandle<Trained>>,
}

/// A graph of some fifty to four hundred calls, and maybe a training.
pub(super) fn known_graph(id: &str, mut seed: u64, training: Option<&PreparedTraining>) -> KnownGraph {
    let mut draw = |below: u64| splitmix64(&mut seed) % below;
    let mut graph = TaskGraph::new(id);
    let mut expected: Vec<(TaskHandle<u64>, u64)> = Vec::new();
    let mut attempts = Vec::new();
    for number in 0..50 + draw(350) {
        let earlier = |draw: &mut dyn FnMut(u64) -> u64| {
            let back = 1 + draw(number.min(REACH));
            expected[(number - back) as usize]
        };
        // A value of a task with a name stays, so that every one can be compared.
        let options = durable().name(format!("t{number}"));
        let (kind, call_seed) = (draw(100), draw(u64::MAX));
        let added = if number == 0 || kind < 60 {
            let inputs: Vec<_> = (0..draw(4).min(number)).map(|_| earlier(&mut draw)).collect();
            let (handles, values): (Vec<_>, Vec<_>) = inputs.into_iter().unzip();
            (graph.call_with(&options, MIX, (call_seed, &handles)), mix(call_seed, &values))
        } else {
            let (handle, value) = earlier(&mut draw);
            match kind {
                60..75 => {
                    let options = options
                        .retries(MAX_ERRORS)
                        .backoff(Duration::from_millis(20), Duration::from_millis(200));
                    (graph.call_with(&options, FLAKY, (call_seed, handle)), mix(call_seed, &[value]))
                }
                75..90 => {
                    let depth = draw(4) as u32;
                    let grow = graph.call_with(&options, GROW, (call_seed, depth, handle));
                    (grow, grown(call_seed, depth, value))
                }
                _ => {
                    let bytes = graph.call_with(&durable(), LARGE, (call_seed, handle));
                    let sum = graph.call_with(&options, DIGEST, (bytes,));
                    (sum, digest(&large(call_seed, value)))
                }
            }
        };
        if kind % 10 == 0 {
            let task = TaskIndex(graph.len() as u32);
            let options = durable().name(format!("a{number}"));
            attempts.push((task, graph.call_with(&options, ATTEMPT, (added.0,))));
        }
        expected.push(added);
    }
    let training = training.map(|training| graph.train_with(&durable(), training, TrainingChanges::new()));
    KnownGraph { graph, expected, attempts, training }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_graph_and_values_again_and_another_seed_others() {
        let values = |seed| -> Vec<u64> {
            let known = known_graph("chaos", seed, None);
            assert!(known.graph.len() >= known.expected.len() && known.expected.len() >= 50);
            known.expected.into_iter().map(|(_, value)| value).collect()
        };
        assert_eq!(values(1), values(1));
        assert_ne!(values(1), values(2));
    }
}
