//! The sixteen bytes in front of everything.

use std::io::{self, Read};

use super::WireError;

/// Longest head; faults carry texts, everything else stays below 300 bytes.
pub const MAX_HEAD_BYTES: usize = 16 * 1024;

pub(super) const FRAME_BYTES: usize = 16;
const MAGIC: [u8; 2] = *b"SL";
/// Where the check stands.
const CHECK: std::ops::Range<usize> = 6..8;

/// What the first sixteen bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    pub kind: u8,
    pub head: u32,
    pub body: u64,
}

impl Frame {
    fn decode(bytes: [u8; FRAME_BYTES]) -> Result<Self, WireError> {
        let [m0, m1, kind, zero, h0, h1, _, _, body @ ..] = bytes;
        if [m0, m1] != MAGIC || zero != 0 {
            return Err(WireError::NotAFrame);
        }
        let frame =
            Self { kind, head: u32::from(u16::from_le_bytes([h0, h1])), body: u64::from_le_bytes(body) };
        if frame.head as usize > MAX_HEAD_BYTES {
            return Err(WireError::TooLong { kind, bytes: u64::from(frame.head) });
        }
        Ok(frame)
    }

    /// Reads one frame's start and its head into `scratch`; `None` if the peer hung up between two frames.
    pub(super) fn read(from: &mut impl Read, scratch: &mut Vec<u8>) -> Result<Option<Self>, WireError> {
        let mut bytes = [0; FRAME_BYTES];
        let first = loop {
            match from.read(&mut bytes) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if first == 0 {
            return Ok(None);
        }
        from.read_exact(&mut bytes[first..])?;
        let frame = Self::decode(bytes)?;
        scratch.resize(frame.head as usize, 0);
        from.read_exact(scratch)?;
        if bytes[CHECK] != check(&bytes, scratch) {
            return Err(WireError::Check { kind: frame.kind });
        }
        Ok(Some(frame))
    }
}

/// Sixteen bits that tell whether a start and its head arrived as they were sent; one change of 65,536 goes
/// unseen. FNV-1a, folded: a frame is short. Messages of tarpc may be long and have another one.
fn check(start: &[u8], head: &[u8]) -> [u8; 2] {
    let said = start[..CHECK.start].iter().chain(&start[CHECK.end..FRAME_BYTES]);
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = said.chain(head).fold(0xcbf2_9ce4_8422_2325, step);
    let folded = hash ^ hash >> 32;
    ((folded ^ folded >> 16) as u16).to_le_bytes()
}

/// Writes the check of a frame without its body.
///
/// # Panics
/// If there are fewer bytes than a frame begins with.
pub fn seal_frame(frame: &mut [u8]) {
    let (start, head) = frame.split_at(FRAME_BYTES);
    let check = check(start, head);
    frame[CHECK].copy_from_slice(&check);
}

/// Writes a frame into `out`, whose old content is dropped: `head` appends the fields.
pub(super) fn encode(out: &mut Vec<u8>, kind: u8, body: u64, head: impl FnOnce(&mut Vec<u8>)) {
    out.clear();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[kind, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&body.to_le_bytes());
    head(out);
    let length = (out.len() - FRAME_BYTES) as u16;
    out[4..6].copy_from_slice(&length.to_le_bytes());
    seal_frame(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_reads_as_written_and_its_layout_is_fixed() {
        let mut out = Vec::new();
        encode(&mut out, 7, 0x0102, |head| head.extend_from_slice(b"abc"));
        assert_eq!(out, b"SL\x07\0\x03\0\x0a\xe4\x02\x01\0\0\0\0\0\0abc");
        let mut scratch = Vec::new();
        let frame = Frame::read(&mut &out[..], &mut scratch).unwrap().unwrap();
        assert_eq!((frame, &scratch[..]), (Frame { kind: 7, head: 3, body: 0x0102 }, &b"abc"[..]));
    }

    #[test]
    fn no_single_byte_of_a_frame_changes_unseen() {
        let (mut out, mut scratch) = (Vec::new(), Vec::new());
        encode(&mut out, 1, 0x0102_0304, |head| head.extend_from_slice(b"digits, 1, 2, 3"));
        for at in 0..out.len() {
            for other in 0..=255 {
                let mut changed = out.clone();
                changed[at] = other;
                let read = Frame::read(&mut &changed[..], &mut scratch);
                assert_eq!(read.is_ok(), changed == out, "byte {at}: {other}: {read:?}");
            }
        }
    }

    #[test]
    fn a_clean_end_is_told_from_a_torn_frame() {
        let mut scratch = Vec::new();
        assert!(Frame::read(&mut &b""[..], &mut scratch).unwrap().is_none());
        assert!(matches!(Frame::read(&mut &b"SL\x07"[..], &mut scratch), Err(WireError::Io(_))));
    }

    #[test]
    fn a_huge_head_is_refused_before_it_is_allocated() {
        let mut scratch = Vec::new();
        let bytes = b"SL\x07\0\xff\xff\0\0\0\0\0\0\0\0\0\0";
        assert!(matches!(Frame::read(&mut &bytes[..], &mut scratch), Err(WireError::TooLong { .. })));
        assert_eq!(scratch.capacity(), 0);
        let stranger = b"GET / HTTP/1.1\r\n";
        assert!(matches!(Frame::read(&mut &stranger[..], &mut scratch), Err(WireError::NotAFrame)));
    }
}
