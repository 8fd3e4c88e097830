//! A training that goes on from the checkpoint of another one.

use std::{
    io::{self, Read},
    path::Path,
};

use syncline_ps::checkpoint_file::CheckpointAbout;
use syncline_rpc::input;
use syncline_scheduler::spec::{Layout, Optimizer, Parameter, ResumeSpec, TrainSpec};

use super::SubmitError;

/// Reads a checkpoint file, and checks that this training can go on from it. Returns its bytes, which begin
/// with the parameters, and where it was.
pub(super) fn read_resume(path: &Path, train: &TrainSpec) -> Result<(Vec<u8>, ResumeSpec), SubmitError> {
    let file = read(path).map_err(|source| SubmitError::Read { path: path.to_owned(), source })?;
    let fault = |what: String| SubmitError::Resume { path: path.to_owned(), what };
    let about = CheckpointAbout::read(&file).map_err(|e| fault(e.to_string()))?;
    if let Some(what) = difference(&about.layout, &train.model.layout) {
        return Err(fault(format!("the model is another: {what}")));
    }
    let optimizer = train.shard_optimizer();
    if name(&about.optimizer) != name(&optimizer) {
        let (there, here) = (name(&about.optimizer), name(&optimizer));
        return Err(fault(format!("it holds the state of {there}, and this training uses {here}")));
    }
    Ok((file, about.resume))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What tells apart optimizers that do not keep the same.
fn name(optimizer: &Optimizer) -> &'static str {
    match optimizer {
        Optimizer::Sgd { .. } => "sgd",
        Optimizer::Momentum { .. } => "momentum",
        Optimizer::Adam { .. } => "adam",
        Optimizer::RmsProp { centered: true, .. } => "rmsprop, centered",
        Optimizer::RmsProp { momentum, .. } if *momentum > 0.0 => "rmsprop with momentum",
        Optimizer::RmsProp { .. } => "rmsprop",
    }
}

/// The first difference of two layouts, in words.
fn difference(there: &Layout, here: &Layout) -> Option<String> {
    let say = |p: &Parameter| {
        let kind = if p.is_trained() { "" } else { ", not trained" };
        format!("`{}` {:?}{kind}", p.name, p.shape)
    };
    // Whether rows of it travel is nothing to its numbers, nor are settings that it has for itself.
    let differ = |a: &Parameter, b: &Parameter| {
        (&a.name, &a.shape, a.is_trained()) != (&b.name, &b.shape, b.is_trained())
    };
    if let Some((there, here)) = there.0.iter().zip(&here.0).find(|(there, here)| differ(there, here)) {
        return Some(format!("{} there, {} here", say(there), say(here)));
    }
    let (there, here) = (there.0.len(), here.0.len());
    (there != here).then(|| format!("{there} parameters there, {here} here"))
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::spec::StepSettings;

    use super::*;

    #[test]
    fn a_training_may_go_on_with_other_groups_and_with_no_other_parameters() {
        let w = || Parameter::trained("w", vec![2]);
        let slow = StepSettings { learning_rate_factor: 0.1, ..StepSettings::default() };
        #[rustfmt::skip]
        let cases = [
            (vec![w()], vec![Parameter { settings: slow, ..w() }],    None),
            (vec![w()], vec![Parameter::rows("w", vec![2], 0)],       None),
            (vec![w()], vec![Parameter::buffer("w", vec![2])],        Some("`w` [2] there, `w` [2], not trained here")),
            (vec![w()], vec![Parameter::trained("w", vec![3])],       Some("`w` [2] there, `w` [3] here")),
            (vec![w()], vec![],                                       Some("1 parameters there, 0 here")),
        ];
        for (there, here, want) in cases {
            let [there, here] = [there, here].map(Layout);
            assert_eq!(difference(&there, &here).as_deref(), want);
            assert_eq!(difference(&here, &there).is_some(), want.is_some());
        }
    }
}
