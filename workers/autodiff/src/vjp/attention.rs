//! Y = softmax(scale Q K^T + mask) V per head, as operator set 23 has it.
//!
//! The weights P are computed again, so that no matrix of all pairs lives from the forward to the backward
//! pass. Then dV = P^T dY, dP = dY V^T, dS = P (dP - sum(dP P)), dQ = scale dS K, dK = scale dS^T Q, and the
//! mask, if it is added, gets dS. Scores that are capped, c tanh(scale Q K^T / c), pass dS times the slope of
//! the tanh on to Q and K; the mask is added behind the cap. Heads of Q that share one of K and V: K and V
//! are repeated, their gradients summed. A query whose keys are all masked is answered by 0, whatever Q, K
//! and V are: its dY is dropped, and its P only has to be finite. Source: Vaswani et al., arXiv:1706.03762;
//! Dao et al., arXiv:2205.14135, appendix B.2, for the backward pass.

use syncline_onnx::{Dim, ElementType, attr_int, attr_ints};

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;
use crate::broadcast::{sum, sum_keeping, unbroadcast};

/// A score that leaves a pair out; finite, so that a row without any pair stays a number. ONNX Runtime, too,
/// takes a row without any larger score for one without keys.
const NEVER: f64 = f32::MIN as f64;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    if (4..7).any(|index| !n.input(index).is_empty()) {
        return Err(n.refuse("it reads keys and values of the past".to_owned()));
    }
    let heads = Heads::of(n)?;
    let scale = f64::from(n.node.float("scale", 1.0 / (heads.width as f32).sqrt()));
    let scale = n.emitter.float(n.element(), scale);
    let q = heads.apart(n, n.input(0), heads.q);
    let (k, v) = (heads.apart(n, n.input(1), heads.kv), heads.apart(n, n.input(2), heads.kv));
    let (k, v) = (heads.shared(n, &k), heads.shared(n, &v));
    let mut dy = heads.apart(n, dy, heads.q);
    let Weights { p, capped, answered } = Weights::emit(n, &q, &k, &scale);
    if let Some(answered) = answered {
        let zero = n.number(0.0);
        dy = n.call("Where", &[&answered, &dy, &zero]);
    }

    let p_turned = turned(n, &p);
    let dv = n.needs(2).then(|| n.emitter.op("MatMul", &[&p_turned, &dy], &[]));
    let v_turned = turned(n, &v);
    let dp = n.emitter.op("MatMul", &[&dy, &v_turned], &[]);
    let weighted = n.emitter.op("Mul", &[&dp, &p], &[]);
    let level = sum_keeping(n.emitter, &weighted, &[-1]);
    let rest = n.emitter.op("Sub", &[&dp, &level], &[]);
    let mut ds = n.emitter.op("Mul", &[&p, &rest], &[]);
    let dmask = if n.needs(3) {
        let (batch, queries) = (n.dims(n.input(0))?[0].clone(), heads.length(n, 0)?);
        let from = [batch, Dim::Fixed(heads.q as usize), queries, heads.length(n, 1)?];
        let to = n.dims(n.input(3))?;
        Some(unbroadcast(n.emitter, &ds, &from, n.input(3), to))
    } else {
        None
    };
    if let Some(tanh) = capped {
        let one = n.emitter.float(n.element(), 1.0);
        let square = n.emitter.op("Mul", &[&tanh, &tanh], &[]);
        let slope = n.emitter.op("Sub", &[&one, &square], &[]);
        ds = n.emitter.op("Mul", &[&ds, &slope], &[]);
    }
    let scaled = n.emitter.op("Mul", &[&ds, &scale], &[]);
    let dq = n.emitter.op("MatMul", &[&scaled, &k], &[]);
    let scaled_turned = turned(n, &scaled);
    let dk = n.emitter.op("MatMul", &[&scaled_turned, &q], &[]);

    let dq = heads.together(n, &dq, 0)?;
    let dk = heads.summed(n, &dk);
    let dk = heads.together(n, &dk, 1)?;
    let dv = match dv {
        Some(dv) => {
            let dv = heads.summed(n, &dv);
            Some(heads.together(n, &dv, 2)?)
        }
        None => None,
    };
    Ok(vec![Some(dq), Some(dk), dv, dmask])
}

