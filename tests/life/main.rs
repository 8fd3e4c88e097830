//! A cluster's life: a program of somebody else, many jobs, stops and starts in the middle, workers that come
//! and go, faults of machines and disks. Each test asserts exact counts, and that nobody waits forever.

#![allow(
    clippy::duplicate_mod,
    reason = "the cluster and the rig of commands take the same environment from what they start"
)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "../cluster/mod.rs"]
mod cluster;
// What `syncline chaos` cuts.
#[path = "../counting/mod.rs"]
mod counting;
#[path = "../../workers/syncline/src/cli/chaos/network.rs"]
mod network;
#[path = "../../workers/syncline/tests/cli/rig.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod rig;
#[path = "../summing/mod.rs"]
mod summing;

// Tests run in the order of their names, and this one compiles a program.
mod another_workspace;
mod augmentation;
mod away;
mod best_parameters;
mod checkpoints;
mod detached;
mod disk;
mod evaluations;
mod exactly_once;
mod forgotten;
mod giving_back;
mod graph_faults;
mod graphs;
mod hung;
mod jobs;
mod lost_values;
mod membership;
mod mistakes;
mod moved;
mod other_machine;
mod outcomes;
mod paused_trainings;
mod pauses;
mod poison;
mod queue;
mod replicas;
mod resume;
mod rows;
mod stop;
mod store;
mod training_slots;
mod two_engines;
mod unmounted;
mod unreached;
mod watching;

use cluster::BINARY;
