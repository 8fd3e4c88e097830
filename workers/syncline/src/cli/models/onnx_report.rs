//! An ONNX model in a few lines.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;
use syncline_autodiff::{
    AutodiffError, DeriveOptions, Support, TiedNames, possible_row_tables, select, support, unknown_dropout,
    warnings,
};
use syncline_onnx::{
    ModelProto, TensorType,
    proto::{GraphProto, ValueInfoProto},
};

use crate::cli::table;

/// What is in a model.
#[derive(Debug, Serialize)]
pub(crate) struct OnnxReport {
    producer: String,
    opset: i64,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    parameters: Vec<Parameter>,
    parameter_count: usize,
    /// How many of them are trained by default.
    trained_count: usize,
    /// Parameters that `sparse` can mean: of which only the rows need travel that a batch reads.
    row_tables: Vec<String>,
    /// How often each operator occurs.
    operators: BTreeMap<String, usize>,
    /// Operators without a gradient: they are refused where one would have to flow through them.
    without_gradient: BTreeMap<String, String>,
    /// What cannot be known of a model without Dropout.
    dropout: Option<String>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Value {
    name: String,
    r#type: String,
}

#[derive(Debug, Serialize)]
struct Parameter {
    name: String,
    /// What else PyTorch calls it, where it has tied several.
    other_names: Vec<String>,
    dtype: String,
    shape: Vec<usize>,
    count: usize,
    /// `yes`, or why it is not.
    trained: &'static str,
    /// Whether that is a guess.
    doubtful: bool,
}

impl Parameter {
    fn all_names(&self) -> String {
        match self.other_names.as_slice() {
            [] => self.name.clone(),
            others => format!("{} (also {})", self.name, others.join(", ")),
        }
    }
}

pub(crate) fn of(model: &ModelProto, options: &DeriveOptions) -> Result<OnnxReport, AutodiffError> {
    let empty = GraphProto::default();
    let graph = model.graph.as_ref().unwrap_or(&empty);
    // Up to IR version 3 every initialiser is listed as an input as well.
    let constant: HashSet<&str> = graph.initializer.iter().map(|t| t.name.as_str()).collect();
    let value = |info: &ValueInfoProto| Value {
        name: info.name.clone(),
        r#type: TensorType::from_value_info(info).map_or_else(|| "?".to_owned(), |t| t.to_string()),
    };
    let (selected, tied) = (select(model, options)?, TiedNames::of(model));
    let parameters: Vec<Parameter> = graph
        .initializer
        .iter()
        .zip(selected)
        .map(|(t, selected)| {
            let shape = t.shape();
            let count = shape.iter().product();
            let trained = selected.reason.unwrap_or(TRAINED);
            let (name, dtype) = (t.name.clone(), t.element().to_string());
            let other_names = tied.others(&t.name).to_vec();
            Parameter { name, other_names, dtype, shape, count, trained, doubtful: selected.doubtful }
        })
        .collect();
    let mut operators = BTreeMap::new();
    for node in &graph.node {
        *operators.entry(node.op_type.clone()).or_default() += 1;
    }
    let without_gradient = operators.keys().filter_map(|op: &String| {
        let reason = match support(op) {
            Support::Gradient | Support::Rewritten | Support::NoneNeeded => return None,
            Support::Refused(reason) => reason,
            _ => "no gradient rule",
        };
        Some((op.clone(), reason.to_owned()))
    });
    let count = |trained: bool| -> usize {
        parameters.iter().filter(|p| !trained || p.trained == TRAINED).map(|p| p.count).sum()
    };
    Ok(OnnxReport {
        producer: model.producer_name.clone(),
        opset: model.opset(),
        inputs: graph.input.iter().filter(|i| !constant.contains(i.name.as_str())).map(value).collect(),
        outputs: graph.output.iter().map(value).collect(),
        parameter_count: count(false),
        trained_count: count(true),
        row_tables: possible_row_tables(model, options)?,
        without_gradient: without_gradient.collect(),
        dropout: unknown_dropout(model),
        warnings: warnings(model, options)?,
        parameters,
        operators,
    })
}

/// What is said of a parameter that is trained by default.
const TRAINED: &str = "yes";

impl OnnxReport {
    pub(crate) fn text(&self) -> String {
        let values = |values: &[Value]| -> String {
            values.iter().map(|v| format!("{} {}", v.name, v.r#type)).collect::<Vec<_>>().join(", ")
        };
        let rows: Vec<Vec<String>> = self
            .parameters
            .iter()
            .map(|p| {
                vec![
                    p.all_names(),
                    p.dtype.clone(),
                    format!("{:?}", p.shape),
                    p.count.to_string(),
                    if p.doubtful { format!("no? it {}", p.trained) } else { p.trained.to_owned() },
                ]
            })
            .collect();
        let operators: Vec<String> = self.operators.iter().map(|(op, n)| format!("{op} x{n}")).collect();
        let missing = self.missing();
        let dropout =
            self.dropout.as_ref().map(|unknown| format!("dropout    {unknown}\n")).unwrap_or_default();
        let by_rows = match self.row_tables.as_slice() {
            [] => String::new(),
            tables => format!("by rows    {} can be, if `sparse` names them\n", tables.join(", ")),
        };
        let warnings: String = self.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
        let producer = if self.producer.is_empty() { "?" } else { &self.producer };
        format!(
            "producer   {producer}\nopset      {}\ninputs     {}\noutputs    {}\noperators  {}\nparameters {}, {} of them trained\n{by_rows}{dropout}{warnings}{}\n{}",
            self.opset,
            values(&self.inputs),
            values(&self.outputs),
            operators.join(", "),
            self.parameter_count,
            self.trained_count,
            missing,
            table(&["parameter", "dtype", "shape", ">count", "trained"], &rows)
        )
    }

    /// One line for each reason, with the operators that it holds for.
    fn missing(&self) -> String {
        let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (op, reason) in &self.without_gradient {
            by_reason.entry(reason).or_default().push(op);
        }
        let lines: String =
            by_reason.iter().map(|(reason, ops)| format!("{reason}: {}\n", ops.join(", "))).collect();
        match lines.is_empty() {
            true => lines,
            // A shape that is computed, say, needs none.
            false => {
                lines
                    + "that matters only between a parameter and the loss: `syncline model check` tries it\n"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::{mlp, parse};

    #[test]
    fn a_small_network_is_described() {
        let report = of(&parse(&mlp(&[4, 3, 2], 1).to_bytes()).unwrap(), &DeriveOptions::default()).unwrap();
        assert_eq!((report.inputs.len(), report.outputs.len()), (1, 1));
        assert_eq!(report.parameter_count, 4 * 3 + 3 + 3 * 2 + 2);
        assert_eq!(report.trained_count, report.parameter_count);
        assert_eq!(report.operators.get("Gemm"), Some(&2));
        assert!(report.text().contains("[3, 4]") || report.text().contains("[4, 3]"));
    }
}
