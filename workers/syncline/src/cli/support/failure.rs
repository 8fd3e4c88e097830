//! How a command ends.

use std::{
    error::Error,
    ffi::OsString,
    fmt,
    process::ExitCode,
    sync::{Mutex, MutexGuard},
};

use clap::{
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};

use syncline::Coded;
use syncline_rpc::{NoDescriptor, threads::lock};
use syncline_scheduler::fault_code::FaultCode;
use syncline_workers::error_chain;

use crate::cli::{print, say, say_json};

const USAGE_HINT: &str = "`syncline --help` lists the commands, `syncline COMMAND --help` their options";

const REPORT: &str = "this should not happen; please report it with the log";

/// Exit codes of every command; a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done; also when the reader of our output has gone.
    Ok = 0,
    /// The job failed or was canceled, or the engine refused what was asked.
    JobFailed = 1,
    /// What was typed, or a file that it names, is wrong.
    Usage = 2,
    /// The engine, or a shard, cannot be reached or does not accept us.
    Unreachable = 3,
    /// Redis cannot be reached or used.
    Redis = 4,
    /// Anything else.
    Internal = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Exit {
    /// What a process of ours that ended with this code meant.
    pub(crate) fn of_child(code: Option<i32>) -> Self {
        let all = [Self::JobFailed, Self::Usage, Self::Unreachable, Self::Redis];
        all.into_iter().find(|exit| code == Some(*exit as i32)).unwrap_or(Self::Internal)
    }
}

/// Why a command failed, with its exit code and what to do about it.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    /// `None`: the reader of our output has gone, about which nothing is to be said.
    error: Option<Box<dyn Error + Send + Sync>>,
    hint: String,
}

impl Failure {
    /// The text of `error` begins with its code.
    pub fn new(exit: Exit, error: impl Into<Box<dyn Error + Send + Sync>>, hint: impl Into<String>) -> Self {
        Self { exit, error: Some(error.into()), hint: hint.into() }
    }

    /// An error of a library, with its own hint. One that has none is not expected here.
    pub(crate) fn of(exit: Exit, error: impl Coded + Send + Sync + 'static) -> Self {
        let of_files = |error: &(dyn Error + 'static)| {
            error.downcast_ref().and_then(NoDescriptor::behind).and_then(|none| none.hint())
        };
        let hint = error_chain(&error).find_map(of_files).or_else(|| error.hint());
        Self::new(exit, error, hint.unwrap_or_else(|| REPORT.to_owned()))
    }

    /// The same with other words for what helps.
    pub(crate) fn with_hint(self, hint: String) -> Self {
        Self { hint, ..self }
    }

    pub(crate) fn reader_gone() -> Self {
        Self { exit: Exit::Ok, error: None, hint: String::new() }
    }

    /// The exit code.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> &str {
        &self.hint
    }

    /// The error, where it is of this type.
    pub(crate) fn error_as<T: Error + 'static>(&self) -> Option<&T> {
        self.error.as_deref()?.downcast_ref()
    }

    /// The error and its causes, outermost first.
    fn chain(&self) -> Vec<String> {
        self.error.as_deref().map(|error| words_of_chain(error)).unwrap_or_default()
    }

    /// Says it on stderr.
    pub(crate) fn tell(&self, json: bool) {
        if let Some(text) = self.describe(json) {
            if json { say_json(&text) } else { say(&text) }
        }
    }

    /// The error, its causes, and the hint; as JSON one object in one line.
    pub(crate) fn describe(&self, json: bool) -> Option<String> {
        self.error.as_ref()?;
        if json {
            return Some(report(&self.to_string(), &self.hint));
        }
        Some(format!("error: {}\nhint: {}", self.chain().join("\n  caused by: "), self.hint))
    }
}

/// The words of an error and of its causes, outermost first.
pub(crate) fn words_of_chain(error: &(dyn Error + 'static)) -> Vec<String> {
    let mut chain: Vec<String> = Vec::new();
    for words in error_chain(error).map(ToString::to_string) {
        // Many libraries repeat the cause in their own text.
        if !chain.iter().any(|said| said.contains(&words)) {
            chain.push(words);
        }
    }
    chain
}

/// `[E131] there is no job nope` and a hint as JSON. The code is that of the text: clap gives nothing else, and
/// what a command says of itself is a text, too.
fn report(line: &str, hint: &str) -> String {
    let (code, message) = match FaultCode::leading(line) {
        Some(code) => (code.to_string(), code.stripped_from(line)),
        None => (String::new(), line),
    };
    serde_json::json!({ "code": code, "message": message, "hint": hint }).to_string()
}

/// Whether the command line asks for JSON: then errors are JSON as well, those of the command line itself
/// included.
pub fn json_asked(mut words: impl Iterator<Item = OsString>) -> bool {
    words.by_ref().take_while(|word| word != "--").any(|word| word == "--json")
}

/// The error and its causes in one line.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.chain().join(": "))
    }
}

