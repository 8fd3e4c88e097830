//! Softmax cross-entropy.
//!
//! With log p = LogSoftmax(y) along the classes, label t, class weights w (1 if not given), smoothing s, C
//! classes and v = 0 for an ignored label, else 1, a sample has
//!
//! > loss = v (-(1 - s) w_t log p_t - s/C sum_c w_c log p_c)
//!
//! and the loss of a batch is the sum of these divided by W = sum of v w_t, as `torch.nn.CrossEntropyLoss`
//! has it. The gradient for y is
//!
//! > p_c a - w_c b - (v (1 - s) w_t / W where c = t), a = v ((1 - s) w_t + s/C sum_c w_c) / W, b = v s / (C
//! > W).
//!
//! Only the label's element differs from the rest, so it is computed alone and put in its place by
//! ScatterElements: no one-hot tensor is made, which for large vocabularies would cost more than the softmax.

use syncline_onnx::proto::{AttributeProto, TensorProto};
use syncline_onnx::{Dim, ElementType, TensorType, attr_int};

use super::{LossAt, LossValues, Predicted, total};
use crate::broadcast::sum_keeping;
use crate::emitter::Emitter;
use crate::error::AutodiffError;
use crate::{CORRECT, CORRECT_TOP, LOG_PERPLEXITY, PERPLEXITY, PREDICTIONS};

pub(super) fn emit(e: &mut Emitter, at: &LossAt<'_>, label: &str) -> Result<LossValues, AutodiffError> {
    let (axis, classes) = at.classes()?;
    check(at, classes)?;
    let along = [attr_int("axis", axis as i64)];
    let samples = Samples::read(e, at, label, axis);
    let log_p = e.op("LogSoftmax", &[at.output], &along);
    let picked = e.op("GatherElements", &[&log_p, &samples.index], &along);
    let (total_weight, divisor) = weigh(e, &samples);
    let counted = samples.counted(e, &picked);
    let likelihood = mean(e, &counted, samples.weight.as_deref(), &divisor, samples.rank);
    let likelihood = e.op("Neg", &[&likelihood], &[]);

    let terms = Terms { samples: &samples, along: &along, log_p, picked, divisor };
    let (loss, grad) = match at.options.label_smoothing {
        0.0 => (likelihood.clone(), hard_gradient(e, &terms)),
        share => {
            let soft = LabelSmoothing::new(e, at, axis, classes, f64::from(share));
            (soft.loss(e, &terms, &likelihood), soft.gradient(e, &terms))
        }
    };
    let predicted = e.op("ArgMax", &[at.output], &along);
    let metrics = metrics(e, at, &samples, &along, (&terms.picked, &predicted), &likelihood);
    let mut dims = at.ty.dims.clone();
    dims[axis] = Dim::Fixed(1);
    let predicted = Predicted { value: predicted, dims: dims.clone() };
    dims.remove(axis);
    Ok(LossValues {
        loss,
        weight: total_weight,
        metrics,
        predicted: Some(predicted),
        grad,
        label: Some(TensorType::new(ElementType::I64, dims)),
    })
}

/// Options that have to fit the number of classes.
fn check(at: &LossAt<'_>, classes: usize) -> Result<(), AutodiffError> {
    let weights = at.options.class_weights.each().len();
    if weights != 0 && weights != classes {
        let reason = format!("{weights} weights are given, output `{}` has {classes} classes", at.output);
        return Err(AutodiffError::LossOption { option: "class_weights", reason });
    }
    match at.options.top_k {
        Some(k) if k == 0 || k as usize > classes => {
            let reason = format!("{k} is not among 1 to {classes}, the number of classes");
            Err(AutodiffError::LossOption { option: "top_k", reason })
        }
        _ => Ok(()),
    }
}

/// The labels, with an axis of size 1 where the output has its classes.
struct Samples {
    rank: usize,
    /// Class of each sample; 0 where it is ignored.
    index: String,
    /// Where the label counts; `None` if every one does.
    kept: Option<String>,
    /// The same as 1, or 0 where the label is ignored.
    valid: Option<String>,
    /// `valid` times the weight of the class; `None` if every sample weighs 1.
    weight: Option<String>,
}

impl Samples {
    fn read(e: &mut Emitter, at: &LossAt<'_>, label: &str, axis: usize) -> Self {
        let axes = e.ints(&[axis as i64]);
        let mut index = e.op("Unsqueeze", &[label, &axes], &[]);
        let mut kept = None;
        if let Some(ignored) = at.options.ignore_index {
            let (ignored, zero) = (e.int(ignored), e.int(0));
            let skip = e.op("Equal", &[&index, &ignored], &[]);
            index = e.op("Where", &[&skip, &zero, &index], &[]);
            kept = Some(e.op("Not", &[&skip], &[]));
        }
        let valid = kept.as_ref().map(|kept| e.cast(kept, ElementType::F32));
        let weight = match class_weights(e, at) {
            None => valid.clone(),
            Some(table) => {
                let weight = e.op("Gather", &[&table, &index], &[]);
                Some(times(e, &weight, valid.as_deref()))
            }
        };
        Self { rank: at.ty.dims.len(), index, kept, valid, weight }
    }

