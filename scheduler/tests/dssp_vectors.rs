//! DSSP against decisions computed elsewhere: 10 calls of the controller and 4 short runs always, and all of
//! them with `--ignored`, if `SYNCLINE_VECTORS` names the folder that holds the full `dssp.json`. Both
//! readings of the paper.

use serde::Deserialize;
use std::path::{Path, PathBuf};
use syncline_scheduler::spec::DsspReading;

#[derive(Deserialize)]
struct Vectors {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Case {
    Controller {
        id: String,
        p: usize,
        t: Vec<u64>,
        #[serde(rename = "A")]
        pushes: Vec<[Option<u64>; 2]>,
        #[serde(rename = "s_L")]
        lower: u32,
        r_max: u32,
        expect: Returned,
    },
    Trace {
        id: String,
        durations: Vec<Vec<u64>>,
        #[serde(rename = "s_L")]
        lower: u32,
        r_max: u32,
        max_pushes: usize,
        expect: Happened,
    },
}

#[derive(Deserialize)]
struct Returned {
    paper: Controlled,
    capped: Controlled,
}

#[derive(Deserialize)]
struct Controlled {
    r_star: u64,
}

#[derive(Deserialize)]
struct Happened {
    strict: Events,
    literal: Events,
}

#[derive(Deserialize)]
struct Events {
    events: Vec<serde_json::Value>,
}

/// Checks every case of the file; returns the numbers of controller calls and of runs.
fn check(path: &Path) -> (usize, usize) {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let vectors: Vectors = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (mut calls, mut runs) = (0, 0);
    for case in vectors.cases {
        match case {
            Case::Controller { id, p, t, pushes, lower, r_max, expect } => {
                let clocks = t.into_iter().zip(pushes).collect();
                let asked = crate::dssp::Asked { worker: p, clocks, lower, range: r_max };
                assert_eq!(asked.controller(DsspReading::Literal), expect.paper.r_star, "{id}, literal");
                assert_eq!(asked.controller(DsspReading::Strict), expect.capped.r_star, "{id}, strict");
                calls += 1;
            }
            Case::Trace { id, durations, lower, r_max, max_pushes, expect } => {
                let trace = crate::dssp::Trace { durations, lower, range: r_max, max_pushes };
                let readings = [(DsspReading::Strict, expect.strict), (DsspReading::Literal, expect.literal)];
                for (reading, want) in readings {
                    let events = trace.events(reading);
                    assert_eq!(events.len(), want.events.len(), "{id}, {reading:?}");
                    for (i, (event, want)) in events.iter().zip(&want.events).enumerate() {
                        let event = serde_json::to_value(event).expect("plain numbers");
                        assert_eq!(event, *want, "{id}, {reading:?}, event {i}");
                    }
                    if reading == DsspReading::Strict {
                        let bound = u64::from(lower + r_max) + 1;
                        assert!(events.iter().all(|event| event.3 <= bound), "{id}: lead above s_U + 1");
                    }
                }
                runs += 1;
            }
        }
    }
    (calls, runs)
}

#[test]
fn committed_decisions_hold() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/dssp.json");
    assert_eq!(check(&path), (10, 4));
}

#[test]
#[ignore = "needs SYNCLINE_VECTORS"]
fn all_decisions_hold() {
    let folder =
        std::env::var_os("SYNCLINE_VECTORS").expect("SYNCLINE_VECTORS names the folder of the vectors");
    assert_eq!(check(&PathBuf::from(folder).join("dssp.json")), (60, 40));
}
