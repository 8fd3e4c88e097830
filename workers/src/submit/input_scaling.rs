//! One scaling for inputs that may not be alike.

use syncline_scheduler::spec::{DataElement, DataSpec};

use super::name_list;
use crate::data::{InputSignature, ModelSignature};

/// What is doubtful where several inputs of floats are scaled by the same numbers, as those of an image and of
/// a table beside it; those that have a normalization of their own are meant alone.
pub(super) fn warning(spec: &DataSpec, wanted: &ModelSignature) -> Option<String> {
    let set = [("scale", spec.scale != 1.0), ("mean", spec.mean.len() == 1), ("std", spec.std.len() == 1)];
    let set: Vec<&str> = set.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
    let sharing = |input: &&InputSignature| {
        input.element == DataElement::F32 && !spec.normalize.contains_key(&input.name)
    };
    let floats: Vec<String> = wanted.inputs.iter().filter(sharing).map(|input| input.name.clone()).collect();
    (!set.is_empty() && floats.len() > 1).then(|| {
        let (set, inputs) = (set.join("`, `"), name_list::cut(&floats));
        format!(
            "`{set}` of the data scales several inputs of floats alike: {inputs}. Where only one of them is meant, write it under `[data.normalize.NAME]` instead, with the name of that input"
        )
    })
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::spec::{Normalization, Source};

    use super::*;

    #[test]
    fn a_scaling_that_inputs_share_is_doubted_where_several_are_floats_table() {
        let model = |elements: &[DataElement]| {
            let input = |(n, element): (usize, &DataElement)| InputSignature {
                name: format!("in{n}"),
                element: *element,
                shape: Vec::new(),
                rows: Vec::new(),
            };
            ModelSignature { inputs: elements.iter().enumerate().map(input).collect(), label: None }
        };
        let source = Source::Npz { path: vec!["data.npz".to_owned()].into() };
        let (float, id) = (DataElement::F32, DataElement::I64);
        #[rustfmt::skip]
        let cases = [
            (0.5, vec![],         vec![float, float],        vec![],             Some("`scale` of the data scales several inputs of floats alike: in0, in1.")),
            (0.5, vec![1.0],      vec![float, id, float],    vec![],             Some("`scale`, `mean` of the data scales several inputs of floats alike: in0, in2.")),
            (0.5, vec![],         vec![float, id],           vec![],             None),
            (1.0, vec![],         vec![float, float],        vec![],             None),
            // One for each channel goes with one kind of sample alone.
            (1.0, vec![1.0, 2.0], vec![float, float],        vec![],             None),
            // One that has its own does not share.
            (0.5, vec![],         vec![float, float],        vec!["in1"],        None),
            (0.5, vec![],         vec![float, float, float], vec!["in1"],        Some("`scale` of the data scales several inputs of floats alike: in0, in2.")),
        ];
        for (scale, mean, elements, own, wanted) in cases {
            let spec = DataSpec { scale, mean, ..DataSpec::new(source.clone()) };
            let spec = own.iter().fold(spec, |spec, name| spec.normalize(*name, Normalization::default()));
            let said = warning(&spec, &model(&elements));
            assert_eq!(said.is_some(), wanted.is_some(), "{said:?}");
            assert!(said.unwrap_or_default().starts_with(wanted.unwrap_or_default()));
        }
    }
}