impl Error for Failure {}

/// Held by whoever ends the process.
static ENDING: Mutex<()> = Mutex::new(());

/// Keeps the command from ending with a failure while the process is ended for another reason, which has
/// caused that failure.
pub(crate) fn hold_end() -> MutexGuard<'static, ()> {
    lock(&ENDING)
}

/// Prints what went wrong, if anything, to stderr, and gives the exit code.
pub fn finish(result: Result<(), Failure>, json: bool) -> Exit {
    let _ending = hold_end();
    let Err(failure) = result else { return Exit::Ok };
    failure.tell(json);
    failure.exit
}

/// How the command that `words` begin with is used: `Usage: syncline status [OPTIONS] [JOB]`.
fn usage(mut line: clap::Command, mut words: impl Iterator<Item = OsString>) -> StyledStr {
    line.build();
    let mut command = line;
    while let Some(inner) = words.next().and_then(|word| command.find_subcommand(word).cloned()) {
        command = inner;
    }
    command.render_usage()
}

/// The text of clap with a code in front: that of the rejected value within it, if it has one.
fn led_by_code(text: &str) -> String {
    let within = text.match_indices("[E").find_map(|(at, _)| {
        let (number, rest) = text[at + 2..].split_once("] ")?;
        let is_code = number.len() == 3 && number.bytes().all(|digit| digit.is_ascii_digit());
        is_code.then(|| (format!("[E{number}] "), format!("{}{rest}", &text[..at])))
    });
    match within {
        Some((code, rest)) => format!("{code}{rest}"),
        None => format!("[E500] {text}"),
    }
}

/// Ends a command line that clap did not accept, whose `words` come after the program's name. Help and
/// version are no errors.
pub fn refuse_usage(
    mut error: clap::Error,
    line: clap::Command,
    words: impl Iterator<Item = OsString>,
    json: bool,
) -> Exit {
    // clap's own lists what the environment has set as if it had to be typed, and leaves out the rest.
    if error.get(ContextKind::Usage).is_some() {
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage(line, words)));
    }
    let text = error.render().to_string();
    if !error.use_stderr() {
        return finish(print(text.trim_end()), json);
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // No command was given: the help lists them.
        say(text.trim_end());
        return Exit::Usage;
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let text = text.replace("\n\nFor more information, try '--help'.", "");
    let text = led_by_code(text.trim());
    match json {
        true => say_json(&report(&text, USAGE_HINT)),
        false => say(&format!("error: {text}\nhint: {USAGE_HINT}")),
    }
    Exit::Usage
}

#[cfg(test)]
mod tests {
    use syncline_rpc::{CallError, hello::HelloError};
    use syncline_workers::client::ClientError;

    use super::*;

    #[test]
    fn an_error_comes_with_its_causes_and_a_hint() {
        let source = CallError::Hello(HelloError::Io(std::io::Error::other("refused")));
        let failure = Failure::from(ClientError::Unreachable { address: "a:1".into(), source });
        assert_eq!(failure.exit(), Exit::Unreachable);
        let text = failure.describe(false).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "error: [E300] no connection to the engine at a:1");
        assert_eq!(lines[1], "  caused by: [E125] there is no connection, or it broke during the greeting");
        assert_eq!(lines[2], "  caused by: refused");
        assert!(lines[3].starts_with("hint: "));
        let json: serde_json::Value = serde_json::from_str(&failure.describe(true).unwrap()).unwrap();
        assert_eq!(json["code"], "E300");
        let message = "no connection to the engine at a:1: [E125] there is no connection, or it broke during the greeting: refused";
        assert_eq!(json["message"], message);
        assert!(json["hint"].as_str().unwrap().contains("syncline up"));
    }

    #[test]
    fn a_job_that_failed_comes_with_what_to_do_about_its_reason() {
        let failed = |code: &str| {
            let reason = format!("[{code}] onnx runtime failed");
            let job = "digits".parse().unwrap();
            Failure::from(ClientError::JobFailed { job, code: code.into(), reason }).hint
        };
        let hint = failed("E327");
        assert!(hint.contains("a smaller batch needs less memory; `syncline status digits` shows"), "{hint}");
        assert_eq!(failed(""), "`syncline status digits` shows how far it came");
    }

    #[test]
    fn what_clap_says_begins_with_the_code_of_the_value_that_it_quotes() {
        for (said, text) in [
            ("unexpected argument", "[E500] unexpected argument"),
            (
                "invalid value 'x' for '--d': [E490] no device",
                "[E490] invalid value 'x' for '--d': no device",
            ),
            ("invalid value '[Eé] [E12] '", "[E500] invalid value '[Eé] [E12] '"),
        ] {
            assert_eq!(led_by_code(said), text);
        }
    }

    #[test]
    fn a_reader_that_went_away_is_a_success() {
        let failure = Failure::reader_gone();
        assert_eq!((failure.exit(), failure.describe(true)), (Exit::Ok, None));
    }
}
