//! Differences between an existing job and one submitted under its name, in words.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::{
    ids::ContentDigest,
    spec::{CheckpointSpec, DataSpec, JobSpec, ModelSpec, NodeKind, TrainSpec},
};

/// What settings are called in a job file, where they are stored under another name.
const IN_JOB_FILES: [(&str, &str); 2] = [("queue_limit_ms", "queue_limit_s"), ("tf32", "precision")];

/// Whether a job that is there has the content of one that is submitted. What an earlier release did not note
/// of its data, or noted rounded to float32, follows from the rest of it; and one that kept no checkpoints
/// before all did by default is no other job.
pub(super) fn have_same_content(there: &JobSpec, submitted: &JobSpec) -> bool {
    let mut there = there.clone();
    let train = there.nodes.iter_mut().find_map(|node| match &mut node.kind {
        NodeKind::Train(train) => Some(train),
        NodeKind::Evaluate | NodeKind::Snapshot => None,
    });
    if let Some((there, (_, submitted))) = train.zip(submitted.train()) {
        if submitted.checkpoint == Some(CheckpointSpec::default()) {
            there.checkpoint = there.checkpoint.or(submitted.checkpoint);
        }
        let (there, submitted) = (&mut there.data, &submitted.data);
        if there.class_names.is_empty() {
            there.class_names.clone_from(&submitted.class_names);
        }
        if there.standardize && submitted.standardize {
            there.mean.clone_from(&submitted.mean);
            there.std.clone_from(&submitted.std);
        }
        for (input, own) in &mut there.normalize {
            let submitted = submitted.normalize.get(input).filter(|submitted| submitted.standardize);
            if let Some(submitted) = submitted.filter(|_| own.standardize) {
                own.mean.clone_from(&submitted.mean);
                own.std.clone_from(&submitted.std);
            }
        }
    }
    there == *submitted
}

