//! Small values of which a call takes more than travel with its order: the engine keeps them, and is asked
//! for each.

use std::{borrow::Cow, collections::HashSet};

use syncline_scheduler::{
    ids::{JobRef, SubmissionId},
    tasks::{OneArg, OrderArg},
};

use crate::{
    client::ClientError,
    functions::{OwnCluster, StopFlag},
};

/// Whether the engine had all of them.
pub(super) fn are_whole(args: &[OrderArg]) -> bool {
    !args.iter().flat_map(OrderArg::parts).any(|part| matches!(part, OneArg::Kept(_)))
}

/// The arguments with such values in their places; those that are not kept any more stay named. It may block
/// for as long as no engine answers; `None` if it was asked to stop meanwhile.
pub(super) fn filled<'a>(
    submission: &SubmissionId,
    args: &'a [OrderArg],
    cluster: &OwnCluster,
    stop: &StopFlag,
) -> Result<Option<Cow<'a, [OrderArg]>>, ClientError> {
    let named = |part: &OneArg| if let OneArg::Kept(task) = part { Some(*task) } else { None };
    let tasks: HashSet<_> = args.iter().flat_map(OrderArg::parts).filter_map(named).collect();
    if tasks.is_empty() {
        return Ok(Some(args.into()));
    }
    // An attempt that is given up may outlive its job: nothing of the one that has taken the name is for it.
    let job = JobRef::from(submission.clone());
    let kept = cluster.runtime().block_on(async {
        tokio::select! {
            kept = cluster.client().kept_values(&job, tasks) => Some(kept),
            () = stop.asked() => None,
        }
    });
    let Some(kept) = kept.transpose()? else { return Ok(None) };
    let mut args = args.to_vec();
    for part in args.iter_mut().flat_map(OrderArg::parts_mut) {
        if let Some(value) = named(part).and_then(|task| kept.get(&task)) {
            *part = OneArg::Value(value.clone());
        }
    }
    Ok(Some(args.into()))
}
