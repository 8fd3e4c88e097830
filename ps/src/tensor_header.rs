//! Headers of safetensors files that are the same bytes for the same content: whoever submits a checkpoint
//! twice submits the same job.

use std::collections::BTreeMap;

use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use syncline_scheduler::spec::Layout;

/// The JSON of a header: what the file is about, in the order of its names, then the tensors in theirs. Fails
/// where their places do not follow each other, in words.
pub(crate) fn tensor_header(
    about: &BTreeMap<&str, String>,
    tensors: Vec<(String, TensorInfo)>,
) -> Result<Vec<u8>, String> {
    let words = |e: &dyn std::fmt::Display| e.to_string();
    let separator = if tensors.is_empty() { "" } else { "," };
    let tensors = Metadata::new(None, tensors).map_err(|e| words(&e))?;
    let tensors = serde_json::to_string(&tensors).map_err(|e| words(&e))?;
    let about = serde_json::to_string(about).map_err(|e| words(&e))?;
    let rest = tensors.trim_start_matches('{');
    Ok(format!("{{\"__metadata__\":{about}{separator}{rest}").into_bytes())
}

/// The first bytes of a file that goes on with the flat array as it lies: names, shapes and places in the
/// order of the layout, padded to eight bytes.
pub(crate) fn weights_header(about: &BTreeMap<&str, String>, layout: &Layout) -> Result<Vec<u8>, String> {
    let tensors = layout.ranges().map(|(parameter, range)| {
        let info = TensorInfo {
            dtype: Dtype::F32,
            shape: parameter.shape.iter().map(|&d| d as usize).collect(),
            data_offsets: (range.start as usize * 4, range.end as usize * 4),
        };
        (parameter.name.clone(), info)
    });
    let mut json = tensor_header(about, tensors.collect())?;
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut json);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;

    use super::*;

    #[test]
    fn a_header_is_the_same_each_time_and_can_be_read() {
        let info = |at: usize| TensorInfo { dtype: Dtype::F32, shape: vec![1], data_offsets: (at, at + 4) };
        let about = BTreeMap::from([("version", "3".to_owned()), ("job", "a\"b".to_owned())]);
        for tensors in [vec![], vec![("z".to_owned(), info(0)), ("a".to_owned(), info(4))]] {
            let header = tensor_header(&about, tensors.clone()).unwrap();
            let mut file = (header.len() as u64).to_le_bytes().to_vec();
            file.extend_from_slice(&header);
            file.resize(file.len() + 4 * tensors.len(), 0);
            let (_, read) = SafeTensors::read_metadata(&file).unwrap();
            assert_eq!(read.metadata().as_ref().unwrap()["job"], "a\"b");
            assert_eq!(read.tensors().len(), tensors.len());
            let text = String::from_utf8(header).unwrap();
            assert!(text.starts_with(r#"{"__metadata__":{"job":"a\"b","version":"3"}"#), "{text}");
        }
    }
}
