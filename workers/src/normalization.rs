//! How numbers of the data become those that a trained model takes: noted in the model, or done by nodes
//! before its inputs.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use syncline_autodiff::NORMALIZED_BY;
use syncline_onnx::{
    Graph, ModelProto, OnnxError, parse,
    proto::{NodeProto, StringStringEntryProto, TensorProto, metadata},
    rename_reads,
};
use syncline_scheduler::spec::{ChannelAxis, DataElement, DataSpec, Normalization, TrainSpec};

/// Key of the metadata of a model: `scale`, `mean`, `std` and `channel_axis` as JSON; where inputs have their
/// own, the same of each of these in `inputs`, by name.
const NORMALIZATION: &str = "syncline.normalization";
/// The same of what the classes are called, from 0: a list of strings.
const CLASS_NAMES: &str = "syncline.class_names";

/// What has been done to a number `x` of a float input that has no normalization of its own, such as
/// `(x * 0.0625 - mean) / std`; `None` where nothing has.
pub fn formula(data: &DataSpec) -> Option<String> {
    data.shared_normalization().formula()
}

/// The same of each input that has its own, by name; `x` where nothing has been done.
pub fn formulas(data: &DataSpec) -> BTreeMap<String, String> {
    let formula = |by: &Normalization| by.formula().unwrap_or_else(|| "x".to_owned());
    data.normalize.iter().map(|(input, by)| (input.clone(), formula(by))).collect()
}

/// Notes in a model what its inputs have gone through, and what its classes are called, in place of what was
/// noted before.
pub(crate) fn describe(model: &mut ModelProto, data: &DataSpec) {
    let shared = data.shared_normalization();
    let mut noted = numbers(&shared);
    // Where inputs share one normalization, the four are all that there is.
    if !data.normalize.is_empty() {
        let own: Map<String, Value> =
            data.normalize.iter().map(|(input, by)| (input.clone(), numbers(by))).collect();
        noted["inputs"] = own.into();
    }
    let is_normalized = [&shared].into_iter().chain(data.normalize.values()).any(|by| by.formula().is_some());
    let normalization = is_normalized.then(|| noted.to_string());
    let class_names = &data.class_names;
    let classes = (!class_names.is_empty()).then(|| json!(class_names).to_string());
    for (key, value) in [(NORMALIZATION, normalization), (CLASS_NAMES, classes)] {
        model.metadata_props.retain(|entry| entry.key != key);
        let entry = value.map(|value| StringStringEntryProto { key: key.to_owned(), value });
        model.metadata_props.extend(entry);
    }
}

fn numbers(by: &Normalization) -> Value {
    let Normalization { scale, mean, std, standardize: _, channel_axis } = by;
    json!({ "scale": scale, "mean": mean, "std": std, "channel_axis": channel_axis })
}

/// A trained model that takes numbers as they are in the data: nodes before its float inputs do what training
/// has done to them. Their constants are noted as such, or a further training would train them.
///
/// # Errors
/// E301 to E308 if the model is none.
pub fn with_normalization(onnx: &[u8], train: &TrainSpec) -> Result<Vec<u8>, OnnxError> {
    let mut model = parse(onnx)?;
    model.metadata_props.retain(|entry| entry.key != NORMALIZATION);
    let Some(mut graph) = model.graph.take() else { return Ok(model.to_bytes()) };
    // Without the numbers of constants, which may be a gigabyte.
    let constants_before = std::mem::take(&mut graph.initializer);
    let mut names = Graph::from(graph.clone());
    constants_before.iter().for_each(|constant| {
        names.intern(&constant.name);
    });
    graph.initializer = constants_before;
    let (mut nodes, mut constants) = (Vec::new(), Vec::new());
    for input in train.model.inputs.iter().filter(|input| input.element == DataElement::F32) {
        let mut value = input.name.clone();
        for (op, constant) in steps(&train.data.normalization_of(&input.name), input.shape.len()) {
            let [name, next] = [format!("{op}_by"), op.to_owned()].map(|stem| {
                let fresh = names.fresh(&stem);
                names.name(fresh).to_owned()
            });
            constants.push(TensorProto { name: name.clone(), ..constant });
            nodes.push(NodeProto::named(&next, op, &[&value, &name], &[]));
            value = next;
        }
        if value != input.name {
            graph.node.iter_mut().for_each(|node| rename_reads(node, &input.name, &value));
        }
    }
    graph.node.splice(0..0, nodes);
    let before = metadata(&model.metadata_props, NORMALIZED_BY).unwrap_or_default().lines();
    let noted: Vec<&str> = before.chain(constants.iter().map(|constant| constant.name.as_str())).collect();
    let noted = StringStringEntryProto { key: NORMALIZED_BY.to_owned(), value: noted.join("\n") };
    model.metadata_props.retain(|entry| entry.key != NORMALIZED_BY);
    model.metadata_props.extend((!noted.value.is_empty()).then_some(noted));
    graph.initializer.extend(constants);
    model.graph = Some(graph);
    Ok(model.to_bytes())
}

