//! Numbers that a model keeps in files beside it, put into the model.

use prost::Message;

use crate::error::OnnxError;
use crate::parse::MAX_MODEL_BYTES;
use crate::proto::{ModelProto, TensorProto};
use crate::scan::check_parts;

/// Where the numbers of a tensor lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalData {
    /// Path of the file, as the model has it: untrusted.
    pub location: String,
    /// Bytes in front of them.
    pub offset: u64,
    /// How many bytes they are, as the shape of the tensor says.
    pub bytes: u64,
}

/// A key that every tensor with data in another file has.
const LOCATION: &str = "location";
/// `data_location` of such a tensor.
const EXTERNAL: i32 = 1;

/// The model with all weights in it that lie in other files; `None` where none does, or the bytes are no
/// model. `read` gives as many bytes as it is asked for, or says what is wrong with the file, as the end of a
/// sentence. Whatever shapes claim, it is asked for no more than a model may have.
pub fn with_external_data(
    bytes: &[u8],
    mut read: impl FnMut(&ExternalData) -> Result<Vec<u8>, String>,
) -> Result<Option<Vec<u8>>, OnnxError> {
    let may_have_some = || bytes.windows(LOCATION.len()).any(|part| part == LOCATION.as_bytes());
    if bytes.len() > MAX_MODEL_BYTES || !may_have_some() || check_parts(bytes).is_err() {
        return Ok(None);
    }
    let Ok(mut model) = ModelProto::decode(bytes) else { return Ok(None) };
    let weights = model.graph.iter_mut().flat_map(|graph| &mut graph.initializer);
    let (mut all_bytes, mut is_changed) = (bytes.len() as u64, false);
    for tensor in weights.filter(|tensor| tensor.data_location == EXTERNAL) {
        let place = place(tensor)?;
        all_bytes = all_bytes.saturating_add(place.bytes);
        if all_bytes > MAX_MODEL_BYTES as u64 {
            return Err(OnnxError::TooLarge { bytes: all_bytes as usize, limit: MAX_MODEL_BYTES });
        }
        let outside = |reason| OnnxError::ExternalData { tensor: tensor.name.clone(), reason };
        tensor.raw_data = Some(read(&place).map_err(outside)?);
        tensor.data_location = 0;
        tensor.external_data.clear();
        is_changed = true;
    }
    Ok(is_changed.then(|| model.encode_to_vec()))
}

fn place(tensor: &TensorProto) -> Result<ExternalData, OnnxError> {
    let entry =
        |key: &str| tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| &entry.value);
    let bad = |reason: String| OnnxError::BadTensor { tensor: tensor.name.clone(), reason };
    let number = |key: &str, text: &String| {
        text.parse::<u64>()
            .map_err(|_| bad(format!("`{key}` of its file is `{text}`, which is no number of bytes")))
    };
    let location =
        entry(LOCATION).ok_or_else(|| bad("it does not say which file has its data".to_owned()))?;
    let bytes = tensor.data_bytes()?;
    let offset = entry("offset").map_or(Ok(0), |text| number("offset", text))?;
    let length = entry("length").map_or(Ok(bytes), |text| number("length", text))?;
    if length != bytes {
        return Err(bad(format!(
            "shape {:?} needs {bytes} bytes, its file is said to have {length}",
            tensor.dims
        )));
    }
    Ok(ExternalData { location: location.clone(), offset, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::StringStringEntryProto;
    use crate::{mlp, parse};

    /// A model whose first weight, of 12 numbers, lies elsewhere as these entries say.
    fn outside(entries: &[(&str, &str)], dims: &[i64]) -> Vec<u8> {
        let mut model = mlp(&[3, 4, 2], 1);
        let weight = &mut model.graph.as_mut().unwrap().initializer[0];
        let entry =
            |&(key, value): &(&str, &str)| StringStringEntryProto { key: key.into(), value: value.into() };
        (weight.raw_data, weight.data_location, weight.dims) = (None, EXTERNAL, dims.to_vec());
        weight.external_data = entries.iter().map(entry).collect();
        model.to_bytes()
    }

    #[test]
    fn weights_of_another_file_are_as_if_they_were_in_the_model() {
        let mut asked = Vec::new();
        let bytes = outside(&[("location", "m.data"), ("offset", "16"), ("length", "48")], &[4, 3]);
        let whole = with_external_data(&bytes, |place| {
            asked.push(place.clone());
            Ok([1.5_f32.to_le_bytes(); 12].concat())
        });
        let graph = parse(&whole.unwrap().unwrap()).unwrap().graph.unwrap();
        assert_eq!(graph.initializer[0].to_f32().unwrap(), [1.5; 12]);
        assert_eq!(asked, [ExternalData { location: "m.data".into(), offset: 16, bytes: 48 }]);
        let within = mlp(&[3, 4, 2], 1).to_bytes();
        assert_eq!(with_external_data(&within, |_| panic!("nothing lies elsewhere")).unwrap(), None);
        assert_eq!(with_external_data(b"a location, and no model", |_| panic!("no model")).unwrap(), None);
    }

    #[test]
    fn what_a_model_claims_is_refused_before_anything_is_read() {
        #[rustfmt::skip]
        let cases: [(&str, &[(&str, &str)], &[i64], &str); 6] = [
            ("no file",        &[("offset", "0"), ("checksum", "location")],      &[4, 3],                "E308"),
            ("other length",   &[("location", "m.data"), ("length", "47")],       &[4, 3],                "E308"),
            ("no number",      &[("location", "m.data"), ("offset", "-1")],       &[4, 3],                "E308"),
            ("negative shape", &[("location", "m.data")],                         &[-1, 3],               "E308"),
            ("overflow",       &[("location", "m.data")],                         &[i64::MAX, i64::MAX],  "E308"),
            ("too large",      &[("location", "m.data")],                         &[1 << 20, 1 << 9],     "E301"),
        ];
        for (name, entries, dims, code) in cases {
            let refused = with_external_data(&outside(entries, dims), |_| panic!("{name}"));
            assert_eq!(refused.unwrap_err().code(), code, "{name}");
        }
        let absent = with_external_data(&outside(&[("location", "m.data")], &[4, 3]), |_| Err("gone".into()));
        let words = "[E307] tensor `fc1.weight` keeps its data in another file, gone";
        assert_eq!(absent.unwrap_err().to_string(), words);
    }
}
