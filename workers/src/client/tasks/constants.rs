//! The large constants of a graph on their way to the shards.

use std::time::{Duration, Instant};

use syncline_ps::PsError;
use syncline_scheduler::tasks::{Arg, MAX_INLINE_BYTES, NewTask};
use tokio::time::sleep;

use super::TaskError;
use crate::{
    client::{
        Client, ClientError,
        shard_absence::{SHARD_PAUSE, ShardAbsence},
    },
    functions::{ValueStore, move_large_constants},
};

/// How many of its arguments travel as blobs and are none yet.
fn large_constants(task: &NewTask) -> usize {
    let is_large = |arg: &&Arg| matches!(arg, Arg::Value(value) if value.len() > MAX_INLINE_BYTES);
    task.args.iter().filter(is_large).count()
}

/// Whether it has an argument that travels as a blob.
pub(super) fn has_large_constants(task: &NewTask) -> bool {
    large_constants(task) > 0
}

/// Tasks of which some large constants were uploaded, and what prevented the others.
type Uploaded = (Vec<NewTask>, Result<(), PsError>);

impl Client {
    /// The same tasks, with blobs in the place of large constants. Waits for a shard that is away as long as
    /// this client is patient.
    pub(super) async fn with_blobs(&self, tasks: Vec<NewTask>) -> Result<Vec<NewTask>, TaskError> {
        upload_all(tasks, self.patience.engine, |tasks| self.move_constants(tasks)).await
    }

    async fn move_constants(&self, mut tasks: Vec<NewTask>) -> Result<Uploaded, ClientError> {
        self.with_values(move |store, cancel_token| {
            let put = |salt, value: &[u8]| store.put(salt, value, cancel_token, &|_| {});
            let done = move_large_constants(&mut tasks, put);
            (tasks, done)
        })
        .await
    }
}

/// Uploads until nothing is left, from where the last try has ended. `patience`: for how long shards may
/// prevent it while nothing gets through.
async fn upload_all<F>(
    mut tasks: Vec<NewTask>,
    patience: Duration,
    upload: impl Fn(Vec<NewTask>) -> F,
) -> Result<Vec<NewTask>, TaskError>
where
    F: Future<Output = Result<Uploaded, ClientError>>,
{
    let count = |tasks: &[NewTask]| tasks.iter().map(large_constants).sum::<usize>();
    let all = count(&tasks);
    let mut absence = ShardAbsence::of_at_most(patience);
    while tasks.iter().any(has_large_constants) {
        let (uploaded, done) = upload(tasks).await?;
        tasks = uploaded;
        match done {
            Err(error) if error.may_pass() && absence.is_short(all - count(&tasks), Instant::now()) => {
                sleep(SHARD_PAUSE).await;
            }
            done => done?,
        }
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use syncline_rpc::ShardFault;
    use syncline_scheduler::{
        ids::ContentDigest,
        tasks::{BlobValue, ClassIndex},
    };

    use super::*;

    fn away() -> PsError {
        PsError::Unreachable { address: "a:1".into(), after_ms: 10_000, cause: "refused".into() }
    }

    /// Uploads three constants to shards that answer so, each answer to one; says how often they were asked.
    async fn upload(patience: Duration, answers: Vec<Option<PsError>>) -> (usize, Result<usize, String>) {
        let large = Arg::Value(vec![7; MAX_INLINE_BYTES + 1].into());
        let (after, name) = (Vec::new(), None);
        let task = NewTask { class: ClassIndex(0), args: vec![large], after, name };
        let (asked, answers) = (Cell::new(0), RefCell::new(answers.into_iter()));
        let put = |_, value: &[u8]| match answers.borrow_mut().next().flatten() {
            Some(error) => Err(error),
            None => Ok(BlobValue { digest: ContentDigest::LOWEST, bytes: value.len() as u64 }),
        };
        let upload = |mut tasks: Vec<NewTask>| {
            asked.set(asked.get() + 1);
            let done = move_large_constants(&mut tasks, put);
            async { Ok((tasks, done)) }
        };
        let uploaded = upload_all(vec![task; 3], patience, upload).await;
        let blobs = |tasks: Vec<NewTask>| {
            let is_blob = |arg: &&Arg| matches!(arg, Arg::Blob(_));
            tasks.iter().flat_map(|task| &task.args).filter(is_blob).count()
        };
        (asked.get(), uploaded.map(blobs).map_err(|error| error.code().to_string()))
    }

    #[tokio::test]
    async fn a_shard_that_is_away_is_waited_for_and_what_has_got_through_is_not_sent_again_table() {
        let patient = Duration::from_secs(3_600);
        let refused = PsError::from(ShardFault::Invalid { what: "too long".to_owned() });
        assert_eq!(upload(patient, vec![None, Some(away()), Some(away())]).await, (3, Ok(3)));
        assert_eq!(upload(Duration::ZERO, vec![None, Some(away())]).await, (1, Err("E410".to_owned())));
        assert_eq!(upload(patient, vec![Some(refused)]).await, (1, Err("E405".to_owned())));
    }
}
