//! Which life of which job is meant.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::JobId;

/// One generation of one job's parameters; printed as `g1-89abcdef`. The lower half counts from 1: it rises
/// when the parameters are restored, and everything older is refused. The upper half is the nonce that was
/// drawn when the job was submitted: a job that takes the name of an earlier one never meets what that one
/// left behind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u64);

/// More generations, or checkpoints, than begin within the few seconds that the store may lose.
pub(crate) const MOST_LOST: u32 = 1_000;

impl Generation {
    /// The first generation of the job that was submitted with `nonce`.
    pub fn first(nonce: u32) -> Self {
        Self(u64::from(nonce) << 32 | 1)
    }

    /// The generation that begins when the parameters of this one are restored.
    pub fn next(self) -> Self {
        Self(u64::from(self.nonce()) << 32 | u64::from(self.number().saturating_add(1)))
    }

    /// A run that cannot have begun in what the store has lost, of a job that was submitted so long ago:
    /// there are fewer runs than seconds, and a store that loses one like this as well does so later.
    pub fn beyond_unknown(self, age_s: u64) -> Self {
        let age_s = u32::try_from(age_s).unwrap_or(u32::MAX);
        let number = self.number().max(age_s).saturating_add(MOST_LOST);
        Self(u64::from(self.nonce()) << 32 | u64::from(number))
    }

    /// What tells the job from others of the same name.
    pub fn nonce(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Which generation of the parameters this is, from 1.
    pub fn number(self) -> u32 {
        self.0 as u32
    }

    /// Whether this is a later generation of the same job.
    pub fn follows(self, other: Self) -> bool {
        self.nonce() == other.nonce() && self.number() > other.number()
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}-{:08x}", self.number(), self.nonce())
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One run of a job: the job in one generation of its parameters. Whatever is said of another run is late,
/// and changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunId {
    /// Name of the job.
    pub job: JobId,
    /// Generation of its parameters; it tells jobs of one name from each other as well.
    pub generation: Generation,
}

impl RunId {
    /// Whether this is a later run of the same job.
    pub fn follows(&self, other: &Self) -> bool {
        self.job == other.job && self.generation.follows(other.generation)
    }

    /// Whether both are runs of the same job.
    pub fn is_of_same_job(&self, other: &Self) -> bool {
        self.job == other.job && self.generation.nonce() == other.generation.nonce()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_of_two_jobs_of_one_name_never_follow_each_other() {
        let (first, other) = (Generation::first(7), Generation::first(9));
        let second = Generation(first.0 + 1);
        assert_eq!((first.number(), second.number(), second.nonce()), (1, 2, 7));
        assert!(second.follows(first) && !first.follows(second) && !first.follows(first));
        assert!(!other.follows(first) && !first.follows(other) && !other.follows(second));
        assert_eq!(second.to_string(), "g2-00000007");
    }

    #[test]
    fn a_run_follows_those_of_its_own_job_alone() {
        let run = |job: &str, generation| RunId { job: job.parse().unwrap(), generation };
        let (first, restored) = (Generation::first(7), Generation::first(7).next());
        assert!(
            run("a", restored).follows(&run("a", first)) && !run("a", first).follows(&run("a", restored))
        );
        assert!(!run("a", restored).follows(&run("b", first)));
        assert!(run("a", restored).is_of_same_job(&run("a", first)));
        assert!(!run("a", first).is_of_same_job(&run("a", Generation::first(8))));
        assert!(!run("a", first).is_of_same_job(&run("b", first)));
    }

    #[test]
    fn a_run_is_sent_as_its_job_and_its_generation() {
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation::first(7) };
        let apart = postcard::to_stdvec(&(&run.job, run.generation)).unwrap();
        assert_eq!(postcard::to_stdvec(&run).unwrap(), apart);
    }
}
