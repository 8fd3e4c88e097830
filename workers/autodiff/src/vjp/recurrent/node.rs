//! What a recurrent node states: sizes, ways, activations. What no gradient is known for is refused here.

use syncline_onnx::{Dim, attr_int};

use super::super::{InputGrads, NodeGrad};
use super::back::PassGrads;
use super::pass::Pass;
use crate::AutodiffError;

/// What the operator's kinds of recurrences have in common.
pub(super) struct Recurrence {
    /// Blocks of `hidden` rows in W and R.
    pub(super) gates: i64,
    /// Numbers of a state.
    pub(super) hidden: i64,
    /// For each pass whether it goes from the last step to the first.
    ways: Vec<bool>,
    /// For each pass its activations.
    activations: Vec<Vec<String>>,
}

impl Recurrence {
    /// `allowed`: lists of activations that a pass may have, the default first.
    pub(super) fn of(n: &NodeGrad<'_>, gates: i64, allowed: &[&[&str]]) -> Result<Self, AutodiffError> {
        let ways = match n.node.string("direction", "forward") {
            "reverse" => vec![true],
            "bidirectional" => vec![false, true],
            _ => vec![false],
        };
        if !n.input(7).is_empty() {
            return Err(n.refuse("it has peepholes, input P; export it without them".to_owned()));
        }
        if n.node.attribute("clip").is_some() {
            return Err(n.refuse("it clips what it sums up; export it without `clip`".to_owned()));
        }
        if n.node.int("input_forget", 0) != 0 {
            let reason = "its input and forget gates are one; export it with `input_forget` 0";
            return Err(n.refuse(reason.to_owned()));
        }
        if n.node.int("layout", 0) != 0 {
            let reason =
                "its batch stands in front of its steps; export it with `layout` 0, and a Transpose in front";
            return Err(n.refuse(reason.to_owned()));
        }
        let last = |value: &str| -> Result<i64, AutodiffError> {
            n.fixed(value, n.dims(value)?.last().unwrap_or(&Dim::Unknown))
        };
        let hidden = match n.node.int("hidden_size", 0) {
            0 => last(n.input(2))?,
            stated => stated,
        };
        let of_state = n.dims(n.input(2))?.last().and_then(Dim::fixed);
        if let Some(read) = of_state.filter(|&read| usize::try_from(hidden) != Ok(read)) {
            return Err(n.refuse(format!(
                "its states have {hidden} numbers by `hidden_size`, and its weights R read {read}: the operator has no projection of a state, \
                 which `proj_size` of PyTorch's nn.LSTM is; make the model without `proj_size`"
            )));
        }
        let activations = activations(n, ways.len(), allowed)?;
        Ok(Self { gates, hidden, ways, activations })
    }

    /// How many passes there are.
    pub(super) fn passes(&self) -> usize {
        self.ways.len()
    }

    /// Its passes, with the activations of each.
    pub(super) fn each(&self, n: &mut NodeGrad<'_>) -> Vec<(Pass, &[String])> {
        let ways = self.ways.iter().zip(&self.activations).enumerate();
        ways.map(|(index, (backwards, activations))| {
            (Pass::of(n, self, index, *backwards), activations.as_slice())
        })
        .collect()
    }

    /// The gradients of the node's inputs, from those of its passes.
    pub(super) fn gradients(&self, n: &mut NodeGrad<'_>, passes: &[PassGrads]) -> InputGrads {
        let dx: Vec<&str> = passes.iter().map(|pass| pass.x.as_str()).collect();
        let dx = if let [one] = dx.as_slice() { (*one).to_owned() } else { n.call("Add", &dx) };
        let dw = stacked(n, passes.iter().map(|pass| &pass.w), 0);
        let dr = stacked(n, passes.iter().map(|pass| &pass.r), 0);
        let db = stacked(n, passes.iter().map(|pass| &pass.b), 0);
        let dh = stacked(n, passes.iter().map(|pass| &pass.h0), 0);
        let dc = stacked(n, passes.iter().filter_map(|pass| pass.c0.as_ref()), 0);
        vec![Some(dx), Some(dw), Some(dr), Some(db), None, Some(dh), (!dc.is_empty()).then_some(dc)]
    }
}

/// The values side by side along a new axis.
pub(super) fn stacked<'v>(
    n: &mut NodeGrad<'_>,
    values: impl Iterator<Item = &'v String>,
    axis: i64,
) -> String {
    let axes = n.emitter.ints(&[axis]);
    let parts: Vec<String> = values.map(|value| n.call("Unsqueeze", &[value, &axes])).collect();
    match parts.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        parts => {
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            n.emitter.op("Concat", &parts, &[attr_int("axis", axis)])
        }
    }
}

/// For each pass its activations, as they are written in `allowed`.
fn activations(
    n: &NodeGrad<'_>,
    passes: usize,
    allowed: &[&[&str]],
) -> Result<Vec<Vec<String>>, AutodiffError> {
    let owned = |list: &[&str]| -> Vec<String> { list.iter().map(|&name| name.to_owned()).collect() };
    let stated: Vec<String> = match n.node.attribute("activations") {
        Some(list) => list.strings.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect(),
        None => Vec::new(),
    };
    let Some(default) = allowed.first().filter(|_| stated.is_empty()) else {
        let width = allowed.first().map_or(1, |list| list.len());
        let known = |pass: &[String]| {
            let same = |list: &&&[&str]| {
                list.len() == pass.len() && list.iter().zip(pass).all(|(a, b)| a.eq_ignore_ascii_case(b))
            };
            allowed.iter().find(same).map(|list| owned(list))
        };
        let found: Option<Vec<Vec<String>>> = stated.chunks(width).map(known).collect();
        return found.filter(|found| found.len() == passes).ok_or_else(|| {
            let known: Vec<String> = allowed.iter().map(|list| list.join(", ")).collect();
            let (stated, known) = (stated.join(", "), known.join(" or "));
            n.refuse(format!("its activations are {stated}; a gradient is known for {known}"))
        });
    };
    Ok(vec![owned(default); passes])
}