/// What differs, in words that begin with a comma.
pub(super) fn differences(there: &JobSpec, submitted: &JobSpec) -> String {
    let trains = there.train().zip(submitted.train());
    let names = trains.map(|((_, there), (_, submitted))| settings_that_differ(there, submitted));
    match names.filter(|names| !names.is_empty()) {
        None => ", with another graph".to_owned(),
        Some(names) => {
            format!(", and differs in {}", names.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Names as whoever wrote the job knows them: what follows from a setting that differs does not count beside
/// it.
fn settings_that_differ(there: &TrainSpec, submitted: &TrainSpec) -> BTreeSet<String> {
    let (old, new) = (fields(there), fields(submitted));
    let differing = new.iter().filter(|(name, value)| *name != "model" && old.get(*name) != Some(value));
    let mut names: BTreeSet<String> = differing.map(|(name, _)| in_job_files(name).to_owned()).collect();
    if differs_in_paths_alone(&there.data, &submitted.data) {
        names.remove("data");
        names.insert("the paths of the same data".to_owned());
    }
    if models_differ(there, submitted, &names) {
        names.insert("model".to_owned());
    }
    if there.model.layout != submitted.model.layout
        && there.model.layout.without_settings() == submitted.model.layout.without_settings()
    {
        names.insert("groups".to_owned());
    }
    names
}

/// Whether both have the same data, in files that lie elsewhere.
fn differs_in_paths_alone(there: &DataSpec, submitted: &DataSpec) -> bool {
    let DataSpec { source, test, validation, .. } = submitted.clone();
    let moved = DataSpec { source, test, validation, ..there.clone() };
    there.digest.is_some() && there != submitted && moved == *submitted
}

fn fields(train: &TrainSpec) -> Map<String, Value> {
    let train = serde_json::to_value(train).ok().and_then(|train| train.as_object().cloned());
    let mut fields = train.unwrap_or_default();
    // What was asked for in words: by them no job is another one.
    fields.remove("submitted");
    fields
}

fn in_job_files(stored: &str) -> &str {
    IN_JOB_FILES.iter().find(|(name, _)| *name == stored).map_or(stored, |(_, name)| name)
}

/// Whether the models differ in what neither groups of parameters nor the settings in `names` explain:
/// Dropout of the graph that trains has the seed, both graphs compute in the precision, and a training that
/// goes on begins with a checkpoint.
/// In the place of a digest that may differ.
const IGNORED: ContentDigest = ContentDigest::from_bytes([0; 32]);

fn models_differ(there: &TrainSpec, submitted: &TrainSpec, names: &BTreeSet<String>) -> bool {
    let explained = |model: &ModelSpec| {
        let mut model = ModelSpec { layout: model.layout.without_settings(), ..model.clone() };
        if names.contains("seed") || names.contains("precision") {
            model.training_graph = IGNORED;
        }
        if names.contains("precision") {
            model.evaluation_graph = IGNORED;
        }
        if names.contains("resume") {
            model.initial = IGNORED;
        }
        model
    };
    explained(&there.model) != explained(&submitted.model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sim::{training, training_job},
        spec::{Normalization, Source, StepSettings},
    };

    const OTHER: ContentDigest = ContentDigest::from_bytes([9; 32]);

    #[test]
    fn what_an_earlier_release_did_not_note_of_the_data_makes_no_other_job_table() {
        let job = |change: fn(&mut DataSpec)| {
            let mut train = training("bsp".parse().unwrap(), 64, 32);
            change(&mut train.data);
            training_job(train)
        };
        let named = |data: &mut DataSpec| data.class_names = vec!["aster".into(), "rose".into()];
        let standard = |data: &mut DataSpec| (data.standardize, data.mean) = (true, vec![0.1]);
        fn own(data: &mut DataSpec, standardize: bool, mean: f64) {
            let own = Normalization { standardize, mean: vec![mean], ..Normalization::default() };
            data.normalize.insert("table".into(), own);
        }
        #[rustfmt::skip]
        let cases: [(fn(&mut DataSpec), fn(&mut DataSpec), bool); 10] = [
            (|_| (),                                            named,                              true),
            (named,                                             |_| (),                             false),
            (|data| data.class_names = vec!["tulip".into()],    named,                              false),
            (|data| (data.standardize, data.mean) = (true, vec![f64::from(0.1_f32)]), standard,     true),
            (|data| data.mean = vec![f64::from(0.1_f32)],       |data| data.mean = vec![0.1],       false),
            (|data| data.scale = 0.5,                           named,                              false),
            (|data| own(data, true, f64::from(0.1_f32)),        |data| own(data, true, 0.1),        true),
            (|data| own(data, false, f64::from(0.1_f32)),       |data| own(data, false, 0.1),       false),
            (|data| own(data, true, 0.1),                       |data| own(data, false, 0.1),       false),
            (|data| own(data, true, 0.1),                       |_| (),                             false),
        ];
        for (row, (there, submitted, same)) in cases.into_iter().enumerate() {
            assert_eq!(have_same_content(&job(there), &job(submitted)), same, "row {row}");
        }
    }

    #[test]
    fn a_job_of_before_there_were_checkpoints_by_default_is_the_same_as_one_with_them_table() {
        let (default, asked) = (CheckpointSpec::default(), CheckpointSpec::every_s(300));
        for (there, submitted, same) in [
            (None, Some(default), true),
            (Some(default), None, false),
            (None, Some(asked), false),
            (Some(asked), Some(default), false),
        ] {
            let job = |checkpoint| {
                training_job(TrainSpec { checkpoint, ..training("bsp".parse().unwrap(), 64, 32) })
            };
            assert_eq!(have_same_content(&job(there), &job(submitted)), same, "{there:?} {submitted:?}");
        }
    }

    #[test]
    fn the_same_data_under_another_path_are_not_taken_for_others() {
        let job = |path: &str| {
            let mut train = training("bsp".parse().unwrap(), 64, 32);
            train.data.source = Source::csv(path);
            train.data.digest = Some(ContentDigest::from_bytes([0x5a; 32]));
            training_job(train)
        };
        let differs = differences(&job("/a/data.csv"), &job("/b/data.csv"));
        assert_eq!(differs, ", and differs in the paths of the same data");
    }

    #[test]
    fn a_taken_name_says_which_settings_differ_table() {
        let spec = training_job(training("bsp".parse().unwrap(), 64, 32));
        let differing = |change: fn(&mut TrainSpec)| {
            let mut other = spec.clone();
            for node in &mut other.nodes {
                if let NodeKind::Train(train) = &mut node.kind {
                    change(train);
                }
            }
            assert_eq!(differences(&other, &spec), differences(&spec, &other), "in both directions");
            differences(&spec, &other)
        };
        let group = |train: &mut TrainSpec| {
            train.model.layout.0[0].settings =
                StepSettings { weight_decay: Some(0.0), ..StepSettings::default() }
        };
        let graph = |train: &mut TrainSpec| train.model.training_graph = OTHER;
        assert_eq!(differing(|train| train.epochs += 1), ", and differs in epochs");
        assert_eq!(differing(|train| (train.seed, train.batch) = (77, 5)), ", and differs in batch, seed");
        assert_eq!(differing(|train| train.queue_limit_ms = Some(1)), ", and differs in queue_limit_s");
        assert_eq!(differing(group), ", and differs in groups");
        let moved = |train: &mut TrainSpec| train.data.source = Source::csv("/elsewhere/data.csv");
        assert_eq!(differing(moved), ", and differs in data", "nobody knows what is in it");
        assert_eq!(differing(graph), ", and differs in model");
        assert_eq!(differing(|train| train.model.layout.0[0].name.push('2')), ", and differs in model");
        let with_dropout = |train: &mut TrainSpec| {
            train.seed += 1;
            train.model.training_graph = OTHER;
        };
        assert_eq!(differing(with_dropout), ", and differs in seed");
        let other_loss = |train: &mut TrainSpec| {
            train.seed += 1;
            train.model.evaluation_graph = OTHER;
        };
        assert_eq!(differing(other_loss), ", and differs in model, seed");
        let precision = |train: &mut TrainSpec| {
            (train.tf32, train.precision) = (!train.tf32, "other".into());
            train.model.training_graph = OTHER;
            train.model.evaluation_graph = OTHER;
        };
        assert_eq!(differing(precision), ", and differs in precision");
    }

    #[test]
    fn jobs_of_the_same_settings_differ_in_their_graphs() {
        let spec = training_job(training("bsp".parse().unwrap(), 64, 32));
        let mut retried = spec.clone();
        retried.nodes[0].retries += 1;
        assert_eq!(differences(&spec, &retried), ", with another graph");
    }
}