/// What is done to the samples of an input, which have so many axes, in its order.
fn steps(by: &Normalization, axes: usize) -> Vec<(&'static str, TensorProto)> {
    let constant = |numbers: &[f64]| {
        let numbers: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
        let behind = match by.channel_axis {
            ChannelAxis::First => axes.saturating_sub(1),
            ChannelAxis::Last => 0,
        };
        let shape: Vec<usize> = [numbers.len()].into_iter().chain(vec![1; behind]).collect();
        TensorProto::from_f32("", if numbers.len() == 1 { &[] } else { &shape }, &numbers)
    };
    let scale = [f64::from(by.scale)];
    let all = [
        ("Mul", if by.scale == 1.0 { &[] } else { &scale[..] }),
        ("Sub", by.mean.as_slice()),
        ("Div", by.std.as_slice()),
    ];
    all.into_iter().filter(|(_, by)| !by.is_empty()).map(|(op, by)| (op, constant(by))).collect()
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::spec::Source;

    use super::*;

    fn data(scale: f32, mean: &[f64], std: &[f64], channel_axis: ChannelAxis) -> DataSpec {
        DataSpec::new(Source::csv("d.csv")).with(|d| {
            (d.scale, d.mean, d.std, d.channel_axis) = (scale, mean.into(), std.into(), channel_axis)
        })
    }

    #[test]
    fn what_is_done_to_numbers_is_told_and_done_in_that_order() {
        use ChannelAxis::{First, Last};
        #[rustfmt::skip]
        let cases: [(DataSpec, Option<&str>, &[(&str, &[usize])]); 5] = [
            (data(1.0, &[], &[], First),                 None,                         &[]),
            (data(0.5, &[], &[], First),                 Some("x * 0.5"),              &[("Mul", &[])]),
            (data(1.0, &[], &[2.0], First),              Some("x / std"),              &[("Div", &[])]),
            (data(0.5, &[1., 2., 3.], &[4.], First),     Some("(x * 0.5 - mean) / std"), &[("Mul", &[]), ("Sub", &[3, 1]), ("Div", &[])]),
            (data(1.0, &[1., 2.], &[4., 5.], Last),      Some("(x - mean) / std"),     &[("Sub", &[2]), ("Div", &[2])]),
        ];
        for (data, told, done) in cases {
            assert_eq!(formula(&data).as_deref(), told);
            let steps: Vec<_> =
                steps(&data.shared_normalization(), 2).into_iter().map(|(op, by)| (op, by.shape())).collect();
            let done: Vec<_> = done.iter().map(|&(op, shape)| (op, shape.to_vec())).collect();
            assert_eq!(steps, done, "{told:?}");
        }
    }

    #[test]
    fn a_model_says_what_its_inputs_are_and_what_was_noted_before_is_gone() {
        let mut model = syncline_onnx::mlp(&[2, 2], 1);
        let noted = DataSpec {
            class_names: vec!["no".into(), "yes".into()],
            ..data(0.5, &[], &[], ChannelAxis::First)
        };
        describe(&mut model, &noted);
        let props = &model.metadata_props;
        assert_eq!(
            metadata(props, NORMALIZATION),
            Some(r#"{"channel_axis":"first","mean":[],"scale":0.5,"std":[]}"#)
        );
        assert_eq!(metadata(props, CLASS_NAMES), Some(r#"["no","yes"]"#));
        let table = Normalization { mean: vec![1.0], ..Normalization::default() };
        let of_each = data(0.5, &[], &[], ChannelAxis::First)
            .normalize("image", Normalization::default())
            .normalize("table", table);
        describe(&mut model, &of_each);
        assert_eq!(
            metadata(&model.metadata_props, NORMALIZATION),
            Some(
                r#"{"channel_axis":"first","inputs":{"image":{"channel_axis":"first","mean":[],"scale":1.0,"std":[]},"table":{"channel_axis":"first","mean":[1.0],"scale":1.0,"std":[]}},"mean":[],"scale":0.5,"std":[]}"#
            )
        );
        let of = |input: &str, formula: &str| (input.to_owned(), formula.to_owned());
        assert_eq!(formulas(&of_each), [of("image", "x"), of("table", "x - mean")].into());
        describe(&mut model, &data(1.0, &[], &[], ChannelAxis::First));
        assert_eq!(model.metadata_props, []);
    }
}
