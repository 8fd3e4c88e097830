//! Files that can be written again and again while trainings go on.

use std::path::PathBuf;

use syncline_rpc::status::now_ms;

use super::{MetricsArgs, Training, tensorboard::RunFolder};
use crate::cli::{
    CliError,
    connection::shell_word,
    jobs::loss_curves::{self, Over},
    say, whole_file,
};

/// What `--plot` and `--tensorboard` ask for.
pub(super) struct Files {
    plot: Option<PathBuf>,
    over: Over,
    tensorboard: Option<PathBuf>,
    /// Of each training, once written.
    folders: Vec<RunFolder>,
}

impl Files {
    pub(super) fn of(args: &MetricsArgs) -> Self {
        let (plot, tensorboard) = (args.plot.clone(), args.tensorboard.clone());
        Self { plot, over: args.over, tensorboard, folders: Vec::new() }
    }

    /// Draws anew, and adds to the files of events what came since the last time. What cannot be written
    /// holds up nothing else; the first error is returned.
    pub(super) fn write(&mut self, trainings: &[Training]) -> Result<(), CliError> {
        let drawn = self.draw(trainings);
        drawn.and(self.add_events(trainings))
    }

    fn draw(&self, trainings: &[Training]) -> Result<(), CliError> {
        let Some(path) = &self.plot else { return Ok(()) };
        whole_file::replace(path, loss_curves::of_trainings(trainings, self.over).as_bytes())
    }

    fn add_events(&mut self, trainings: &[Training]) -> Result<(), CliError> {
        let Some(dir) = &self.tensorboard else { return Ok(()) };
        if self.folders.is_empty() {
            let now_ms = now_ms();
            let folders = trainings.iter().map(|training| RunFolder::create(dir, training, now_ms));
            self.folders = folders.collect::<Result<_, _>>()?;
            return Ok(());
        }
        let added =
            self.folders.iter_mut().zip(trainings).map(|(folder, training)| match folder.is_there() {
                true => folder.add(training),
                false => folder.create_again(dir, training, now_ms()),
            });
        added.fold(Ok(()), Result::and)
    }

    /// Says what was written, and how to look at it.
    pub(super) fn say(&self) {
        if let Some(path) = &self.plot {
            say(&format!("drew {}", path.display()));
        }
        if let Some(dir) = &self.tensorboard {
            say(&format!("`tensorboard --logdir {}` shows it", shell_word(&dir.display().to_string())));
        }
    }
}
