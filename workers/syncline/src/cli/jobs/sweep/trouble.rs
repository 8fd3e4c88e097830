//! What keeps a sweep from going on, and whether it may pass.

use syncline_rpc::EngineFault;
use syncline_workers::{client::ClientError, submit::SubmitError};

use crate::cli::Failure;

/// Why a round came to nothing.
pub(super) enum Trouble {
    /// The cluster is away, or Redis, or there is no room in it: the next round may succeed.
    Passing(Failure),
    Final(Failure),
}

impl Trouble {
    /// For whoever does not try again.
    pub(super) fn into_failure(self) -> Failure {
        let (Self::Passing(failure) | Self::Final(failure)) = self;
        failure
    }
}

impl<E: Into<Failure>> From<E> for Trouble
where
    E: MayPass,
{
    fn from(error: E) -> Self {
        if error.may_pass() { Self::Passing(error.into()) } else { Self::Final(error.into()) }
    }
}

/// Whether the same may succeed later.
pub(super) trait MayPass {
    fn may_pass(&self) -> bool;
}

impl MayPass for ClientError {
    fn may_pass(&self) -> bool {
        self.is_passing()
    }
}

impl MayPass for SubmitError {
    fn may_pass(&self) -> bool {
        match self {
            // Room comes as jobs expire or are deleted, and other trials train meanwhile.
            Self::Engine(ClientError::Refused(EngineFault::StoreNearlyFull { .. })) => true,
            Self::Engine(error) => error.is_passing(),
            Self::Upload(error) => error.may_pass(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use syncline_ps::PsError;
    use syncline_rpc::{ShardFault, hello::HelloError};
    use syncline_scheduler::ids::ContentDigest;

    use super::*;

    #[test]
    fn an_upload_is_tried_again_where_a_shard_is_away_or_of_another_release_or_its_disk_full() {
        let (what, digest, cause) =
            ("cannot write".to_owned(), ContentDigest::LOWEST, "no space left".to_owned());
        let may_pass = |error| SubmitError::Upload(error).may_pass();
        assert!(may_pass(ShardFault::Io { what: what.clone(), cause: cause.clone() }.into()));
        assert!(may_pass(ShardFault::SecondAway { digest, cause }.into()));
        let source = HelloError::Version { theirs: 1 };
        assert!(may_pass(PsError::Greeting { address: "a:1".to_owned(), source }));
        assert!(!may_pass(ShardFault::Invalid { what }.into()));
    }

    #[test]
    fn a_trial_is_submitted_again_where_redis_has_no_room_for_it() {
        let may_pass = |fault: EngineFault| SubmitError::Engine(fault.into()).may_pass();
        assert!(may_pass(EngineFault::StoreNearlyFull { used_bytes: 95, limit_bytes: 100 }));
        assert!(may_pass(EngineFault::Store { cause: "it hangs".to_owned() }));
        assert!(!may_pass(EngineFault::InvalidJob {
            code: "E027".into(),
            reason: "[E027] job a: epochs is 0".to_owned()
        }));
    }
}