/// Which pairs of a query and a key count. All broadcast over the scores, `[batch, heads, queries, keys]`.
struct Mask {
    /// Where a pair counts; `None` if all do.
    allowed: Option<String>,
    /// What is added to the scores; the same for all keys of a query without any.
    added: Option<String>,
    /// Where a query has a key at all, with one key; `None` if each has.
    answered: Option<String>,
}

impl Mask {
    fn of(n: &mut NodeGrad<'_>, scores: &str) -> Self {
        let mask = n.input(3);
        let before = (n.node.int("is_causal", 0) != 0).then(|| before(n, scores));
        if mask.is_empty() {
            return Self { allowed: before, added: None, answered: None };
        }
        if n.types.get(mask).is_some_and(|ty| ty.element == ElementType::Bool) {
            let allowed = match before {
                Some(before) => n.call("And", &[mask, &before]),
                None => mask.to_owned(),
            };
            let (count, zero) = (n.mask(&allowed), n.number(0.0));
            let answered = any_above(n, &count, &zero);
            return Self { allowed: Some(allowed), added: None, answered: Some(answered) };
        }
        let (never, zero) = (n.number(NEVER), n.number(0.0));
        let seen = match &before {
            Some(before) => n.call("Where", &[before, mask, &never]),
            None => mask.to_owned(),
        };
        let answered = any_above(n, &seen, &never);
        // Minus infinity for every key would make P NaN.
        let added = n.call("Where", &[&answered, mask, &zero]);
        Self { allowed: before, added: Some(added), answered: Some(answered) }
    }
}

/// Where a key is not behind its query, `[queries, keys]`.
fn before(n: &mut NodeGrad<'_>, scores: &str) -> String {
    let pairs = n.emitter.op("Shape", &[scores], &[attr_int("start", 2)]);
    let zeros = n.emitter.op("ConstantOfShape", &[&pairs], &[]);
    let one = n.emitter.float(ElementType::F32, 1.0);
    let ones = n.emitter.op("Add", &[&zeros, &one], &[]);
    let before = n.emitter.op("Trilu", &[&ones], &[attr_int("upper", 0)]);
    n.emitter.cast(&before, ElementType::Bool)
}

/// Whether any number of the last axis is above `bound`; the axis is kept.
fn any_above(n: &mut NodeGrad<'_>, numbers: &str, bound: &str) -> String {
    let last = n.emitter.ints(&[-1]);
    let largest = n.call("ReduceMax", &[numbers, &last]);
    n.call("Greater", &[&largest, bound])
}

/// P, computed again.
struct Weights {
    p: String,
    /// The tanh that capped the scores if they were capped.
    capped: Option<String>,
    /// As [`Mask::answered`].
    answered: Option<String>,
}

impl Weights {
    fn emit(n: &mut NodeGrad<'_>, q: &str, k: &str, scale: &str) -> Self {
        let k_turned = turned(n, k);
        // Before the product, which float16 may not hold without it.
        let scaled = n.emitter.op("Mul", &[q, scale], &[]);
        let mut scores = n.emitter.op("MatMul", &[&scaled, &k_turned], &[]);
        let cap = n.node.float("softcap", 0.0);
        let mut capped = None;
        if cap > 0.0 {
            let cap = n.emitter.float(n.element(), f64::from(cap));
            let ratio = n.emitter.op("Div", &[&scores, &cap], &[]);
            let tanh = n.emitter.op("Tanh", &[&ratio], &[]);
            scores = n.emitter.op("Mul", &[&tanh, &cap], &[]);
            capped = Some(tanh);
        }
        let Mask { allowed, added, answered } = Mask::of(n, &scores);
        if let Some(added) = added {
            scores = n.call("Add", &[&scores, &added]);
        }
        if let Some(allowed) = allowed {
            let never = n.number(NEVER);
            scores = n.call("Where", &[&allowed, &scores, &never]);
        }
        let p = n.emitter.op("Softmax", &[&scores], &[attr_int("axis", -1)]);
        Self { p, capped, answered }
    }
}

