//! The settings of a training as people read them: those that all have in words, the others as a job file has
//! them.

use syncline_rpc::status::JobStatus;
use syncline_scheduler::spec::{Setting, SettingList};

use super::describe_lines::Line;

/// Most characters of a value in a line; `--json` has more of it.
const VALUE_CHARS: usize = 100;

/// What people are told in words of their own, of a job and of one that is still to be submitted.
pub(crate) const IN_OTHER_WORDS: [&str; 15] = [
    "settings.optimizer",
    "settings.learning_rate",
    "settings.warmup",
    "settings.decay",
    "settings.min_learning_rate",
    "settings.policy",
    "settings.batch",
    "settings.micro_batch",
    "settings.epochs",
    "settings.groups",
    "settings.checkpoint",
    "settings.checkpoint.every_s",
    "settings.checkpoint.every_epochs",
    "settings.checkpoint.keep",
    "settings.checkpoint.until_done",
];
/// What they are told so of a job besides.
const OF_JOB_IN_OTHER_WORDS: [&str; 7] = [
    "settings.seed",
    "settings.clip_norm",
    "settings.precision",
    "settings.resume",
    "settings.compression",
    "settings.pull_compression",
    "settings.sparse",
];

/// By what jobs of one model and data may differ.
pub(super) fn in_words(job: &JobStatus) -> String {
    let told = [&IN_OTHER_WORDS[..], &OF_JOB_IN_OTHER_WORDS].concat();
    let rate = job.learning_rate.map(|rate| rate_in_words(rate, job.schedule.as_deref()));
    let said = [
        job.optimizer.clone(),
        rate,
        job.batch.map(|batch| format!("batch {batch}")),
        job.micro_batch.map(|most| format!("micro_batch {most}")),
        Some(format!("{} epochs", job.epochs)),
        job.clip_norm.map(|norm| format!("clip_norm {norm}")),
        job.precision.clone(),
        job.seed.map(|seed| format!("seed {seed}")),
        rest(&job.settings, "settings.", &told),
    ];
    said.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A learning rate, and how it goes on.
pub(crate) fn rate_in_words(rate: impl std::fmt::Display, schedule: Option<&str>) -> String {
    match schedule {
        Some(schedule) => format!("learning rate {rate} ({schedule})"),
        None => format!("learning rate {rate}"),
    }
}

/// A line for those of the data, and one for those of the model, where there are any.
pub(crate) fn of_data_and_model(list: &SettingList) -> impl Iterator<Item = Line> {
    // The digest is for programs, and for who compares.
    let lines = [("data", rest(list, "data.", &["data.digest"])), ("model", rest(list, "model.", &[]))];
    lines.into_iter().filter_map(|(name, text)| Some((name, text?)))
}

/// Those that begin so, but for these; `None` if there are no others.
pub(crate) fn rest(list: &SettingList, prefix: &str, but: &[&str]) -> Option<String> {
    let others = list.iter().filter(|setting| !but.contains(&setting.name.as_str()));
    let said: Vec<String> = others
        .filter_map(|Setting { name, value }| {
            let name = name.strip_prefix(prefix)?;
            Some(format!("{name} = {}", shortened(value, VALUE_CHARS)))
        })
        .collect();
    (!said.is_empty()).then(|| said.join(", "))
}

/// Most characters of a value in a column of a table.
pub(crate) const CELL_CHARS: usize = 28;

/// A value of at most so many characters: of a longer one both ends, since paths begin alike.
pub(crate) fn shortened(value: &str, most_chars: usize) -> String {
    let chars: Vec<char> = value.chars().collect();
    if chars.len() <= most_chars {
        return value.to_owned();
    }
    let head = most_chars / 3;
    let tail = most_chars.saturating_sub(head + 1);
    let text = |part: &[char]| part.iter().collect::<String>();
    format!("{}…{}", text(&chars[..head]), text(&chars[chars.len() - tail..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::describe::tests::job;

    #[test]
    fn jobs_that_differ_in_a_setting_are_told_apart() {
        let known = [("optimizer", "adam, weight_decay 0.1"), ("learning_rate", "0.001"), ("batch", "32")];
        let more =
            [("epochs", "10"), ("seed", "3"), ("precision", "f32"), ("schedule", ""), ("clip_norm", "")];
        let all = [&known[..], &more, &[("micro_batch", "")]].concat();
        assert_eq!(
            in_words(&job(&all)),
            "adam, weight_decay 0.1, learning rate 0.001, batch 32, 10 epochs, f32, seed 3"
        );
        let changed = [("schedule", "cosine to 0"), ("clip_norm", "1"), ("micro_batch", "8")];
        let scheduled = [&all[..6], &changed].concat();
        assert_eq!(
            in_words(&job(&scheduled)),
            "adam, weight_decay 0.1, learning rate 0.001 (cosine to 0), batch 32, micro_batch 8, 10 epochs, clip_norm 1, f32, seed 3"
        );
    }

    #[test]
    fn what_has_no_words_of_its_own_is_told_as_a_job_file_has_it() {
        let list = r#"{"model.forward.loss":"mse","data.source.csv.path":"/d.csv","data.augment.crop":"4","data.digest":"ab12",
            "settings.batch":"8","settings.drop_last":"true","settings.evaluate.every_epochs":"1"}"#;
        let job = job(&[("settings", list), ("batch", "8"), ("epochs", "1")]);
        assert_eq!(in_words(&job), "batch 8, 1 epochs, drop_last = true, evaluate.every_epochs = 1");
        let lines: Vec<Line> = of_data_and_model(&job.settings).collect();
        let [data, model] =
            ["source.csv.path = /d.csv, augment.crop = 4", "forward.loss = mse"].map(str::to_owned);
        assert_eq!(lines, [("data", data), ("model", model)]);
    }

    #[test]
    fn a_long_value_keeps_both_ends() {
        assert_eq!(shortened("/data/a.csv", 11), "/data/a.csv");
        assert_eq!(shortened("/one/somebody/data/täglich.csv", 13), "/one…lich.csv");
        assert_eq!(shortened("/one/somebody/data/täglich.csv", 13).chars().count(), 13);
    }
}
