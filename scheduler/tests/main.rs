//! The rules of the scheduler under random histories, against published vectors, and in the simulator. One
//! program, so that all of it runs beside each other and is linked once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::type_complexity, reason = "tables of tests are tuples in slices")]

mod abandoned;
mod attempt_events;
mod avoidance;
mod best_parameters;
mod calls;
mod canceling;
mod canceling_task;
mod checkpoints;
mod cluster;
mod core_model;
mod downtime;
mod dssp_vectors;
mod epoch_ends;
mod evaluation_times;
mod evaluations;
mod faults;
mod fixed_costs;
mod foreign_reports;
mod giving_back;
mod held_up;
mod joining;
mod lacking_workers;
mod lb_bsp;
mod lost_shards;
mod lost_values;
mod lost_workers;
mod many_trainings;
mod outcomes;
mod pausing;
mod queue_limit;
mod rates;
mod released;
mod resources;
mod running_calls;
mod simulator;
mod skipping;
mod stepping;
mod task_model;
mod training_slots;
mod training_tasks;
mod turns;
mod untrained;
mod unusual_ends;
mod waiting;
mod work_in_hand;
mod world;
mod zipline_vectors;

#[path = "../examples/replay/dssp.rs"]
mod dssp;
