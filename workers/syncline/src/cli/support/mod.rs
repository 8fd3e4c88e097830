//! What all subcommands share: how they find the cluster, load native parts, stop, print, and fail.

mod block_on;
pub(crate) mod connection;
pub(crate) mod describe;
pub(crate) mod describe_age;
mod describe_evaluations;
pub(crate) mod describe_job;
mod describe_lines;
pub(crate) mod describe_settings;
mod describe_tasks;
pub(crate) mod describe_workers;
mod engine_clock;
mod error;
mod errors_page;
mod failure;
mod from_errors;
pub(crate) mod function_worker;
pub(crate) mod native;
mod output;
mod picture;
pub(crate) mod processes;
mod quantity;
mod release;
mod slow_work;
pub(crate) mod state_files;
pub(crate) mod svg;
pub(crate) mod whole_file;

pub(crate) use block_on::{
    block_on, block_on_one_thread, block_on_until_stopped, block_on_until_told_to_stop, listen_for_stop,
};
pub(crate) use connection::{ConnectionArgs, ask_each};
pub(crate) use describe_evaluations::{figure_in_words, scores_in_words};
pub(crate) use engine_clock::EngineClock;
pub(crate) use error::CliError;
pub(crate) use failure::{Exit, Failure, finish, hold_end, json_asked, refuse_usage, words_of_chain};
pub(crate) use output::{
    csv_field, one_line, print, print_json, print_json_line, reader_has_gone, say, say_json, stdout_failed,
    table,
};
pub(crate) use picture::svg_file;
pub(crate) use quantity::{TimeUnit, count, number, time, time_from};
pub(crate) use release::{LONG_VERSION, release};
pub(crate) use slow_work::said_while_slow;
pub(crate) use state_files::{TokenArgs, check_open_bind};
pub(crate) use syncline_workers::process::{StopSignal, end_at_once, log_as_command, log_as_service};
