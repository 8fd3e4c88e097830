//! ONNX models as general tasks: what a worker with ONNX Runtime does for [`RUN_MODEL`].
//!
//! A model is fetched once, and tried in a process of its own, because some end ONNX Runtime by a signal. It
//! is loaded once for each task that runs it at the same time: a session serves one run at a time, so that
//! there are at most as many as the worker has slots, of which those stay for which there is room, and that
//! are used now and then. They outlive a reconnection to the engine.

mod cache;
mod fault;
mod loaded;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use syncline_scheduler::ids::ContentDigest;

use syncline_ps::PsError;
use syncline_rpc::threads;
use syncline_runtime::{Device, ExecOptions, Runtime};
use tokio::time::sleep;
use tracing::warn;

use self::{
    cache::{CacheEntry, ModelCache},
    fault::ModelFault,
    loaded::LoadedModel,
};
use super::device_watch::DeviceWatch;
use crate::functions::{OnnxModel, RUN_MODEL, RegisteredTwice, Registry, ShardValues, StopFlag, Tensor};
#[cfg(feature = "train")]
use crate::isolation::{ModelError, ModelHost, NamedModel};

/// A session that nobody has used for so long is let go.
const IDLE_LIMIT: Duration = Duration::from_secs(300);
/// How often it is checked whether there is one.
const IDLE_LOOK: Duration = Duration::from_secs(60);

/// The models that a worker runs. Clones share them.
#[derive(Clone)]
pub(super) struct Models(Arc<Shared>);

struct Shared {
    runtime: Runtime,
    /// Device and threads of each session.
    exec: ExecOptions,
    device: DeviceWatch,
    kept: ModelCache<LoadedModel>,
}

impl Models {
    pub(super) fn new(runtime: Runtime, exec: ExecOptions, device: DeviceWatch) -> Self {
        Self(Arc::new(Shared { runtime, exec, device, kept: ModelCache::default() }))
    }

    /// Lets go of sessions that are idle, now and then, as long as it is polled.
    pub(super) async fn let_go_of_idle(self) {
        loop {
            sleep(IDLE_LOOK).await;
            let shared = self.0.clone();
            let look = move || {
                if let Some(before) = Instant::now().checked_sub(IDLE_LIMIT) {
                    shared.kept.let_go_of_idle(before);
                }
            };
            if let Err(error) = threads::spawn("idle models", look) {
                warn!(%error, "models that nobody uses stay loaded until the next look");
            }
        }
    }

    /// Adds [`RUN_MODEL`], which fetches models from these shards.
    pub(super) fn register(
        &self,
        shards: ShardValues,
        registry: &mut Registry,
    ) -> Result<(), RegisteredTwice> {
        let models = self.clone();
        registry.register_own(RUN_MODEL, move |context, (model, inputs)| {
            Ok(models.run(&model, &inputs, &context.stop, |digest| shards.get_blob(digest, &context.stop))?)
        })
    }

    fn run(
        &self,
        model: &OnnxModel,
        inputs: &[Tensor],
        stop: &StopFlag,
        fetch: impl FnOnce(ContentDigest) -> Result<Vec<u8>, PsError>,
    ) -> Result<Vec<Tensor>, ModelFault> {
        let ran = self.load_and_run(model, inputs, stop, fetch);
        if let Err(ModelFault::Backend(error)) = &ran {
            self.0.device.look_at(error);
        }
        ran
    }

    fn load_and_run(
        &self,
        model: &OnnxModel,
        inputs: &[Tensor],
        stop: &StopFlag,
        fetch: impl FnOnce(ContentDigest) -> Result<Vec<u8>, PsError>,
    ) -> Result<Vec<Tensor>, ModelFault> {
        let entry = self.0.kept.entry(model);
        let mut loaded = match entry.take() {
            Some(loaded) => loaded,
            None => self.load(&entry, stop, fetch)?,
        };
        let outputs = loaded.run(inputs, stop);
        // What a device that is full or broken has left of a session serves nobody, and holds memory.
        if !matches!(&outputs, Err(ModelFault::Backend(error)) if error.may_be_the_machine()) {
            self.0.kept.give_back(&entry, loaded);
        }
        outputs
    }

    fn load(
        &self,
        entry: &CacheEntry<LoadedModel>,
        stop: &StopFlag,
        fetch: impl FnOnce(ContentDigest) -> Result<Vec<u8>, PsError>,
    ) -> Result<LoadedModel, ModelFault> {
        let Shared { runtime, exec, kept, .. } = &*self.0;
        let go_on = || if stop.is_asked() { Err(ModelFault::Stopped) } else { Ok(()) };
        let file = kept.file(entry, go_on, |digest| -> Result<Vec<u8>, ModelFault> {
            let file = fetch(digest)?;
            try_load(runtime, exec.device, digest, &file, stop)?;
            Ok(file)
        })?;
        LoadedModel::load(runtime, &file, exec)
    }
}

/// Whether ONNX Runtime survives the model, where this program can tell: in a process of its own, which ends
/// once it is to stop.
#[cfg(feature = "train")]
fn try_load(
    runtime: &Runtime,
    device: Device,
    digest: ContentDigest,
    file: &[u8],
    stop: &StopFlag,
) -> Result<(), ModelFault> {
    let model = NamedModel { name: &format!("model {digest}"), onnx: file };
    let tried = ModelHost::of(runtime).try_load(model, &|| stop.is_asked());
    Ok(said_for(device, tried)?)
}

/// What a trial, which is on a CPU, says of a model that is for `device`: a GPU may have the kernels for
/// which a CPU refuses it (E323), and says by itself what it refuses. It was tried because some models end
/// the process, and this one has not.
#[cfg(feature = "train")]
fn said_for(device: Device, tried: Result<(), ModelError>) -> Result<(), ModelError> {
    tried.or_else(|error| match error {
        ModelError::Child(refused) if device != Device::Cpu && refused.code() == "E323" => Ok(()),
        error => Err(error),
    })
}

#[cfg(not(feature = "train"))]
fn try_load(_: &Runtime, _: Device, _: ContentDigest, _: &[u8], _: &StopFlag) -> Result<(), ModelFault> {
    Ok(())
}

#[cfg(test)]
mod tests;
