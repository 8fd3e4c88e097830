//! Why a model did not run.

use syncline_onnx::TensorType;
use syncline_ps::PsError;
use syncline_runtime::BackendError;
use syncline_scheduler::{fault_code::FaultCode, tasks::FailureCause};

use crate::functions::CallFault;
#[cfg(feature = "train")]
use crate::isolation::ModelError;

/// Why a model did not run, in words for people.
#[derive(Debug, thiserror::Error)]
pub(super) enum ModelFault {
    #[error("[E450] the model has {} inputs ({}), it is given {given}", .names.len(), .names.join(", "))]
    Count { names: Vec<String>, given: usize },
    #[error("[E451] input `{name}` of the model is {wanted}, it is given {given}")]
    Input { name: String, wanted: TensorType, given: TensorType },
    #[error("[E609] the task was told to stop while its model was fetched")]
    Stopped,
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// It was tried in another process.
    #[cfg(feature = "train")]
    #[error(transparent)]
    Tried(#[from] ModelError),
    #[error(transparent)]
    Store(PsError),
}

impl From<PsError> for ModelFault {
    fn from(error: PsError) -> Self {
        match error {
            PsError::Canceled => Self::Stopped,
            error => Self::Store(error),
        }
    }
}

impl ModelFault {
    /// The stable code, see docs/errors.md.
    pub(super) fn code(&self) -> FaultCode {
        FaultCode::new(match self {
            Self::Count { .. } => "E450",
            Self::Input { .. } => "E451",
            Self::Stopped => "E609",
            Self::Backend(error) => error.code(),
            #[cfg(feature = "train")]
            Self::Tried(error) => return error.code(),
            Self::Store(error) => error.code(),
        })
    }

    /// Whether another worker may succeed.
    fn cause(&self) -> FailureCause {
        match self {
            Self::Backend(error) if error.may_be_the_machine() => FailureCause::Worker,
            #[cfg(feature = "train")]
            Self::Tried(error) if error.may_be_the_machine() => FailureCause::Worker,
            _ => FailureCause::Function,
        }
    }
}

impl From<ModelFault> for CallFault {
    fn from(fault: ModelFault) -> Self {
        match fault {
            ModelFault::Store(error) => Self::Store(error),
            fault => Self::Own { code: fault.code(), cause: fault.cause(), reason: fault.to_string() },
        }
    }
}

#[cfg(all(test, feature = "train"))]
mod tests {
    use super::*;
    use crate::isolation::ChildError;

    #[test]
    fn a_fetch_that_was_told_to_stop_is_no_fault_of_the_shards() {
        assert_eq!(ModelFault::from(PsError::Canceled).code(), FaultCode::new("E609"));
    }

    #[test]
    fn a_model_that_cannot_be_fetched_is_told_as_an_argument_that_cannot() {
        let away = PsError::Unreachable { address: "a:1".into(), after_ms: 0, cause: "refused".into() };
        assert!(
            matches!(CallFault::from(ModelFault::from(away)), CallFault::Store(error) if error.may_pass())
        );
    }

    #[test]
    fn a_trial_that_somebody_else_ended_fails_by_the_worker_and_one_that_the_model_ended_by_the_function() {
        let (model, stage) = ("m.onnx".to_owned(), "load".to_owned());
        let (by, how) = ("signal 9 (SIGKILL)".to_owned(), "signal 11 (SIGSEGV)".to_owned());
        let (node, words) = (String::new(), String::new());
        for (error, cause) in [
            (ModelError::Ended { model: model.clone(), by, stage: stage.clone() }, FailureCause::Worker),
            (
                ModelError::Silent { model: model.clone(), stage: stage.clone(), seconds: 600 },
                FailureCause::Worker,
            ),
            (ModelError::Crashed { model, how, stage, node, words }, FailureCause::Function),
        ] {
            assert_eq!(ModelFault::from(error).cause(), cause);
        }
    }

    #[test]
    fn a_trial_that_found_no_memory_and_no_library_fails_by_the_worker_and_one_that_refused_the_model_by_the_function()
     {
        for (code, cause) in [
            ("E320", FailureCause::Worker),
            ("E321", FailureCause::Worker),
            ("E496", FailureCause::Worker),
            ("E498", FailureCause::Worker),
            ("E323", FailureCause::Function),
            ("E302", FailureCause::Function),
        ] {
            let error =
                ChildError { code: FaultCode::new(code), text: format!("[{code}] words"), hint: None };
            assert_eq!(ModelFault::from(ModelError::Child(error)).cause(), cause, "{code}");
        }
    }
}
