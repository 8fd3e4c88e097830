//! Settings of a loss.

use serde::{Deserialize, Serialize};

use super::{ClassWeights, Loss};
use crate::error::AutodiffError;

/// Settings of a loss. Each belongs to some losses only; setting one that the chosen loss does not have is
/// refused.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossOptions {
    /// Softmax cross-entropy: share of the probability that is spread evenly over all classes, at least 0
    /// and below 1 (Szegedy et al., CVPR 2016, doi:10.1109/CVPR.2016.308).
    pub label_smoothing: f32,
    /// Softmax cross-entropy: how much each class weighs. A sample weighs as much as the class of its label.
    pub class_weights: ClassWeights,
    /// Softmax cross-entropy: samples with this label weigh nothing.
    pub ignore_index: Option<i64>,
    /// Softmax cross-entropy: the axis of the classes; negative counts from the back. By default the last
    /// one of `[batch, classes]` and `[batch, time, classes]`, and axis 1 of `[batch, classes, height,
    /// width]` and the like.
    pub class_axis: Option<i64>,
    /// Softmax cross-entropy: also count the labels that are among the k best scores, as output
    /// `correct_topk`.
    pub top_k: Option<u32>,
    /// Softmax cross-entropy: also report exp of the mean negative log-likelihood, as output `perplexity`,
    /// and that mean itself as `log_perplexity`.
    pub perplexity: bool,
    /// Binary cross-entropy: how much a label 1 weighs against a label 0, above 0; one number, or one for
    /// each class, along the axis where softmax cross-entropy has its classes by default. None if both
    /// weigh the same.
    pub pos_weight: ClassWeights,
    /// Huber: where the loss turns from squared to absolute, above 0; 1 if not given.
    pub delta: Option<f32>,
}

/// The axis of the classes of scores with this many axes, where nobody says another one.
pub(crate) fn default_class_axis(rank: usize) -> i64 {
    if rank < 4 { -1 } else { 1 }
}

impl LossOptions {
    /// The axis of the classes of scores with this many axes, as it is stated or by default.
    pub(super) fn class_axis(&self, rank: usize) -> i64 {
        self.class_axis.unwrap_or(default_class_axis(rank))
    }

    /// Refuses values out of range, and options of other losses.
    pub(super) fn check(&self, loss: Loss) -> Result<(), AutodiffError> {
        let refuse = |option: &'static str, reason: String| Err(AutodiffError::LossOption { option, reason });
        let classes = [
            ("label_smoothing", self.label_smoothing != 0.0),
            ("class_weights", self.class_weights != ClassWeights::default()),
            ("ignore_index", self.ignore_index.is_some()),
            ("class_axis", self.class_axis.is_some()),
            ("top_k", self.top_k.is_some()),
            ("perplexity", self.perplexity),
        ];
        let foreign = match loss {
            Loss::SoftmaxCrossEntropy => None,
            _ => classes.into_iter().find(|(_, set)| *set),
        };
        let weighted = loss != Loss::BinaryCrossEntropy && self.pos_weight != ClassWeights::default();
        let foreign = foreign.or(weighted.then_some(("pos_weight", true)));
        let foreign = foreign.or((loss != Loss::Huber && self.delta.is_some()).then_some(("delta", true)));
        if let Some((option, _)) = foreign {
            let owner = match option {
                "pos_weight" => Loss::BinaryCrossEntropy,
                "delta" => Loss::Huber,
                _ => Loss::SoftmaxCrossEntropy,
            };
            return refuse(option, format!("loss {loss} has no such option, {owner} has"));
        }
        if !(0.0..1.0).contains(&self.label_smoothing) {
            return refuse("label_smoothing", format!("{} is not in [0, 1)", self.label_smoothing));
        }
        let weights = [("class_weights", &self.class_weights), ("pos_weight", &self.pos_weight)];
        if let Some((option, _)) =
            weights.into_iter().find(|(_, weights)| **weights == ClassWeights::Balanced)
        {
            let reason = "`balanced` is counted in a training set, and there is none here: give one number for each class";
            return refuse(option, reason.to_owned());
        }
        if let Some(weight) =
            self.class_weights.each().iter().find(|weight| !weight.is_finite() || **weight < 0.0)
        {
            return refuse("class_weights", format!("{weight} is no weight"));
        }
        if let Some(weight) =
            self.pos_weight.each().iter().find(|weight| !weight.is_finite() || **weight <= 0.0)
        {
            return refuse("pos_weight", format!("{weight} is not above 0"));
        }
        match self.delta {
            Some(delta) if !delta.is_finite() || delta <= 0.0 => {
                refuse("delta", format!("{delta} is not above 0"))
            }
            _ => Ok(()),
        }
    }
}
