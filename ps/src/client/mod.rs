//! What workers hold: blocking connections to all shards of a job, and access to blobs.
//!
//! ```no_run
//! # use syncline_ps::{PsError, client::ShardSet, shard::{PushHeader, ReadCondition}};
//! # use syncline_scheduler::sync::PushMode;
//! # fn step(token: syncline_rpc::Token, run: syncline_scheduler::ids::RunId) -> Result<(), PsError> {
//! # let incarnation = Default::default();
//! let shards = ["127.0.0.1:4001".to_owned(), "127.0.0.1:4002".to_owned()];
//! let mut ps = ShardSet::connect(&shards, token, run, incarnation, 4810)?;
//! let mut parameters = vec![0.0; 4810];
//! let pulled = ps.pull(ReadCondition::version(0), &mut parameters)?;
//! let gradient = vec![0.1; 4810];
//! let mode = PushMode::Apply;
//! let header = PushHeader { learning_rate: 0.1, weight: 32.0, scale: 1.0, skip: false, mode, covers: 1 };
//! let pushed = ps.push(1, header, &[&gradient[..4000], &gradient[4000..]])?;
//! assert!(pushed.pushes > pulled.pushes);
//! # Ok(())
//! # }
//! ```
//!
//! A broken connection is opened again and the push goes on where it was cut, or the pull is asked again,
//! until [`ClientOptions::retry_limit`] has passed without progress.

mod addresses;
mod blob;
mod cancel;
mod codec_trial;
mod encoder;
mod gather;
mod lending;
mod link;
mod path_trial;
mod pull;
mod push;
mod retry;
mod route;
mod rows;
mod shards;
mod transport_upgrade;
mod values;

pub use addresses::Addresses;
pub use blob::{BlobClient, MISSING_PATIENCE, digest_from_hex};
pub use cancel::{CancelOnDrop, CancelToken};
pub use lending::{GradientArea, LentMemory};
pub(crate) use link::{Link, LinkError, unexpected_reply};
pub use path_trial::try_path;
pub use pull::PullStats;
pub use push::PushStats;
pub use shards::{ClientOptions, ShardSet};
pub use transport_upgrade::connect;
pub use values::ValueClient;
