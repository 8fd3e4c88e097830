//! `syncline chaos`: accidents of all processes of a cluster.

use crate::rig::{folder, syncline};

#[test]
fn random_graphs_and_trainings_are_as_they_have_to_be_while_processes_are_killed() {
    let dir = folder();
    let place = dir.path().join("state");
    let run =
        syncline(&["chaos", "--minutes", "0.1", "--seed", "7", "--state-dir", place.to_str().unwrap()]).ok();
    let (first, second) = run.out.trim().split_once('\n').unwrap();
    assert!(first.starts_with("seed 7: ") && first.ends_with(" trainings are as they have to be"), "{first}");
    assert!(second.starts_with("accidents: "), "{second}");
    assert!(run.err.starts_with("seed 7, state "), "{}", run.err);
}
