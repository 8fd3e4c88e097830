//! Einsums in the form that ONNX Runtime computes of empty tensors, and of which it infers the right shape.
//!
//! Operands have their axes in the order in which the equation names them first, see [`axes_in_order`]. And
//! where one has size 1 along a letter and another has more, it has no such axis: the size of the result is
//! inferred of whoever names a letter first. An operand that is left without axes is multiplied into another
//! one, as not every runtime reads an empty term. An ellipsis of which two unknown sizes may differ stays
//! one: which of them is 1 shows only when it runs.

use syncline_onnx::proto::{GraphProto, NodeProto};
use syncline_onnx::{Dim, Types, attr_string};

use crate::einsum::{Equation, axes_in_order, reordered, transposed};
use crate::emitter::Emitter;

/// Writes every `Einsum` in that form that is not; returns whether there is any.
pub(super) fn write_einsums(graph: &mut GraphProto, types: &Types) -> bool {
    if !graph.node.iter().any(|node| EinsumForm::of(node, types).is_some()) {
        return false;
    }
    *graph = Emitter::write_out(std::mem::take(graph), |e, node| {
        let EinsumForm { equation, operands } = EinsumForm::of(node, types)?;
        let (mut input, mut scalars) = (Vec::new(), Vec::new());
        for (value, operand) in node.input.iter().zip(operands) {
            let squeezed = match operand.squeezed.is_empty() {
                true => value.clone(),
                false => {
                    let axes = e.ints(&operand.squeezed);
                    e.op("Squeeze", &[value, &axes], &[])
                }
            };
            if operand.order.is_empty() {
                scalars.push(squeezed);
            } else {
                input.push(transposed(e, &squeezed, &operand.order));
            }
        }
        for scalar in &scalars {
            let first = input.first_mut()?;
            *first = e.op("Mul", &[first, scalar], &[]);
        }
        Some(NodeProto { input, attribute: vec![attr_string("equation", &equation)], ..node.clone() })
    });
    true
}

/// The form that a node is to have and has not.
struct EinsumForm {
    /// Of the operands that have axes; there is one.
    equation: String,
    operands: Vec<OperandForm>,
}

struct OperandForm {
    /// Axes of size 1 that go.
    squeezed: Vec<i64>,
    /// The others, in the order that they are to have.
    order: Vec<usize>,
}

impl EinsumForm {
    /// `None` if the node is right as it is, or cannot be written so. What ONNX Runtime will refuse is left
    /// to it.
    fn of(node: &NodeProto, types: &Types) -> Option<Self> {
        if node.op_type != "Einsum" || !node.domain.is_empty() {
            return None;
        }
        let dims: Option<Vec<&[Dim]>> =
            node.input.iter().map(|input| types.get(input).map(|ty| ty.dims.as_slice())).collect();
        let dims = dims?;
        let ranks: Vec<usize> = dims.iter().map(|dims| dims.len()).collect();
        let Equation { terms, result, ellipsis, .. } =
            Equation::parse(node.string("equation", ""), &ranks).ok()?;

        let all = || terms.iter().flatten().zip(dims.iter().copied().flatten());
        let longer = |letter: char| {
            all().filter(move |(other, dim)| **other == letter && **dim != Dim::Fixed(1)).map(|(_, dim)| dim)
        };
        let differs = |letter: &char| {
            let mut sizes = longer(*letter);
            let first = sizes.next();
            sizes.any(|size| first.is_some_and(|first| !size.same(first)))
        };
        let ellipsis = if ellipsis.iter().any(differs) { ellipsis } else { Vec::new() };
        let goes = |letter: char, dim: &Dim| {
            *dim == Dim::Fixed(1) && !ellipsis.contains(&letter) && longer(letter).next().is_some()
        };
        let (mut left, mut squeezed): (Vec<Vec<char>>, Vec<Vec<i64>>) = (Vec::new(), Vec::new());
        for (term, dims) in terms.iter().zip(dims.iter().copied()) {
            let (mut stay, mut go) = (Vec::new(), Vec::new());
            for (axis, (letter, dim)) in (0..).zip(term.iter().zip(dims)) {
                if goes(*letter, dim) { go.push(axis) } else { stay.push(*letter) }
            }
            left.push(stay);
            squeezed.push(go);
        }
        let slices: Vec<&[char]> = left.iter().map(Vec::as_slice).collect();
        let orders = axes_in_order(&slices);
        if squeezed.iter().all(Vec::is_empty) && orders.iter().all(|order| order.is_sorted()) {
            return None;
        }
        let written =
            slices.iter().zip(&orders).map(|(term, order)| written(&reordered(term, order), &ellipsis));
        let written: Vec<String> = written.collect::<Option<_>>()?;
        let written: Vec<String> = written.into_iter().filter(|term| !term.is_empty()).collect();
        let equation = format!("{}->{}", written.join(","), self::written(&result, &ellipsis)?);
        let operands = squeezed.into_iter().zip(orders);
        let operands = operands.map(|(squeezed, order)| OperandForm { squeezed, order }).collect();
        Some(Self { equation, operands })
    }
}

