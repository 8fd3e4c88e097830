//! Turns a commit into the arguments of the commit script.

use syncline_scheduler::core::{CURVE_POINTS, Commit};

use super::keys::{ENDED_JOB_EXPIRY_S, SCHEMA, STREAM_ENTRIES};

/// Arguments per Redis call inside the script; Lua's `unpack` has a limit of about 8,000.
const ARGUMENTS_PER_CALL: usize = 1_000;

const STATE: &str = "1";
const JOB: &str = "2";
const TASKS: &str = "3";
const WORKERS: &str = "4";
const SUPERSTEPS: &str = "5";
const EVENTS: &str = "6";
const METRICS: &str = "7";
const BARRIERS: &str = "8";

/// Arguments in the order that commit.lua documents, without epoch, seq and mode.
#[derive(Default)]
pub(super) struct ScriptArguments(pub Vec<String>);

impl ScriptArguments {
    pub(super) fn of(commit: &Commit) -> Self {
        let mut script = Self::default();
        let mut state = Vec::new();
        if let Some(spec) = &commit.spec {
            state.extend(["schema".to_owned(), SCHEMA.to_owned(), "spec".to_owned(), spec.clone()]);
        }
        if let Some(job_state) = &commit.job_state {
            state.extend(["job_state".to_owned(), job_state.clone()]);
        }
        script.calls("S", STATE, &state, 2);
        let summary: Vec<String> =
            commit.summary.iter().flat_map(|(k, v)| [(*k).to_owned(), v.clone()]).collect();
        script.calls("S", JOB, &summary, 2);
        for (key, fields) in
            [(TASKS, &commit.tasks), (WORKERS, &commit.workers), (SUPERSTEPS, &commit.supersteps)]
        {
            let set: Vec<String> =
                fields.iter().filter_map(|(k, v)| Some([k.clone(), v.clone()?])).flatten().collect();
            let removed: Vec<String> =
                fields.iter().filter(|(_, v)| v.is_none()).map(|(k, _)| k.clone()).collect();
            script.calls("S", key, &set, 2);
            script.calls("D", key, &removed, 1);
        }
        for (key, entries, kept) in [
            (EVENTS, &commit.events, STREAM_ENTRIES),
            (METRICS, &commit.metrics, CURVE_POINTS as usize),
            (BARRIERS, &commit.barriers, STREAM_ENTRIES),
        ] {
            for entry in entries {
                let mut arguments = vec![kept.to_string()];
                arguments.extend(entry.iter().flat_map(|(k, v)| [(*k).to_owned(), v.clone()]));
                script.call("X", key, &arguments);
            }
        }
        if commit.halve_metrics {
            script.call("H", METRICS, &[]);
        }
        if commit.over {
            for key in [STATE, JOB, TASKS, WORKERS, SUPERSTEPS, EVENTS, METRICS, BARRIERS] {
                script.call("E", key, &[ENDED_JOB_EXPIRY_S.to_string()]);
            }
        }
        script
    }

    fn calls(&mut self, code: &str, key: &str, arguments: &[String], step: usize) {
        for part in arguments.chunks(ARGUMENTS_PER_CALL / step * step) {
            self.call(code, key, part);
        }
    }

    fn call(&mut self, code: &str, key: &str, arguments: &[String]) {
        self.0.extend([code.to_owned(), key.to_owned(), arguments.len().to_string()]);
        self.0.extend_from_slice(arguments);
    }
}
