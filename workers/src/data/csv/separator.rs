//! What separates the columns of a file, by its first records, where the job does not say it.

use std::path::Path;

use syncline_scheduler::spec::Separator;

use super::super::error::{DataError, TableError};
use super::comments;
use super::fields::{Field, Fields};
use super::text::{has_comma, number};

/// Records that are looked at.
const MOST_RECORDS: usize = 20;

/// The first records of a file, cut by one separator.
struct Reading {
    separator: Separator,
    /// Columns of the first record.
    columns: usize,
    /// Whether all records have as many.
    is_even: bool,
    /// Fields that are not empty, and how many of them are numbers: below the first record, which may be a
    /// header, or of it where it is the only one.
    filled: usize,
    numbers: usize,
}

/// Finds it: the one that cuts all records into as many columns, two or more, and of several such the one by
/// which most fields are numbers. Where none does, the one that cuts the first record, and otherwise commas:
/// what is wrong with the file is said as it is read. `bytes`: without byte order mark.
pub(super) fn find(path: &Path, bytes: &[u8], skip_lines: u32) -> Result<Separator, DataError> {
    let readings = Separator::ALL.map(|separator| Reading::of(path, bytes, skip_lines, separator));
    let mut candidates: Vec<&Reading> = readings.iter().filter(|reading| reading.columns > 1).collect();
    if candidates.iter().any(|reading| reading.is_even) {
        candidates.retain(|reading| reading.is_even);
    }
    let Some(best) =
        candidates.iter().copied().reduce(|best, other| if other.is_better(best) { other } else { best })
    else {
        return Ok(Separator::Comma);
    };
    let is_equal = |other: &&Reading| !best.is_better(other) && other.separator != best.separator;
    match candidates.iter().copied().find(is_equal) {
        // Without any number it is a header alone, or texts, of which the reader says what is wrong.
        Some(other) if best.numbers > 0 => Err(TableError::UnclearSeparator {
            path: path.to_owned(),
            separators: [best.separator, other.separator].map(Separator::plural),
        }
        .into()),
        _ => Ok(best.separator),
    }
}

impl Reading {
    fn of(path: &Path, bytes: &[u8], skip_lines: u32, separator: Separator) -> Self {
        let mut reading = Self { separator, columns: 0, is_even: true, filled: 0, numbers: 0 };
        let mut fields = Fields::new(path, bytes, skip_lines, separator);
        while fields.line().is_some_and(comments::is_comment) {
            fields.skip_line();
        }
        let mut records = 0;
        while records < MOST_RECORDS {
            let (mut filled, mut numbers, mut columns) = (0, 0, 0);
            let ended = loop {
                match fields.next() {
                    Ok(Some(Field { text, ends_record, .. })) => {
                        columns += 1;
                        filled += usize::from(!text.is_empty());
                        numbers += usize::from(is_number(text, separator));
                        if ends_record {
                            break true;
                        }
                    }
                    Ok(None) | Err(_) => break false,
                }
            };
            if !ended {
                break;
            }
            // An empty line is one field; that it does not belong there is said as it is read.
            if filled == 0 && columns == 1 {
                continue;
            }
            records += 1;
            match records {
                1 => reading.columns = columns,
                2 => (reading.filled, reading.numbers) = (0, 0),
                _ => {}
            }
            reading.is_even &= columns == reading.columns;
            reading.filled += filled;
            reading.numbers += numbers;
        }
        reading
    }

    /// Whether a larger share of its fields are numbers.
    fn is_better(&self, other: &Self) -> bool {
        self.numbers * other.filled.max(1) > other.numbers * self.filled.max(1)
    }
}

/// Whether it is one, or would be with a decimal point, where the comma separates nothing.
fn is_number(field: &[u8], separator: Separator) -> bool {
    number(field).is_some() || separator != Separator::Comma && has_comma(field)
}