    /// A number of each sample, 0 where its label is ignored: log p may be minus infinity there (0 stands for
    /// a class that the model rules out), which times 0 is no number.
    fn counted(&self, e: &mut Emitter, values: &str) -> String {
        match &self.kept {
            Some(kept) => {
                let zero = e.float(ElementType::F32, 0.0);
                e.op("Where", &[kept, values, &zero], &[])
            }
            None => values.to_owned(),
        }
    }
}

fn class_weights(e: &mut Emitter, at: &LossAt<'_>) -> Option<String> {
    let weights = at.options.class_weights.each();
    (!weights.is_empty()).then(|| e.constant(TensorProto::from_f32("", &[weights.len()], weights)))
}

fn times(e: &mut Emitter, value: &str, factor: Option<&str>) -> String {
    factor.map_or_else(|| value.to_owned(), |factor| e.op("Mul", &[value, factor], &[]))
}

/// The sum of the samples' weights, and what to divide by: the same, but infinity where it is 0, so that loss
/// and gradients become 0 as well.
fn weigh(e: &mut Emitter, samples: &Samples) -> (String, String) {
    let Some(weight) = &samples.weight else {
        let one = e.float(ElementType::F32, 1.0);
        let count = e.op("Size", &[&samples.index], &[]);
        let count = e.cast(&count, ElementType::F32);
        let divisor = e.op("Max", &[&count, &one], &[]);
        return (count, divisor);
    };
    let sum = total(e, weight, samples.rank);
    let (zero, infinity) = (e.float(ElementType::F32, 0.0), e.float(ElementType::F32, f64::INFINITY));
    let some = e.op("Greater", &[&sum, &zero], &[]);
    let divisor = e.op("Where", &[&some, &sum, &infinity], &[]);
    (sum, divisor)
}

fn mean(e: &mut Emitter, values: &str, weight: Option<&str>, divisor: &str, rank: usize) -> String {
    let weighted = times(e, values, weight);
    let sum = total(e, &weighted, rank);
    e.op("Div", &[&sum, divisor], &[])
}

/// What loss and gradient have in common.
struct Terms<'a> {
    samples: &'a Samples,
    along: &'a [AttributeProto; 1],
    log_p: String,
    /// log p of the label.
    picked: String,
    divisor: String,
}

impl Terms<'_> {
    /// A factor of each sample, divided by W; a scalar if it is 1 for every sample.
    fn share(&self, e: &mut Emitter, factor: Option<&str>) -> String {
        match factor {
            Some(factor) => e.op("Div", &[factor, &self.divisor], &[]),
            None => e.op("Reciprocal", &[&self.divisor], &[]),
        }
    }

    /// `elsewhere`, but `here` at the label.
    fn scatter(&self, e: &mut Emitter, elsewhere: &str, here: &str) -> String {
        e.op("ScatterElements", &[elsewhere, &self.samples.index, here], self.along)
    }
}

/// Without smoothing: a = v w_t / W and b = 0.
fn hard_gradient(e: &mut Emitter, terms: &Terms<'_>) -> String {
    let a = terms.share(e, terms.samples.weight.as_deref());
    let one = e.float(ElementType::F32, 1.0);
    let p = e.op("Exp", &[&terms.log_p], &[]);
    let elsewhere = e.op("Mul", &[&p, &a], &[]);
    let p_label = e.op("Exp", &[&terms.picked], &[]);
    let slope = e.op("Sub", &[&p_label, &one], &[]);
    let here = e.op("Mul", &[&slope, &a], &[]);
    terms.scatter(e, &elsewhere, &here)
}

/// The part of the loss that label smoothing adds.
struct LabelSmoothing {
    axis: i64,
    /// 1 - s.
    hard: String,
    /// s / C.
    each: String,
    /// s / C sum_c w_c.
    spread: String,
    /// w in a shape that broadcasts over the output.
    classes: Option<String>,
    /// w as a list.
    table: Option<String>,
}

impl LabelSmoothing {
    fn new(e: &mut Emitter, at: &LossAt<'_>, axis: usize, classes: usize, share: f64) -> Self {
        let weights = at.options.class_weights.each();
        let each = share / classes as f64;
        let sum: f64 = weights.iter().copied().map(f64::from).sum();
        let spread = if weights.is_empty() { share } else { each * sum };
        let mut shape = vec![1; at.ty.dims.len() - axis];
        shape[0] = classes;
        Self {
            axis: axis as i64,
            hard: e.float(ElementType::F32, 1.0 - share),
            each: e.float(ElementType::F32, each),
            spread: e.float(ElementType::F32, spread),
            classes: (!weights.is_empty()).then(|| e.constant(TensorProto::from_f32("", &shape, weights))),
            table: class_weights(e, at),
        }
    }

