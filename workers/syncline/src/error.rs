//! What a program's `main` returns: any error, with what to do about it.

use std::{
    error::Error as StdError,
    fmt::{self, Debug, Display, Formatter},
};

use syncline_autodiff::AutodiffError;
#[cfg(feature = "local")]
use syncline_engine::{service::EngineError, store::StoreError};
#[cfg(any(feature = "train", feature = "worker"))]
use syncline_kit::{InvalidDevice, KitError};
use syncline_onnx::{CompileError, OnnxError};
use syncline_ps::{PsError, transport::UnknownTransport};
use syncline_rpc::{
    CallError, EngineFault, InvalidAddress, InvalidCursor, InvalidToken, ShardFault, hello::HelloError,
    status::UnknownFields,
};
#[cfg(any(feature = "train", feature = "worker"))]
use syncline_runtime::BackendError;
use syncline_scheduler::{
    fault_code::FaultCode,
    graph::InvalidTaskId,
    ids::InvalidName,
    predict::InvalidPredictor,
    spec::{InvalidJob, InvalidOptimizer, InvalidPolicy},
    sync::search::{InvalidAlgorithm, InvalidSlack},
    tasks::{InvalidState, InvalidTraining},
};
#[cfg(feature = "local")]
use syncline_workers::local::LocalError;
#[cfg(feature = "train")]
use syncline_workers::{
    check::CheckError,
    isolation::{ChildError, ModelError},
};
use syncline_workers::{
    client::{ClientError, FetchError, FindError, TaskError},
    data::DataError,
    error_chain,
    export::ExportError,
    functions::{ArgumentError, InvalidCall, TensorError},
    printable,
    submit::SubmitError,
};
#[cfg(feature = "worker")]
use syncline_workers::{functions::RegisteredTwice, predict::PredictError, worker::WorkerError};

/// Any error, for the `main` of a program that uses this crate.
///
/// `?` makes one of every error. What `main` then prints names the code, the causes, and for errors of this
/// crate what to do, one below the other:
///
/// ```no_run
/// #[tokio::main]
/// async fn main() -> Result<(), syncline::Error> {
///     let client = syncline::Client::find()?;
///     println!("{} jobs", client.jobs().await?.len());
///     Ok(())
/// }
/// ```
///
/// ```text
/// Error: [E511] no cluster is known: /home/you/.local/state/syncline/up.json does not exist, or names none
/// hint: start one with `syncline up`, or name one: ...
/// ```
pub struct Error {
    inner: Box<dyn StdError + Send + Sync>,
    code: Option<FaultCode>,
    hint: Option<String>,
}

impl Error {
    /// The error itself.
    pub fn inner(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.inner
    }

    /// The stable code, such as `E131`, see docs/errors.md; `None` for errors of other crates.
    pub fn code(&self) -> Option<FaultCode> {
        self.code
    }

    /// What to do about it; `None` for errors of other crates, and where the text says all there is.
    pub fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        let (code, hint) = coded(&error).map(|error| (error.code(), error.hint())).unzip();
        Self { inner: error.into(), code, hint: hint.flatten() }
    }
}

/// What every error of this crate says about itself beside its text.
pub trait Coded: StdError {
    /// The stable code, such as `E131`, see docs/errors.md.
    fn code(&self) -> FaultCode;

    /// What to do about it; `None` where the text says all there is.
    fn hint(&self) -> Option<String>;
}

/// Makes each type in the list [`Coded`], by its own `code` and `hint`, and `coded`, which knows them all.
macro_rules! list_coded {
    ($($(#[$only:meta])? $ours:ty),* $(,)?) => {
        $(
            $(#[$only])?
            impl Coded for $ours {
                fn code(&self) -> FaultCode {
                    <$ours>::code(self).into()
                }

                fn hint(&self) -> Option<String> {
                    <$ours>::hint(self)
                }
            }
        )*

        /// The error, if it is one of ours.
        fn coded<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a dyn Coded> {
            $(
                $(#[$only])?
                if let Some(error) = error.downcast_ref::<$ours>() {
                    return Some(error);
                }
            )*
            None
        }
    };
}

list_coded!(
    TaskError,
    ClientError,
    SubmitError,
    FetchError,
    FindError,
    ExportError,
    DataError,
    PsError,
    ArgumentError,
    InvalidCall,
    TensorError,
    AutodiffError,
    CompileError,
    OnnxError,
    CallError,
    EngineFault,
    HelloError,
    InvalidAddress,
    InvalidCursor,
    InvalidToken,
    ShardFault,
    UnknownFields,
    UnknownTransport,
    InvalidAlgorithm,
    InvalidJob,
    InvalidName,
    InvalidOptimizer,
    InvalidPolicy,
    InvalidPredictor,
    InvalidSlack,
    InvalidState,
    InvalidTaskId,
    InvalidTraining,
    #[cfg(any(feature = "train", feature = "worker"))]
    BackendError,
    #[cfg(feature = "train")]
    CheckError,
    #[cfg(feature = "train")]
    ChildError,
    #[cfg(any(feature = "train", feature = "worker"))]
    InvalidDevice,
    #[cfg(any(feature = "train", feature = "worker"))]
    KitError,
    #[cfg(feature = "train")]
    ModelError,
    #[cfg(feature = "worker")]
    PredictError,
    #[cfg(feature = "worker")]
    RegisteredTwice,
    #[cfg(feature = "worker")]
    WorkerError,
    #[cfg(feature = "local")]
    EngineError,
    #[cfg(feature = "local")]
    LocalError,
    #[cfg(feature = "local")]
    StoreError,
);

/// Without what a terminal would obey: the text may be that of a user's function on another machine.
impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.inner.to_string()))
    }
}

