//! The input of a call: its arguments as they travel, one behind the other.

use std::ops::Deref;

use syncline_scheduler::tasks::{Bytes, MAX_LOST_VALUES, OneArg, OrderArg, Value};

use crate::functions::{CallFault, StopFlag, ValueStore, is_lost};

/// The input of a call.
pub(super) enum Input<'a> {
    Lent(&'a [u8]),
    /// A large value that is all of it: it is not there twice.
    Fetched(Bytes),
}

impl Deref for Input<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Lent(bytes) => bytes,
            Self::Fetched(bytes) => bytes,
        }
    }
}

/// The input for these arguments. As it is where there is one argument; put together in `scratch` otherwise.
/// Fetches what is too large to travel: it may block, until it is asked to stop. What is
/// on none of the shards any more is named all at once: it is made again all at once.
pub(super) fn input<'a>(
    function: &str,
    args: &'a [OrderArg],
    store: &dyn ValueStore,
    stop: &StopFlag,
    scratch: &'a mut Vec<u8>,
) -> Result<Input<'a>, CallFault> {
    match args {
        [OrderArg::One(OneArg::Value(Value::Inline(only)))] => return Ok(Input::Lent(only)),
        [OrderArg::One(OneArg::Value(Value::Blob(only)))] => {
            let fetched = stop.cancelable(|cancel_token| store.get(only, cancel_token));
            return fetched.map(Input::Fetched).map_err(|error| match is_lost(&error) {
                true => CallFault::ArgumentsLost { digests: vec![only.digest], error },
                false => error.into(),
            });
        }
        _ => {}
    }
    scratch.clear();
    append(function, args, store, stop, scratch)?;
    Ok(Input::Lent(scratch))
}

