//! The numbers of all samples for one input: in memory, or in files from which they are read as a batch wants
//! them.

use super::array_parts::{ArrayPart, ArrayParts};
use super::augment::{Augmentation, Pass};
use super::block::{BatchTensor, Block};
use super::disk_array::DiskArray;
use super::error::{DataError, FileError};
use super::file::Step;
use super::fit::Purpose;

/// One input, or the label.
#[derive(Debug, Clone)]
pub(super) struct Column {
    /// In the order of their samples; one or more.
    parts: Vec<Part>,
    rows: u32,
}

/// Samples that lie in one place.
#[derive(Debug, Clone)]
struct Part {
    first_row: u32,
    /// All of them, or the first one of those on the disk, which is like them.
    block: Block,
    on_disk: Option<OnDisk>,
}

/// Samples in a file, and what becomes of them when they are read.
#[derive(Debug, Clone)]
struct OnDisk {
    array: DiskArray,
    purpose: Purpose,
}

impl OnDisk {
    /// Reads these samples. Everything was checked when the file was opened: what is wrong now was not there
    /// then.
    fn read(&self, rows: &[u32]) -> Result<Block, DataError> {
        let changed = || DataError::from(FileError::Changed { path: self.array.path().to_owned() });
        self.purpose.fit(self.array.read(rows)?).map_err(|_| changed())
    }
}

impl Column {
    /// Checks all numbers of these arrays, and keeps those that are in memory. There is one sample at least.
    pub(super) fn of(parts: ArrayParts, purpose: &Purpose, step: &mut Step<'_>) -> Result<Self, DataError> {
        let mut column = Self { parts: Vec::new(), rows: 0 };
        for part in std::iter::once(parts.first).chain(parts.others) {
            let rows = part.rows() as u32;
            let (block, on_disk) = match part {
                ArrayPart::InMemory(array) => (purpose.fit(array)?, None),
                ArrayPart::OnDisk(array) => {
                    array.each_piece(step, |piece| purpose.fit(piece).map(drop))?;
                    let on_disk = OnDisk { array, purpose: purpose.clone() };
                    (on_disk.read(&[0])?, Some(on_disk))
                }
            };
            column.parts.push(Part { first_row: column.rows, block, on_disk });
            column.rows += rows;
        }
        Ok(column)
    }

    /// Element type, shape, and how the numbers of its samples are kept; of these only those in memory are
    /// here.
    pub(super) fn like(&self) -> &Block {
        &self.parts[0].block
    }

    /// Shape of one sample.
    pub(super) fn shape(&self) -> &[usize] {
        &self.like().shape
    }

    /// Numbers of one sample.
    pub(super) fn width(&self) -> usize {
        self.like().width()
    }

    /// Puts the samples of a test set after these; `false` if they are of another shape or kept in another
    /// type.
    pub(super) fn append(&mut self, other: Self) -> bool {
        let are_one_kind = self.like().kind() == other.like().kind();
        if !are_one_kind && !self.like().is_of_floats_like(other.like()) {
            return false;
        }
        // What stands last may be the validation set, with floats of the other width.
        let may_join = |last: &Part, part: &Part| {
            last.on_disk.is_none() && part.on_disk.is_none() && last.block.kind() == part.block.kind()
        };
        for part in other.parts {
            match self.parts.last_mut() {
                Some(last) if may_join(last, &part) => last.block.append(part.block),
                _ => self.parts.push(Part { first_row: self.rows + part.first_row, ..part }),
            }
        }
        self.rows += other.rows;
        true
    }

    /// Replaces what `batch` holds by these rows, which exist. The batch was made by this column.
    pub(super) fn gather(&self, rows: &[u32], batch: &mut BatchTensor) -> Result<(), DataError> {
        batch.begin(rows.len());
        self.each_block(rows, |block, here, _| block.gather(here, batch))
    }

    /// The same with images that change in this pass: of a float input of three axes.
    pub(super) fn gather_augmented(
        &self,
        rows: &[u32],
        augmentation: &Augmentation,
        pass: Pass,
        batch: &mut BatchTensor,
    ) -> Result<(), DataError> {
        batch.begin(rows.len());
        self.each_block(rows, |block, here, rows| {
            here.iter().zip(rows).for_each(|(&row, &row_of_set)| {
                block.gather_augmented((row, row_of_set), augmentation, pass, batch);
            });
        })
    }

    /// Hands out these rows, which exist, in their order, in blocks: where in the block they are, and which
    /// they are. Samples on the disk are read, a few megabytes at a time.
    pub(super) fn each_block(
        &self,
        rows: &[u32],
        mut each: impl FnMut(&Block, &[u32], &[u32]),
    ) -> Result<(), DataError> {
        if let [Part { block, on_disk: None, .. }] = self.parts.as_slice() {
            each(block, rows, rows);
            return Ok(());
        }
        for (part, here, rows) in self.by_part(rows) {
            let Some(on_disk) = &part.on_disk else {
                each(&part.block, &here, rows);
                continue;
            };
            let at_once = on_disk.array.rows_at_once();
            for (here, rows) in here.chunks(at_once).zip(rows.chunks(at_once)) {
                let in_block: Vec<u32> = (0..here.len() as u32).collect();
                each(&on_disk.read(here)?, &in_block, rows);
            }
        }
        Ok(())
    }
    /// Asks the system to fetch those of these rows meanwhile that are on the disk.
    pub(super) fn read_ahead(&self, rows: &[u32]) {
        if self.parts.iter().all(|part| part.on_disk.is_none()) {
            return;
        }
        for (part, here, _) in self.by_part(rows) {
            if let Some(on_disk) = &part.on_disk {
                on_disk.array.read_ahead(&here);
            }
        }
    }

    /// These rows, which exist, by the part that they are in: their places in it, and which they are.
    fn by_part<'a>(&'a self, rows: &'a [u32]) -> impl Iterator<Item = (&'a Part, Vec<u32>, &'a [u32])> {
        let part_of = |row: u32| self.parts.partition_point(|part| part.first_row <= row) - 1;
        let pieces = rows.chunk_by(move |&row, &next| part_of(row) == part_of(next));
        pieces.map(move |rows| {
            let part = &self.parts[part_of(rows[0])];
            (part, rows.iter().map(|row| row - part.first_row).collect(), rows)
        })
    }
}
