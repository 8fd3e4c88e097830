//! A job that begins with the optimizer's state of another one.

use std::io::{self, Read};

use syncline_rpc::threads::lock;
use syncline_scheduler::spec::StepRun;

use super::{JobShard, framed::read_numbers};
use crate::optim::OptimizerState;

impl JobShard {
    /// The numbers of one moment for each chunk, from this shard's part of them.
    pub(crate) fn read_moment(&self, from: &mut impl Read) -> io::Result<Vec<Vec<f32>>> {
        self.chunks.iter().map(|chunk| read_numbers(lock(chunk).trained(), from)).collect()
    }

    /// Gives the optimizer the state that it had elsewhere, after `runs` of steps: as many `moments` as it
    /// has, for each chunk. Where the chunks here are others than there, one takes the most steps of
    /// those that it is made of: they differ by what torn pushes left out, and so does Adam's bias
    /// correction.
    pub(crate) fn restore_optimizer(&self, runs: &[StepRun], moments: Vec<Vec<Vec<f32>>>) {
        let mut moments = moments.into_iter().map(Vec::into_iter);
        let (mut first, mut second) =
            (moments.next().unwrap_or_default(), moments.next().unwrap_or_default());
        let mut at = self.range().start;
        for chunk in &self.chunks {
            let mut chunk = lock(chunk);
            let end = at + chunk.trained() as u64;
            let (first, second) = (first.next().unwrap_or_default(), second.next().unwrap_or_default());
            chunk.restore_optimizer(OptimizerState::restored(first, second, most_steps(runs, at, end)));
            at = end;
        }
        self.rows.count_from(&self.chunks);
    }
}

/// Most steps of the runs that lie in `start..end`.
fn most_steps(runs: &[StepRun], start: u64, end: u64) -> u64 {
    let mut at = 0u64;
    let mut most = 0;
    for run in runs {
        let begin = at;
        at = at.saturating_add(run.elements);
        if begin < end && at > start {
            most = most.max(run.steps);
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_takes_the_most_steps_of_what_it_is_made_of() {
        let runs = [(10, 7), (5, 9), (10, 8)].map(|(elements, steps)| StepRun { elements, steps });
        for (start, end, steps) in [(0, 10, 7), (0, 11, 9), (10, 15, 9), (15, 25, 8), (9, 16, 9), (25, 25, 0)]
        {
            assert_eq!(most_steps(&runs, start, end), steps, "{start}..{end}");
        }
    }
}
