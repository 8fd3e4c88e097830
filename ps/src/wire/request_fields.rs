//! What several questions have in common, as fields of their heads.

use syncline_scheduler::{
    ids::{Generation, Incarnation, RunId},
    sync::PushMode,
};

use super::fields::{FieldReader, FieldWriter};
use crate::{
    codec::Codec,
    shard::{CHUNK_ELEMENTS, PushHeader, ReadCondition},
};

/// One incarnation of a worker in one run of a job: whose parameters are meant, and who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionKey {
    /// Whose parameters are meant, as the caller knows them: those of another run are a fault.
    pub run: RunId,
    /// The worker that asks; where shards ask each other, one that no worker has.
    pub incarnation: Incarnation,
}

impl SessionKey {
    pub(super) fn put<'a>(&self, head: FieldWriter<'a>) -> FieldWriter<'a> {
        head.short_text(self.run.job.as_str()).u64(self.run.generation.0).u64(self.incarnation.0)
    }

    pub(super) fn take(head: &mut FieldReader<'_>) -> Option<Self> {
        let job = head.short_text()?.parse().ok()?;
        let run = RunId { job, generation: Generation(head.u64()?) };
        Some(Self { run, incarnation: Incarnation(head.u64()?) })
    }
}

pub(super) fn put_push<'a>(
    head: FieldWriter<'a>,
    seq: u64,
    first_chunk: u32,
    header: &PushHeader,
) -> FieldWriter<'a> {
    let head = head.u64(seq).u32(first_chunk).f32(header.learning_rate);
    let head = head.f32(header.weight).f32(header.scale).u8(header.skip.into());
    head.u8((header.mode == PushMode::Accumulate).into()).u32(header.covers)
}

pub(super) fn take_push(head: &mut FieldReader<'_>) -> Option<(u64, u32, PushHeader)> {
    let (seq, first_chunk) = (head.u64()?, head.u32()?);
    let (learning_rate, weight, scale) = (head.f32()?, head.f32()?, head.f32()?);
    let skip = head.bool()?;
    let mode = if head.bool()? { PushMode::Accumulate } else { PushMode::Apply };
    Some((seq, first_chunk, PushHeader { learning_rate, weight, scale, skip, mode, covers: head.u32()? }))
}

pub(super) fn put_condition(head: FieldWriter<'_>, condition: ReadCondition) -> FieldWriter<'_> {
    match condition {
        ReadCondition::Version { closed, min_clock } => head.u8(0).u64(closed).u64(min_clock),
        ReadCondition::Pinned(version) => head.u8(1).u64(version),
    }
}

pub(super) fn take_condition(head: &mut FieldReader<'_>) -> Option<ReadCondition> {
    let (pinned, version) = (head.bool()?, head.u64()?);
    Some(if pinned {
        ReadCondition::Pinned(version)
    } else {
        ReadCondition::Version { closed: version, min_clock: head.u64()? }
    })
}

const PLAIN: u8 = 0;
const BF16: u8 = 1;
const FP16: u8 = 2;
const INT8: u8 = 3;
const TOP_K: u8 = 4;

pub(super) fn put_codec(codec: Codec, head: FieldWriter<'_>) -> FieldWriter<'_> {
    match codec {
        Codec::Plain => head.u8(PLAIN),
        Codec::Bf16 => head.u8(BF16),
        Codec::Fp16 => head.u8(FP16),
        Codec::Int8 => head.u8(INT8),
        Codec::TopK { of_full_chunk } => head.u8(TOP_K).u32(of_full_chunk),
    }
}

pub(super) fn take_codec(head: &mut FieldReader<'_>) -> Option<Codec> {
    Some(match head.u8()? {
        PLAIN => Codec::Plain,
        BF16 => Codec::Bf16,
        FP16 => Codec::Fp16,
        INT8 => Codec::Int8,
        TOP_K => Codec::TopK {
            of_full_chunk: head.u32().filter(|kept| (1..=CHUNK_ELEMENTS as u32).contains(kept))?,
        },
        _ => return None,
    })
}