/// For people: this is what a `main` that returns it prints.
impl Debug for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let chain: Vec<String> = error_chain(&*self.inner).map(ToString::to_string).collect();
        f.write_str(&printable(&chain.join("\n  caused by: ")))?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io, path::PathBuf};

    use syncline_rpc::{CallError, hello::HelloError};

    use super::*;

    #[test]
    fn what_main_prints_has_the_code_the_causes_and_what_to_do() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let source = CallError::Hello(HelloError::Io(refused));
        let unreachable = ClientError::Unreachable { address: "127.0.0.1:7".into(), source };
        let hint = unreachable.hint().unwrap();
        let printed = format!("{:?}", Error::from(unreachable));
        let want = format!(
            "[E300] no connection to the engine at 127.0.0.1:7\n  caused by: [E125] there is no connection, or it broke during the \
             greeting\n  caused by: connection refused\nhint: {hint}"
        );
        assert_eq!(printed, want);

        let nowhere = FindError::NoCluster { path: PathBuf::from("/s/up.json") };
        assert_eq!(Error::from(nowhere).hint(), FindError::NoCluster { path: PathBuf::new() }.hint());
        let other = Error::from(io::Error::other("a disk is gone"));
        assert_eq!(
            (format!("{other:?}").as_str(), other.code(), other.hint()),
            ("a disk is gone", None, None)
        );
    }

    #[test]
    fn what_a_function_said_moves_no_cursor_of_a_program_that_prints_it() {
        let reason = "[E440] f failed: \x1b[2Jno\nluck\u{9b}2J".to_owned();
        let (job, code) = ("a".parse().unwrap(), "E440".to_owned());
        let error = Error::from(ClientError::JobFailed { job, code, reason });
        let want = "[E506] job a failed: [E440] f failed:  [2Jno\nluck 2J";
        assert_eq!(error.to_string(), want);
        assert!(format!("{error:?}").starts_with(want), "{error:?}");
    }

    /// That each of them has a code shows in the list above, which would not compile otherwise.
    #[test]
    fn the_code_of_an_error_is_the_one_that_its_text_begins_with() {
        let parse = |text: &str| -> Vec<Error> {
            let refused = [
                text.parse::<crate::JobId>().map(drop).map_err(Error::from),
                text.parse::<crate::PolicySpec>().map(drop).map_err(Error::from),
                text.parse::<crate::PredictorSpec>().map(drop).map_err(Error::from),
                text.parse::<crate::TaskState>().map(drop).map_err(Error::from),
                text.parse::<crate::Algorithm>().map(drop).map_err(Error::from),
                text.parse::<crate::Slack>().map(drop).map_err(Error::from),
                text.parse::<crate::TaskId>().map(drop).map_err(Error::from),
                text.parse::<crate::Token>().map(drop).map_err(Error::from),
                text.parse::<crate::EngineAddresses>().map(drop).map_err(Error::from),
                text.parse::<crate::StreamCursor>().map(drop).map_err(Error::from),
                text.parse::<crate::Loss>().map(drop).map_err(Error::from),
                text.parse::<crate::Precision>().map(drop).map_err(Error::from),
                text.parse::<syncline_ps::transport::TransportChoice>().map(drop).map_err(Error::from),
                crate::Tensor::new([2], vec![1.0f32]).map(drop).map_err(Error::from),
                crate::Cluster::load(None, None, Some(std::path::Path::new(text)))
                    .map(drop)
                    .map_err(Error::from),
            ];
            refused.into_iter().map(Result::unwrap_err).collect()
        };
        for error in parse("No such thing!") {
            let text = error.to_string();
            assert_eq!(error.code(), FaultCode::leading(&text), "{text}");
            assert!(error.code().is_some(), "{text}");
        }
        let refused =
            EngineFault::InvalidJob { code: "E027".into(), reason: "[E027] job a: batch is 0".to_owned() };
        assert_eq!(Error::from(refused).code(), Some(FaultCode::new("E027")));
        let failed = ClientError::JobFailed {
            job: "a".parse().unwrap(),
            code: "E351".to_owned(),
            reason: "[E351] the loss became NaN".to_owned(),
        };
        assert_eq!(Error::from(failed).code(), Some(FaultCode::new("E506")));
    }
}