fn turned(n: &mut NodeGrad<'_>, value: &str) -> String {
    n.emitter.op("Transpose", &[value], &[attr_ints("perm", &[0, 1, 3, 2])])
}

/// Numbers of heads, and whether they stand in an axis of their own, `[batch, heads, length, width]`, or in
/// the last, `[batch, length, heads * width]`.
struct Heads {
    q: i64,
    kv: i64,
    /// Width of one head of Q.
    width: i64,
    own_axis: bool,
}

impl Heads {
    fn of(n: &NodeGrad<'_>) -> Result<Self, AutodiffError> {
        let (q, k) = (n.dims(n.input(0))?, n.dims(n.input(1))?);
        let own_axis = q.len() == 4;
        let (q_heads, kv_heads) = match own_axis {
            true => (n.fixed(n.input(0), &q[1])?, n.fixed(n.input(1), &k[1])?),
            false => (n.node.int("q_num_heads", 0), n.node.int("kv_num_heads", 0)),
        };
        if q.len() != k.len() || !(3..=4).contains(&q.len()) || q_heads < 1 || kv_heads < 1 {
            return Err(n.refuse("its numbers of heads are not known".to_owned()));
        }
        let last = n.fixed(n.input(0), &q[q.len() - 1])?;
        let width = if own_axis { last } else { last / q_heads };
        Ok(Self { q: q_heads, kv: kv_heads, width, own_axis })
    }

    /// Sequence length of an input.
    fn length(&self, n: &NodeGrad<'_>, index: usize) -> Result<Dim, AutodiffError> {
        Ok(n.dims(n.input(index))?[if self.own_axis { 2 } else { 1 }].clone())
    }

    /// `[batch, heads, length, width]`.
    fn apart(&self, n: &mut NodeGrad<'_>, value: &str, heads: i64) -> String {
        if self.own_axis {
            return value.to_owned();
        }
        let apart = n.reshaped(value, &[0, 0, heads, -1]);
        n.emitter.op("Transpose", &[&apart], &[attr_ints("perm", &[0, 2, 1, 3])])
    }

    /// The way back, to the shape of an input.
    fn together(&self, n: &mut NodeGrad<'_>, value: &str, index: usize) -> Result<String, AutodiffError> {
        if self.own_axis {
            return Ok(value.to_owned());
        }
        let turned = n.emitter.op("Transpose", &[value], &[attr_ints("perm", &[0, 2, 1, 3])]);
        n.reshape_to_input(&turned, index)
    }

    /// Repeats each head of K or V for the heads of Q that share it.
    fn shared(&self, n: &mut NodeGrad<'_>, value: &str) -> String {
        let times = self.q / self.kv;
        if times == 1 {
            return value.to_owned();
        }
        let two = n.emitter.ints(&[2]);
        let apart = n.emitter.op("Unsqueeze", &[value, &two], &[]);
        let shape = n.emitter.ints(&[1, 1, times, 1, 1]);
        let repeated = n.emitter.op("Expand", &[&apart, &shape], &[]);
        let merged = n.emitter.op("Shape", &[value], &[attr_int("start", 2)]);
        let front = n.emitter.ints(&[0, self.q]);
        let shape = n.emitter.op("Concat", &[&front, &merged], &[attr_int("axis", 0)]);
        n.emitter.op("Reshape", &[&repeated, &shape], &[])
    }

    /// Sums over the heads of Q that share one.
    fn summed(&self, n: &mut NodeGrad<'_>, value: &str) -> String {
        let times = self.q / self.kv;
        if times == 1 {
            return value.to_owned();
        }
        let tail = n.emitter.op("Shape", &[value], &[attr_int("start", 2)]);
        let front = n.emitter.ints(&[0, self.kv, times]);
        let shape = n.emitter.op("Concat", &[&front, &tail], &[attr_int("axis", 0)]);
        let apart = n.emitter.op("Reshape", &[value, &shape], &[]);
        sum(n.emitter, &apart, &[2])
    }
}
