//! A checkpoint file from the parts of all shards.

use std::{
    collections::BTreeMap,
    io::{self, Seek, SeekFrom, Write},
};

use blake3::Hasher;
use safetensors::tensor::{Dtype, TensorInfo};
use syncline_scheduler::{
    ids::ContentDigest,
    spec::{ElementRange, Layout, Parameter, ResumeSpec, StepRun},
};

use super::{ABOUT, ABOUT_DIGEST, CheckpointAbout, CheckpointSamples, FORMAT, MOMENTS, Sections};
use crate::{
    content::{digest_from, digest_of},
    shard::{CHUNK_ELEMENTS, CheckpointPart},
    tensor_header::tensor_header,
};

/// Most characters of one run of steps in the head, as JSON.
const STEP_RUN_CHARS: u64 = 80;

/// Writes the file of one checkpoint of a training that was given these samples. `parts` gives what the
/// shards kept of it, in order, one at a time, so that only one is in memory.
///
/// # Errors
/// Invalid data if the parts are not those of one checkpoint, and what `parts` and the disk say.
pub fn write_checkpoint_file(
    resume: ResumeSpec,
    samples: Option<CheckpointSamples>,
    parts: impl ExactSizeIterator<Item = io::Result<Vec<u8>>>,
    out: &mut (impl Write + Seek),
) -> io::Result<()> {
    let mut about: Option<(CheckpointAbout, Sections)> = None;
    let mut hashers: [Hasher; 3] = Default::default();
    let (mut at, count) = (0, parts.len() as u64);
    for bytes in parts {
        let bytes = bytes?;
        let part = CheckpointPart::read(&bytes[..])?;
        if part.job() != &resume.job || part.number() != resume.checkpoint || part.range().start != at {
            return Err(damaged("it is no part of this checkpoint"));
        }
        let (about, sections) = match &mut about {
            Some(about) => about,
            empty => empty.insert(begin(&part, &resume, &samples, count)?),
        };
        if part.layout() != &about.layout {
            return Err(damaged("its parts are of different models"));
        }
        at = write_part(part, at, (about, sections), &mut hashers, out)?;
    }
    let Some((mut about, sections)) = about.filter(|(about, _)| about.layout.elements() == Some(at)) else {
        return Err(damaged("its parts do not make up the whole"));
    };
    about.digests = digests(&hashers[..about.digests.len()]);
    let head = header(&about)?;
    let room = sections.values(ElementRange { start: 0, end: 0 }).offset - 8;
    if head.len() as u64 > room {
        return Err(damaged("its head is longer than it can be"));
    }
    out.seek(SeekFrom::Start(0))?;
    out.write_all(&room.to_le_bytes())?;
    out.write_all(&head)?;
    // Blanks fill the room that was left for it.
    out.write_all(&vec![b' '; (room - head.len() as u64) as usize])?;
    out.flush()
}

/// What the first part says, and where the numbers will lie: room for the head is left before them.
fn begin(
    part: &CheckpointPart<&[u8]>,
    resume: &ResumeSpec,
    samples: &Option<CheckpointSamples>,
    parts: u64,
) -> io::Result<(CheckpointAbout, Sections)> {
    let (layout, optimizer) = (part.layout().clone(), part.optimizer());
    // All as long as they will be.
    let digests = digests(&vec![Hasher::new(); 1 + optimizer.moments() as usize]);
    let (resume, samples) = (resume.clone(), samples.clone());
    let about = CheckpointAbout { format: FORMAT, optimizer, layout, resume, samples, digests };
    let elements = about.layout.elements().ok_or_else(|| damaged("it has too many parameters"))?;
    // A run is one chunk or more, and the last chunk of a part may be shorter.
    let runs = elements / CHUNK_ELEMENTS as u64 + parts;
    let room = (header(&about)?.len() as u64 + runs * STEP_RUN_CHARS).next_multiple_of(8);
    let sections = Sections::new(8 + room, &about.layout, &about.optimizer);
    Ok((about, sections.ok_or_else(|| damaged("it has too many parameters"))?))
}

/// Writes the numbers of a part whose first element is `at`; returns where the next one begins.
fn write_part(
    mut part: CheckpointPart<&[u8]>,
    mut at: u64,
    (about, sections): (&mut CheckpointAbout, &Sections),
    hashers: &mut [Hasher; 3],
    out: &mut (impl Write + Seek),
) -> io::Result<u64> {
    while let Some(chunk) = part.next_chunk()? {
        let range = ElementRange { start: at, end: at + chunk.values().len() as u64 };
        let (first, second) = chunk.optimizer_state().moments();
        let pieces = [
            (sections.values(range), chunk.values()),
            (sections.moment(0, range), first),
            (sections.moment(1, range), second),
        ];
        let all = pieces.into_iter().zip(&mut *hashers);
        for ((piece, numbers), hasher) in all.filter(|((_, numbers), _)| !numbers.is_empty()) {
            if piece.bytes != size_of_val(numbers) as u64 {
                return Err(damaged("it holds another number of moments than its optimizer has"));
            }
            out.seek(SeekFrom::Start(piece.offset))?;
            let bytes = bytemuck::cast_slice(numbers);
            hasher.update(bytes);
            out.write_all(bytes)?;
        }
        add_steps(&mut about.resume.steps, chunk.trained() as u64, chunk.optimizer_state().steps());
        at = range.end;
    }
    Ok(at)
}

fn digests(hashers: &[Hasher]) -> Vec<ContentDigest> {
    hashers.iter().map(|hasher| digest_from(hasher.finalize())).collect()
}

fn add_steps(runs: &mut Vec<StepRun>, elements: u64, steps: u64) {
    match runs.last_mut() {
        _ if elements == 0 => {}
        Some(run) if run.steps == steps => run.elements += elements,
        _ => runs.push(StepRun { elements, steps }),
    }
}

/// Names, shapes and places of all tensors, and what the file is about, as JSON.
fn header(about: &CheckpointAbout) -> io::Result<Vec<u8>> {
    let CheckpointAbout { layout, optimizer, .. } = about;
    let text = serde_json::to_string(about)?;
    let digest = digest_of(text.as_bytes()).to_string();
    let metadata = BTreeMap::from([(ABOUT, text), (ABOUT_DIGEST, digest)]);
    let sections =
        Sections::new(0, layout, optimizer).ok_or_else(|| damaged("it has too many parameters"))?;
    let values = layout.ranges().map(|(p, range)| (p.name.clone(), p, sections.values(range)));
    let moments = MOMENTS.into_iter().zip(0..optimizer.moments()).flat_map(|(moment, index)| {
        trained(layout)
            .map(move |(p, range)| (format!("{moment}{}", p.name), p, sections.moment(index, range)))
    });
    let tensors = values.chain(moments).map(|(name, parameter, piece)| {
        let info = TensorInfo {
            dtype: Dtype::F32,
            shape: parameter.shape.iter().map(|&d| d as usize).collect(),
            data_offsets: (piece.offset as usize, (piece.offset + piece.bytes) as usize),
        };
        (name, info)
    });
    tensor_header(&metadata, tensors.collect())
        .map_err(|e| damaged(&format!("no safetensors header for its parameters: {e}")))
}

fn trained(layout: &Layout) -> impl Iterator<Item = (&Parameter, ElementRange)> {
    layout.ranges().filter(|(parameter, _)| parameter.is_trained())
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}
