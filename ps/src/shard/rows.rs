//! Pushes and pulls of the rows that a batch reads: nothing here takes longer because a table is large.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use syncline_rpc::{ShardFault, threads::lock};
use syncline_scheduler::{
    ids::Incarnation,
    sync::{PushMode, RoundRule},
};

use super::{
    CHUNK_ELEMENTS, JobShard, PushHeader,
    barrier::map_parallel,
    chunk::{Chunk, RoundEnd},
    clip::DROPPED,
    job_state::JobState,
    standby_op::StandbyOp,
};
use crate::rows::Piece;

/// What a job with tables counts beside its chunks.
#[derive(Default)]
pub(super) struct RowCounts {
    /// Steps of the optimizer, whichever rows took part: a chunk takes over the number when it takes part
    /// itself.
    steps: AtomicU64,
    /// Chunks that are in the open round.
    touched: Mutex<BTreeSet<u32>>,
}

/// What the primary has recorded of a push of rows.
#[derive(Clone, Copy)]
pub(super) struct Followed {
    /// Steps that the optimizer had taken for the job before.
    pub steps: u64,
    /// Weight of the push in a buffer.
    pub share: f32,
}

impl RowCounts {
    pub(super) fn new(chunks: &[Mutex<Chunk>]) -> Self {
        let counts = Self::default();
        counts.count_from(chunks);
        counts
    }

    /// Goes on from what the chunks have counted.
    pub(super) fn count_from(&self, chunks: &[Mutex<Chunk>]) {
        let steps = chunks.iter().map(|chunk| lock(chunk).optimizer_state().steps()).max();
        self.set_steps(steps.unwrap_or(0));
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Acquire)
    }

    pub(super) fn set_steps(&self, steps: u64) {
        self.steps.store(steps, Ordering::Release);
    }

    pub(super) fn touch(&self, chunk: u32) {
        lock(&self.touched).insert(chunk);
    }

    /// Chunks that are in the open round.
    pub(super) fn touched(&self) -> BTreeSet<u32> {
        lock(&self.touched).clone()
    }
}

impl JobShard {
    /// Applies what push `seq` has for these pieces of one chunk, unless it is in already. `pushed`: one
    /// piece behind the other. Chunks come in order; those that the push has nothing for are passed over.
    pub fn apply_rows(
        &self,
        worker: Incarnation,
        seq: u64,
        header: &PushHeader,
        pieces: &[Piece],
        pushed: &[f32],
    ) -> Result<(), ShardFault> {
        self.apply_pieces(worker, seq, header, pieces, pushed, None)
    }

    /// The same; a standby takes from the record what depends on when it happened.
    pub(super) fn apply_pieces(
        &self,
        worker: Incarnation,
        seq: u64,
        header: &PushHeader,
        pieces: &[Piece],
        pushed: &[f32],
        followed: Option<Followed>,
    ) -> Result<(), ShardFault> {
        let index = self.chunk_of(pieces, pushed)?;
        let _changing = self.standby_log.enter();
        self.check_running()?;
        let filter = self.filter_to_push(worker, seq, header.covers, 0)?;
        let mut filter = lock(&filter);
        filter.check_seal(self.job(), worker)?;
        let begins = filter.next_chunk() == 0;
        filter.apply_some_chunk(seq, header.covers, index, || {
            let share = match &followed {
                Some(followed) => followed.share,
                None => self.share_in_chunk(worker, index)?,
            };
            let mut chunk = lock(&self.chunks[index as usize]);
            let steps = followed.map_or_else(|| self.rows.steps(), |followed| followed.steps);
            let applied = match self.catch_up.has_in_copy(index) {
                true => Ok(()),
                false => {
                    let rule = self.rules.of_chunk(index as usize);
                    chunk.apply_pieces(rule, header, share, steps, pieces, pushed)
                }
            };
            applied.map_err(|e| ShardFault::Io {
                what: format!("cannot hold the round of job {}", self.job()),
                cause: e.to_string(),
            })?;
            if header.mode == PushMode::Accumulate && !header.is_empty() {
                self.rows.touch(index);
                self.accumulated.store(true, Ordering::Release);
            }
            let op = |elements| {
                let pieces = pieces.to_vec();
                StandbyOp::Rows { worker, seq, header: *header, steps, pieces, elements, share }
            };
            self.standby_log.record_pushed(index, pushed, op);
            Ok(())
        })?;
        // Of a push that is cut off later this is in the round, too.
        if begins && filter.next_chunk() > 0 {
            // It is in whether or not the job has been frozen since.
            lock(&self.state).weigh_rows(header);
        }
        Ok(())
    }