    fn loss(&self, e: &mut Emitter, terms: &Terms<'_>, likelihood: &str) -> String {
        let weighted = times(e, &terms.log_p, self.classes.as_deref());
        let over_classes = sum_keeping(e, &weighted, &[self.axis]);
        let samples = terms.samples;
        let counted = samples.counted(e, &over_classes);
        let mean = mean(e, &counted, None, &terms.divisor, samples.rank);
        let soft = e.op("Mul", &[&mean, &self.each], &[]);
        let hard = e.op("Mul", &[likelihood, &self.hard], &[]);
        e.op("Sub", &[&hard, &soft], &[])
    }

    fn gradient(&self, e: &mut Emitter, terms: &Terms<'_>) -> String {
        let weight = terms.share(e, terms.samples.weight.as_deref());
        let valid = terms.share(e, terms.samples.valid.as_deref());
        let hard = e.op("Mul", &[&weight, &self.hard], &[]);
        let spread = e.op("Mul", &[&valid, &self.spread], &[]);
        let a = e.op("Add", &[&hard, &spread], &[]);
        let b = e.op("Mul", &[&valid, &self.each], &[]);

        let p = e.op("Exp", &[&terms.log_p], &[]);
        let p = e.op("Mul", &[&p, &a], &[]);
        let floor = times(e, &b, self.classes.as_deref());
        let elsewhere = e.op("Sub", &[&p, &floor], &[]);

        let p_label = e.op("Exp", &[&terms.picked], &[]);
        let p_label = e.op("Mul", &[&p_label, &a], &[]);
        let slope = e.op("Sub", &[&p_label, &hard], &[]);
        let w_label = self.table.as_ref().map(|table| e.op("Gather", &[table, &terms.samples.index], &[]));
        let floor = times(e, &b, w_label.as_deref());
        let here = e.op("Sub", &[&slope, &floor], &[]);
        terms.scatter(e, &elsewhere, &here)
    }
}

fn metrics(
    e: &mut Emitter,
    at: &LossAt<'_>,
    samples: &Samples,
    along: &[AttributeProto; 1],
    (picked, predicted): (&str, &str),
    likelihood: &str,
) -> Vec<(String, String)> {
    let right = e.op("Equal", &[predicted, &samples.index], &[]);
    let mut metrics = vec![(CORRECT.to_owned(), count(e, &right, samples))];
    if let Some(k) = at.options.top_k {
        let right = among_top(e, at, samples, along, picked, k);
        metrics.push((format!("{CORRECT_TOP}{k}"), count(e, &right, samples)));
    }
    if at.options.perplexity {
        metrics.push((PERPLEXITY.to_owned(), e.op("Exp", &[likelihood], &[])));
        metrics.push((LOG_PERPLEXITY.to_owned(), likelihood.to_owned()));
    }
    // Elsewhere there is one prediction a sample.
    if samples.rank > 2 || samples.valid.is_some() {
        let predictions = match &samples.valid {
            Some(valid) => total(e, valid, samples.rank),
            None => {
                let count = e.op("Size", &[&samples.index], &[]);
                e.cast(&count, ElementType::F32)
            }
        };
        metrics.push((PREDICTIONS.to_owned(), predictions));
    }
    metrics
}

/// Which of the `k` best classes of a sample is its label, if one is. Of equal scores that of the lower class
/// is better, as it is for `ArgMax`.
fn among_top(
    e: &mut Emitter,
    at: &LossAt<'_>,
    samples: &Samples,
    along: &[AttributeProto; 1],
    picked: &str,
    k: u32,
) -> String {
    let k = e.ints(&[i64::from(k)]);
    let values = e.op("TopK", &[at.output, &k], &[along[0].clone(), attr_int("sorted", 0)]);
    let best = e.optional_output(&values, 1);
    let right = e.op("Equal", &[&best, &samples.index], &[]);
    // NaN is neither larger nor smaller than anything: such a sample has no best classes.
    let lost = e.op("IsNaN", &[picked], &[]);
    let known = e.op("Not", &[&lost], &[]);
    e.op("And", &[&right, &known], &[])
}

/// How many samples that are not ignored have `right`, which at most one class of a sample has.
fn count(e: &mut Emitter, right: &str, samples: &Samples) -> String {
    let right = e.cast(right, ElementType::F32);
    let right = times(e, &right, samples.valid.as_deref());
    total(e, &right, samples.rank)
}
