//! Syncline's tensor path alone: the client and the shard of `syncline_ps`, without engine, Redis and worker.
//!
//! Tells what headers, locks and books cost apart from control.

use std::path::Path;

use anyhow::{Context, Result};
use syncline_engine::rpc::{
    OpenJob, ShardClient, ShardRequest, ShardResponse, Token, connect, hello::Role, within,
};
use syncline_ps::{
    client::{BlobClient, Canceller, ClientOptions, PushHeader, ReadCondition, ShardSet},
    transport::Choice,
    wire::SessionKey,
};
use syncline_scheduler::{
    ids::{EngineEpoch, Generation, Incarnation, ShardIndex},
    sync::PushMode,
};
use syncline_workers::submit::PreparedJob;

use super::{
    process::Process,
    work::{LEARNING_RATE, RULE, Step},
};

const NOW: ReadCondition = ReadCondition::version(0);

/// A shard with one open job, and a connection to it.
pub struct Direct {
    shards: ShardSet,
    seq: u64,
    _shard: Process,
}

impl Direct {
    pub async fn start(dir: &Path, job: &PreparedJob, transport: Choice) -> Result<Self> {
        let state = dir.join("direct");
        std::fs::create_dir_all(&state)?;
        let token = Token::load_or_create(&state.join("token"))?;
        let (shard, address) = Process::listening(&["ps", "--state-dir", &state.to_string_lossy()])?;
        let (_, train) = job.spec.train().context("a job that trains")?;
        let initial = BlobClient::new(token.clone())
            .put(&address, &job.blobs[&train.model.initial])
            .context("the values")?;
        let order = OpenJob {
            job: job.spec.id.clone(),
            generation: Generation(1),
            shard: ShardIndex(0),
            shards: vec![address.clone()],
            layout: train.model.layout.clone(),
            clip_norm: None,
            optimizer: RULE,
            initial,
            checkpoint: None,
        };
        let calls = connect::<ShardRequest, ShardResponse>(&address, Role::Control, &token).await?;
        let control = ShardClient::new(tarpc::client::Config::default(), calls).spawn();
        control.open(within(std::time::Duration::from_secs(10)), EngineEpoch(1), order).await??;
        let elements = train.model.layout.elements().context("a layout of sane size")?;
        let session =
            SessionKey { job: job.spec.id.clone(), generation: Generation(1), incarnation: Incarnation(1) };
        let options = ClientOptions { transport, ..ClientOptions::default() };
        let (addresses, canceller) = ([address].as_slice().into(), Canceller::default());
        let mut shards = ShardSet::connect_with(&addresses, token, session, elements, options, canceller)?;
        // The first step has nothing to ask for ahead.
        shards.pull(NOW, &mut vec![0.0; elements as usize])?;
        Ok(Self { shards, seq: 0, _shard: shard })
    }

    /// How the bytes travel.
    pub fn transport(&self) -> String {
        self.shards.transports().map(|transport| transport.to_string()).collect()
    }

    /// One step: compute, push, pull.
    pub fn step(&mut self, step: &mut Step) -> Result<()> {
        self.seq += 1;
        let (shards, seq) = (&mut self.shards, self.seq);
        let header = PushHeader {
            learning_rate: LEARNING_RATE,
            weight: 1.0,
            scale: 1.0,
            skip: false,
            mode: PushMode::Apply,
            covers: 1,
        };
        step.run(|values, gradients| {
            shards.push_and_request(seq, header, gradients, Some(NOW))?;
            shards.pull(NOW, values)
        })??;
        Ok(())
    }
}