    /// The chunk that all the pieces lie in, one behind the other.
    fn chunk_of(&self, pieces: &[Piece], pushed: &[f32]) -> Result<u32, ShardFault> {
        let index = pieces.first().map_or(u32::MAX, |piece| piece.chunk);
        let mut end = 0;
        let mut elements = 0;
        let fit = pieces.iter().all(|piece| {
            let follows = piece.chunk == index && piece.start >= end && piece.len > 0;
            end = piece.start.saturating_add(piece.len);
            elements += u64::from(piece.len);
            follows
        });
        let holds = self.elements_of_chunk(index).is_some_and(|length| end as usize <= length);
        let in_copy = pushed.is_empty() && self.catch_up.has_in_copy(index);
        if self.tables.is_none() || !fit || !holds || !in_copy && elements != pushed.len() as u64 {
            let what = format!("{} rows of chunk {index} with {} numbers", pieces.len(), pushed.len());
            return Err(ShardFault::Invalid { what });
        }
        Ok(index)
    }

    /// Counts what a push that is in has done, where there are tables. `brought`: whether it had anything for
    /// this shard.
    pub(super) fn count_rows(&self, state: &mut JobState, header: &PushHeader, brought: bool) {
        if self.tables.is_none() || header.is_empty() {
            return;
        }
        match header.mode {
            PushMode::Apply => drop(self.rows.steps.fetch_add(1, Ordering::AcqRel)),
            PushMode::Accumulate => {
                if !brought {
                    state.weigh_rows(header);
                }
                // Also where none of its rows lies here: the round ends with its weight, and is a step of the
                // job.
                self.accumulated.store(true, Ordering::Release);
            }
        }
    }

