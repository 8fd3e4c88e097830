//! What all threads of a shard see.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use syncline_rpc::{Refusals, Token};
use tracing::{error, info};

use super::{
    Options, blobs::BlobStore, connections::Connections, followed_jobs::FollowedJobs, role::RoleKeeper,
    saves, saves::Saves, standby_files::StandbyFiles,
};
use crate::{
    PsError,
    shard::{JobTable, ShardPosition},
};

/// What all threads of a shard see.
pub(super) struct Shared {
    pub(super) jobs: JobTable,
    /// Jobs of the process that serves this shard, while this one follows it.
    pub(super) followed: FollowedJobs,
    pub(super) role: RoleKeeper,
    pub(super) blobs: BlobStore,
    /// Whether blobs are being fetched from the process that serves.
    pub(super) mirroring: AtomicBool,
    pub(super) token: Token,
    pub(super) state_dir: PathBuf,
    pub(super) connections: Connections,
    pub(super) saves: Saves,
    /// Held by whoever writes checkpoints or removes them.
    pub(super) checkpoint_files: Mutex<()>,
    /// Checkpoints of followed jobs that are to be written or removed.
    pub(super) standby_files: StandbyFiles,
    pub(super) stopping: AtomicBool,
    /// The file of the socket for callers on the same machine.
    pub(super) local_socket: Option<String>,
    pub(super) refusals: Refusals,
    /// Held for reading while a norm from another shard is applied: a stop waits for that.
    pub(super) norm_intake: RwLock<()>,
}

impl Shared {
    pub(super) fn new(
        options: &Options,
        blobs: BlobStore,
        saves: Saves,
        local_socket: Option<String>,
    ) -> Self {
        // Without an engine nobody could give it a role.
        let replicas = if options.engine.is_some() { options.replicas } else { 1 };
        Self {
            jobs: JobTable::default(),
            followed: FollowedJobs::default(),
            role: RoleKeeper::open(&options.state_dir, replicas),
            blobs,
            mirroring: AtomicBool::new(false),
            token: options.token.clone(),
            state_dir: options.state_dir.clone(),
            connections: Connections::default(),
            saves,
            checkpoint_files: Mutex::new(()),
            standby_files: StandbyFiles::default(),
            stopping: AtomicBool::new(false),
            local_socket,
            refusals: Refusals::default(),
            norm_intake: RwLock::default(),
        }
    }

    /// Of a shard with two processes that hears of no engine.
    #[cfg(test)]
    pub(super) fn for_test(state_dir: &std::path::Path) -> Arc<Self> {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let options = Options {
            listen: address,
            token: Token::generate(),
            state_dir: state_dir.to_owned(),
            index: 0,
            count: 1,
            replicas: 2,
            engine: Some(address.into()),
            advertise: None,
        };
        let blobs = BlobStore::open(state_dir.join("blobs")).unwrap();
        let saves = Saves::open(state_dir.join("jobs")).unwrap();
        Arc::new(Self::new(&options, blobs, saves, None))
    }

    /// Restores the jobs that were saved at the last stop.
    pub(super) fn restore_saved(&self, here: ShardPosition) -> Result<(), PsError> {
        let mut loaded = self.saves.load_all(here)?;
        for saves::Damaged { path, cause } in std::mem::take(&mut loaded.damaged) {
            let error = PsError::SaveDamaged { path: path.display().to_string(), cause: cause.to_string() };
            error!(%error, hint = error.hint(), "job lost");
        }
        // Without its job this shard would make the engine give the job up.
        if let Some(error) = loaded.other_shard {
            return Err(error);
        }
        self.saves.delete_loaded(&mut loaded)?;
        for job in loaded.jobs {
            info!(job = %job.job(), version = job.version(), "goes on");
            self.jobs.restore(Arc::new(job));
        }
        Ok(())
    }

    /// An error once the shard stops.
    pub(super) fn stopping(&self) -> io::Result<()> {
        if self.stopping.load(Ordering::SeqCst) { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }
}
