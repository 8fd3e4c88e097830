//! Limited resources: memory and GPUs. A task takes some of it, a worker offers some, and what is taken of
//! that is counted, not measured.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Memory and GPUs: what a task needs, what a worker offers, or what is left of that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Resources {
    /// Main memory; 0: none is asked for, or offered.
    pub memory_bytes: u64,
    /// Whole GPUs; 0: none is asked for, or offered.
    pub gpus: u32,
}

impl Resources {
    /// Whether it is nothing.
    pub fn is_none(&self) -> bool {
        (self.memory_bytes, self.gpus) == (0, 0)
    }

    /// How often `each` fits into this; without end if it is nothing.
    pub fn fits(&self, each: &Self) -> u32 {
        let memory = self.memory_bytes.checked_div(each.memory_bytes);
        let memory = memory.map_or(u32::MAX, |times| u32::try_from(times).unwrap_or(u32::MAX));
        memory.min(self.gpus.checked_div(each.gpus).unwrap_or(u32::MAX))
    }

    /// This and `other` together.
    pub fn plus(self, other: &Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            gpus: self.gpus.saturating_add(other.gpus),
        }
    }

    /// What is left of this without `other`.
    pub fn minus(self, other: &Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
            gpus: self.gpus.saturating_sub(other.gpus),
        }
    }

    /// So much of the kinds that `asked` has some of, in words: `4 GiB of memory and 0 GPUs`.
    pub fn in_words(&self, asked: &Self) -> String {
        let memory = (asked.memory_bytes > 0).then(|| format!("{} of memory", MemorySize(self.memory_bytes)));
        let plural = if self.gpus == 1 { "" } else { "s" };
        let gpus = (asked.gpus > 0).then(|| format!("{} GPU{plural}", self.gpus));
        memory.into_iter().chain(gpus).collect::<Vec<_>>().join(" and ")
    }
}

/// An amount of memory in bytes, as people write it: `4GiB`, `1.5 GiB`, `512MB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemorySize(pub u64);

/// Why a text is no [`MemorySize`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "[E061] `{0}` is not an amount of memory: expected a number and a unit (B, KB, MB, GB, TB, KiB, MiB, GiB or TiB), such as 4GiB"
)]
pub struct InvalidMemorySize(String);

const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
];

impl FromStr for MemorySize {
    type Err = InvalidMemorySize;

    fn from_str(text: &str) -> Result<Self, InvalidMemorySize> {
        let invalid = || InvalidMemorySize(text.to_owned());
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let (number, unit) = text.split_at(text.find(|c| !is_number(c)).ok_or_else(invalid)?);
        let known = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()));
        let (_, unit_bytes) = known.ok_or_else(invalid)?;
        let bytes = number.parse::<f64>().map_err(|_| invalid())? * *unit_bytes as f64;
        // Above 2^53 a number of bytes is rounded, which is more than any machine has.
        if bytes < u64::MAX as f64 { Ok(Self(bytes as u64)) } else { Err(invalid()) }
    }
}

impl fmt::Display for MemorySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = UNITS[..5].iter().find(|(_, bytes)| self.0 >= *bytes);
        let (unit, unit_bytes) = binary.unwrap_or(&("B", 1));
        let number = format!("{:.2}", self.0 as f64 / *unit_bytes as f64);
        write!(f, "{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_memory_are_read_and_written() {
        let table = [
            ("4GiB", 4 << 30, "4 GiB"),
            ("1.5 GiB", 3 << 29, "1.5 GiB"),
            ("512mib", 512 << 20, "512 MiB"),
            ("1GB", 1_000_000_000, "953.67 MiB"),
            ("0B", 0, "0 B"),
            ("1000B", 1_000, "1000 B"),
        ];
        for (text, bytes, written) in table {
            assert_eq!(text.parse(), Ok(MemorySize(bytes)), "{text}");
            assert_eq!(MemorySize(bytes).to_string(), written);
        }
        for bad in ["", "4", "GiB", "4 gigs", "-1GiB", "1..2GiB", "1e3GiB", "99999999TiB", "4GiB/s"] {
            assert!(bad.parse::<MemorySize>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_refused_amount_of_memory_names_every_unit() {
        let error = "4".parse::<MemorySize>().unwrap_err().to_string();
        let units = error.split(['(', ')']).nth(1).unwrap();
        let mut named: Vec<_> = units.split([' ', ',']).filter(|word| !["", "or"].contains(word)).collect();
        let mut known = UNITS.map(|(unit, _)| unit);
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known);
    }

    #[test]
    fn how_often_something_fits_table() {
        let of = |memory_bytes, gpus| Resources { memory_bytes, gpus };
        let table = [
            ("nothing fits always", of(0, 0), of(0, 0), u32::MAX),
            ("memory", of(10, 0), of(3, 0), 3),
            ("the scarcer of two", of(10, 1), of(3, 1), 1),
            ("none of one", of(10, 0), of(3, 1), 0),
            ("more than a number", of(u64::MAX, 0), of(1, 0), u32::MAX),
        ];
        for (name, there, each, want) in table {
            assert_eq!(there.fits(&each), want, "{name}");
        }
        assert_eq!(of(1 << 30, 2).in_words(&of(1, 1)), "1 GiB of memory and 2 GPUs");
        assert_eq!(of(1 << 30, 1).in_words(&of(0, 1)), "1 GPU");
    }
}
