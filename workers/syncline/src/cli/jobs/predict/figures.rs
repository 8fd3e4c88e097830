//! How well a model does, in words and as JSON.

use std::path::PathBuf;

use serde::Serialize;
use syncline_scheduler::{
    core::{ClassCount, significant},
    ids::JobId,
};
use syncline_workers::predict::{ClassFigures, Figures, LabelFigures, ValueFigures};

use super::{
    table_file::MOST_COLUMNS,
    tables::{self, Counts},
};
use crate::cli::{one_line, scores_in_words};

/// The most frequent mistakes that are shown.
const MISTAKES_SHOWN: usize = 5;

/// What came of it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    job: JobId,
    /// Part of the job's data; `None`: other files.
    part: Option<&'static str>,
    /// The files.
    data: String,
    samples: usize,
    loss: Option<f64>,
    accuracy: Option<f64>,
    macro_f1: Option<f64>,
    macro_precision: Option<f64>,
    macro_recall: Option<f64>,
    subset_accuracy: Option<f64>,
    top_k_accuracy: Option<f64>,
    perplexity: Option<f64>,
    mean_absolute_error: Option<f64>,
    root_mean_square_error: Option<f64>,
    r_squared: Option<f64>,
    /// Samples with a NaN score.
    nan_samples: u64,
    classes: Vec<Class>,
    mistakes: Vec<Mistake>,
    labels: Vec<Label>,
    targets: Vec<Target>,
    /// What was written.
    file: Option<String>,
}

/// How often a class was there, was named, and was right.
#[derive(Debug, Serialize)]
struct Class {
    class: usize,
    /// What it is called, where labels are texts.
    name: Option<String>,
    labels: u64,
    predicted: u64,
    right: u64,
    recall: Option<f64>,
    precision: Option<f64>,
}

/// How often one of the labels that a sample may have was there, was given, and was right.
#[derive(Debug, Serialize)]
struct Label {
    label: usize,
    support: u64,
    predicted: u64,
    right: u64,
    recall: Option<f64>,
    precision: Option<f64>,
}

/// How far the numbers of one target are off.
#[derive(Debug, Serialize)]
pub(super) struct Target {
    pub target: usize,
    pub mean_absolute_error: Option<f64>,
    pub root_mean_square_error: Option<f64>,
    pub r_squared: Option<f64>,
}

/// A class that was named in the place of another one.
#[derive(Debug, Serialize)]
struct Mistake {
    label: u32,
    label_name: Option<String>,
    predicted: u32,
    predicted_name: Option<String>,
    times: u64,
}

impl Report {
    pub(super) fn new(
        job: JobId,
        part: Option<&'static str>,
        data: String,
        samples: usize,
        figures: &Figures,
        names: &[String],
        file: Option<PathBuf>,
    ) -> Self {
        let (evaluation, values) = (figures.evaluation.as_ref(), figures.values.as_ref());
        let classes = figures.classes.as_ref().filter(|classes| !classes.is_empty());
        let macro_mean = |of: fn(&ClassCount) -> Option<f64>| match &figures.labels {
            Some(labels) => labels.macro_mean(of),
            None => classes.and_then(|classes| classes.macro_mean(of)),
        };
        Self {
            job,
            part,
            data,
            samples,
            loss: evaluation.map(|evaluation| evaluation.loss),
            accuracy: evaluation.and_then(|evaluation| evaluation.accuracy),
            macro_f1: macro_mean(ClassCount::f1),
            macro_precision: macro_mean(ClassCount::precision),
            macro_recall: macro_mean(ClassCount::recall),
            subset_accuracy: figures.labels.as_ref().and_then(LabelFigures::subset_accuracy),
            top_k_accuracy: evaluation.and_then(|evaluation| evaluation.top_k_accuracy),
            perplexity: evaluation.and_then(|evaluation| evaluation.perplexity),
            mean_absolute_error: values.and_then(|values| values.mean_absolute_error()),
            root_mean_square_error: values.and_then(|values| values.root_mean_square_error()),
            r_squared: values.and_then(|values| values.r_squared()),
            nan_samples: figures.nan_samples,
            classes: classes.map(|classes| of_classes(classes, names)).unwrap_or_default(),
            mistakes: classes.map(|classes| mistakes(classes, names)).unwrap_or_default(),
            labels: figures.labels.as_ref().map(of_labels).unwrap_or_default(),
            targets: values.map(of_targets).unwrap_or_default(),
            file: file.map(|file| file.display().to_string()),
        }
    }

