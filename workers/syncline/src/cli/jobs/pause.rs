//! `syncline pause` and `syncline resume`: nothing more of jobs for now.

use syncline_scheduler::{core::JobPhase, ids::JobId};
use syncline_workers::client::Client;

use super::several::SeveralJobs;
use crate::cli::{ConnectionArgs, Failure, block_on, log_as_command};

#[derive(Debug, clap::Args)]
pub struct PauseArgs {
    #[command(flatten)]
    jobs: SeveralJobs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) fn pause(args: &PauseArgs) -> Result<(), Failure> {
    set(args, true)
}

pub(crate) fn resume(args: &PauseArgs) -> Result<(), Failure> {
    set(args, false)
}

fn set(args: &PauseArgs, paused: bool) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    block_on(async {
        let (client, _) = Client::connect(&cluster).await?;
        let set = async |job: &JobId| {
            let status = client.status(job).await?.job;
            match paused {
                true => client.pause(job).await?,
                false => client.resume(job).await?,
            }
            let words = match (paused, status.state) {
                (true, JobPhase::Paused) => "was paused already".to_owned(),
                (true, _) => {
                    let lost = lost_words(&status.policy, status.compression.as_deref());
                    format!("is paused; what workers have already goes on{lost}")
                }
                (false, JobPhase::Paused) => "goes on".to_owned(),
                (false, before) => format!("was not paused: it is {}", before.word()),
            };
            args.jobs.tell(job, if paused { "paused" } else { "resumed" }, &words)
        };
        args.jobs.each(set).await
    })
}

/// What a training's workers alone know, and do not find again when it goes on.
fn lost_words(policy: &str, compression: Option<&str>) -> String {
    let steps_locally = ["local-sgd", "diloco", "auto"].iter().any(|rule| policy.starts_with(rule));
    let keeps_back = compression.is_some_and(|compression| compression != "none");
    let lost = match (steps_locally, keeps_back) {
        (true, true) => "the workers' own optimizers, and what compression has left over,",
        (true, false) => "the workers' own optimizers",
        (false, true) => "what compression has left over",
        (false, false) => return String::new(),
    };
    format!("; when it is resumed, {lost} will begin anew")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_workers_know_of_a_paused_training_is_said_to_be_lost() {
        #[rustfmt::skip]
        let cases = [
            // policy,                 compression,        in the words
            ("bsp",                    Some("none"),       vec![]),
            ("",                       None,               vec![]),
            ("local-sgd:8",            Some("none"),       vec!["own optimizers"]),
            ("auto:15",                Some("none"),       vec!["own optimizers"]),
            ("diloco:20",              Some("int8"),       vec!["own optimizers", "left over"]),
            ("elastic-bsp:4",          Some("top_k=0.01"), vec!["left over"]),
        ];
        for (policy, compression, parts) in cases {
            let words = lost_words(policy, compression);
            assert_eq!(words.is_empty(), parts.is_empty(), "{policy}: {words}");
            assert!(parts.iter().all(|part| words.contains(part)), "{policy}: {words}");
        }
    }
}
