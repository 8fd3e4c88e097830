//! The duplicate filter of one incarnation's pushes, with the point where a push that was cut off resumes,
//! and the seal.

use serde::{Deserialize, Serialize};
use syncline_rpc::{PushProgress, ShardFault};
use syncline_scheduler::ids::{Incarnation, JobId};

use super::push::Admission;

/// State of one incarnation in one job. Its mutex is held while a chunk is applied, so a seal never cuts into
/// one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct PushFilter {
    /// Last push that is in completely.
    watermark: u64,
    /// The push behind it, if some of it is in.
    partial: Option<PartialPush>,
    sealed: bool,
}

/// A push of which some chunks are in.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct PartialPush {
    seq: u64,
    next_chunk: u32,
}

impl PushFilter {
    /// The filter before the first push.
    pub(super) fn new(sealed: bool) -> Self {
        Self { sealed, ..Self::default() }
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// Whether some of a push is in, and the rest may come.
    pub(super) fn is_receiving(&self) -> bool {
        self.partial.is_some() && !self.sealed
    }

    pub(super) fn watermark(&self) -> u64 {
        self.watermark
    }

    /// First chunk of the push behind the watermark that is not in.
    pub(super) fn next_chunk(&self) -> u32 {
        self.partial.map_or(0, |partial| partial.next_chunk)
    }

    pub(super) fn check_seal(&self, job: &JobId, worker: Incarnation) -> Result<(), ShardFault> {
        if self.sealed { Err(ShardFault::Sealed { job: job.clone(), worker }) } else { Ok(()) }
    }

    /// Whether push `seq`, which stands for `covers` iterations and is sent from `first_chunk` on, may come
    /// in.
    pub(super) fn admit(&self, seq: u64, covers: u32, first_chunk: u32) -> Result<Admission, ShardFault> {
        if seq <= self.watermark {
            return Ok(Admission::Duplicate);
        }
        let refuse = |why: String| Err(ShardFault::Invalid { what: format!("push {seq} {why}") });
        if covers == 0 || seq.checked_sub(covers.into()) != Some(self.watermark) {
            return refuse(format!(
                "for {covers} iterations after push {}: a push is missing or comes twice",
                self.watermark
            ));
        }
        if let Some(PartialPush { seq: partial, .. }) = self.partial.filter(|partial| partial.seq != seq) {
            return refuse(format!("while push {partial} is coming in"));
        }
        if first_chunk > self.next_chunk() {
            return refuse(format!("resumed at chunk {first_chunk}, expected {}", self.next_chunk()));
        }
        Ok(Admission::Fresh)
    }

    /// Runs `apply` if chunk `index` of push `seq` is the next one; a chunk that is in already is passed
    /// over.
    pub(super) fn apply_chunk(
        &mut self,
        seq: u64,
        covers: u32,
        index: u32,
        apply: impl FnOnce() -> Result<(), ShardFault>,
    ) -> Result<(), ShardFault> {
        if self.admit(seq, covers, index)? == Admission::Fresh && index == self.next_chunk() {
            apply()?;
            self.partial = Some(PartialPush { seq, next_chunk: index + 1 });
        }
        Ok(())
    }

    /// The same for a push that has nothing for some chunks: chunk `index` may come before those are in.
    pub(super) fn apply_some_chunk(
        &mut self,
        seq: u64,
        covers: u32,
        index: u32,
        apply: impl FnOnce() -> Result<(), ShardFault>,
    ) -> Result<(), ShardFault> {
        let next = self.next_chunk();
        if self.admit(seq, covers, index.min(next))? == Admission::Fresh && index >= next {
            apply()?;
            self.partial = Some(PartialPush { seq, next_chunk: index + 1 });
        }
        Ok(())
    }

    /// Moves the watermark to `seq`.
    pub(super) fn complete(&mut self, seq: u64) {
        self.watermark = seq;
        self.partial = None;
    }

    pub(super) fn seal(&mut self) -> PushProgress {
        self.sealed = true;
        PushProgress { watermark: self.watermark, partial: self.partial.is_some() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Result<(), ShardFault> {
        unreachable!("no chunk was expected to come in")
    }

    #[test]
    fn each_chunk_comes_in_once_and_in_order() {
        let mut filter = PushFilter::default();
        let mut applied = Vec::new();
        for index in [0, 0, 1, 0, 1, 2] {
            let apply = || {
                applied.push(index);
                Ok(())
            };
            filter.apply_chunk(1, 1, index, apply).unwrap();
        }
        assert_eq!(applied, [0, 1, 2]);
        assert!(filter.apply_chunk(1, 1, 4, nothing).is_err(), "chunk 3 is missing");
        assert!(filter.apply_chunk(2, 1, 0, nothing).is_err(), "push 1 is not complete");
        filter.complete(1);
        filter.apply_chunk(1, 1, 3, nothing).unwrap();
        assert_eq!(filter.admit(2, 1, 0), Ok(Admission::Fresh));
    }

    #[test]
    fn some_chunks_come_in_once_and_in_order_over_those_between() {
        let mut filter = PushFilter::default();
        let mut applied = Vec::new();
        for index in [2, 0, 2, 5, 4, 9] {
            let apply = || {
                applied.push(index);
                Ok(())
            };
            filter.apply_some_chunk(1, 1, index, apply).unwrap();
        }
        assert_eq!((applied, filter.next_chunk()), (vec![2, 5, 9], 10));
        assert!(filter.apply_some_chunk(2, 1, 0, nothing).is_err(), "push 1 is not complete");
    }

    #[test]
    fn a_chunk_that_could_not_be_applied_is_still_to_come() {
        let mut filter = PushFilter::default();
        let full = || Err(ShardFault::Io { what: "no".into(), cause: "memory".into() });
        assert!(filter.apply_chunk(1, 1, 0, full).is_err());
        assert_eq!((filter.next_chunk(), filter.seal().partial), (0, false));
    }

    #[test]
    fn a_push_comes_in_where_the_iterations_it_covers_begin() {
        let (fresh, duplicate) = (Some(Admission::Fresh), Some(Admission::Duplicate));
        #[rustfmt::skip]
        let cases = [
            // watermark, seq, covers, admitted
            (0, 4, 4,         fresh),
            (4, 8, 4,         fresh),
            (4, 5, 1,         fresh),
            (4, 4, 4,         duplicate),
            (4, 3, 1,         duplicate),
            (4, 9, 4,         None), // 5 is missing
            (4, 6, 4,         None), // 3 and 4 would come twice
            (4, 6, 0,         None),
            (0, 4, 5,         None), // begins before the first
            (0, 4, u32::MAX,  None),
            (0, u64::MAX, 1,  None),
        ];
        for (watermark, seq, covers, want) in cases {
            let filter = PushFilter { watermark, ..PushFilter::default() };
            assert_eq!(filter.admit(seq, covers, 0).ok(), want, "{seq} for {covers} after {watermark}");
        }
    }

    #[test]
    fn while_a_push_is_coming_in_no_other_may_take_its_place() {
        let mut filter = PushFilter::default();
        filter.apply_chunk(4, 4, 0, || Ok(())).unwrap();
        assert!(filter.admit(1, 1, 0).is_err(), "its chunks would count as those of push 4");
        filter.apply_chunk(4, 4, 1, || Ok(())).unwrap();
        filter.complete(4);
        assert_eq!(filter.admit(1, 1, 0), Ok(Admission::Duplicate));
        assert_eq!(filter.admit(5, 1, 0), Ok(Admission::Fresh));
    }

    #[test]
    fn a_seal_answers_how_far_it_came() {
        let mut filter = PushFilter::default();
        assert_eq!(filter.seal(), PushProgress { watermark: 0, partial: false });
        filter.complete(4);
        filter.apply_chunk(8, 4, 0, || Ok(())).unwrap();
        assert_eq!(filter.seal(), PushProgress { watermark: 4, partial: true });
    }
}
