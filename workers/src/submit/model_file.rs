//! Reading model files.

use std::{
    io::{self, Read},
    path::Path,
};

use flate2::read::MultiGzDecoder;
use syncline_rpc::input;

use syncline_onnx::MAX_MODEL_BYTES;

/// The bytes of a file, unpacked if its name ends in `.gz`. Reads at most one byte more than a model may have, which
/// [`parse`](syncline_onnx::parse) then refuses.
///
/// # Errors
/// What the system says; a damaged file of `.gz` as well.
pub fn read_model(path: &Path) -> io::Result<Vec<u8>> {
    let file = input::open(path)?;
    let packed = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
    let mut bytes = Vec::new();
    let limit = MAX_MODEL_BYTES as u64 + 1;
    match packed {
        true => MultiGzDecoder::new(file).take(limit).read_to_end(&mut bytes)?,
        false => file.take(limit).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    #[test]
    fn a_packed_file_reads_as_its_contents_and_a_damaged_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, packed) = (dir.path().join("m.onnx"), dir.path().join("m.onnx.gz"));
        fs::write(&plain, b"a model").unwrap();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(b"a model").unwrap();
        let bytes = encoder.finish().unwrap();
        fs::write(&packed, &bytes).unwrap();
        assert_eq!(
            (read_model(&plain).unwrap(), read_model(&packed).unwrap()),
            (b"a model".to_vec(), b"a model".to_vec())
        );
        fs::write(&packed, &bytes[..bytes.len() - 4]).unwrap();
        assert!(read_model(&packed).is_err());
        assert!(read_model(&dir.path().join("none.onnx")).is_err());
    }
}