    pub(super) fn text(&self) -> String {
        let Self { job, part, data, samples, file, .. } = self;
        let which = part.map(|part| format!("{part} samples of ")).unwrap_or_default();
        let mut lines = vec![format!("job        {job}"), format!("samples    {samples}, {which}{data}")];
        let percent = |share: f64| format!("{:.2} %", share * 100.0);
        let figures = [
            ("loss", self.loss.map(significant)),
            ("accuracy", self.accuracy.map(percent)),
            ("macro F1", scores_in_words([self.macro_f1, self.macro_precision, self.macro_recall])),
            ("subset", self.subset_accuracy.filter(|_| self.labels.len() > 1).map(percent)),
            ("top-k", self.top_k_accuracy.map(percent)),
            ("perplexity", self.perplexity.map(significant)),
            ("MAE", self.mean_absolute_error.map(significant)),
            ("RMSE", self.root_mean_square_error.map(significant)),
            ("R²", self.r_squared.map(significant)),
            ("written", file.clone()),
        ];
        lines.extend(figures.into_iter().filter_map(|(name, text)| Some(format!("{name:<10} {}", text?))));
        lines.extend(self.nan_line());
        let classes = self.classes.iter().map(Class::counts);
        let has_one = self.labels.len() == 1;
        let labels = self.labels.iter().map(|label| label.counts(has_one));
        let tables = [
            tables::counts([">class", ">labels"], classes.collect()),
            tables::counts([">label", ">support"], labels.collect()),
            tables::targets(&self.targets),
        ];
        lines.extend(tables.into_iter().flatten().flat_map(|table| [String::new(), table]));
        let mistakes = self.mistakes.iter();
        lines.extend(mistakes.map(|Mistake { label, label_name, predicted, predicted_name, times }| {
            let often = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
            let called =
                |class: &u32, name: &Option<String>| name.clone().unwrap_or_else(|| class.to_string());
            let (label, predicted) = (called(label, label_name), called(predicted, predicted_name));
            format!("{} taken for {}: {often}", one_line(&label), one_line(&predicted))
        }));
        lines.join("\n")
    }

    /// What is said of NaN scores, if there are some.
    fn nan_line(&self) -> Option<String> {
        let count = match self.nan_samples {
            0 => return None,
            1 => "1 sample has".to_owned(),
            more => format!("{more} samples have"),
        };
        let so = match (self.loss, &self.mean_absolute_error) {
            (None, _) => "nothing is predicted there",
            (_, Some(_)) => "MAE, RMSE and R² are of the others",
            _ => "nothing is predicted there, and their labels count as not found",
        };
        Some(format!("{count} NaN scores: {so}"))
    }
}

impl Class {
    fn counts(&self) -> Counts {
        let Self { class, ref name, labels, predicted, right, recall, precision } = *self;
        let name = name.clone().unwrap_or_else(|| class.to_string());
        Counts { name, there: labels, predicted, right, recall, precision }
    }
}

impl Label {
    /// A label that is the only one is called by what it says of a sample: a number would tell nothing.
    fn counts(&self, is_only: bool) -> Counts {
        let Self { label, support, predicted, right, recall, precision } = *self;
        let name = if is_only { "positive".to_owned() } else { label.to_string() };
        Counts { name, there: support, predicted, right, recall, precision }
    }
}

/// `names`: of the first classes, if they have some.
fn of_classes(figures: &ClassFigures, names: &[String]) -> Vec<Class> {
    let class = |(class, counts): (usize, &ClassCount)| Class {
        class,
        name: names.get(class).cloned(),
        labels: counts.labels,
        predicted: counts.predicted,
        right: counts.right,
        recall: counts.recall(),
        precision: counts.precision(),
    };
    figures.classes.iter().enumerate().map(class).collect()
}

/// None where there are more than a row of the file takes.
fn of_labels(figures: &LabelFigures) -> Vec<Label> {
    let label = |(label, counts): (usize, &ClassCount)| Label {
        label,
        support: counts.labels,
        predicted: counts.predicted,
        right: counts.right,
        recall: counts.recall(),
        precision: counts.precision(),
    };
    let shown = figures.labels.len() <= MOST_COLUMNS;
    figures.labels.iter().enumerate().filter(|_| shown).map(label).collect()
}

/// None where there are more than a row of the file takes.
fn of_targets(figures: &ValueFigures) -> Vec<Target> {
    let shown = figures.targets.len() <= MOST_COLUMNS;
    let targets = figures.targets.iter().enumerate().filter(|_| shown);
    let target = targets.map(|(target, figures)| Target {
        target,
        mean_absolute_error: figures.mean_absolute_error(),
        root_mean_square_error: figures.root_mean_square_error(),
        r_squared: figures.r_squared(),
    });
    target.collect()
}

fn mistakes(figures: &ClassFigures, names: &[String]) -> Vec<Mistake> {
    let name = |class: u32| names.get(class as usize).cloned();
    let mistake = |(label, predicted, times)| Mistake {
        label,
        label_name: name(label),
        predicted,
        predicted_name: name(predicted),
        times,
    };
    figures.most_confused(MISTAKES_SHOWN).into_iter().map(mistake).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_label_is_called_positive_and_several_have_numbers_table() {
        let label =
            |label| Label { label, support: 4, predicted: 4, right: 2, recall: None, precision: None };
        let figures = Figures::default();
        for (count, names) in [(1, vec!["positive"]), (2, vec!["0", "1"])] {
            let job = "job".parse().unwrap();
            let report = Report::new(job, None, "rows.csv".to_owned(), 8, &figures, &[], None);
            let report = Report { labels: (0..count).map(label).collect(), ..report };
            let text = report.text();
            let rows = text.lines().skip_while(|line| !line.trim_start().starts_with("label"));
            let told: Vec<&str> = rows.skip(1).filter_map(|row| row.split_whitespace().next()).collect();
            assert_eq!(told, names, "{text}");
        }
    }
}
