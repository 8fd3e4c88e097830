//! The child: one request from stdin, stages and one answer to stdout.

use std::os::unix::process::parent_id;
use std::process::{self, ExitCode};
use std::{env, io};

use syncline_autodiff::{Precision, accept_ready};
use syncline_runtime::{ExecOptions, Executable, Optimize, Runtime, stage};

use super::error::ModelError;
use super::host;
use super::message::{Answer, ChildError, Derived, Event, PARENT_PID_VARIABLE, Request, Work, receive, send};
use crate::check::{check, check_graph, step_cost};

/// Serves the parent that started this process for a model, and returns how to end; `None` in any other process.
///
/// To be called first in `main`, before anything is read or written. From then on this program loads models in processes
/// of their own.
pub fn serve_if_asked() -> Option<ExitCode> {
    let asked_by = env::var(PARENT_PID_VARIABLE).ok().and_then(|parent| parent.parse().ok());
    if asked_by != Some(parent_id()) {
        host::this_program_serves();
        return None;
    }
    Some(match serve() {
        Ok(()) => ExitCode::SUCCESS,
        // The parent is gone; nobody is left to tell.
        Err(_) => ExitCode::FAILURE,
    })
}

fn serve() -> io::Result<()> {
    let Some(request) = receive::<Request>(&mut io::stdin().lock())? else { return Ok(()) };
    stage::watch(|stage| {
        if send(&mut io::stdout().lock(), &Event::Stage(stage.to_owned())).is_err() {
            process::exit(1);
        }
    });
    let answer = work(request).map_err(|error| ChildError::from(&error));
    send(&mut io::stdout().lock(), &Event::Done(answer))
}

fn work(request: Request) -> Result<Answer, ModelError> {
    let Request { library, work, model } = request;
    stage::enter("load ONNX Runtime");
    let runtime = Runtime::load(&library)?;
    match work {
        Work::Derive { loss, options, checks } => {
            Derived::derive(&runtime, &model, loss, &options, checks).map(Box::new).map(Answer::Graph)
        }
        Work::Ready { weights, check_gradients } => {
            let graph = accept_ready(&runtime, &model, weights.as_ref().map(|bytes| bytes.as_slice()))?;
            Derived::new(&runtime, graph, Precision::F32, check_gradients).map(Box::new).map(Answer::Graph)
        }
        Work::Check { loss: Some((loss, options)), how, .. } => {
            Ok(Answer::Checked(check(&runtime, &model, loss, &options, &how)?))
        }
        Work::Check { loss: None, weights, how } => {
            let graph = accept_ready(&runtime, &model, weights.as_ref().map(|bytes| bytes.as_slice()))?;
            Ok(Answer::Checked(check_graph(&runtime, &graph, &how)?))
        }
        Work::Cost { batch, sample_shapes } => {
            Ok(Answer::Cost(step_cost(&runtime, &model, batch, &sample_shapes)?))
        }
        Work::Load { nodes } => {
            let part = super::locate::first_nodes(syncline_onnx::parse(&model)?, nodes);
            let options = ExecOptions { optimize: Optimize::Basic, ..ExecOptions::default() };
            Executable::new(&runtime, &part.to_bytes(), &options)?;
            Ok(Answer::Loaded)
        }
        Work::LoadWhole => {
            stage::enter("load the model");
            Executable::new(&runtime, &model, &ExecOptions::default())?;
            Ok(Answer::Loaded)
        }
    }
}
