//! The messages of an event file, as protobuf.

/// What an event file begins with, and which events may follow.
const FILE_VERSION: &str = "brain.Event:2";

// Types of fields on the wire.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

/// Figures of one moment, each under its tag.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    /// Since the epoch of Unix.
    pub(super) at_ms: u64,
    /// Where it stands on the axis.
    pub(super) step: u64,
    pub(super) scalars: Vec<(String, f64)>,
}

/// The event with which a file begins.
pub(super) fn first(at_ms: u64) -> Vec<u8> {
    let mut event = wall_time(at_ms);
    put_bytes(&mut event, 3, FILE_VERSION.as_bytes());
    event
}

impl Event {
    /// The message. Figures are kept in single precision, as every writer of TensorBoard does.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut summary = Vec::new();
        for (tag, value) in &self.scalars {
            let mut scalar = Vec::new();
            put_bytes(&mut scalar, 1, tag.as_bytes());
            put_key(&mut scalar, 2, FIXED32);
            scalar.extend((*value as f32).to_le_bytes());
            put_bytes(&mut summary, 1, &scalar);
        }
        let mut event = wall_time(self.at_ms);
        // A zero is what is read where nothing stands.
        if self.step != 0 {
            put_key(&mut event, 2, VARINT);
            put_varint(&mut event, self.step);
        }
        put_bytes(&mut event, 5, &summary);
        event
    }
}

/// The beginning of every event.
fn wall_time(at_ms: u64) -> Vec<u8> {
    let mut event = Vec::new();
    put_key(&mut event, 1, FIXED64);
    event.extend((at_ms as f64 / 1e3).to_le_bytes());
    event
}

fn put_key(to: &mut Vec<u8>, field: u64, kind: u64) {
    put_varint(to, field << 3 | kind);
}

fn put_bytes(to: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_key(to, field, BYTES);
    put_varint(to, bytes.len() as u64);
    to.extend(bytes);
}

/// Seven bits a byte, the lowest first; all but the last have the highest bit set.
fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::jobs::metrics::tensorboard::record;

    /// What `RecordWriter` of TensorBoard 2.21.0 wrote of the same `Event` messages.
    const RECORDED: &str = "1800000000000000a37f4b2209000010a87b49da411a0d627261696e2e4576656e743a32f68f785936000000000000004f57\
        8cef09000060a87b49da411080012a280a110a0a6c6f73732f747261696e15333313400a130a0c74696d652f737465705f6d\
        7315000048414553231939000000000000008b0737f109000080a87b49da4110c08db7012a290a140a0d6163637572616379\
        2f7465737415000000000a110a0a6c6f73732f747261696e150000c07f1ca713992300000000000000b09f7743090000c0a8\
        7b49da412a180a160a0f6c6f73732f76616c69646174696f6e150000003faa29f9db";

    #[test]
    fn a_file_is_byte_for_byte_what_the_writer_of_tensorboard_writes() {
        let event = |at_ms, step, scalars: &[(&str, f64)]| {
            let scalars = scalars.iter().map(|(tag, value)| ((*tag).to_owned(), *value)).collect();
            Event { at_ms, step, scalars }.encode()
        };
        let messages = [
            first(1_764_093_600_250),
            event(1_764_093_601_500, 128, &[("loss/train", 2.3), ("time/step_ms", 12.5)]),
            event(1_764_093_602_000, 3_000_000, &[("accuracy/test", 0.0), ("loss/train", f64::NAN)]),
            event(1_764_093_603_000, 0, &[("loss/validation", 0.5)]),
        ];
        let written: String = messages
            .iter()
            .flat_map(|message| record::framed(message))
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(written, RECORDED);
    }

    #[test]
    fn numbers_take_seven_bits_a_byte() {
        for (value, want) in [
            (0, &[0][..]),
            (127, &[127]),
            (128, &[0x80, 1]),
            (300, &[0xac, 2]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(bytes, want);
        }
    }
}