fn append(
    function: &str,
    args: &[OrderArg],
    store: &dyn ValueStore,
    stop: &StopFlag,
    to: &mut Vec<u8>,
) -> Result<(), CallFault> {
    let (mut digests, mut lost) = (Vec::new(), None);
    for arg in args {
        if let OrderArg::List(items) | OrderArg::Outcomes(items) = arg {
            append_length(items.len(), to);
        }
        let are_outcomes = matches!(arg, OrderArg::Outcome(_) | OrderArg::Outcomes(_));
        for part in arg.parts() {
            if are_outcomes {
                to.push(u8::from(matches!(part, OneArg::Failure(_))));
            }
            match part {
                OneArg::Value(Value::Inline(value)) => to.extend_from_slice(value),
                OneArg::Value(Value::Blob(blob)) => {
                    match stop.cancelable(|cancel_token| store.get(blob, cancel_token)) {
                        Ok(value) => to.extend_from_slice(&value),
                        Err(error) if is_lost(&error) => {
                            digests.push(blob.digest);
                            if digests.len() == MAX_LOST_VALUES {
                                return Err(CallFault::ArgumentsLost { digests, error });
                            }
                            lost = Some(error);
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                OneArg::Failure(failure) => {
                    let encoded = postcard::to_stdvec(failure);
                    to.extend(encoded.expect("a failure always has an encoding"));
                }
                OneArg::Held(task) | OneArg::Kept(task) => {
                    let what = format!("what task {task} gives");
                    return Err(CallFault::Missing { function: function.to_owned(), what });
                }
            }
        }
    }
    lost.map_or(Ok(()), |error| Err(CallFault::ArgumentsLost { digests, error }))
}

/// The length of a list, as postcard writes it: seven bits in a byte, the lowest first.
fn append_length(mut length: usize, to: &mut Vec<u8>) {
    while length >= 0x80 {
        to.push(length as u8 | 0x80);
        length >>= 7;
    }
    to.push(length as u8);
}

#[cfg(test)]
mod tests {
    use syncline_ps::{PsError, client::CancelToken};
    use syncline_rpc::ShardFault;
    use syncline_scheduler::{
        ids::ContentDigest,
        tasks::{BlobValue, TaskFailure, TaskIndex},
    };

    use super::*;
    use crate::functions::Salt;

    struct NoBlobs;

    impl ValueStore for NoBlobs {
        fn put(&self, _: Salt, _: &[u8], _: &CancelToken, _: &dyn Fn(&str)) -> Result<BlobValue, PsError> {
            panic!("nothing is stored here")
        }

        fn get(&self, blob: &BlobValue, _: &CancelToken) -> Result<Bytes, PsError> {
            panic!("{blob:?} is not here")
        }
    }

    const HERE: ContentDigest = ContentDigest::from_bytes([0; 32]);
    const THERE: ContentDigest = ContentDigest::from_bytes([1; 32]);
    const LOST: ContentDigest = ContentDigest::from_bytes([2; 32]);
    const LOST_ON_A_DISK: ContentDigest = ContentDigest::from_bytes([3; 32]);
    const AWAY: ContentDigest = ContentDigest::from_bytes([4; 32]);

    /// Has [`HERE`] and [`THERE`].
    struct LosesBlobs;

    impl ValueStore for LosesBlobs {
        fn put(&self, _: Salt, _: &[u8], _: &CancelToken, _: &dyn Fn(&str)) -> Result<BlobValue, PsError> {
            panic!("nothing is stored here")
        }

        fn get(&self, blob: &BlobValue, _: &CancelToken) -> Result<Bytes, PsError> {
            let digest = blob.digest;
            match digest {
                LOST => Err(ShardFault::MissingBlob { digest }.into()),
                LOST_ON_A_DISK => Err(PsError::Damaged { digest, address: "shard".into() }),
                AWAY => Err(PsError::Canceled),
                _ => Ok(vec![7].into()),
            }
        }
    }

    #[test]
    fn all_arguments_that_are_lost_are_named_at_once_unless_one_is_only_out_of_reach() {
        let read = |digests: &[ContentDigest]| {
            let blob = |digest: &ContentDigest| BlobValue { digest: *digest, bytes: 1 };
            let parts = digests.iter().map(|digest| OneArg::Value(Value::Blob(blob(digest)))).collect();
            let (mut scratch, stop) = (Vec::new(), StopFlag::default());
            input("f", &[OrderArg::List(parts)], &LosesBlobs, &stop, &mut scratch).map(|input| input.to_vec())
        };
        assert_eq!(read(&[HERE, THERE]).unwrap(), [2, 7, 7]);
        match read(&[HERE, LOST, THERE, LOST_ON_A_DISK]) {
            Err(CallFault::ArgumentsLost { digests, .. }) => assert_eq!(digests, [LOST, LOST_ON_A_DISK]),
            other => panic!("{other:?}"),
        }
        assert!(matches!(read(&[LOST, AWAY]), Err(CallFault::Store(PsError::Canceled))));
        let many = vec![LOST; MAX_LOST_VALUES + 1];
        match read(&many) {
            Err(CallFault::ArgumentsLost { digests, .. }) => assert_eq!(digests.len(), MAX_LOST_VALUES),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_large_value_that_is_the_only_argument_is_there_once() {
        let (mut scratch, stop) = (Vec::new(), StopFlag::default());
        let one = |digest| [OrderArg::One(OneArg::Value(Value::Blob(BlobValue { digest, bytes: 1 })))];
        assert_eq!(input("f", &one(HERE), &LosesBlobs, &stop, &mut scratch).unwrap()[..], [7]);
        assert_eq!(scratch.capacity(), 0, "it was copied");
        match input("f", &one(LOST), &LosesBlobs, &stop, &mut scratch).map(|input| input.to_vec()) {
            Err(CallFault::ArgumentsLost { digests, .. }) => assert_eq!(digests, [LOST]),
            other => panic!("{other:?}"),
        }
    }

    fn given(value: u64) -> OneArg {
        OneArg::Value(Value::Inline(postcard::to_stdvec(&value).unwrap().into()))
    }

    #[test]
    fn outcomes_are_read_as_results() {
        let failure = TaskFailure { code: Some("E440".into()), reason: "no disk".to_owned(), attempts: 3 };
        let failed = OneArg::Failure(failure.clone());
        let args = [
            OrderArg::Outcome(given(300)),
            OrderArg::Outcome(failed.clone()),
            OrderArg::Outcomes(vec![given(7), failed, given(8)]),
        ];
        type Outcomes = (Result<u64, TaskFailure>, Result<u64, TaskFailure>, Vec<Result<u64, TaskFailure>>);
        let (mut scratch, stop) = (Vec::new(), StopFlag::default());
        let read: Outcomes =
            postcard::from_bytes(&input("f", &args, &NoBlobs, &stop, &mut scratch).unwrap()).unwrap();
        assert_eq!(read, (Ok(300), Err(failure.clone()), vec![Ok(7), Err(failure), Ok(8)]));
        let missing = [OrderArg::Outcome(OneArg::Held(TaskIndex(1)))];
        let read = input("f", &missing, &NoBlobs, &stop, &mut scratch);
        assert!(matches!(read, Err(CallFault::Missing { .. })));
    }
}
