//! Small values of which a call takes more than travel with its order: the engine keeps them, and is asked for each.

use std::{borrow::Cow, collections::HashSet};

use syncline_scheduler::{
    ids::JobId,
    tasks::{OneArg, OrderArg},
};

use crate::{client::ClientError, functions::OwnCluster};

/// The arguments with such values in their places; those that are not kept any more stay named. It may block for as long as no engine
/// answers.
pub(super) fn filled<'a>(
    job: &JobId,
    args: &'a [OrderArg],
    cluster: &OwnCluster,
) -> Result<Cow<'a, [OrderArg]>, ClientError> {
    let named = |part: &OneArg| if let OneArg::Kept(task) = part { Some(*task) } else { None };
    let tasks: HashSet<_> = args.iter().flat_map(OrderArg::parts).filter_map(named).collect();
    if tasks.is_empty() {
        return Ok(args.into());
    }
    let kept = cluster.runtime().block_on(cluster.client().kept_values(job, tasks))?;
    let mut args = args.to_vec();
    for part in args.iter_mut().flat_map(OrderArg::parts_mut) {
        if let Some(value) = named(part).and_then(|task| kept.get(&task)) {
            *part = OneArg::Value(value.clone());
        }
    }
    Ok(args.into())
}
