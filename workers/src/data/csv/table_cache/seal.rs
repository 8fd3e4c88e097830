//! Digests of the files of a table as they were written, which tell whether they still are: a flipped bit in
//! them would be trained on.
//!
//! Looking costs one read of all of them, at the speed of the disk or, where the system has them in memory,
//! of BLAKE3.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use syncline_ps::content::digest_from;
use syncline_scheduler::ids::ContentDigest;

use super::super::super::error::DataError;
use super::super::super::file::STEP_BYTES;
use super::Look;

/// The numbers of all samples, in a folder of a table.
pub(in super::super) const SAMPLES: &str = "samples";
/// Those of their labels.
pub(in super::super) const LABELS: &str = "labels";
/// What is kept beside the numbers.
pub(in super::super) const ABOUT: &str = "about.json";
/// What these were.
pub(super) const SEAL: &str = "digests.json";

/// Of the files of a table.
#[derive(Serialize, Deserialize)]
struct Seal {
    samples: Digest,
    labels: Digest,
    about: Digest,
}

#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Digest {
    bytes: u64,
    blake3: ContentDigest,
}

/// Notes what the files in this folder are.
pub(super) fn seal(folder: &Path, look: &mut Look<'_>) -> Result<io::Result<()>, DataError> {
    let mut digest_of = |name| match File::open(folder.join(name)) {
        Ok(file) => digest(&file, look),
        Err(error) => Ok(Err(error)),
    };
    let (samples, labels, about) = (digest_of(SAMPLES)?, digest_of(LABELS)?, digest_of(ABOUT)?);
    let write = || {
        let seal = serde_json::to_vec(&Seal { samples: samples?, labels: labels?, about: about? })?;
        let mut file = File::create(folder.join(SEAL))?;
        file.write_all(&seal)?;
        file.sync_all()
    };
    Ok(write())
}

/// The files of a table, as they are found.
pub(super) enum Opened {
    /// Its labels, and what is kept beside them.
    Whole([File; 2]),
    /// What is wrong with one of them, in words.
    Damaged(String),
}

/// Opens a table whose samples are these. `is_checked`: somebody has looked through its files.
pub(super) fn open(
    folder: &Path,
    samples: &File,
    is_checked: bool,
    look: &mut Look<'_>,
) -> Result<Opened, DataError> {
    let opened = |name: &str| File::open(folder.join(name)).map_err(|error| format!("{name}: {error}"));
    let known = || {
        let seal = fs::read(folder.join(SEAL)).and_then(|seal| Ok(serde_json::from_slice::<Seal>(&seal)?));
        Ok((opened(LABELS)?, opened(ABOUT)?, seal.map_err(|error| format!("{SEAL}: {error}"))?))
    };
    let (labels, about, known) = match known() {
        Ok(known) => known,
        Err(why) => return Ok(Opened::Damaged(why)),
    };
    let files =
        [(SAMPLES, samples, known.samples), (LABELS, &labels, known.labels), (ABOUT, &about, known.about)];
    for (name, file, known) in files.into_iter().filter(|_| !is_checked) {
        if let Err(why) = check(file, &known, look)? {
            return Ok(Opened::Damaged(format!("{name}: {why}")));
        }
    }
    Ok(Opened::Whole([labels, about]))
}

/// Whether a file is what it was; else what is wrong with it.
fn check(file: &File, known: &Digest, look: &mut Look<'_>) -> Result<Result<(), String>, DataError> {
    Ok(match digest(file, look)? {
        Err(error) => Err(error.to_string()),
        Ok(found) if found.bytes != known.bytes => {
            Err(format!("{} bytes, of {} that were written", found.bytes, known.bytes))
        }
        Ok(found) if found != *known => Err("other bytes than were written".to_owned()),
        Ok(_) => Ok(()),
    })
}

fn digest(file: &File, look: &mut Look<'_>) -> Result<io::Result<Digest>, DataError> {
    let (mut hasher, mut bytes, mut piece) = (blake3::Hasher::new(), 0, vec![0; STEP_BYTES]);
    loop {
        match file.read_at(&mut piece, bytes) {
            Ok(0) => return Ok(Ok(Digest { bytes, blake3: digest_from(hasher.finalize()) })),
            Ok(count) => {
                hasher.update(&piece[..count]);
                bytes += count as u64;
                look()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Ok(Err(error)),
        }
    }
}
