//! The frame of a record: its length, the checksum of that, the record, and its checksum.

/// CRC-32C (Castagnoli), bits reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// A record in its frame.
pub(super) fn framed(record: &[u8]) -> Vec<u8> {
    let length = (record.len() as u64).to_le_bytes();
    [&length[..], &masked(crc32c(&length)), record, &masked(crc32c(record))].concat()
}

/// Masked, so that a checksum over bytes which hold checksums is sound.
fn masked(crc: u32) -> [u8; 4] {
    crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// Bit by bit: a curve has a few hundred short records.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 3720, B.4, and the check value of the polynomial.
    #[test]
    fn checksums_are_those_of_the_standard() {
        let rising: Vec<u8> = (0..32).collect();
        let cases = [
            (&[][..], 0),
            (b"123456789", 0xe306_9283),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&rising, 0x46dd_794e),
        ];
        for (bytes, want) in cases {
            assert_eq!(crc32c(bytes), want, "{bytes:?}");
        }
    }

    #[test]
    fn a_frame_has_sixteen_bytes_around_its_record() {
        let framed = framed(b"abc");
        assert_eq!((framed.len(), framed[0], &framed[12..15]), (19, 3, &b"abc"[..]));
    }
}
