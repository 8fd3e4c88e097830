//! Pulling the parameters from all shards, straight into the caller's buffer.

use std::time::Instant;

use super::{Shards, Trouble, out_of_place, patience::Patience};
use crate::{
    PsError,
    shard::Want,
    wire::{Reply, Request},
};

/// Bytes read from one shard in its turn.
const TURN_BYTES: usize = 1 << 20;

/// What a pull brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pulled {
    /// Barriers closed when it was read; the lowest of all shards.
    pub version: u64,
    /// The longest time a shard waited for the version.
    pub waited_us: u64,
    /// The rest of the call's time.
    pub transfer_us: u64,
    /// Pushes of all workers that were in on the first shard.
    pub pushes: u64,
}

/// How far the pull from one shard has come.
#[derive(Clone, Copy)]
enum Part {
    Unasked,
    Asked,
    Reading { got: Answer, at: usize },
    Done(Answer),
}

/// The header of one shard's answer.
#[derive(Clone, Copy)]
struct Answer {
    version: u64,
    pushes: u64,
    waited_us: u64,
    /// Newest version that a round went into when the last value was read.
    round_version: u64,
}

impl Shards {
    /// Waits for `want` on every shard and reads the parameters into `into`, which has [`Shards::elements`] places.
    ///
    /// No barrier that applied a round lies between any two of them; single pushes may, chunk by chunk.
    pub fn pull(&mut self, want: Want, into: &mut [f32]) -> Result<Pulled, PsError> {
        self.canceller.check()?;
        if into.len() as u64 != self.elements {
            return Err(PsError::Length { what: "buffer", got: into.len() as u64, expected: self.elements });
        }
        let started = Instant::now();
        let mut patience = Patience::new(self.options.patience);
        let mut want = want;
        let mut waited_us = 0;
        loop {
            let answers = self.pull_once(want, into, &mut patience)?;
            waited_us += answers.iter().map(|a| a.waited_us).max().unwrap_or(0);
            let low = answers.iter().map(|a| a.version).min().unwrap_or(0);
            let newest_round = answers.iter().map(|a| a.round_version).max().unwrap_or(0);
            if newest_round > low {
                // Some shards were a round ahead: meet them there.
                want = Want::version(newest_round);
                continue;
            }
            let took_us = started.elapsed().as_micros() as u64;
            let transfer_us = took_us.saturating_sub(waited_us);
            let pushes = answers.first().map_or(0, |a| a.pushes);
            return Ok(Pulled { version: low, waited_us, transfer_us, pushes });
        }
    }

    fn pull_once(
        &mut self,
        want: Want,
        into: &mut [f32],
        patience: &mut Patience,
    ) -> Result<Vec<Answer>, PsError> {
        let mut parts = vec![Part::Unasked; self.seats.len()];
        let mut waiting = true;
        while waiting {
            waiting = false;
            // Ask everybody before waiting for anybody.
            for (index, part) in parts.iter_mut().enumerate() {
                while matches!(part, Part::Unasked) {
                    let asked = match self.seats[index].asked {
                        Some(before) if before == want => Ok(()),
                        Some(_) => {
                            self.drop_link(index);
                            self.ask_pull(index, want)
                        }
                        None => self.ask_pull(index, want),
                    };
                    match asked {
                        Ok(()) => *part = Part::Asked,
                        Err(trouble) => self.pull_trouble(index, trouble, patience)?,
                    }
                }
            }
            for (index, part) in parts.iter_mut().enumerate() {
                let step = match *part {
                    Part::Asked => self.pull_answer(index),
                    Part::Reading { got, at } => self.read_turn(index, got, at, into),
                    Part::Unasked | Part::Done(_) => continue,
                };
                waiting = true;
                match step {
                    Ok(next) => {
                        *part = next;
                        patience.progress();
                    }
                    Err(trouble) => {
                        *part = Part::Unasked;
                        self.pull_trouble(index, trouble, patience)?;
                    }
                }
            }
        }
        Ok(parts
            .iter()
            .filter_map(|p| if let Part::Done(answer) = p { Some(*answer) } else { None })
            .collect())
    }

    /// After trouble with one shard: try again, or hang up on all that still owe an answer.
    fn pull_trouble(
        &mut self,
        index: usize,
        trouble: Trouble,
        patience: &mut Patience,
    ) -> Result<(), PsError> {
        self.recover(index, trouble, patience).inspect_err(|_| self.forget_asked())
    }

    pub(super) fn ask_pull(&mut self, index: usize, want: Want) -> Result<(), Trouble> {
        let at = self.at.clone();
        let (link, _) = self.link(index)?;
        link.ask(&Request::Pull { at, want })?;
        self.seats[index].asked = Some(want);
        Ok(())
    }

    fn pull_answer(&mut self, index: usize) -> Result<Part, Trouble> {
        let (range, silence) = (self.seats[index].range, self.options.silence);
        let (link, _) = self.link(index)?;
        // The version may take as long as the slowest worker; a shard that waits for it says so.
        link.limit_reads(Some(silence))?;
        match link.answer()? {
            (Reply::Pulled { version, pushes, waited_us }, body) if body == range.len() * 4 => {
                Ok(Part::Reading { got: Answer { version, pushes, waited_us, round_version: 0 }, at: 0 })
            }
            (reply, _) => Err(out_of_place(&reply)),
        }
    }

    fn read_turn(&mut self, index: usize, got: Answer, at: usize, into: &mut [f32]) -> Result<Part, Trouble> {
        let range = self.seats[index].range;
        let alone = self.seats.len() == 1;
        let (link, _) = self.link(index)?;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut into[range.start as usize..range.end as usize]);
        let until = if alone { bytes.len() } else { (at + TURN_BYTES).min(bytes.len()) };
        link.read_body(&mut bytes[at..until])?;
        if until < bytes.len() {
            return Ok(Part::Reading { got, at: until });
        }
        let end = link.answer()?;
        self.seats[index].asked = None;
        match end {
            (Reply::PullEnd { round_version }, 0) if round_version <= got.version => {
                Ok(Part::Done(Answer { round_version, ..got }))
            }
            // A round was applied while the values were read: ask again.
            (Reply::PullEnd { .. }, 0) => Ok(Part::Unasked),
            (reply, _) => Err(out_of_place(&reply)),
        }
    }
}
