//! The loss of a forward model among the settings of its job: a submission writes it there, and who predicts
//! reads what it needs of it.

#[cfg(feature = "worker")]
use syncline_autodiff::Loss;
#[cfg(feature = "worker")]
use syncline_scheduler::spec::SettingList;

pub(super) const LOSS: &str = "model.forward.loss";
pub(super) const OUTPUT: &str = "model.forward.output";
pub(super) const CLASS_AXIS: &str = "model.forward.loss_options.class_axis";

/// What the outputs of a model were compared by while it trained.
#[cfg(feature = "worker")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForwardLoss {
    pub loss: Loss,
    /// The output that it looks at; `None`: the first.
    pub output: Option<String>,
    /// Axis of the classes, the batch counted as one; from the back if negative. `None`: as the loss has it.
    pub class_axis: Option<i64>,
}

#[cfg(feature = "worker")]
impl ForwardLoss {
    /// `None`: the job trained a graph that has its loss in it.
    pub(crate) fn of(settings: &SettingList) -> Option<Self> {
        let name = settings.get(LOSS)?;
        Some(Self {
            loss: Loss::ALL.into_iter().find(|loss| loss.name() == name)?,
            output: settings.get(OUTPUT).map(str::to_owned),
            class_axis: settings.get(CLASS_AXIS).and_then(|axis| axis.parse().ok()),
        })
    }
}

#[cfg(all(test, feature = "worker"))]
mod tests {
    use syncline_scheduler::spec::Source;

    use super::*;
    use crate::submit::{Model, Training, submitted::submitted};

    #[test]
    fn what_a_submission_writes_is_read_again_for_every_loss() {
        let options = |class_axis| syncline_autodiff::LossOptions { class_axis, ..Default::default() };
        for loss in Loss::ALL {
            for (output, class_axis) in [(None, None), (Some("scores.1"), Some(-2)), (Some("it's"), Some(1))]
            {
                let output = output.map(str::to_owned);
                let model = Model::Forward {
                    onnx: "m.onnx".into(),
                    loss,
                    options: options(class_axis),
                    output: output.clone(),
                    weights: None,
                };
                let listed = submitted(&Training::new(model, Source::csv("d.csv"))).0;
                assert_eq!(ForwardLoss::of(&listed), Some(ForwardLoss { loss, output, class_axis }));
            }
        }
        let ready = Model::ready("m.onnx");
        assert_eq!(ForwardLoss::of(&submitted(&Training::new(ready, Source::csv("d.csv"))).0), None);
    }
}
