//! Reading model files, and the files beside them in which exporters put weights.

use std::{
    io::{self, Read, Seek, SeekFrom},
    path::{Component, Path},
};

use flate2::read::MultiGzDecoder;
use syncline_rpc::input;

use syncline_onnx::{ExternalData, MAX_MODEL_BYTES, OnnxError, with_external_data};

use crate::data::is_packed;

/// The bytes of a file, unpacked if its name ends in `.gz`. Reads at most one byte more than a model may
/// have, which [`parse`](syncline_onnx::parse) then refuses.
///
/// # Errors
/// What the system says; a damaged file of `.gz` as well.
pub fn read_model(path: &Path) -> io::Result<Vec<u8>> {
    let file = input::open(path)?;
    let mut bytes = Vec::new();
    let limit = MAX_MODEL_BYTES as u64 + 1;
    match is_packed(path) {
        true => MultiGzDecoder::new(file).take(limit).read_to_end(&mut bytes)?,
        false => file.take(limit).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}

/// The same model with the weights in it that lie in files of its folder, none of which is outside of that by
/// its path or by a link.
///
/// # Errors
/// E307 if such a file is none of the folder, is not there or too short, E301 if all of it is too large, E308
/// if the model says something else than that.
pub fn with_weights_beside(path: &Path, model: Vec<u8>) -> Result<Vec<u8>, OnnxError> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    Ok(with_external_data(&model, |place| read_beside(folder, place))?.unwrap_or(model))
}

fn read_beside(folder: &Path, place: &ExternalData) -> Result<Vec<u8>, String> {
    let ExternalData { location, offset, bytes } = place;
    let unread = |error: io::Error| format!("`{location}`, which cannot be read: {error}");
    let is_beneath = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    let outside = || format!("`{location}`, which is not in the folder of the model");
    if !Path::new(location).components().all(is_beneath) {
        return Err(outside());
    }
    let folder = folder.canonicalize().map_err(unread)?;
    let path = folder.join(location).canonicalize().map_err(unread)?;
    if !path.starts_with(&folder) {
        return Err(outside());
    }
    let mut file = input::open(&path).map_err(unread)?;
    let held = file.metadata().map_err(unread)?.len();
    if offset.checked_add(*bytes).is_none_or(|end| end > held) {
        return Err(format!(
            "`{location}`, which has {held} bytes: {bytes} from byte {offset} on were to be in it"
        ));
    }
    file.seek(SeekFrom::Start(*offset)).map_err(unread)?;
    let mut data = vec![0; *bytes as usize];
    file.read_exact(&mut data).map_err(unread)?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use flate2::{Compression, write::GzEncoder};
    use syncline_onnx::{mlp, parse, proto::StringStringEntryProto};

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

    #[test]
    fn weights_in_a_file_of_the_folder_are_read_and_no_file_outside_of_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("models");
        fs::create_dir_all(folder.join("data")).unwrap();
        let numbers = [7.0_f32.to_le_bytes(); 12].concat();
        let file = [&[0; 8], &numbers[..]].concat();
        for name in ["models/m.data", "models/data/m", "secret"] {
            fs::write(dir.path().join(name), &file).unwrap();
        }
        std::os::unix::fs::symlink(dir.path().join("secret"), folder.join("link")).unwrap();
        let absolute = folder.join("m.data").display().to_string();
        #[rustfmt::skip]
        let cases = [
            ("m.data",    "8",  Ok(())),
            ("./data/m",  "8",  Ok(())),
            ("m.data",    "12", Err("which has 56 bytes: 48 from byte 12 on")),
            ("m.data",    "18446744073709551615", Err("which has 56 bytes")),
            ("none",      "8",  Err("which cannot be read")),
            ("data",      "8",  Err("a folder, not a file")),
            ("../secret", "8",  Err("not in the folder of the model")),
            (&absolute,   "8",  Err("not in the folder of the model")),
            ("link",      "8",  Err("not in the folder of the model")),
        ];
        for (location, offset, want) in cases {
            let mut model = mlp(&[3, 4, 2], 1);
            let weight = &mut model.graph.as_mut().unwrap().initializer[0];
            (weight.raw_data, weight.data_location) = (None, 1);
            let entries = [("location", location), ("offset", offset)];
            let entry =
                |(key, value): (&str, &str)| StringStringEntryProto { key: key.into(), value: value.into() };
            weight.external_data = entries.map(entry).to_vec();
            let read = with_weights_beside(&folder.join("m.onnx"), model.to_bytes());
            match want {
                Ok(()) => {
                    let graph = parse(&read.unwrap()).unwrap().graph.unwrap();
                    assert_eq!(graph.initializer[0].to_f32().unwrap(), [7.0; 12], "{location}");
                }
                Err(words) => {
                    let error = read.unwrap_err();
                    assert!(error.code() == "E307" && error.to_string().contains(words), "{error}");
                }
            }
        }
    }
}