    /// Lets what was pushed into the round become new values.
    pub(super) fn close_rows(&self, state: &mut JobState, rule: RoundRule, learning_rate: f32, clip: f64) {
        let steps = self.rows.steps();
        let weight = std::mem::take(&mut state.round_weight);
        let end = RoundEnd { rule, learning_rate, clip, weight, steps };
        let touched = std::mem::take(&mut *lock(&self.rows.touched)).into_iter();
        let touched: Vec<u32> = touched.filter(|index| !self.catch_up.has_in_copy(*index)).collect();
        self.map_touched(&touched, |index, chunk| chunk.close_touched(self.rules.of_chunk(index), &end));
        if rule == RoundRule::Optimizer && clip != DROPPED {
            self.rows.steps.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Sum of squares of the mean of the open round, parameters only.
    pub(super) fn touched_squares(&self, weight: f64) -> f64 {
        let touched: Vec<u32> = lock(&self.rows.touched).iter().copied().collect();
        self.map_touched(&touched, |_, chunk| chunk.touched_squares(weight)).iter().sum()
    }

    fn map_touched<T: Send>(&self, touched: &[u32], work: impl Fn(usize, &mut Chunk) -> T + Sync) -> Vec<T> {
        let chunk = |index: &u32| lock(&self.chunks[*index as usize]);
        let elements = |index| chunk(index).touched().values().map(|len| *len as usize).sum::<usize>();
        let whole = touched.iter().map(elements).sum::<usize>() / CHUNK_ELEMENTS;
        map_parallel(touched, whole, |index| work(*index as usize, &mut chunk(index)))
    }

    /// Tells every chunk how many steps the job has taken: what is written down stands for itself.
    pub(super) fn settle_steps(&self) {
        if self.tables.is_some() {
            let steps = self.rows.steps();
            self.chunks.iter().for_each(|chunk| lock(chunk).catch_up(steps));
        }
    }

    /// Copies these pieces of one chunk in their latest state, one behind the other.
    pub fn read_pieces(&self, pieces: &[Piece], into: &mut [f32]) {
        let Some(first) = pieces.first() else { return };
        let chunk = lock(&self.chunks[first.chunk as usize]);
        copy_pieces(chunk.values(), pieces, into);
    }
}

/// Copies pieces of one chunk's values.
pub fn copy_pieces(values: &[f32], pieces: &[Piece], mut into: &mut [f32]) {
    for piece in pieces {
        let (start, len) = (piece.start as usize, piece.len as usize);
        let Some(place) = into.split_off_mut(..len) else { return };
        place.copy_from_slice(&values[start..start + len]);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use syncline_rpc::{BarrierOrder, OpenJob};
    use syncline_scheduler::{
        ids::{ContentDigest, EngineEpoch, Generation, RunId, ShardIndex, Superstep},
        spec::{ElementRange, Layout, Optimizer, Parameter},
    };

    use super::*;
    use crate::waiting::until;

    const EPOCH: EngineEpoch = EngineEpoch(1);

    /// Four rows of two zeros.
    fn job() -> JobShard {
        let order = OpenJob {
            run: RunId { job: "digits".parse().unwrap(), generation: Generation(1) },
            shard: ShardIndex(0),
            shards: vec![String::new()],
            layout: Layout(vec![Parameter::rows("w", vec![4, 2], 0)]),
            optimizer: Optimizer::sgd(),
            clip_norm: None,
            initial: ContentDigest::LOWEST,
            resumed: None,
            checkpoint: None,
            known_through: None,
        };
        let range = ElementRange { start: 0, end: 8 };
        JobShard::read(&order, range, EPOCH, &mut bytemuck::cast_slice(&[0.0f32; 8])).unwrap()
    }

    const HEADER: PushHeader = PushHeader {
        learning_rate: 1.0,
        weight: 1.0,
        scale: 1.0,
        skip: false,
        mode: PushMode::Accumulate,
        covers: 1,
    };

    /// Ends the first round, of one push of the first worker.
    fn close_round(job: &JobShard) {
        let order = BarrierOrder {
            superstep: Superstep(0),
            revision: 0,
            roster: [(Incarnation(1), 1)].into(),
            rule: RoundRule::Optimizer,
            learning_rate: 1.0,
            pin: false,
        };
        job.add_barrier(EPOCH, order).unwrap();
    }

    /// An engine that does not know it is followed by one that does, and the worker goes on amid its push.
    #[test]
    fn a_push_during_which_the_job_is_frozen_is_in_the_round_with_its_weight() {
        let (job, worker, piece) = (job(), Incarnation(1), Piece { chunk: 0, start: 2, len: 2 });
        thread::scope(|scope| {
            job.read_chunks(0, 1, |_| {
                scope.spawn(|| _ = job.apply_rows(worker, 1, &HEADER, &[piece], &[2.0; 2]));
                until("the push waits for the chunk", || !lock(&job.filters).is_empty());
                assert_eq!(job.freeze(EPOCH), Ok(true));
            });
        });
        job.thaw();
        assert_eq!(job.push_cursor(worker).unwrap().next_chunk, 1, "it goes on behind that");
        job.complete(worker, 1, &HEADER).unwrap();
        close_round(&job);
        assert_eq!(job.copy_values().unwrap(), [0.0, 0.0, -2.0, -2.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_round_counts_the_weight_of_every_push_once_whole_or_cut_off_table() {
        // Rows that the first worker pushes, and the second one, which is sealed before its push is in.
        let cases: [(&str, &[u32], &[u32]); 3] =
            [("the same row", &[1], &[1]), ("another one", &[0], &[1]), ("one has none here", &[], &[1])];
        for (name, whole, torn) in cases {
            let job = job();
            let push = |worker: u64, rows: &[u32]| {
                for row in rows {
                    let piece = Piece { chunk: 0, start: row * 2, len: 2 };
                    job.apply_rows(Incarnation(worker), 1, &HEADER, &[piece], &[2.0; 2]).unwrap();
                }
            };
            push(1, whole);
            push(2, torn);
            job.complete(Incarnation(1), 1, &HEADER).unwrap();
            assert!(job.seal(EPOCH, Incarnation(2)).unwrap().partial, "{name}");
            close_round(&job);
            let mut want = [0.0; 8];
            // Half of each gradient of 2.
            for row in whole.iter().chain(torn) {
                want[*row as usize * 2..][..2].iter_mut().for_each(|value| *value -= 1.0);
            }
            assert_eq!(job.copy_values().unwrap(), want, "{name}");
        }
    }
}