/// A term with its ellipsis; `None` where that one is not in one piece, its last letters in their order.
fn written(term: &[char], ellipsis: &[char]) -> Option<String> {
    let is_hidden = |letter: &char| ellipsis.contains(letter);
    let Some(begin) = term.iter().position(is_hidden) else { return Some(term.iter().collect()) };
    let hidden = term.iter().filter(|letter| is_hidden(letter)).count();
    let (before, rest) = term.split_at(begin);
    let (run, after) = rest.split_at(hidden);
    ellipsis
        .ends_with(run)
        .then(|| format!("{}...{}", before.iter().collect::<String>(), after.iter().collect::<String>()))
}

#[cfg(test)]
mod tests {
    use syncline_onnx::{ElementType, TensorType};

    use super::*;

    /// The equation that a node gets, and of each operand the axes that go, and the order of the others.
    fn form(equation: &str, dims: &[&[Dim]]) -> Option<String> {
        let names: Vec<String> = (0..dims.len()).map(|n| format!("x{n}")).collect();
        let types: Types = names
            .iter()
            .zip(dims)
            .map(|(name, dims)| (name.clone(), TensorType::new(ElementType::F32, dims.to_vec())))
            .collect();
        let inputs: Vec<&str> = names.iter().map(String::as_str).collect();
        let node = NodeProto::unnamed("Einsum", &inputs, &[attr_string("equation", equation)]);
        let form = EinsumForm::of(&node, &types)?;
        let told = form.operands.iter().map(|operand| format!(" {:?} {:?}", operand.squeezed, operand.order));
        Some(form.equation + &told.collect::<String>())
    }

    #[test]
    fn an_ellipsis_stays_one_and_letters_lose_their_axes_of_size_1_table() {
        const N: Dim = Dim::Unknown;
        let f = |sizes: &[usize]| -> Vec<Dim> { sizes.iter().map(|size| Dim::from(*size)).collect() };
        let (q, k) = (f(&[1, 3, 4]), f(&[5, 6, 4]));
        type Case<'a> = (&'a str, &'a [&'a [Dim]], Option<&'a str>);
        #[rustfmt::skip]
        let cases: &[Case<'_>] = &[
            ("bqd,bdk->bqk",       &[&[N, N, N], &[N, N, N]],    None),
            ("bqd,bkd->bqk",       &[&[N, N, N], &[N, N, N]],    Some("bqd,bdk->bqk [] [0, 1, 2] [] [0, 2, 1]")),
            ("bqd,bkd->bqk",       &[&q, &k],                    Some("qd,dbk->bqk [0] [0, 1] [] [2, 0, 1]")),
            ("...qd,...dk->...qk", &[&[N, N, N], &[N, N, N]],    None),
            ("...qd,...kd->...qk", &[&q, &k],                    Some("qd,dak->aqk [0] [0, 1] [] [2, 0, 1]")),
            ("...qd,...kd->...qk", &[&[N, N, N], &[N, N, N]],    Some("...qd,...dk->...qk [] [0, 1, 2] [] [0, 2, 1]")),
            ("...d,...d",          &[&[N, N], &[N, N]],          None),
            // The second has one more than the first, which would come behind those of both.
            ("...d,...d->...",     &[&[N, N], &[N, N, N]],       None),
            // What has no axes is multiplied into the first of the others.
            ("b,bc->c",            &[&[Dim::Fixed(1)], &[N, N]], Some("bc->c [0] [] [] [0, 1]")),
            (",b->b",              &[&[], &[N]],                 None),
            ("bmk,bkm,m->bk",      &[&f(&[3, 1, 1]), &f(&[1, 4, 2]), &f(&[1])],
                                                                 Some("b,km->bk [1, 2] [0] [0] [0, 1] [0] []")),
            ("bim,bi,bi->bm",      &[&f(&[3, 1, 1]), &f(&[1, 1]), &f(&[1, 2])],
                                                                 Some("bm,i->bm [1] [0, 1] [0, 1] [] [0] [0]")),
        ];
        for (equation, dims, want) in cases {
            assert_eq!(form(equation, dims).as_deref(), *want, "{equation}");
        }
    }
}
