//! What a program's `main` returns: any error, with what to do about it.

use std::{
    error::Error as StdError,
    fmt::{self, Debug, Display, Formatter},
};

use syncline_ps::PsError;
use syncline_workers::{
    client::{ClientError, FetchError, FindError, TaskError},
    error_chain,
    export::ExportError,
    submit::SubmitError,
};

/// Any error, for the `main` of a program that uses this crate.
///
/// `?` makes one of every error. What `main` then prints names the code, the causes, and for errors of this crate what to do,
/// one below the other:
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
    hint: Option<String>,
}

impl Error {
    /// The error itself.
    pub fn inner(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.inner
    }

    /// What to do about it; `None` for errors of other crates.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        let hint = hint(&error);
        Self { inner: error.into(), hint }
    }
}

/// What an error of ours says that one can do about it.
fn hint(error: &(dyn StdError + 'static)) -> Option<String> {
    let hints: [&dyn Fn() -> Option<String>; 7] = [
        &|| error.downcast_ref().map(TaskError::hint),
        &|| error.downcast_ref().map(ClientError::hint),
        &|| error.downcast_ref().map(SubmitError::hint),
        &|| error.downcast_ref().map(FetchError::hint),
        &|| error.downcast_ref().map(|error: &FindError| error.hint().to_owned()),
        &|| error.downcast_ref().map(|error: &ExportError| error.hint().to_owned()),
        &|| error.downcast_ref().map(|error: &PsError| error.hint().to_owned()),
    ];
    hints.iter().find_map(|hint| hint()).filter(|hint| !hint.is_empty())
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(&self.inner, f)
    }
}

/// For people: this is what a `main` that returns it prints.
impl Debug for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let chain: Vec<String> = error_chain(&*self.inner).map(ToString::to_string).collect();
        f.write_str(&chain.join("\n  caused by: "))?;
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
        let hint = unreachable.hint();
        let printed = format!("{:?}", Error::from(unreachable));
        let want = format!(
            "[E300] no connection to the engine at 127.0.0.1:7\n  caused by: [E125] there is no connection, or it broke during the \
             greeting\n  caused by: connection refused\nhint: {hint}"
        );
        assert_eq!(printed, want);

        let nowhere = FindError::NoCluster { path: PathBuf::from("/s/up.json") };
        assert_eq!(Error::from(nowhere).hint(), Some(FindError::NoCluster { path: PathBuf::new() }.hint()));
        let other = Error::from(io::Error::other("a disk is gone"));
        assert_eq!((format!("{other:?}").as_str(), other.hint()), ("a disk is gone", None));
    }
}
