//! The child: one request from stdin, stages and one answer to stdout.

use std::os::unix::process::parent_id;
use std::process::{self, ExitCode};
use std::{env, io};

use syncline_autodiff::{Precision, accept_ready};
use syncline_runtime::{ExecOptions, Executable, Optimize, Runtime, stage};

use super::error::ModelError;
use super::host;
use super::message::{
    Answer, CHILD_ARGUMENT, ChildError, Derived, Event, PARENT_PID_VARIABLE, Request, Work, receive,
    receive_bytes, send,
};
use crate::check::{check, check_graph, step_cost};

/// Serves the parent that started this process for a model, and returns how to end; `None` in any other
/// process.
///
/// To be called first in `main`, before anything is read or written. From then on this program loads models
/// in processes of their own.
pub fn serve_if_asked() -> Option<ExitCode> {
    let is_child = env::args_os().nth(1).is_some_and(|first| first == CHILD_ARGUMENT);
    let Some(parent) = env::var(PARENT_PID_VARIABLE).ok().filter(|_| is_child) else {
        host::this_program_serves();
        return None;
    };
    end_with_parent_alone();
    let is_with_parent = parent.parse() == Ok(parent_id());
    // Where the parent is gone nobody is left to tell, and what else this program does nobody has asked for.
    Some(if is_with_parent && serve().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// From now on this process ends with its parent, and not by what a whole group or service is told, such as
/// to stop: the parent, which is told as well, may still want the answer, and would take a signal for what
/// the model did.
fn end_with_parent_alone() {
    // Elsewhere a child whose parent is gone ends at the next word that it says.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: no handler is installed that could run; the signal is ignored, and nobody else in this
        // process handles it.
        #[expect(unsafe_code, reason = "the standard library sets no dispositions of signals")]
        unsafe {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

fn serve() -> io::Result<()> {
    let mut stdin = io::stdin().lock();
    let Some(request) = receive::<Request>(&mut stdin)? else { return Ok(()) };
    let Some(model) = receive_bytes(&mut stdin)? else { return Ok(()) };
    stage::watch(|stage| {
        if send(&mut io::stdout().lock(), &Event::Stage(stage.to_owned())).is_err() {
            process::exit(1);
        }
    });
    let answer = work(request, &model).map_err(|error| ChildError::from(&error));
    send(&mut io::stdout().lock(), &Event::Done(answer))
}

fn work(request: Request, model: &[u8]) -> Result<Answer, ModelError> {
    let Request { library, work } = request;
    stage::enter("load ONNX Runtime");
    let runtime = Runtime::load(&library)?;
    match work {
        Work::Derive { loss, options, checks } => {
            Derived::derive(&runtime, model, loss, &options, checks).map(Box::new).map(Answer::Graph)
        }
        Work::Ready { weights, check_gradients } => {
            let graph = accept_ready(&runtime, model, weights.as_ref().map(|bytes| bytes.as_slice()))?;
            Derived::new(&runtime, graph, Precision::F32, check_gradients).map(Box::new).map(Answer::Graph)
        }
        Work::Check { loss: Some((loss, options)), how, .. } => {
            Ok(Answer::Checked(check(&runtime, model, loss, &options, &how)?))
        }
        Work::Check { loss: None, weights, how } => {
            let graph = accept_ready(&runtime, model, weights.as_ref().map(|bytes| bytes.as_slice()))?;
            Ok(Answer::Checked(check_graph(&runtime, &graph, &how)?))
        }
        Work::Cost { batch, sample_shapes } => {
            Ok(Answer::Cost(step_cost(&runtime, model, batch, &sample_shapes)?))
        }
        Work::Load { nodes } => {
            let part = super::locate::first_nodes(syncline_onnx::parse(model)?, nodes);
            let options = ExecOptions { optimize: Optimize::Basic, ..ExecOptions::default() };
            Executable::new(&runtime, &part.to_bytes(), &options)?;
            Ok(Answer::Loaded)
        }
        Work::LoadWhole => {
            stage::enter("load the model");
            Executable::new(&runtime, model, &ExecOptions::default())?;
            Ok(Answer::Loaded)
        }
    }
}
